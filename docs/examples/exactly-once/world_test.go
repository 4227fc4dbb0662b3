package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest"
	"penstock/internal/process"
	"penstock/migrations/pgtest"
)

// world is one test's own topic and database, and what the program must find in the former and leave in the latter.
type world struct {
	*brokertest.Cluster
	t     *testing.T
	topic string
	url   string
	db    *pgx.Conn
	to    *kgo.Client
	want  map[string]total
}

func newWorld(t *testing.T, c *brokertest.Cluster) *world {
	t.Helper()
	w := &world{t: t, topic: filepath.Base(t.Name()), url: pgtest.Empty(t).OwnerURL, want: map[string]total{}, Cluster: c}
	w.CreateTopic(w.topic, 3, 1)
	var err error
	if w.to, err = kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.DefaultProduceTopic(w.topic)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.to.Close)
	if w.db, err = pgx.Connect(t.Context(), w.url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.db.Close(context.Background()) })
	if _, err := w.db.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	return w
}

// produce adds records of random keys and lengths and waits until the broker has them.
func (w *world) produce(n int) {
	w.t.Helper()
	records := make([]*kgo.Record, n)
	for i := range records {
		r := kgo.KeySliceRecord(fmt.Appendf(nil, "account-%02d", rand.N(20)), make([]byte, rand.N(100)))
		records[i] = r
		have := w.want[string(r.Key)]
		w.want[string(r.Key)] = total{have.records + 1, have.bytes + int64(len(r.Key)+len(r.Value))}
	}
	if err := w.to.ProduceSync(w.t.Context(), records...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// stored is what the positions say was read, and what the totals say was counted. One statement reads both, so no
// commit comes between.
func (w *world) stored() (read, counted int64) {
	w.t.Helper()
	err := w.db.QueryRow(w.t.Context(), `SELECT
		(SELECT coalesce(sum(next_offset), 0)::bigint FROM exactly_once.positions),
		(SELECT coalesce(sum(records), 0)::bigint FROM exactly_once.totals)`).Scan(&read, &counted)
	if err != nil {
		w.t.Fatal(err)
	}
	return read, counted
}

// exact compares the totals, key by key, with what was produced.
func (w *world) exact() {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `SELECT key, records, bytes FROM exactly_once.totals WHERE topic = $1`, w.topic)
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]total{}
	var key string
	var sum total
	_, err = pgx.ForEachRow(rows, []any{&key, &sum.records, &sum.bytes}, func() error {
		got[key] = sum
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if !maps.Equal(got, w.want) {
		w.t.Errorf("counted %v\nproduced %v", got, w.want)
	}
}

// life is one run of the program.
type life struct {
	*process.Child
	w    *world
	said string // file of its output
}

func (w *world) start(program string, args ...string) *life {
	w.t.Helper()
	l := &life{w: w, said: filepath.Join(w.t.TempDir(), "log")}
	out, err := os.Create(l.said)
	if err != nil {
		w.t.Fatal(err)
	}
	defer out.Close()
	args = append([]string{"-brokers", strings.Join(w.Bootstrap(), ","), "-topic", w.topic, "-postgres", w.url}, args...)
	l.Child, err = process.Start(process.Spec{Path: program, Args: args, Stdout: out, Stderr: out, DeathSignal: syscall.SIGKILL})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(l.kill)
	return l
}

func (l *life) kill() {
	_ = l.ID.Signal(syscall.SIGKILL) // of one that has ended already it is an error
	<-l.Done()
}

func (l *life) output() string {
	l.w.t.Helper()
	b, err := os.ReadFile(l.said)
	if err != nil {
		l.w.t.Fatal(err)
	}
	return string(b)
}

// ended says whether the program has ended by itself, which before it is killed only one may that another has overtaken:
// here that is the last commit of the one before, still on its way in PostgreSQL.
func (l *life) ended() bool {
	l.w.t.Helper()
	select {
	case <-l.Done():
		if said := l.output(); !strings.Contains(said, "another one has moved the position") {
			l.w.t.Fatalf("it ended with %s: %s", l.Describe(), said)
		}
		return true
	default:
		return false
	}
}

// stores waits until this life has stored something, and gives how long that took; false if it has ended before.
func (l *life) stores(before int64) (time.Duration, bool) {
	l.w.t.Helper()
	began := time.Now()
	for {
		if read, _ := l.w.stored(); read > before {
			return time.Since(began), true
		}
		if l.ended() {
			return 0, false
		}
		if time.Since(began) > time.Minute {
			l.w.t.Fatalf("it stores nothing: %s", l.output())
		}
		time.Sleep(time.Millisecond) // another process' commits are no event here
	}
}

// finish has the program count the rest and end, and gives what it said.
func (w *world) finish(program string) string {
	w.t.Helper()
	for {
		l := w.start(program, "-once")
		select {
		case <-l.Done():
		case <-time.After(time.Minute):
			w.t.Fatalf("it does not end: %s", l.output())
		}
		if l.Err() == nil {
			return l.output()
		}
		l.ended()
	}
}
