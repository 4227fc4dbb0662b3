package auth

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/twmb/franz-go/pkg/kerr"
)

func wantFailed(t testing.TB, res Result, err error, secret string) {
	t.Helper()
	if res.Done || res.Principal != "" {
		t.Fatal("let in")
	}
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Fatalf("error %v", err)
	}
	if leak(e.Error(), secret) || strings.Contains(e.Error(), "expired") || strings.Contains(e.Error(), "audience") {
		t.Fatalf("the client is told too much: %q", e.Error())
	}
}

func TestTokenThatIsNotGoodIsRefused(t *testing.T) {
	l := newLogin(t)
	if res, err := tryToken(t, l.Server, l.token(t)); err != nil || res.Principal != "User:sa_one" {
		t.Fatalf("good token: %+v, %v", res, err)
	}
	other := ecKeyPair(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pub, err := x509.MarshalPKIXPublicKey(&l.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	pubPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub})
	now := time.Now()
	es := jwt.SigningMethodES256
	for name, token := range map[string]string{
		"expired":                  l.token(t, "exp", now.Add(-time.Minute).Unix()),
		"expired and badly signed": sign(t, es, other, "k1", with(goodClaims(), "exp", now.Add(-time.Minute).Unix())),
		"no expiry":                l.token(t, "exp", nil),
		"no time of issue":         l.token(t, "iat", nil),
		"time of issue is text":    l.token(t, "iat", "yesterday"),
		"has lived too long":       l.token(t, "iat", now.Add(-2*time.Hour).Unix(), "nbf", nil, "exp", now.Add(time.Minute).Unix()),
		"expiry is text":           l.token(t, "exp", "tomorrow"),
		"not yet valid":            l.token(t, "nbf", now.Add(time.Minute).Unix()),
		"issued in the future":     l.token(t, "iat", now.Add(time.Minute).Unix()),
		"lives too long":           l.token(t, "exp", now.Add(2*time.Hour).Unix()),
		"wrong audience":           l.token(t, "aud", "clu_two"),
		"audience in other case":   l.token(t, "aud", "CLU_ONE"),
		"audience as prefix":       l.token(t, "aud", "clu_onetwo"),
		"no audience":              l.token(t, "aud", nil),
		"empty audience list":      l.token(t, "aud", []string{}),
		"wrong issuer":             l.token(t, "iss", testIssuer+"/"),
		"no issuer":                l.token(t, "iss", nil),
		"no subject":               l.token(t, "sub", nil),
		"empty subject":            l.token(t, "sub", ""),
		"subject is a number":      l.token(t, "sub", 7),
		"subject with line end":    l.token(t, "sub", "a\nb"),
		"long subject":             l.token(t, "sub", strings.Repeat("x", 201)),
		"alg none":                 sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "k1", goodClaims()),
		"HS256 with public key":    sign(t, jwt.SigningMethodHS256, pubPEM, "k1", goodClaims()),
		"HS256 with public DER":    sign(t, jwt.SigningMethodHS256, pub, "k1", goodClaims()),
		"RS256 not allowed":        sign(t, jwt.SigningMethodRS256, rsaKey, "k1", goodClaims()),
		"unknown kid":              sign(t, es, l.key, "k2", goodClaims()),
		"no kid":                   sign(t, es, l.key, "", goodClaims()),
		"another's key":            sign(t, es, other, "k1", goodClaims()),
		"critical extension":       sign(t, es, l.key, "k1", goodClaims(), "crit", []string{"b64"}),
		"of another type":          sign(t, es, l.key, "k1", goodClaims(), "typ", "dpop+jwt"),
		"huge":                     l.token(t, "pad", strings.Repeat("x", maxToken)),
		"two parts":                "a.b",
		"five parts":               "a.b.c.d.e",
		"not base64":               "!!!.???.***",
		"padding":                  strings.Replace(l.token(t), ".", "=.", 1),
		"line end inside":          l.token(t)[:20] + "\n" + l.token(t)[20:],
		"no signature":             l.token(t)[:strings.LastIndexByte(l.token(t), '.')+1],
	} {
		t.Run(name, func(t *testing.T) { refusesToken(t, l.Server, token) })
	}
	if res, err := tryToken(t, l.Server, l.token(t, "aud", []string{"x", testAudience})); err != nil || !res.Done {
		t.Fatal("one of several audiences is enough")
	}
	if _, err := tryToken(t, l.Server, l.token(t, "exp", now.Add(-20*time.Second).Unix())); err != nil {
		t.Fatal("clock skew of 20 s is not put up with")
	}
}

func TestBadSignatureIsNeverTakenForExpiry(t *testing.T) {
	l := newLogin(t)
	tok := sign(t, jwt.SigningMethodES256, ecKeyPair(t), "k1", with(goodClaims(), "exp", time.Now().Add(-time.Hour).Unix()))
	_, err := l.cfg.Tokens.Verify(context.Background(), tok)
	if errors.Is(err, jwt.ErrTokenExpired) || !errors.Is(err, jwt.ErrTokenSignatureInvalid) {
		t.Fatalf("error %v", err)
	}
}

// Any other character at any place, the spare bits of each part's last
// character included, makes the token bad.
func TestEveryFlippedCharacterIsRefused(t *testing.T) {
	l := newLogin(t)
	tok := l.token(t)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	try := func(bad string) {
		if _, err := l.cfg.Tokens.Verify(context.Background(), bad); err == nil {
			t.Fatalf("accepted with a character changed")
		}
	}
	for i := range tok {
		if tok[i] == '.' {
			try(tok[:i] + "A" + tok[i+1:])
			continue
		}
		last := i+1 == len(tok) || tok[i+1] == '.'
		for j := range alphabet {
			// All 63 others where spare bits hide; elsewhere one neighbour bit is enough.
			if alphabet[j] != tok[i] && (last || j == (strings.IndexByte(alphabet, tok[i])^1)) {
				try(tok[:i] + alphabet[j:j+1] + tok[i+1:])
			}
		}
		try(tok[:i] + string(tok[i]^0x80) + tok[i+1:])
		try(tok[:i] + tok[i+1:])
	}
}

func TestDoubledMembersAreRefused(t *testing.T) {
	l := newLogin(t)
	head := `{"alg":"ES256","kid":"k1","kid":"k1"}`
	tok := l.token(t)
	parts := strings.Split(tok, ".")
	signed := func(h, p string) string {
		in := b64([]byte(h)) + "." + p
		sig, err := jwt.SigningMethodES256.Sign(in, l.key)
		if err != nil {
			t.Fatal(err)
		}
		return in + "." + b64(sig)
	}
	refusesToken(t, l.Server, signed(head, parts[1]))
	if res, err := tryToken(t, l.Server, signed(`{"alg":"ES256","kid":"k1"}`, parts[1])); err != nil || !res.Done {
		t.Fatalf("the same with single members: %v", err)
	}
}

func TestRS256WhereConfigured(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i, ec := newIssuer(t), ecKeyPair(t)
	i.set("r", &key.PublicKey)
	i.set("e", &ec.PublicKey)
	keys := openKeys(t, KeysConfig{URL: i.URL})
	v := newTestVerifier(t, keys, func(c *VerifierConfig) { c.Algorithms = []string{"ES256", "RS256"} })
	for kid, want := range map[string]bool{"r": true, "e": false} {
		_, err := v.Verify(context.Background(), sign(t, jwt.SigningMethodRS256, key, kid, goodClaims()))
		if (err == nil) != want {
			t.Fatalf("kid %s: %v", kid, err)
		}
	}
	if _, err := NewVerifier(VerifierConfig{Keys: keys, Issuer: "i", Audiences: []string{"a"}, Algorithms: []string{"HS256"}}); err == nil {
		t.Fatal("HS256 can be configured")
	}
}

func TestVerifierNeedsIssuerAndAudience(t *testing.T) {
	keys := openKeys(t, KeysConfig{URL: "file:///nowhere"})
	for _, c := range []VerifierConfig{{Keys: keys, Issuer: "i"}, {Keys: keys, Audiences: []string{"a"}}, {Keys: keys, Issuer: "i", Audiences: []string{""}}, {Issuer: "i", Audiences: []string{"a"}}} {
		if _, err := NewVerifier(c); err == nil {
			t.Fatalf("%+v accepted", c)
		}
	}
}

func FuzzStrictForm(f *testing.F) {
	f.Add("eyJhbGciOiJFUzI1NiJ9.e30.AA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, s string) { strictForm(s) })
}

func FuzzVerify(f *testing.F) {
	l := newLogin(f)
	f.Add(l.token(f))
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := l.cfg.Tokens.Verify(context.Background(), s)
		if err == nil && tok.Subject != "sa_one" {
			t.Fatal("a made-up token was believed")
		}
	})
}
