package group

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// recounted is what the sums that size goes by ought to be, counted anew; called with the
// group's mutex held.
func (g *group) recounted() int64 {
	n := int64(groupCost+len(g.id)) + pendingCost*int64(len(g.pending)) + partitionCost*int64(len(g.inFlight)+len(g.doubtful)+len(g.leftover))
	for _, m := range g.order {
		n += m.size() + int64(len(m.assignment))
	}
	for k, run := range g.offsets.runs {
		n += int64(runCost + len(k.topic))
		for i := range run {
			n += run[i].size()
		}
	}
	for _, tx := range g.open {
		n += tx.bytes
	}
	if cg := g.consumer; cg != nil {
		for _, m := range cg.members {
			n += m.size()
		}
		for _, a := range cg.target {
			n += targetBytes(a)
		}
		for _, r := range cg.regexes {
			n += r.size()
		}
	}
	return n
}

// wantAccounts holds what is charged against what there is.
func wantAccounts(t interface {
	Helper()
	Errorf(string, ...any)
}, c *Coordinator) {
	t.Helper()
	for _, g := range c.groups() {
		g.do(func(*effects) {
			if got, want := g.size(), g.recounted(); g.state != stateDead && got != want {
				t.Errorf("group %s is charged %d bytes, and holds %d", g.id, got, want)
			}
		})
	}
}

func TestGroupsHoldNoMoreMemoryThanTheyMay(t *testing.T) {
	const limit = 100_000
	run(t, Config{Memory: limit, ConsumerProtocol: true}, func(e *env) {
		within := func(most int64) {
			t.Helper()
			wantAccounts(t, e.c)
			if held, _ := e.c.MemoryStats(); held <= 0 || held > most {
				t.Errorf("%d bytes are held, at most %d may be", held, most)
			}
		}
		ids, gen := e.stable(2)
		wantCode(t, e.commit(ids[0], gen, "t", 0, 1), nil)

		// Offsets of ever new groups.
		commitOf := func(group string, partitions int) *kmsg.OffsetCommitResponse {
			r := commitReq("", -1, "t", 0, 1)
			r.Group = group
			for p := 1; p < partitions; p++ {
				r.Topics[0].Partitions = append(r.Topics[0].Partitions, r.Topics[0].Partitions[0])
				r.Topics[0].Partitions[p].Partition = int32(p)
			}
			return e.commitAsync(r).wait()
		}
		groups := 0
		for ; commitOf(fmt.Sprint("filler-", groups), 1).Topics[0].Partitions[0].ErrorCode == 0; groups++ {
			if groups > limit/1000 {
				t.Fatalf("%d groups were taken", groups)
			}
		}
		within(limit * 3 / 4)
		if groups < 10 {
			t.Errorf("only %d groups were taken", groups)
		}
		known := len(e.c.groups())
		if _, refused := e.c.MemoryStats(); refused == 0 {
			t.Error("no refusal is counted")
		}
		// Offsets of one group: those that are there go on.
		wantCode(t, e.commit(ids[0], gen, "t", 0, 2), nil)
		last := int32(1)
		for ; e.commit(ids[0], gen, "t", last, 2) == 0; last++ {
			if last > limit/100 {
				t.Fatalf("%d offsets were taken", last)
			}
		}
		both := commitReq(ids[0], gen, "t", 0, 3)
		both.Topics[0].Partitions = append(both.Topics[0].Partitions, both.Topics[0].Partitions[0])
		both.Topics[0].Partitions[1].Partition = last
		resp := e.commitAsync(both).wait().Topics[0].Partitions
		wantCode(t, resp[0].ErrorCode, nil)
		wantCode(t, resp[1].ErrorCode, kerr.CoordinatorNotAvailable)
		if got := e.committed("t", 0); got != 3 {
			t.Errorf("offset %d, want 3", got)
		}
		within(limit * 3 / 4)

		// New members, of either protocol and in either kind of group.
		wantCode(t, e.join(joinReq(7, "")).ErrorCode, kerr.CoordinatorNotAvailable)
		other := joinReq(3, "")
		other.Group = "another"
		wantCode(t, e.join(other).ErrorCode, kerr.CoordinatorNotAvailable)
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "consumers", "m", 30_000
		beat.SubscribedTopicNames, beat.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		f := newFuture[kmsg.ConsumerGroupHeartbeatResponse](t)
		e.c.ConsumerHeartbeat(ClientInfo{}, func(string) bool { return true }, beat, f.done)
		wantCode(t, f.wait().ErrorCode, kerr.CoordinatorNotAvailable)
		if got := len(e.c.groups()); got != known {
			t.Errorf("%d groups where there were %d", got, known)
		}
		// Members that are there go on, and may grow, within reason.
		wantCode(t, e.heartbeat(ids[1], gen), nil)
		huge := joinReq(7, ids[1])
		huge.Protocols[0].Metadata = make([]byte, limit)
		wantCode(t, e.join(huge).ErrorCode, kerr.CoordinatorNotAvailable)
		wantCode(t, e.heartbeat(ids[1], gen), nil)
		var joins []*future[kmsg.JoinGroupResponse]
		for _, id := range ids {
			r := joinReq(7, id)
			r.Protocols[0].Metadata = make([]byte, 2_000)
			joins = append(joins, e.joinAsync(r))
		}
		gen = joins[0].wait().Generation
		wantCode(t, joins[1].wait().ErrorCode, nil)
		within(limit)
		// An assignment is refused to all who wait for it, and they come again.
		wantCode(t, e.syncAsync(ids[0], gen, map[string]string{ids[1]: string(make([]byte, limit))}).wait().ErrorCode, kerr.CoordinatorNotAvailable)
		e.wantState("PreparingRebalance")
		within(limit)

		// Room that is given back is taken again.
		for g := range groups {
			wantCode(t, e.deleteAsync(fmt.Sprint("filler-", g)).wait().Groups[0].ErrorCode, nil)
		}
		synctest.Wait()
		wantCode(t, commitOf("filler-again", 100).Topics[0].Partitions[99].ErrorCode, nil)
		held, _ := e.c.MemoryStats()
		within(limit)
		e.move()
		within(held + 2*pendingCost)
		e.c.Close()
		if held, _ := e.c.MemoryStats(); held != 0 {
			t.Errorf("%d bytes are held by nobody", held)
		}
	})
}

// A transaction holds what it has written until its end.
func TestOpenTransactionsCountAsMemory(t *testing.T) {
	const limit = 40_000
	run(t, Config{Memory: limit}, func(e *env) {
		commit := func(producer int64, partition int32) int16 {
			r := kmsg.NewPtrTxnOffsetCommitRequest()
			r.Version, r.Group, r.ProducerID, r.Generation = 2, "g", producer, -1
			r.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: partition, Offset: 1}}}}
			f := newFuture[kmsg.TxnOffsetCommitResponse](t)
			e.c.CommitInTransaction(r, f.done)
			return f.wait().Topics[0].Partitions[0].ErrorCode
		}
		n := int32(0)
		for ; commit(int64(n), n) == 0; n++ {
			if n > limit/100 {
				t.Fatalf("%d offsets were taken", n)
			}
		}
		wantAccounts(t, e.c)
		for p := range n {
			e.c.EndTransaction(0, int64(p), false)
		}
		wantCode(t, commit(99_999, 0), nil)
		e.c.EndTransaction(0, 99_999, true)
		wantAccounts(t, e.c)
		time.Sleep(time.Second)
		if got := e.committed("t", 0); got != 1 {
			t.Errorf("offset %d, want 1", got)
		}
	})
}
