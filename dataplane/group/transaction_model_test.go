package group

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// txnModel drives a coordinator with commits inside and outside of transactions, with
// deletions, a log that fails, and moves, and compares what it says with what another
// says that has loaded its log.
type txnModel struct {
	e     *env
	epoch int32
	next  int64
	open  map[int64]bool
}

var txnModelGroups = []string{"g", "h"}

const txnModelPartitions = 3

// view is all that can be fetched.
func view(c *Coordinator) string {
	s := ""
	for _, group := range txnModelGroups {
		for _, stable := range []bool{false, true} {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = "t", []int32{0, 1, 2}
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group, rg.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{rt}
			r := c.FetchGroup(rg, stable)
			s += fmt.Sprintf("%s %d:", group, r.ErrorCode)
			for _, t := range r.Topics {
				for _, p := range t.Partitions {
					s += fmt.Sprintf(" %d/%d", p.Offset, p.ErrorCode)
				}
			}
			s += "\n"
		}
	}
	return s
}

// quiet lets everything be answered.
func (m *txnModel) quiet() {
	m.e.log.release(nil)
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

func (m *txnModel) compare(t *rapid.T) {
	m.quiet()
	for _, g := range m.e.c.groups() {
		if err := m.consistent(g); err != nil {
			t.Fatal(err)
		}
	}
	other := New(m.e.c.cfg, m.e.log, SystemTimers{})
	other.OnLeader(0, 1)
	synctest.Wait()
	live, loaded := view(m.e.c), view(other)
	other.Close()
	if live != loaded {
		t.Fatalf("the coordinator says\n%sand one that has loaded its log\n%s", live, loaded)
	}
}

// consistent checks what a group knows of transactions when nothing is on its way.
func (m *txnModel) consistent(g *group) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	index := g.openTransactions()
	unstable := map[protocol.TopicPartition]int{}
	for producer, tx := range g.open {
		if _, ok := index.groups[producer][g]; !ok || tx.end != coordinator.NotAnEnd || len(tx.writes) == 0 {
			return fmt.Errorf("%s: producer %d has %+v, in the index: %v", g.id, producer, tx, ok)
		}
		for tp, ws := range tx.writes {
			unstable[tp]++
			if len(ws) != 1 || !ws[0].stored {
				return fmt.Errorf("%s: producer %d has %+v of %v", g.id, producer, ws, tp)
			}
		}
	}
	if fmt.Sprint(unstable) != fmt.Sprint(g.unstable) || len(g.inFlight)+len(g.buried) > 0 {
		return fmt.Errorf("%s: unstable %v, and counted are %v; in flight %v, buried %v", g.id, unstable, g.unstable, g.inFlight, g.buried)
	}
	return nil
}

// end has a transaction ended: the marker first, then word of it. Its commits are in the
// log, answered or not.
func (m *txnModel) end(t *rapid.T, between func()) {
	var can []int64
	for _, p := range []int64{7, 8, 9} {
		if m.open[p] {
			can = append(can, p)
		}
	}
	if len(can) == 0 {
		return
	}
	producer := rapid.SampledFrom(can).Draw(t, "producer")
	how := rapid.SampledFrom([]coordinator.TransactionEnd{coordinator.Committed, coordinator.Aborted}).Draw(t, "how")
	m.e.log.end(0, producer, how)
	between()
	m.e.c.EndTransaction(0, producer, how == coordinator.Committed)
	delete(m.open, producer)
}

func (m *txnModel) commitInTransaction(t *rapid.T) {
	producer := rapid.Int64Range(7, 9).Draw(t, "producer")
	group := rapid.SampledFrom(txnModelGroups).Draw(t, "group")
	partition := rapid.Int32Range(0, txnModelPartitions-1).Draw(t, "partition")
	m.next++
	m.open[producer] = true
	m.e.c.CommitInTransaction(txnCommitReq(producer, group, partition, m.next), func(*kmsg.TxnOffsetCommitResponse) {})
}

func (m *txnModel) commit(t *rapid.T) {
	group := rapid.SampledFrom(txnModelGroups).Draw(t, "group")
	m.next++
	r := commitReq("", -1, "t", rapid.Int32Range(0, txnModelPartitions-1).Draw(t, "partition"), m.next)
	r.Group = group
	m.e.c.Commit(r, func(*kmsg.OffsetCommitResponse) {})
}

func txnCommitReq(producer int64, group string, partition int32, at int64) *kmsg.TxnOffsetCommitRequest {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version, r.TransactionalID, r.Group, r.ProducerID, r.Generation = 4, "x", group, producer, -1
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, at
	r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}}}
	return r
}

// inBubble runs a property in a bubble of its own, and lets rapid know how it went: its
// panics do not cross the bubble by themselves.
func inBubble(t *testing.T, f func(*testing.T)) {
	var failed any
	synctest.Test(t, func(t *testing.T) {
		defer func() { failed = recover() }()
		f(t)
	})
	if failed != nil {
		panic(failed)
	}
}

func TestWhatIsLoadedIsWhatWasKnown(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func(t *testing.T) {
			e := &env{t: t, log: newMemLog(1)}
			e.c = New(Config{OffsetsRetention: time.Hour, OffsetsCheckInterval: 10 * time.Minute}, e.log, SystemTimers{})
			m := &txnModel{e: e, epoch: 1, open: make(map[int64]bool)}
			e.c.OnLeader(0, 1)
			synctest.Wait()
			defer func() {
				m.quiet()
				e.c.Close()
				time.Sleep(time.Minute)
			}()
			nothing := func() {}
			rt.Repeat(map[string]func(*rapid.T){
				"commit":                m.commit,
				"commit in transaction": m.commitInTransaction,
				"end":                   func(t *rapid.T) { m.end(t, nothing) },
				"end while another commits": func(t *rapid.T) {
					m.end(t, func() { m.commit(t); time.Sleep(time.Duration(rapid.IntRange(0, 2).Draw(t, "ms")) * time.Millisecond) })
				},
				"end while loading": func(t *rapid.T) {
					m.quiet()
					gate := make(chan struct{})
					e.log.set(func(l *memLog) { l.gate = gate })
					m.epoch += 2
					e.c.OnResign(0, m.epoch-1)
					e.c.OnLeader(0, m.epoch)
					synctest.Wait()
					m.end(t, nothing)
					e.log.set(func(l *memLog) { l.gate = nil })
					close(gate)
					synctest.Wait()
				},
				"delete offsets": func(t *rapid.T) {
					r := kmsg.NewPtrOffsetDeleteRequest()
					r.Group = rapid.SampledFrom(txnModelGroups).Draw(t, "group")
					r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{
						{Partition: rapid.Int32Range(0, txnModelPartitions-1).Draw(t, "partition")}}}}
					e.c.DeleteOffsets(r, func(*kmsg.OffsetDeleteResponse) {})
				},
				"delete group": func(t *rapid.T) {
					r := kmsg.NewPtrDeleteGroupsRequest()
					r.Groups = []string{rapid.SampledFrom(txnModelGroups).Draw(t, "group")}
					e.c.Delete(r, func(*kmsg.DeleteGroupsResponse) {})
				},
				"delete topic": func(t *rapid.T) {
					e.c.OnPartitionsDeleted([]protocol.TopicPartition{{Topic: "t", Partition: rapid.Int32Range(0, txnModelPartitions-1).Draw(t, "partition")}})
					synctest.Wait()
				},
				"expire": func(t *rapid.T) {
					m.quiet() // what is held back for hours is of no storage
					time.Sleep(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute)
				},
				"time":                func(*rapid.T) { time.Sleep(2 * time.Millisecond) },
				"storage is slow":     func(*rapid.T) { e.log.set(func(l *memLog) { l.hold = true }) },
				"storage answers":     func(*rapid.T) { e.log.release(nil) },
				"storage fails":       func(*rapid.T) { e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas }) },
				"storage is doubtful": func(*rapid.T) { e.log.set(func(l *memLog) { l.doubt = kerr.RequestTimedOut }) },
				"storage works":       func(*rapid.T) { e.log.set(func(l *memLog) { l.fail, l.doubt = nil, nil }) },
				"compare":             m.compare,
			})
			m.compare(rt)
		})
	})
}
