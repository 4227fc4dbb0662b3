package token

import (
	"encoding/json"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
	"penstock/tenants/registry"
)

// Config of a Server.
type Config struct {
	DB     *registry.DB
	Keys   *Keys
	Issuer string        // URL without a slash at its end; metadata, JWKS and endpoint are under it
	Life   time.Duration // of a token, at most tenants.MaxTokenLife, which 0 means
	Logger *slog.Logger  // nil: discard
}

// Server answers the OAuth 2.0 endpoints and checks tokens for the API.
type Server struct{ cfg Config }

// Paths of the endpoints under the issuer.
const (
	TokenPath = "/oauth2/token"
	JWKSPath  = "/oauth2/jwks"
)

// maxForm bounds a token request's body.
const maxForm = 16 << 10

// New makes a Server.
func New(cfg Config) *Server {
	cfg.Issuer = strings.TrimSuffix(cfg.Issuer, "/")
	if cfg.Life <= 0 || cfg.Life > tenants.MaxTokenLife {
		cfg.Life = tenants.MaxTokenLife
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{cfg: cfg}
}

// Register adds the endpoints to mux.
func (s *Server) Register(mux *http.ServeMux) {
	mux.HandleFunc("POST "+TokenPath, s.token)
	mux.HandleFunc("GET "+JWKSPath, s.jwks)
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", s.metadata)
	mux.HandleFunc("GET /.well-known/openid-configuration", s.metadata)
}

func (s *Server) jwks(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/jwk-set+json")
	w.Header().Set("Cache-Control", "public, max-age=300")
	w.Write(s.cfg.Keys.JWKS())
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "public, max-age=300")
	writeJSON(w, http.StatusOK, map[string]any{
		"issuer":                                s.cfg.Issuer,
		"token_endpoint":                        s.cfg.Issuer + TokenPath,
		"jwks_uri":                              s.cfg.Issuer + JWKSPath,
		"grant_types_supported":                 []string{"client_credentials"},
		"response_types_supported":              []string{},
		"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},
		"subject_types_supported":               []string{"public"},
		"id_token_signing_alg_values_supported": []string{"ES256"},
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// refusal is an error answer of RFC 6749 section 5.2.
type refusal struct {
	status int
	code   string
	text   string
}

func (r *refusal) Error() string { return r.code + ": " + r.text }

func badRequest(text string) *refusal {
	return &refusal{http.StatusBadRequest, "invalid_request", text}
}

var badClient = &refusal{http.StatusUnauthorized, "invalid_client", "unknown client or wrong secret"}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	// RFC 6749 section 5.1: neither tokens nor refusals are to be kept.
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	answer, err := s.grant(w, r)
	if err == nil {
		writeJSON(w, http.StatusOK, answer)
		return
	}
	var no *refusal
	if !errors.As(err, &no) {
		s.cfg.Logger.Error("token request failed", "err", err)
		w.Header().Set("Retry-After", "1")
		no = &refusal{http.StatusServiceUnavailable, "temporarily_unavailable", "try again"}
	}
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="penstock"`)
	}
	writeJSON(w, no.status, map[string]string{"error": no.code, "error_description": no.text})
}

type grantAnswer struct {
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   int64  `json:"expires_in"`
	Scope       string `json:"scope"`
}

func (s *Server) grant(w http.ResponseWriter, r *http.Request) (*grantAnswer, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return nil, badRequest("the body must be application/x-www-form-urlencoded")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return nil, badRequest("the body is not a form of at most " + strconv.Itoa(maxForm) + " bytes")
	}
	form := r.PostForm
	for name, values := range form {
		// resource (RFC 8707) and audience may be repeated, nothing else may.
		if len(values) > 1 && name != "resource" && name != "audience" {
			return nil, badRequest("a parameter was sent twice")
		}
	}
	c, err := s.authenticate(r, form)
	if err != nil {
		return nil, err
	}
	switch form.Get("grant_type") {
	case "client_credentials":
	case "":
		return nil, badRequest("grant_type is missing")
	default:
		return nil, &refusal{http.StatusBadRequest, "unsupported_grant_type", "only client_credentials"}
	}
	audience, scope := s.cfg.Issuer, c.Role
	if c.Kind == registry.KindServiceAccount {
		audience, scope = c.ClusterID, c.ClusterID
	}
	if err := target(form, audience, c.Kind); err != nil {
		return nil, err
	}
	raw, err := s.issue(c, audience, scope)
	if err != nil {
		return nil, err
	}
	return &grantAnswer{AccessToken: raw, TokenType: "Bearer", ExpiresIn: int64(s.cfg.Life.Seconds()), Scope: scope}, nil
}

// target checks where the token is wanted for. An account belongs to one
// cluster, or to the API, so naming it is optional; naming another is refused.
// Scopes that are no cluster's id ("openid", of stock clients) are left out of
// the token, as RFC 6749 section 3.3 allows.
func target(form url.Values, audience string, kind registry.Kind) error {
	for _, name := range []string{"audience", "resource"} {
		for _, v := range form[name] {
			if v != "" && strings.TrimSuffix(v, "/") != audience {
				return &refusal{http.StatusBadRequest, "invalid_target", "the account has no access there"}
			}
		}
	}
	for _, v := range strings.Fields(form.Get("scope")) {
		if strings.HasPrefix(v, "clu_") && (v != audience || kind != registry.KindServiceAccount) {
			return &refusal{http.StatusBadRequest, "invalid_scope", "the account has no access to that cluster"}
		}
	}
	return nil
}

// authenticate takes the client's id and secret from the Basic header or from
// the body, not from both.
func (s *Server) authenticate(r *http.Request, form url.Values) (*registry.Client, error) {
	type pair struct{ id, secret string }
	var pairs []pair
	_, inBody := form["client_secret"]
	if header := r.Header.Get("Authorization"); header != "" {
		id, secret, ok := r.BasicAuth()
		if !ok {
			return nil, badClient
		}
		if inBody || form.Get("client_id") != "" && form.Get("client_id") != id {
			return nil, badRequest("credentials both in the header and in the body")
		}
		// RFC 6749 section 2.3.1 has both form-encoded first; many clients do not.
		pairs = append(pairs, pair{id, secret})
		uid, err1 := url.QueryUnescape(id)
		usecret, err2 := url.QueryUnescape(secret)
		if err1 == nil && err2 == nil && (uid != id || usecret != secret) {
			pairs = append(pairs, pair{uid, usecret})
		}
	} else {
		pairs = append(pairs, pair{form.Get("client_id"), form.Get("client_secret")})
	}
	for _, p := range pairs {
		if p.id == "" || p.secret == "" || len(p.id) > 256 || len(p.secret) > 1024 ||
			strings.ContainsRune(p.id, 0) { // Postgres takes no NUL in text
			continue
		}
		var c *registry.Client
		err := s.cfg.DB.AsWorker(r.Context(), func(tx pgx.Tx) (err error) {
			c, err = registry.Authenticate(r.Context(), tx, strings.ToValidUTF8(p.id, ""), p.secret)
			return err
		})
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, registry.ErrBadClient) {
			return nil, err
		}
	}
	return nil, badClient
}
