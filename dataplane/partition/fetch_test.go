package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

func TestConsumersSeeCommittedRecordsOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 2, "v")
		r.put(tpA, 2, "v")
		r.fetch(2, from(tpA, 2))
		res := r.fetch(-1, from(tpA, 0))
		if res.Err != nil || res.HighWatermark != 2 || res.LastStableOffset != 2 || res.Slice.Len == 0 || res.Slice.LastOffset != 1 {
			t.Errorf("consumer got %+v", res)
		}
		if res := r.fetch(2, from(tpA, 2)); res.Slice.Len == 0 || res.Slice.LastOffset != 3 {
			t.Errorf("follower got %+v", res)
		}
		// Between the high watermark and the end: nothing, and no error.
		for _, o := range []int64{2, 3, 4} {
			if res := r.fetch(-1, from(tpA, o)); res.Err != nil || res.Slice.Len != 0 {
				t.Errorf("at %d: %+v", o, res)
			}
		}
		for _, o := range []int64{-1, 5} {
			wantErr(t, "out of range", r.fetch(-1, from(tpA, o)).Err, kerr.OffsetOutOfRange)
		}
	})
}

func TestFirstBatchComesWholeWhateverTheLimits(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.lead(tpB, 1, 1)
		empty := TopicPartition{Topic: "c"}
		r.lead(empty, 1, 1)
		big := strings.Repeat("x", 2000)
		r.put(tpA, 1, big)
		r.put(tpA, 1, big)
		r.put(tpB, 1, big)
		ch := make(chan []FetchResult, 1)
		parts := []FetchPart{from(empty, 0), from(tpA, 0), from(tpB, 0)}
		for i := range parts {
			parts[i].MaxBytes = 100
		}
		get := func(maxBytes int) []FetchResult {
			r.m.Fetch(FetchRequest{ReplicaID: -1, MaxWait: time.Minute, MinBytes: 1, MaxBytes: maxBytes, Parts: parts}, func(rs []FetchResult) { ch <- rs })
			rs := <-ch
			for i := range rs {
				rs[i].Slice.Close()
			}
			return rs
		}
		rs := get(100)
		if rs[0].Slice.Len != 0 || rs[1].Slice.Len < 2000 || rs[1].Slice.LastOffset != 0 || rs[2].Slice.Len != 0 {
			t.Errorf("lengths %d %d %d", rs[0].Slice.Len, rs[1].Slice.Len, rs[2].Slice.Len)
		}
		if rs[2].Err != nil || rs[2].HighWatermark != 1 {
			t.Errorf("a partition past the limit still tells its watermark: %+v", rs[2])
		}
		parts[1].MaxBytes, parts[2].MaxBytes = 10_000, 10_000
		rs = get(10_000)
		if rs[1].Slice.LastOffset != 1 || rs[2].Slice.Len == 0 {
			t.Errorf("within the limits all comes: %+v", rs)
		}
		parts[1].MaxBytes = 3000
		if rs = get(3000); rs[1].Slice.LastOffset != 0 || rs[2].Slice.Len != 0 {
			t.Errorf("only the first batch may exceed a limit: %+v", rs)
		}
	})
}

func TestLongPollIsWokenByTheHighWatermark(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		consumer := r.fetchAsync(-1, from(tpA, 0), time.Minute, 1)
		followerFetch := r.fetchAsync(2, from(tpA, 0), time.Minute, 1)
		if !pending(consumer) || !pending(followerFetch) {
			t.Fatal("answered with nothing there")
		}
		r.put(tpA, 1, "v")
		if pending(followerFetch) {
			t.Fatal("follower not woken by the append")
		}
		if !pending(consumer) {
			t.Fatal("consumer woken by an uncommitted append")
		}
		res := <-followerFetch
		res.Slice.Close()
		r.fetch(2, from(tpA, 1))
		if pending(consumer) {
			t.Fatal("consumer not woken by the commit")
		}
		res = <-consumer
		if res.Err != nil || res.Slice.Len == 0 || res.HighWatermark != 1 {
			t.Errorf("got %+v", res)
		}
		res.Slice.Close()

		start := time.Now()
		res = <-r.fetchAsync(-1, from(tpA, 1), 300*time.Millisecond, 1)
		if d := time.Since(start); res.Err != nil || d < 300*time.Millisecond || d > 303*time.Millisecond {
			t.Errorf("after %v: %+v", d, res)
		}
	})
}

func TestLongPollWaitsForMinBytes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		one := len(batch(1, strings.Repeat("x", 100)))
		ch := r.fetchAsync(-1, from(tpA, 0), time.Minute, 3*one)
		for i := range 3 {
			if !pending(ch) {
				t.Fatalf("answered after %d batches", i)
			}
			r.put(tpA, 1, strings.Repeat("x", 100))
		}
		if pending(ch) {
			t.Fatal("not answered although the bytes are there")
		}
		res := <-ch
		if res.Slice.Len != 3*one {
			t.Errorf("%d bytes, want %d", res.Slice.Len, 3*one)
		}
		res.Slice.Close()
	})
}

func TestLongPollEndsWithTheRole(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		ch := r.fetchAsync(-1, from(tpA, 0), time.Minute, 1)
		r.follow(tpA, 2, 2)
		if pending(ch) {
			t.Fatal("still waits")
		}
		res := <-ch
		wantErr(t, "fetch", res.Err, kerr.NotLeaderForPartition)
		if res.Leader != 2 || res.LeaderEpoch != 2 {
			t.Errorf("hint %d at %d", res.Leader, res.LeaderEpoch)
		}
	})
}

func TestFetchIsFencedByEpochIDAndAssignment(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 5, 1, 2)
		r.follow(tpB, 2, 5)
		at := func(tp TopicPartition, epoch int32) FetchPart {
			p := from(tp, 0)
			p.CurrentLeaderEpoch = epoch
			return p
		}
		other := from(tpA, 0)
		other.TopicID = [16]byte{1}
		for _, c := range []struct {
			what    string
			replica int32
			p       FetchPart
			want    error
		}{
			{"current", -1, at(tpA, 5), nil},
			{"old epoch", -1, at(tpA, 4), kerr.FencedLeaderEpoch},
			{"new epoch", 2, at(tpA, 6), kerr.UnknownLeaderEpoch},
			{"not assigned, same epoch", 9, at(tpA, 5), kerr.UnknownLeaderEpoch},
			{"not assigned", 9, at(tpA, -1), kerr.NotLeaderForPartition},
			{"from a follower", -1, at(tpB, 5), kerr.NotLeaderForPartition},
			{"unknown", -1, from(TopicPartition{Topic: "nowhere"}, 0), kerr.UnknownTopicOrPartition},
			{"hosted elsewhere", -1, from(TopicPartition{Topic: "elsewhere"}, 0), kerr.NotLeaderForPartition},
			{"another topic of that name", -1, other, kerr.InconsistentTopicID},
		} {
			wantErr(t, c.what, r.fetch(c.replica, c.p).Err, c.want)
		}
		ch := make(chan []FetchResult, 1)
		r.m.Fetch(FetchRequest{ReplicaID: -1, MaxBytes: 100, AllowFollower: true, Parts: []FetchPart{at(tpB, 5)}}, func(rs []FetchResult) { ch <- rs })
		wantErr(t, "follower fetching allowed", (<-ch)[0].Err, nil)
	})
}

func TestDivergingEpochIsToldToTheFetcher(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 3, "v") // epoch 1: 0..2
		r.lead(tpA, 4, 1, 2)
		r.put(tpA, 2, "v") // epoch 4: 3..4
		f := func(offset int64, last int32) FetchResult {
			p := from(tpA, offset)
			p.CurrentLeaderEpoch, p.LastFetchedEpoch = 4, last
			return r.fetch(2, p)
		}
		for _, c := range []struct {
			offset  int64
			last    int32
			epoch   int32
			end     int64
			because string
		}{
			{3, 1, -1, -1, "agrees"},
			{5, 4, -1, -1, "agrees at the end"},
			{4, 1, 1, 3, "wrote more under epoch 1 than the leader has"},
			{4, 2, 1, 3, "wrote under an epoch that the leader does not know"},
			{7, 4, 4, 5, "is ahead in the newest epoch"},
		} {
			res := f(c.offset, c.last)
			if res.Err != nil || res.DivergingEpoch != c.epoch || res.DivergingEndOffset != c.end {
				t.Errorf("%s: got (%d, %d) %v, want (%d, %d)", c.because, res.DivergingEpoch, res.DivergingEndOffset, res.Err, c.epoch, c.end)
			}
		}
		// A diverging position says nothing about what the follower has.
		r.hw(tpA, 5)
	})
}

func TestListOffsets(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		t0 := time.Now().UnixMilli()
		for range 3 {
			r.put(tpA, 1, "v")
			time.Sleep(10 * time.Millisecond)
		}
		r.fetch(2, from(tpA, 2))
		get := func(ts int64, replica int32) (OffsetResult, error) {
			return r.m.ListOffsets(tpA, ts, false, 1, replica)
		}
		for _, c := range []struct {
			what    string
			ts      int64
			replica int32
			want    OffsetResult
		}{
			{"latest of a consumer is the high watermark", LatestTimestamp, -1, OffsetResult{2, -1, 1}},
			{"latest of a replica is the end", LatestTimestamp, 2, OffsetResult{3, -1, 1}},
			{"earliest", EarliestTimestamp, -1, OffsetResult{0, -1, 1}},
			{"first at or after", t0 + 1, -1, OffsetResult{1, t0 + 10, 1}},
			{"exactly", t0 + 10, -1, OffsetResult{1, t0 + 10, 1}},
			{"not committed yet", t0 + 20, -1, OffsetResult{-1, -1, -1}},
			{"later than all", t0 + 1000, -1, OffsetResult{-1, -1, -1}},
			{"tiered", LatestTiered, -1, OffsetResult{-1, -1, -1}},
		} {
			if got, err := get(c.ts, c.replica); err != nil || got != c.want {
				t.Errorf("%s: got %+v, %v; want %+v", c.what, got, err, c.want)
			}
		}
		r.fetch(2, from(tpA, 3))
		if got, err := get(MaxTimestamp, -1); err != nil || got != (OffsetResult{2, t0 + 20, 1}) {
			t.Errorf("max timestamp: %+v, %v", got, err)
		}
		_, err := get(-9, -1)
		wantErr(t, "unknown special", err, kerr.UnsupportedVersion)
		_, err = r.m.ListOffsets(tpA, LatestTimestamp, false, 0, -1)
		wantErr(t, "old epoch", err, kerr.FencedLeaderEpoch)
		_, err = r.m.ListOffsets(tpB, LatestTimestamp, false, -1, -1)
		wantErr(t, "unknown", err, kerr.UnknownTopicOrPartition)
	})
}

// KIP-207: a new leader whose watermark is behind its epoch's start may not
// answer with a lower latest offset than its predecessor did.
func TestLatestOffsetIsNotAvailableBeforeTheEpochIsCommitted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 2, "v")
		r.lead(tpA, 2, 1, 2)
		_, err := r.m.ListOffsets(tpA, LatestTimestamp, false, -1, -1)
		wantErr(t, "latest", err, kerr.OffsetNotAvailable)
		_, err = r.m.ListOffsets(tpA, time.Now().UnixMilli(), false, -1, -1)
		wantErr(t, "by time", err, kerr.OffsetNotAvailable)
		_, err = r.m.ListOffsets(tpA, EarliestTimestamp, false, -1, -1)
		wantErr(t, "earliest", err, nil)
		r.fetch(2, from(tpA, 2))
		got, err := r.m.ListOffsets(tpA, LatestTimestamp, false, -1, -1)
		if err != nil || got.Offset != 2 {
			t.Errorf("got %+v, %v", got, err)
		}
		e, end, err := r.m.EpochEndOffset(tpA, 2, 1)
		if e != 1 || end != 2 || err != nil {
			t.Errorf("epoch 1 ends (%d, %d) %v", e, end, err)
		}
	})
}

// A reply keeps the files it is sent from open for as long as its reader takes. It must not
// take more than logs may have, or appends and other readers find none left.
func TestReplyOfManyPartitionsKeepsFewFilesOpen(t *testing.T) {
	const limit, partitions = 8, 40
	commitlog.LimitOpenFiles(limit)
	t.Cleanup(func() { commitlog.LimitOpenFiles(0) })
	inBubble(t, func(r *rig) {
		var parts []FetchPart
		for i := range int32(partitions) {
			tp := TopicPartition{Topic: "wide", Partition: i}
			r.lead(tp, 1, 1)
			r.put(tp, 1, "v")
			part := from(tp, 0)
			part.MaxBytes = 1 << 20
			parts = append(parts, part)
		}
		held := map[TopicPartition]commitlog.Slice{}
		fetch := func(parts []FetchPart) (got int) {
			ch := make(chan []FetchResult, 1)
			// More than there is: a reply that is cut short does not wait for it.
			r.m.Fetch(FetchRequest{ReplicaID: -1, MaxWait: time.Minute, MinBytes: 1 << 20, MaxBytes: 1 << 30, Parts: parts}, func(rs []FetchResult) { ch <- rs })
			for _, res := range <-ch {
				if res.Err != nil {
					t.Fatalf("%v: %v", res.TP, res.Err)
				}
				if res.Slice.Len > 0 {
					held[res.TP] = res.Slice
					got++
				}
			}
			return got
		}
		if got := fetch(parts); got < limit/2 || got > limit+1 {
			t.Errorf("the first reply has data of %d partitions, logs may have %d files", got, limit)
		}
		next := parts[len(held):]
		if got := fetch(next); got != 1 {
			t.Errorf("with all files in use a reply has data of %d partitions", got)
		}
		for tp, s := range held {
			s.Close()
			delete(held, tp)
		}
		// A client asks for what it has not got first.
		for left := partitions; left > 0; {
			got := fetch(parts[partitions-left:])
			if got == 0 {
				t.Fatalf("%d partitions are never served", left)
			}
			left -= got
			for tp, s := range held {
				s.Close()
				delete(held, tp)
			}
		}
	})
}
