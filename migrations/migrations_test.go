package migrations_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"penstock/migrations"
	"penstock/migrations/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func TestEveryTenantTableForcesRowSecurity(t *testing.T) {
	conn := pgtest.New(t).Admin(t)
	// A tenant table is one with a tenant_id, and tenants itself.
	rows, err := conn.Query(context.Background(), `
		SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity,
			coalesce((SELECT array_agg(p.policyname || ':' || p.roles[1] || ':' || p.qual || ':' || p.with_check ORDER BY 1)
				FROM pg_policies p WHERE p.tablename = c.relname), '{}')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND (c.relname = 'tenants' OR EXISTS (
			SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
		ORDER BY 1`)
	if err != nil {
		t.Fatal(err)
	}
	type table struct {
		name            string
		enabled, forced bool
		policies        []string
	}
	tables, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (table, error) {
		var x table
		return x, r.Scan(&x.name, &x.enabled, &x.forced, &x.policies)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) < 18 {
		t.Fatalf("only %d tenant tables found", len(tables))
	}
	for _, x := range tables {
		column := "tenant_id"
		if x.name == "tenants" {
			column = "id"
		}
		equal := "(" + column + " = current_setting('app.tenant_id'::text, true))"
		want := []string{"of_tenant:penstock_api:" + equal + ":" + equal, "of_worker:penstock_worker:true:true"}
		slices.Sort(x.policies)
		if !x.enabled || !x.forced || !slices.Equal(x.policies, want) {
			t.Errorf("%s: enabled %v, forced %v, policies %v", x.name, x.enabled, x.forced, x.policies)
		}
	}
}

func TestRolesCannotEscapeRowSecurity(t *testing.T) {
	conn := pgtest.New(t).Admin(t)
	var bad int
	err := conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_roles WHERE rolname IN ('penstock_api', 'penstock_worker')
		AND (rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb)`).Scan(&bad)
	if err != nil || bad != 0 {
		t.Fatalf("%d roles may do too much, %v", bad, err)
	}
	err = conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
		WHERE r.rolname IN ('penstock_api', 'penstock_worker')`).Scan(&bad)
	if err != nil || bad != 0 {
		t.Fatalf("the roles own %d tables, %v", bad, err)
	}
}

func TestChildrenPointAtParentsOfTheSameTenant(t *testing.T) {
	conn := pgtest.New(t).Admin(t)
	rows, err := conn.Query(context.Background(), `
		SELECT conrelid::regclass || '.' || conname FROM pg_constraint con
		WHERE contype = 'f' AND confrelid::regclass::text NOT IN ('tenants', 'plans')
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = con.conrelid AND a.attnum = con.conkey[1] AND a.attname = 'tenant_id')`)
	if err != nil {
		t.Fatal(err)
	}
	loose, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(loose) > 0 {
		t.Fatalf("foreign keys that do not start with tenant_id: %v, %v", loose, err)
	}
}

func TestManyStartsAtOnceMigrateOnce(t *testing.T) {
	db := pgtest.Empty(t)
	if n, err := migrations.Pending(context.Background(), db.OwnerURL); err != nil || n < 3 {
		t.Fatalf("pending %d, %v", n, err)
	}
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = migrations.Up(context.Background(), db.OwnerURL) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	var plans int
	if err := db.Admin(t).QueryRow(context.Background(), `SELECT count(*) FROM plans`).Scan(&plans); err != nil || plans != 2 {
		t.Fatalf("%d plans, %v", plans, err)
	}
	if n, err := migrations.Pending(context.Background(), db.OwnerURL); err != nil || n != 0 {
		t.Fatalf("pending %d, %v", n, err)
	}
}

func TestAuditRowsCannotBeChanged(t *testing.T) {
	conn := pgtest.New(t).Admin(t)
	for _, q := range []string{`UPDATE audit SET actor = 'x'`, `DELETE FROM audit`, `TRUNCATE audit`} {
		if _, err := conn.Exec(context.Background(), q); err == nil {
			t.Errorf("%s: allowed", q)
		}
	}
}
