package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
)

func TestARepeatedCreationGivesTheFirstAnswer(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	path := "/v1/clusters/" + a.cluster.ID + "/service-accounts"
	body := wire.CreateServiceAccount{Name: "twice"}
	// Ten at once with one key: one account, one secret, ten equal answers.
	replies := make([]reply, 10)
	var wg sync.WaitGroup
	for i := range replies {
		wg.Go(func() { replies[i] = e.do(a.token, "POST", path, body, "Idempotency-Key", "k1") })
	}
	wg.Wait()
	for _, r := range replies {
		if r.status != 201 || string(r.body) != string(replies[0].body) {
			t.Fatalf("%d %s, first %s", r.status, r.body, replies[0].body)
		}
	}
	var out wire.NewServiceAccount
	if err := json.Unmarshal(replies[0].body, &out); err != nil {
		t.Fatal(err)
	}
	e.token(out.Secret.ClientID, out.Secret.ClientSecret) // the replayed secret is the real one

	if p := e.do(a.token, "POST", path, wire.CreateServiceAccount{Name: "other"}, "Idempotency-Key", "k1").problem(t); p.Code != "idempotency-key-reused" || p.Status != 422 {
		t.Errorf("same key, other body: %+v", p)
	}
	if p := e.do(a.token, "POST", path, body, "Idempotency-Key", "k2").problem(t); p.Code != "already-exists" || p.Status != 409 {
		t.Errorf("other key, same name: %+v", p)
	}
	// A refusal is not remembered: the same key works once the cause is gone.
	if r := e.do(a.token, "POST", path, wire.CreateServiceAccount{Name: "third"}, "Idempotency-Key", "k2"); r.status != 201 {
		t.Errorf("key of a refused call: %d %s", r.status, r.body)
	}
	var readable int
	if err := e.admin.QueryRow(context.Background(), `SELECT count(*) FROM idempotency_keys WHERE position('pks_'::bytea in sealed_response) > 0`).Scan(&readable); err != nil || readable > 0 {
		t.Errorf("%d stored answers hold a readable secret, %v", readable, err)
	}
	// The same key of another tenant is another key.
	b := e.newTenant("beta")
	e.fill(b)
	if r := e.do(b.token, "POST", "/v1/clusters/"+b.cluster.ID+"/service-accounts", body, "Idempotency-Key", "k1"); r.status != 201 || strings.Contains(string(r.body), out.Secret.ClientSecret) {
		t.Errorf("another tenant's call: %d %s", r.status, r.body)
	}
}

func TestAWaitHoldsUntilTheBrokersHaveIt(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	ctx := context.Background()
	topic := "/v1/clusters/" + a.cluster.ID + "/topics/earthquakes"

	if v := must[wire.Topic](e, a.token, "GET", topic, nil, 200); v.Status.Applied {
		t.Fatal("applied before anybody did")
	}
	start := time.Now()
	if v := must[wire.Topic](e, a.token, "GET", topic, nil, 200, "Prefer", "wait=1"); v.Status.Applied || time.Since(start) < time.Second {
		t.Fatalf("a wait of 1 s ended after %v with %+v", time.Since(start), v.Status)
	}
	claims, err := e.worker.Claim(ctx, 10)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claims %d, %v", len(claims), err)
	}
	done := make(chan wire.Topic, 1)
	go func() { done <- must[wire.Topic](e, a.token, "GET", topic+"?wait=applied", nil, 200) }()
	if err := e.worker.TopicApplied(ctx, claims[0], a.topic.ID, 1, "kafka-id"); err != nil {
		t.Fatal(err)
	}
	select {
	case v := <-done:
		if !v.Status.Applied || v.Status.AppliedGeneration != 1 {
			t.Errorf("status %+v", v.Status)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the wait did not end")
	}

	// Another wish: not applied again; a problem that only another wish solves ends the wait.
	v := must[wire.Topic](e, a.token, "PATCH", topic, `{"configs":{"retention.ms":"abc"}}`, 200, "If-Match", `"1"`)
	if v.Status.Applied || v.Status.Generation != 2 {
		t.Errorf("status %+v", v.Status)
	}
	if p := e.do(a.token, "PATCH", topic, `{"partitions":9}`, "If-Match", `"1"`).problem(t); p.Status != 412 {
		t.Errorf("stale If-Match: %+v", p)
	}
	if err := e.worker.TopicProblem(ctx, claims[0], a.topic.ID, cluster.Problem{Type: "urn:penstock:invalid-config", Title: "INVALID_CONFIG"}); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	v = must[wire.Topic](e, a.token, "GET", topic, nil, 200, "Prefer", "wait=20")
	if v.Status.Problem == nil || v.Status.Problem.Title != "INVALID_CONFIG" || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %+v", time.Since(start), v.Status)
	}
	// null takes a config back to its default; the same again changes nothing.
	v = must[wire.Topic](e, a.token, "PATCH", topic, `{"configs":{"retention.ms":null}}`, 200)
	if len(v.Configs) != 0 || v.Status.Generation != 3 || v.Status.Problem != nil {
		t.Errorf("after null: %+v", v)
	}
	if v = must[wire.Topic](e, a.token, "PATCH", topic, `{"configs":{"retention.ms":null}}`, 200); v.Status.Generation != 3 {
		t.Errorf("a change that changes nothing made generation %d", v.Status.Generation)
	}

	// Deletion: 202 while it goes, 204 when a wait sees it gone.
	go func() {
		for ctx := ctx; ; time.Sleep(20 * time.Millisecond) { // a stand-in for the reconciler
			d, err := e.worker.Desired(ctx, &claims[0].Cluster)
			if err != nil || len(d.Topics) == 0 {
				return
			}
			if d.Topics[0].DeletionRequestedAt != nil && e.worker.TopicGone(ctx, claims[0], d.Topics[0].ID) != nil {
				return
			}
		}
	}()
	must[struct{}](e, a.token, "DELETE", topic, nil, 204, "Prefer", "wait=20")
	must[wire.Problem](e, a.token, "GET", topic, nil, 404)
}

func TestAClusterIsFollowedByItsOperation(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	a := e.newTenant("alpha")
	e.fill(a)
	claims, err := e.worker.Claim(ctx, 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(len(claims), err)
	}
	c := claims[0]
	if err := e.worker.Move(ctx, c, cluster.Provisioning, nil); err != nil {
		t.Fatal(err)
	}
	if err := e.worker.PlanBrokers(ctx, c, []cluster.Broker{{ID: 0, Host: "127.0.0.1", ClientPort: 20000, InternalPort: 20001}}); err != nil {
		t.Fatal(err)
	}
	if err := e.worker.Step(ctx, c, "starting brokers", 40); err != nil {
		t.Fatal(err)
	}
	op := must[wire.Operation](e, a.token, "GET", "/v1/operations/"+a.op.ID, nil, 200)
	if op.State != "running" || op.Step != "starting brokers" || op.Percent != 40 {
		t.Errorf("%+v", op)
	}
	if err := e.worker.SetEndpoints(ctx, c, "127.0.0.1:20000", "127.0.0.1:20001", "zk/clusters/x"); err != nil {
		t.Fatal(err)
	}
	ready := make(chan wire.Cluster, 1)
	go func() {
		ready <- must[wire.Cluster](e, a.token, "GET", "/v1/clusters/"+a.cluster.ID+"?wait=applied", nil, 200)
	}()
	if err := e.worker.Move(ctx, c, cluster.Ready, nil); err != nil {
		t.Fatal(err)
	}
	v := <-ready
	if v.Status.State != "ready" || v.Bootstrap != "127.0.0.1:20000" || len(v.Status.Brokers) != 1 || v.Status.ObservedGeneration != 1 {
		t.Errorf("%+v", v)
	}
	if strings.Contains(string(e.do(a.token, "GET", "/v1/clusters/"+a.cluster.ID, nil).body), "20001") {
		t.Error("the internal listener shows")
	}
	if op = must[wire.Operation](e, a.token, "GET", "/v1/operations/"+a.op.ID, nil, 200); op.State != "succeeded" || op.Percent != 100 {
		t.Errorf("%+v", op)
	}

	del := must[wire.ClusterOperation](e, a.token, "DELETE", "/v1/clusters/"+a.cluster.ID, nil, 202)
	again := must[wire.ClusterOperation](e, a.token, "DELETE", "/v1/clusters/"+a.cluster.ID, nil, 202)
	if del.Operation.ID != again.Operation.ID || del.Cluster.Status.State != "deleting" {
		t.Errorf("%+v, again %+v", del, again)
	}
	if p := e.do(a.token, "POST", "/v1/clusters/"+a.cluster.ID+"/topics", wire.CreateTopic{Name: "late"}).problem(t); p.Code != "wrong-state" || p.Status != 409 {
		t.Errorf("change in a cluster that goes: %+v", p)
	}
	if err := e.worker.Move(ctx, c, cluster.Updating, nil); err == nil {
		t.Error("a reconciler moved a cluster whose deletion was asked for")
	}
	if err := e.worker.Release(ctx, c, time.Hour); err != nil {
		t.Fatal(err)
	}
	// Released for an hour, but the deletion came meanwhile: due at once.
	if claims, err = e.worker.Claim(ctx, 1); err != nil || len(claims) != 1 || claims[0].State != cluster.Deleting {
		t.Fatalf("%d claims, %v", len(claims), err)
	}
	if err := e.worker.Move(ctx, claims[0], cluster.Deleted, nil); err != nil {
		t.Fatal(err)
	}
	if op = must[wire.Operation](e, a.token, "GET", "/v1/operations/"+del.Operation.ID+"?wait=applied", nil, 200); op.State != "succeeded" {
		t.Errorf("%+v", op)
	}
	if p := must[wire.Page[wire.Cluster]](e, a.token, "GET", "/v1/clusters", nil, 200); len(p.Items) != 0 {
		t.Errorf("a deleted cluster is listed: %+v", p.Items)
	}
	// Its name is free again, and its service account gets no token.
	must[wire.ClusterOperation](e, a.token, "POST", "/v1/clusters", wire.CreateCluster{Name: "main"}, 202)
	if r := e.do("", "POST", "/oauth2/token", "grant_type=client_credentials&client_id="+a.sa.Secret.ClientID+"&client_secret="+a.sa.Secret.ClientSecret,
		"Content-Type", "application/x-www-form-urlencoded"); r.status != 401 {
		t.Errorf("token for an account of a deleted cluster: %d", r.status)
	}
}

func TestRefusals(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	operator := e.token(operatorID, operatorSecret)
	viewerAccount := must[wire.NewAccount](e, a.token, "POST", "/v1/tenants/"+a.ID+"/accounts", wire.CreateAccount{Name: "looker", Role: "viewer"}, 201)
	viewer := e.token(viewerAccount.Secret.ClientID, viewerAccount.Secret.ClientSecret)
	broker := e.token(a.sa.Secret.ClientID, a.sa.Secret.ClientSecret)
	base := "/v1/clusters/" + a.cluster.ID
	sa := a.sa.ServiceAccount.ID
	f := func(name, bearer, method, path, body string, status int, code string) {
		t.Helper()
		var b any
		if body != "" {
			b = body
		}
		p := e.do(bearer, method, path, b).problem(t)
		if p.Status != status || p.Code != code {
			t.Errorf("%s: %d %s (%s), want %d %s", name, p.Status, p.Code, p.Detail, status, code)
		}
	}
	f("no token", "", "GET", "/v1/clusters", "", 401, "unauthenticated")
	f("garbage for a token", "a.b.c", "GET", "/v1/clusters", "", 401, "unauthenticated")
	f("a broker's token", broker, "GET", "/v1/clusters", "", 401, "unauthenticated")
	f("operator in a tenant's place", operator, "GET", "/v1/clusters", "", 403, "forbidden")
	f("tenant in an operator's place", a.token, "POST", "/v1/tenants", `{"name":"mine","plan":"standard"}`, 403, "forbidden")
	f("tenant makes a plan", a.token, "POST", "/v1/plans", `{}`, 403, "forbidden")
	f("viewer writes", viewer, "POST", base+"/topics", `{"name":"x"}`, 403, "forbidden")
	f("viewer makes an account", viewer, "POST", "/v1/tenants/"+a.ID+"/accounts", `{"name":"me-too"}`, 403, "forbidden")
	f("no such path", a.token, "GET", "/v1/nothing", "", 404, "not-found")
	f("no such method", a.token, "DELETE", "/v1/clusters", "", 404, "not-found")
	f("broken JSON", a.token, "POST", base+"/topics", `{"name":`, 400, "bad-request")
	f("unknown field", a.token, "POST", base+"/topics", `{"name":"x","colour":1}`, 422, "invalid")
	f("wrong type", a.token, "POST", base+"/topics", `{"name":"x","partitions":"six"}`, 422, "invalid")
	f("body too large", a.token, "POST", base+"/topics", `{"name":"`+strings.Repeat("x", 300<<10)+`"}`, 413, "too-large")
	f("no topic name", a.token, "POST", base+"/topics", `{"name":"a b"}`, 422, "invalid")
	f("internal topic", a.token, "POST", base+"/topics", `{"name":"__consumer_offsets"}`, 422, "invalid")
	f("topic again", a.token, "POST", base+"/topics", `{"name":"earthquakes"}`, 409, "already-exists")
	f("more replicas than brokers", a.token, "POST", base+"/topics", `{"name":"x","replication_factor":4}`, 422, "invalid")
	f("min ISR above replicas", a.token, "POST", base+"/topics", `{"name":"x","replication_factor":1,"configs":{"min.insync.replicas":"2"}}`, 422, "invalid")
	f("unknown config", a.token, "POST", base+"/topics", `{"name":"x","configs":{"leader.replication.throttled.replicas":"*"}}`, 422, "invalid")
	f("fewer partitions", a.token, "PATCH", base+"/topics/earthquakes", `{"partitions":2}`, 422, "invalid")
	f("too many partitions", a.token, "POST", base+"/topics", `{"name":"x","partitions":1000}`, 403, "limit-exceeded")
	f("too many brokers", a.token, "POST", "/v1/clusters", `{"name":"big","brokers":4}`, 403, "limit-exceeded")
	f("the service's setting", a.token, "POST", "/v1/clusters", `{"name":"two","config":{"super.users":"User:me"}}`, 422, "invalid")
	f("a line in a setting", a.token, "POST", "/v1/clusters", `{"name":"two","config":{"num.partitions":"1\nsuper.users=User:me"}}`, 422, "invalid")
	f("quota above the plan", a.token, "PUT", base+"/service-accounts/"+sa+"/quota", `{"bytes_in_per_second":1099511627776}`, 403, "limit-exceeded")
	f("quota of nothing", a.token, "PUT", base+"/service-accounts/"+sa+"/quota", `{}`, 422, "invalid")
	f("rule round the control plane", a.token, "POST", base+"/acls", `{"service_account_id":"`+sa+`","resource_type":"cluster","operation":"alter_configs"}`, 422, "invalid")
	f("rule for the service's topics", a.token, "POST", base+"/acls", `{"service_account_id":"`+sa+`","resource_type":"topic","resource_name":"_","pattern_type":"prefixed","operation":"write"}`, 422, "invalid")
	f("the same rule", a.token, "POST", base+"/acls", `{"service_account_id":"`+sa+`","resource_type":"topic","resource_name":"earthquakes","operation":"write"}`, 409, "already-exists")
	f("NUL in a path", a.token, "GET", base+"/topics/a%00b", "", 400, "bad-request")
	f("no UTF-8 in a path", a.token, "GET", base+"/topics/a%ffb", "", 400, "bad-request")
	f("NUL in a query", a.token, "GET", base+"/acls?service_account_id=a%00b", "", 422, "invalid")
	f("NUL in a body", a.token, "POST", base+"/service-accounts", `{"name":"nul","description":"\u0000"}`, 422, "invalid")

	must[wire.NewSecret](e, a.token, "POST", base+"/service-accounts/"+sa+"/secrets", wire.CreateSecret{}, 201)
	f("a third secret", a.token, "POST", base+"/service-accounts/"+sa+"/secrets", `{}`, 403, "limit-exceeded")

	for i := 0; i < 2; i++ {
		must[wire.ClusterOperation](e, a.token, "POST", "/v1/clusters", wire.CreateCluster{Name: "more-" + string(rune('a'+i))}, 202)
	}
	f("one cluster too many", a.token, "POST", "/v1/clusters", `{"name":"last"}`, 403, "limit-exceeded")
}

func TestSecretsRotateWithoutAGap(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	path := "/v1/clusters/" + a.cluster.ID + "/service-accounts/" + a.sa.ServiceAccount.ID
	second := must[wire.NewSecret](e, a.token, "POST", path+"/secrets", wire.CreateSecret{ExpiresInSeconds: 3600}, 201)
	e.token(second.ClientID, second.ClientSecret)
	e.token(a.sa.Secret.ClientID, a.sa.Secret.ClientSecret)
	must[struct{}](e, a.token, "DELETE", path+"/secrets/"+a.sa.Secret.ID, nil, 204)
	r := e.do("", "POST", "/oauth2/token", "grant_type=client_credentials&client_id="+a.sa.Secret.ClientID+"&client_secret="+a.sa.Secret.ClientSecret,
		"Content-Type", "application/x-www-form-urlencoded")
	if r.status != 401 {
		t.Errorf("revoked secret: %d %s", r.status, r.body)
	}
	// The brokers are to refuse what was given for it, and only that.
	revoked := func() (names []string) {
		d, err := e.worker.Desired(context.Background(), &cluster.Cluster{TenantID: a.ID, ID: a.cluster.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range d.Revocations {
			if names = append(names, r.Name); r.NotBefore.Before(time.Now()) {
				t.Errorf("%s: tokens issued by now are not refused, only before %v", r.Name, r.NotBefore)
			}
		}
		return names
	}
	if got := revoked(); !slices.Equal(got, []string{"Credential:" + a.sa.Secret.ID}) {
		t.Errorf("revoked: %v", got)
	}
	var c jwt.MapClaims
	if _, _, err := jwt.NewParser().ParseUnverified(e.token(second.ClientID, second.ClientSecret), &c); err != nil || c["credential"] != second.ID {
		t.Errorf("a token of secret %s names %v, %v", second.ID, c["credential"], err)
	}
	got := must[wire.ServiceAccount](e, a.token, "GET", path, nil, 200)
	if len(got.Secrets) != 1 || got.Secrets[0].ID != second.ID || got.Secrets[0].LastUsedAt == nil || got.Secrets[0].ExpiresAt == nil ||
		!strings.HasPrefix(second.ClientSecret, got.Secrets[0].Prefix) {
		t.Errorf("%+v", got.Secrets)
	}
	must[struct{}](e, a.token, "DELETE", path, nil, 204)
	must[wire.Problem](e, a.token, "GET", path, nil, 404)
	if got := revoked(); len(got) != 2 || got[1] != a.sa.ServiceAccount.Principal {
		t.Errorf("revoked: %v", got)
	}
	d, err := e.worker.Desired(context.Background(), &cluster.Cluster{TenantID: a.ID, ID: a.cluster.ID})
	if err != nil || len(d.GoneAccounts) != 1 || d.Quotas[0].DeletionRequestedAt == nil || d.ACLs[0].DeletionRequestedAt == nil {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestUsageSumsTheNewestCountersOfAllBoots(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	principal := a.sa.ServiceAccount.Principal
	for _, row := range []struct {
		broker, boot int
		direction    string
		bytes        int
	}{{0, 1, "in", 100}, {0, 2, "in", 20}, {1, 1, "in", 3}, {1, 1, "out", 50}} {
		if _, err := e.workerPool().Exec(context.Background(), `INSERT INTO usage_counters VALUES ($1, $2, $3, $4, $5, $6, 1, $7, 1, 1, now())`,
			a.ID, a.cluster.ID, row.broker, row.boot, principal, row.direction, row.bytes); err != nil {
			t.Fatal(err)
		}
	}
	u := must[wire.Usage](e, a.token, "GET", "/v1/clusters/"+a.cluster.ID+"/usage", nil, 200)
	if len(u.Entries) != 2 || u.Entries[0].Bytes != 123 || u.Entries[1].Bytes != 50 || u.Entries[0].ServiceAccountID != a.sa.ServiceAccount.ID || u.AsOf == nil {
		t.Errorf("%+v", u)
	}
}

func TestTheDocumentIsServedAndComplete(t *testing.T) {
	e := newEnv(t)
	r := e.do("", "GET", "/openapi.json", nil)
	var doc struct {
		OpenAPI string                               `json:"openapi"`
		Paths   map[string]map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(r.body, &doc); err != nil || r.status != 200 || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("%d %v %s", r.status, err, doc.OpenAPI)
	}
	for path, item := range doc.Paths {
		for method, op := range item {
			// Whoever calls without a token is refused, whatever the operation.
			r := e.do("", strings.ToUpper(method), strings.NewReplacer("{", "", "}", "").Replace(path), nil)
			if r.status != 401 || op["operationId"] == "" {
				t.Errorf("%s %s without a token: %d", method, path, r.status)
			}
		}
	}
	for _, path := range []string{"/livez", "/readyz"} {
		if r := e.do("", "GET", path, nil); r.status != http.StatusOK {
			t.Errorf("%s: %d", path, r.status)
		}
	}
}

// The bound on the body's time must not end a call that holds.
func TestACallMayHoldForLongerThanItsBodyMayTake(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	start := time.Now()
	must[wire.Topic](e, a.token, "POST", "/v1/clusters/"+a.cluster.ID+"/topics", wire.CreateTopic{Name: "held"}, 201, "Prefer", "wait=2")
	if took := time.Since(start); took < 3*bodyTimeout {
		t.Errorf("the call held for %v only", took)
	}
}

func TestASlowBodyIsCutOff(t *testing.T) {
	e := newEnv(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST /oauth2/token HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\ngrant"); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 408 ") {
		t.Errorf("%v: %s", err, b)
	}
}

func TestAutomationAccountsRotateAndEnd(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	path := "/v1/tenants/" + a.ID + "/accounts/" + a.account.Account.ID
	second := must[wire.NewSecret](e, a.token, "POST", path+"/secrets", wire.CreateSecret{}, 201)
	must[struct{}](e, a.token, "DELETE", path+"/secrets/"+a.account.Secret.ID, nil, 204)
	token := e.token(second.ClientID, second.ClientSecret)
	must[struct{}](e, token, "DELETE", path, nil, 204)
	if r := e.do("", "POST", "/oauth2/token", "grant_type=client_credentials&client_id="+second.ClientID+"&client_secret="+second.ClientSecret,
		"Content-Type", "application/x-www-form-urlencoded"); r.status != 401 {
		t.Errorf("a deleted account got a token: %d", r.status)
	}
}

func TestAMergePatchMayNameItsType(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	v := must[wire.Topic](e, a.token, "PATCH", "/v1/clusters/"+a.cluster.ID+"/topics/earthquakes", `{"partitions":8}`, 200,
		"Content-Type", "application/merge-patch+json")
	if v.Partitions != 8 {
		t.Errorf("%+v", v)
	}
}
