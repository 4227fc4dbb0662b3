package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest"
)

// Options of a run.
type Options struct {
	Schedule []Step
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
	t     testing.TB
	o     Options
	h     *History
	net   *Network
	c     *brokertest.Cluster
	doors []string
	names []string

	gate       *gate
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
func Run(t testing.TB, o Options) ([]Anomaly, Counts) {
	t.Helper()
	if o.Heal == 0 {
		o.Heal = 90 * time.Second
	}
	r := &run{t: t, o: o, h: NewHistory(o.History, o.Topics...), gate: newGate(), counts: map[string]int32{}, wanted: map[string]int32{}}
	for _, s := range o.Schedule {
		r.h.Note("schedule", s)
	}
	r.startCluster()
	ctx, stop := context.WithCancel(context.Background())
	var wg, groups sync.WaitGroup
	defer wg.Wait()
	defer groups.Wait()
	defer stop()
	inGroups, stopGroups := context.WithCancel(ctx)
	r.startClients(ctx, &wg)
	r.startGroups(inGroups, &groups)
	(&nemesis{run: r, ctx: ctx}).carryOut(o.Schedule)
	r.gate.shut()
	stopGroups()
	groups.Wait()
	final := r.final(ctx)
	stop()
	wg.Wait()
	anomalies := r.h.Check(final)
	counts := r.h.Counts()
	r.h.Note("counts", counts)
	if len(anomalies) > 0 && r.o.Logs != "" {
		r.keepLogs()
	}
	return anomalies, counts
}

// keepLogs copies what the brokers have logged, and their folders.
func (r *run) keepLogs() {
	for _, n := range r.c.Brokers {
		to := filepath.Join(r.o.Logs, filepath.Base(n.LogDir))
		_ = os.RemoveAll(to) // an earlier run's
		if err := os.CopyFS(to, os.DirFS(n.LogDir)); err != nil {
			r.t.Log(err)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(r.c.Dir, "broker-*.log"))
	for _, f := range logs {
		b, err := os.ReadFile(f)
		if err == nil {
			err = os.WriteFile(filepath.Join(r.o.Logs, filepath.Base(f)), b, 0o644)
		}
		if err != nil {
			r.t.Log(err)
		}
	}
}

func (r *run) startCluster() {
	targets := make([]string, r.o.Brokers)
	made := make(chan struct{}) // targets and r.c are there
	var err error
	r.net = NewNetwork(func(remote, local *net.TCPAddr) Party {
		<-made
		pids := map[Party]int{}
		for i, n := range r.c.Brokers {
			pids[Party(i)] = n.PID()
		}
		if owner, ok := ownerOf(remote, local, pids); ok {
			return owner
		}
		return Clients // it is this process, or a broker that has just been killed
	})
	r.t.Cleanup(r.net.Close)
	for i := range r.o.Brokers {
		door, err := r.net.Door(Party(i), func() string { <-made; return targets[i] })
		if err != nil {
			r.t.Fatal(err)
		}
		r.doors = append(r.doors, door)
	}
	brokertest.Start(r.t, brokertest.Options{
		Made:    func(c *brokertest.Cluster) { r.c = c; close(made) },
		Brokers: r.o.Brokers, Binary: r.o.Binary, Ports: 1,
		Listeners: func(id int, ports []int) []string {
			targets[id] = fmt.Sprintf("127.0.0.1:%d", ports[0])
			return []string{"listeners=PLAINTEXT://" + targets[id], "advertised.listeners=PLAINTEXT://" + r.doors[id]}
		},
		Ensemble: func(id int, server string) string {
			var door string
			if door, err = r.net.Door(ZooKeeper, func() string { return server }, Party(id)); err != nil {
				r.t.Fatal(err)
			}
			return door
		},
		Settings: append([]string{"replica.lag.time.max.ms=3000", "zookeeper.session.timeout.ms=2000", "log.segment.bytes=1048576",
			"offsets.topic.num.partitions=2", "group.min.session.timeout.ms=1000"}, r.o.Settings...),
	})
	for _, topic := range r.o.Topics {
		r.c.CreateTopic(topic.Name, partitions, int16(min(3, r.o.Brokers)), r.o.Config...)
		r.counts[topic.Name] = partitions
		r.names = append(r.names, topic.Name)
	}
}

func (r *run) startClients(ctx context.Context, wg *sync.WaitGroup) {
	for i, topic := range r.o.Topics {
		for j := range 2 {
			w, err := newWriter(r.h, 2*i+j, topic, partitions, r.o.Rate, r.doors, r.gate)
			if err != nil {
				r.t.Fatal(err)
			}
			r.t.Cleanup(w.cl.Close)
			r.writers = append(r.writers, w)
			wg.Go(func() { w.run(ctx) })
		}
	}
	for i := range 2 {
		rd, err := newReader(r.h, fmt.Sprint("reader-", i), r.doors, r.names)
		if err != nil {
			r.t.Fatal(err)
		}
		r.readers = append(r.readers, rd)
		wg.Go(func() { rd.run(ctx, r.o.Brokers) })
	}
}

func (r *run) startGroups(ctx context.Context, wg *sync.WaitGroup) {
	for i := range 2 {
		m, err := newMember(r.h, group, r.names, r.doors)
		if err != nil {
			r.t.Fatal(err)
		}
		r.members = append(r.members, m)
		wg.Go(func() { m.run(ctx) })
		v, err := newView(r.doors)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(v.cl.Close)
		cm := &committer{h: r.h, name: fmt.Sprint("steady-", i), tp: tp{r.names[0], int32(i)}, v: v}
		r.committers = append(r.committers, cm)
		wg.Go(func() { cm.run(ctx) })
	}
}

// within polls until cond holds, and else makes an anomaly of it.
func (r *run) within(bound time.Duration, what string, cond func() error) bool {
	var err error
	for began := time.Now(); time.Since(began) < bound; time.Sleep(50 * time.Millisecond) {
		if err = cond(); err == nil {
			return true
		}
	}
	r.h.Anomaly("not healed", what, -1, "not within %v: %v", bound, err)
	return false
}

// look waits until the healed cluster is whole, everything sent is answered and
// read, and holds the replicas against each other. The gate is shut meanwhile.
func (r *run) look(ctx context.Context) (ends map[string]map[int32]int64) {
	for _, topic := range r.names { // that have grown or not, for all we know
		if count := r.wanted[topic]; count > r.partitions(topic) {
			r.within(r.o.Heal, topic, func() error { return r.growTo(ctx, topic, count) })
		}
	}
	for _, w := range r.writers {
		r.within(r.o.Heal, fmt.Sprint("writer ", w.id), func() error {
			flush, cancel := context.WithTimeout(ctx, r.o.Heal)
			defer cancel()
			return w.cl.Flush(flush)
		})
	}
	replicas := map[tp][]int32{}
	for _, topic := range r.names {
		r.within(r.o.Heal, topic, func() (err error) { return r.whole(ctx, topic, replicas) })
	}
	ends = map[string]map[int32]int64{}
	for at, ids := range replicas {
		if ends[at.topic] == nil {
			ends[at.topic] = map[int32]int64{}
		}
		r.within(30*time.Second, at.topic, func() error {
			end, err := r.end(ctx, at)
			if err != nil {
				return err
			}
			ends[at.topic][at.partition] = end
			for _, rd := range r.readers {
				if got := rd.at(at.topic, at.partition); got < end {
					return fmt.Errorf("partition %d: %s is at %d of %d", at.partition, rd.name, got, end)
				}
			}
			return nil
		})
		var err error
		for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(100 * time.Millisecond) {
			if _, err = r.c.SameLogs(at.topic, at.partition, ids); err == nil {
				break
			}
		}
		if err != nil {
			r.h.Anomaly("diverged", at.topic, at.partition, "%v", err)
		}
	}
	return ends
}

// whole asks every broker: all of them must have the same, whole replica sets.
func (r *run) whole(ctx context.Context, topic string, replicas map[tp][]int32) error {
	for id := range r.c.Brokers {
		req := kmsg.NewPtrMetadataRequest()
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
		resp, err := ask[*kmsg.MetadataResponse](ctx, r.readers[0].v.cl, int32(id), req)
		if err != nil {
			return fmt.Errorf("broker %d: %w", id, err)
		}
		if len(resp.Brokers) != len(r.c.Brokers) {
			return fmt.Errorf("broker %d knows %d brokers", id, len(resp.Brokers))
		}
		if got, want := len(resp.Topics[0].Partitions), int(r.partitions(topic)); got != want {
			return fmt.Errorf("broker %d knows %d of %d partitions", id, got, want)
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("broker %d: partition %d has leader %d, ISR %v of %v, error %d", id, p.Partition, p.Leader, p.ISR, p.Replicas, p.ErrorCode)
			}
			replicas[tp{topic, p.Partition}] = p.Replicas
		}
	}
	return nil
}

// end is where a partition's log ends when all of it is committed.
func (r *run) end(ctx context.Context, at tp) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	listed, err := kadm.NewClient(r.readers[0].v.cl).ListEndOffsets(ctx, at.topic)
	if err != nil {
		return 0, err
	}
	o, ok := listed.Lookup(at.topic, at.partition)
	if !ok {
		return 0, fmt.Errorf("no end of partition %d", at.partition)
	}
	return o.Offset, o.Err
}

// final is entered with the gate shut, and the groups' clients gone. It reads everything once more, from the start, and asks for what was
// committed to groups.
func (r *run) final(ctx context.Context) Final {
	f := Final{Ends: r.look(ctx), Commits: map[string]int64{}, Group: map[string]map[int32]int64{}}
	again, err := newReader(r.h, "last reader", r.doors, r.names)
	if err != nil {
		r.t.Fatal(err)
	}
	reading, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { again.run(reading, r.o.Brokers) })
	for topic, ends := range f.Ends {
		for p, end := range ends {
			r.within(60*time.Second, topic, func() error {
				if got := again.at(topic, p); got < end {
					return fmt.Errorf("partition %d: the last reader is at %d of %d", p, got, end)
				}
				return nil
			})
		}
	}
	stop()
	wg.Wait()
	cl := r.readers[0].v.cl
	ask := func(group string, at tp, take func(int64)) {
		r.within(30*time.Second, "group "+group, func() error {
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
			ask(g, c.tp, func(o int64) { f.Commits[g] = o })
		}
	}
	for topic, ends := range f.Ends {
		f.Group[topic] = map[int32]int64{}
		for p := range ends {
			ask(group, tp{topic, p}, func(o int64) { f.Group[topic][p] = o })
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
	err := r.admin(ctx, func(ctx context.Context, cl *kadm.Client) error {
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

// admin is a client for one change of the cluster.
func (r *run) admin(ctx context.Context, fn func(context.Context, *kadm.Client) error) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.doors...), kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.RetryTimeout(5*time.Second))
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return fn(ctx, kadm.NewClient(cl))
}
