package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/audit"
)

// dump is the whole of all tenant tables, except what merely notes that
// someone looked.
func (e *env) dump() map[string]string {
	e.t.Helper()
	ctx := context.Background()
	rows, err := e.admin.Query(ctx, `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version' ORDER BY 1`)
	if err != nil {
		e.t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		e.t.Fatal(err)
	}
	out := map[string]string{}
	for _, table := range tables {
		var all string
		err := e.admin.QueryRow(ctx, fmt.Sprintf(`SELECT coalesce(string_agg(r, E'\n' ORDER BY r), '')
			FROM (SELECT (to_jsonb(x) - 'last_used_at')::text AS r FROM %s x) s`, pgx.Identifier{table}.Sanitize())).Scan(&all)
		if err != nil {
			e.t.Fatal(err)
		}
		out[table] = all
	}
	return out
}

// bodies are valid bodies for the operations that want one.
func (x *tenant) body(op string) string {
	switch op {
	case "create-account":
		return `{"name":"intruder"}`
	case "create-topic":
		return `{"name":"intruder","partitions":1}`
	case "update-topic":
		return `{"configs":{"retention.ms":"1000"}}`
	case "create-service-account":
		return `{"name":"intruder"}`
	case "create-secret", "create-account-secret":
		return `{}`
	case "put-quota":
		return `{"bytes_in_per_second":5}`
	case "create-acl":
		return fmt.Sprintf(`{"service_account_id":%q,"resource_type":"topic","resource_name":"x","operation":"read"}`, x.sa.ServiceAccount.ID)
	}
	return ""
}

func TestForeignThingsDoNotExistOnAnyEndpoint(t *testing.T) {
	e := newEnv(t)
	a, b := e.newTenant("alpha"), e.newTenant("beta")
	e.fill(a)
	e.fill(b)
	ids := strings.NewReplacer("{tenant}", b.ID, "{cluster}", b.cluster.ID, "{topic}", b.topic.Name, "{account}", b.sa.ServiceAccount.ID, "{automation}", b.account.Account.ID,
		"{acl}", b.acl.ID, "{operation}", b.op.ID, "{member}", b.member.ID, "{secret}", b.sa.Secret.ID)
	before := e.dump()
	walked := 0
	for path, item := range e.api.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete} {
			if op == nil || !strings.Contains(path, "{") || op.OperationID == "get-plan" { // plans are everyone's
				continue
			}
			concrete := ids.Replace(path)
			if strings.Contains(concrete, "{") {
				t.Fatalf("%s has a parameter that this test does not know", path)
			}
			var body any
			if s := b.body(op.OperationID); s != "" {
				body = s
			} else if method == "POST" || method == "PUT" || method == "PATCH" {
				t.Fatalf("%s %s: this test has no body for it", method, path)
			}
			walked++
			r := e.do(a.token, method, concrete, body, "Idempotency-Key", "k-"+op.OperationID)
			if r.status != 404 {
				t.Errorf("%s %s as another tenant: %d %s", method, concrete, r.status, r.body)
				continue
			}
			if p := r.problem(t); strings.Contains(p.Detail, b.ID) || strings.Contains(p.Detail, "main") {
				t.Errorf("%s %s tells too much: %s", method, concrete, p.Detail)
			}
			// An own tenant with another's account in it.
			if strings.Contains(path, "{automation}") {
				mixed := strings.Replace(concrete, b.ID, a.ID, 1)
				if r := e.do(a.token, method, mixed, body); r.status != 404 {
					t.Errorf("%s %s with a foreign account: %d %s", method, mixed, r.status, r.body)
				}
			}
			// The same path under a's own cluster with b's thing in it.
			if strings.HasPrefix(path, "/v1/clusters/{cluster}/") && (strings.Contains(path, "{account}") || strings.Contains(path, "{acl}")) {
				mixed := strings.Replace(concrete, b.cluster.ID, a.cluster.ID, 1)
				if r := e.do(a.token, method, mixed, body); r.status != 404 {
					t.Errorf("%s %s with a foreign id in an own cluster: %d %s", method, mixed, r.status, r.body)
				}
			}
		}
	}
	if walked < 20 {
		t.Fatalf("only %d operations walked", walked)
	}
	// A rule for another tenant's service account in an own cluster.
	if r := e.do(a.token, "POST", "/v1/clusters/"+a.cluster.ID+"/acls", b.body("create-acl")); r.status != 422 {
		t.Errorf("access rule for a foreign account: %d %s", r.status, r.body)
	}
	for table, rows := range e.dump() {
		if rows != before[table] {
			t.Errorf("%s changed:\n%s\n---\n%s", table, before[table], rows)
		}
	}
}

func TestListsShowOnlyOwnThings(t *testing.T) {
	e := newEnv(t)
	a, b := e.newTenant("alpha"), e.newTenant("beta")
	e.fill(a)
	e.fill(b)
	for path, item := range e.api.OpenAPI().Paths {
		if item.Get == nil || path == "/v1/plans" || path == "/v1/plans/{plan}" {
			continue
		}
		own := strings.NewReplacer("{tenant}", a.ID, "{cluster}", a.cluster.ID, "{topic}", a.topic.Name, "{account}", a.sa.ServiceAccount.ID,
			"{acl}", a.acl.ID, "{operation}", a.op.ID, "{member}", a.member.ID).Replace(path)
		r := e.do(a.token, "GET", own, nil)
		if r.status != 200 {
			t.Errorf("GET %s: %d %s", own, r.status, r.body)
		}
		for _, foreign := range []string{b.ID, b.cluster.ID, b.topic.ID, b.sa.ServiceAccount.ID, b.acl.ID, b.op.ID, b.member.ID, b.account.Account.ID, "beta"} {
			if strings.Contains(string(r.body), foreign) {
				t.Errorf("GET %s shows %s: %s", own, foreign, r.body)
			}
		}
	}
}

func TestACursorIsGoodForOneTenantAndOneListOnly(t *testing.T) {
	e := newEnv(t)
	a, b := e.newTenant("alpha"), e.newTenant("beta")
	e.fill(a)
	e.fill(b)
	type page struct {
		Items []struct{ Name string }
		Next  string
	}
	base := "/v1/clusters/" + a.cluster.ID + "/topics"
	must[map[string]any](e, a.token, "POST", base, `{"name":"second"}`, 201)
	must[map[string]any](e, a.token, "POST", base, `{"name":"third"}`, 201)
	var names []string
	next := ""
	for range 5 {
		p := must[page](e, a.token, "GET", base+"?limit=1&cursor="+next, nil, 200)
		for _, it := range p.Items {
			names = append(names, it.Name)
		}
		if next = p.Next; next == "" {
			break
		}
		if r := e.do(b.token, "GET", "/v1/clusters/"+b.cluster.ID+"/topics?cursor="+next, nil); r.status != 422 {
			t.Errorf("another tenant's cursor: %d %s", r.status, r.body)
		}
		if r := e.do(a.token, "GET", "/v1/clusters?cursor="+next, nil); r.status != 422 {
			t.Errorf("another list's cursor: %d %s", r.status, r.body)
		}
	}
	if strings.Join(names, ",") != "earthquakes,second,third" {
		t.Errorf("pages gave %v", names)
	}
	if r := e.do(a.token, "GET", base+"?cursor=bm9uc2Vuc2U", nil); r.status != 422 {
		t.Errorf("made-up cursor: %d", r.status)
	}
}

func TestEveryChangeLeavesAChainedAuditRow(t *testing.T) {
	e := newEnv(t)
	a := e.newTenant("alpha")
	e.fill(a)
	must[struct{}](e, a.token, "DELETE", "/v1/clusters/"+a.cluster.ID+"/topics/earthquakes", nil, 202, "X-Request-Id", "my-request")
	ctx := context.Background()
	for chain, want := range map[string]int64{audit.System: 1, a.ID: 8} {
		var n int64
		if err := e.db.AsWorker(ctx, func(tx pgx.Tx) (err error) { n, err = audit.Verify(ctx, tx, chain); return err }); err != nil || n != want {
			t.Errorf("chain %s: %d rows, %v, want %d", chain, n, err, want)
		}
	}
	var actor, action, request string
	err := e.admin.QueryRow(ctx, `SELECT actor, action, request_id FROM audit WHERE tenant_id = $1 ORDER BY seq DESC LIMIT 1`, a.ID).Scan(&actor, &action, &request)
	if err != nil || actor != a.account.Account.ID || action != "topic.delete" || request != "my-request" {
		t.Errorf("last row: %s %s %s, %v", actor, action, request, err)
	}
	var leaked int
	if err := e.admin.QueryRow(ctx, `SELECT count(*) FROM audit a, events e WHERE a.detail LIKE '%pks_%' OR e.payload::text LIKE '%pks_%'`).Scan(&leaked); err != nil || leaked > 0 {
		t.Errorf("secrets in audit or events: %d, %v", leaked, err)
	}
}
