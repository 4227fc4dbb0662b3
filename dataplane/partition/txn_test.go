package partition

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/recordbatch"
)

// txnBatch is n records of a transaction of a producer of epoch 0.
func txnBatch(pid int64, seq int32, n int) recordbatch.Batch {
	return txnBuild(0, pid, seq, false, slices.Repeat([]recordbatch.Record{{Value: []byte("v")}}, n)...)
}

func txnMarker(pid int64, abort bool) recordbatch.Batch { return txnMarkerAt(0, pid, abort) }

func txnMarkerAt(base, pid int64, abort bool) recordbatch.Batch {
	key := []byte{0, 0, 0, 1}
	if abort {
		key[3] = 0
	}
	return txnBuild(base, pid, -1, true, recordbatch.Record{Key: key, Value: make([]byte, 6)})
}

func txnBuild(base, pid int64, seq int32, control bool, recs ...recordbatch.Record) recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.BaseOffset, o.LeaderEpoch = base, 1
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional, o.Control = pid, 0, seq, true, control
	for i := range recs {
		recs[i].Timestamp = time.Now().UnixMilli()
	}
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		panic(err)
	}
	return b
}

// txn appends a batch as the transaction coordinator's side does.
func (r *rig) txn(tp TopicPartition, b recordbatch.Batch) AppendResult {
	r.t.Helper()
	var res AppendResult
	r.m.Append(AppendRequest{Acks: 1, Entries: []AppendEntry{{TP: tp, Records: b, Internal: true}}}, func(rs []AppendResult) { res = rs[0] })
	if res.Err != nil {
		r.t.Fatal(res.Err)
	}
	return res
}

// readCommitted starts a fetch of committed data.
func (r *rig) readCommitted(tp TopicPartition, offset int64, wait time.Duration, minBytes int) chan FetchResult {
	p := from(tp, offset)
	p.MaxBytes = 1 << 20
	ch := make(chan FetchResult, 2)
	r.m.Fetch(FetchRequest{ReplicaID: -1, MaxWait: wait, MinBytes: minBytes, MaxBytes: 10 << 20, ReadCommitted: true, AllowFollower: true, Parts: []FetchPart{p}},
		func(rs []FetchResult) { ch <- rs[0] })
	return ch
}

// wantCommitted fetches committed data at offset: up to last (-1: nothing), with
// the stable offset, the high watermark and the aborted list.
func (r *rig) wantCommitted(tp TopicPartition, offset, last, stable, hw int64, aborted ...commitlog.AbortedTransaction) {
	r.t.Helper()
	res := <-r.readCommitted(tp, offset, 0, 0)
	defer res.Slice.Close()
	got := int64(-1)
	if res.Slice.Len > 0 {
		got = res.Slice.LastOffset
	}
	if res.Err != nil || got != last || res.LastStableOffset != stable || res.HighWatermark != hw || !slices.Equal(res.Aborted, aborted) {
		r.t.Errorf("committed data at %d: up to %d, stable %d, watermark %d, aborted %v, error %v; want %d, %d, %d, %v",
			offset, got, res.LastStableOffset, res.HighWatermark, res.Aborted, res.Err, last, stable, hw, aborted)
	}
	latest, err := r.m.ListOffsets(tp, LatestTimestamp, true, -1, -1)
	if r.m.Partition(tp).IsLeader() && (err != nil || latest.Offset != stable) {
		r.t.Errorf("latest offset of committed data: %+v, %v; want %d", latest, err, stable)
	}
}

type aborted = commitlog.AbortedTransaction

func TestCommittedReadersSeeNothingOfAnOpenTransaction(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.wantCommitted(tpA, 0, -1, 0, 0)
		r.put(tpA, 2, "v")
		r.wantCommitted(tpA, 0, 1, 2, 2)
		r.txn(tpA, txnBatch(7, 0, 1)) // 2
		r.wantCommitted(tpA, 2, -1, 2, 3)
		r.wantCommitted(tpA, 0, 1, 2, 3)
		r.put(tpA, 1, "v") // 3: not of the transaction, and still not to be seen
		for _, o := range []int64{2, 3, 4} {
			r.wantCommitted(tpA, o, -1, 2, 4) // between the stable offset and the end: empty, no error
		}
		wantErr(t, "above the end", (<-r.readCommitted(tpA, 5, 0, 0)).Err, kerr.OffsetOutOfRange)
		if res := r.fetch(-1, from(tpA, 2)); res.Slice.LastOffset != 3 || res.LastStableOffset != 2 || res.Aborted != nil {
			t.Errorf("a reader of uncommitted data got %+v", res)
		}
		latest, err := r.m.ListOffsets(tpA, LatestTimestamp, false, -1, -1)
		if err != nil || latest.Offset != 4 {
			t.Errorf("latest offset of uncommitted data: %+v, %v", latest, err)
		}
		r.txn(tpA, txnMarker(7, true)) // 4
		r.wantCommitted(tpA, 2, 4, 5, 5, aborted{ProducerID: 7, FirstOffset: 2})
		r.wantCommitted(tpA, 0, 4, 5, 5, aborted{ProducerID: 7, FirstOffset: 2})
		if res := r.fetch(-1, from(tpA, 2)); res.Slice.LastOffset != 4 || res.Aborted != nil {
			t.Errorf("a reader of uncommitted data got %+v", res)
		}
		r.txn(tpA, txnBatch(7, 1, 1)) // 5
		r.txn(tpA, txnMarker(7, false))
		r.wantCommitted(tpA, 5, 6, 7, 7)
	})
}

// A marker that is not committed decides nothing: the follower that has not got it
// may be the next leader.
func TestMarkerCountsOnceItIsCommitted(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.txn(tpA, txnBatch(7, 0, 2))  // 0, 1
		r.txn(tpA, txnMarker(7, true)) // 2
		r.put(tpA, 1, "v")             // 3
		r.wantCommitted(tpA, 0, -1, 0, 0)
		for _, acked := range []int64{1, 2} {
			r.fetch(2, from(tpA, acked))
			r.wantCommitted(tpA, 0, -1, 0, acked)
		}
		r.fetch(2, from(tpA, 3))
		r.wantCommitted(tpA, 0, 2, 3, 3, aborted{ProducerID: 7, FirstOffset: 0})
		r.fetch(2, from(tpA, 4))
		r.wantCommitted(tpA, 3, 3, 4, 4)
		if res := r.fetch(2, from(tpA, 0)); res.LastStableOffset != 4 || res.Aborted != nil {
			t.Errorf("a follower got %+v", res)
		}
	})
}

func TestLongPollOfCommittedDataIsWokenByTheStableOffset(t *testing.T) {
	for _, minBytes := range []int{1, 100} {
		inBubble(t, func(r *rig) {
			r.lead(tpA, 1, 1, 2)
			ch := r.readCommitted(tpA, 0, time.Hour, minBytes)
			r.txn(tpA, txnBatch(7, 0, 2)) // 0, 1
			r.fetch(2, from(tpA, 2))
			if !pending(ch) {
				t.Fatal("woken by records of an open transaction")
			}
			r.txn(tpA, txnMarker(7, true)) // 2
			if !pending(ch) {
				t.Fatal("woken by a marker that is not committed")
			}
			r.fetch(2, from(tpA, 3))
			if pending(ch) {
				t.Fatal("not woken by the marker")
			}
			res := <-ch
			defer res.Slice.Close()
			if res.Err != nil || res.Slice.LastOffset != 2 || res.LastStableOffset != 3 || !slices.Equal(res.Aborted, []aborted{{ProducerID: 7}}) {
				t.Errorf("got %+v", res)
			}
		})
	}
}

func TestTimesAreLookedUpBelowTheStableOffset(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		early := time.Now().UnixMilli()
		r.put(tpA, 1, "v") // 0
		time.Sleep(time.Second)
		late := time.Now().UnixMilli()
		r.txn(tpA, txnBatch(7, 0, 1)) // 1
		f := func(ts int64, committed bool, want int64) {
			t.Helper()
			if got, err := r.m.ListOffsets(tpA, ts, committed, -1, -1); err != nil || got.Offset != want {
				t.Errorf("at %d, committed %v: %+v, %v; want %d", ts, committed, got, err, want)
			}
		}
		f(early, true, 0)
		f(late, true, -1)
		f(late, false, 1)
		f(MaxTimestamp, true, -1)
		f(EarliestTimestamp, true, 0)
		r.txn(tpA, txnMarker(7, false))
		f(late, true, 1)
	})
}

func TestStableOffsetNeverLiesBelowTheLogStart(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.txn(tpA, txnBatch(7, 0, 4)) // 0 to 3
		if _, err := r.m.Partition(tpA).Log().IncrementStartOffset(2); err != nil {
			t.Fatal(err)
		}
		r.wantCommitted(tpA, 2, -1, 2, 4)
		wantErr(t, "below the start", (<-r.readCommitted(tpA, 0, 0, 0)).Err, kerr.OffsetOutOfRange)
	})
}

// copyTxn has the follower take in what a leader of epoch 1 sent.
func (r *rig) copyTxn(tp TopicPartition, hw int64, batches ...recordbatch.Batch) {
	r.t.Helper()
	p := r.m.Partition(tp)
	at := p.EndOffset()
	next := at
	var all []byte
	for _, b := range batches {
		b.SetBaseOffset(next)
		next = b.NextOffset()
		all = append(all, b...)
	}
	if _, err := p.AppendFollower(1, at, all, hw, 0); err != nil {
		r.t.Fatal(err)
	}
}

func TestFollowerThatBecomesALeaderKnowsTheTransactions(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		r.copyTxn(tpA, 2, txnBatch(7, 0, 2), txnBatch(8, 0, 1), txnMarker(7, true)) // 0 1, 2, 3
		r.wantCommitted(tpA, 0, -1, 0, 2)
		r.copyTxn(tpA, 4)
		r.wantCommitted(tpA, 0, 1, 2, 4, aborted{ProducerID: 7, FirstOffset: 0}) // readers may ask followers
		r.lead(tpA, 2, 1)
		r.wantCommitted(tpA, 0, 1, 2, 4, aborted{ProducerID: 7, FirstOffset: 0})
		r.txn(tpA, txnMarker(8, true)) // 4: of a transaction that began under the old leader
		r.wantCommitted(tpA, 0, 4, 5, 5, aborted{ProducerID: 7, FirstOffset: 0}, aborted{ProducerID: 8, FirstOffset: 2})
		r.wantCommitted(tpA, 4, 4, 5, 5, aborted{ProducerID: 8, FirstOffset: 2})
	})
}

func TestTransactionsAreThereAfterARestart(t *testing.T) {
	for _, kill := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			r.log.SegmentBytes = 300
			r.lead(tpA, 1, 1)
			for i := range int32(8) {
				r.txn(tpA, txnBatch(7, i, 1)) // 0 to 7
			}
			r.txn(tpA, txnMarker(7, true))  // 8
			r.txn(tpA, txnBatch(8, 0, 1))   // 9
			r.txn(tpA, txnMarker(9, false)) // 10: a producer without data
			if kill {
				r.kill()
				r.start()
			} else {
				r.restart()
			}
			r.lead(tpA, 2, 1)
			for at := int64(0); at <= 8; at++ {
				res := <-r.readCommitted(tpA, at, 0, 0)
				res.Slice.Close()
				if res.Err != nil || res.LastStableOffset != 9 || !slices.Equal(res.Aborted, []aborted{{ProducerID: 7}}) {
					t.Errorf("kill %v, at %d: %+v", kill, at, res)
				}
			}
			r.wantCommitted(tpA, 9, -1, 9, 11)
			r.txn(tpA, txnMarker(8, true)) // 11
			r.wantCommitted(tpA, 11, 11, 12, 12, aborted{ProducerID: 8, FirstOffset: 9})
		})
	}
}

// Whatever is cut off a follower's log, a reader is told what is in what is left.
func TestTruncationReopensTransactions(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		r.copyTxn(tpA, 2, txnBatch(7, 0, 2), txnMarker(7, true), txnBatch(7, 2, 1)) // 0 1, 2, 3
		if err := r.m.Partition(tpA).TruncateTo(1, 2); err != nil {
			t.Fatal(err)
		}
		r.wantCommitted(tpA, 0, -1, 0, 2)
		r.copyTxn(tpA, 4, txnBatch(8, 0, 1), txnMarker(7, false)) // the new leader's end of it: 2, 3
		r.wantCommitted(tpA, 0, 1, 2, 4)
		if err := r.m.Partition(tpA).TruncateFullyAndStartAt(1, 10); err != nil {
			t.Fatal(err)
		}
		r.wantCommitted(tpA, 10, -1, 10, 10)
	})
}

// Readers of committed data beside truncations, aborts and commits: what they are
// given is never more than what is decided, and no aborted record comes unnamed.
func TestCommittedReadersBesideTruncations(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.log.SegmentBytes = 400
		r.follow(tpA, 2, 1)
		stop := make(chan struct{})
		failed := make(chan string, 2)
		for range 2 {
			go func() {
				for {
					select {
					case <-stop:
						failed <- ""
						return
					default:
					}
					res := <-r.readCommitted(tpA, 0, 0, 0)
					if res.Err == nil && res.Slice.Len > 0 && len(res.Aborted) == 0 {
						// All data is aborted in the end: whatever comes must be named.
						failed <- fmt.Sprintf("%d..%d with stable offset %d, and nothing aborted", res.Slice.FirstOffset, res.Slice.LastOffset, res.LastStableOffset)
						res.Slice.Close()
						return
					}
					res.Slice.Close()
				}
			}()
		}
		p := r.m.Partition(tpA)
		for range 100 {
			for seq := range int32(6) {
				r.copyTxn(tpA, p.EndOffset(), txnBatch(7, seq, 1))
			}
			r.copyTxn(tpA, p.EndOffset()+1, txnMarker(7, true))
			if err := p.TruncateTo(1, 3); err != nil { // below the high watermark, as an unclean election may do
				t.Fatal(err)
			}
			if err := p.TruncateFullyAndStartAt(1, 0); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		for range 2 {
			if msg := <-failed; msg != "" {
				t.Error(msg)
			}
		}
		synctest.Wait()
	})
}

func TestIdleProducersAreForgottenAtTheirOwnInterval(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.log.ProducerExpiry = 25 * time.Minute
		r.lead(tpA, 1, 1)
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 5, 0, 3
		send := func() error {
			b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: time.Now().UnixMilli()}})
			if err != nil {
				t.Fatal(err)
			}
			return (<-r.produce(tpA, 1, b)).Err
		}
		wantErr(t, "first", send(), nil)
		time.Sleep(29 * time.Minute) // looked at after 10 and 20
		o.BaseSequence = 9
		wantErr(t, "not looked at yet", send(), kerr.OutOfOrderSequenceNumber)
		time.Sleep(2 * time.Minute) // 30
		wantErr(t, "forgotten", send(), nil)
	})
}
