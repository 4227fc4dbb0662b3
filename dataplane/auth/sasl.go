package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/tenants"
)

// The mechanisms that are built in.
const (
	Plain       = "PLAIN"
	OAuthBearer = "OAUTHBEARER"
)

// Error is a refused login. Its text is what the client may be told; Cause is
// for the log and may name what was wrong, but never holds a secret.
type Error struct {
	Code    *kerr.Error // SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE or UNSUPPORTED_SASL_MECHANISM
	Message string
	Cause   error
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes protocol.Code see the wire's code.
func (e *Error) Unwrap() error { return e.Code }

func failed(mechanism string, cause error) *Error {
	return &Error{Code: kerr.SaslAuthenticationFailed, Message: "Authentication failed during SASL " + mechanism + " login", Cause: cause}
}

func illegal(text string) *Error {
	return &Error{Code: kerr.IllegalSaslState, Message: text, Cause: errors.New(text)}
}

// Result is the outcome of one SaslAuthenticate.
type Result struct {
	Bytes []byte // auth_bytes of the reply; never nil
	// Done says that the client is logged in. When false without an error the
	// exchange goes on with another SaslAuthenticate.
	Done      bool
	Principal string // "User:name", when Done
	// LifetimeMs is session_lifetime_ms of the reply (v1 on, KIP-368); 0 when
	// there is no limit. A credential whose time is already over (within the
	// clock skew) gives 1, so that nobody takes it for unlimited.
	LifetimeMs int64
	// Expires is when the session ends: from then on any request but SASL's
	// closes the connection. Zero means never. It holds for clients of
	// SaslAuthenticate v0, too.
	Expires time.Time
}

// ServerConfig is the login of one listener.
type ServerConfig struct {
	Mechanisms []string          // those enabled, of Plain and OAuthBearer
	Users      map[string]string // PLAIN: password by name
	Tokens     *Verifier         // OAUTHBEARER
	Revoked    *Revocations      // of tokens; nil has none
	MaxReauth  time.Duration     // connections.max.reauth.ms; 0 is no limit
	Now        func() time.Time  // nil: time.Now
	Logger     *slog.Logger      // nil: discard
}

// Server holds the mechanisms of one listener.
type Server struct {
	cfg   ServerConfig
	plain *plainUsers
	log   *slog.Logger
	keys  *Keys // owned, when made by ForListener
}

// NewServer checks the configuration.
func NewServer(cfg ServerConfig) (*Server, error) {
	if len(cfg.Mechanisms) == 0 {
		return nil, errors.New("auth: no SASL mechanism enabled")
	}
	s := &Server{cfg: cfg, log: cfg.Logger}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.Now == nil {
		s.cfg.Now = time.Now
	}
	s.cfg.Mechanisms = slices.Clone(cfg.Mechanisms)
	for _, m := range s.cfg.Mechanisms {
		switch m {
		case Plain:
			s.plain = newPlainUsers(cfg.Users)
		case OAuthBearer:
			if cfg.Tokens == nil {
				return nil, errors.New("auth: OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url, expected.issuer and expected.audience")
			}
		default:
			return nil, fmt.Errorf("auth: SASL mechanism %q is not built in (sasl.enabled.mechanisms)", m)
		}
	}
	return s, nil
}

// Close stops the background reading of keys, if the Server owns any.
func (s *Server) Close() {
	if s.keys != nil {
		s.keys.Close()
	}
}

type state uint8

const (
	fresh      state = iota // nothing yet
	chosen                  // handshake done, exchange not begun
	badReauth               // re-authentication asked for another mechanism
	challenged              // OAUTHBEARER: error challenge sent, one last message due
	loggedIn
	dead
)

// NewSession begins the login of one connection.
func (s *Server) NewSession() *Session { return &Session{srv: s} }

// Session is one connection's login and its later re-authentications. Calls
// must not overlap; the listener serves a connection's requests in order.
type Session struct {
	srv       *Server
	state     state
	mechanism string // chosen by the last handshake
	// of the login that stands
	principal string
	loggedBy  string
	pending   *Error // the reason behind a challenge

	token atomic.Pointer[Token] // the last good one that was shown; for Revoked
}

// Revoked says that the login stands on a token that has been revoked since. Other
// than the rest it may be called from any goroutine, at any time.
func (s *Session) Revoked() bool {
	t := s.token.Load()
	return t != nil && s.srv.cfg.Revoked.refuse(t) != nil
}

// take has the login stand on a token, unless it is revoked: first the one, then the
// other, see Revocations.
func (s *Session) take(t *Token) error {
	s.token.Store(t)
	return s.srv.cfg.Revoked.refuse(t)
}

// Principal is who is logged in, "" before.
func (s *Session) Principal() string { return s.principal }

// Handshake answers SaslHandshake v1. The list of enabled mechanisms is
// returned in every case. After an error the connection must be closed, as
// Kafka does.
func (s *Session) Handshake(mechanism string) (mechanisms []string, err error) {
	enabled := slices.Clone(s.srv.cfg.Mechanisms)
	if s.state != fresh && s.state != loggedIn {
		s.state = dead
		return enabled, illegal("SaslHandshake is not expected now")
	}
	if !slices.Contains(enabled, mechanism) {
		s.state = dead
		return enabled, &Error{Code: kerr.UnsupportedSaslMechanism, Message: "The SASL mechanism is not enabled on this listener",
			Cause: fmt.Errorf("client asked for mechanism %q", clip(mechanism))}
	}
	s.mechanism = mechanism
	s.state = chosen
	if s.loggedBy != "" && s.loggedBy != mechanism {
		// As in Kafka the handshake itself succeeds, the exchange fails.
		s.state = badReauth
	}
	return enabled, nil
}

// Authenticate answers SaslAuthenticate. It may wait some seconds, at most
// until ctx is done, for a read of the issuer's keys. An error is always an *Error: send its
// text and code, then close the connection (after
// connection.failed.authentication.delay.ms).
func (s *Session) Authenticate(ctx context.Context, in []byte) (Result, error) {
	res, err := s.step(ctx, in)
	if err != nil {
		s.state = dead
		s.srv.log.Info("login refused", "mechanism", s.mechanism, "cause", err.Cause)
		return Result{Bytes: []byte{}}, err
	}
	return res, nil
}

func (s *Session) step(ctx context.Context, in []byte) (Result, *Error) {
	switch s.state {
	case chosen:
	case challenged:
		if len(in) == 1 && in[0] == 1 {
			return Result{}, s.pending
		}
		return Result{}, failed(s.mechanism, errors.New("no 0x01 after the error challenge"))
	case badReauth:
		return Result{}, failed(s.mechanism, fmt.Errorf("re-authentication changed the mechanism from %s", s.loggedBy))
	default:
		return Result{}, illegal("SaslAuthenticate is not expected now")
	}
	var name string
	var tokenExpires time.Time
	if s.mechanism == Plain {
		var err error
		if name, err = s.srv.plain.check(in); err != nil {
			return Result{}, failed(Plain, err)
		}
	} else {
		token, authzid, err := parseBearer(in)
		if err != nil {
			return Result{}, failed(OAuthBearer, err)
		}
		t, err := s.srv.cfg.Tokens.Verify(ctx, token)
		if err == nil && authzid != "" && authzid != t.Subject {
			err = errors.New("authorization id is not the token's subject")
		}
		if err == nil {
			err = s.take(&t)
		}
		if err != nil {
			// RFC 7628, 3.2.3: say so, let the client answer with 0x01, then fail.
			s.pending, s.state = failed(OAuthBearer, err), challenged
			return Result{Bytes: []byte(`{"status":"invalid_token"}`)}, nil
		}
		name, tokenExpires = t.Subject, t.Expires
	}
	principal := tenants.Principal(name)
	if s.principal != "" && s.principal != principal {
		return Result{}, failed(s.mechanism, errors.New("re-authentication changed the principal"))
	}
	s.principal, s.loggedBy, s.state = principal, s.mechanism, loggedIn
	res := Result{Bytes: []byte{}, Done: true, Principal: principal}
	s.lifetime(&res, tokenExpires)
	return res, nil
}

// lifetime applies KIP-368: the smaller of what is left of the token and
// connections.max.reauth.ms. What is already over ends at once.
func (s *Session) lifetime(res *Result, tokenExpires time.Time) {
	now := s.srv.cfg.Now()
	if m := s.srv.cfg.MaxReauth; m > 0 {
		res.Expires = now.Add(m)
	}
	if !tokenExpires.IsZero() && (res.Expires.IsZero() || tokenExpires.Before(res.Expires)) {
		res.Expires = tokenExpires
	}
	if res.Expires.IsZero() {
		return
	}
	if res.Expires.Before(now) {
		res.Expires = now
	}
	res.LifetimeMs = max(1, res.Expires.Sub(now).Milliseconds())
}

func clip(s string) string {
	if len(s) > 100 {
		return strings.ToValidUTF8(s[:100], "") + "..."
	}
	return s
}
