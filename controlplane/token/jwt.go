package token

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"penstock/tenants/registry"
)

// Claims are an access token's claims (RFC 9068).
type Claims struct {
	jwt.RegisteredClaims
	ClientID string `json:"client_id"`
	Tenant   string `json:"tenant,omitempty"`
	Scope    string `json:"scope,omitempty"` // one string, as Kafka's clients want it
	Kind     string `json:"kind"`            // operator, account, service_account
	Role     string `json:"role,omitempty"`  // of operators and accounts
	// Credential is the id of the secret that was shown (tenants.CredentialClaim):
	// brokers refuse the token when that one is revoked.
	Credential string `json:"credential,omitempty"`
}

// ErrInvalid is in the chain of every error about a token that is not to be
// believed. Its text never tells a caller more than that.
var ErrInvalid = errors.New("invalid token")

const tokenType = "at+jwt"

// issue makes a token for a client; audience is a cluster's id or the issuer.
func (s *Server) issue(c *registry.Client, audience, scope string) (string, error) {
	key, err := s.cfg.Keys.signer()
	if err != nil {
		return "", err
	}
	now := s.cfg.Keys.cfg.Now().UTC()
	t := jwt.NewWithClaims(jwt.SigningMethodES256, Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer:    s.cfg.Issuer,
			Subject:   c.ID,
			Audience:  jwt.ClaimStrings{audience},
			IssuedAt:  jwt.NewNumericDate(now),
			NotBefore: jwt.NewNumericDate(now),
			ExpiresAt: jwt.NewNumericDate(now.Add(s.cfg.Life)),
			ID:        rand.Text(),
		},
		ClientID: c.ID,
		Tenant:   c.TenantID,
		Scope:    scope,
		Kind:     string(c.Kind),
		Role:     c.Role,

		Credential: c.SecretID,
	})
	t.Header["typ"], t.Header["kid"] = tokenType, key.jwk.Kid
	return t.SignedString(key.private)
}

// Verify checks a token that was presented to the API: signature first, by a
// key of ours, then issuer, audience (this API), times. Anything else is
// ErrInvalid.
func (s *Server) Verify(ctx context.Context, raw string) (*Claims, error) {
	if len(raw) > 8192 {
		return nil, ErrInvalid
	}
	var c Claims
	_, err := jwt.ParseWithClaims(raw, &c, func(t *jwt.Token) (any, error) {
		if typ, _ := t.Header["typ"].(string); typ != tokenType {
			return nil, errors.New("not an access token")
		}
		if _, crit := t.Header["crit"]; crit {
			return nil, errors.New("critical header not understood")
		}
		kid, _ := t.Header["kid"].(string)
		return s.cfg.Keys.public(ctx, kid)
	},
		jwt.WithValidMethods([]string{"ES256"}),
		jwt.WithIssuer(s.cfg.Issuer),
		jwt.WithAudience(s.cfg.Issuer),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(5*time.Second),
		jwt.WithTimeFunc(s.cfg.Keys.cfg.Now),
	)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch c.Kind {
	case string(registry.KindOperator), string(registry.KindAccount):
		return &c, nil
	}
	return nil, fmt.Errorf("%w: kind %q", ErrInvalid, c.Kind)
}
