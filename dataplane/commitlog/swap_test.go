package commitlog

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// leftBehind is a log of three segments, at 0, 3 and 5, the last one active, and the
// compacted form of the first two, as files by name without directory.
func leftBehind(t *testing.T) (fsys *vfs.Mem, old, compact map[string][]byte) {
	t.Helper()
	fsys = vfs.NewMem()
	l := openTest(t, fsys, compacted, OpenOptions{CleanShutdown: true})
	put(t, l, "a=1")
	put(t, l, "b=1")
	put(t, l, "a=2")
	must(t, rollNow(l))
	put(t, l, "b=2")
	put(t, l, "c=1")
	must(t, rollNow(l))
	put(t, l, "c=2")
	must(t, l.Flush())
	old = segmentFiles(t, fsys)
	cleanAt(t, l, 0, at(0))
	compact = segmentFiles(t, fsys)
	must(t, l.Close())
	for name := range compact {
		must(t, fsys.Remove(filepath.Join(dir, name)))
	}
	maps := map[string][]byte{}
	for name, b := range compact {
		if strings.HasPrefix(name, "00000000000000000000") {
			maps[name] = b
		}
	}
	return fsys, old, maps
}

func segmentFiles(t *testing.T, fsys vfs.FS) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	names(t, fsys, func(n string) {
		for _, s := range segmentSuffixes {
			if strings.HasSuffix(n, s) {
				b, err := vfs.ReadFile(fsys, filepath.Join(dir, n), 1<<20)
				must(t, err)
				out[n] = b
			}
		}
	})
	return out
}

// TestStartFinishesOrUndoesWhatACompactionLeft has the folders that Apache Kafka, or we,
// leave behind when killed at each step of a clean.
func TestStartFinishesOrUndoesWhatACompactionLeft(t *testing.T) {
	const before, after = "0:a=1 1:b=1 2:a=2 3:b=2 4:c=1 5:c=2", "2:a=2 3:b=2 4:c=1 5:c=2"
	first, second := []string{logSuffix, indexSuffix, timeSuffix}, segmentPath("", 3, "")
	for _, x := range []struct {
		name   string
		suffix map[string]string // of the compacted files, by kind; "" is the live name, absent none
		old    func(name string) string
		want   string
	}{
		{"nothing is whole", map[string]string{logSuffix: ".cleaned", indexSuffix: ".cleaned"}, keepName, before},
		{"the log alone is called swap", map[string]string{logSuffix: ".swap", indexSuffix: ".cleaned", timeSuffix: ".cleaned"}, keepName, before},
		{"all are called swap", map[string]string{logSuffix: ".swap", indexSuffix: ".swap", timeSuffix: ".swap"}, keepName, after},
		{"an old segment is on its way out", map[string]string{logSuffix: ".swap", indexSuffix: ".swap", timeSuffix: ".swap"}, func(n string) string {
			if strings.HasPrefix(n, "00000000000000000000") {
				return n + ".deleted"
			}
			return n
		}, after},
		{"all old segments are out", map[string]string{logSuffix: ".swap", indexSuffix: ".swap", timeSuffix: ".swap"}, func(n string) string {
			if strings.HasPrefix(n, "00000000000000000005") {
				return n
			}
			return n + ".deleted"
		}, after},
		{"the log has its name", map[string]string{logSuffix: "", indexSuffix: ".swap", timeSuffix: ".swap"}, func(n string) string {
			if strings.HasPrefix(n, "00000000000000000005") {
				return n
			}
			return n + ".deleted"
		}, after},
		{"an index is missing", map[string]string{logSuffix: ".swap", timeSuffix: ".swap"}, keepName, after},
	} {
		for _, clean := range []bool{false, true} {
			t.Run(fmt.Sprint(x.name, ", clean ", clean), func(t *testing.T) {
				fsys, old, compact := leftBehind(t)
				write := func(name string, b []byte) { must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), b)) }
				for name, b := range old {
					write(x.old(name), b)
				}
				for _, kind := range first {
					if suffix, ok := x.suffix[kind]; ok {
						name := "00000000000000000000" + kind
						write(name+suffix, compact[name])
					}
				}
				for range 2 {
					l := openTest(t, fsys, compacted, OpenOptions{CleanShutdown: clean})
					wantRecords(t, l, x.want)
					if l.EndOffset() != 6 {
						t.Fatalf("log ends at %d", l.EndOffset())
					}
					must(t, l.abandon())
				}
				names(t, fsys, func(n string) {
					if strings.HasSuffix(n, ".swap") || strings.HasSuffix(n, ".cleaned") || strings.HasSuffix(n, ".deleted") || x.want == after && strings.HasPrefix(n, strings.TrimPrefix(second, "/")) {
						t.Errorf("%s is left", n)
					}
				})
			})
		}
	}
}

func keepName(n string) string { return n }

// TestSwapOfASplitThatIsNotWholeGoes: Kafka splits a segment into several; when only
// some have got to .swap, the .cleaned ones tell that none counts.
func TestSwapOfASplitThatIsNotWholeGoes(t *testing.T) {
	fsys, old, compact := leftBehind(t)
	for name, b := range old {
		must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), b))
	}
	log := compact["00000000000000000000.log"]
	for _, name := range []string{"00000000000000000002.log.swap", "00000000000000000000.log.cleaned"} {
		must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, name), log))
	}
	l := openTest(t, fsys, compacted, OpenOptions{})
	wantRecords(t, l, "0:a=1 1:b=1 2:a=2 3:b=2 4:c=1 5:c=2")
	must(t, l.abandon())
}

// TestHolesThatKafkaLeavesBetweenSegmentsAreNotTakenForALostEnd: its compaction removes
// a segment's last batches, and its checkpoint says how far it has been. Above that a
// hole is the lost end of a segment: also of a compacted topic, since our own compaction
// leaves no hole there.
func TestHolesThatKafkaLeavesBetweenSegmentsAreNotTakenForALostEnd(t *testing.T) {
	for _, x := range []struct {
		name     string
		compact  bool
		upTo     int64 // the cleaner's checkpoint
		recovery int64
		want     string // none: the log cannot be used
	}{
		{"cleaned", true, 5, 0, "2:a=2 5:b=4"},
		{"cleaned, and the policy changed", false, 5, 0, "2:a=2 5:b=4"},
		{"a lost end, or killed before the cleaner's checkpoint", true, 0, 0, "2:a=2"},
		{"a lost end that was not flushed", true, 0, 3, "2:a=2"},
		{"killed before the cleaner's checkpoint, the missing batch had been flushed", true, 0, 4, "2:a=2 5:b=4"},
		{"a lost end", false, 0, 0, "2:a=2"},
		{"an end is missing that was flushed", false, 0, 4, ""},
	} {
		fsys := vfs.NewMem()
		cfg := compacted
		cfg.Compact = x.compact
		l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
		put(t, l, "a=1")
		put(t, l, "b=1")
		put(t, l, "a=2")
		put(t, l, "b=2")
		info := put(t, l, "b=3")
		must(t, rollNow(l))
		put(t, l, "b=4")
		must(t, l.Flush())
		// What a clean of Kafka would leave of the first segment: its third batch.
		s := l.segments()[0]
		raw := make([]byte, s.size)
		_, err := s.file.ReadAt(raw, 0)
		must(t, err)
		var left []byte
		for b, err := range recordbatch.Split(raw) {
			must(t, err)
			if b.BaseOffset() == 2 {
				left = b
			}
		}
		must(t, l.abandon())
		must(t, vfs.WriteFileAtomic(fsys, filepath.Join(dir, "00000000000000000000.log"), left))
		// The recovery point lies in the first segment: it alone is read through.
		l, err = Open(fsys, dir, cfg, OpenOptions{CleanedUpTo: x.upTo, RecoveryPoint: x.recovery})
		if info.LastOffset != 4 {
			t.Fatal(info)
		}
		if x.want == "" {
			if err == nil {
				t.Errorf("%s: the log is opened, and ends at %d", x.name, l.EndOffset())
			}
			continue
		}
		must(t, err)
		t.Log(x.name)
		wantRecords(t, l, x.want)
		must(t, l.abandon())
	}
}

// TestCompactionBesideReadersAndAppends has readers at the start, in the middle and at
// random old offsets while the log is appended to, rolled, and compacted over and over.
func TestCompactionBesideReadersAndAppends(t *testing.T) {
	l, _ := newLog(t, compacted)
	var done atomic.Bool
	var wg sync.WaitGroup
	var acked [8]atomic.Int64
	wg.Go(func() {
		defer done.Store(true)
		for i := range 1500 {
			k := i % len(acked)
			appendTo(t, l, keyed(recordbatch.NoProducer(), int64(i), fmt.Sprintf("k%d=%d", k, i)), 0)
			acked[k].Store(int64(i))
		}
	})
	var cleans int
	wg.Go(func() {
		firstDirty := int64(0)
		offsets := newMap(t, 20)
		for !done.Load() {
			st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: at(0), Map: offsets, Buffer: 300})
			if errors.Is(err, ErrCleanAborted) {
				continue
			}
			must(t, err)
			firstDirty = st.End
			cleans++
			_, err = l.RemoveDeleted(at(0))
			must(t, err)
			_, err = l.DeleteOldSegments(at(0), l.EndOffset())
			must(t, err)
		}
	})
	for r := range 3 {
		wg.Go(func() {
			for !done.Load() {
				var floor [8]int64
				for k := range acked {
					floor[k] = acked[k].Load()
				}
				from := l.EndOffset() * int64(r) / 4
				seen := map[string]int{}
				// As a consumer reads: up to the end as it is then. What was compacted away on
				// the way has its newer record behind.
				for next := from; next < l.EndOffset(); {
					for _, x := range recordsFrom(t, l, next) {
						var n int
						if _, err := fmt.Sscan(x.value, &n); err != nil || int64(n) != x.ts || seen[x.key] > n {
							t.Errorf("%v after %d", x, seen[x.key])
						}
						seen[x.key] = n
						next = x.offset + 1
					}
				}
				for k := range floor {
					if r == 0 && int64(seen[fmt.Sprint("k", k)]) < floor[k] {
						t.Errorf("k%d is %d, but %d was appended before the read", k, seen[fmt.Sprint("k", k)], floor[k])
					}
				}
				_, _, _, _, err := l.OffsetForTimestamp(from, l.EndOffset())
				must(t, err)
			}
		})
	}
	wg.Wait()
	must(t, rollNow(l))
	for range 4 { // neighbours are joined by what they were before, so it takes some rounds
		cleanAt(t, l, 0, at(0))
	}
	if segs, rs := l.segments(), all(t, l); cleans == 0 || len(segs) > 5 || len(rs) != len(acked) {
		t.Fatalf("%d cleans, %d segments, %v", cleans, len(segs), rs)
	}
}
