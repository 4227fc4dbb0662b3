package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"penstock/dataplane/config"
)

// ForListener builds the login of one SASL listener from the broker's settings.
// Close the Server in the end: it reads the issuer's keys in the background.
func ForListener(b *config.Broker, listener string, revoked *Revocations, log *slog.Logger) (*Server, error) {
	s := b.SASL(listener)
	cfg := ServerConfig{Mechanisms: s.Mechanisms, MaxReauth: s.MaxReauth, Revoked: revoked, Logger: log}
	if slices.Contains(s.Mechanisms, Plain) {
		j, err := plainEntry(s.JAAS)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", listener, err)
		}
		cfg.Users = j.Users()
	}
	var keys *Keys
	if slices.Contains(s.Mechanisms, OAuthBearer) {
		var err error
		keys, err = OpenKeys(KeysConfig{URL: s.OAuth.JWKSURL, CacheFile: s.OAuth.CacheFile, Refresh: s.OAuth.Refresh,
			RetryBackoff: s.OAuth.RetryBackoff, RetryBackoffMax: s.OAuth.RetryBackoffMax, Logger: log})
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", listener, err)
		}
		cfg.Tokens, err = NewVerifier(VerifierConfig{Keys: keys, Issuer: s.OAuth.Issuer, Audiences: s.OAuth.Audiences, SubClaim: s.OAuth.SubClaim,
			Algorithms: s.OAuth.Algorithms, Skew: s.OAuth.ClockSkew, MaxLifetime: s.OAuth.MaxLifetime, Now: time.Now})
		if err != nil {
			keys.Close()
			return nil, fmt.Errorf("listener %s: %w", listener, err)
		}
	}
	srv, err := NewServer(cfg)
	if err != nil {
		if keys != nil {
			keys.Close()
		}
		return nil, fmt.Errorf("listener %s: %w", listener, err)
	}
	srv.keys = keys
	return srv, nil
}

// InterBrokerCredentials are the user and password that the broker logs in with
// to other brokers: those of the inter-broker listener's JAAS line. ok is false
// when that listener asks for no login.
func InterBrokerCredentials(b *config.Broker) (user, password string, ok bool, err error) {
	e, found := b.Listener(b.InterBrokerListener)
	if !found || !e.SASL() {
		return "", "", false, nil
	}
	if b.InterBrokerMechanism != Plain {
		return "", "", false, fmt.Errorf("auth: sasl.mechanism.inter.broker.protocol must be PLAIN, not %q", b.InterBrokerMechanism)
	}
	j, err := plainEntry(b.SASL(e.Name).JAAS)
	if err != nil {
		return "", "", false, err
	}
	if user, password, ok = j.Credentials(); !ok {
		return "", "", false, errors.New("auth: the inter-broker listener's JAAS line lacks username and password")
	}
	return user, password, true, nil
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
