package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"penstock/controlplane/cluster"
	"penstock/migrations/pgtest"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

type env struct {
	t      *testing.T
	db     *registry.DB
	admin  *pgx.Conn
	tenant string
}

func newEnv(t *testing.T) *env {
	t.Helper()
	pg := pgtest.New(t)
	db, err := registry.Open(context.Background(), registry.OpenConfig{URL: pg.OwnerURL, MaxConns: 10})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	e := &env{t: t, db: db, admin: pg.Admin(t)}
	if err := db.AsWorker(context.Background(), func(tx pgx.Tx) error {
		p, err := registry.GetPlan(context.Background(), tx, "developer")
		if err != nil {
			return err
		}
		tn, err := registry.CreateTenant(context.Background(), tx, "acme", p.ID)
		e.tenant = tn.ID
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *env) asTenant(fn func(tx pgx.Tx) error) {
	e.t.Helper()
	if err := e.db.AsTenant(context.Background(), e.tenant, fn); err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) create(name string) *cluster.Cluster {
	e.t.Helper()
	var c *cluster.Cluster
	e.asTenant(func(tx pgx.Tx) (err error) {
		c, _, err = cluster.Create(context.Background(), tx, e.tenant, cluster.CreateParams{Name: name, Brokers: 3}, cluster.By{Actor: "test"})
		return err
	})
	return c
}

func (e *env) worker(name string, lease time.Duration) *cluster.Worker {
	return cluster.NewWorker(e.db.Worker(), name, lease)
}

// expire lets a claim's lease run out without waiting for it.
func (e *env) expire(id string) {
	e.t.Helper()
	if _, err := e.admin.Exec(context.Background(), `UPDATE clusters SET lease_until = now() - interval '1 second' WHERE id = $1`, id); err != nil {
		e.t.Fatal(err)
	}
}

func TestEachClusterIsClaimedByOneWorkerOnly(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	const n = 20
	for i := range n {
		e.create(fmt.Sprintf("c-%d", i))
	}
	var mu sync.Mutex
	seen := map[string]string{}
	var wg sync.WaitGroup
	for i := range 5 {
		name := fmt.Sprintf("w-%d", i)
		wg.Go(func() {
			for {
				claims, err := e.worker(name, time.Minute).Claim(ctx, 3)
				if err != nil {
					t.Error(err)
				}
				if len(claims) == 0 {
					return
				}
				mu.Lock()
				for _, c := range claims {
					if other, twice := seen[c.ID]; twice {
						t.Errorf("%s claimed by %s and %s", c.ID, other, name)
					}
					seen[c.ID] = name
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != n {
		t.Errorf("%d clusters claimed", len(seen))
	}
}

// A worker that was paused beyond its lease and overtaken by another changes
// nothing any more, whatever it tries.
func TestAnOvertakenWorkerIsFenced(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	c := e.create("main")
	old, fresh := e.worker("old", time.Minute), e.worker("fresh", time.Minute)
	claims, err := old.Claim(ctx, 1)
	if err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	mine := claims[0]
	if err := old.Renew(ctx, mine); err != nil {
		t.Fatal(err)
	}
	if again, err := fresh.Claim(ctx, 1); err != nil || len(again) != 0 {
		t.Fatalf("a held cluster was claimed: %v %v", again, err)
	}
	e.expire(c.ID)
	if err := old.Check(ctx, mine); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("after the lease: %v", err)
	}
	claims, err = fresh.Claim(ctx, 1)
	if err != nil || len(claims) != 1 || claims[0].Term <= mine.Term {
		t.Fatalf("%+v, %v", claims, err)
	}
	for name, err := range map[string]error{
		"renew":    old.Renew(ctx, mine),
		"move":     old.Move(ctx, mine, cluster.Provisioning, nil),
		"step":     old.Step(ctx, mine, "x", 1),
		"plan":     old.PlanBrokers(ctx, mine, []cluster.Broker{{ID: 0, Host: "h", ClientPort: 1, InternalPort: 2}}),
		"broker":   old.SetBroker(ctx, mine, cluster.Broker{ID: 0, State: cluster.BrokerRunning}),
		"endpoint": old.SetEndpoints(ctx, mine, "x", "y", "z"),
		"topic":    old.TopicApplied(ctx, mine, "top_x", 1, ""),
		"gone":     old.TopicGone(ctx, mine, "top_x"),
		"quota":    old.QuotaApplied(ctx, mine, "sa_x", 1),
		"acl":      old.ACLApplied(ctx, mine, "acl_x", 1),
		"release":  old.Release(ctx, mine, 0),
		"fail":     old.Fail(ctx, mine, cluster.Problem{}, 0),
	} {
		if !errors.Is(err, cluster.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := old.SetCredentials(ctx, mine, []byte("x")); !errors.Is(err, cluster.ErrFenced) {
		t.Errorf("credentials: %v", err)
	}
	if err := fresh.Move(ctx, claims[0], cluster.Provisioning, nil); err != nil {
		t.Errorf("the new holder: %v", err)
	}
}

func TestCredentialsAreWrittenOnce(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	e.create("main")
	w := e.worker("w", time.Minute)
	claims, _ := w.Claim(ctx, 1)
	first, err := w.SetCredentials(ctx, claims[0], []byte("first"))
	if err != nil || string(first) != "first" {
		t.Fatal(string(first), err)
	}
	if second, err := w.SetCredentials(ctx, claims[0], []byte("second")); err != nil || string(second) != "first" {
		t.Errorf("%s, %v", second, err)
	}
}

func TestNoTwoBrokersGetOnePort(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	e.create("one")
	e.create("two")
	w := e.worker("w", time.Minute)
	claims, err := w.Claim(ctx, 2)
	if err != nil || len(claims) != 2 {
		t.Fatal(claims, err)
	}
	plan := []cluster.Broker{{ID: 0, Host: "127.0.0.1", ClientPort: 9000, InternalPort: 9001}}
	if err := w.PlanBrokers(ctx, claims[0], plan); err != nil {
		t.Fatal(err)
	}
	if err := w.PlanBrokers(ctx, claims[0], []cluster.Broker{{ID: 0, Host: "127.0.0.1", ClientPort: 7, InternalPort: 8}}); err != nil {
		t.Fatal(err) // again: the row stays
	}
	if err := w.PlanBrokers(ctx, claims[1], plan); !errors.Is(err, cluster.ErrConflict) {
		t.Errorf("a taken port: %v", err)
	}
	ports, err := w.UsedPorts(ctx, "127.0.0.1")
	if err != nil || fmt.Sprint(ports) != "[9000 9001]" {
		t.Errorf("%v, %v", ports, err)
	}
	for _, s := range []cluster.State{cluster.Deleting, cluster.Deleted} {
		if s == cluster.Deleting {
			e.asTenant(func(tx pgx.Tx) error {
				_, err := cluster.RequestDelete(ctx, tx, e.tenant, claims[0].ID, cluster.By{Actor: "test"})
				return err
			})
			claims[0].State = cluster.Deleting
			continue
		}
		if err := w.Move(ctx, claims[0], s, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.PlanBrokers(ctx, claims[1], plan); err != nil {
		t.Errorf("a freed port: %v", err)
	}
}

func TestFailedClustersRestUntilSomeoneActs(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	c := e.create("main")
	w := e.worker("w", time.Minute)
	claims, _ := w.Claim(ctx, 1)
	if err := w.Fail(ctx, claims[0], cluster.Problem{Title: "no port", Retryable: true}, 0); err != nil {
		t.Fatal(err)
	}
	if claims, _ = w.Claim(ctx, 1); len(claims) != 1 || claims[0].Attempts != 1 || claims[0].Problem == nil || claims[0].Problem.Title != "no port" {
		t.Fatalf("%+v", claims)
	}
	if err := w.Move(ctx, claims[0], cluster.Provisioning, nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Move(ctx, claims[0], cluster.Failed, &cluster.Problem{Title: "it cannot be"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Release(ctx, claims[0], 0); err != nil {
		t.Fatal(err)
	}
	if claims, _ = w.Claim(ctx, 1); len(claims) != 0 {
		t.Fatalf("a failed cluster is due: %+v", claims)
	}
	e.asTenant(func(tx pgx.Tx) error {
		ops, err := cluster.ListOperations(ctx, tx, e.tenant, cluster.Page{Limit: 10})
		if err != nil || len(ops) != 1 || ops[0].State != "failed" || ops[0].Problem.Title != "it cannot be" {
			t.Errorf("%+v, %v", ops, err)
		}
		_, err = cluster.RequestDelete(ctx, tx, e.tenant, c.ID, cluster.By{Actor: "test"})
		return err
	})
	if claims, _ = w.Claim(ctx, 1); len(claims) != 1 {
		t.Fatal("the deletion of a failed cluster is not due")
	}
}

func TestMovesLeadOnlyWhereTheTableSays(t *testing.T) {
	// Deleted is the end, is reached only through deleting, and can be reached from everywhere.
	for _, from := range cluster.States() {
		for _, to := range cluster.States() {
			if to == cluster.Deleted && cluster.CanMove(from, to) != (from == cluster.Deleting) || from == cluster.Deleted && cluster.CanMove(from, to) {
				t.Errorf("%s to %s", from, to)
			}
		}
		if from != cluster.Deleted && from != cluster.Deleting && !cluster.CanMove(from, cluster.Deleting) {
			t.Errorf("%s cannot be deleted", from)
		}
	}
}

// Random wishes of the API against a reconciler that is at work: whatever the
// order, one more round after the last wish brings everything to its wish.
func TestNoWishIsSleptOver(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := e.create(fmt.Sprintf("r-%d", n))
		w := e.worker("w", time.Minute)
		wish := func() {
			e.asTenant(func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, e.tenant, c.ID); err != nil {
					return err
				}
				name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "topic")
				old, err := cluster.GetTopic(ctx, tx, e.tenant, c.ID, name)
				switch {
				case errors.Is(err, cluster.ErrNotFound):
					_, err = cluster.CreateTopic(ctx, tx, e.tenant, c.ID, cluster.TopicParams{Name: name, Partitions: 1, ReplicationFactor: 1}, cluster.By{Actor: "t"})
				case err == nil && old.DeletionRequestedAt == nil && rapid.Bool().Draw(rt, "delete"):
					_, err = cluster.DeleteTopic(ctx, tx, e.tenant, c.ID, name, cluster.By{Actor: "t"})
				case err == nil && old.DeletionRequestedAt == nil:
					_, err = cluster.UpdateTopic(ctx, tx, e.tenant, c.ID, name, 0, old.Partitions+1, old.Configs, cluster.By{Actor: "t"})
				}
				return err
			})
		}
		maybe := func() {
			for range rapid.IntRange(0, 2).Draw(rt, "wishes") {
				wish()
			}
		}
		round := func(disturb func()) bool {
			claims, err := w.Claim(ctx, 1)
			if err != nil {
				rt.Fatal(err)
			}
			if len(claims) == 0 {
				return false
			}
			disturb()
			d, err := w.Desired(ctx, &claims[0].Cluster)
			if err != nil {
				rt.Fatal(err)
			}
			disturb() // a wish after the reading: the claim must not sleep over it
			for _, topic := range d.Topics {
				if topic.DeletionRequestedAt != nil {
					err = w.TopicGone(ctx, claims[0], topic.ID)
				} else if !topic.Enforced() {
					err = w.TopicApplied(ctx, claims[0], topic.ID, topic.Generation, "")
				}
				if err != nil {
					rt.Fatal(err)
				}
			}
			if err := w.Release(ctx, claims[0], time.Hour); err != nil {
				rt.Fatal(err)
			}
			return true
		}
		wish()
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			round(maybe)
		}
		for round(func() {}) {
		}
		d, err := w.Desired(ctx, c)
		if err != nil {
			rt.Fatal(err)
		}
		for _, topic := range d.Topics {
			if !topic.Enforced() {
				rt.Fatalf("asleep with %s at %d of %d", topic.Name, topic.AppliedGeneration, topic.Generation)
			}
		}
	})
}

func TestHintsWakeSubscribersAlsoAfterALostConnection(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	l := cluster.Listen(e.db.Worker().Config().ConnConfig, nil)
	defer l.Close()
	ch, end := l.Subscribe()
	defer end()
	wait := func(what string) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(10 * time.Second):
			t.Fatal(what)
		}
	}
	wait("no wake after the start")
	e.create("main")
	wait("no wake after a change")
	var cut int
	if err := e.admin.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE query LIKE 'LISTEN%' AND datname = current_database()`).Scan(&cut); err != nil || cut != 1 {
		t.Fatal(cut, err)
	}
	wait("no wake after the connection came back")
	e.create("other")
	wait("no wake after a later change")
}

func TestAPIFunctionsCannotReachAcrossTenants(t *testing.T) {
	e := newEnv(t)
	ctx := context.Background()
	c := e.create("main")
	stranger := tenants.NewID(tenants.PrefixTenant)
	// The statement names the owner, row security knows the stranger.
	if err := e.db.AsTenant(ctx, stranger, func(tx pgx.Tx) error {
		if _, err := cluster.Get(ctx, tx, e.tenant, c.ID); !errors.Is(err, cluster.ErrNotFound) {
			t.Errorf("read: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := e.db.AsTenant(ctx, stranger, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO topics (tenant_id, cluster_id, id, name, partitions, replication_factor) VALUES ($1, $2, 'top_x', 'x', 1, 1)`, e.tenant, c.ID)
		return err
	}); err == nil {
		t.Error("a row of another tenant was written")
	}
	// A row of one's own cannot hang under another's cluster.
	if err := e.db.AsWorker(ctx, func(tx pgx.Tx) error {
		p, _ := registry.GetPlan(ctx, tx, "developer")
		other, err := registry.CreateTenant(ctx, tx, "other", p.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(ctx, `INSERT INTO topics (tenant_id, cluster_id, id, name, partitions, replication_factor) VALUES ($1, $2, 'top_x', 'x', 1, 1)`, other.ID, c.ID)
		return err
	}); err == nil {
		t.Error("a topic hangs under another tenant's cluster")
	}
}
