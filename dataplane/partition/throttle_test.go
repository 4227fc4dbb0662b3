package partition

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestThrottleLetsItsRateThrough(t *testing.T) {
	now := time.Unix(100, 0)
	var q throttle
	q.count(1<<30, now)
	if d := q.pause(now); d != 0 {
		t.Errorf("without a rate: %v", d)
	}
	q.set(1000)
	q.count(1000, now)
	if d := q.pause(now); d != 0 {
		t.Errorf("a second's worth: %v", d)
	}
	q.count(500, now)
	if d := q.pause(now); d != 500*time.Millisecond {
		t.Errorf("half a second more: %v", d)
	}
	if d := q.pause(now.Add(500 * time.Millisecond)); d != 0 {
		t.Errorf("later: %v", d)
	}
	q.count(1<<30, now)
	if d := q.pause(now); d != longestThrottle {
		t.Errorf("far above: %v", d)
	}
	for range 1000 { // replicas in sync take more than the rate for long
		q.count(1<<30, now)
	}
	if d := q.pause(now.Add(mostOwed)); d != 0 {
		t.Errorf("what was taken is still owed after %v: %v", mostOwed, d)
	}
	if d := q.pause(now.Add(mostOwed - throttleSlack - time.Millisecond)); d == 0 {
		t.Error("what was taken is forgotten too soon")
	}
	q.set(2000) // what was owed at another rate is forgiven
	if d := q.pause(now); d != 0 {
		t.Errorf("at another rate: %v", d)
	}
	for _, none := range []int64{-1, math.MaxInt64} {
		q.set(none)
		q.count(1<<40, now)
		if d := q.pause(now); d != 0 {
			t.Errorf("at %d: %v", none, d)
		}
	}
	q.set(0)
	if d := q.pause(now.Add(time.Hour)); d != longestThrottle {
		t.Errorf("at 0: %v", d)
	}
}

// A leader sends to a throttled follower within the rate, waking it when there is some left, and
// to one in sync and to others as ever.
func TestLeaderThrottlesFollowersOutOfSync(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.slow = "0:1"
		if err := r.order(tpA, theID, 1, 1, []int32{1, 3}, []int32{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			r.put(tpA, 1, strings.Repeat("v", 1000))
		}
		one := func(offset int64) FetchPart {
			p := from(tpA, offset)
			p.MaxBytes = 1 // a batch
			return p
		}
		size := int64(r.fetch(-1, one(0)).Slice.Len)
		if size != 0 {
			t.Fatal("nothing is committed, and a consumer reads it")
		}
		size = int64(r.fetch(2, one(0)).Slice.Len)
		r.m.SetReplicationThrottle(10*size, -1)
		start, offset := time.Now(), int64(0)
		for offset < 50 {
			res := <-r.fetchAsync(2, one(offset), 500*time.Millisecond, 1)
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			if res.Slice.Len > 0 {
				offset = res.Slice.LastOffset + 1
			}
			res.Slice.Close()
		}
		// Ten at once, then ten a second.
		if d := time.Since(start); d < 3900*time.Millisecond || d > 4200*time.Millisecond {
			t.Errorf("50 batches at 10 a second took %v", d)
		}
		for _, replica := range []int32{2, 3} {
			if got := r.fetch(replica, one(5)).Slice.Len > 0; got != (replica == 3) {
				t.Errorf("replica %d got data: %v", replica, got)
			}
		}
		waits := r.fetchAsync(2, one(50), 50*time.Millisecond, 1)
		if !pending(waits) {
			t.Error("answered although nothing may be sent: the follower would ask without end")
		}
		late := <-waits
		late.Slice.Close()
		r.m.SetReplicationThrottle(0, 0)
		if res := <-r.fetchAsync(2, one(50), time.Second, 1); res.Slice.Len > 0 || res.Err != nil {
			t.Errorf("at a rate of 0: %+v", res)
		}
		r.m.SetReplicationThrottle(-1, -1)
		if r.fetch(2, one(50)).Slice.Len == 0 {
			t.Error("nothing comes without a bound")
		}
		// A partition that is not in the list.
		r.m.SetReplicationThrottle(0, 0)
		r.lead(TopicPartition{Topic: "a", Partition: 1}, 1, 1)
		r.put(TopicPartition{Topic: "a", Partition: 1}, 1, "v")
		if r.fetch(2, from(TopicPartition{Topic: "a", Partition: 1}, 0)).Slice.Len == 0 {
			t.Error("another partition is throttled as well")
		}
		r.slow = ""
		r.m.UpdateTopicConfig("a")
		if r.fetch(2, one(50)).Slice.Len == 0 {
			t.Error("nothing comes when it is no longer in the list")
		}
	})
}

func TestFollowerThrottlesItselfWhileItLags(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.slow = "*"
		r.m.SetReplicationThrottle(-1, 1000)
		r.follow(tpA, 2, 1)
		p := r.m.Partition(tpA)
		take := func(n int, hw int64) {
			t.Helper()
			end := p.EndOffset()
			if _, err := p.AppendFollower(1, end, batchAt(end, 1, 1, strings.Repeat("v", n)), hw, 0); err != nil {
				t.Fatal(err)
			}
		}
		if d := p.ThrottledFor(); d != 0 {
			t.Errorf("before the first fetch: %v", d)
		}
		take(1500, 10)
		d := p.ThrottledFor()
		if d < 500*time.Millisecond || d > 700*time.Millisecond {
			t.Errorf("half a second too much: %v", d)
		}
		time.Sleep(d)
		if d := p.ThrottledFor(); d != 0 {
			t.Errorf("after the pause: %v", d)
		}
		take(3000, 2)
		if d := p.ThrottledFor(); d != 0 {
			t.Errorf("level with the leader: %v", d)
		}
		take(1, 10)
		if d := p.ThrottledFor(); d != longestThrottle {
			t.Errorf("far above: %v", d)
		}
		r.follow(tpA, 3, 2)
		if d := p.ThrottledFor(); d != 0 {
			t.Errorf("with a new leader: %v", d)
		}
		synctest.Wait()
	})
}
