package commitlog

import (
	"bytes"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// manySegments has a segment for each batch or two.
var manySegments = Config{SegmentBytes: 200, DeleteDelay: -1, RetentionAge: -1, ProducerExpiry: math.MaxInt64}

// rollNow begins a new segment at the end of the log.
func rollNow(l *Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.roll(l.end.Load())
}

// twoTransactions writes: producer 1 over several segments (0..9, aborted at 11),
// producer 2 inside of it (10, committed at 12), and 3 left open at 13.
func twoTransactions(t tb, l *Log) {
	t.Helper()
	for i := range 10 {
		appendTo(t, l, txnBatch(1, 0, int32(i), 1), 0)
	}
	appendTo(t, l, txnBatch(2, 0, 0, 1), 0) // 10
	aborts(t, l, 1)                         // 11
	commits(t, l, 2)                        // 12
	appendTo(t, l, txnBatch(3, 0, 0, 1), 0) // 13
	l.SetHighWatermark(l.EndOffset())
}

func wantTwoTransactions(t tb, l *Log) {
	t.Helper()
	wantUnstable(t, l, 13)
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{1, 0, 11, 10}}) {
		t.Errorf("index has %+v", got)
	}
	for from := l.StartOffset(); from < 12; from++ { // from every segment, up to every other
		for upTo := from + 1; upTo <= 13; upTo++ {
			wantAborted(t, l, from, upTo, AbortedTransaction{1, 0})
		}
	}
	wantAborted(t, l, 12, 13)
}

func TestTransactionOverSegmentsIsFoundFromEachOfThem(t *testing.T) {
	l, _ := newLog(t, manySegments)
	twoTransactions(t, l)
	if n := len(l.segments()); n < 5 {
		t.Fatalf("only %d segments", n)
	}
	wantTwoTransactions(t, l)
	var files int
	for _, s := range l.segments() {
		if vfs.Exists(l.fs, s.path(txnSuffix)) {
			files++
		}
	}
	if files != 1 {
		t.Errorf("%d index files for one aborted transaction", files)
	}
}

func TestTransactionStateSurvivesARestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		for _, lost := range []string{"", txnSuffix, snapshotSuffix, indexSuffix} {
			if clean && lost == snapshotSuffix {
				continue // without a snapshot a clean log is replayed, which is the unclean case
			}
			for _, point := range []int64{0, 6, 12} { // recovery points in different segments
				l, fsys := newLog(t, manySegments)
				twoTransactions(t, l)
				name := fmt.Sprintf("clean %v, recovery point %d, without %s", clean, point, lost)
				if clean {
					must(t, l.Close())
				} else {
					must(t, l.abandon())
				}
				files, err := fsys.ReadDir(dir)
				must(t, err)
				for _, f := range files {
					if _, ok := baseOfName(f.Name, lost); ok && lost != "" {
						if lost == txnSuffix { // damaged; a missing one says that nothing was aborted
							must(t, vfs.WriteFileAtomic(fsys, dir+"/"+f.Name, []byte{1, 2, 3}))
						} else {
							must(t, fsys.Remove(dir+"/"+f.Name))
						}
					}
				}
				l = openTest(t, fsys, manySegments, OpenOptions{CleanShutdown: clean, RecoveryPoint: point})
				l.SetHighWatermark(l.EndOffset())
				wantTwoTransactions(t, l)
				aborts(t, l, 3) // goes on where it was
				l.SetHighWatermark(15)
				wantUnstable(t, l, noOffset)
				wantAborted(t, l, 12, 15, AbortedTransaction{3, 13})
				must(t, l.abandon())
				if t.Failed() {
					t.Fatal(name)
				}
			}
		}
	}
}

// A power cut may take what was not synced: the index must not say more or less
// than the log.
func TestPowerCutLeavesIndexAndLogInAgreement(t *testing.T) {
	for synced := range 16 {
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll("/data"))
		must(t, fsys.SyncDir("/"))
		l := openTest(t, fsys, manySegments, OpenOptions{CleanShutdown: true})
		l.bg = func(func()) {} // no flush but ours
		for i := range 4 {
			appendTo(t, l, txnBatch(1, 0, int32(2*i), 1), 0)
			appendTo(t, l, txnBatch(1, 0, int32(2*i+1), 1), 0)
			aborts(t, l, 1)
			if 4*i == synced-synced%4 {
				must(t, l.Flush())
			}
		}
		point := l.RecoveryPoint()
		after := fsys.Crash(rand.New(rand.NewSource(int64(synced))))
		must(t, l.abandon())
		l = openTest(t, after, manySegments, OpenOptions{RecoveryPoint: point})
		var want []abortedTxn
		for o := int64(0); o+3 <= l.EndOffset(); o += 3 {
			want = append(want, abortedTxn{1, o, o + 2, o + 3})
		}
		if got := indexed(t, l); !slices.Equal(got, want) || l.EndOffset() < point {
			t.Errorf("flushed to %d, log ends at %d: index has %+v, want %+v", point, l.EndOffset(), got, want)
		}
		must(t, l.abandon())
	}
}

// Every cut, with every restart after it, leaves what a log would have that had
// never seen more.
func TestTruncationTakesTransactionsBack(t *testing.T) {
	whole, _ := newLog(t, manySegments)
	twoTransactions(t, whole)
	all := readAll(t, whole, 0, whole.EndOffset(), 1<<20)
	for cut := int64(0); cut <= 14; cut++ {
		want := openTest(t, vfs.NewMem(), manySegments, OpenOptions{CleanShutdown: true})
		for b := range recordbatch.Split(all) {
			if b.BaseOffset() < cut {
				_, err := want.AppendFollower(bytes.Clone(b))
				must(t, err)
			}
		}
		want.SetHighWatermark(cut)
		for _, then := range []string{"", "clean", "kill"} {
			l, fsys := newLog(t, manySegments)
			twoTransactions(t, l)
			_, err := l.TruncateTo(cut)
			must(t, err)
			if point := l.RecoveryPoint(); then == "kill" {
				must(t, l.abandon())
				l = openTest(t, fsys, manySegments, OpenOptions{RecoveryPoint: point})
			} else if then == "clean" {
				must(t, l.Close())
				l = openTest(t, fsys, manySegments, OpenOptions{CleanShutdown: true})
			}
			l.SetHighWatermark(cut)
			wantUnstable(t, l, want.FirstUnstableOffset())
			if got, want := indexed(t, l), indexed(t, want); !slices.Equal(got, want) {
				t.Errorf("index has %+v, want %+v", got, want)
			}
			for id, p := range want.producers.byID {
				g := l.producers.byID[id]
				if g == nil || g.txnFirst != p.txnFirst || g.lastSeq() != p.lastSeq() || g.coordinatorEpoch != p.coordinatorEpoch {
					t.Errorf("producer %d is %+v, want %+v", id, g, p)
				}
			}
			if len(l.producers.byID) != len(want.producers.byID) {
				t.Errorf("%d producers, want %d", len(l.producers.byID), len(want.producers.byID))
			}
			must(t, l.abandon())
			if t.Failed() {
				t.Fatalf("cut at %d, then %q", cut, then)
			}
		}
		must(t, want.abandon())
	}
}

func TestAbortAfterATruncationOfItsMarkerIsFoundOnce(t *testing.T) {
	l, _ := newLog(t, manySegments)
	twoTransactions(t, l)
	_, err := l.TruncateTo(11) // the abort marker of 1 and all after it
	must(t, err)
	wantUnstable(t, l, 0)
	wantAborted(t, l, 0, 11)
	appendTo(t, l, txnBatch(1, 0, 10, 1), 1) // 11
	aborts(t, l, 1)                          // 12
	l.SetHighWatermark(13)
	wantUnstable(t, l, 10)
	wantAborted(t, l, 0, 10, AbortedTransaction{1, 0})
	commits(t, l, 2) // 13
	l.SetHighWatermark(14)
	wantAborted(t, l, 11, 14, AbortedTransaction{1, 0})
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{1, 0, 12, 10}}) {
		t.Errorf("index has %+v", got)
	}
}

// A marker that is not committed may be cut off; what ended before the cut and is
// not committed either must still hold the stable offset.
func TestTruncationKeepsWhatIsNotYetCommitted(t *testing.T) {
	l, _ := newLog(t, Config{})
	appendTo(t, l, txnBatch(1, 0, 0, 1), 0) // 0
	commits(t, l, 1)                        // 1
	must(t, rollNow(l))                     // with a snapshot that has the transaction as over
	appendTo(t, l, txnBatch(2, 0, 0, 1), 0) // 2
	aborts(t, l, 2)                         // 3
	l.SetHighWatermark(1)
	_, err := l.TruncateTo(3)
	must(t, err)
	wantUnstable(t, l, 0)
	l.SetHighWatermark(2)
	wantUnstable(t, l, 2)
}

func TestStartingAnewForgetsTransactions(t *testing.T) {
	l, fsys := newLog(t, manySegments)
	twoTransactions(t, l)
	must(t, l.TruncateFullyAndStartAt(11))
	wantUnstable(t, l, noOffset)
	wantAborted(t, l, 11, 12)
	appendTo(t, l, txnBatch(1, 0, 0, 1), 0) // 11: at the same base as a segment of before
	aborts(t, l, 1)                         // 12
	l.SetHighWatermark(13)
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{1, 11, 12, 13}}) {
		t.Errorf("index has %+v", got)
	}
	must(t, l.Close())
	l = openTest(t, fsys, manySegments, OpenOptions{CleanShutdown: true})
	defer l.abandon()
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{1, 11, 12, 13}}) {
		t.Errorf("after a restart the index has %+v", got)
	}
}

func TestRetentionTakesTheIndexWithItsSegment(t *testing.T) {
	c := manySegments
	l, fsys := newLog(t, c)
	twoTransactions(t, l)
	_, err := l.IncrementStartOffset(12)
	must(t, err)
	if got, err := l.AbortedTransactions(11, 13); err != nil || len(got) != 1 {
		t.Errorf("what is not yet deleted can be read: %v, %v", got, err)
	}
	_, err = l.DeleteOldSegments(l.now(), 14)
	must(t, err)
	if base := l.segments()[0].base; base <= 1 {
		t.Fatalf("first segment begins at %d", base)
	}
	_, err = l.RemoveDeleted(l.now())
	must(t, err)
	files, err := fsys.ReadDir(dir)
	must(t, err)
	bases := map[int64]bool{}
	for _, s := range l.segments() {
		bases[s.base] = true
	}
	for _, f := range files {
		if b, ok := baseOfName(f.Name, txnSuffix); ok && !bases[b] {
			t.Errorf("%s is left without its segment", f.Name)
		}
	}
	wantUnstable(t, l, 13)
	if _, err := l.AbortedTransactions(0, 13); l.segments()[0].base > 0 && l.lastAbort.Load() >= 0 && err == nil {
		t.Error("an answer about data that is gone")
	}
	// The open transaction's own records may go, too; its marker still finds it.
	aborts(t, l, 3)
	l.SetHighWatermark(15)
	wantUnstable(t, l, noOffset)
}

// A reader of committed data while segments go, come and are cut: each list belongs
// to the bytes that came with it.
func TestListBelongsToTheBytesReadWithIt(t *testing.T) {
	l, _ := newLog(t, manySegments)
	twoTransactions(t, l)
	s, aborted, err := l.ReadCommitted(5, 1<<20, 13, true)
	must(t, err)
	defer s.Close()
	if !slices.Equal(aborted, []AbortedTransaction{{1, 0}}) {
		t.Fatalf("aborted: %v", aborted)
	}
	// The segment's file is replaced while the slice is in use.
	_, err = l.TruncateTo(s.LastOffset + 1)
	must(t, err)
	if s.seg.has(s.ref) {
		_, err = l.TruncateTo(s.LastOffset)
		must(t, err)
	}
	if s.seg.has(s.ref) {
		t.Error("a cut under a reader went unnoticed")
	}
	s2, aborted, err := l.ReadCommitted(0, 1<<20, l.EndOffset(), true)
	must(t, err)
	defer s2.Close()
	if len(aborted) != 0 {
		t.Errorf("aborted after the marker was cut off: %v", aborted)
	}
}

// FuzzTransactions opens a log whose index and snapshot hold anything: what readers
// are told stays within the log, and the state can be written and read again.
func FuzzTransactions(f *testing.F) {
	fsys := vfs.NewMem()
	l := openTest(f, fsys, Config{ProducerExpiry: math.MaxInt64}, OpenOptions{CleanShutdown: true})
	twoTransactions(f, l)
	must(f, l.Close())
	read := func(base int64, suffix string) []byte {
		b, err := vfs.ReadFile(fsys, segmentPath(dir, base, suffix), 1<<20)
		must(f, err)
		return b
	}
	log := read(0, logSuffix)
	f.Add(log, read(0, txnSuffix), read(14, snapshotSuffix), true)
	f.Add(log[:len(log)-20], []byte{}, read(14, snapshotSuffix), false)
	f.Fuzz(func(t *testing.T, log, txns, snapshot []byte, clean bool) {
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll(dir))
		must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, logSuffix), log))
		must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, txnSuffix), txns))
		must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 14, snapshotSuffix), snapshot))
		l, err := Open(fsys, dir, Config{}, OpenOptions{CleanShutdown: clean})
		if err != nil {
			return
		}
		defer l.abandon()
		l.SetHighWatermark(l.EndOffset())
		stable := min(l.EndOffset(), max(l.FirstUnstableOffset(), l.StartOffset()))
		if _, _, err := l.ReadCommitted(l.StartOffset(), 1<<20, stable, true); err != nil && !clean {
			t.Fatal(err)
		}
		if _, err := l.AbortedTransactions(l.StartOffset(), math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if _, err := decodeSnapshot(l.producers.encode()); err != nil {
			t.Fatal(err)
		}
		_, _ = l.AppendLeader(txnMarker(1, math.MaxInt16, true, math.MaxInt32), 0)
	})
}
