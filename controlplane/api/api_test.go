package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"penstock/controlplane/api"
	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/controlplane/token"
	"penstock/migrations/pgtest"
	"penstock/tenants/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const (
	operatorID     = "test-operator"
	operatorSecret = "a-secret-of-more-than-twenty-characters"
	bodyTimeout    = 500 * time.Millisecond
)

// env is a whole API on a database of its own.
type env struct {
	t      *testing.T
	db     *registry.DB
	admin  *pgx.Conn // bypasses row security: what really is in the tables
	api    *api.API
	url    string
	client *http.Client
	worker *cluster.Worker
}

func newEnv(t *testing.T) *env {
	t.Helper()
	ctx := context.Background()
	pg := pgtest.New(t)
	e := &env{t: t, admin: pg.Admin(t), client: &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}}
	var err error
	if e.db, err = registry.Open(ctx, registry.OpenConfig{URL: pg.OwnerURL, MaxConns: 8}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.db.Close)
	sealer, err := registry.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := token.OpenKeys(ctx, token.KeysConfig{Pool: e.db.Worker(), Sealer: sealer})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(keys.Close)
	hints := cluster.Listen(e.db.Worker().Config().ConnConfig, nil)
	t.Cleanup(hints.Close)
	srv := httptest.NewUnstartedServer(nil)
	e.url = "http://" + srv.Listener.Addr().String()
	tokens := token.New(token.Config{DB: e.db, Keys: keys, Issuer: e.url})
	e.api = api.New(api.Config{DB: e.db, Tokens: tokens, Sealer: sealer, Hints: hints, TokenURL: e.url + token.TokenPath,
		BodyTimeout: bodyTimeout})
	t.Cleanup(e.api.Close)
	srv.Config.Handler = e.api.Handler()
	srv.Start()
	t.Cleanup(srv.Close)
	t.Cleanup(e.client.CloseIdleConnections)
	if err := e.db.AsWorker(ctx, func(tx pgx.Tx) error {
		return registry.EnsureOperator(ctx, tx, operatorID, operatorSecret, "test")
	}); err != nil {
		t.Fatal(err)
	}
	e.worker = cluster.NewWorker(e.db.Worker(), "test-worker", time.Minute)
	return e
}

// reply is an answer as it came.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (r reply) problem(t *testing.T) wire.Problem {
	t.Helper()
	var p wire.Problem
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q of %s", ct, r.body)
	}
	if err := json.Unmarshal(r.body, &p); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	if p.RequestID == "" || p.RequestID != r.header.Get("X-Request-Id") || p.Status != r.status {
		t.Errorf("problem %+v, header %q", p, r.header.Get("X-Request-Id"))
	}
	return p
}

func (e *env) do(bearer, method, path string, body any, header ...string) reply {
	e.t.Helper()
	var b []byte
	switch v := body.(type) {
	case nil:
	case string:
		b = []byte(v)
	default:
		var err error
		if b, err = json.Marshal(v); err != nil {
			e.t.Fatal(err)
		}
	}
	req, err := http.NewRequest(method, e.url+path, bytes.NewReader(b))
	if err != nil {
		e.t.Fatal(err)
	}
	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}
	if b != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, out}
}

// must makes a call that has to answer with status, and decodes the answer.
func must[T any](e *env, bearer, method, path string, body any, status int, header ...string) T {
	e.t.Helper()
	r := e.do(bearer, method, path, body, header...)
	if r.status != status {
		e.t.Fatalf("%s %s: %d %s, want %d", method, path, r.status, r.body, status)
	}
	var out T
	if len(r.body) > 0 {
		if err := json.Unmarshal(r.body, &out); err != nil {
			e.t.Fatalf("%s %s: %v: %s", method, path, err, r.body)
		}
	}
	return out
}

func (e *env) token(id, secret string) string {
	e.t.Helper()
	req, err := http.NewRequest("POST", e.url+"/oauth2/token", strings.NewReader("grant_type=client_credentials"))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth(id, secret)
	res, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer res.Body.Close()
	var a struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(res.Body).Decode(&a); err != nil || a.AccessToken == "" {
		e.t.Fatalf("token: %d %v", res.StatusCode, err)
	}
	return a.AccessToken
}

// tenant is one tenant with everything it can have.
type tenant struct {
	wire.Tenant
	token   string
	account wire.NewAccount
	member  wire.Member
	op      wire.Operation
	cluster wire.Cluster
	topic   wire.Topic
	sa      wire.NewServiceAccount
	acl     wire.ACL
}

// newTenant makes a bare tenant with an admin account.
func (e *env) newTenant(name string) *tenant {
	e.t.Helper()
	op := e.token(operatorID, operatorSecret)
	x := &tenant{}
	x.Tenant = must[wire.Tenant](e, op, "POST", "/v1/tenants", wire.CreateTenant{Name: name, Plan: "developer"}, 201)
	x.account = must[wire.NewAccount](e, op, "POST", "/v1/tenants/"+x.ID+"/accounts", wire.CreateAccount{Name: "automation"}, 201)
	x.token = e.token(x.account.Secret.ClientID, x.account.Secret.ClientSecret)
	return x
}

// fill gives a tenant one of each thing, with names that every tenant has.
func (e *env) fill(x *tenant) {
	e.t.Helper()
	x.member = must[wire.Member](e, x.token, "POST", "/v1/members", wire.CreateMember{Email: "ada@example.com"}, 201)
	co := must[wire.ClusterOperation](e, x.token, "POST", "/v1/clusters", wire.CreateCluster{Name: "main", Brokers: 3}, 202)
	x.cluster, x.op = co.Cluster, co.Operation
	base := "/v1/clusters/" + x.cluster.ID
	x.topic = must[wire.Topic](e, x.token, "POST", base+"/topics", wire.CreateTopic{Name: "earthquakes", Partitions: 6}, 201)
	x.sa = must[wire.NewServiceAccount](e, x.token, "POST", base+"/service-accounts", wire.CreateServiceAccount{Name: "writer"}, 201)
	in := int64(1 << 20)
	must[wire.Quota](e, x.token, "PUT", base+"/service-accounts/"+x.sa.ServiceAccount.ID+"/quota", wire.PutQuota{BytesInPerSecond: &in}, 200)
	x.acl = must[wire.ACL](e, x.token, "POST", base+"/acls", wire.CreateACL{ServiceAccountID: x.sa.ServiceAccount.ID,
		ResourceType: "topic", ResourceName: "earthquakes", Operation: "write"}, 201)
}

// workerPool is the pool under the worker's role.
func (e *env) workerPool() *pgxpool.Pool { return e.db.Worker() }
