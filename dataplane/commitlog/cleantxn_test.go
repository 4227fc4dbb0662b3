package commitlog

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
)

// txnWords appends a transactional batch of words.
func txnWords(t tb, l *Log, pid int64, seq int32, ws ...string) {
	t.Helper()
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, seq, true
	appendTo(t, l, keyed(o, 1000, ws...), 0)
}

// committed reads what a reader of committed data sees.
func committed(t tb, l *Log) (out []kv) {
	t.Helper()
	aborted, err := l.AbortedTransactions(l.StartOffset(), l.EndOffset())
	must(t, err)
	open := map[int64]bool{}
	for b, err := range recordbatch.Split(readAll(t, l, l.StartOffset(), l.EndOffset(), 1<<20)) {
		must(t, err)
		for len(aborted) > 0 {
			i := slices.IndexFunc(aborted, func(a AbortedTransaction) bool { return a.FirstOffset <= b.LastOffset() })
			if i < 0 {
				break
			}
			open[aborted[i].ProducerID] = true
			aborted = slices.Delete(slices.Clone(aborted), i, i+1)
		}
		if b.IsControl() {
			if m, ok, err := parseMarker(b); err == nil && ok && m.abort {
				delete(open, b.ProducerID())
			}
			continue
		}
		if b.IsTransactional() && open[b.ProducerID()] {
			continue
		}
		must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
			x := kv{offset: r.Offset, key: string(r.Key), value: string(r.Value), ts: r.Timestamp}
			if r.Value == nil {
				x.value = "-"
			}
			out = append(out, x)
			return nil
		}))
	}
	return out
}

// markers lists the offsets of the control batches.
func markers(t tb, l *Log) (out []int64) {
	t.Helper()
	for b, err := range recordbatch.Split(readAll(t, l, l.StartOffset(), l.EndOffset(), 1<<20)) {
		must(t, err)
		if b.IsControl() && b.Count() > 0 {
			out = append(out, b.BaseOffset())
		}
	}
	return out
}

func TestAbortedDataGoesAtOnceAndMarkersWaitForTheirHorizon(t *testing.T) {
	l, fsys := newLog(t, compacted)
	txnWords(t, l, 1, 0, "a=1") // 0, aborted; spans segments
	txnWords(t, l, 2, 0, "a=2") // 1, committed
	must(t, rollNow(l))
	txnWords(t, l, 1, 1, "b=1")    // 2, aborted
	aborts(t, l, 1)                // 3
	commits(t, l, 2)               // 4
	txnWords(t, l, 1, 2, "c=1")    // 5, committed and replaced by 7
	commits(t, l, 1)               // 6
	put(t, l, "c=2")               // 7
	txnWords(t, l, 1, 3, "last=1") // 8, so that 5 is not the producer's last batch
	commits(t, l, 1)               // 9
	must(t, rollNow(l))
	put(t, l, "z=1") // 10
	l.SetHighWatermark(l.EndOffset())

	st := cleanAt(t, l, 0, at(0))
	wantRecords(t, l, "1:a=2 7:c=2 8:last=1 10:z=1")
	if got := words(committed(t, l)); got != "1:a=2 7:c=2 8:last=1 10:z=1" {
		t.Fatalf("committed are %s", got)
	}
	if got := markers(t, l); !slices.Equal(got, []int64{3, 4, 6, 9}) {
		t.Fatalf("markers at %v", got)
	}
	must(t, l.abandon())
	l = openTest(t, fsys, compacted, OpenOptions{}) // the index is built anew from what is left
	l.SetHighWatermark(l.EndOffset())
	if got := words(committed(t, l)); got != "1:a=2 7:c=2 8:last=1 10:z=1" || l.FirstUnstableOffset() != math.MaxInt64 {
		t.Fatalf("after an unclean start committed are %s; unstable from %d", got, l.FirstUnstableOffset())
	}
	cleanAt(t, l, st.End, at(hour-time.Millisecond))
	if got := markers(t, l); !slices.Equal(got, []int64{3, 4, 6, 9}) {
		t.Fatalf("before their horizon markers are at %v", got)
	}
	_, err := l.Clean(context.Background(), CleanOptions{FirstDirty: st.End, UpTo: st.End, Now: at(hour), HorizonsOnly: true})
	must(t, err)
	if got := markers(t, l); !slices.Equal(got, []int64{4, 9}) { // whose data is there still
		t.Fatalf("after their horizon markers are at %v", got)
	}
	must(t, l.abandon())
}

func TestAbortedRecordDoesNotTakeTheCommittedOneBeforeItAlong(t *testing.T) {
	for _, keys := range []int{1, 2, 3, 1000} { // a map that ends anywhere
		l, _ := newLog(t, compacted)
		put(t, l, "a=1", "b=1")     // 0 1
		txnWords(t, l, 1, 0, "a=2") // 2
		must(t, rollNow(l))
		txnWords(t, l, 1, 1, "b=2") // 3
		aborts(t, l, 1)             // 4
		put(t, l, "c=1")            // 5
		must(t, rollNow(l))
		put(t, l, "d=1") // 6
		l.SetHighWatermark(l.EndOffset())
		for firstDirty := int64(0); firstDirty < 6; {
			st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, keys)})
			must(t, err)
			firstDirty = st.End
			if got := newest(committed(t, l)); fmt.Sprint(got) != "map[a:1 b:1 c:1 d:1]" {
				t.Fatalf("map of %d keys, clean up to %d: %v", keys, firstDirty, got)
			}
		}
		wantRecords(t, l, "0:a=1 1:b=1 5:c=1 6:d=1")
		must(t, l.abandon())
	}
}

func TestCompactionStopsAtAnOpenTransaction(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "a=1")
	must(t, rollNow(l))
	txnWords(t, l, 1, 0, "a=2")
	must(t, rollNow(l))
	put(t, l, "a=3")
	must(t, rollNow(l))
	bound := min(l.EndOffset(), l.FirstUnstableOffset())
	c, err := l.Cleanable(-1, bound, at(0))
	must(t, err)
	if c.UpTo != 1 || c.FirstDirty != 0 {
		t.Fatalf("%+v", c)
	}
	if st, err := l.Clean(context.Background(), CleanOptions{UpTo: c.UpTo, Now: at(0), Map: newMap(t, 10)}); err != nil || st.End != 1 {
		t.Fatalf("%+v, %v", st, err)
	}
}
