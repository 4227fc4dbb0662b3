package partition

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/protocol"
)

// deleteTo starts a DeleteRecords of one partition; the channel gets its result.
func (r *rig) deleteTo(tp TopicPartition, offset int64) chan DeleteResult {
	ch := make(chan DeleteResult, 2)
	r.m.DeleteRecords(5*time.Second, []DeletePart{{tp, offset}}, func(rs []DeleteResult) { ch <- rs[0] })
	return ch
}

// fetchFrom is a follower's fetch that tells its log start.
func (r *rig) fetchFrom(replica int32, tp TopicPartition, offset, start int64) FetchResult {
	p := from(tp, offset)
	p.LogStartOffset = start
	return r.fetch(replica, p)
}

func TestDeleteRecordsRefusesWhatItMayNotDelete(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.put(tpA, 10, "v")
		r.follow(tpB, 2, 1)
		for _, c := range []struct {
			what   string
			tp     TopicPartition
			offset int64
			want   error
		}{
			{"above the high watermark", tpA, 11, kerr.OffsetOutOfRange},
			{"below -1", tpA, -2, kerr.OffsetOutOfRange},
			{"a follower", tpB, 0, kerr.NotLeaderForPartition},
			{"led elsewhere", TopicPartition{Topic: "elsewhere"}, 0, kerr.NotLeaderForPartition},
			{"no such partition", TopicPartition{Topic: "none"}, 0, kerr.UnknownTopicOrPartition},
			{"an internal topic", TopicPartition{Topic: protocol.OffsetsTopic}, 0, kerr.InvalidTopicException},
		} {
			res := <-r.deleteTo(c.tp, c.offset)
			wantErr(t, c.what, res.Err, c.want)
			if res.LowWatermark != -1 || res.TP != c.tp {
				t.Errorf("%s: %+v", c.what, res)
			}
		}
		if got := r.m.Partition(tpA).StartOffset(); got != 0 {
			t.Errorf("a refused request raised the log start to %d", got)
		}
		r.keep = true
		r.m.UpdateTopicConfig("a")
		wantErr(t, "compacted only", (<-r.deleteTo(tpA, 5)).Err, kerr.PolicyViolation)
	})
}

func TestDeleteRecordsEndsWhenEveryLiveReplicaHasPassed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.alive = map[int32]bool{1: true, 2: true, 3: true}
		r.lead(tpA, 1, 1, 2, 3)
		r.put(tpA, 10, "v")
		r.fetchFrom(2, tpA, 10, 0)
		r.fetchFrom(3, tpA, 10, 0)
		r.hw(tpA, 10)
		// The follower that polls hears of it at once.
		part := from(tpA, 10)
		poll := r.fetchAsync(2, part, time.Minute, 1)
		first := r.deleteTo(tpA, 4)
		if res := <-poll; res.LogStartOffset != 4 || res.Slice.Len != 0 {
			t.Errorf("the follower is told %+v", res)
		}
		if !pending(first) {
			t.Error("answered before the followers have deleted")
		}
		r.fetchFrom(2, tpA, 10, 4)
		if !pending(first) {
			t.Error("answered before the second follower has deleted")
		}
		r.fetchFrom(3, tpA, 10, 4)
		if res := <-first; res.Err != nil || res.LowWatermark != 4 {
			t.Errorf("%+v", res)
		}
		wantErr(t, "a read below the start", r.fetch(-1, from(tpA, 3)).Err, kerr.OffsetOutOfRange)

		// What is deleted already is answered at once.
		if res := <-r.deleteTo(tpA, 2); res.Err != nil || res.LowWatermark != 4 {
			t.Errorf("again: %+v", res)
		}
		// -1 is the high watermark. Time ends the wait and not the deletion.
		if res := <-r.deleteTo(tpA, -1); res.Err != kerr.RequestTimedOut || res.LowWatermark != 4 {
			t.Errorf("%+v", res)
		}
		if got := r.m.Partition(tpA).StartOffset(); got != 10 {
			t.Errorf("log starts at %d", got)
		}
		// A replica that dies is waited for no longer.
		last := r.deleteTo(tpA, 10)
		r.fetchFrom(3, tpA, 10, 10)
		if !pending(last) {
			t.Error("answered without replica 2")
		}
		r.note(func() { r.alive[2] = false })
		r.m.BrokersChanged()
		if res := <-last; res.Err != nil || res.LowWatermark != 10 {
			t.Errorf("%+v", res)
		}
		// So does the end of the leadership.
		r.note(func() { r.alive[2] = true })
		r.put(tpA, 1, "v")
		r.fetchFrom(2, tpA, 11, 4)
		r.fetchFrom(3, tpA, 11, 10)
		lost := r.deleteTo(tpA, -1)
		r.follow(tpA, 2, 2)
		r.m.BrokersChanged()
		if res := <-lost; res.Err != kerr.NotLeaderForPartition || res.LowWatermark != -1 {
			t.Errorf("%+v", res)
		}
	})
}

func TestDeletedRecordsDoNotComeBackAfterAKill(t *testing.T) {
	inBubble(t, func(r *rig) {
		wantErr(t, "order", r.order(tpA, theID, 1, 1, []int32{1}, []int32{1}), nil)
		r.put(tpA, 10, "v") // one batch: the start lies in its middle
		r.put(tpA, 10, "v")
		if res := <-r.deleteTo(tpA, 7); res.Err != nil || res.LowWatermark != 7 {
			t.Fatalf("%+v", res)
		}
		r.kill()
		r.start()
		r.lead(tpA, 2, 1)
		if got := r.m.Partition(tpA).StartOffset(); got != 7 {
			t.Errorf("log starts at %d after the kill", got)
		}
		res := <-r.fetchAsync(-1, from(tpA, 7), 0, 0)
		if res.Err != nil || res.Slice.FirstOffset != 0 || res.Slice.LastOffset != 19 {
			t.Errorf("the batch that holds the start does not come whole: %+v", res)
		}
		res.Slice.Close()
		if got, err := r.m.ListOffsets(tpA, EarliestTimestamp, false, -1, -1); got.Offset != 7 || err != nil {
			t.Errorf("earliest is %+v, %v", got, err)
		}
		if got, err := r.m.ListOffsets(tpA, EarliestLocal, false, -1, -1); got.Offset != 7 || err != nil {
			t.Errorf("earliest local is %+v, %v", got, err)
		}
		if got, err := r.m.ListOffsets(tpA, LatestTiered, false, -1, -1); got != (OffsetResult{-1, -1, -1}) || err != nil {
			t.Errorf("latest tiered is %+v, %v", got, err)
		}
	})
}

// The leader answers when followers have told it their start: by then a kill must not
// undo it.
func TestFollowerTellsALogStartThatAKillCannotUndo(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		p := r.m.Partition(tpA)
		if _, err := p.AppendFollower(1, 0, batchAt(0, 1, 10, "v"), 10, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := p.AppendFollower(1, 10, nil, 10, 6); err != nil {
			t.Fatal(err)
		}
		st, err := p.FetchState(1)
		if err != nil || st.LogStartOffset != 6 {
			t.Fatalf("%+v, %v", st, err)
		}
		r.kill()
		r.start()
		if got := r.m.Partition(tpA).StartOffset(); got != 6 {
			t.Errorf("log starts at %d after the kill", got)
		}
	})
}
