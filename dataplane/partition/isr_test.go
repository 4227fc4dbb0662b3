package partition

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// A follower that reads on and on but never reaches the end is in sync as long
// as it reaches, within the lag time, where the end was.
func TestISRShrinksBetweenOneAndOneAndAHalfLagTimes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2, 3)
		start := time.Now()
		r.put(tpA, 1, "v")
		stop := time.After(100 * time.Second)
		var c *ISRChange
		for o := int64(0); c == nil; o++ {
			select {
			case <-stop:
				t.Fatal("never shrunk")
			case <-time.After(time.Second):
			}
			r.fetch(2, from(tpA, o)) // always what the end was a second ago
			r.put(tpA, 1, "v")
			c = r.nextChange()
		}
		if d := time.Since(start); d < 30*time.Second || d > 47*time.Second {
			t.Errorf("shrunk after %v", d)
		}
		if !slices.Equal(c.ISR, []int32{1, 2}) || c.LeaderEpoch != 1 || c.PartitionEpoch != 10 || c.TopicID != theID {
			t.Errorf("proposal %+v", c)
		}
		p := r.m.Partition(tpA)
		before := p.HighWatermark()
		if before != 0 {
			t.Errorf("high watermark %d with a replica that has nothing", before)
		}
		c.agree()
		if got := p.ISR(); !slices.Equal(got, []int32{1, 2}) || p.HighWatermark() == before {
			t.Errorf("set %v, high watermark %d after the controller agreed", got, p.HighWatermark())
		}
	})
}

func TestFollowerThatHasCaughtUpIsProposedAndHoldsTheWatermark(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.put(tpA, 2, "v")
		r.hw(tpA, 2)
		r.fetch(2, from(tpA, 1))
		if c := r.nextChange(); c != nil {
			t.Fatalf("proposed below the high watermark: %+v", c)
		}
		r.fetch(2, from(tpA, 2))
		c := r.nextChange()
		if c == nil || !slices.Equal(c.ISR, []int32{1, 2}) {
			t.Fatalf("proposal %+v", c)
		}
		r.put(tpA, 1, "v")
		r.hw(tpA, 2)
		// The proposed set counts already, even if the replica falls behind.
		time.Sleep(40 * time.Second)
		r.put(tpA, 1, "v")
		r.hw(tpA, 2)
		r.fetch(3, from(tpA, 4))
		if c := r.nextChange(); c != nil {
			t.Errorf("a second proposal while one is in flight: %+v", c)
		}
		c.agree()
		r.hw(tpA, 2)
		r.fetch(2, from(tpA, 3))
		r.hw(tpA, 3)
		r.fetch(2, from(tpA, 4))
		r.hw(tpA, 4)
	})
}

func TestDeadReplicaIsNotProposed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.alive = map[int32]bool{1: true}
		r.lead(tpA, 1, 1)
		r.fetch(2, from(tpA, 0))
		if c := r.nextChange(); c != nil {
			t.Errorf("proposal %+v", c)
		}
		r.put(tpA, 1, "v")
		r.hw(tpA, 1)
	})
}

func TestReplicaThatDiesOutsideTheSetFreesTheWatermark(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.fetch(3, from(tpA, 0))
		r.fetch(2, from(tpA, 0)) // not proposed, since 3 is in flight
		r.nextChange().Done(ISRResult{}, kerr.IneligibleReplica)
		r.put(tpA, 1, "v")
		r.hw(tpA, 0) // 2 is about to join
		r.note(func() { r.alive = map[int32]bool{1: true} })
		time.Sleep(16 * time.Second)
		r.hw(tpA, 1)
	})
}

func TestFollowerMustReachTheLeadersEpoch(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 3)
		r.put(tpA, 2, "v")
		r.lead(tpA, 2, 1, 3) // the epoch starts at 2, the high watermark is 0
		r.fetch(2, from(tpA, 1))
		if c := r.nextChange(); c != nil {
			t.Errorf("proposed before it has all from before the epoch: %+v", c)
		}
		r.fetch(2, from(tpA, 2))
		if c := r.nextChange(); c == nil {
			t.Error("not proposed")
		}
	})
}

func TestRefusedISRChange(t *testing.T) {
	for _, c := range []struct {
		err        error
		rolledBack bool // a new proposal comes with the next fetch
		again      bool // the same one is made again by itself
	}{
		{kerr.IneligibleReplica, true, false},
		{kerr.OperationNotAttempted, true, false},
		{kerr.FencedLeaderEpoch, false, false},
		{kerr.InvalidUpdateVersion, false, false},
		{kerr.UnknownTopicID, false, false},
		{kerr.UnknownServerError, false, true},
		{errors.New("odd"), false, true},
	} {
		inBubble(t, func(r *rig) {
			r.lead(tpA, 1, 1)
			r.fetch(2, from(tpA, 0))
			first := r.nextChange()
			if first == nil {
				t.Fatal("no proposal")
			}
			first.Done(ISRResult{}, c.err)
			if got := r.nextChange(); got != nil {
				t.Errorf("%v: proposed at once: %+v", c.err, got)
			}
			time.Sleep(60 * time.Millisecond)
			synctest.Wait()
			again := r.nextChange()
			if (again != nil) != c.again {
				t.Errorf("%v: made again: %v", c.err, again != nil)
			}
			r.fetch(2, from(tpA, 0))
			if got := r.nextChange(); (got != nil) != c.rolledBack {
				t.Errorf("%v: new proposal: %v", c.err, got != nil)
			}
			// News from the controller opens the way in any case, and an old answer is void.
			r.lead(tpA, 2, 1)
			first.agree()
			if got := r.m.Partition(tpA).ISR(); !slices.Equal(got, []int32{1}) {
				t.Errorf("%v: an old answer was taken: %v", c.err, got)
			}
			r.fetch(2, from(tpA, 0))
			if r.nextChange() == nil {
				t.Errorf("%v: nothing proposed under the new epoch", c.err)
			}
		})
	}
}

// KIP-903: what a follower had in one life of its broker says nothing of the next.
func TestProposalNamesTheLivesThatItGoesBy(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 3)
		r.put(tpA, 3, "v")
		r.fetchIn(2, 7, from(tpA, 3))
		c := r.nextChange()
		if c == nil || !slices.Equal(c.ISR, []int32{1, 3, 2}) || !slices.Equal(c.Epochs, []int64{50, -1, 7}) {
			t.Fatalf("proposal %+v", c)
		}
		// The broker is started anew with less. The same proposal, made again, is still about the old life.
		r.fetchIn(2, 8, from(tpA, 1))
		c.Done(ISRResult{}, kerr.UnknownServerError)
		time.Sleep(60 * time.Millisecond)
		synctest.Wait()
		if c = r.nextChange(); c == nil || !slices.Equal(c.Epochs, []int64{50, -1, 7}) {
			t.Fatalf("proposal made again %+v", c)
		}
		c.Done(ISRResult{}, kerr.IneligibleReplica)
		r.fetchIn(3, 4, from(tpA, 3))
		r.hw(tpA, 3)
		time.Sleep(60 * time.Millisecond)
		r.fetchIn(2, 8, from(tpA, 2))
		if c = r.nextChange(); c != nil {
			t.Errorf("proposed for what an earlier life had: %+v", c)
		}
		r.fetchIn(2, 8, from(tpA, 3))
		if c = r.nextChange(); c == nil || !slices.Equal(c.Epochs, []int64{50, 4, 8}) {
			t.Errorf("proposal %+v", c)
		}
	})
}

func TestFetchOfALifeThatIsOverIsRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 3, "v")
		r.fetchIn(2, 8, from(tpA, 1))
		r.hw(tpA, 1)
		if res := r.fetchIn(2, 7, from(tpA, 3)); !errors.Is(res.Err, kerr.NotLeaderForPartition) {
			t.Errorf("got %v", res.Err)
		}
		r.hw(tpA, 1)
		// A leader by a later epoch goes on knowing it; one that does not tell is let in.
		r.lead(tpA, 2, 1, 2)
		if res := r.fetchIn(2, 7, from(tpA, 3)); !errors.Is(res.Err, kerr.NotLeaderForPartition) {
			t.Errorf("under the next epoch got %v", res.Err)
		}
		if res := r.fetchIn(2, -1, from(tpA, 3)); res.Err != nil {
			t.Errorf("got %v", res.Err)
		}
		r.hw(tpA, 3)
	})
}

// A replica that was in sync in its last life is not for having been so (it may
// have lost its tail): it leaves the set unless it catches up.
func TestNewLifeHasToCatchUpItself(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 3, "v")
		r.fetchIn(2, 7, from(tpA, 3))
		time.Sleep(14 * time.Second)
		r.fetchIn(2, 8, from(tpA, 1))
		time.Sleep(2 * time.Second) // the scan at 15 s
		synctest.Wait()
		if c := r.nextChange(); c == nil || !slices.Equal(c.ISR, []int32{1}) {
			t.Errorf("proposal %+v", c)
		}
	})
}

// KAFKA-15021: a follower that keeps up but that the controller will not have in the
// set (its broker is stopping) must not hold back what the set has.
func TestReplicaThatTheControllerRefusesHoldsNothingBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.fetch(2, from(tpA, 0))
		c := r.nextChange()
		res := r.produce(tpA, -1, batch(1, "v"))
		if !pending(res) {
			t.Fatal("acknowledged while the replica may be in the set")
		}
		c.Done(ISRResult{}, kerr.IneligibleReplica)
		if pending(res) {
			t.Fatal("a replica that was refused holds the watermark back")
		}
		if got := <-res; got.Err != nil {
			t.Fatal(got.Err)
		}
		r.fetch(2, from(tpA, 1)) // at once again: not asked, not waited for
		if c := r.nextChange(); c != nil {
			t.Errorf("asked again at once: %+v", c)
		}
		r.put(tpA, 1, "v")
		r.hw(tpA, 2)
		time.Sleep(60 * time.Millisecond)
		r.fetch(2, from(tpA, 2))
		if c = r.nextChange(); c == nil {
			t.Fatal("never asked again")
		}
		r.put(tpA, 1, "v")
		r.hw(tpA, 2) // it may be in the set by now
		c.agree()
		r.fetch(2, from(tpA, 3))
		r.hw(tpA, 3)
	})
}
