package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/goleak"

	"penstock/dataplane/coordination/zktest"
)

func TestMain(m *testing.M) {
	zktest.Main(m, func() error { return goleak.Find() })
}

const (
	testIssuer   = "http://issuer.test"
	testAudience = "clu_one"
)

// issuer signs tokens and serves its keys.
type issuer struct {
	*httptest.Server
	mu    sync.Mutex
	keys  map[string]any // public
	body  func() ([]byte, int)
	reads atomic.Int64
}

func newIssuer(t testing.TB) *issuer {
	i := &issuer{keys: map[string]any{}}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.reads.Add(1)
		b, status := i.document()
		w.WriteHeader(status)
		w.Write(b)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) document() ([]byte, int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.body != nil {
		return i.body()
	}
	return jwks(i.keys), http.StatusOK
}

func (i *issuer) set(kid string, pub any) { i.mu.Lock(); i.keys[kid] = pub; i.mu.Unlock() }

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func jwks(keys map[string]any) []byte {
	var list []map[string]string
	for kid, k := range keys {
		switch k := k.(type) {
		case *ecdsa.PublicKey:
			raw, _ := k.Bytes()
			list = append(list, map[string]string{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": kid, "x": b64(raw[1:33]), "y": b64(raw[33:])})
		case *rsa.PublicKey:
			list = append(list, map[string]string{"kty": "RSA", "kid": kid, "n": b64(k.N.Bytes()), "e": b64(big.NewInt(int64(k.E)).Bytes())})
		}
	}
	b, _ := json.Marshal(map[string]any{"keys": list})
	return b
}

func ecKeyPair(t testing.TB) *ecdsa.PrivateKey {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func goodClaims() jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{"iss": testIssuer, "aud": testAudience, "sub": "sa_one", "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(15 * time.Minute).Unix()}
}

func with(c jwt.MapClaims, kv ...any) jwt.MapClaims {
	for i := 0; i < len(kv); i += 2 {
		if kv[i+1] == nil {
			delete(c, kv[i].(string))
		} else {
			c[kv[i].(string)] = kv[i+1]
		}
	}
	return c
}

func sign(t testing.TB, method jwt.SigningMethod, key any, kid string, c jwt.Claims, header ...any) string {
	tok := jwt.NewWithClaims(method, c)
	tok.Header["typ"] = "at+jwt"
	if kid != "" {
		tok.Header["kid"] = kid
	}
	for i := 0; i < len(header); i += 2 {
		tok.Header[header[i].(string)] = header[i+1]
	}
	s, err := tok.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openKeys(t testing.TB, cfg KeysConfig) *Keys {
	k, err := OpenKeys(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func newTestVerifier(t testing.TB, keys *Keys, change ...func(*VerifierConfig)) *Verifier {
	cfg := VerifierConfig{Keys: keys, Issuer: testIssuer, Audiences: []string{testAudience}, Skew: 30 * time.Second, MaxLifetime: time.Hour}
	for _, f := range change {
		f(&cfg)
	}
	v, err := NewVerifier(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// login is a listener with both mechanisms, and the issuer's key.
type login struct {
	*Server
	issuer *issuer
	key    *ecdsa.PrivateKey
}

func newLogin(t testing.TB, change ...func(*ServerConfig)) *login {
	l := &login{issuer: newIssuer(t), key: ecKeyPair(t)}
	l.issuer.set("k1", &l.key.PublicKey)
	keys := openKeys(t, KeysConfig{URL: l.issuer.URL, MissInterval: time.Hour})
	cfg := ServerConfig{Mechanisms: []string{Plain, OAuthBearer}, Users: map[string]string{"broker": "b-secret", "control": "c-secret"}, Tokens: newTestVerifier(t, keys)}
	for _, f := range change {
		f(&cfg)
	}
	s, err := NewServer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Server = s
	return l
}

func (l *login) token(t testing.TB, kv ...any) string {
	return sign(t, jwt.SigningMethodES256, l.key, "k1", with(goodClaims(), kv...))
}

func bearer(token string) []byte { return []byte("n,,\x01auth=Bearer " + token + "\x01\x01") }

func mustHandshake(t testing.TB, s *Session, mech string) {
	t.Helper()
	if _, err := s.Handshake(mech); err != nil {
		t.Fatal(err)
	}
}

// tryToken logs in with a token; the error is that of the second round.
func tryToken(t testing.TB, srv *Server, token string) (Result, error) {
	t.Helper()
	s := srv.NewSession()
	mustHandshake(t, s, OAuthBearer)
	res, err := s.Authenticate(context.Background(), bearer(token))
	if err != nil || res.Done {
		return res, err
	}
	if string(res.Bytes) != `{"status":"invalid_token"}` {
		t.Fatalf("challenge %q", res.Bytes)
	}
	res, err = s.Authenticate(context.Background(), []byte{1})
	if err == nil {
		t.Fatal("let in after a challenge")
	}
	return res, err
}

func refusesToken(t testing.TB, srv *Server, token string) {
	t.Helper()
	res, err := tryToken(t, srv, token)
	wantFailed(t, res, err, token)
}

func leak(msg, secret string) bool { return len(secret) > 8 && strings.Contains(msg, secret) }

var _ = fmt.Sprint
var _ = bytes.Equal
