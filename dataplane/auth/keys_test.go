package auth

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

func has(k *Keys, kid string) bool {
	_, err := k.lookup(context.Background(), kid, "ES256")
	return err == nil
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

func TestKeysAreReadBeforeTheFirstLogin(t *testing.T) {
	i := newIssuer(t)
	i.set("k1", &ecKeyPair(t).PublicKey)
	if !has(openKeys(t, KeysConfig{URL: i.URL}), "k1") {
		t.Fatal("key not found")
	}
}

func TestUnknownKidReadsTheKeysOnceInAWhile(t *testing.T) {
	i := newIssuer(t)
	i.set("k1", &ecKeyPair(t).PublicKey)
	k := openKeys(t, KeysConfig{URL: i.URL, MissInterval: time.Hour})
	if !has(k, "k1") {
		t.Fatal("no key")
	}
	i.set("k2", &ecKeyPair(t).PublicKey) // the issuer rotates
	var wg sync.WaitGroup
	for range 8 { // logins that come together share the read
		wg.Go(func() {
			if !has(k, "k2") {
				t.Error("new key not found")
			}
		})
	}
	wg.Wait()
	for n := range 50 {
		if has(k, fmt.Sprint("made-up-", n)) {
			t.Fatal("found")
		}
	}
	if n := i.reads.Load(); n != 2 {
		t.Fatalf("%d reads", n)
	}
}

func TestKeysAreReadAgainAndWithdrawnOnesAreGone(t *testing.T) {
	i := newIssuer(t)
	i.set("k1", &ecKeyPair(t).PublicKey)
	k := openKeys(t, KeysConfig{URL: i.URL, Refresh: 5 * time.Millisecond, MissInterval: time.Hour})
	if !has(k, "k1") {
		t.Fatal("no key")
	}
	i.mu.Lock()
	delete(i.keys, "k1")
	i.keys["k2"] = &ecKeyPair(t).PublicKey
	i.mu.Unlock()
	eventually(t, "rotation", func() bool { _, old := k.find("k1"); _, now := k.find("k2"); return now && !old })
}

func TestKeysOutliveTheIssuer(t *testing.T) {
	i, key := newIssuer(t), ecKeyPair(t)
	i.set("k1", &key.PublicKey)
	cache := filepath.Join(t.TempDir(), "jwks.json")
	k := openKeys(t, KeysConfig{URL: i.URL, CacheFile: cache, Refresh: time.Millisecond, RetryBackoff: time.Millisecond, RetryBackoffMax: time.Millisecond})
	if !has(k, "k1") {
		t.Fatal("no key")
	}
	bad := [][]byte{nil, []byte("{"), []byte(`{"keys":[]}`), []byte(strings.Repeat("x", maxJWKS+10))}
	for n, status := range []int{200, 200, 200, 200, 500, 302, 404} {
		i.mu.Lock()
		i.body = func() ([]byte, int) { return bad[n%len(bad)], status }
		i.mu.Unlock()
		before := i.reads.Load()
		eventually(t, "reads", func() bool { return i.reads.Load() > before+2 })
		if !has(k, "k1") {
			t.Fatalf("key lost after status %d", status)
		}
	}
	i.Close()
	st, err := os.Stat(cache)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("cache: %v, %v", st, err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(cache), ".jwks-*")); len(left) > 0 {
		t.Fatal("temporary files left")
	}
	// A restart without the issuer.
	again := openKeys(t, KeysConfig{URL: i.URL, CacheFile: cache, RetryBackoff: time.Hour, RetryBackoffMax: time.Hour})
	v := newTestVerifier(t, again)
	if _, err := v.Verify(context.Background(), sign(t, jwt.SigningMethodES256, key, "k1", goodClaims())); err != nil {
		t.Fatal(err)
	}
}

func TestCacheGivesWayToAReachableIssuer(t *testing.T) {
	i := newIssuer(t)
	i.set("new", &ecKeyPair(t).PublicKey)
	cache := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(cache, jwks(map[string]any{"old": &ecKeyPair(t).PublicKey}), 0o600); err != nil {
		t.Fatal(err)
	}
	k := openKeys(t, KeysConfig{URL: i.URL, CacheFile: cache, MissInterval: time.Hour})
	if has(k, "old") || !has(k, "new") {
		t.Fatal("a key that the issuer withdrew was taken from disk")
	}
}

func TestUnusableCacheIsIgnored(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(cache, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := openKeys(t, KeysConfig{URL: "file:///nowhere", CacheFile: cache, Timeout: 50 * time.Millisecond})
	if has(k, "k1") {
		t.Fatal("found")
	}
}

func TestKeysFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, jwks(map[string]any{"k": &ecKeyPair(t).PublicKey}), 0o600); err != nil {
		t.Fatal(err)
	}
	if !has(openKeys(t, KeysConfig{URL: "file://" + path}), "k") {
		t.Fatal("no key")
	}
}

func TestSilentIssuerDelaysALoginOnlyAWhile(t *testing.T) {
	stop := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer s.Close()
	defer close(stop)
	k, err := OpenKeys(KeysConfig{URL: s.URL, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if has(k, "k1") || time.Since(start) > 5*time.Second {
		t.Fatalf("took %v", time.Since(start))
	}
	k.Close()
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	evil := newIssuer(t)
	evil.set("evil", &ecKeyPair(t).PublicKey)
	s := httptest.NewServer(http.RedirectHandler(evil.URL, http.StatusFound))
	defer s.Close()
	if has(openKeys(t, KeysConfig{URL: s.URL, Timeout: time.Second, RetryBackoff: time.Hour, RetryBackoffMax: time.Hour}), "evil") {
		t.Fatal("followed")
	}
}

func TestParseJWKSLeavesOutWhatItCannotTrust(t *testing.T) {
	good := &ecKeyPair(t).PublicKey
	raw, _ := good.Bytes()
	x, y := b64(raw[1:33]), b64(raw[33:])
	ec := func(kid, more string) string {
		return fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":%q,"x":%q,"y":%q%s}`, kid, x, y, more)
	}
	for name, k := range map[string]string{
		"symmetric":      `{"kty":"oct","kid":"b","k":"AAAA"}`,
		"for encryption": ec("b", `,"use":"enc"`),
		"other alg":      ec("b", `,"alg":"ES384"`),
		"no kid":         ec("", ""),
		"off the curve":  fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":"b","x":%q,"y":%q}`, x, x),
		"other curve":    fmt.Sprintf(`{"kty":"EC","crv":"P-384","kid":"b","x":%q,"y":%q}`, x, y),
		"short":          `{"kty":"EC","crv":"P-256","kid":"b","x":"AA","y":"AA"}`,
		"weak RSA":       `{"kty":"RSA","kid":"b","n":"` + b64([]byte(strings.Repeat("\xff", 128))) + `","e":"AQAB"}`,
		"RSA e=1":        `{"kty":"RSA","kid":"b","n":"` + b64([]byte(strings.Repeat("\xff", 256))) + `","e":"AQ"}`,
		"kid twice":      ec("b", "") + "," + ec("b", ""),
	} {
		set, err := parseJWKS([]byte(`{"keys":[` + ec("a", "") + "," + k + `]}`))
		if err != nil || len(set) != 1 || set["a"].alg != "ES256" {
			t.Errorf("%s: %v, %v", name, set, err)
		}
	}
}

func FuzzParseJWKS(f *testing.F) {
	f.Add(jwks(map[string]any{"k": &ecKeyPair(f).PublicKey}))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"b","n":"AQAB","e":"AQAB"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if set, err := parseJWKS(b); err == nil && len(set) == 0 {
			t.Fatal("empty set")
		}
	})
}
