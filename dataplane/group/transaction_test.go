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
	r := offsetRecord(group, "t", partition, offset{offset: at, epoch: -1, committed: time.Now().UnixMilli(), expires: noExpiry})
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
