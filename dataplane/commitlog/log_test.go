package commitlog

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func TestTimeLookupFindsTheFirstRecordInLogOrder(t *testing.T) {
	for _, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip} {
		l, _ := newLog(t, Config{IndexIntervalBytes: -1})
		o := recordbatch.NoProducer()
		o.Codec = codec
		appendTo(t, l, mkBatch(o, 10, 30), 3)
		appendTo(t, l, mkBatch(o, 20), 4)
		appendTo(t, l, mkBatch(o, 40, 40), 5)
		f := func(ts, upTo, offset, timestamp int64, epoch int32) {
			t.Helper()
			o, at, e, found, err := l.OffsetForTimestamp(ts, upTo)
			if err != nil || o != offset || at != timestamp || e != epoch || found != (offset >= 0) {
				t.Errorf("%s, time %d: (%d, %d, epoch %d, %v), %v; want (%d, %d, %d)", codec, ts, o, at, e, found, err, offset, timestamp, epoch)
			}
		}
		f(0, 5, 0, 10, 3)
		f(10, 5, 0, 10, 3)
		f(15, 5, 1, 30, 3)
		f(25, 5, 1, 30, 3)
		f(31, 5, 3, 40, 5)
		f(41, 5, -1, -1, -1)
		f(31, 3, -1, -1, -1) // above what may be seen
		if o, ts, e, found, err := l.MaxTimestampOffset(); o != 3 || ts != 40 || e != 5 || !found || err != nil {
			t.Errorf("largest: (%d, %d, %d, %v), %v", o, ts, e, found, err)
		}
		_, err := l.IncrementStartOffset(2)
		must(t, err)
		f(0, 5, 2, 20, 4)
	}
}

func TestLatestRecordIsFoundThoughALaterOneIsBelowTheStart(t *testing.T) {
	for _, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip} {
		l, fsys := newLog(t, Config{IndexIntervalBytes: -1})
		o := recordbatch.NoProducer()
		o.Codec = codec
		appendTo(t, l, mkBatch(o, 90, 20, 30), 3)
		appendTo(t, l, mkBatch(o, 40), 4)
		appendTo(t, l, mkBatch(o, 10), 4)
		must(t, rollNow(l))
		appendTo(t, l, mkBatch(o, 40, 5), 5)
		f := func(start, offset, timestamp int64, epoch int32) {
			t.Helper()
			_, err := l.IncrementStartOffset(start)
			must(t, err)
			if o, ts, e, found, err := l.MaxTimestampOffset(); o != offset || ts != timestamp || e != epoch || found != (offset >= 0) || err != nil {
				t.Errorf("%s, from %d: (%d, %d, %d, %v), %v; want (%d, %d, %d)", codec, start, o, ts, e, found, err, offset, timestamp, epoch)
			}
		}
		f(0, 0, 90, 3)
		f(1, 3, 40, 4) // in the middle of the batch with the latest
		must(t, l.Close())
		l = openTest(t, fsys, Config{IndexIntervalBytes: -1}, OpenOptions{CleanShutdown: true, LogStartOffset: 1})
		f(1, 3, 40, 4)
		f(4, 5, 40, 5)
		f(6, 6, 5, 5)
		f(7, -1, -1, -1)
		must(t, l.Close())
	}
}

func TestEpochEndsFollowTheDefinition(t *testing.T) {
	l, fsys := newLog(t, Config{})
	if e, o := l.EndOffsetForEpoch(0); e != -1 || o != -1 {
		t.Errorf("empty: (%d, %d)", e, o)
	}
	for _, e := range []int32{2, 2, 5, 7} {
		appendTo(t, l, plain(1, 1), e)
	}
	check := func() {
		t.Helper()
		for _, c := range [][3]int64{{-1, -1, -1}, {0, 0, 0}, {1, 1, 0}, {2, 2, 4}, {3, 2, 4}, {5, 5, 6}, {6, 5, 6}, {7, 7, 8}, {8, -1, -1}} {
			if e, o := l.EndOffsetForEpoch(int32(c[0])); int64(e) != c[1] || o != c[2] {
				t.Errorf("epoch %d: (%d, %d), want (%d, %d)", c[0], e, o, c[1], c[2])
			}
		}
	}
	check()
	must(t, l.Close())
	must(t, vfs.WriteFileAtomic(fsys, dir+"/"+epochsFile, []byte("0\n9\ngarbage")))
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true}) // rebuilt from the batches
	defer l.Close()
	check()
	must(t, l.AssignEpochStart(9, 8))
	if e, o := l.EndOffsetForEpoch(7); e != 7 || o != 8 {
		t.Errorf("after a new epoch: (%d, %d)", e, o)
	}
	if e, ok := l.EpochAt(4); e != 5 || !ok {
		t.Errorf("epoch at 4: %d, %v", e, ok)
	}
	if s, ok := l.EpochStart(7); s != 6 || !ok {
		t.Errorf("start of 7: %d, %v", s, ok)
	}
}

func TestFirstBatchIsReturnedWholeWhateverItsSize(t *testing.T) {
	l, _ := newLog(t, Config{})
	big := mkBatch(recordbatch.NoProducer(), make([]int64, 1000)...)
	appendTo(t, l, big, 0)
	appendTo(t, l, plain(1), 0)
	s, err := l.Read(500, 10, 1001, true)
	if must(t, err); s.Len != len(big) || s.FirstOffset != 0 || s.LastOffset != 999 {
		t.Errorf("got %+v", s)
	}
	s.Close()
	s.Close()
	if s, err := l.Read(0, len(big)-1, 1001, false); err != nil || s.Len != 0 || s.File != nil {
		t.Errorf("without the exception: %+v, %v", s, err)
	}
	if s, err := l.Read(0, math.MaxInt32, 999, true); err != nil || s.Len != 0 {
		t.Errorf("a batch that crosses the bound was given: %+v, %v", s, err)
	}
	if s, err := l.Read(1001, 10, 1001, true); err != nil || s.Len != 0 {
		t.Errorf("at the end: %+v, %v", s, err)
	}
}

func TestFollowerRefusesWhatDoesNotContinueTheLog(t *testing.T) {
	l, _ := newLog(t, Config{})
	at := func(o int64) []byte {
		b := plain(1, 2)
		b.SetBaseOffset(o)
		b.SetLeaderEpoch(1)
		return b
	}
	if _, err := l.AppendFollower(at(0)); err != nil {
		t.Fatal(err)
	}
	_, err := l.AppendFollower(at(1))
	var m *OffsetMismatchError
	if !errors.Is(err, ErrOffsetMismatch) || !errors.As(err, &m) || m.End != 2 || m.First != 1 || m.Last != 2 {
		t.Errorf("overlap: %v", err)
	}
	if _, err := l.AppendFollower(append(at(2), at(2)...)); !errors.Is(err, ErrOffsetMismatch) || l.EndOffset() != 2 {
		t.Errorf("the same batch twice: %v", err)
	}
	if _, err := l.AppendFollower(at(10)); err != nil || l.EndOffset() != 12 { // a gap of compaction
		t.Errorf("gap: %v", err)
	}
	bad := at(12)
	bad[len(bad)-1]++
	if _, err := l.AppendFollower(bad); !errors.Is(err, kerr.CorruptMessage) {
		t.Errorf("bad checksum: %v", err)
	}
	if s, err := l.Read(5, 1000, 12, false); err != nil || s.FirstOffset != 10 {
		t.Errorf("read in the gap: %+v, %v", s, err)
	} else {
		s.Close()
	}
	b := at(1 << 33)
	if _, err := l.AppendFollower(b); err != nil || len(l.segments()) != 2 || l.active().base != 1<<33 {
		t.Errorf("an offset too far for the segment must roll: %v", err)
	}
	if s, err := l.Read(12, 1000, 1<<40, false); err != nil || s.FirstOffset != 1<<33 {
		t.Errorf("read across the gap at the end of a segment: %+v, %v", s, err)
	} else {
		s.Close()
	}
}

func TestSegmentsRollByTimeOfTheRecords(t *testing.T) {
	now := time.UnixMilli(10_000_000)
	l, err := Open(vfs.NewMem(), dir, Config{SegmentAge: time.Second}, OpenOptions{CleanShutdown: true, Now: func() time.Time { return now }})
	must(t, err)
	defer l.Close()
	appendTo(t, l, plain(1000), 0)
	appendTo(t, l, plain(2000), 0)
	if n := len(l.segments()); n != 1 {
		t.Fatalf("%d segments before the time", n)
	}
	appendTo(t, l, plain(2001), 0)
	if n := len(l.segments()); n != 2 || l.active().base != 2 {
		t.Fatalf("%d segments after the time", n)
	}
	appendTo(t, l, plain(-1), 0) // no timestamp: judged by the first batch that has one
	if n := len(l.segments()); n != 2 {
		t.Fatalf("%d segments", n)
	}
}

func TestRetentionByAgeKeepsWhatIsNotCommitted(t *testing.T) {
	cfg := small
	cfg.RetentionAge = time.Hour
	l, fsys := newLog(t, cfg)
	now := time.Now()
	old := now.Add(-2 * time.Hour).UnixMilli()
	for range 60 {
		appendTo(t, l, plain(old), 0)
	}
	bases := l.segments()
	hw := bases[2].base + 1
	n, err := l.DeleteOldSegments(now, hw)
	if err != nil || n != 2 || l.StartOffset() != bases[2].base {
		t.Fatalf("deleted %d, start %d, %v", n, l.StartOffset(), err)
	}
	if left, err := l.RemoveDeleted(now); err != nil || left == 0 {
		t.Fatalf("%d deleted files wait, %v", left, err)
	}
	if left, err := l.RemoveDeleted(now.Add(61 * time.Second)); err != nil || left != 0 {
		t.Fatalf("%d deleted files left, %v", left, err)
	}
	es, _ := fsys.ReadDir(dir)
	for _, e := range es {
		if strings.HasSuffix(e.Name, deletedSuffix) {
			t.Fatalf("%s is still there", e.Name)
		}
	}
	n, err = l.DeleteOldSegments(now, l.EndOffset())
	if err != nil || n == 0 || l.StartOffset() != 60 || l.EndOffset() != 60 || l.Size() != 0 {
		t.Fatalf("all old: deleted %d, %d..%d, %v", n, l.StartOffset(), l.EndOffset(), err)
	}
	if n, err = l.DeleteOldSegments(now, l.EndOffset()); n != 0 || err != nil {
		t.Fatalf("an empty segment was deleted: %d, %v", n, err)
	}
	l.SetConfig(Config{KeepForever: true, RetentionAge: time.Nanosecond})
	appendTo(t, l, plain(1), 0)
	if n, err = l.DeleteOldSegments(now, l.EndOffset()); n != 0 || err != nil {
		t.Fatalf("deleted though the policy is not delete: %d, %v", n, err)
	}
}

func TestSliceStaysReadableWhileItsSegmentGoes(t *testing.T) {
	gone := map[string]func(l *Log) error{
		"truncated and overwritten": func(l *Log) error {
			if _, err := l.TruncateTo(1); err != nil {
				return err
			}
			_, err := l.AppendLeader(plain(7, 7, 7, 7, 7, 7), 1)
			return err
		},
		"restarted": func(l *Log) error { return l.TruncateFullyAndStartAt(100) },
		"retained away": func(l *Log) error {
			l.SetConfig(Config{RetentionBytes: 1, DeleteDelay: -1})
			if n, err := l.DeleteOldSegments(time.Now(), l.EndOffset()); n != 1 {
				return errors.Join(err, errors.New("nothing deleted"))
			}
			_, err := l.RemoveDeleted(time.Now())
			return err
		},
		"closed":  (*Log).Close,
		"deleted": (*Log).Delete,
	}
	for name, do := range gone {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir() + "/t-0"
			l, err := Open(vfs.OS, path, Config{}, OpenOptions{CleanShutdown: true})
			must(t, err)
			defer l.abandon()
			var want []byte
			for range 3 {
				b := plain(1)
				appendTo(t, l, b, 0)
				want = append(want, b...)
			}
			s, err := l.Read(0, 1<<20, 3, true)
			must(t, err)
			must(t, do(l))
			got := make([]byte, s.Len)
			_, err = s.ReadInto(got)
			must(t, err)
			wantBytes(t, got, want)
			f := s.File
			s.Close()
			if name != "truncated and overwritten" {
				// A sync that a roll has begun may hold it a moment longer.
				for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
					if _, err := f.ReadAt(got, 0); err != nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("the file is still open after the last slice")
					}
				}
			}
		})
	}
}

func TestFailedWriteLeavesTheLogAsItWas(t *testing.T) {
	mem := vfs.NewMem()
	broken := errors.New("disk is broken")
	var failing vfs.Op
	fsys := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op, name string) error {
		if op == failing && strings.HasSuffix(name, logSuffix) {
			return broken
		}
		return nil
	}}
	l := openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	b := plain(1, 2)
	appendTo(t, l, bytes.Clone(b), 0)
	failing = vfs.OpWrite
	if _, err := l.AppendLeader(bytes.Clone(b), 0); !errors.Is(err, broken) || !errors.Is(err, kerr.KafkaStorageError) || l.EndOffset() != 2 {
		t.Fatalf("end %d, %v", l.EndOffset(), err)
	}
	failing = ""
	appendTo(t, l, bytes.Clone(b), 0)
	if len(readAll(t, l, 0, 4, 1<<20)) != 2*len(b) {
		t.Fatal("the half-written batch is in the way")
	}
	failing = vfs.OpSync
	if err := l.Flush(); !errors.Is(err, broken) || l.RecoveryPoint() != 0 {
		t.Fatalf("recovery point %d, %v", l.RecoveryPoint(), err)
	}
	failing = ""
	if _, err := l.AppendLeader(bytes.Clone(b), 0); !errors.Is(err, kerr.KafkaStorageError) {
		t.Fatalf("after a failed sync nothing may be promised: %v", err)
	}
	if err := l.Close(); err == nil {
		t.Fatal("closed in order after a failed sync")
	}
}

func TestAppendsAndReadsRunTogether(t *testing.T) {
	path := t.TempDir() + "/t-0"
	cfg := small
	cfg.RetentionBytes = 20_000
	l, err := Open(vfs.OS, path, cfg, OpenOptions{CleanShutdown: true})
	must(t, err)
	defer l.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for from := int64(0); ; {
				select {
				case <-stop:
					return
				default:
				}
				s, err := l.Read(from, 900, l.EndOffset(), true)
				if errors.Is(err, kerr.OffsetOutOfRange) {
					from = l.StartOffset()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				p := make([]byte, s.Len)
				if _, err := s.ReadInto(p); err != nil {
					t.Error(err)
				}
				for b, err := range recordbatch.Split(p) {
					if err != nil || b.LastOffset() < from || b.CRC() != b.ComputeCRC() {
						t.Errorf("read from %d: batch %d, %v", from, b.BaseOffset(), err)
						return
					}
					from = b.NextOffset()
				}
				s.Close()
				if _, _, _, _, err := l.OffsetForTimestamp(from, math.MaxInt64); err != nil {
					t.Error(err)
				}
				l.EndOffsetForEpoch(int32(from % 7))
			}
		})
	}
	for i := range 1500 {
		appendTo(t, l, plain(int64(i), int64(i)), int32(i/300))
		if i%50 == 0 {
			if _, err := l.DeleteOldSegments(time.Now(), l.EndOffset()); err != nil {
				t.Fatal(err)
			}
			if _, err := l.RemoveDeleted(time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if i%400 == 399 {
			if _, err := l.TruncateTo(l.EndOffset() - 4); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
}

func TestAppendAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	l, err := Open(vfs.OS, t.TempDir()+"/t-0", Config{}, OpenOptions{CleanShutdown: true})
	must(t, err)
	defer l.Close()
	seq := int32(0)
	b := idempotent(1, 0, 0, 10)
	appendTo(t, l, bytes.Clone(b), 0)
	n := testing.AllocsPerRun(200, func() {
		seq += 10
		be.PutUint32(b[53:], uint32(seq)) // base sequence; the log does not check the checksum
		if _, err := l.AppendLeader(b, 0); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations an append", n)
	}
	n = testing.AllocsPerRun(200, func() {
		s, err := l.Read(1000, 1<<20, l.EndOffset(), true)
		if err != nil || s.Len == 0 {
			t.Fatal(err)
		}
		s.Close()
	})
	if n > 1 {
		t.Errorf("%v allocations a read", n)
	}
}
