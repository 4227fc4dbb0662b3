package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"

	"penstock/tenants"
)

// maxToken bounds a token's length in bytes.
const maxToken = 16 << 10

// VerifierConfig is what a token must hold.
type VerifierConfig struct {
	Keys        *Keys
	Issuer      string        // exact
	Audiences   []string      // the token must name one of them, exactly
	SubClaim    string        // "" is sub
	Algorithms  []string      // of ES256 and RS256; empty is ES256
	Skew        time.Duration // put up with in exp, nbf and iat
	MaxLifetime time.Duration // 0: no cap on how far exp may lie ahead, and behind iat
	Now         func() time.Time
}

// Verifier checks tokens. Safe for concurrent use.
type Verifier struct {
	cfg    VerifierConfig
	parser *jwt.Parser
}

// Token is what a good token says.
type Token struct {
	Subject string
	Issued  time.Time
	Expires time.Time
	// Credential is the claim of that name, if it is a text: what the issuer gave the
	// token for, such as one of an account's secrets.
	Credential string
}

// NewVerifier checks the configuration: without an issuer and an audience any
// tenant's token would do, so both are required.
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	switch {
	case cfg.Keys == nil:
		return nil, errors.New("auth: no source of keys (sasl.oauthbearer.jwks.endpoint.url)")
	case cfg.Issuer == "":
		return nil, errors.New("auth: sasl.oauthbearer.expected.issuer must be set")
	case len(cfg.Audiences) == 0 || slices.Contains(cfg.Audiences, ""):
		return nil, errors.New("auth: sasl.oauthbearer.expected.audience must be set")
	}
	if len(cfg.Algorithms) == 0 {
		cfg.Algorithms = []string{"ES256"}
	}
	for _, a := range cfg.Algorithms {
		if a != "ES256" && a != "RS256" {
			return nil, fmt.Errorf("auth: token algorithm %q is not allowed (penstock.oauth.algorithms)", a)
		}
	}
	if cfg.SubClaim == "" {
		cfg.SubClaim = "sub"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Verifier{cfg: cfg, parser: jwt.NewParser(
		jwt.WithValidMethods(cfg.Algorithms), jwt.WithIssuer(cfg.Issuer), jwt.WithAudience(cfg.Audiences...), jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(), jwt.WithLeeway(cfg.Skew), jwt.WithTimeFunc(cfg.Now), jwt.WithStrictDecoding(), jwt.WithJSONNumber(),
	)}, nil
}

// Verify checks a token. It may wait some seconds for a read of the keys when
// the token names an unknown one. Errors are for the log, not for the client.
func (v *Verifier) Verify(ctx context.Context, token string) (Token, error) {
	if err := strictForm(token); err != nil {
		return Token{}, err
	}
	claims := jwt.MapClaims{}
	// The parser checks method, then key and signature, then claims, and stops at
	// the first of these that fails: a badly signed token is never "expired".
	parsed, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		if _, ok := t.Header["crit"]; ok {
			return nil, errors.New("token has critical extensions")
		}
		if typ, ok := t.Header["typ"]; ok {
			if s, _ := typ.(string); !tokenType(s) {
				return nil, errors.New("token is of another type")
			}
		}
		kid, _ := t.Header["kid"].(string)
		if kid == "" {
			return nil, errors.New("token names no key")
		}
		return v.cfg.Keys.lookup(ctx, kid, t.Method.Alg())
	})
	if err != nil {
		return Token{}, err
	}
	if !parsed.Valid {
		return Token{}, errors.New("token is not valid")
	}
	sub, _ := claims[v.cfg.SubClaim].(string)
	if !validSubject(sub) {
		return Token{}, errors.New("token names no usable subject")
	}
	exp, err := claims.GetExpirationTime()
	if err != nil || exp == nil {
		return Token{}, errors.New("token has no usable expiry")
	}
	iat, err := claims.GetIssuedAt()
	if err != nil || iat == nil { // nothing to hold a revocation against
		return Token{}, errors.New("token does not say when it was issued")
	}
	// From iat too: a token that outlived its revocation would come to life again.
	if m := v.cfg.MaxLifetime; m > 0 && (exp.Time.After(v.cfg.Now().Add(m+v.cfg.Skew)) || exp.Time.After(iat.Time.Add(m))) {
		return Token{}, errors.New("token lives longer than allowed")
	}
	credential, _ := claims[tenants.CredentialClaim].(string)
	return Token{Subject: sub, Issued: iat.Time, Expires: exp.Time, Credential: credential}, nil
}

func tokenType(s string) bool {
	s = strings.TrimPrefix(strings.ToLower(s), "application/")
	return s == "jwt" || s == "at+jwt"
}

// validSubject keeps names out that could not stand in a log line, an ACL or a
// usage record.
func validSubject(s string) bool {
	return s != "" && len(s) <= 200 && utf8.ValidString(s) &&
		strings.IndexFunc(s, func(r rune) bool { return r < 0x20 || r == 0x7f }) < 0
}

// strictForm refuses what lenient decoders differ on: characters outside the
// alphabet (Go's base64 skips line ends), bits of the last character that no
// byte uses, doubled members of header or claims.
func strictForm(token string) error {
	if len(token) > maxToken {
		return errors.New("token too long")
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("token has not three parts")
	}
	for i, p := range parts {
		for j := 0; j < len(p); j++ {
			c := p[j]
			if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return errors.New("token is not base64url")
			}
		}
		raw, err := base64.RawURLEncoding.Strict().DecodeString(p)
		if err != nil {
			return errors.New("token is not canonical base64url")
		}
		if i < 2 {
			if err := uniqueMembers(raw); err != nil {
				return err
			}
		}
	}
	return nil
}

// uniqueMembers says whether raw is one JSON object without doubled members,
// at the top level.
func uniqueMembers(raw []byte) error {
	bad := errors.New("token part is not a JSON object with each member once")
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return bad
	}
	seen := make(map[string]bool)
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok || seen[name] {
			return bad
		}
		seen[name] = true
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return bad
		}
	}
	if _, err := d.Token(); err != nil || d.More() {
		return bad
	}
	if _, err := d.Token(); err == nil {
		return bad
	}
	return nil
}
