package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"penstock/dataplane/config"
)

// NewServer builds the login of one SASL listener from its settings
// (config.Broker.SASL). Close it in the end: with OAUTHBEARER it reads the
// issuer's keys in the background. It does not wait for them.
func NewServer(ctx context.Context, s config.SASL, log *slog.Logger) (*Server, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg := serverConfig{Mechanisms: s.Mechanisms, MaxReauth: s.MaxReauth, Logger: log}
	if slices.Contains(s.Mechanisms, Plain) {
		j, err := plainEntry(s.JAAS)
		if err != nil {
			return nil, err
		}
		cfg.Users = j.Users()
	}
	var keys *Keys
	if slices.Contains(s.Mechanisms, OAuthBearer) {
		var err error
		keys, err = OpenKeys(KeysConfig{URL: s.OAuth.JWKSURL, CacheFile: s.OAuth.CacheFile, Refresh: s.OAuth.Refresh,
			RetryBackoff: s.OAuth.RetryBackoff, RetryBackoffMax: s.OAuth.RetryBackoffMax, Logger: log})
		if err != nil {
			return nil, err
		}
		cfg.Tokens, err = NewVerifier(VerifierConfig{Keys: keys, Issuer: s.OAuth.Issuer, Audiences: s.OAuth.Audiences, SubClaim: s.OAuth.SubClaim,
			Algorithms: s.OAuth.Algorithms, Skew: s.OAuth.ClockSkew, MaxLifetime: s.OAuth.MaxLifetime})
		if err != nil {
			keys.Close()
			return nil, err
		}
	}
	srv, err := newServer(cfg)
	if err != nil {
		if keys != nil {
			keys.Close()
		}
		return nil, err
	}
	srv.keys = keys
	return srv, nil
}

// PlainCredentials are the user and password of a JAAS line for PLAIN: what the
// broker itself logs in with to others. No error quotes any of it.
func PlainCredentials(jaas string) (user, password string, err error) {
	j, err := plainEntry(jaas)
	if err != nil {
		return "", "", err
	}
	user, password, ok := j.Credentials()
	if !ok {
		return "", "", errors.New("auth: the JAAS line lacks username and password")
	}
	return user, password, nil
}

func plainEntry(s string) (JAAS, error) {
	j, err := ParseJAAS(s)
	if err != nil {
		return JAAS{}, err
	}
	if j.Module != PlainModule {
		return JAAS{}, fmt.Errorf("auth: PLAIN needs the login module %s", PlainModule)
	}
	return j, nil
}
