package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// KeysConfig says where an issuer's keys are.
type KeysConfig struct {
	URL             string        // http, https or file
	CacheFile       string        // "" keeps none
	Refresh         time.Duration // time between reads; 1 h
	RetryBackoff    time.Duration // first pause after a failed read; 100 ms
	RetryBackoffMax time.Duration // longest pause; 10 s
	MissInterval    time.Duration // least time between reads because of an unknown kid; 5 s
	Timeout         time.Duration // of one read, and of the wait for it at a login; 3 s
	Client          *http.Client  // nil: one that follows no redirects
	Logger          *slog.Logger
}

// Keys holds an issuer's keys and reads them anew in the background.
type Keys struct {
	cfg    KeysConfig
	log    *slog.Logger
	client *http.Client
	set    atomic.Pointer[keySet]

	wake   chan struct{} // asks the loop for a read now
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	attempt chan struct{} // closed at the end of the read that is next or under way
	missed  time.Time     // last read because of an unknown kid
	asked   chan struct{} // attempt of that read
}

// OpenKeys begins to read in the background and returns at once. Until the
// first read has ended, look-ups wait for it (at most Timeout); if it fails the
// set of the cache file counts.
func OpenKeys(cfg KeysConfig) (*Keys, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "file") {
		return nil, errors.New("auth: sasl.oauthbearer.jwks.endpoint.url must be an http, https or file URL")
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.Refresh, time.Hour)
	def(&cfg.RetryBackoff, 100*time.Millisecond)
	def(&cfg.RetryBackoffMax, 10*time.Second)
	def(&cfg.MissInterval, 5*time.Second)
	def(&cfg.Timeout, 3*time.Second)
	k := &Keys{cfg: cfg, log: cfg.Logger, client: cfg.Client, wake: make(chan struct{}, 1), done: make(chan struct{}), attempt: make(chan struct{})}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	if k.client == nil {
		k.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	go k.run(ctx)
	return k, nil
}

// Close ends the background reading and waits for it.
func (k *Keys) Close() {
	k.cancel()
	<-k.done
	k.client.CloseIdleConnections()
}

func (k *Keys) run(ctx context.Context) {
	defer close(k.done)
	backoff := k.cfg.RetryBackoff
	first := true
	for {
		err := k.read(ctx)
		pause := k.cfg.Refresh
		if err != nil && ctx.Err() == nil {
			k.log.Warn("reading the issuer's keys failed", "url", redact(k.cfg.URL), "err", err)
			if first {
				k.loadCache()
			}
			pause = backoff
			backoff = min(2*backoff, k.cfg.RetryBackoffMax)
		} else {
			backoff = k.cfg.RetryBackoff
		}
		first = false
		k.mu.Lock()
		close(k.attempt)
		k.attempt = make(chan struct{})
		k.mu.Unlock()
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-k.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

func (k *Keys) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.Timeout)
	defer cancel()
	raw, err := k.fetch(ctx)
	if err != nil {
		return err
	}
	set, err := parseJWKS(raw)
	if err != nil {
		return err
	}
	k.set.Store(&set)
	if err := k.saveCache(raw); err != nil {
		k.log.Warn("keeping the issuer's keys on disk failed", "file", k.cfg.CacheFile, "err", err)
	}
	return nil
}

func (k *Keys) fetch(ctx context.Context) ([]byte, error) {
	u, err := url.Parse(k.cfg.URL)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "file" {
		f, err := os.Open(u.Path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return readBounded(f)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return readBounded(resp.Body)
}

func readBounded(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxJWKS+1))
	if err == nil && len(b) > maxJWKS {
		err = errors.New("key set too large")
	}
	return b, err
}

func (k *Keys) loadCache() {
	if k.cfg.CacheFile == "" {
		return
	}
	f, err := os.Open(k.cfg.CacheFile)
	if err != nil {
		k.log.Warn("no keys of the issuer on disk", "file", k.cfg.CacheFile, "err", err)
		return
	}
	defer f.Close()
	raw, err := readBounded(f)
	var set keySet
	if err == nil {
		set, err = parseJWKS(raw)
	}
	if err != nil {
		k.log.Warn("the issuer's keys on disk are unusable", "file", k.cfg.CacheFile, "err", err)
		return
	}
	k.set.Store(&set)
}

// saveCache replaces the file atomically. It holds public keys only, yet who can
// write it can log in, so it is the broker's alone.
func (k *Keys) saveCache(raw []byte) error {
	if k.cfg.CacheFile == "" {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(k.cfg.CacheFile), ".jwks-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), k.cfg.CacheFile)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

var errUnknownKey = errors.New("token names a key that the issuer does not have")

// lookup finds a key. An unknown kid asks for one read of the keys, at most one
// each MissInterval, so that made-up kids cannot burden the issuer.
func (k *Keys) lookup(ctx context.Context, kid, alg string) (any, error) {
	if k.set.Load() == nil {
		k.await(ctx, false)
	}
	v, ok := k.find(kid)
	if !ok {
		k.await(ctx, true)
		if v, ok = k.find(kid); !ok {
			return nil, errUnknownKey
		}
	}
	if v.alg != alg {
		return nil, errors.New("token's algorithm is not that of its key")
	}
	return v.key, nil
}

func (k *Keys) find(kid string) (verifyKey, bool) {
	set := k.set.Load()
	if set == nil {
		return verifyKey{}, false
	}
	v, ok := (*set)[kid]
	return v, ok
}

// await waits for the read that is next or under way; with ask it asks for one,
// if that is allowed now, and else returns at once.
func (k *Keys) await(ctx context.Context, ask bool) {
	k.mu.Lock()
	attempt := k.attempt
	if ask {
		now := time.Now()
		switch {
		case k.asked == attempt: // another login has asked already: share its read
		case !k.missed.IsZero() && now.Sub(k.missed) < k.cfg.MissInterval:
			k.mu.Unlock()
			return
		default:
			k.missed, k.asked = now, attempt
			select {
			case k.wake <- struct{}{}:
			default:
			}
		}
	}
	k.mu.Unlock()
	t := time.NewTimer(k.cfg.Timeout)
	defer t.Stop()
	select {
	case <-attempt:
	case <-k.done:
	case <-ctx.Done():
	case <-t.C:
	}
}

// redact takes a password out of a URL for the log.
func redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}
