package token_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"penstock/controlplane/cluster"
	"penstock/controlplane/token"
	"penstock/migrations/pgtest"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const (
	issuer         = "https://control.example"
	operatorID     = "op-test"
	operatorSecret = "operators secret: 100% + more"
)

type clock struct {
	sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time          { c.Lock(); defer c.Unlock(); return c.now }
func (c *clock) Advance(d time.Duration) { c.Lock(); defer c.Unlock(); c.now = c.now.Add(d) }

type env struct {
	db             *registry.DB
	sealer         *registry.Sealer
	keys           *token.Keys
	server         *token.Server
	mux            *http.ServeMux
	clock          *clock
	cluster        string
	saID, saSecret string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	ctx := context.Background()
	db, err := registry.Open(ctx, registry.OpenConfig{URL: pgtest.New(t).OwnerURL, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	e := &env{db: db, clock: &clock{now: time.Now().Truncate(time.Second)}, mux: http.NewServeMux()}
	if e.sealer, err = registry.OpenKeyFile(filepath.Join(t.TempDir(), "key")); err != nil {
		t.Fatal(err)
	}
	e.keys = e.open(t)
	e.server = token.New(token.Config{DB: db, Keys: e.keys, Issuer: issuer + "/"})
	e.server.Register(e.mux)
	if err := db.AsWorker(ctx, func(tx pgx.Tx) error {
		if err := registry.EnsureOperator(ctx, tx, operatorID, operatorSecret, "test"); err != nil {
			return err
		}
		p, err := registry.GetPlan(ctx, tx, "developer")
		if err != nil {
			return err
		}
		tn, err := registry.CreateTenant(ctx, tx, "acme", p.ID)
		if err != nil {
			return err
		}
		c, _, err := cluster.Create(ctx, tx, tn.ID, cluster.CreateParams{Name: "main", Brokers: 1}, cluster.By{})
		if err != nil {
			return err
		}
		sa, err := registry.CreateServiceAccount(ctx, tx, tn.ID, c.ID, "writer", "")
		if err != nil {
			return err
		}
		e.cluster, e.saID = c.ID, sa.ID
		_, e.saSecret, err = registry.AddSecret(ctx, tx, tn.ID, registry.Owner{ServiceAccountID: sa.ID}, 0)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// open is one replica's view of the keys.
func (e *env) open(t *testing.T) *token.Keys {
	t.Helper()
	k, err := token.OpenKeys(context.Background(), token.KeysConfig{Pool: e.db.Worker(), Sealer: e.sealer, Now: e.clock.Now,
		Rotate: 24 * time.Hour, Ahead: time.Hour, MaxTokenLife: 15 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

type answer struct {
	status      int
	header      http.Header
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	ExpiresIn   any    `json:"expires_in"`
	Scope       any    `json:"scope"`
	Error       string `json:"error"`
}

func (e *env) post(t *testing.T, body string, change func(*http.Request)) answer {
	t.Helper()
	r := httptest.NewRequest("POST", "/oauth2/token", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	e.mux.ServeHTTP(w, r)
	a := answer{status: w.Code, header: w.Header()}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("Cache-Control %q", w.Header().Get("Cache-Control"))
	}
	return a
}

func TestEveryWayOfShowingASecretGivesAToken(t *testing.T) {
	e := newEnv(t)
	const grant = "grant_type=client_credentials"
	f := func(name, body string, change func(*http.Request)) {
		t.Helper()
		a := e.post(t, body, change)
		if _, number := a.ExpiresIn.(float64); a.status != 200 || a.AccessToken == "" || a.TokenType != "Bearer" || !number {
			t.Errorf("%s: %+v", name, a)
		}
		if _, text := a.Scope.(string); !text { // Kafka's Java client takes nothing else
			t.Errorf("%s: scope %v", name, a.Scope)
		}
	}
	basic := func(id, secret string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(id, secret) }
	}
	f("basic", grant, basic(e.saID, e.saSecret))
	f("body", grant+"&client_id="+e.saID+"&client_secret="+e.saSecret, nil)
	f("charset", grant, func(r *http.Request) {
		r.SetBasicAuth(e.saID, e.saSecret)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
	})
	f("cluster as scope", grant+"&scope="+e.cluster, basic(e.saID, e.saSecret))
	f("cluster as audience", grant+"&audience="+e.cluster, basic(e.saID, e.saSecret))
	f("cluster as resource", grant+"&resource="+e.cluster, basic(e.saID, e.saSecret))
	f("a stock client's scope", grant+"&scope=openid+profile", basic(e.saID, e.saSecret))
	f("client id in both", grant+"&client_id="+e.saID, basic(e.saID, e.saSecret))
	f("raw special characters", grant, basic(operatorID, operatorSecret))
	f("escaped special characters", grant, basic(operatorID, url.QueryEscape(operatorSecret)))
	f("special characters in the body", grant+"&client_id="+operatorID+"&client_secret="+url.QueryEscape(operatorSecret), nil)
}

func TestTokenRefusals(t *testing.T) {
	e := newEnv(t)
	const grant = "grant_type=client_credentials"
	creds := "&client_id=" + e.saID + "&client_secret=" + e.saSecret
	f := func(name, body string, change func(*http.Request), status int, code string) {
		t.Helper()
		a := e.post(t, body, change)
		if a.status != status || a.Error != code || a.AccessToken != "" {
			t.Errorf("%s: %d %s, want %d %s", name, a.status, a.Error, status, code)
		}
		if status == 401 && a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
	}
	f("wrong secret, basic", grant, func(r *http.Request) { r.SetBasicAuth(e.saID, e.saSecret+"x") }, 401, "invalid_client")
	f("wrong secret, body", grant+"&client_id="+e.saID+"&client_secret=x", nil, 401, "invalid_client")
	f("unknown client", grant+"&client_id=sa_x&client_secret=x", nil, 401, "invalid_client")
	f("no credentials", grant, nil, 401, "invalid_client")
	f("another scheme", grant, func(r *http.Request) { r.Header.Set("Authorization", "Bearer x") }, 401, "invalid_client")
	f("NUL in the id", grant+"&client_id=a%00b&client_secret=x", nil, 401, "invalid_client")
	f("no UTF-8 in the id", grant+"&client_id=a%ffb&client_secret=x", nil, 401, "invalid_client")
	f("both ways", grant+creds, func(r *http.Request) { r.SetBasicAuth(e.saID, e.saSecret) }, 400, "invalid_request")
	f("no grant type", "x=y"+creds, nil, 400, "invalid_request")
	f("other grant type", "grant_type=password"+creds, nil, 400, "unsupported_grant_type")
	f("doubled parameter", grant+"&"+grant+creds, nil, 400, "invalid_request")
	f("JSON", grant+creds, func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, 400, "invalid_request")
	f("endless body", grant+creds+"&x="+strings.Repeat("y", 1<<20), nil, 400, "invalid_request")
	f("another cluster as scope", grant+creds+"&scope="+tenants.NewID("clu"), nil, 400, "invalid_scope")
	f("another cluster as audience", grant+creds+"&audience="+tenants.NewID("clu"), nil, 400, "invalid_target")
	f("the API as audience", grant+creds+"&audience="+url.QueryEscape(issuer), nil, 400, "invalid_target")
	f("a cluster for an operator", grant+"&scope="+e.cluster+"&client_id="+operatorID+"&client_secret="+url.QueryEscape(operatorSecret), nil, 400, "invalid_scope")
}

// jwks reads the published keys as a broker would.
func (e *env) jwks(t *testing.T) map[string]*ecdsa.PublicKey {
	t.Helper()
	w := httptest.NewRecorder()
	e.mux.ServeHTTP(w, httptest.NewRequest("GET", "/oauth2/jwks", nil))
	var set struct{ Keys []token.JWK }
	if err := json.Unmarshal(w.Body.Bytes(), &set); err != nil || w.Code != 200 || !strings.Contains(w.Header().Get("Cache-Control"), "max-age") {
		t.Fatalf("%d %v %s", w.Code, err, w.Body)
	}
	if strings.Contains(w.Body.String(), `"d"`) {
		t.Fatal("a private key is published")
	}
	out := map[string]*ecdsa.PublicKey{}
	for _, k := range set.Keys {
		x, err1 := base64.RawURLEncoding.DecodeString(k.X)
		y, err2 := base64.RawURLEncoding.DecodeString(k.Y)
		if err1 != nil || err2 != nil || k.Kty != "EC" || k.Crv != "P-256" || k.Alg != "ES256" || k.Use != "sig" {
			t.Fatalf("%+v", k)
		}
		pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err != nil {
			t.Fatal(err)
		}
		out[k.Kid] = pub
	}
	return out
}

func (e *env) saToken(t *testing.T) string {
	t.Helper()
	a := e.post(t, "grant_type=client_credentials&client_id="+e.saID+"&client_secret="+e.saSecret, nil)
	if a.status != 200 {
		t.Fatalf("%+v", a)
	}
	return a.AccessToken
}

func (e *env) opToken(t *testing.T) string {
	t.Helper()
	a := e.post(t, "grant_type=client_credentials", func(r *http.Request) { r.SetBasicAuth(operatorID, operatorSecret) })
	if a.status != 200 {
		t.Fatalf("%+v", a)
	}
	return a.AccessToken
}

func (e *env) parse(t *testing.T, raw string) (*jwt.Token, error) {
	keys := e.jwks(t)
	return jwt.Parse(raw, func(tok *jwt.Token) (any, error) {
		k, ok := keys[tok.Header["kid"].(string)]
		if !ok {
			return nil, errors.New("kid not published")
		}
		return k, nil
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithTimeFunc(e.clock.Now))
}

func TestClaimsAreThoseThatBrokersCheck(t *testing.T) {
	e := newEnv(t)
	tok, err := e.parse(t, e.saToken(t))
	if err != nil {
		t.Fatal(err)
	}
	c := tok.Claims.(jwt.MapClaims)
	now := float64(e.clock.Now().Unix())
	want := map[string]any{"iss": issuer, "sub": e.saID, "client_id": e.saID, "scope": e.cluster, "kind": "service_account",
		"iat": now, "nbf": now, "exp": now + 900}
	for k, v := range want {
		if c[k] != v {
			t.Errorf("%s = %v, want %v", k, c[k], v)
		}
	}
	if aud, _ := c.GetAudience(); len(aud) != 1 || aud[0] != e.cluster {
		t.Errorf("aud %v", aud)
	}
	if tok.Header["typ"] != "at+jwt" || c["jti"] == "" || !strings.HasPrefix(fmt.Sprint(c["tenant"]), "ten_") {
		t.Errorf("header %v, claims %v", tok.Header, c)
	}
}

func TestMetadata(t *testing.T) {
	e := newEnv(t)
	for _, path := range []string{"/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"} {
		w := httptest.NewRecorder()
		e.mux.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		var m map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || m["issuer"] != issuer || m["token_endpoint"] != issuer+"/oauth2/token" || m["jwks_uri"] != issuer+"/oauth2/jwks" {
			t.Errorf("%s: %d %v", path, w.Code, m)
		}
	}
}

func TestKeysRotateWithoutAReaderEverMissingOne(t *testing.T) {
	e := newEnv(t)
	other := e.open(t) // another replica
	refresh := func() {
		t.Helper()
		for _, k := range []*token.Keys{e.keys, other} {
			if err := k.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	kid := func(raw string) string {
		t.Helper()
		tok, err := e.parse(t, raw)
		if err != nil {
			t.Fatal(err)
		}
		return tok.Header["kid"].(string)
	}
	first := kid(e.saToken(t))
	if n := len(e.jwks(t)); n != 1 {
		t.Fatalf("%d keys after two replicas started", n)
	}
	e.clock.Advance(23*time.Hour + time.Minute)
	refresh()
	if n := len(e.jwks(t)); n != 2 || kid(e.saToken(t)) != first {
		t.Fatalf("an hour ahead: %d keys published, signed with %s, want the old one", n, kid(e.saToken(t)))
	}
	old := e.saToken(t)
	e.clock.Advance(time.Hour)
	second := kid(e.saToken(t)) // by the clock alone: no refresh needed
	if second == first {
		t.Fatal("the next key did not take over")
	}
	refresh()
	if _, ok := e.jwks(t)[first]; !ok {
		t.Fatal("the old key left while its tokens live")
	}
	_ = old
	e.clock.Advance(17 * time.Minute)
	refresh()
	if _, ok := e.jwks(t)[first]; ok {
		t.Fatal("the old key stays for ever")
	}
	if err := e.keys.Rotate(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := len(e.jwks(t)); n != 2 || kid(e.saToken(t)) != second {
		t.Fatalf("after Rotate: %d keys", n)
	}
}

func TestPrivateKeysLieSealed(t *testing.T) {
	e := newEnv(t)
	var sealed []byte
	if err := e.db.Worker().QueryRow(context.Background(), `SELECT sealed_private FROM signing_keys`).Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	wrong, err := registry.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := token.OpenKeys(context.Background(), token.KeysConfig{Pool: e.db.Worker(), Sealer: wrong}); err == nil {
		t.Fatal("another key file opens the signing keys")
	}
}

func TestVerifyBelievesOnlyItsOwnTokens(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	good := e.opToken(t)
	claims, err := e.server.Verify(ctx, good)
	if err != nil || claims.Subject != operatorID || claims.Kind != "operator" {
		t.Fatalf("%+v, %v", claims, err)
	}
	tok, _ := e.parse(t, good)
	kid := tok.Header["kid"].(string)
	mine, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := e.clock.Now()
	base := func() jwt.MapClaims {
		return jwt.MapClaims{"iss": issuer, "aud": issuer, "sub": operatorID, "kind": "operator", "role": "operator",
			"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Minute).Unix()}
	}
	sign := func(method jwt.SigningMethod, key any, c jwt.MapClaims, header map[string]any) string {
		t.Helper()
		x := jwt.NewWithClaims(method, c)
		x.Header["typ"], x.Header["kid"] = "at+jwt", kid
		for k, v := range header {
			x.Header[k] = v
		}
		s, err := x.SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	public, err := e.jwks(t)[kid].Bytes()
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	sig, _ := base64.RawURLEncoding.DecodeString(parts[2])
	sig[5] ^= 1
	flipped := parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(sig)
	for name, raw := range map[string]string{
		"empty":               "",
		"alg none":            sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, base(), nil),
		"HMAC, public key":    sign(jwt.SigningMethodHS256, public, base(), nil),
		"another key":         sign(jwt.SigningMethodES256, mine, base(), nil),
		"unknown kid":         sign(jwt.SigningMethodES256, mine, base(), map[string]any{"kid": "key_x"}),
		"its own key inside":  sign(jwt.SigningMethodES256, mine, base(), map[string]any{"jwk": map[string]string{"kty": "EC"}}),
		"a bit flipped":       flipped,
		"a broker's token":    e.saToken(t),
		"a very long token":   good + strings.Repeat("x", 10000),
		"an ID token's typ":   sign(jwt.SigningMethodES256, mine, base(), map[string]any{"typ": "JWT"}),
		"unknown crit header": sign(jwt.SigningMethodES256, mine, base(), map[string]any{"crit": []string{"x"}}),
	} {
		if _, err := e.server.Verify(ctx, raw); !errors.Is(err, token.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A token both expired and badly signed is badly signed: the signature alone decides first.
	old := base()
	old["exp"] = now.Add(-time.Hour).Unix()
	_, err = e.server.Verify(ctx, sign(jwt.SigningMethodES256, mine, old, nil))
	if !errors.Is(err, jwt.ErrTokenSignatureInvalid) || errors.Is(err, jwt.ErrTokenExpired) {
		t.Errorf("expired and badly signed: %v", err)
	}
	e.clock.Advance(16 * time.Minute)
	if _, err := e.server.Verify(ctx, good); !errors.Is(err, jwt.ErrTokenExpired) || !errors.Is(err, token.ErrInvalid) {
		t.Errorf("expired: %v", err)
	}
	e.clock.Advance(-20 * time.Minute)
	if _, err := e.server.Verify(ctx, good); !errors.Is(err, token.ErrInvalid) {
		t.Errorf("not valid yet: %v", err)
	}
}

func TestWithPostgresAwayTheEndpointSaysTryAgain(t *testing.T) {
	e := newEnv(t)
	e.db.Close()
	a := e.post(t, "grant_type=client_credentials&client_id="+e.saID+"&client_secret="+e.saSecret, nil)
	if a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("%+v", a)
	}
	if len(e.jwks(t)) != 1 {
		t.Error("the keys in memory are not served")
	}
}
