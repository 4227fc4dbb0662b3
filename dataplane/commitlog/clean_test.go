package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

const hour = time.Hour

// compacted rolls at every few batches, so that a few appends make many segments.
var compacted = Config{SegmentBytes: 600, SegmentIndexBytes: 4800, IndexIntervalBytes: 150, RetentionAge: -1, DeleteDelay: -1, Compact: true, KeepForever: true, DeleteRetention: hour}

// kv is a record as a reader sees it.
type kv struct {
	offset     int64
	key, value string // value "-" is a tombstone
	ts         int64
}

func (r kv) String() string { return fmt.Sprintf("%d:%s=%s", r.offset, r.key, r.value) }

// keyed makes a batch from words like k=v, k=- for a tombstone, =v without a key.
func keyed(o recordbatch.BuildOptions, ts int64, words ...string) recordbatch.Batch {
	var recs []recordbatch.Record
	for i, w := range words {
		k, v, _ := strings.Cut(w, "=")
		r := recordbatch.Record{Timestamp: ts + int64(i), Key: []byte(k), Value: []byte(v), Headers: []recordbatch.Header{{Key: "h", Value: []byte("x")}}}
		if k == "" {
			r.Key = nil
		}
		if v == "-" {
			r.Value = nil
		}
		recs = append(recs, r)
	}
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		panic(err)
	}
	return b
}

// put appends a batch of words.
func put(t tb, l *Log, words ...string) AppendInfo {
	t.Helper()
	return appendTo(t, l, keyed(recordbatch.NoProducer(), 1000, words...), 0)
}

// all reads the records of a log; batches and headers are checked on the way.
func all(t tb, l *Log) []kv {
	t.Helper()
	return recordsFrom(t, l, l.StartOffset())
}

func recordsFrom(t tb, l *Log, from int64) (out []kv) {
	t.Helper()
	raw := readAll(t, l, from, l.EndOffset(), 700)
	last := int64(-1)
	for b, err := range recordbatch.Split(raw) {
		must(t, err)
		if b.BaseOffset() <= last {
			t.Fatalf("batch %d..%d after offset %d", b.BaseOffset(), b.LastOffset(), last)
		}
		last = b.LastOffset()
		if b.IsControl() {
			continue
		}
		must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
			x := kv{offset: r.Offset, key: string(r.Key), value: string(r.Value), ts: r.Timestamp}
			if r.Value == nil {
				x.value = "-"
			}
			if len(r.Headers) != 1 || r.Headers[0].Key != "h" {
				t.Fatalf("record %v has lost its header", x)
			}
			if x.offset >= from { // as a consumer drops what its batch begins with
				out = append(out, x)
			}
			return nil
		}))
	}
	return out
}

func words(rs []kv) string {
	var out []string
	for _, r := range rs {
		out = append(out, r.String())
	}
	return strings.Join(out, " ")
}

func wantRecords(t *testing.T, l *Log, want string) {
	t.Helper()
	if got := words(all(t, l)); got != want {
		t.Fatalf("log holds %s\nwant      %s", got, want)
	}
}

func newMap(t tb, keys int) *OffsetMap {
	m, err := NewOffsetMap(int64(keys+1)*SlotSize, 1)
	must(t, err)
	return m
}

// cleanAt cleans what may be cleaned and gives the new first dirty offset.
func cleanAt(t tb, l *Log, firstDirty int64, now time.Time) CleanStats {
	t.Helper()
	st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: now, Map: newMap(t, 10000)})
	must(t, err)
	return st
}

func at(d time.Duration) time.Time { return time.UnixMilli(1_700_000_000_000).Add(d) }

func TestCleanKeepsTheNewestRecordOfEachKeyAtItsOffset(t *testing.T) {
	for _, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip, recordbatch.CodecSnappy, recordbatch.CodecLZ4, recordbatch.CodecZstd} {
		t.Run(codec.String(), func(t *testing.T) {
			l, fsys := newLog(t, compacted)
			o := recordbatch.NoProducer()
			o.Codec = codec
			appendTo(t, l, keyed(o, 100, "a=1", "b=1", "c=1"), 0)
			appendTo(t, l, keyed(o, 200, "a=2", "b=2"), 1)
			must(t, rollNow(l))
			appendTo(t, l, keyed(o, 300, "b=3", "d=1"), 2)
			must(t, rollNow(l))
			appendTo(t, l, keyed(o, 400, "d=2"), 2)
			st := cleanAt(t, l, 0, at(0))
			wantRecords(t, l, "2:c=1 3:a=2 5:b=3 6:d=1 7:d=2")
			if st.End != 7 || st.RecordsRead != 7 || st.RecordsKept != 4 || st.SegmentsRead != 2 || st.SegmentsNow != 1 {
				t.Fatalf("%+v", st)
			}
			if r := all(t, l)[0]; r.ts != 102 {
				t.Fatalf("record's time is %d", r.ts)
			}
			if e, ok := l.EpochAt(3); e != 1 || !ok {
				t.Fatalf("epoch at 3 is %d", e)
			}
			must(t, l.Close())
			l = openTest(t, fsys, compacted, OpenOptions{CleanShutdown: true})
			wantRecords(t, l, "2:c=1 3:a=2 5:b=3 6:d=1 7:d=2")
			if o, ts, _, ok, err := l.OffsetForTimestamp(0, l.EndOffset()); o != 2 || ts != 102 || !ok || err != nil {
				t.Fatalf("first record by time: %d at %d, %v", o, ts, err)
			}
			must(t, l.abandon())
			l = openTest(t, fsys, compacted, OpenOptions{}) // unclean: all is scanned
			wantRecords(t, l, "2:c=1 3:a=2 5:b=3 6:d=1 7:d=2")
			must(t, l.abandon())
		})
	}
}

func TestReadsAtOffsetsThatCompactionRemovedGoOnAtTheNextRecord(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "a=1")
	put(t, l, "b=1")
	put(t, l, "a=2")
	must(t, rollNow(l))
	put(t, l, "b=2") // the last batch of the first two segments will be emptied
	must(t, rollNow(l))
	put(t, l, "a=3")
	must(t, rollNow(l))
	put(t, l, "c=1")
	l.SetConfig(func() Config { c := compacted; c.SegmentBytes = 130; return c }()) // no joining
	cleanAt(t, l, 0, at(0))
	for from := int64(0); from <= l.EndOffset(); from++ {
		var want []kv
		for _, r := range all(t, l) {
			if r.offset >= from {
				want = append(want, r)
			}
		}
		if got := recordsFrom(t, l, from); !slices.Equal(got, want) {
			t.Fatalf("from %d: %v, want %v", from, got, want)
		}
		// A reader bounded by the high watermark gets as far as that.
		next := from
		for next < l.EndOffset() {
			s, err := l.Read(next, 1, l.EndOffset(), true)
			must(t, err)
			if s.Len == 0 || s.LastOffset < next {
				t.Fatalf("a reader at %d is stuck below %d", next, l.EndOffset())
			}
			next = s.LastOffset + 1
			s.Close()
		}
	}
	for i, s := range l.segments()[1:] {
		if prev := l.segments()[i]; prev.next != s.base {
			t.Fatalf("segment %d ends at %d, the next begins at %d", prev.base, prev.next, s.base)
		}
	}
}

func TestTombstonesStayUntilTheirHorizonHoweverOftenTheLogIsCleaned(t *testing.T) {
	for _, reopen := range []bool{false, true} {
		t.Run(fmt.Sprint("reopen ", reopen), func(t *testing.T) {
			l, fsys := newLog(t, compacted)
			put(t, l, "a=1", "b=1")
			put(t, l, "a=-", "b=2")
			must(t, rollNow(l))
			put(t, l, "z=1")
			firstDirty := int64(0)
			cleanAgain := func(now time.Time) CleanStats {
				t.Helper()
				if reopen {
					must(t, l.Close())
					l = openTest(t, fsys, compacted, OpenOptions{CleanShutdown: true})
				}
				st := cleanAt(t, l, firstDirty, now)
				firstDirty = st.End
				return st
			}
			cleanAgain(at(0)) // the horizon is fixed here: one hour from now
			for _, d := range []time.Duration{time.Minute, 30 * time.Minute, hour - time.Millisecond} {
				cleanAgain(at(d))
				wantRecords(t, l, "2:a=- 3:b=2 4:z=1")
			}
			if r := all(t, l); r[0].ts != 1000 || r[1].ts != 1001 {
				t.Fatalf("times of the records are %d and %d", r[0].ts, r[1].ts)
			}
			if reopen {
				must(t, l.FindHorizons(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: firstDirty, Now: at(hour)}))
			}
			if due, known := l.NextHorizon(firstDirty); !known || due != at(hour).UnixMilli() {
				t.Fatalf("next horizon is %d, known: %v", due, known)
			}
			// No new data has come, and the tombstone goes all the same.
			st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: at(hour), HorizonsOnly: true})
			must(t, err)
			wantRecords(t, l, "3:b=2 4:z=1")
			if due, known := l.NextHorizon(firstDirty); !known || due != math.MaxInt64 || st.SegmentsRead != 1 {
				t.Fatalf("after that the next horizon is %d, known: %v; %+v", due, known, st)
			}
			cleanAgain(at(2 * hour))
			wantRecords(t, l, "3:b=2 4:z=1")
			must(t, l.abandon())
		})
	}
}

func TestTombstoneOfADirtyPartGetsItsHorizonNotBeforeItIsCleaned(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "a=1", "b=1", "c=1", "d=1")
	put(t, l, "e=1", "a=-")
	must(t, rollNow(l))
	put(t, l, "z=1")
	// The map takes two keys: the clean ends in the first batch.
	st, err := l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 2)})
	must(t, err)
	if st.End != 2 || !st.MapFull {
		t.Fatalf("%+v", st)
	}
	cleanAt(t, l, st.End, at(hour))
	if due, _ := l.NextHorizon(6); due != at(2*hour).UnixMilli() {
		t.Fatalf("horizon is %v", time.UnixMilli(due).Sub(at(0)))
	}
	wantRecords(t, l, "1:b=1 2:c=1 3:d=1 4:e=1 5:a=- 6:z=1")
}

func TestMoreKeysThanTheMapHoldsAreCleanedInSeveralRounds(t *testing.T) {
	l, _ := newLog(t, compacted)
	want := map[string]string{}
	for i := range 300 {
		k, v := fmt.Sprint("key", i%130), fmt.Sprint(i)
		put(t, l, k+"="+v)
		want[k] = v
	}
	must(t, rollNow(l))
	firstDirty, rounds := int64(0), 0
	for ; firstDirty < l.active().base; rounds++ {
		st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 7)})
		must(t, err)
		if st.End <= firstDirty {
			t.Fatalf("round %d made no progress: %+v", rounds, st)
		}
		firstDirty = st.End
		got := map[string]string{}
		for _, r := range all(t, l) {
			got[r.key] = r.value
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("after round %d the newest values are %v", rounds, got)
		}
	}
	if rs := all(t, l); len(rs) != 130 || rounds < 20 {
		t.Fatalf("%d records left after %d rounds", len(rs), rounds)
	}
}

func TestRecordsWithoutAKeyAreDroppedAndTheActiveSegmentIsNot(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "=1", "a=1", "=2")
	must(t, rollNow(l))
	put(t, l, "a=2", "=3")
	if st := cleanAt(t, l, 0, at(0)); st.WithoutKey != 2 || st.End != 3 {
		t.Fatalf("%+v", st)
	}
	wantRecords(t, l, "1:a=1 3:a=2 4:=3")
}

func TestBatchesLargerThanTheBuffersAreCleaned(t *testing.T) {
	cfg := compacted
	cfg.SegmentBytes = 1 << 20
	l, _ := newLog(t, cfg)
	big := strings.Repeat("x", 100_000)
	put(t, l, "a="+big, "b="+big)
	put(t, l, "a=1")
	must(t, rollNow(l))
	put(t, l, "z=1")
	_, err := l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 10), Buffer: 512})
	must(t, err)
	wantRecords(t, l, "1:b="+big+" 2:a=1 3:z=1")
}

func TestUnchangedBatchesAreCopiedByteForByteAndAnUnchangedSegmentStays(t *testing.T) {
	l, _ := newLog(t, compacted)
	o := recordbatch.NoProducer()
	o.Codec = recordbatch.CodecZstd
	appendTo(t, l, keyed(o, 1, "a=1", "b=1"), 3)
	must(t, rollNow(l))
	put(t, l, "z=1")
	before := readAll(t, l, 0, 2, 700)
	s := l.segments()[0]
	cleanAt(t, l, 0, at(0))
	wantBytes(t, readAll(t, l, 0, 2, 700), before)
	if l.segments()[0] != s {
		t.Fatal("a segment of which all stays was written anew")
	}
}

func TestHeaderOfAnActiveProducersLastBatchStays(t *testing.T) {
	l, fsys := newLog(t, compacted)
	producer := func(pid int64, seq int32) recordbatch.BuildOptions {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = pid, 1, seq
		return o
	}
	appendTo(t, l, keyed(producer(7, 0), 1, "a=1"), 0)
	last := keyed(producer(7, 1), 1, "a=2", "b=1")
	appendTo(t, l, slices.Clone(last), 0)
	put(t, l, "a=3", "b=2")
	must(t, rollNow(l))
	put(t, l, "a=4")
	cleanAt(t, l, 0, at(0))
	raw := readAll(t, l, 0, 3, 700)
	b, rest, err := recordbatch.Next(raw)
	must(t, err)
	if len(rest) > 0 || b.Count() != 0 || b.BaseOffset() != 1 || b.LastOffset() != 2 || b.ProducerID() != 7 || b.LastSequence() != 2 || len(b) != recordbatch.HeaderSize {
		t.Fatalf("left of the producer is %d..%d, %d records, sequence %d; %d bytes follow", b.BaseOffset(), b.LastOffset(), b.Count(), b.LastSequence(), len(rest))
	}
	must(t, l.abandon())
	l = openTest(t, fsys, compacted, OpenOptions{})
	if info := appendTo(t, l, slices.Clone(last), 0); !info.Duplicate || info.FirstOffset != 1 {
		t.Fatalf("a retry is taken as %+v", info)
	}
	if o, _, _, ok, err := l.MaxTimestampOffset(); !ok || err != nil || o < 3 {
		t.Fatalf("largest time is found at %d, %v, %v", o, ok, err)
	}
	must(t, l.abandon())
}

func TestDamagedBatchEndsACleanAndChangesNothing(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "a=1")
	put(t, l, "a=2")
	must(t, rollNow(l))
	put(t, l, "a=3")
	_, err := l.segments()[0].file.WriteAt([]byte("?"), 70)
	must(t, err)
	_, err = l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 10)})
	if !errors.Is(err, recordbatch.ErrCorrupt) {
		t.Fatalf("clean of a damaged segment: %v", err)
	}
	names(t, l.fs, func(n string) {
		if strings.HasSuffix(n, cleanedSuffix) || strings.HasSuffix(n, swapSuffix) {
			t.Errorf("%s is left", n)
		}
	})
	put(t, l, "b=1")
}

func names(t tb, fsys vfs.FS, fn func(string)) {
	t.Helper()
	es, err := fsys.ReadDir(dir)
	must(t, err)
	for _, e := range es {
		fn(e.Name)
	}
}

func TestTruncationDuringACleanAbortsIt(t *testing.T) {
	l, _ := newLog(t, compacted)
	for i := range 20 {
		put(t, l, fmt.Sprintf("a=%d", i), fmt.Sprintf("b=%d", i))
	}
	must(t, rollNow(l))
	cut := false
	_, err := l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 10), Buffer: 100, Throttle: func(context.Context, int) error {
		if !cut {
			cut = true
			_, err := l.TruncateTo(30)
			return err
		}
		return nil
	}})
	if !errors.Is(err, ErrCleanAborted) {
		t.Fatalf("%v", err)
	}
	if rs := all(t, l); len(rs) != 30 {
		t.Fatalf("%d records are left", len(rs))
	}
}

func TestCloseEndsACleanAndWaitsForIt(t *testing.T) {
	l, _ := newLog(t, compacted)
	put(t, l, "a=1")
	put(t, l, "a=2")
	must(t, rollNow(l))
	closed := make(chan error, 1)
	ended := false
	_, err := l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: at(0), Map: newMap(t, 10), Throttle: func(ctx context.Context, _ int) error {
		if !ended {
			ended = true
			go func() { closed <- l.Close() }()
			<-ctx.Done()
		}
		return ctx.Err()
	}})
	if !errors.Is(err, ErrCleanAborted) {
		t.Fatalf("%v", err)
	}
	must(t, <-closed)
	if _, err := l.Clean(context.Background(), CleanOptions{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("clean of a closed log: %v", err)
	}
}

func TestSegmentsAreNotJoinedBeyondWhatAnIndexCanCount(t *testing.T) {
	l, fsys := newLog(t, compacted)
	var want []string
	for i, base := range []int64{0, 10, math.MaxInt32 - 5, math.MaxInt32 + 10, 3 * math.MaxInt32, 3*math.MaxInt32 + 7} {
		b := keyed(recordbatch.NoProducer(), 1000, fmt.Sprintf("k%d=1", i%5))
		b.SetBaseOffset(base)
		_, err := l.AppendFollower(b)
		must(t, err)
		must(t, rollNow(l))
		if i > 0 { // the newest of k0 is the last
			want = append(want, fmt.Sprintf("%d:k%d=1", base, i%5))
		}
	}
	for range 3 {
		cleanAt(t, l, 0, at(0))
		wantRecords(t, l, strings.Join(want, " "))
	}
	for _, s := range l.segments() {
		if s.next-1-s.base > math.MaxInt32 {
			t.Fatalf("segment %d ends at %d", s.base, s.next)
		}
	}
	for _, clean := range []bool{true, false} {
		must(t, l.Close())
		l = openTest(t, fsys, compacted, OpenOptions{CleanShutdown: clean})
		wantRecords(t, l, strings.Join(want, " "))
	}
	must(t, l.Close())
}
