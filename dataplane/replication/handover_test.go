package replication

import (
	"testing"
	"testing/synctest"
	"time"

	"penstock/dataplane/partition"
)

// A leader that another one replaces keeps the answers to its clients until its successor serves it, and
// hears of that at once, though nothing is produced and it would otherwise poll for as long as it may.
func TestTheOldLeaderSoonHearsThatItsSuccessorServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 1})
		defer c.close()
		c.elect(1)
		c.deliverAll()
		time.Sleep(time.Second)
		c.elect(2)
		c.deliver(1) // the successor does not know yet
		told := make(chan time.Time, 2)
		tell := func() { told <- time.Now() }
		c.node(1).m.AwaitSuccessors([]partition.TopicPartition{tp0}, tell)
		time.Sleep(500 * time.Millisecond)
		if len(told) > 0 {
			t.Fatal("a client is sent to a leader that does not know of its office")
		}
		c.deliver(2)
		inOffice := time.Now()
		// It had been refused, and paused for a while as after any error.
		if took := (<-told).Sub(inOffice); took < 0 || took > 210*time.Millisecond {
			t.Errorf("heard of it after %v", took)
		}
		c.deliver(3)

		// And the other way round: the successor is first to know.
		c.elect(1)
		c.deliver(1)
		c.deliver(2)
		began := time.Now()
		c.node(2).m.AwaitSuccessors([]partition.TopicPartition{tp0}, tell)
		if took := (<-told).Sub(began); took > 2*patience {
			t.Errorf("heard of it after %v", took)
		}
	})
}

// A new epoch of the same leader costs a follower neither its connection nor a pause, whoever
// hears of it first.
func TestANewEpochOfALeaderDoesNotCostTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 1})
		defer c.close()
		c.elect(1)
		c.deliverAll()
		time.Sleep(time.Second)
		dialled := c.dialled.Load()
		for i, first := range []int32{1, 2, 1, 2} {
			c.elect(1)
			c.deliver(first)
			time.Sleep(10 * time.Millisecond)
			c.deliverAll()
			time.Sleep(time.Second)
			h := newHistory()
			h.produce(c.node(1), -1, 1)
			time.Sleep(100 * time.Millisecond)
			h.mu.Lock()
			if len(h.acked) != 1 {
				t.Errorf("round %d: followers do not copy in the new epoch", i)
			}
			h.mu.Unlock()
		}
		if n := c.dialled.Load() - dialled; n > 0 {
			t.Errorf("%d new connections", n)
		}
	})
}
