// Package token is the control plane's OAuth 2.0 server: the token endpoint
// for the client_credentials grant (RFC 6749), its metadata (RFC 8414) and the
// public keys (RFC 7517), and the signing keys and their rotation.
//
// Keys are ES256 and lie in Postgres, the private half sealed with the key
// file. A key's life: published in the JWKS some time before it signs, so that
// every broker has it in its cache by then; signs until the next one takes
// over; leaves the JWKS when the last token it may have signed has expired.
// All replicas read the same rows; making and retiring keys is done under an
// advisory lock, and only ever by the clock in signs_from, so no replica needs
// to know which of them did it.
//
// Lock order: Keys.refresh before Keys.mu.
package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"penstock/tenants"
	"penstock/tenants/registry"
)

// KeysConfig says how keys live.
type KeysConfig struct {
	Pool   *pgxpool.Pool // under penstock_worker
	Sealer *registry.Sealer
	// Rotate is how long a key signs; 0 means 30 days.
	Rotate time.Duration
	// Ahead is how long a key is published before it signs, longer than any
	// reader's cache; 0 means 2 hours.
	Ahead time.Duration
	// MaxTokenLife is how long a key stays published after it last signed; 0
	// means 1 hour, never less than the tokens' life.
	MaxTokenLife time.Duration
	Now          func() time.Time // nil: time.Now
	Logger       *slog.Logger     // nil: discard
}

// JWK is a public key as published.
type JWK struct {
	Kty string `json:"kty"`
	Crv string `json:"crv"`
	X   string `json:"x"`
	Y   string `json:"y"`
	Kid string `json:"kid"`
	Use string `json:"use"`
	Alg string `json:"alg"`
}

type signingKey struct {
	jwk       JWK
	private   *ecdsa.PrivateKey
	signsFrom time.Time
	retiresAt *time.Time
}

// Keys holds the signing keys in memory and keeps them current.
type Keys struct {
	cfg     KeysConfig
	cancel  context.CancelFunc
	done    chan struct{}
	refresh sync.Mutex // one refresh at a time

	mu        sync.Mutex
	keys      []signingKey // by signsFrom
	refreshed time.Time
}

// OpenKeys loads the keys, making the first one in an empty database, and
// keeps them current until Close.
func OpenKeys(ctx context.Context, cfg KeysConfig) (*Keys, error) {
	if cfg.Rotate == 0 {
		cfg.Rotate = 30 * 24 * time.Hour
	}
	if cfg.Ahead == 0 {
		cfg.Ahead = 2 * time.Hour
	}
	if cfg.MaxTokenLife == 0 {
		cfg.MaxTokenLife = time.Hour
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Ahead >= cfg.Rotate {
		return nil, errors.New("token: keys must sign for longer than they are published ahead")
	}
	run, cancel := context.WithCancel(context.Background())
	k := &Keys{cfg: cfg, cancel: cancel, done: make(chan struct{})}
	if err := k.Refresh(ctx); err != nil {
		cancel()
		return nil, err
	}
	go k.run(run)
	return k, nil
}

// Close ends the upkeep and waits for it.
func (k *Keys) Close() {
	k.cancel()
	<-k.done
}

func (k *Keys) run(ctx context.Context) {
	defer close(k.done)
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			// With Postgres away the keys in memory go on signing.
			if err := k.Refresh(ctx); err != nil && ctx.Err() == nil {
				k.cfg.Logger.Warn("cannot refresh signing keys, going on with those in memory", "err", err)
			}
		}
	}
}

// Refresh does what is due by the clock (first key, next key, retirement) and
// loads the rows.
func (k *Keys) Refresh(ctx context.Context) error {
	k.refresh.Lock()
	defer k.refresh.Unlock()
	var keys []signingKey
	err := pgx.BeginFunc(ctx, k.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('signing-keys', 0))`); err != nil {
			return err
		}
		var err error
		keys, err = k.load(ctx, tx)
		if err != nil {
			return err
		}
		changed, err := k.advance(ctx, tx, keys)
		if err == nil && changed {
			keys, err = k.load(ctx, tx)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("signing keys: %w", err)
	}
	k.mu.Lock()
	k.keys, k.refreshed = keys, k.cfg.Now()
	k.mu.Unlock()
	return nil
}

// advance makes and retires keys as due; keys are sorted by signsFrom.
func (k *Keys) advance(ctx context.Context, tx pgx.Tx, keys []signingKey) (changed bool, err error) {
	now := k.cfg.Now().UTC()
	if len(keys) == 0 {
		return true, k.create(ctx, tx, now)
	}
	newest := keys[len(keys)-1]
	if handover := newest.signsFrom.Add(k.cfg.Rotate); !now.Before(handover.Add(-k.cfg.Ahead)) {
		from := now.Add(k.cfg.Ahead) // never sooner, also after a long sleep
		if from.Before(handover) {
			from = handover
		}
		if err := k.create(ctx, tx, from); err != nil {
			return false, err
		}
		changed = true
	}
	for i, key := range keys[:len(keys)-1] {
		next := keys[i+1]
		if key.retiresAt == nil && !now.Before(next.signsFrom) {
			if _, err := tx.Exec(ctx, `UPDATE signing_keys SET retires_at = $2 WHERE kid = $1`,
				key.jwk.Kid, next.signsFrom.Add(k.cfg.MaxTokenLife+time.Minute)); err != nil {
				return false, err
			}
			changed = true
		}
	}
	tag, err := tx.Exec(ctx, `DELETE FROM signing_keys WHERE retires_at < $1`, now)
	return changed || tag.RowsAffected() > 0, err
}

// Rotate has a new key made now; it signs after the time ahead.
func (k *Keys) Rotate(ctx context.Context) error {
	err := pgx.BeginFunc(ctx, k.cfg.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('signing-keys', 0))`); err != nil {
			return err
		}
		return k.create(ctx, tx, k.cfg.Now().UTC().Add(k.cfg.Ahead))
	})
	if err != nil {
		return fmt.Errorf("rotate signing key: %w", err)
	}
	return k.Refresh(ctx)
}

func purpose(kid string) string { return "signing-key/" + kid }

func (k *Keys) create(ctx context.Context, tx pgx.Tx, from time.Time) error {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return err
	}
	point, err := private.PublicKey.Bytes() // 4, X, Y
	if err != nil {
		return err
	}
	b64 := base64.RawURLEncoding
	jwk := JWK{Kty: "EC", Crv: "P-256", X: b64.EncodeToString(point[1:33]), Y: b64.EncodeToString(point[33:65]),
		Kid: tenants.NewID(tenants.PrefixKey), Use: "sig", Alg: "ES256"}
	_, err = tx.Exec(ctx, `INSERT INTO signing_keys (kid, alg, public_jwk, sealed_private, signs_from) VALUES ($1, 'ES256', $2, $3, $4)`,
		jwk.Kid, jwk, k.cfg.Sealer.Seal(der, purpose(jwk.Kid)), from)
	if err == nil {
		k.cfg.Logger.Info("made a signing key", "kid", jwk.Kid, "signs_from", from)
	}
	return err
}

func (k *Keys) load(ctx context.Context, tx pgx.Tx) ([]signingKey, error) {
	rows, err := tx.Query(ctx, `SELECT public_jwk, sealed_private, signs_from, retires_at FROM signing_keys ORDER BY signs_from, kid`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (signingKey, error) {
		var key signingKey
		var sealed []byte
		if err := row.Scan(&key.jwk, &sealed, &key.signsFrom, &key.retiresAt); err != nil {
			return key, err
		}
		der, err := k.cfg.Sealer.Open(sealed, purpose(key.jwk.Kid))
		if err != nil {
			return key, fmt.Errorf("%s: %w", key.jwk.Kid, err)
		}
		private, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return key, fmt.Errorf("%s: %w", key.jwk.Kid, err)
		}
		ec, ok := private.(*ecdsa.PrivateKey)
		if !ok {
			return key, fmt.Errorf("%s: not an EC key", key.jwk.Kid)
		}
		key.private = ec
		return key, nil
	})
}

// signer is the newest key whose time to sign has come.
func (k *Keys) signer() (signingKey, error) {
	now := k.cfg.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := len(k.keys) - 1; i >= 0; i-- {
		if !k.keys[i].signsFrom.After(now) {
			return k.keys[i], nil
		}
	}
	return signingKey{}, errors.New("token: no key may sign yet; is this machine's clock behind?")
}

// public finds a published key. An unknown one may have been made by another
// replica a moment ago: then it looks in the database, at most once a few
// seconds, so that invented key ids cost nothing.
func (k *Keys) public(ctx context.Context, kid string) (*ecdsa.PublicKey, error) {
	for try := 0; ; try++ {
		k.mu.Lock()
		for _, key := range k.keys {
			if key.jwk.Kid == kid && (key.retiresAt == nil || key.retiresAt.After(k.cfg.Now())) {
				k.mu.Unlock()
				return &key.private.PublicKey, nil
			}
		}
		fresh := k.cfg.Now().Sub(k.refreshed) < 5*time.Second
		k.mu.Unlock()
		if try > 0 || fresh || k.Refresh(ctx) != nil {
			return nil, errors.New("unknown key id")
		}
	}
}

// JWKS is the document of all published keys.
func (k *Keys) JWKS() []byte {
	now := k.cfg.Now()
	set := struct {
		Keys []JWK `json:"keys"`
	}{Keys: []JWK{}}
	k.mu.Lock()
	for _, key := range k.keys {
		if key.retiresAt == nil || key.retiresAt.After(now) {
			set.Keys = append(set.Keys, key.jwk)
		}
	}
	k.mu.Unlock()
	b, err := json.Marshal(set)
	if err != nil {
		panic("BUG: " + err.Error()) // strings only
	}
	return b
}
