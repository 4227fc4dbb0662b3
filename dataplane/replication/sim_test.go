package replication

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"penstock/dataplane/partition"
	"penstock/dataplane/recordbatch"
)

// bubble hides the test's deadline from rapid, which may not be asked for
// inside a synctest bubble.
type bubble struct{ *testing.T }

// history is what clients were told, to be held against the logs.
type history struct {
	mu    sync.Mutex
	next  int
	acked map[int64]string // by acks=-1
	read  map[int64]string // seen below a leader's high watermark
	hw    map[[2]int64]int64
}

func newHistory() *history {
	return &history{acked: map[int64]string{}, read: map[int64]string{}, hw: map[[2]int64]int64{}}
}

func (h *history) produce(n *node, acks int16, count int) {
	h.mu.Lock()
	values := make([]string, count)
	recs := make([]recordbatch.Record, count)
	for i := range values {
		h.next++
		values[i] = fmt.Sprint("v", h.next)
		recs[i] = recordbatch.Record{Offset: int64(i), Timestamp: time.Now().UnixMilli(), Value: []byte(values[i])}
	}
	h.mu.Unlock()
	b, err := recordbatch.Build(recordbatch.NoProducer(), recs)
	if err != nil {
		panic(err)
	}
	n.m.Append(partition.AppendRequest{Acks: acks, Timeout: 500 * time.Millisecond, ProduceVersion: 9, Entries: []partition.AppendEntry{{TP: tp0, Records: b}}},
		func(rs []partition.AppendResult) {
			if rs[0].Err != nil || acks != -1 {
				return
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			for i, v := range values {
				h.acked[rs[0].BaseOffset+int64(i)] = v
			}
		})
}

// consume reads from a leader what it calls committed.
func (h *history) consume(t failer, n *node) {
	p := n.m.Partition(tp0)
	if p == nil {
		return
	}
	got, hw, epoch, ok := committed(t, n)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := [2]int64{int64(n.id), int64(epoch)}
	if hw < h.hw[key] {
		t.Errorf("high watermark of leader %d in epoch %d went back from %d to %d", n.id, epoch, h.hw[key], hw)
	}
	h.hw[key] = hw
	for o, v := range got {
		if old, ok := h.read[o]; ok && old != v {
			t.Errorf("committed record %d changed from %s to %s (leader %d, epoch %d)", o, old, v, n.id, epoch)
		}
		h.read[o] = v
	}
}

// committed reads a leader's log up to its high watermark, through Fetch.
func committed(t failer, n *node) (got map[int64]string, hw int64, epoch int32, ok bool) {
	got = map[int64]string{}
	_, epoch = n.m.Partition(tp0).Leader()
	for from := int64(0); ; {
		ch := make(chan partition.FetchResult, 1)
		n.m.Fetch(partition.FetchRequest{ReplicaID: -1, MaxBytes: 1 << 20, Parts: []partition.FetchPart{{TP: tp0, Offset: from, CurrentLeaderEpoch: epoch, LastFetchedEpoch: -1, MaxBytes: 1 << 20}}},
			func(rs []partition.FetchResult) { ch <- rs[0] })
		r := <-ch
		if r.Err != nil {
			return nil, 0, 0, false
		}
		if r.Slice.Len == 0 {
			r.Slice.Close()
			return got, r.HighWatermark, epoch, true
		}
		b := make([]byte, r.Slice.Len)
		if _, err := r.Slice.ReadInto(b); err != nil {
			t.Errorf("reading: %v", err)
			return nil, 0, 0, false
		}
		r.Slice.Close()
		from = r.Slice.LastOffset + 1
		collect(t, b, got)
	}
}

func collect(t failer, b []byte, got map[int64]string) {
	for x, err := range recordbatch.Split(b) {
		if err == nil {
			err = recordbatch.Records(x, func(r recordbatch.Record) error { got[r.Offset] = string(r.Value); return nil })
		}
		if err != nil {
			t.Errorf("reading batches: %v", err)
			return
		}
	}
}

// dump is the whole log of a node, byte for byte.
func dump(t failer, n *node) []byte {
	log := n.m.Partition(tp0).Log()
	var all []byte
	for from := log.StartOffset(); from < log.EndOffset(); {
		s, err := log.Read(from, 1<<20, log.EndOffset(), true)
		if err != nil || s.Len == 0 {
			t.Errorf("reading the log of %d at %d: %v", n.id, from, err)
			return nil
		}
		b := make([]byte, s.Len)
		if _, err := s.ReadInto(b); err != nil {
			t.Errorf("reading the log of %d: %v", n.id, err)
		}
		all = append(all, b...)
		from = s.LastOffset + 1
		s.Close()
	}
	return all
}

// settle heals everything and waits until all replicas are in sync.
func (c *cluster) settle() {
	c.mu.Lock()
	clear(c.cut)
	clear(c.ctlCut)
	c.mu.Unlock()
	for _, n := range c.nodes {
		if !n.up {
			n.start()
		}
	}
	c.elect(c.leader)
	c.deliverAll()
	for range 60 {
		time.Sleep(500 * time.Millisecond)
		c.mu.Lock()
		whole := len(c.isr) == 3
		c.mu.Unlock()
		if whole && c.node(1).m.Partition(tp0).EndOffset() == c.node(2).m.Partition(tp0).EndOffset() &&
			c.node(1).m.Partition(tp0).EndOffset() == c.node(3).m.Partition(tp0).EndOffset() {
			break
		}
	}
	time.Sleep(time.Second)
}

func (c *cluster) check(h *history) {
	c.mu.Lock()
	leader, isr := c.leader, slices.Clone(c.isr)
	c.mu.Unlock()
	if len(isr) != 3 {
		c.t.Errorf("in-sync set %v after everything healed", isr)
	}
	n := c.node(leader)
	h.consume(c.t, n)
	got, hw, _, ok := committed(c.t, n)
	if end := n.m.Partition(tp0).EndOffset(); !ok || hw != end {
		c.t.Errorf("leader %d: high watermark %d, end %d, %v", leader, hw, end, ok)
	}
	h.mu.Lock()
	for o, v := range h.acked {
		if got[o] != v {
			c.t.Errorf("acknowledged record %d %s is lost: there is %q", o, v, got[o])
		}
	}
	h.mu.Unlock()
	want := dump(c.t, n)
	for _, o := range c.nodes {
		if !bytes.Equal(dump(c.t, o), want) {
			c.t.Errorf("log of %d differs from that of leader %d", o.id, leader)
		}
	}
}

// Whatever leaders move, brokers stop or lose power, networks are cut and
// orders come late: what was acknowledged or read is never lost or changed, and
// the logs end up the same.
func TestCommittedRecordsSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs, acked, read, epochs, bounces int
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			c := newCluster(rt, int64(rapid.IntRange(0, 1<<30).Draw(rt, "seed")), partition.TopicConfig{MinISR: 2})
			defer c.close()
			h := newHistory()
			c.elect(1)
			c.deliverAll()
			node := func() int32 { return int32(rapid.IntRange(1, 3).Draw(rt, "node")) }
			steps := rapid.IntRange(5, 60).Draw(rt, "steps")
			for range steps {
				switch a := rapid.IntRange(0, 15).Draw(rt, "action"); {
				case a <= 6:
					n := c.node(node())
					if a <= 4 && c.leader > 0 {
						n = c.node(c.leader)
					}
					acks := int16(-1)
					if a%3 == 0 {
						acks = 1
					}
					if n.up {
						h.produce(n, acks, rapid.IntRange(1, 3).Draw(rt, "records"))
					}
				case a == 7:
					c.elect(node())
				case a <= 9:
					c.deliver(node())
				case a == 10:
					c.deliverAll()
				case a == 11:
					c.mu.Lock()
					k := [2]int32{node(), node()}
					c.cut[k] = !c.cut[k]
					c.mu.Unlock()
				case a == 12:
					c.mu.Lock()
					k := node()
					c.ctlCut[k] = !c.ctlCut[k]
					c.mu.Unlock()
				case a == 13:
					c.bounce(rt, node())
				case a == 14:
					c.node(node()).fetchers.SetThreads(rapid.IntRange(1, 3).Draw(rt, "threads"))
				default:
					for _, n := range c.nodes {
						if n.up {
							h.consume(rt, n)
						}
					}
				}
				time.Sleep(time.Duration(rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 300), rapid.IntRange(0, 4000)).Draw(rt, "ms")) * time.Millisecond)
			}
			c.settle()
			c.check(h)
			runs, acked, read, epochs, bounces = runs+1, acked+len(h.acked), read+len(h.read), epochs+int(c.epoch), bounces+int(c.epochSeq)-3
		})
		t.Logf("%d runs: %d records acknowledged, %d read, %d leader epochs, %d restarts", runs, acked, read, epochs, bounces)
		if acked < runs || epochs < runs || bounces < runs/2 {
			t.Error("the simulation has become too quiet to show anything")
		}
	})
}

// bounce stops a node that is up, or starts one that is down. Power is cut
// only while another live replica is in sync: losing the disks of all of them
// at once may lose records, here as in Kafka.
func (c *cluster) bounce(rt *rapid.T, id int32) {
	n := c.node(id)
	if !n.up {
		n.start()
		c.elect(c.leader)
		return
	}
	c.mu.Lock()
	others := slices.ContainsFunc(c.isr, func(o int32) bool { return o != id && c.node(o).up })
	c.mu.Unlock()
	n.down(!others || rapid.Bool().Draw(rt, "clean"))
	c.elect(c.leader)
}

// Two quick fail-overs (KAFKA-6361): A writes under epoch 1 while cut off, B
// leads epoch 2 with other records, A leads epoch 3 before B has copied from it.
func TestTwoQuickFailoversLeaveNoDivergence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 1})
		defer c.close()
		h := newHistory()
		const a, b, other = 1, 2, 3
		c.elect(a)
		c.deliverAll()
		time.Sleep(time.Second)
		h.produce(c.node(a), -1, 2) // committed by all
		time.Sleep(time.Second)

		// A is cut off and writes on, for itself only.
		for _, x := range []int32{b, other} {
			c.cutOff(x, a)
			c.cutOff(a, x)
		}
		time.Sleep(time.Second)
		for range 3 {
			h.produce(c.node(a), 1, 1)
		}
		// B is elected without A's knowing, and writes others at the same offsets.
		c.elect(b)
		c.deliver(b)
		c.cutOff(other, b)
		h.produce(c.node(b), 1, 2)
		time.Sleep(50 * time.Millisecond)
		before := dump(t, c.node(b))
		if bytes.Equal(before, dump(t, c.node(a))) {
			t.Fatal("the script must make the logs differ")
		}
		// A leads again before B has copied anything.
		c.elect(a)
		c.deliverAll()
		h.produce(c.node(a), 1, 1)
		time.Sleep(50 * time.Millisecond)
		c.settle()
		c.check(h)
	})
}

// KIP-903: a wish to add a follower is on its way when the follower loses power and, with it,
// what the wish goes by. It is started anew before the wish arrives: the broker lives, but is
// not the one that was meant.
func TestBouncedFollowerIsNotTakenForItsEarlierLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 1})
		defer c.close()
		h := newHistory()
		c.isr = []int32{1}
		c.ctlCut[1] = true
		c.elect(1)
		c.deliverAll()
		h.produce(c.node(1), 1, 3)
		time.Sleep(time.Second)
		if end := c.node(2).m.Partition(tp0).EndOffset(); end != 3 {
			t.Fatalf("the follower has %d records", end)
		}
		c.node(2).down(false)
		c.node(2).start() // no order yet: it does not copy
		c.mu.Lock()
		c.ctlCut[1] = false
		c.mu.Unlock()
		time.Sleep(time.Second)
		c.mu.Lock()
		isr := slices.Clone(c.isr)
		c.mu.Unlock()
		if slices.Contains(isr, 2) {
			t.Fatalf("in-sync set %v, with a broker that has %d records of 3", isr, c.node(2).m.Partition(tp0).EndOffset())
		}
		c.settle()
		c.check(h)
	})
}

// A follower in a long poll takes up a new partition at once: else the first
// acks=-1 produce after a creation or a fail-over would wait for the poll's end.
func TestNewPartitionDoesNotWaitForALongPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 3})
		defer c.close()
		c.elect(1)
		c.deliverAll()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		c.addPartition(1)
		if d := c.acknowledged(1); d > 30*time.Millisecond {
			t.Errorf("acknowledged after %v", d)
		}
	})
}

// Nor does one that comes while the follower connects: the fetch that it makes then
// was put together before, and would be such a long poll.
func TestNewPartitionDoesNotWaitForTheFetchAfterAConnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 3})
		defer c.close()
		c.elect(1)
		c.deliverAll()
		time.Sleep(10*time.Second + 100*time.Millisecond)
		c.dialling.Store(int64(50 * time.Millisecond))
		c.addPartition(1) // cuts the long poll short, so that they connect anew
		time.Sleep(20 * time.Millisecond)
		c.addPartition(2)
		// What is left of the first connect, a second one, and a little.
		if d := c.acknowledged(2); d > 120*time.Millisecond {
			t.Errorf("acknowledged after %v", d)
		}
	})
}

// A follower that is in a new epoch already throws away an answer of the one before, and
// must hear of what was in it all the same.
func TestNewsInAnAnswerThatCameTooLateIsHeardAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 3})
		defer c.close()
		h := newHistory()
		c.elect(1)
		c.deliverAll()
		h.produce(c.node(1), 1, 10)
		time.Sleep(2*time.Second + 50*time.Millisecond) // into a long poll
		c.elect(1)
		c.deliver(2) // and the leader not yet
		done := make(chan []partition.DeleteResult, 1)
		c.node(1).m.DeleteRecords(20*time.Second, []partition.DeletePart{{TP: tp0, Offset: 5}}, func(rs []partition.DeleteResult) { done <- rs })
		c.deliverAll() // while the answer is on its way
		began := time.Now()
		if r := (<-done)[0]; r.Err != nil || r.LowWatermark != 5 || time.Since(began) > 2*time.Second {
			t.Errorf("%+v after %v", r, time.Since(began))
		}
	})
}

// addPartition gives every broker one more partition, led like the first.
func (c *cluster) addPartition(number int32) {
	for _, n := range c.nodes {
		req := c.orderLocked(n)
		req.TopicStates[0].PartitionStates[0].Partition = number
		n.m.LeaderAndISR(req)
	}
}

// acknowledged tells how long an acks=-1 produce to broker 1 takes.
func (c *cluster) acknowledged(number int32) time.Duration {
	c.t.Helper()
	b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}})
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	start, done := time.Now(), make(chan error, 1)
	tp := partition.TopicPartition{Topic: tp0.Topic, Partition: number}
	c.node(1).m.Append(partition.AppendRequest{Acks: -1, Timeout: time.Minute, Entries: []partition.AppendEntry{{TP: tp, Records: b}}},
		func(rs []partition.AppendResult) { done <- rs[0].Err })
	if err := <-done; err != nil {
		c.t.Fatalf("%v", err)
	}
	return time.Since(start)
}
