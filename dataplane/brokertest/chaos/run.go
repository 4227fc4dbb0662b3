package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/brokertest/nemesis"
)

// Options of a run.
type Options struct {
	Schedule []nemesis.Step
	Brokers  int
	Rate     int // records a second and writer
	Topics   []Topic
	Config   []string // of every topic, k=v
	Settings []string // of every broker
	Binary   string   // the broker to run; empty: as it is built
	History  io.Writer
	Heal     time.Duration // how long a healed cluster may take to be whole; 0: 90 s
	Logs     string        // a folder for the brokers' logs and data, if there are anomalies
}

// The topics of an ordinary run: what producers are promised, by how they ask.
var (
	Idempotent = Topic{Name: "idempotent", Acks: "all", Keeps: true, Once: true, Ordered: true}
	AcksAll    = Topic{Name: "acks-all", Acks: "all", Keeps: true}
	AcksOne    = Topic{Name: "acks-one", Acks: "1"}
	AcksNone   = Topic{Name: "acks-none", Acks: "0"}
)

const (
	partitions = 3 // of every topic, at first
	group      = "members"
)

// run is a run under way.
type run struct {
	*nemesis.Rig
	o     Options
	h     *History
	names []string

	gate       *nemesis.Gate
	writers    []*writer
	readers    []*reader
	committers []*committer
	members    []*member

	mu     sync.Mutex
	counts map[string]int32 // partitions by topic
	wanted map[string]int32 // how many it was to get last
}

// Run starts a cluster, lets clients work on it while the schedule is carried out, heals it, and
// returns what was wrong.
func Run(t testing.TB, o Options) ([]nemesis.Anomaly, Counts) {
	t.Helper()
	if o.Heal == 0 {
		o.Heal = 90 * time.Second
	}
	r := &run{o: o, h: NewHistory(o.History, o.Topics...), gate: nemesis.NewGate(), counts: map[string]int32{}, wanted: map[string]int32{}}
	for _, s := range o.Schedule {
		r.h.Note("schedule", s)
	}
	r.Rig = nemesis.Start(t, r.h.Journal, nemesis.Options{Brokers: o.Brokers, Binary: o.Binary, Settings: o.Settings})
	for _, topic := range o.Topics {
		r.Penstock.CreateTopic(topic.Name, partitions, int16(min(3, o.Brokers)), o.Config...)
		r.counts[topic.Name] = partitions
		r.names = append(r.names, topic.Name)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg, groups sync.WaitGroup
	defer wg.Wait()
	defer groups.Wait()
	defer stop()
	inGroups, stopGroups := context.WithCancel(ctx)
	r.startClients(ctx, &wg)
	r.startGroups(inGroups, &groups)
	(&nemesis.Nemesis{Rig: r.Rig, Work: nemesis.Workload{
		Topics: func() []string { return r.names }, Partitions: r.partitions, Rest: r.rest, Change: r.change,
	}}).CarryOut(ctx, o.Schedule)
	r.gate.Shut()
	stopGroups()
	groups.Wait()
	final := r.final(ctx)
	stop()
	wg.Wait()
	anomalies := r.h.Check(final)
	counts := r.h.Counts()
	r.h.Note("counts", counts)
	if len(anomalies) > 0 && r.o.Logs != "" {
		r.KeepLogs(r.o.Logs)
	}
	return anomalies, counts
}

// rest has the writers stand still while the healed cluster is looked at.
func (r *run) rest(ctx context.Context) {
	r.h.Note("rest", r.h.Counts())
	r.gate.Shut()
	r.look(ctx)
	r.gate.Let()
	r.h.Note("healed", r.h.Counts())
}

const maxPartitions = 8

// change is what the run keeps book of: a topic that gets one more partition, the one
// with the fewest.
func (r *run) change(s nemesis.Step) func(context.Context) error {
	if s.Fault != nemesis.Grow {
		return nil
	}
	return func(ctx context.Context) error {
		topic := slices.MinFunc(r.names, func(a, b string) int { return int(r.partitions(a) - r.partitions(b)) })
		next := r.partitions(topic)
		if next >= maxPartitions {
			return errors.New("large enough")
		}
		r.mu.Lock()
		r.wanted[topic] = next + 1
		r.mu.Unlock()
		return r.growTo(ctx, topic, next+1)
	}
}

func (r *run) startClients(ctx context.Context, wg *sync.WaitGroup) {
	for i, topic := range r.o.Topics {
		for j := range 2 {
			w, err := newWriter(r.h, 2*i+j, topic, partitions, r.o.Rate, r.Seeds, r.gate)
			if err != nil {
				r.TB.Fatal(err)
			}
			r.TB.Cleanup(w.cl.Close)
			r.writers = append(r.writers, w)
			wg.Go(func() { w.run(ctx) })
		}
	}
	for i := range 2 {
		rd, err := newReader(r.h, fmt.Sprint("reader-", i), r.Seeds, r.names)
		if err != nil {
			r.TB.Fatal(err)
		}
		r.readers = append(r.readers, rd)
		wg.Go(func() { rd.Run(ctx, r.IDs()) })
	}
}

func (r *run) startGroups(ctx context.Context, wg *sync.WaitGroup) {
	for i := range 2 {
		m, err := newMember(r.h, group, r.names, r.Seeds)
		if err != nil {
			r.TB.Fatal(err)
		}
		r.members = append(r.members, m)
		wg.Go(func() { m.run(ctx) })
		v, err := nemesis.NewView(r.Seeds)
		if err != nil {
			r.TB.Fatal(err)
		}
		r.TB.Cleanup(v.Client.Close)
		cm := &committer{h: r.h, name: fmt.Sprint("steady-", i), at: nemesis.TP{Topic: r.names[0], Partition: int32(i)}, v: v}
		r.committers = append(r.committers, cm)
		wg.Go(func() { cm.run(ctx) })
	}
}

// look waits until the healed cluster is whole, everything sent is answered and
// read, and holds the replicas against each other. The gate is shut meanwhile.
func (r *run) look(ctx context.Context) (ends map[string]map[int32]int64) {
	for _, topic := range r.names { // that have grown or not, for all we know
		if count := r.wanted[topic]; count > r.partitions(topic) {
			r.Within(r.o.Heal, topic, func() error { return r.growTo(ctx, topic, count) })
		}
	}
	for _, w := range r.writers {
		r.Within(r.o.Heal, fmt.Sprint("writer ", w.id), func() error {
			flush, cancel := context.WithTimeout(ctx, r.o.Heal)
			defer cancel()
			return w.cl.Flush(flush)
		})
	}
	replicas := map[nemesis.TP][]int32{}
	for _, topic := range r.names {
		r.Within(r.o.Heal, topic, func() (err error) { return r.Whole(ctx, topic, r.partitions(topic), replicas) })
	}
	ends = map[string]map[int32]int64{}
	for at, ids := range replicas {
		if ends[at.Topic] == nil {
			ends[at.Topic] = map[int32]int64{}
		}
		r.Within(30*time.Second, at.Topic, func() error {
			end, err := r.End(ctx, at)
			if err != nil {
				return err
			}
			ends[at.Topic][at.Partition] = end
			for _, rd := range r.readers {
				if got := rd.At(at); got < end {
					return fmt.Errorf("partition %d: %s is at %d of %d", at.Partition, rd.Name, got, end)
				}
			}
			return nil
		})
		r.SameLogs(at, ids)
	}
	return ends
}

// final is entered with the gate shut, and the groups' clients gone. It reads everything once more, from the start, and asks for what was
// committed to groups.
func (r *run) final(ctx context.Context) Final {
	f := Final{Ends: r.look(ctx), Commits: map[string]int64{}, Group: map[string]map[int32]int64{}}
	again, err := newReader(r.h, "last reader", r.Seeds, r.names)
	if err != nil {
		r.TB.Fatal(err)
	}
	reading, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { again.Run(reading, r.IDs()) })
	for topic, ends := range f.Ends {
		for p, end := range ends {
			r.Within(60*time.Second, topic, func() error {
				if got := again.At(nemesis.TP{Topic: topic, Partition: p}); got < end {
					return fmt.Errorf("partition %d: the last reader is at %d of %d", p, got, end)
				}
				return nil
			})
		}
	}
	stop()
	wg.Wait()
	cl := r.View.Client
	ask := func(group string, at nemesis.TP, take func(int64)) {
		r.Within(30*time.Second, "group "+group, func() error {
			offset, there, err := committed(ctx, cl, group, at)
			if err == nil && there {
				take(offset)
			}
			return err
		})
	}
	for _, c := range r.committers {
		c.mu.Lock()
		groups := c.groups
		c.mu.Unlock()
		for _, g := range groups {
			ask(g, c.at, func(o int64) { f.Commits[g] = o })
		}
	}
	for topic, ends := range f.Ends {
		f.Group[topic] = map[int32]int64{}
		for p := range ends {
			ask(group, nemesis.TP{Topic: topic, Partition: p}, func(o int64) { f.Group[topic][p] = o })
		}
	}
	return f
}

func (r *run) partitions(topic string) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[topic]
}

// growTo gives a topic one partition more. Whatever the error, it may have got it.
func (r *run) growTo(ctx context.Context, topic string, count int32) error {
	err := r.Admin(ctx, func(ctx context.Context, cl *kadm.Client) error {
		resp, err := cl.UpdatePartitions(ctx, int(count), topic)
		if err == nil {
			err = resp.Error()
		}
		if errors.Is(err, kerr.InvalidPartitions) { // an earlier try that was given up
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.counts[topic] = count
	r.mu.Unlock()
	for _, w := range r.writers {
		if w.topic.Name == topic {
			w.grow(ctx, count-1)
		}
	}
	return nil
}
