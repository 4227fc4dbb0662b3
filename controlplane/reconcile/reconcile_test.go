package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"penstock/controlplane/brokeradmin"
	"penstock/controlplane/cluster"
	"penstock/controlplane/provision"
	"penstock/migrations/pgtest"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// world is a database, scripted brokers, and reconcilers on them.
type world struct {
	t      *testing.T
	db     *registry.DB
	sealer *registry.Sealer
	admin  *pgx.Conn // sees all rows
	tenant string
	kafka  *fakeKafka
}

func newWorld(t *testing.T) *world {
	t.Helper()
	pg := pgtest.New(t)
	db, err := registry.Open(t.Context(), registry.OpenConfig{URL: pg.OwnerURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	sealer, err := registry.NewSealer(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, db: db, sealer: sealer, admin: pg.Admin(t), kafka: newFakeKafka()}
	must(t, db.AsWorker(t.Context(), func(tx pgx.Tx) error {
		plan, err := registry.GetPlan(t.Context(), tx, "developer")
		if err != nil {
			return err
		}
		ten, err := registry.CreateTenant(t.Context(), tx, "acme", plan.ID)
		if err == nil {
			w.tenant = ten.ID
		}
		return err
	}))
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reconciler makes one as a process of its own would have it.
func (w *world) reconciler(name string, change func(*Config)) *Reconciler {
	c := Config{
		Worker: cluster.NewWorker(w.db.Worker(), name, 5*time.Second), Lease: 5 * time.Second,
		Engine: w.kafka, Sealer: w.sealer,
		Admin:        func(brokeradmin.Config) (Admin, error) { return w.kafka, nil },
		RemoveChroot: w.kafka.removeChroot,
		ZooKeeper:    "127.0.0.1:2181", Issuer: "http://127.0.0.1:1", JWKSURL: "http://127.0.0.1:1/jwks",
		Soon: time.Millisecond, Steady: time.Millisecond, Poll: 5 * time.Millisecond,
	}
	if change != nil {
		change(&c)
	}
	return New(c)
}

var by = cluster.By{Actor: "test"}

// create writes a cluster with one of everything in it.
func (w *world) create(name string) (id, account string) {
	w.t.Helper()
	ctx := w.t.Context()
	must(w.t, w.db.AsTenant(ctx, w.tenant, func(tx pgx.Tx) error {
		c, _, err := cluster.Create(ctx, tx, w.tenant, cluster.CreateParams{Name: name, Brokers: 3}, by)
		if err != nil {
			return err
		}
		id = c.ID
		sa, err := registry.CreateServiceAccount(ctx, tx, w.tenant, id, "mover", "")
		if err != nil {
			return err
		}
		account = sa.ID
		if _, err := cluster.CreateTopic(ctx, tx, w.tenant, id, cluster.TopicParams{Name: "quakes", Partitions: 6, ReplicationFactor: 3}, by); err != nil {
			return err
		}
		in := int64(1000)
		if _, err := cluster.PutQuota(ctx, tx, w.tenant, id, account, 0, cluster.QuotaParams{BytesInPerSecond: &in}, by); err != nil {
			return err
		}
		_, err = cluster.CreateACL(ctx, tx, w.tenant, id, cluster.ACL{ServiceAccountID: account, Host: "*", ResourceType: "topic",
			ResourceName: "quakes", PatternType: "literal", Operation: "write", Permission: "allow"}, by)
		if err != nil {
			return err
		}
		return cluster.RevokeSecret(ctx, tx, w.tenant, id, account, "sec_old", by)
	}))
	return id, account
}

func (w *world) as(fn func(ctx context.Context, tx pgx.Tx) error) {
	w.t.Helper()
	must(w.t, w.db.AsTenant(w.t.Context(), w.tenant, func(tx pgx.Tx) error { return fn(w.t.Context(), tx) }))
}

func (w *world) get(id string) *cluster.Cluster {
	w.t.Helper()
	var c *cluster.Cluster
	w.as(func(ctx context.Context, tx pgx.Tx) (err error) {
		c, err = cluster.Get(ctx, tx, w.tenant, id)
		return err
	})
	return c
}

// makeDue lets the lease of a dead reconciler run out.
func (w *world) makeDue() {
	w.t.Helper()
	_, err := w.admin.Exec(w.t.Context(), `UPDATE clusters SET lease_until = NULL, next_reconcile_at = now()`)
	must(w.t, err)
}

// once lets r work on whatever is due, one pass each.
func (w *world) once(r *Reconciler) {
	w.t.Helper()
	claims, err := r.c.Worker.Claim(w.t.Context(), 10)
	must(w.t, err)
	for _, c := range claims {
		r.pass(w.t.Context(), c)
	}
}

// until lets r work until ok.
func (w *world) until(r *Reconciler, id string, ok func(*cluster.Cluster) bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		c := w.get(id)
		if ok(c) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("cluster is %s, problem %+v, attempts %d", c.State, c.Problem, c.Attempts)
		}
		w.makeDue()
		w.once(r)
	}
}

func inState(s cluster.State) func(*cluster.Cluster) bool {
	return func(c *cluster.Cluster) bool { return c.State == s }
}

func (w *world) applied(id string) bool {
	d, err := cluster.NewWorker(w.db.Worker(), "x", time.Second).Desired(w.t.Context(), w.get(id))
	must(w.t, err)
	for _, o := range []cluster.Applied{d.Topics[0].Applied, d.Quotas[0].Applied, d.ACLs[0].Applied, d.Revocations[0].Applied} {
		if !o.Enforced() {
			return false
		}
	}
	return true
}

// check says what is wrong with a ready cluster.
func (w *world) check(id, account string) {
	w.t.Helper()
	c := w.get(id)
	k := w.kafka
	if n := len(k.brokers); n != 3 {
		w.t.Errorf("%d brokers: %v", n, k.brokers)
	}
	if len(k.topics) != 1 || k.topics["quakes"].Partitions != 6 || len(k.quotas) != 1 || *k.quotas[account].BytesIn != 1000 || len(k.acls) != 1 || len(k.revoked) != 1 {
		w.t.Errorf("brokers have topics %v, quotas %v, rules %v, revocations %v", k.topics, k.quotas, k.acls, k.revoked)
	}
	if len(k.passwords) != 1 {
		w.t.Errorf("brokers were made with %d different passwords", len(k.passwords))
	}
	if c.Bootstrap != k.bootstrap(id) || c.ObservedGeneration != c.Generation {
		w.t.Errorf("cluster %+v, brokers at %s", c, k.bootstrap(id))
	}
	if !w.applied(id) {
		w.t.Error("something is not noted as applied")
	}
}

func TestClusterComesAboutWithAllThatIsWanted(t *testing.T) {
	w := newWorld(t)
	id, account := w.create("one")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	r := w.reconciler("a", nil)
	go func() { defer close(done); r.Run(ctx) }()
	for deadline := time.Now().Add(20 * time.Second); w.get(id).State != cluster.Ready || !w.applied(id); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%+v", w.get(id))
		}
	}
	cancel()
	<-done
	w.check(id, account)
	w.as(func(ctx context.Context, tx pgx.Tx) error {
		ops, err := cluster.ListOperations(ctx, tx, w.tenant, cluster.Page{Limit: 10})
		if err == nil && (len(ops) != 1 || ops[0].State != "succeeded") {
			t.Errorf("operations %+v", ops)
		}
		return err
	})
}

// A kill after the n-th side effect, for every n, on the way up and on the way
// down: another process picks it up, and nothing is doubled or left.
func TestKillAfterAnySideEffectConverges(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		id, account := w.create("one")
		effects, point := 0, ""
		crashing := func(c *Config) {
			c.fault = func(after string) error {
				if effects++; effects == n {
					point = after
					return fmt.Errorf("%w after %s", errFault, after)
				}
				return nil
			}
		}
		first := w.reconciler("first", crashing)
		second := w.reconciler("second", nil)
		for range 8 { // it works until it is killed, or is done
			if point == "" {
				w.makeDue()
				w.once(first)
			}
		}
		w.until(second, id, inState(cluster.Ready))
		w.check(id, account)
		up := point
		w.as(func(ctx context.Context, tx pgx.Tx) error {
			_, err := cluster.RequestDelete(ctx, tx, w.tenant, id, by)
			return err
		})
		for range 4 {
			if point == "" {
				w.makeDue()
				w.once(first)
			}
		}
		w.until(second, id, inState(cluster.Deleted))
		if len(w.kafka.brokers) != 0 || !slices.Equal(w.kafka.chroots, []string{provision.Chroot(id)}) {
			t.Errorf("killed after %q: brokers %v, chroots %v", point, w.kafka.brokers, w.kafka.chroots)
		}
		if t.Failed() {
			t.Fatalf("killed after %q (on the way up: %q)", point, up)
		}
		if point == "" { // no n-th side effect any more
			if n < 20 {
				t.Errorf("only %d side effects seen", n-1)
			}
			return
		}
	}
}

func TestOvertakenReconcilerWritesNothing(t *testing.T) {
	w := newWorld(t)
	id, account := w.create("one")
	slow := w.reconciler("slow", nil)
	claims, err := slow.c.Worker.Claim(t.Context(), 1)
	must(t, err)
	w.makeDue() // its lease is over, and it does not know
	other := w.reconciler("other", nil)
	w.until(other, id, inState(cluster.Ready))
	w.check(id, account)
	before := w.get(id)
	slow.pass(t.Context(), claims[0])
	after := w.get(id)
	if after.State != cluster.Ready || after.UpdatedAt != before.UpdatedAt {
		t.Errorf("before %+v, after %+v", before, after)
	}
	w.check(id, account)
}

func TestLostSupervisorIsStartedAgain(t *testing.T) {
	w := newWorld(t)
	id, account := w.create("one")
	r := w.reconciler("a", nil)
	w.until(r, id, inState(cluster.Ready))
	starts := w.kafka.starts
	w.kafka.lose(provision.Ref{ClusterID: id, BrokerID: 1})
	w.makeDue()
	w.once(r)
	if w.kafka.starts != starts+1 {
		t.Errorf("%d starts, want one more than %d", w.kafka.starts, starts)
	}
	w.check(id, account) // the endpoints follow the new port
}

func TestRefusedWishIsToldAndNotRepeated(t *testing.T) {
	w := newWorld(t)
	w.kafka.refuse = fmt.Errorf("alter configs: %w", kerr.InvalidConfig)
	id, _ := w.create("one")
	r := w.reconciler("a", nil)
	w.until(r, id, inState(cluster.Ready)) // it holds up nothing else
	topic := func() (tp *cluster.Topic) {
		w.as(func(ctx context.Context, tx pgx.Tx) (err error) {
			tp, err = cluster.GetTopic(ctx, tx, w.tenant, id, "quakes")
			return err
		})
		return tp
	}
	if p := topic().Problem; p == nil || p.Retryable || topic().AppliedGeneration != 0 {
		t.Fatalf("topic %+v", topic())
	}
	calls := w.kafka.topicCalls
	w.makeDue()
	w.once(r)
	if w.kafka.topicCalls != calls {
		t.Error("a refused wish was tried again")
	}
	w.kafka.refuse = nil
	w.as(func(ctx context.Context, tx pgx.Tx) error {
		_, err := cluster.UpdateTopic(ctx, tx, w.tenant, id, "quakes", 1, 6, map[string]string{"retention.ms": "-1"}, by)
		return err
	})
	w.until(r, id, func(*cluster.Cluster) bool { return topic().Enforced() })
}

func TestPassingTroubleIsToldAndTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.kafka.refuse = errors.New("no answer from /var/lib/x")
	id, account := w.create("one")
	r := w.reconciler("a", nil)
	w.until(r, id, inState(cluster.Ready))
	w.as(func(ctx context.Context, tx pgx.Tx) error {
		tp, err := cluster.GetTopic(ctx, tx, w.tenant, id, "quakes")
		if err == nil && (tp.Problem == nil || !tp.Problem.Retryable || tp.Problem.Detail != "no answer from …") {
			t.Errorf("problem %+v", tp.Problem)
		}
		return err
	})
	w.kafka.refuse = nil
	w.until(r, id, func(*cluster.Cluster) bool { return w.applied(id) })
	w.check(id, account)
}

func TestEngineTroubleBacksOffAndShows(t *testing.T) {
	w := newWorld(t)
	w.kafka.engineErr = errors.New("disk full")
	id, _ := w.create("one")
	r := w.reconciler("a", nil)
	w.once(r)
	c := w.get(id)
	if c.Attempts != 1 || c.Problem == nil || !c.Problem.Retryable || !c.NextReconcileAt.After(time.Now().Add(50*time.Millisecond)) {
		t.Errorf("%+v, problem %+v", c, c.Problem)
	}
	w.kafka.engineErr = fmt.Errorf("%w: x", provision.ErrInvalid)
	w.until(r, id, inState(cluster.Failed))
	if c := w.get(id); c.Problem == nil || c.Problem.Retryable {
		t.Errorf("failed with problem %+v", c.Problem)
	}
}

func TestDeletionOvertakesProvisioning(t *testing.T) {
	w := newWorld(t)
	id, _ := w.create("one")
	asked := false
	r := w.reconciler("a", func(c *Config) {
		c.fault = func(after string) error {
			if after == "ensured" && !asked {
				asked = true
				w.as(func(ctx context.Context, tx pgx.Tx) error {
					_, err := cluster.RequestDelete(ctx, tx, w.tenant, id, by)
					return err
				})
			}
			return nil
		}
	})
	w.until(r, id, inState(cluster.Deleted))
	if len(w.kafka.brokers) != 0 {
		t.Errorf("brokers left: %v", w.kafka.brokers)
	}
}

func TestGoneAccountTakesItsRightsAlong(t *testing.T) {
	w := newWorld(t)
	id, account := w.create("one")
	r := w.reconciler("a", nil)
	w.until(r, id, inState(cluster.Ready))
	w.as(func(ctx context.Context, tx pgx.Tx) error {
		if err := registry.RequestServiceAccountDeletion(ctx, tx, w.tenant, id, account); err != nil {
			return err
		}
		return cluster.DeleteAccountObjects(ctx, tx, w.tenant, id, account, by)
	})
	w.until(r, id, func(*cluster.Cluster) bool {
		var n int
		must(t, w.admin.QueryRow(t.Context(), `SELECT count(*) FROM service_accounts`).Scan(&n))
		return n == 0
	})
	if at := w.kafka.revoked[tenants.Principal(account)]; at.Before(time.Now()) {
		t.Errorf("its tokens are refused if issued before %v", at)
	}
	if q, ok := w.kafka.quotas[account]; ok && q != (brokeradmin.Quota{}) || len(w.kafka.acls) != 0 {
		t.Errorf("brokers still have %v, %v", w.kafka.quotas, w.kafka.acls)
	}
}

// A revocation is in force from before anything else changes until no token that it means
// can be alive; then brokers and database forget it.
func TestRevocationLastsAsLongAsTokens(t *testing.T) {
	w := newWorld(t)
	id, account := w.create("one")
	r := w.reconciler("a", nil)
	w.until(r, id, inState(cluster.Ready))
	const name = "Credential:sec_old"
	at, ok := w.kafka.revoked[name]
	if !ok || time.Until(at) < 0 || time.Until(at) > 2*time.Minute {
		t.Fatalf("brokers have %v", w.kafka.revoked)
	}
	left := func(after time.Duration) (rows int) {
		w.makeDue()
		w.once(w.reconciler("a", func(c *Config) { c.now = func() time.Time { return at.Add(after) } }))
		must(t, w.admin.QueryRow(t.Context(), `SELECT count(*) FROM revocations`).Scan(&rows))
		return rows
	}
	if n := left(tenants.MaxTokenLife); n != 1 || len(w.kafka.revoked) != 1 {
		t.Errorf("%d rows, brokers have %v, while its tokens may be alive", n, w.kafka.revoked)
	}
	// The brokers drop it first: the row is what remembers that they have it.
	w.makeDue()
	w.once(w.reconciler("a", func(c *Config) {
		c.now = func() time.Time { return at.Add(tenants.MaxTokenLife + time.Hour) }
		c.fault = func(after string) error {
			if after == "revocation dropped" {
				return errFault
			}
			return nil
		}
	}))
	if n := left(tenants.MaxTokenLife); n != 1 {
		t.Errorf("%d rows after a kill between both", n)
	}
	if n := left(tenants.MaxTokenLife + time.Hour); n != 0 || len(w.kafka.revoked) != 0 {
		t.Errorf("%d rows, brokers have %v, when it is over", n, w.kafka.revoked)
	}
	w.as(func(ctx context.Context, tx pgx.Tx) error { // asked for again, it is none
		for range 2 {
			if err := cluster.RevokeSecret(ctx, tx, w.tenant, id, account, "sec_new", by); err != nil {
				return err
			}
		}
		return nil
	})
	if n := left(0); n != 1 || len(w.kafka.revoked) != 1 {
		t.Errorf("%d rows, brokers have %v", n, w.kafka.revoked)
	}
}
