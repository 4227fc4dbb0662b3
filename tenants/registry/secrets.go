package registry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

// MaxSecrets is how many live secrets an account may have: two, so that one
// can be replaced while the other works.
const MaxSecrets = 2

const (
	secretPrefix = "pks_"
	prefixLen    = len(secretPrefix) + 6 // characters of a secret that are kept readable
	base32Chars  = "0123456789abcdefghjkmnpqrstvwxyz"
)

// Secret is a client secret's row.
type Secret struct {
	ID         string
	Prefix     string
	ExpiresAt  *time.Time
	LastUsedAt *time.Time
	CreatedAt  time.Time
}

// NewSecret makes a client secret: "pks_", 52 characters of 256 random bits
// and 7 of a CRC-32 over them, so that a scanner for leaked secrets can tell
// it from chance. Only letters, digits and an underscore: it passes through
// forms, Basic headers and JAAS lines as it is.
func NewSecret() string {
	raw := make([]byte, 32)
	rand.Read(raw)
	body := encode(raw)
	sum := crc32.ChecksumIEEE([]byte(body))
	return secretPrefix + body + encode([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})
}

func encode(raw []byte) string {
	out := make([]byte, 0, (len(raw)*8+4)/5)
	var acc, bits uint
	for _, b := range raw {
		acc, bits = acc<<8|uint(b), bits+8
		for bits >= 5 {
			bits -= 5
			out = append(out, base32Chars[acc>>bits&31])
		}
	}
	if bits > 0 {
		out = append(out, base32Chars[acc<<(5-bits)&31])
	}
	return string(out)
}

// HashSecret is what is stored of a secret: 256 random bits need no slow hash.
func HashSecret(secret string) []byte {
	h := sha256.Sum256([]byte(secret))
	return h[:]
}

// Owner names whose secret it is: exactly one of both.
type Owner struct {
	AccountID        string
	ServiceAccountID string
}

func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// AddSecret stores the hash of a new secret and gives the secret itself, the
// only time it is known. expiresIn 0 means never. ErrTooMany: MaxSecrets live
// ones are there; ErrNotFound: no such account.
func AddSecret(ctx context.Context, tx pgx.Tx, tenant string, o Owner, expiresIn time.Duration) (*Secret, string, error) {
	table, id := "accounts", o.AccountID
	if id == "" {
		table, id = "service_accounts", o.ServiceAccountID
	}
	// The owner's row is locked so that two calls at once cannot make a third secret.
	var locked string
	err := tx.QueryRow(ctx, `SELECT id FROM `+table+` WHERE tenant_id = $1 AND id = $2 FOR UPDATE`, tenant, id).Scan(&locked)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, "", ErrNotFound
	}
	if err != nil {
		return nil, "", err
	}
	var live int
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM secrets WHERE tenant_id = $1
		AND (account_id = $2 OR service_account_id = $2) AND (expires_at IS NULL OR expires_at > now())`, tenant, id).Scan(&live); err != nil {
		return nil, "", err
	}
	if live >= MaxSecrets {
		return nil, "", fmt.Errorf("%w: %d live secrets, revoke one first", ErrTooMany, live)
	}
	// An expired row has no more use once a successor comes.
	if _, err := tx.Exec(ctx, `DELETE FROM secrets WHERE tenant_id = $1
		AND (account_id = $2 OR service_account_id = $2) AND expires_at <= now()`, tenant, id); err != nil {
		return nil, "", err
	}
	plain := NewSecret()
	var expires *time.Time
	if expiresIn > 0 {
		at := time.Now().Add(expiresIn).UTC()
		expires = &at
	}
	s, err := one(ctx, tx, scanSecret, `INSERT INTO secrets (tenant_id, id, account_id, service_account_id, hash, prefix, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING `+secretColumns, tenant, tenants.NewID(tenants.PrefixSecret),
		nullable(o.AccountID), nullable(o.ServiceAccountID), HashSecret(plain), plain[:prefixLen], expires)
	return s, plain, err
}

const secretColumns = `id, prefix, expires_at, last_used_at, created_at`

func scanSecret(row pgx.CollectableRow) (Secret, error) {
	var s Secret
	return s, row.Scan(&s.ID, &s.Prefix, &s.ExpiresAt, &s.LastUsedAt, &s.CreatedAt)
}

// Secrets lists an account's secrets, oldest first.
func Secrets(ctx context.Context, tx pgx.Tx, tenant string, o Owner) ([]Secret, error) {
	return many(ctx, tx, scanSecret, `SELECT `+secretColumns+` FROM secrets WHERE tenant_id = $1
		AND (account_id = $2 OR service_account_id = $3) ORDER BY id`, tenant, nullable(o.AccountID), nullable(o.ServiceAccountID))
}

// SecretsByOwner lists the secrets of many accounts at once, by account id.
func SecretsByOwner(ctx context.Context, tx pgx.Tx, tenant string, owners []string) (map[string][]Secret, error) {
	rows, err := tx.Query(ctx, `SELECT coalesce(account_id, service_account_id), `+secretColumns+` FROM secrets
		WHERE tenant_id = $1 AND (account_id = ANY($2) OR service_account_id = ANY($2)) ORDER BY id`, tenant, owners)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[string][]Secret{}
	for rows.Next() {
		var owner string
		var s Secret
		if err := rows.Scan(&owner, &s.ID, &s.Prefix, &s.ExpiresAt, &s.LastUsedAt, &s.CreatedAt); err != nil {
			return nil, err
		}
		out[owner] = append(out[owner], s)
	}
	return out, rows.Err()
}

// RevokeSecret removes a secret: it gets no new token from now on.
func RevokeSecret(ctx context.Context, tx pgx.Tx, tenant string, o Owner, id string) error {
	tag, err := tx.Exec(ctx, `DELETE FROM secrets WHERE tenant_id = $1 AND id = $2
		AND (account_id = $3 OR service_account_id = $4)`, tenant, id, nullable(o.AccountID), nullable(o.ServiceAccountID))
	if err == nil && tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return err
}

// Kind says what sort of account a client is.
type Kind string

// The three kinds of clients of the token endpoint.
const (
	KindOperator       Kind = "operator"
	KindAccount        Kind = "account"
	KindServiceAccount Kind = "service_account"
)

// Client is an account that has shown its secret.
type Client struct {
	Kind      Kind
	ID        string
	TenantID  string // empty for operators
	ClusterID string // of a service account
	Role      string // operator, admin, viewer; empty for service accounts
	SecretID  string // of the secret that was shown; empty for operators
}

// Authenticate checks a client's secret, whatever its kind and tenant; tx is a
// worker's. Unknown client, wrong, expired or revoked secret: all ErrBadClient.
func Authenticate(ctx context.Context, tx pgx.Tx, clientID, secret string) (*Client, error) {
	rows, err := tx.Query(ctx, `
		SELECT 'operator', '', '', 'operator', secret_hash, '' FROM operators WHERE id = $1
		UNION ALL
		SELECT 'account', a.tenant_id, '', a.role, s.hash, s.id FROM accounts a
			JOIN secrets s ON s.tenant_id = a.tenant_id AND s.account_id = a.id
			WHERE a.id = $1 AND (s.expires_at IS NULL OR s.expires_at > now())
		UNION ALL
		SELECT 'service_account', a.tenant_id, a.cluster_id, '', s.hash, s.id FROM service_accounts a
			JOIN secrets s ON s.tenant_id = a.tenant_id AND s.service_account_id = a.id
			WHERE a.id = $1 AND a.deletion_requested_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now())`, clientID)
	if err != nil {
		return nil, err
	}
	type candidate struct {
		Client
		hash []byte
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (candidate, error) {
		c := candidate{Client: Client{ID: clientID}}
		return c, row.Scan(&c.Kind, &c.TenantID, &c.ClusterID, &c.Role, &c.hash, &c.SecretID)
	})
	if err != nil {
		return nil, err
	}
	given := HashSecret(secret)
	for _, c := range found {
		if subtle.ConstantTimeCompare(given, c.hash) != 1 {
			continue
		}
		// To the minute is fine enough, and spares a write a token.
		sql, args := `UPDATE secrets SET last_used_at = now() WHERE tenant_id = $1 AND id = $2
			AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`, []any{c.TenantID, c.SecretID}
		if c.Kind == KindOperator {
			sql, args = `UPDATE operators SET last_used_at = now() WHERE id = $1
				AND (last_used_at IS NULL OR last_used_at < now() - interval '1 minute')`, []any{clientID}
		}
		if _, err := tx.Exec(ctx, sql, args...); err != nil {
			return nil, err
		}
		return &c.Client, nil
	}
	return nil, ErrBadClient
}

// EnsureOperator makes an operator's account, or gives an existing one this
// secret; tx is a worker's. The secret must have at least 20 characters.
func EnsureOperator(ctx context.Context, tx pgx.Tx, clientID, secret, name string) error {
	if len(clientID) < 3 || len(clientID) > 64 || len(secret) < 20 {
		return errors.New("operator: client_id must have 3 to 64 characters, client_secret at least 20")
	}
	_, err := tx.Exec(ctx, `INSERT INTO operators (id, name, secret_hash) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET secret_hash = $3 WHERE operators.secret_hash <> $3`, clientID, name, HashSecret(secret))
	if err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	return nil
}
