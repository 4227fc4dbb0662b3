package audit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"penstock/controlplane/audit"
	"penstock/migrations/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

const tenant = "ten_a"

func open(t *testing.T) (*pgxpool.Pool, *pgx.Conn) {
	t.Helper()
	db := pgtest.New(t)
	cfg, err := pgxpool.ParseConfig(db.OwnerURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.RuntimeParams["role"] = "penstock_worker"
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool, db.Admin(t)
}

func add(t *testing.T, pool *pgxpool.Pool, tenant string, n int) {
	t.Helper()
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		return audit.Append(context.Background(), tx, audit.Entry{TenantID: tenant, Actor: "aut_1", Action: "topic.create",
			Resource: fmt.Sprintf("top_%d", n), RequestID: "req_1", Detail: map[string]any{"n": n, "text": "ü\"\u2028"}})
	})
	if err != nil {
		t.Error(err)
	}
}

func verify(t *testing.T, pool *pgxpool.Pool, tenant string) (n int64, err error) {
	t.Helper()
	if txErr := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		n, err = audit.Verify(context.Background(), tx, tenant)
		return nil
	}); txErr != nil {
		t.Fatal(txErr)
	}
	return n, err
}

func TestWritersAtOnceMakeOneChain(t *testing.T) {
	pool, _ := open(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() { add(t, pool, tenant, i) })
		if i%4 == 0 {
			wg.Go(func() { add(t, pool, "ten_b", i) })
		}
	}
	wg.Wait()
	if n, err := verify(t, pool, tenant); n != 40 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
	if n, err := verify(t, pool, "ten_b"); n != 10 || err != nil {
		t.Errorf("%d rows of the other tenant, %v", n, err)
	}
	if n, err := verify(t, pool, "ten_none"); n != 0 || err != nil {
		t.Errorf("no chain: %d, %v", n, err)
	}
}

func TestARolledBackDeedLeavesNoGap(t *testing.T) {
	pool, _ := open(t)
	add(t, pool, tenant, 1)
	undone := errors.New("undone")
	err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
		if err := audit.Append(context.Background(), tx, audit.Entry{TenantID: tenant, Action: "x"}); err != nil {
			return err
		}
		return undone
	})
	if !errors.Is(err, undone) {
		t.Fatal(err)
	}
	add(t, pool, tenant, 2)
	if n, err := verify(t, pool, tenant); n != 2 || err != nil {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestTamperingShows(t *testing.T) {
	for name, sql := range map[string]string{
		"a changed actor":  `UPDATE audit SET actor = 'someone' WHERE seq = 2`,
		"a changed time":   `UPDATE audit SET at = at + interval '1 second' WHERE seq = 3`,
		"a changed detail": `UPDATE audit SET detail = replace(detail, '2', '9') WHERE seq = 2`,
		"shifted fields":   `UPDATE audit SET actor = actor || 't', action = substr(action, 2) WHERE seq = 2`,
		"a removed row":    `DELETE FROM audit WHERE seq = 3`,
		"a cut tail":       `DELETE FROM audit WHERE seq = 5`,
		"a swapped pair":   `UPDATE audit SET seq = CASE seq WHEN 2 THEN 3 WHEN 3 THEN 2 END + 100 WHERE seq IN (2, 3); UPDATE audit SET seq = seq - 100 WHERE seq > 100`,
		"another's row":    `UPDATE audit SET tenant_id = 'ten_b' WHERE seq = 5`,
		"a lost head":      `DELETE FROM audit_heads`,
	} {
		t.Run(name, func(t *testing.T) {
			pool, admin := open(t)
			for i := range 5 {
				add(t, pool, tenant, i)
			}
			// Only an owner who first removes the guard can do it at all.
			if _, err := admin.Exec(context.Background(), `ALTER TABLE audit DISABLE TRIGGER audit_append_only; `+sql); err != nil {
				t.Fatal(err)
			}
			if n, err := verify(t, pool, tenant); err == nil {
				t.Errorf("not noticed: %d rows", n)
			}
		})
	}
}
