package partition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/vfs"
)

// near starts the fetch of a consumer in a rack with those brokers.
func (r *rig) near(brokers []int32, p FetchPart, wait time.Duration) chan FetchResult {
	ch := make(chan FetchResult, 2)
	p.MaxBytes = 1 << 20
	r.m.Fetch(FetchRequest{
		ReplicaID: -1, MaxWait: wait, MinBytes: 1, MaxBytes: 1 << 20, AllowFollower: true, Parts: []FetchPart{p},
		Near: func(id int32) bool { return slices.Contains(brokers, id) },
	}, func(rs []FetchResult) { ch <- rs[0] })
	return ch
}

func TestConsumerIsSentToAReplicaInItsRack(t *testing.T) {
	inBubble(t, func(r *rig) {
		if err := r.order(tpA, theID, 1, 1, []int32{1, 2, 3}, []int32{1, 2, 3, 4}); err != nil {
			t.Fatal(err)
		}
		r.put(tpA, 10, "v")
		start := func(replica int32, offset, start int64) {
			p := from(tpA, offset)
			p.LogStartOffset = start
			r.fetch(replica, p)
		}
		start(2, 10, 0)
		start(3, 6, 3)
		start(4, 10, 0)
		_ = r.nextChange() // 4 is proposed, and not in the set yet
		for _, c := range []struct {
			what   string
			rack   []int32
			offset int64
			want   int32
		}{
			{"in sync and level", []int32{2}, 9, 2},
			{"at the end", []int32{2}, 10, 2},
			{"the leader is there, too", []int32{1, 2}, 0, -1},
			{"nobody", nil, 0, -1},
			{"has the offset", []int32{3}, 3, 3},
			{"has no more than the offset", []int32{3}, 6, 3},
			{"does not have the offset yet", []int32{3}, 7, -1},
			{"does not have the offset any more", []int32{3}, 2, -1},
			{"has most", []int32{2, 3}, 4, 2},
			{"out of sync", []int32{4}, 0, -1},
			{"not a replica", []int32{9}, 0, -1},
		} {
			res := <-r.near(c.rack, from(tpA, c.offset), 0)
			if res.Err != nil || res.Preferred != c.want {
				t.Errorf("%s: sent to %d, %v; want %d", c.what, res.Preferred, res.Err, c.want)
			}
			if res.Preferred >= 0 && (res.Slice.Len > 0 || res.HighWatermark != 6) {
				t.Errorf("%s: sent elsewhere with %d bytes and high watermark %d", c.what, res.Slice.Len, res.HighWatermark)
			}
			res.Slice.Close()
		}
		if res := <-r.near([]int32{2}, from(tpA, 11), 0); res.Err != kerr.OffsetOutOfRange || res.Preferred != -1 {
			t.Errorf("out of range: %v, sent to %d", res.Err, res.Preferred)
		}
		// It is not kept waiting for data that is not here to be read.
		if ch := r.near([]int32{2}, from(tpA, 10), time.Minute); pending(ch) {
			t.Error("sent elsewhere after the long poll only")
		}
		// A follower sends nobody anywhere.
		r.follow(tpB, 2, 1)
		res := <-r.near([]int32{2}, from(tpB, 0), 0)
		if res.Err != nil || res.Preferred != -1 {
			t.Errorf("a follower: %v, sent to %d", res.Err, res.Preferred)
		}
	})
}

// A consumer of a follower reads to the follower's high watermark, is let wait between that and
// the end, and told OFFSET_OUT_OF_RANGE beyond: it then asks the leader again.
func TestConsumerOfAFollower(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		p := r.m.Partition(tpA)
		if _, err := p.AppendFollower(1, 0, batchAt(0, 1, 5, "v"), 3, 0); err != nil {
			t.Fatal(err)
		}
		read := func(offset int64) FetchResult {
			res := <-r.near(nil, from(tpA, offset), 0)
			res.Slice.Close()
			return res
		}
		if res := read(4); res.Err != nil || res.Slice.Len != 0 || res.HighWatermark != 3 {
			t.Errorf("between high watermark and end: %+v", res)
		}
		if res := read(6); res.Err != kerr.OffsetOutOfRange {
			t.Errorf("beyond the end: %v", res.Err)
		}
		ch := r.near(nil, from(tpA, 3), time.Minute)
		if !pending(ch) {
			t.Fatal("answered before there is anything to read")
		}
		if _, err := p.AppendFollower(1, 5, batchAt(5, 1, 1, "w"), 5, 0); err != nil {
			t.Fatal(err)
		}
		if pending(ch) {
			t.Fatal("the high watermark of a follower wakes nobody")
		}
		res := <-ch
		if res.Err != nil || res.Slice.Len == 0 {
			t.Errorf("got %+v", res)
		}
		res.Slice.Close()
	})
}

// Who reads from followers must not wait for the end of their long polls.
func TestFollowerHearsOfTheWatermarkAtOnce(t *testing.T) {
	for _, prompt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &rig{t: t, fs: vfs.NewMem(), minISR: 1, prompt: prompt}
			r.start()
			defer r.stop()
			r.lead(tpA, 1, 1, 2, 3)
			r.fetch(2, from(tpA, 0))
			r.fetch(3, from(tpA, 0))
			r.put(tpA, 1, "v")
			two := r.fetchAsync(2, from(tpA, 1), time.Minute, 1)
			if !pending(two) {
				t.Fatal("answered without news")
			}
			three := r.fetchAsync(3, from(tpA, 1), time.Minute, 1) // moves the watermark itself
			synctest.Wait()
			for i, ch := range []chan FetchResult{two, three} {
				if told := !pending(ch); told != prompt {
					t.Fatalf("with %v follower %d is told: %v", prompt, i+2, told)
				}
			}
			if !prompt {
				return
			}
			if res := <-two; res.HighWatermark != 1 {
				t.Errorf("told %d", res.HighWatermark)
			}
			if !pending(r.fetchAsync(2, from(tpA, 1), time.Minute, 1)) {
				t.Error("told twice of the same")
			}
		})
	}
}
