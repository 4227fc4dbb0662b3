//go:build compat

package brokertest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
)

// lead has these brokers lead the partitions of a topic, each a replica of its partition: the
// replicas are named in another order, and the preferred one is elected. Every broker stays up.
func (c *Cluster) lead(topic string, leaders ...int32) {
	c.t.Helper()
	cl := c.freshClient()
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var req kadm.AlterPartitionAssignmentsReq
	parts := kadm.TopicsSet{}
	var want [][]int32
	c.describe(topic, func(m *kmsg.MetadataResponse) {
		want = make([][]int32, len(m.Topics[0].Partitions))
		for _, p := range m.Topics[0].Partitions {
			to := append([]int32{leaders[p.Partition]}, slices.DeleteFunc(p.Replicas, func(id int32) bool { return id == leaders[p.Partition] })...)
			want[p.Partition] = to
			req.Assign(topic, p.Partition, to)
			parts.Add(topic, p.Partition)
		}
	})
	Await(c.t, 30*time.Second, "the reassignment being taken", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := adm.AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
	c.awaitMoved(topic)
	Await(c.t, 30*time.Second, "the election", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		rs, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, parts)
		if err != nil {
			return err
		}
		for _, r := range rs[topic] {
			if r.Err != nil && r.Err != kerr.ElectionNotNeeded {
				return r.Err
			}
		}
		return nil
	})
	c.awaitShape(topic, want)
}

// named is a name of this kind whose coordinator is the leader of that one of n partitions.
func named(kind string, partition, n int32) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("%s-%d", kind, i); coordinator.PartitionFor(name, n) == partition {
			return name
		}
	}
}

// atLeader asks the leader of a partition until its answer is no error that asks for another
// try; f returns the answer's code.
func (c *Cluster) atLeader(t *testing.T, topic string, partition int32, what string, f func(*wire) int16) *kerr.Error {
	t.Helper()
	var last error
	Await(t, 40*time.Second, what, func() error {
		leader := c.leader(topic, partition)
		if leader < 0 {
			return kerr.LeaderNotAvailable
		}
		conn, err := net.DialTimeout("tcp", c.Brokers[leader].Addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
		last = kerr.ErrorForCode(f(&wire{Conn: conn, t: t, r: bufio.NewReader(conn)}))
		if kerr.IsRetriable(last) {
			return fmt.Errorf("broker %d (%s): %w", leader, c.maker(leader), last)
		}
		return nil
	})
	if last == nil {
		return nil
	}
	return last.(*kerr.Error)
}

// courier is a transactional producer in raw requests of the first version of transactions,
// whose coordinator is asked for anew each time.
type courier struct {
	c     *Cluster
	t     *testing.T
	id    string
	pid   int64
	epoch int16
	seq   map[string]int32 // by partition
}

func (c *Cluster) courier(t *testing.T, id string, timeout time.Duration) *courier {
	t.Helper()
	p := &courier{c: c, t: t, id: id, seq: map[string]int32{}}
	p.coordinated("a producer id", nil, func(w *wire) int16 {
		r := txnInit(w, id, int32(timeout.Milliseconds()))
		p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
		return r.ErrorCode
	})
	return p
}

// coordinated has the coordinator asked, and fails the test unless it answers so.
func (p *courier) coordinated(what string, want *kerr.Error, f func(*wire) int16) {
	p.t.Helper()
	what = p.id + ": " + what
	if got := p.c.atLeader(p.t, "__transaction_state", coordinator.PartitionFor(p.id, 2), what, f); got != want {
		p.t.Errorf("%s: %v, wanted %v", what, got, want)
	}
}

// sends has one record in a partition as part of the transaction.
func (p *courier) sends(topic string, partition int32, value string) {
	p.t.Helper()
	p.coordinated("a partition in the transaction", nil, func(w *wire) int16 { return txnAdd(w, p.id, p.pid, p.epoch, topic, partition)[0] })
	tp := fmt.Sprint(topic, "-", partition)
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = p.pid, p.epoch, p.seq[tp], true
	req := produceTo(-1, map[string]map[int32][]byte{topic: {partition: build(p.t, o, records(value))}})
	req.TransactionID = &p.id
	what := p.id + ": a record in " + tp
	if err := p.c.atLeader(p.t, topic, partition, what, func(w *wire) int16 {
		return ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0].ErrorCode
	}); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
	p.seq[tp]++
}

// commits has the group's offset as part of the transaction.
func (p *courier) commits(group, topic string, offset int64) {
	p.t.Helper()
	op := &offsetsProducer{id: p.id, pid: p.pid, epoch: p.epoch}
	p.coordinated("the group in the transaction", nil, func(w *wire) int16 {
		req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), 3)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, p.epoch, group
		return ask[*kmsg.AddOffsetsToTxnResponse](w, req).ErrorCode
	})
	what := p.id + ": an offset of " + group
	if err := p.c.atLeader(p.t, "__consumer_offsets", coordinator.PartitionFor(group, 2), what, func(w *wire) int16 {
		op.w = w
		return op.commit(op.commitOf(3, group, topic, 0, offset))
	}); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

func (p *courier) ends(commit bool, want *kerr.Error) {
	p.t.Helper()
	p.coordinated(fmt.Sprint("the end, commit: ", commit), want, func(w *wire) int16 { return txnEnd(w, 3, p.id, p.pid, p.epoch, commit) })
}

// in waits until the coordinator describes the transaction in that state. Where it must be
// already, at once, any other fails the test.
func (p *courier) in(state string, already bool) kmsg.DescribeTransactionsResponseTransactionState {
	p.t.Helper()
	var d kmsg.DescribeTransactionsResponseTransactionState
	Await(p.t, 40*time.Second, p.id+" in "+state, func() error {
		p.coordinated("a description", nil, func(w *wire) int16 {
			req := kmsg.NewPtrDescribeTransactionsRequest()
			req.TransactionalIDs = []string{p.id}
			d = ask[*kmsg.DescribeTransactionsResponse](w, req).TransactionStates[0]
			return d.ErrorCode
		})
		if d.State == state && d.ProducerID == p.pid {
			return nil
		}
		if already {
			p.t.Fatalf("%s is in state %s with producer %d/%d, and should be in %s with %d/%d", p.id, d.State, d.ProducerID, d.ProducerEpoch, state, p.pid, p.epoch)
		}
		return fmt.Errorf("it is in %s", d.State)
	})
	return d
}

// groupHas waits until the group's offset of the topic's partition 0 is as wanted, for who
// wants it stable. Where it must be already, at once, anything else fails the test.
func (c *Cluster) groupHas(t *testing.T, group, topic, want string, already bool) {
	t.Helper()
	Await(t, 40*time.Second, group+" with "+want, func() error {
		var got string
		c.atLeader(t, "__consumer_offsets", coordinator.PartitionFor(group, 2), "an offset", func(w *wire) int16 {
			req := at(kmsg.NewPtrOffsetFetchRequest(), 7)
			req.Group, req.RequireStable = group, true
			req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic, Partitions: []int32{0}}}
			r := ask[*kmsg.OffsetFetchResponse](w, req)
			if r.ErrorCode != 0 {
				return r.ErrorCode
			}
			rp := r.Topics[0].Partitions[0]
			got = fmt.Sprintf("%d/%d", rp.Offset, rp.ErrorCode)
			return 0
		})
		if got == want {
			return nil
		}
		if already {
			t.Fatalf("%s has %s, wanted %s", group, got, want)
		}
		return fmt.Errorf("it has %s", got)
	})
}

// committed waits until no transaction is open in any partition of the topics, and gives all
// values of committed ones, sorted.
func (c *Cluster) committed(t *testing.T, ctx context.Context, topics ...string) (values []string) {
	t.Helper()
	cl := c.freshClient()
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ends := kadm.ListedOffsets{}
	Await(t, time.Minute, fmt.Sprint("all transactions over in ", topics), func() error {
		var err error
		if ends, err = adm.ListEndOffsets(ctx, topics...); err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		stable, err := adm.ListCommittedOffsets(ctx, topics...)
		if err == nil {
			err = stable.Error()
		}
		if err != nil {
			return err
		}
		ends.Each(func(o kadm.ListedOffset) {
			if s, ok := stable.Lookup(o.Topic, o.Partition); !ok || s.Offset != o.Offset {
				err = fmt.Errorf("%s-%d is stable up to %d of %d", o.Topic, o.Partition, s.Offset, o.Offset)
			}
		})
		return err
	})
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	left := map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[fmt.Sprint(o.Topic, o.Partition)] = o.Offset
		}
	})
	r := c.Client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer r.Close()
	for len(left) > 0 {
		f := r.PollFetches(limit)
		if limit.Err() != nil {
			t.Fatalf("not read to %v", left)
		}
		f.EachRecord(func(rec *kgo.Record) {
			if !rec.Attrs.IsControl() {
				values = append(values, string(rec.Value))
			}
			if at := fmt.Sprint(rec.Topic, rec.Partition); rec.Offset+1 >= left[at] {
				delete(left, at)
			}
		})
	}
	slices.Sort(values)
	return values
}

// Transactions that are open or decided, and what they have pending of groups' offsets, go
// from the coordinators of one make to those of the other, and back: in order, by an election
// under which everybody stays up, and by the kill of each make's broker. Whoever has them
// last ends them: by commit, abort, the rest of the markers, or because their time is up.
func TestMixedCoordinatorsChangeHands(t *testing.T) {
	c := startMixed(t, 2, 1, "offsets.topic.num.partitions=2", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500")
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	// Partition 0 of each is with ours, partition 1 with Kafka. Broker 1, of ours, has the
	// partition whose markers cannot be written while it is down.
	const ours, away, theirs = 0, 1, 2
	home := []int32{ours, theirs}
	for _, topic := range []string{"__transaction_state", "__consumer_offsets"} {
		c.assign(topic, [][]int32{{ours, theirs}, {theirs, ours}}, "cleanup.policy=compact")
	}
	c.assign("exact", [][]int32{{ours, theirs}, {theirs, ours}})
	c.assign("away", [][]int32{{away}})
	c.assign("slow", [][]int32{{ours, theirs}})
	var want []string
	inFull := func(what string) {
		t.Helper()
		slices.Sort(want)
		if have := c.committed(t, ctx, "exact", "away"); !slices.Equal(have, want) {
			t.Errorf("%s: committed are %q, wanted %q", what, have, want)
		}
	}
	over := map[*courier]string{} // in which state
	// round opens transactions with the coordinators of these partitions, lets them move, and
	// has the transactions go on and end.
	round := func(name string, partitions []int32, move func()) {
		t.Helper()
		began := time.Now()
		type one struct {
			*courier
			group  string
			commit bool
		}
		var open, prepared []one
		var late []*courier
		for _, p := range partitions {
			for _, commit := range []bool{true, false} {
				how := fmt.Sprintf("%s-%v", name, commit)
				o := one{c.courier(t, named("open-"+how, p, 2), 2*time.Minute), named("group-"+how, p, 2), commit}
				if err := c.atLeader(t, "__consumer_offsets", p, "an offset", func(w *wire) int16 {
					return commit7(w, o.group, "exact", 1)
				}); err != nil {
					t.Fatal(err)
				}
				o.sends("exact", 0, o.id+"/0")
				o.commits(o.group, "exact", 5)
				open = append(open, o)
				d := one{c.courier(t, named("prepared-"+how, p, 2), 2*time.Minute), named("decided-"+how, p, 2), commit}
				d.sends("exact", 1, d.id+"/1")
				d.sends("away", 0, d.id+"/away")
				d.commits(d.group, "exact", 7)
				prepared = append(prepared, d)
			}
		}
		c.Brokers[away].Stop()
		for _, d := range prepared {
			d.ends(d.commit, nil)
			d.in(map[bool]string{true: "PrepareCommit", false: "PrepareAbort"}[d.commit], true)
		}
		for _, p := range partitions {
			l := c.courier(t, named("late-"+name, p, 2), 25*time.Second)
			l.sends("exact", 0, l.id)
			late = append(late, l)
		}
		move()
		t.Logf("%s: moved %v after the first transaction began", name, time.Since(began).Round(100*time.Millisecond))
		for _, l := range late { // first, while there is time
			l.in("Ongoing", true)
		}
		for _, o := range open {
			d := o.in("Ongoing", true)
			parts := map[string][]int32{}
			for _, dt := range d.Topics {
				parts[dt.Topic] = dt.Partitions
			}
			if d.ProducerEpoch != o.epoch || d.TimeoutMillis != 120_000 || len(parts) != 2 || !slices.Equal(parts["exact"], []int32{0}) ||
				!slices.Equal(parts["__consumer_offsets"], []int32{coordinator.PartitionFor(o.group, 2)}) {
				t.Errorf("%s: %s is now %+v", name, o.id, d)
			}
			c.groupHas(t, o.group, "exact", unstable, true)
			o.sends("exact", 0, o.id+"/0 after")
			o.sends("exact", 1, o.id+"/1 after")
			o.ends(o.commit, nil)
			over[o.courier] = map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[o.commit]
			o.in(over[o.courier], false)
			offset := "1/0"
			if o.commit {
				offset = "5/0"
				want = append(want, o.id+"/0", o.id+"/0 after", o.id+"/1 after")
			}
			c.groupHas(t, o.group, "exact", offset, false)
		}
		for _, d := range prepared {
			d.in(map[bool]string{true: "PrepareCommit", false: "PrepareAbort"}[d.commit], true)
		}
		c.Brokers[away].Start()
		for _, d := range prepared {
			d.in(map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[d.commit], false)
			offset := "-1/0"
			if d.commit {
				offset = "7/0"
				want = append(want, d.id+"/1", d.id+"/away")
			}
			c.groupHas(t, d.group, "exact", offset, false)
			d.sends("away", 0, d.id+"/next") // the same producer goes on
			d.ends(true, nil)
			over[d.courier] = "CompleteCommit"
			d.in(over[d.courier], false)
			want = append(want, d.id+"/next")
		}
		for _, l := range late {
			over[l] = "CompleteAbort"
			l.in(over[l], false)
			var got *kerr.Error
			l.c.atLeader(t, "__transaction_state", coordinator.PartitionFor(l.id, 2), "the end of one that is late", func(w *wire) int16 {
				code := txnEnd(w, 3, l.id, l.pid, l.epoch, true)
				got, _ = kerr.ErrorForCode(code).(*kerr.Error)
				return code
			})
			if got != kerr.ProducerFenced && got != kerr.InvalidProducerEpoch {
				t.Errorf("%s: %s, whose time was up, may commit: %v", name, l.id, got)
			}
		}
		inFull(name)
		t.Logf("%s: %v", name, time.Since(began).Round(100*time.Millisecond))
	}
	change := func(to ...int32) func() {
		return func() {
			for _, topic := range []string{"__transaction_state", "__consumer_offsets"} {
				c.lead(topic, to...)
			}
		}
	}
	// One goes there and back before it ends.
	var returning []*courier
	for p := range int32(2) {
		r := c.courier(t, named("there-and-back", p, 2), 10*time.Minute)
		r.sends("slow", 0, r.id+"/there")
		r.commits(named("returning", p, 2), "exact", 9)
		returning = append(returning, r)
	}
	both := []int32{0, 1}
	rounds := []struct {
		name       string
		partitions []int32
		move       func()
	}{
		{"there", both, change(theirs, ours)},
		{"back", both, change(home...)},
	}
	for _, n := range []*Node{c.Brokers[ours], c.Brokers[theirs]} {
		p := int32(slices.Index(home, n.ID))
		rounds = append(rounds, struct {
			name       string
			partitions []int32
			move       func()
		}{"kill-" + strings.ToLower(c.maker(n.ID).String()), []int32{p}, func() {
			n.Kill()
			for _, topic := range []string{"__transaction_state", "__consumer_offsets", "exact"} {
				c.awaitLeader(topic, p, n.ID)
			}
		}})
	}
	for i, r := range rounds {
		round(r.name, r.partitions, r.move)
		if t.Failed() {
			break
		}
		if i == 1 {
			var slow []string
			for p, r := range returning {
				group := named("returning", int32(p), 2)
				c.groupHas(t, group, "exact", unstable, true)
				r.sends("slow", 0, r.id+"/back")
				r.ends(true, nil)
				c.groupHas(t, group, "exact", "9/0", false)
				slow = append(slow, r.id+"/back", r.id+"/there")
			}
			slices.Sort(slow)
			if have := c.committed(t, ctx, "slow"); !slices.Equal(have, slow) {
				t.Errorf("there and back: committed are %q, wanted %q", have, slow)
			}
		}
		for _, n := range c.Brokers {
			if n.ended() {
				n.Start()
				for _, topic := range []string{"__transaction_state", "__consumer_offsets", "exact"} {
					c.AwaitWhole(topic, time.Minute)
					c.lead(topic, home...)
				}
			}
		}
		for p, state := range over { // as whoever has it now knows it
			p.in(state, true)
		}
	}
	// Of an epoch in which nothing was written Kafka keeps an entry, and ours does not.
	for p := range int32(2) {
		last := c.courier(t, named("last", p, 2), time.Minute)
		last.sends("exact", p, last.id)
		last.commits(named("last-group", p, 2), "exact", 1)
		last.ends(true, nil)
		last.in("CompleteCommit", false)
	}
	for _, topic := range []string{"exact", "__transaction_state", "__consumer_offsets"} {
		c.sameLogs(topic)
	}
	c.understood()
}

// commit7 commits an offset of partition 0 outside of any transaction.
func commit7(w *wire, group, topic string, offset int64) int16 {
	w.t.Helper()
	return commit(w, commitOf(7, group, "", -1, topic, map[int32]int64{0: offset}))
}
