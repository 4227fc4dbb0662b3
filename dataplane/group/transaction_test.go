package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// transactionLog writes what a log holds that another make's coordinator has
// kept: offsets committed in transactions among others.
type transactionLog struct{ all []coordinator.Logged }

func (l *transactionLog) commit(producer int64, group string, partition int32, at int64) {
	r := offsetRecord(group, "t", committedOffset(partition, at, -1, "", time.Now().UnixMilli(), noExpiry))
	r.Offset = int64(len(l.all))
	l.all = append(l.all, coordinator.Logged{Record: r, Producer: producer})
}

func (l *transactionLog) end(producer int64, how coordinator.TransactionEnd) {
	l.all = append(l.all, coordinator.Logged{Record: coordinator.Record{Offset: int64(len(l.all))}, Producer: producer, End: how})
}

func TestOffsetsOfATransactionCountFromItsCommitOn(t *testing.T) {
	run(t, Config{OffsetsRetention: time.Hour, OffsetsCheckInterval: time.Minute}, func(e *env) {
		var l transactionLog
		l.commit(coordinator.NoTransaction, "g", 0, 1)
		l.commit(7, "g", 0, 2) // committed
		l.commit(7, "g", 1, 20)
		l.commit(8, "g", 0, 3) // aborted
		l.end(8, coordinator.Aborted)
		l.end(7, coordinator.Committed)
		l.commit(9, "g", 2, 4) // overtaken by one outside
		l.commit(coordinator.NoTransaction, "g", 2, 5)
		l.end(9, coordinator.Committed)
		l.commit(9, "g", 3, 6) // overtaken by another transaction that commits earlier
		l.commit(8, "g", 3, 7)
		l.end(8, coordinator.Committed)
		l.end(9, coordinator.Committed)
		l.commit(coordinator.NoTransaction, "g", 4, 8)
		l.commit(9, "g", 4, 9)   // open
		l.commit(9, "new", 0, 1) // open, of a group that has nothing else
		e.log.set(func(m *memLog) { m.logged = l.all })
		e.move()
		for p, want := range []int64{2, 20, 5, 7, 8} {
			if got := e.committed("t", int32(p)); got != want {
				t.Errorf("partition %d: offset %d, want %d", p, got, want)
			}
		}
		stable := func(group string, p int32) int16 {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = "t", []int32{p}
			rg := kmsg.NewOffsetFetchRequestGroup()
			rg.Group, rg.Topics = group, append(rg.Topics, rt)
			return e.c.FetchGroup(rg, true).Topics[0].Partitions[0].ErrorCode
		}
		wantCode(t, stable("g", 3), nil)
		wantCode(t, stable("g", 4), kerr.UnstableOffsetCommit)
		wantCode(t, stable("new", 0), kerr.UnstableOffsetCommit)
		// What a transaction is about to replace does not expire.
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := e.committed("t", 3); got != -1 {
			t.Errorf("an idle offset is still there: %d", got)
		}
		if got := e.committed("t", 4); got != 8 {
			t.Errorf("an offset with a transaction open has expired: %d", got)
		}
		wantCode(t, stable("new", 0), kerr.UnstableOffsetCommit)
	})
}

func (e *env) commitInTransaction(r *kmsg.TxnOffsetCommitRequest) int16 {
	e.t.Helper()
	f := newFuture[kmsg.TxnOffsetCommitResponse](e.t)
	e.c.CommitInTransaction(r, f.done)
	return f.wait().Topics[0].Partitions[0].ErrorCode
}

// stableCode is what a reader is told that wants no offset which is about to change.
func (e *env) stableCode(group string, partition int32) int16 {
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = "t", []int32{partition}
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group, rg.Topics = group, append(rg.Topics, rt)
	return e.c.FetchGroup(rg, true).Topics[0].Partitions[0].ErrorCode
}

func TestOffsetsOfATransactionAreSeenAtItsCommit(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("", -1, "t", 0, 1), nil)
		for _, c := range []struct {
			committed bool
			want      int64
		}{{true, 2}, {false, 2}} {
			wantCode(t, e.commitInTransaction(txnCommitReq(7, "g", 0, c.want)), nil)
			wantCode(t, e.stableCode("g", 0), kerr.UnstableOffsetCommit)
			wantCode(t, e.stableCode("g", 1), nil)
			before := e.committed("t", 0)
			e.c.EndTransaction(0, 8, true) // another's
			e.c.EndTransaction(1, 7, true) // in another partition
			if got := e.committed("t", 0); got != before {
				t.Fatalf("offset %d before the transaction has ended, want %d", got, before)
			}
			e.c.EndTransaction(0, 7, c.committed)
			wantCode(t, e.stableCode("g", 0), nil)
			if got := e.committed("t", 0); got != c.want {
				t.Fatalf("committed %v: offset %d, want %d", c.committed, got, c.want)
			}
		}
	})
}

func TestWhoMayCommitInATransaction(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(2)
		try := func(version int16, member string, generation int32, instance *string) int16 {
			r := txnCommitReq(7, "g", 0, 5)
			r.Version, r.MemberID, r.Generation, r.InstanceID = version, member, generation, instance
			return e.commitInTransaction(r)
		}
		wantCode(t, try(3, ids[0], gen, nil), nil)
		wantCode(t, try(3, ids[0], gen-1, nil), kerr.IllegalGeneration)
		wantCode(t, try(3, "nobody", gen, nil), kerr.UnknownMemberID)
		wantCode(t, try(3, ids[0], gen, new("i")), kerr.UnknownMemberID)
		wantCode(t, try(3, ids[0], -1, nil), kerr.IllegalGeneration)
		wantCode(t, try(3, "", -1, nil), nil)                          // does not say for whom
		wantCode(t, try(2, "nobody", gen-1, new("i")), nil)            // cannot say
		wantCode(t, e.commit("", -1, "t", 0, 1), kerr.UnknownMemberID) // what is refused outside
		r := txnCommitReq(7, "none", 0, 5)
		r.Generation, r.MemberID = 1, "m"
		wantCode(t, e.commitInTransaction(r), kerr.IllegalGeneration)
		r = txnCommitReq(-1, "g", 0, 5)
		wantCode(t, e.commitInTransaction(r), kerr.InvalidProducerIDMapping)

		// In the middle of a rebalance the old generation may, and in the new one
		// who has no assignment yet.
		again := joinReq(7, ids[0])
		again.Protocols[0].Metadata = []byte("news")
		f := e.joinAsync(again)
		f.mustWait()
		wantCode(t, try(3, ids[1], gen, nil), nil)
		e.joinAsync(joinReq(7, ids[1]))
		gen = f.wait().Generation
		e.wantState("CompletingRebalance")
		wantCode(t, try(3, ids[1], gen, nil), nil)
		wantCode(t, e.commit(ids[1], gen, "t", 0, 1), kerr.RebalanceInProgress)
	})
}

func TestAStaticMemberThatWasReplacedMayNotCommitInATransaction(t *testing.T) {
	run(t, Config{}, func(e *env) {
		static := func() *kmsg.JoinGroupResponse {
			r := joinReq(7, "")
			r.InstanceID = new("i")
			return e.join(r)
		}
		old := static()
		wantCode(t, e.syncAsync(old.MemberID, old.Generation, map[string]string{old.MemberID: "a"}).wait().ErrorCode, nil)
		fresh := static()
		r := txnCommitReq(7, "g", 0, 5)
		r.InstanceID, r.MemberID, r.Generation = new("i"), old.MemberID, old.Generation
		wantCode(t, e.commitInTransaction(r), kerr.FencedInstanceID)
		r.MemberID = fresh.MemberID
		wantCode(t, e.commitInTransaction(r), nil)
	})
}

func TestErrorsOfTheStorageInATransaction(t *testing.T) {
	run(t, Config{}, func(e *env) {
		for _, c := range []struct{ storage, want error }{
			{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable},
			{kerr.NotLeaderForPartition, kerr.NotCoordinator},
			{kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch},
			{kerr.InvalidTxnState, kerr.InvalidTxnState},
			{kerr.MessageTooLarge, kerr.InvalidCommitOffsetSize},
		} {
			e.log.set(func(l *memLog) { l.fail = c.storage })
			wantCode(t, e.commitInTransaction(txnCommitReq(7, "g", 0, 5)), c.want)
			wantCode(t, e.stableCode("g", 0), nil)
		}
		e.log.set(func(l *memLog) { l.fail = nil })
		e.c.EndTransaction(0, 7, true)
		if got := e.committed("t", 0); got != -1 {
			t.Errorf("offset %d of a commit that was refused", got)
		}
	})
}

func TestADeletedGroupIsNotBroughtBackByAMarker(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commitInTransaction(txnCommitReq(7, "g", 0, 5)), nil)
		wantCode(t, e.deleteAsync("g").wait().Groups[0].ErrorCode, nil)
		e.log.end(0, 7, coordinator.Committed)
		e.c.EndTransaction(0, 7, true)
		for _, what := range []string{"at once", "after a move"} {
			if got := e.committed("t", 0); got != -1 {
				t.Errorf("%s: offset %d", what, got)
			}
			if s := e.describe().State; s != "Dead" {
				t.Errorf("%s: %s", what, s)
			}
			e.move()
		}
	})
}

// A transaction whose group has nothing else must not keep the group for ever.
func TestAnAbortedTransactionLeavesNoGroup(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commitInTransaction(txnCommitReq(7, "g", 0, 5)), nil)
		e.c.EndTransaction(0, 7, false)
		if g, _ := e.c.find("g", false); g != nil {
			t.Errorf("%+v", g)
		}
		if o := e.c.open[0]; len(o.groups) != 0 {
			t.Errorf("producers are remembered: %v", o.groups)
		}
	})
}
