package groups

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest"
)

// Group is one group of a run.
type Group struct {
	Name     string
	Protocol Protocol
	Members  int // at most at a time; two in three at least, when nothing holds them up
}

// Options of a run.
type Options struct {
	Seed       uint64
	Length     time.Duration // of what is done to the members, rests not counted
	Round      time.Duration // between two rests
	Pace       time.Duration // between two steps, on average
	Groups     []Group
	Workers    int // processes that the members live in
	Partitions int32
	Session    time.Duration
	Rebalance  time.Duration
	Commit     time.Duration // between two commits of a member
	Heal       time.Duration // how long a mended group may take to be whole
	Quiet      time.Duration // how long nothing may happen to it then
	Only       []Step        // of all steps; empty: all
	Alone      bool          // each Freeze lasts two sessions and is followed by one of peace: others go on with what was its members', surely
	Settings   []string      // of every broker
	Binary     string        // the broker to run; empty: as it is built
	Dir        string        // for the workers' logs
}

const topic = "work"

// run is a run under way.
type run struct {
	t   testing.TB
	o   Options
	c   *brokertest.Cluster
	h   *History
	r   *rand.Rand
	ctx context.Context
	wg  sync.WaitGroup
	cl  *kgo.Client
	adm *kadm.Client

	began   time.Time
	names   int // of incarnations, so far
	where   map[string]*worker
	born    map[string]Order // by incarnation
	undo    []undoing
	frozen  map[*worker]bool
	down    map[int]bool   // brokers that a step has killed and will start again; the others are, if they end
	started int            // workers, so far
	asked   map[string]int // members of a group that were started, so far; of many groups only

	mu      sync.Mutex // guards workers, which the reader of logs walks
	workers []*worker
}

type undoing struct {
	at time.Time
	f  func()
}

// Run starts a cluster and members, does to them what the seed says, and returns what was wrong.
func Run(t testing.TB, o Options) ([]Anomaly, map[string]Counts) {
	t.Helper()
	r, stop := begin(t, o, 3)
	defer stop()
	for _, g := range o.Groups {
		r.wg.Go(func() { r.observe(g.Name) })
		for range g.Members {
			r.start(g, r.fresh(g))
		}
	}
	r.began = time.Now()
	r.rest()
	for done := time.Duration(0); done < o.Length; {
		length := min(o.Round, o.Length-done)
		r.churn(length)
		r.rest()
		done += length
	}
	r.leaveAll()
	stop()
	r.readReigns()
	return r.h.Check()
}

// begin starts a cluster and workers without members. The function it returns ends all that runs
// beside; it may be called again.
func begin(t testing.TB, o Options, brokers int) (r *run, end func()) {
	t.Helper()
	settings := append([]string{"group.min.session.timeout.ms=1000", "zookeeper.session.timeout.ms=2000", "zookeeper.connection.timeout.ms=20000", "replica.lag.time.max.ms=3000"}, o.Settings...)
	if slices.ContainsFunc(o.Groups, func(g Group) bool { return g.Protocol == Consumer }) {
		settings = append(settings, "group.consumer.min.session.timeout.ms=1000", "group.consumer.min.heartbeat.interval.ms=100",
			fmt.Sprintf("group.consumer.session.timeout.ms=%d", o.Session.Milliseconds()),
			fmt.Sprintf("group.consumer.heartbeat.interval.ms=%d", (o.Session/8).Milliseconds()))
	}
	c := brokertest.Start(t, brokertest.Options{Brokers: brokers, Binary: o.Binary, Settings: settings})
	ctx, stop := context.WithCancel(context.Background())
	r = &run{
		t: t, o: o, c: c, h: NewHistory(), r: rand.New(rand.NewPCG(o.Seed, 0x9e3779b97f4a7c15)), ctx: ctx,
		where: map[string]*worker{}, born: map[string]Order{}, frozen: map[*worker]bool{}, down: map[int]bool{},
	}
	r.cl = c.Client(kgo.RetryTimeout(5*time.Second), kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(3*time.Second))
	r.adm = kadm.NewClient(r.cl)
	r.adm.SetTimeoutMillis(60_000) // hundreds of partitions, three times, on a machine that has other work
	if _, err := r.adm.CreateTopic(ctx, o.Partitions, int16(brokers), nil, topic); err != nil {
		t.Fatal(err)
	}
	c.AwaitWhole(topic, time.Minute)
	for range o.Workers {
		r.addWorker()
	}
	r.wg.Go(r.follow)
	r.wg.Go(r.produce)
	return r, func() {
		r.killWorkers()
		stop()
		r.wg.Wait()
	}
}

// fresh is an instance id for one in three new members, and none for the others.
func (r *run) fresh(g Group) string {
	if r.r.IntN(3) > 0 {
		return ""
	}
	return fmt.Sprintf("%s-static-%d", g.Name, r.names)
}

func (r *run) addWorker() *worker {
	w, err := startWorker(r.o.Dir, r.started)
	if err != nil {
		r.t.Fatal(err)
	}
	r.started++
	r.mu.Lock()
	r.workers = append(r.workers, w)
	r.mu.Unlock()
	return w
}

// running are the workers that are neither dead nor frozen.
func (r *run) running() []*worker {
	var all []*worker
	for _, w := range r.workers {
		select {
		case <-w.end:
		default:
			if !r.frozen[w] {
				all = append(all, w)
			}
		}
	}
	return all
}

// start starts a new incarnation somewhere.
func (r *run) start(g Group, instance string) {
	all := r.running()
	if len(all) == 0 {
		return
	}
	w := all[r.r.IntN(len(all))]
	r.names++
	o := Order{Do: "start", Member: fmt.Sprintf("%s-%d", g.Name, r.names), Instance: instance, Spec: Spec{
		Group: g.Name, Protocol: g.Protocol, Topic: topic, Seeds: r.c.Bootstrap(), Session: r.o.Session, Rebalance: r.o.Rebalance, Commit: r.o.Commit,
	}}
	r.where[o.Member], r.born[o.Member] = w, o
	r.tell(w, o)
}

func (r *run) tell(w *worker, o Order) {
	if err := w.order(o); err != nil {
		r.t.Fatalf("worker: %v\n%s", err, r.words(w))
	}
}

// ask tells a member to do something, unless its worker is gone.
func (r *run) ask(name string, o Order) {
	if w := r.where[name]; w != nil {
		r.tell(w, o)
	}
}

// words is what a worker has said before it ended.
func (r *run) words(w *worker) string {
	b, _ := os.ReadFile(w.said)
	return string(b[max(0, len(b)-4000):])
}

// follow reads the workers' logs as they grow.
func (r *run) follow() {
	for tick := time.Tick(50 * time.Millisecond); ; {
		r.readLogs()
		select {
		case <-r.ctx.Done():
			r.readLogs()
			return
		case <-tick:
		}
	}
}

func (r *run) readLogs() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if err := w.log.next(r.h.Add); err != nil {
			r.t.Error(err)
		}
	}
}

// produce gives each partition a record, and again, until the end.
func (r *run) produce() {
	ctx := r.ctx
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.c.Bootstrap()...), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedRecords(10_000))
	if err != nil {
		r.t.Error(err)
		return
	}
	defer cl.Close()
	for tick := time.Tick(200 * time.Millisecond); ctx.Err() == nil; {
		for p := range r.o.Partitions {
			cl.TryProduce(ctx, &kgo.Record{Partition: p, Value: []byte("x")}, nil)
		}
		select {
		case <-ctx.Done():
		case <-tick:
		}
	}
}

// observe asks again and again what the group has committed.
func (r *run) observe(group string) {
	for tick := time.Tick(100 * time.Millisecond); r.ctx.Err() == nil; {
		_ = r.look(group) // it may have no coordinator just now
		select {
		case <-r.ctx.Done():
		case <-tick:
		}
	}
}

// look notes what the group has committed.
func (r *run) look(group string) error {
	asked := now()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic = topic
	for p := range r.o.Partitions {
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	answer := r.cl.RequestSharded(r.ctx, req)[0] // a group has one coordinator
	if answer.Err != nil {
		return answer.Err
	}
	resp := answer.Resp.(*kmsg.OffsetFetchResponse)
	offsets, ok := fetched(resp)
	if !ok {
		return fmt.Errorf("offsets of %s: %w", group, kerr.ErrorForCode(resp.ErrorCode))
	}
	r.h.Add(Event{
		At: now(), Kind: Seen, Group: group, Sent: asked, Offsets: offsets,
		Broker: net.JoinHostPort(answer.Meta.Host, strconv.Itoa(int(answer.Meta.Port))),
	})
	return nil
}

// rest mends everything, waits until all groups are whole, and sees that nothing
// happens to them then.
func (r *run) rest() {
	for _, u := range r.undo {
		u.f()
	}
	r.undo = nil
	for name := range r.where {
		r.ask(name, Order{Do: "let", Member: name})
	}
	whole := map[string]bool{}
	for _, g := range r.o.Groups {
		whole[g.Name] = r.within(g.Name, func() error {
			for range g.Members - len(r.pending(g.Name)) {
				r.start(g, "") // after some that could not go on
			}
			if begun, all := len(r.h.living(g.Name)), len(r.pending(g.Name)); begun < all {
				return fmt.Errorf("%d of %d members have begun", begun, all)
			}
			if err := r.h.whole(g.Name, r.o.Partitions); err != nil {
				return err
			}
			return r.agrees(g)
		})
	}
	before := map[string]int32{}
	for _, g := range r.o.Groups {
		before[g.Name] = r.h.generation(g.Name)
	}
	select { // there is no event for what must not be
	case <-time.After(r.o.Quiet):
	case <-r.ctx.Done():
	}
	for _, g := range r.o.Groups {
		if after := r.h.generation(g.Name); after != before[g.Name] {
			r.h.Anomaly("restless", g.Name, "from generation %d to %d while nothing changed", before[g.Name], after)
		} else if whole[g.Name] {
			r.h.Add(Event{At: now(), Kind: Rested, Group: g.Name})
		}
	}
	r.t.Logf("%v: generations %v, %d members started", time.Since(r.began).Round(time.Second), before, r.names)
}

// pending are the incarnations that were started and have not ended, as far as it is known.
func (r *run) pending(group string) []string {
	living := r.h.living(group)
	var all []string
	for name := range r.where {
		if r.born[name].Spec.Group == group && (!r.h.knows(name) || slices.Contains(living, name)) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// within polls until cond holds, and else makes an anomaly of it and returns false. It has to hold for two
// heartbeats in one generation: a member of a cooperative group has its new assignment
// before it gives up the rest.
func (r *run) within(group string, cond func() error) bool {
	var err error
	since, generation := time.Time{}, int32(-1)
	for began := time.Now(); time.Since(began) < r.o.Heal; time.Sleep(100 * time.Millisecond) {
		r.supervise()
		if err = cond(); err != nil {
			since = time.Time{}
			continue
		}
		if now := r.h.generation(group); since.IsZero() || now != generation {
			since, generation = time.Now(), now
		}
		if time.Since(since) > r.o.Session/4 {
			return true
		}
		err = errors.New("it has only just become whole")
	}
	r.h.Anomaly("not healed", group, "not within %v: %v", r.o.Heal, err)
	return false
}

// agrees says whether the coordinator counts just the members that live.
func (r *run) agrees(g Group) error {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Second)
	defer cancel()
	want := len(r.h.living(g.Name))
	var state string
	var got int
	if g.Protocol == Consumer {
		all, err := r.adm.DescribeConsumerGroups(ctx, g.Name)
		if err != nil {
			return err
		}
		d := all[g.Name]
		if d.Err != nil {
			return d.Err
		}
		state, got = d.State, len(d.Members)
	} else {
		all, err := r.adm.DescribeGroups(ctx, g.Name)
		if err != nil {
			return err
		}
		d := all[g.Name]
		if d.Err != nil {
			return d.Err
		}
		state, got = d.State, len(d.Members)
	}
	if state != "Stable" || got != want {
		return fmt.Errorf("the coordinator says %s with %d members, %d live", state, got, want)
	}
	return nil
}

// leaveAll lets all workers end in order.
func (r *run) leaveAll() {
	for _, w := range r.running() {
		w.in.Close()
	}
	for _, w := range r.running() {
		select {
		case <-w.end:
			if w.err != nil {
				r.t.Errorf("worker: %v\n%s", w.err, r.words(w))
			}
		case <-time.After(r.o.Heal):
			r.t.Errorf("a worker does not end\n%s", r.words(w))
		}
	}
}

func (r *run) killWorkers() {
	for _, w := range r.workers {
		select {
		case <-w.end:
		default:
			w.kill()
		}
	}
	if r.t.Failed() { // what they have logged is in Dir; what they have said as well
		said, _ := filepath.Glob(filepath.Join(r.o.Dir, "*.err"))
		for _, f := range said {
			if b, err := os.ReadFile(f); err == nil && len(strings.TrimSpace(string(b))) > 0 {
				r.t.Logf("%s: %s", f, b[max(0, len(b)-2000):])
			}
		}
	}
}

var errNobody = errors.New("there is nobody to do it to")
