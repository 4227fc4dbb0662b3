package metering

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"penstock/controlplane/cluster"
	"penstock/migrations/pgtest"
	"penstock/tenants/registry"
	"penstock/tenants/usage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

type ledger struct {
	db      *registry.DB
	cluster cluster.Cluster
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	db, err := registry.Open(t.Context(), registry.OpenConfig{URL: pgtest.New(t).OwnerURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	l := &ledger{db: db}
	l.cluster = l.newCluster(t, "acme")
	return l
}

// newCluster makes a tenant with a cluster.
func (l *ledger) newCluster(t interface {
	Fatal(...any)
	Context() context.Context
}, tenant string) cluster.Cluster {
	var c *cluster.Cluster
	err := l.db.AsWorker(t.Context(), func(tx pgx.Tx) error {
		plan, err := registry.GetPlan(t.Context(), tx, "developer")
		if err != nil {
			return err
		}
		ten, err := registry.CreateTenant(t.Context(), tx, tenant, plan.ID)
		if err != nil {
			return err
		}
		c, _, err = cluster.Create(t.Context(), tx, ten.ID, cluster.CreateParams{Name: "one", Brokers: 3}, cluster.By{Actor: "test"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return *c
}

type total struct{ bytes, records, requests int64 }

// totals reads the ledger both ways: counters and hourly sums.
func (l *ledger) totals(t interface{ Fatal(...any) }, c cluster.Cluster) (counters, hourly map[string]total) {
	ctx := context.Background()
	read := func(sql string) map[string]total {
		m := map[string]total{}
		rows, err := l.db.Worker().Query(ctx, sql, c.TenantID, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var k string
			var v total
			if err := rows.Scan(&k, &v.bytes, &v.records, &v.requests); err != nil {
				t.Fatal(err)
			}
			if v != (total{}) {
				m[k] = v
			}
		}
		return m
	}
	const sum = `SELECT principal || ' ' || direction, sum(bytes)::bigint, sum(records)::bigint, sum(requests)::bigint FROM %s
		WHERE tenant_id = $1 AND cluster_id = $2 GROUP BY 1`
	return read(fmt.Sprintf(sum, "usage_counters")), read(fmt.Sprintf(sum, "usage_hourly"))
}

var t0 = time.Date(2026, 3, 1, 10, 59, 0, 0, time.UTC)

func record(broker int32, boot, seq int64, at time.Time, entries ...usage.Entry) []byte {
	r := usage.Record{Broker: broker, BootEpoch: boot, Seq: seq, At: at, Entries: entries}
	b, err := r.Encode()
	if err != nil {
		panic(err)
	}
	return b
}

func in(principal string, bytes int64) usage.Entry {
	return usage.Entry{Principal: principal, Direction: usage.In, Bytes: bytes, Records: bytes / 10, Requests: bytes / 100}
}

// put stores messages as a reader that stands at expected would.
func (l *ledger) put(part int32, expected int64, values ...[]byte) (int64, error) {
	msgs := make([]Message, len(values))
	for i, v := range values {
		msgs[i] = Message{Offset: expected + int64(i), Value: v}
	}
	var next int64
	err := pgx.BeginFunc(context.Background(), l.db.Worker(), func(tx pgx.Tx) (err error) {
		next, err = store(context.Background(), tx, place{l.cluster.TenantID, l.cluster.ID, part}, expected, msgs)
		return err
	})
	return next, err
}

func want(t *testing.T, l *ledger, want map[string]total) {
	t.Helper()
	counters, hourly := l.totals(t, l.cluster)
	if !maps.Equal(counters, want) || !maps.Equal(hourly, want) {
		t.Errorf("counters %v, hourly %v, want %v", counters, hourly, want)
	}
}

func TestCumulativeValuesAddUpOverBootsAndGaps(t *testing.T) {
	l := newLedger(t)
	if _, err := l.put(0, 0,
		record(0, 1, 1, t0, in("User:a", 100)),
		record(1, 9, 1, t0, in("User:a", 1000), in("User:b", 500)),
		record(0, 1, 4, t0, in("User:a", 300)), // 2 and 3 were lost
		record(0, 2, 1, t0, in("User:a", 50)),  // it was restarted
	); err != nil {
		t.Fatal(err)
	}
	want(t, l, map[string]total{"User:a in": {1350, 135, 13}, "User:b in": {500, 50, 5}})
}

func TestReplaysAndLateMessagesChangeNothing(t *testing.T) {
	l := newLedger(t)
	a, b := record(0, 1, 1, t0, in("User:a", 100)), record(0, 1, 2, t0, in("User:a", 300))
	if _, err := l.put(0, 0, a, b, a, b, a); err != nil {
		t.Fatal(err)
	}
	want(t, l, map[string]total{"User:a in": {300, 30, 3}})
}

func TestGrowthBelongsToTheHourInWhichItWasCounted(t *testing.T) {
	l := newLedger(t)
	if _, err := l.put(0, 0, record(0, 1, 1, t0, in("User:a", 100)), record(0, 1, 2, t0.Add(2*time.Minute), in("User:a", 350))); err != nil {
		t.Fatal(err)
	}
	rows, _ := l.db.Worker().Query(t.Context(), `SELECT hour, bytes FROM usage_hourly ORDER BY hour`)
	type row struct {
		Hour  time.Time
		Bytes int64
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
	if err != nil || len(got) != 2 || got[0].Bytes != 100 || got[1].Bytes != 250 || !got[1].Hour.Equal(t0.Truncate(time.Hour).Add(time.Hour)) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestKillBeforeCommitLosesNothing(t *testing.T) {
	l := newLedger(t)
	msgs := []Message{{0, record(0, 1, 1, t0, in("User:a", 100))}}
	kill := errors.New("killed")
	err := pgx.BeginFunc(t.Context(), l.db.Worker(), func(tx pgx.Tx) error {
		if _, err := store(t.Context(), tx, place{l.cluster.TenantID, l.cluster.ID, 0}, 0, msgs); err != nil {
			return err
		}
		return kill
	})
	if !errors.Is(err, kill) {
		t.Fatal(err)
	}
	want(t, l, map[string]total{})
	if next, err := l.put(0, 0, msgs[0].Value); err != nil || next != 1 {
		t.Fatal(next, err)
	}
	want(t, l, map[string]total{"User:a in": {100, 10, 1}})
}

func TestReaderThatWasOvertakenStoresNothing(t *testing.T) {
	l := newLedger(t)
	if _, err := l.put(0, 0, record(0, 1, 1, t0, in("User:a", 100))); err != nil {
		t.Fatal(err)
	}
	if _, err := l.put(0, 0, record(0, 1, 2, t0, in("User:a", 200))); !errors.Is(err, errMoved) {
		t.Errorf("%v, want errMoved", err)
	}
}

func TestUnreadableRecordsStopReading(t *testing.T) {
	l := newLedger(t)
	for name, bad := range map[string][]byte{"garbage": []byte("x"), "later version": []byte(`{"version":9}`), "null": nil} {
		good := record(0, 1, 1, t0, in("User:a", 100))
		if _, err := l.put(0, 0, good, bad); !errors.Is(err, ErrUnreadable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, l, map[string]total{}) // nothing of the batch either: it will be read again
}

// The ledger equals the plain sum over all boots of their last values, whatever
// way messages are repeated, cut into batches, and readers killed.
func TestLedgerIsExactUnderReplaysAndKills(t *testing.T) {
	l := newLedger(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		c := l.newCluster(rapidT{rt, t}, fmt.Sprintf("tenant-%d", n))
		// Brokers' histories, each in order.
		type boot struct{ broker, epoch int }
		values := map[boot]map[string]int64{}
		seqs := map[boot]int64{}
		final := map[string]total{}
		var log []Message
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		for i := range steps {
			b := boot{rapid.IntRange(0, 2).Draw(rt, "broker"), rapid.IntRange(1, 3).Draw(rt, "boot")}
			if values[b] == nil {
				values[b] = map[string]int64{}
			}
			seqs[b]++
			var entries []usage.Entry
			for _, p := range []string{"User:a", "User:b"} {
				if rapid.Bool().Draw(rt, "named") {
					values[b][p] += int64(rapid.IntRange(0, 1000).Draw(rt, "grown"))
					entries = append(entries, in(p, values[b][p]))
				}
			}
			m := record(int32(b.broker), int64(b.epoch), seqs[b], t0.Add(time.Duration(i)*10*time.Minute), entries...)
			log = append(log, Message{Value: m})
			if rapid.IntRange(0, 4).Draw(rt, "again") == 0 && len(log) > 1 { // a producer's retry, or an older record once more
				log = append(log, log[rapid.IntRange(0, len(log)-1).Draw(rt, "which")])
			}
		}
		for i := range log {
			log[i].Offset = int64(i)
		}
		for _, ps := range values {
			for p, v := range ps {
				tt := final[p+" in"]
				e := in(p, v)
				final[p+" in"] = total{tt.bytes + e.Bytes, tt.records + e.Records, tt.requests + e.Requests}
			}
		}
		maps.DeleteFunc(final, func(_ string, v total) bool { return v == total{} })
		// Readers that know only what is stored, in batches, some killed.
		for kills := 0; ; {
			var next int64
			killed := false
			err := pgx.BeginFunc(context.Background(), l.db.Worker(), func(tx pgx.Tx) (err error) {
				p := place{c.TenantID, c.ID, 0}
				if next, err = load(context.Background(), tx, p); err != nil || int(next) == len(log) {
					return err
				}
				end := rapid.IntRange(int(next)+1, len(log)).Draw(rt, "batch")
				if next, err = store(context.Background(), tx, p, next, log[next:end]); err != nil {
					return err
				}
				if killed = kills < 5 && rapid.IntRange(0, 3).Draw(rt, "kill") == 0; killed {
					kills++
					return errors.New("killed")
				}
				return nil
			})
			if err != nil && !killed {
				rt.Fatal(err)
			}
			if err == nil && int(next) == len(log) {
				break
			}
		}
		counters, hourly := l.totals(rt, c)
		if !maps.Equal(counters, final) || !maps.Equal(hourly, final) {
			rt.Fatalf("counters %v, hourly %v, want %v", counters, hourly, final)
		}
	})
}

// rapidT lends a rapid.T the test's context.
type rapidT struct {
	*rapid.T
	t *testing.T
}

func (r rapidT) Context() context.Context { return r.t.Context() }

// fakeTopic is a usage topic in memory.
type fakeTopic struct {
	mu     sync.Mutex
	values [][]byte
	grown  chan struct{} // closed and replaced when it grows
	fail   int           // polls that fail before one succeeds
}

func newFakeTopic() *fakeTopic { return &fakeTopic{grown: make(chan struct{})} }

func (f *fakeTopic) add(v []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values = append(f.values, v)
	close(f.grown)
	f.grown = make(chan struct{})
}

type fakeSource struct {
	*fakeTopic
	at int64
}

func (s *fakeSource) close() {}

func (s *fakeSource) ends(context.Context) (map[int32]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.values) == 0 {
		return nil, errNoTopic
	}
	return map[int32]int64{0: int64(len(s.values))}, nil
}

func (s *fakeSource) poll(ctx context.Context) (int32, []Message, error) {
	for {
		s.mu.Lock()
		if s.fail > 0 {
			s.fail--
			s.mu.Unlock()
			return 0, nil, errors.New("broker is gone")
		}
		var msgs []Message
		for i, v := range s.values[s.at:] {
			msgs = append(msgs, Message{s.at + int64(i), v})
		}
		grown := s.grown
		s.mu.Unlock()
		if len(msgs) > 0 {
			s.at += int64(len(msgs))
			return 0, msgs, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return 0, nil, ctx.Err()
		}
	}
}

func TestReaderFollowsFailsAndGoesOn(t *testing.T) {
	l := newLedger(t)
	topic := newFakeTopic()
	var mu sync.Mutex
	serving := []cluster.Cluster{l.cluster}
	reader := func() *Reader {
		return New(Config{
			Pool: l.db.Worker(), List: 5 * time.Millisecond, Idle: 10 * time.Millisecond, Retry: time.Millisecond,
			Clusters: func(context.Context) ([]cluster.Cluster, error) {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(serving), nil
			},
			open: func(_ context.Context, _ cluster.Cluster, at map[int32]int64) (source, error) {
				return &fakeSource{topic, at[0]}, nil
			},
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 { // two control planes
		wg.Go(func() { reader().Run(ctx) })
	}
	defer wg.Wait()
	defer cancel()
	eventually := func(bytes int64) {
		t.Helper()
		asked := time.Now()
		for deadline := asked.Add(15 * time.Second); ; time.Sleep(2 * time.Millisecond) {
			// In this order: what is in the ledger after it said that it is fresh.
			var at time.Time
			_ = l.db.Worker().QueryRow(t.Context(), `SELECT min(read_at) FROM usage_offsets`).Scan(&at)
			fresh := at.After(asked)
			counters, _ := l.totals(t, l.cluster)
			if fresh && counters["User:a in"].bytes != bytes {
				t.Fatalf("the ledger says that it is fresh with %v, want %d", counters, bytes)
			}
			if fresh {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not fresh: %v, %v", at, counters)
			}
		}
	}
	for i := int64(1); i <= 5; i++ {
		topic.add(record(0, 1, i, t0, in("User:a", 100*i)))
		eventually(100 * i)
		topic.mu.Lock()
		topic.fail = int(i)
		topic.mu.Unlock()
	}
	mu.Lock()
	serving = nil
	mu.Unlock()
}
