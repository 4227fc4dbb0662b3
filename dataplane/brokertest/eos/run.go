package eos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"penstock/dataplane/brokertest/nemesis"
)

// Topics are passed on from the first to the last.
var Topics = []string{"in", "first", "second", "last"}

const partitions = 3 // of every topic

// The internal topics, which are moved about like the others.
const (
	groupTopic = "__consumer_offsets"
	txnTopic   = "__transaction_state"
)

const internalPartitions = 3

// Mix is what breaks a cluster under this workload: less of what stops all, more of what
// hits the clients.
var Mix = []nemesis.Weight{
	{Fault: nemesis.Kill, Weight: 16}, {Fault: nemesis.KillAll, Weight: 1}, {Fault: nemesis.Restart, Weight: 5}, {Fault: nemesis.Pause, Weight: 10},
	{Fault: nemesis.Cut, Weight: 16}, {Fault: nemesis.Isolate, Weight: 5}, {Fault: nemesis.Slow, Weight: 5}, {Fault: nemesis.NoEnsemble, Weight: 2},
	{Fault: nemesis.Reassign, Weight: 6}, {Fault: nemesis.Elect, Weight: 3},
	{Fault: nemesis.KillMember, Weight: 10}, {Fault: nemesis.PauseMember, Weight: 6}, {Fault: nemesis.Replace, Weight: 8}, {Fault: nemesis.Leave, Weight: 4}, {Fault: nemesis.Join, Weight: 4},
}

// Roles of brokers that are sought out.
var Roles = []string{"controller", "leader", "transactions", "groups"}

// Options of a run.
type Options struct {
	Schedule []nemesis.Step
	Rate     int // inputs a second, of all feeders
	Members  int // of each stage
	// First is how many of them speak the first version of the transaction protocol. It
	// cannot tell a late request from one of the next transaction (KIP-890), so with any of
	// them nothing that a cut has held arrives late: it is lost.
	First   int
	Die     float64 // the chance of a member's death at each request of a transaction, and at its answer
	History io.Writer
	Heal    time.Duration // how long a healed cluster may take until all has arrived; 0: 90 s
	Quiet   time.Duration // how long until nothing is open then; 0: 30 s
	Dir     string        // for the members' log, and the brokers' if there are anomalies
	Verbose bool          // members log what their client does
	// Start starts the cluster.
	Start func(t testing.TB, j *nemesis.Journal, parties func() map[nemesis.Party]int) *nemesis.Rig
}

type run struct {
	*nemesis.Rig
	o    Options
	h    *History
	gate *nemesis.Gate
	ms   *members

	watchers []*watcher // of committed data
}

// Ours starts a cluster of ours; binary is the broker, empty as it is built.
func Ours(brokers int, binary string) func(testing.TB, *nemesis.Journal, func() map[nemesis.Party]int) *nemesis.Rig {
	return func(t testing.TB, j *nemesis.Journal, parties func() map[nemesis.Party]int) *nemesis.Rig {
		return nemesis.Start(t, j, nemesis.Options{Brokers: brokers, Binary: binary, Parties: parties, Settings: Settings})
	}
}

// Settings of brokers of any make: what a client that is gone has left open ends
// within seconds.
var Settings = []string{
	"transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
	fmt.Sprintf("offsets.topic.num.partitions=%d", internalPartitions), fmt.Sprintf("transaction.state.log.num.partitions=%d", internalPartitions),
}

// Run starts a cluster, has inputs passed on from topic to topic while the schedule is
// carried out, heals it, and returns what was wrong.
func Run(t testing.TB, o Options) ([]nemesis.Anomaly, Counts) {
	t.Helper()
	if o.Heal == 0 {
		o.Heal = 90 * time.Second
	}
	if o.Quiet == 0 {
		o.Quiet = 30 * time.Second
	}
	r := &run{o: o, h: NewHistory(o.History, Topics...), gate: nemesis.NewGate()}
	for _, s := range o.Schedule {
		r.h.Note("schedule", s)
	}
	log, err := os.Create(filepath.Join(o.Dir, "members.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.ms = newMembers(t, r.h, nil, len(Topics)-1, o.Members, o.First, log, o.Verbose)
	r.ms.die = o.Die
	r.Rig = o.Start(t, r.h.Journal, r.ms.pids)
	r.ms.seeds = r.Seeds
	r.createTopics()

	ctx, stop := context.WithCancel(context.Background())
	var wg, feeders sync.WaitGroup
	defer wg.Wait()
	defer feeders.Wait()
	defer stop()
	feeding, stopFeeding := context.WithCancel(ctx)
	r.watch(ctx, &wg)
	defer r.ms.stop()
	r.ms.start()
	r.feed(feeding, &feeders)
	// Nothing is broken before the chains work, or little would be on a busy machine.
	last := Topics[len(Topics)-1]
	r.Within(3*time.Minute, last, func() error {
		if r.h.Arrived(last) == 0 {
			return errors.New("nothing has arrived yet")
		}
		return nil
	})
	(&nemesis.Nemesis{Rig: r.Rig, Work: nemesis.Workload{
		Topics:     func() []string { return append([]string{groupTopic, txnTopic}, Topics...) },
		Partitions: partitionsOf,
		Rest:       r.rest,
		Members:    r.ms,
		Loses:      func(nemesis.Party, nemesis.Party) bool { return o.First > 0 },
		Coordinators: map[string]nemesis.Coordinated{
			"transactions": {Key: "stage-0-place-0", Kind: 1}, "groups": {Key: groupOf(0)},
		},
	}}).CarryOut(ctx, o.Schedule)
	r.gate.Shut()
	stopFeeding()
	feeders.Wait()
	r.rest(ctx)
	r.ms.stop()
	final := r.final(ctx)
	stop()
	wg.Wait()
	anomalies := r.h.Check(final)
	counts := r.h.Counts()
	r.h.Note("counts", counts)
	if len(anomalies) > 0 {
		r.KeepLogs(o.Dir)
	}
	return anomalies, counts
}

func partitionsOf(topic string) int32 {
	if topic == groupTopic || topic == txnTopic {
		return internalPartitions
	}
	return partitions
}

func (r *run) createTopics() {
	r.TB.Helper()
	two := "2"
	err := r.Admin(context.Background(), func(ctx context.Context, cl *kadm.Client) error {
		resp, err := cl.CreateTopics(ctx, partitions, int16(min(3, len(r.Brokers))), map[string]*string{"min.insync.replicas": &two}, Topics...)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	if err != nil {
		r.TB.Fatal(err)
	}
}

func (r *run) watch(ctx context.Context, wg *sync.WaitGroup) {
	for i, committed := range []bool{true, true, false} {
		w, err := newWatcher(r.h, fmt.Sprint("watcher-", i), committed, false, r.Seeds)
		if err != nil {
			r.TB.Fatal(err)
		}
		if committed {
			r.watchers = append(r.watchers, w)
		}
		wg.Go(func() { w.Run(ctx, r.IDs()) })
	}
	v, err := nemesis.NewView(r.Seeds)
	if err != nil {
		r.TB.Fatal(err)
	}
	wg.Go(func() {
		defer v.Client.Close()
		watchOffsets(ctx, r.h, v, r.IDs(), partitions)
	})
}

func (r *run) feed(ctx context.Context, wg *sync.WaitGroup) {
	const feeders = 2
	for id := range feeders {
		f := &feeder{h: r.h, id: id, topic: Topics[0], seeds: r.Seeds, every: feeders * time.Second / time.Duration(r.o.Rate), gate: r.gate}
		wg.Go(func() {
			work := f.idempotent
			if id == 1 {
				work = f.transactional
			}
			if err := work(ctx); err != nil {
				r.TB.Error(err)
			}
		})
	}
}

// rest waits until the healed cluster is whole, has passed on everything and has
// nothing open any more, and holds the replicas against each other.
func (r *run) rest(ctx context.Context) {
	r.h.Note("rest", r.h.Counts())
	r.gate.Shut()
	defer r.gate.Let()
	replicas := map[nemesis.TP][]int32{}
	for _, topic := range append([]string{groupTopic, txnTopic}, Topics...) {
		r.Within(r.o.Heal, topic, func() error { return r.Whole(ctx, topic, partitionsOf(topic), replicas) })
	}
	r.Within(r.o.Heal, "what is fed", func() error { return r.fed(ctx) })
	for i := 1; i < len(Topics); i++ {
		r.Within(r.o.Heal, Topics[i], func() error {
			if got, want := r.h.Arrived(Topics[i]), r.h.Arrived(Topics[i-1]); got < want {
				return fmt.Errorf("%d of %d inputs have arrived", got, want)
			}
			return nil
		})
	}
	for at, ids := range replicas {
		r.quiet(ctx, at)
		if r.Penstock != nil && at.Topic != groupTopic && at.Topic != txnTopic { // which are compacted, each replica by itself
			r.SameLogs(at, ids)
		}
	}
	r.h.Note("healed", r.h.Counts())
}

// fed waits until the feeders' last transaction is over and the readers of
// committed data are at the end.
func (r *run) fed(ctx context.Context) error {
	for p := range int32(partitions) {
		at := nemesis.TP{Topic: Topics[0], Partition: p}
		end, stable, err := r.ends(ctx, at)
		if err != nil {
			return err
		}
		if stable < end {
			return fmt.Errorf("%s is stable up to %d of %d", at, stable, end)
		}
		for _, w := range r.watchers {
			if got := w.At(at); got < end {
				return fmt.Errorf("%s is at %d of %d in %s", w.Name, got, end, at)
			}
		}
	}
	return nil
}

func (r *run) ends(ctx context.Context, at nemesis.TP) (end, stable int64, err error) {
	end, err = r.End(ctx, at)
	if err == nil {
		stable, err = r.StableEnd(ctx, at)
	}
	return end, stable, err
}

// quiet waits until a partition's stable offset is its end.
func (r *run) quiet(ctx context.Context, at nemesis.TP) {
	err := errors.New("not asked")
	for began := time.Now(); time.Since(began) < r.o.Quiet; time.Sleep(50 * time.Millisecond) {
		var end, stable int64
		if end, stable, err = r.ends(ctx, at); err == nil && stable >= end {
			return
		}
		if err == nil {
			err = fmt.Errorf("stable up to %d of %d", stable, end)
		}
	}
	r.h.anomaly("lso stuck", at, "nothing is open, and after %v: %v", r.o.Quiet, err)
}

// final is entered when feeders and members are gone. It reads everything once
// more, from the start, and asks for what the groups have committed.
func (r *run) final(ctx context.Context) Final {
	f := Final{Ends: map[nemesis.TP]int64{}, Offsets: map[string]map[nemesis.TP]int64{}}
	again, err := newWatcher(r.h, "last watcher", true, true, r.Seeds)
	if err != nil {
		r.TB.Fatal(err)
	}
	reading, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { again.Run(reading, r.IDs()) })
	for _, topic := range Topics {
		for p := range int32(partitions) {
			at := nemesis.TP{Topic: topic, Partition: p}
			r.Within(60*time.Second, at.String(), func() error {
				_, stable, err := r.ends(ctx, at) // what is above stays unseen, and is an anomaly already
				if err != nil {
					return err
				}
				if got := again.At(at); got < stable {
					return fmt.Errorf("the last reader is at %d of %d", got, stable)
				}
				f.Ends[at], err = r.End(ctx, at)
				return err
			})
		}
	}
	stop()
	wg.Wait()
	for stage, topic := range Topics[:len(Topics)-1] {
		group := groupOf(stage)
		f.Offsets[group] = map[nemesis.TP]int64{}
		r.Within(30*time.Second, "group "+group, func() error {
			id, err := nemesis.Coordinator(ctx, r.View.Client, group, 0)
			if err != nil {
				return err
			}
			offsets, err := offsetsOf(ctx, r.View, id, group, topic, partitions)
			for p, offset := range offsets {
				f.Offsets[group][nemesis.TP{Topic: topic, Partition: p}] = offset
			}
			return err
		})
	}
	return f
}
