package commitlog

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// txnBatch is n records of a transaction.
func txnBatch(pid int64, epoch int16, seq int32, n int) recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, epoch, seq, true
	return mkBatch(o, make([]int64, n)...)
}

// txnMarker ends a transaction as a coordinator would.
func txnMarker(pid int64, epoch int16, abort bool, coordinatorEpoch int32) recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = pid, epoch, true, true
	key := []byte{0, 0, 0, 1}
	if abort {
		key[3] = 0
	}
	b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: 5, Key: key, Value: be.AppendUint32([]byte{0, 0}, uint32(coordinatorEpoch))}})
	if err != nil {
		panic(err)
	}
	return b
}

func commits(t tb, l *Log, pid int64) { t.Helper(); appendTo(t, l, txnMarker(pid, 0, false, 0), 0) }
func aborts(t tb, l *Log, pid int64)  { t.Helper(); appendTo(t, l, txnMarker(pid, 0, true, 0), 0) }

func wantUnstable(t tb, l *Log, want int64) {
	t.Helper()
	if got := l.FirstUnstableOffset(); got != want {
		t.Errorf("first unstable offset is %d, want %d", got, want)
	}
}

// wantAborted asks for what is aborted between from and upTo.
func wantAborted(t tb, l *Log, from, upTo int64, want ...AbortedTransaction) {
	t.Helper()
	got, err := l.AbortedTransactions(from, upTo)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("aborted in [%d, %d): %v, want %v", from, upTo, got, want)
	}
}

func indexed(t tb, l *Log) (all []abortedTxn) {
	t.Helper()
	for _, s := range l.segments() {
		must(t, s.txns.each(func(a abortedTxn) error { all = append(all, a); return nil }))
	}
	return all
}

func TestUnstableOffsetIsTheFirstOfTheOldestOpenTransaction(t *testing.T) {
	l, _ := newLog(t, Config{})
	wantUnstable(t, l, noOffset)
	appendTo(t, l, plain(1, 2, 3), 0)
	wantUnstable(t, l, noOffset)
	appendTo(t, l, txnBatch(1, 0, 0, 2), 0) // 3, 4
	appendTo(t, l, txnBatch(2, 0, 0, 1), 0) // 5
	appendTo(t, l, txnBatch(1, 0, 2, 1), 0) // 6: goes on, does not begin
	wantUnstable(t, l, 3)
	aborts(t, l, 1) // 7
	wantUnstable(t, l, 3)
	l.SetHighWatermark(7) // the marker itself is not below it
	wantUnstable(t, l, 3)
	l.SetHighWatermark(8)
	wantUnstable(t, l, 5)
	commits(t, l, 2) // 8
	l.SetHighWatermark(9)
	wantUnstable(t, l, noOffset)
	wantAborted(t, l, 0, 9, AbortedTransaction{1, 3})
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{1, 3, 7, 5}}) {
		t.Errorf("index has %+v", got)
	}
}

// The later of two transactions ends first, and its marker is committed first.
func TestTransactionsEndInAnyOrder(t *testing.T) {
	l, _ := newLog(t, Config{})
	appendTo(t, l, txnBatch(1, 0, 0, 1), 0) // 0
	appendTo(t, l, txnBatch(2, 0, 0, 1), 0) // 1
	aborts(t, l, 2)                         // 2
	appendTo(t, l, txnBatch(2, 0, 1, 1), 0) // 3
	l.SetHighWatermark(4)
	wantUnstable(t, l, 0)
	aborts(t, l, 1) // 4
	wantUnstable(t, l, 0)
	l.SetHighWatermark(5)
	wantUnstable(t, l, 3)
	aborts(t, l, 2) // 5
	l.SetHighWatermark(6)
	wantUnstable(t, l, noOffset)
	if got := indexed(t, l); !slices.Equal(got, []abortedTxn{{2, 1, 2, 0}, {1, 0, 4, 3}, {2, 3, 5, 6}}) {
		t.Errorf("index has %+v", got)
	}
	wantAborted(t, l, 0, 1, AbortedTransaction{1, 0})
	wantAborted(t, l, 0, 2, AbortedTransaction{2, 1}, AbortedTransaction{1, 0})
	wantAborted(t, l, 5, 6, AbortedTransaction{2, 3})
}

// Every high watermark between adjacent markers lets just those below it count.
func TestEachMarkerMustBeBelowTheHighWatermark(t *testing.T) {
	l, _ := newLog(t, Config{})
	for pid := range int64(4) {
		appendTo(t, l, txnBatch(pid, 0, 0, 1), 0) // 0 to 3
	}
	for pid := range int64(4) {
		commits(t, l, pid) // 4 to 7
	}
	for hw := int64(4); hw <= 7; hw++ {
		l.SetHighWatermark(hw)
		wantUnstable(t, l, hw-4)
	}
	l.SetHighWatermark(6) // going back changes nothing
	wantUnstable(t, l, 3)
	l.SetHighWatermark(8)
	wantUnstable(t, l, noOffset)
}

func TestMarkersAreFenced(t *testing.T) {
	l, _ := newLog(t, Config{})
	f := func(name string, want *kerr.Error, b recordbatch.Batch) {
		t.Helper()
		end := l.EndOffset()
		_, err := l.AppendLeader(b, 0)
		if want == nil && err != nil || want != nil && (!errors.Is(err, want) || l.EndOffset() != end) {
			t.Errorf("%s: got %v, want %v; the end went from %d to %d", name, err, want, end, l.EndOffset())
		}
	}
	f("a producer without data", nil, txnMarker(1, 3, true, 7))
	wantUnstable(t, l, noOffset)
	f("an older coordinator", kerr.TransactionCoordinatorFenced, txnMarker(1, 3, true, 6))
	f("the same coordinator", nil, txnMarker(1, 3, false, 7))
	f("data of an older epoch", kerr.InvalidProducerEpoch, txnBatch(1, 2, 0, 1))
	f("data", nil, txnBatch(1, 3, 0, 1))
	open := l.FirstUnstableOffset()
	f("a marker of an older epoch", kerr.InvalidProducerEpoch, txnMarker(1, 2, true, 9))
	f("data outside of the open transaction", kerr.InvalidTxnState, idempotent(1, 3, 1, 1))
	f("more of the transaction", nil, txnBatch(1, 3, 1, 1))
	f("an older coordinator's marker", kerr.TransactionCoordinatorFenced, txnMarker(1, 3, false, 6))
	wantUnstable(t, l, open)
	f("a newer epoch fences the producer", nil, txnMarker(1, 4, true, 8))
	f("data of the fenced epoch", kerr.InvalidProducerEpoch, txnBatch(1, 3, 2, 1))
	f("the new epoch does not begin at 0", kerr.OutOfOrderSequenceNumber, txnBatch(1, 4, 2, 1))
	f("the new epoch", nil, txnBatch(1, 4, 0, 1))

	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = 1, 4, true, true
	bad, err := recordbatch.Build(o, []recordbatch.Record{{Key: []byte{0, 0, 0, 1}, Value: []byte{0}}})
	must(t, err)
	f("an unreadable marker", kerr.InvalidRecord, bad)
	f("two batches of a producer at once", kerr.InvalidRecord, append(txnBatch(1, 4, 1, 1), txnMarker(1, 4, true, 8)...))
	if got := indexed(t, l); len(got) != 1 || got[0].first != open {
		t.Errorf("index has %+v, want one entry: markers without data have none", got)
	}
}

// A follower takes what its leader has written, whatever the epochs.
func TestFollowerKeepsTheSameStateAsItsLeader(t *testing.T) {
	l, _ := newLog(t, Config{})
	appendTo(t, l, txnBatch(1, 5, 0, 2), 0)
	appendTo(t, l, txnBatch(2, 0, 0, 2), 0)
	appendTo(t, l, txnMarker(1, 6, true, 3), 0)
	appendTo(t, l, txnBatch(1, 6, 0, 1), 0)
	all := readAll(t, l, 0, l.EndOffset(), 1<<20)

	f := openTest(t, vfs.NewMem(), Config{}, OpenOptions{CleanShutdown: true})
	defer f.abandon()
	if _, err := f.AppendFollower(all); err != nil { // several batches and a marker in one append
		t.Fatal(err)
	}
	wantUnstable(t, f, 0)
	if got, want := indexed(t, f), indexed(t, l); !slices.Equal(got, want) || len(got) != 1 {
		t.Errorf("index has %+v, the leader's %+v", got, want)
	}
	f.SetHighWatermark(f.EndOffset())
	wantUnstable(t, f, 2)

	old := append(txnMarker(1, 4, true, 1), 0)[:78] // fenced by both epochs, if it were not in the leader's log
	old.SetBaseOffset(f.EndOffset())
	if _, err := f.AppendFollower(old); err != nil {
		t.Fatal(err)
	}
	if p := f.producers.byID[1]; p.epoch != 4 || p.coordinatorEpoch != 1 || p.txnFirst != -1 {
		t.Errorf("%+v", p)
	}
}

func TestUnreadableMarkerOfALeaderKeepsItsTransactionOpen(t *testing.T) {
	fsys := vfs.NewMem()
	f := openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 1, 0, 0, true
	data := mkBatch(o, 1)
	o.Control, o.BaseSequence, o.BaseOffset = true, -1, 1
	bad, err := recordbatch.Build(o, []recordbatch.Record{{Key: []byte{0, 0, 0, 1}, Value: []byte{0}}})
	must(t, err)
	o.BaseOffset = 2
	other, err := recordbatch.Build(o, []recordbatch.Record{{Key: []byte{0, 0, 0, 2}, Value: []byte{0}}}) // a kind that ends nothing
	must(t, err)
	if _, err := f.AppendFollower(slices.Concat(data, bad, other)); err != nil {
		t.Fatal(err)
	}
	wantUnstable(t, f, 0)
	must(t, f.abandon())
	f = openTest(t, fsys, Config{}, OpenOptions{})
	defer f.abandon()
	wantUnstable(t, f, 0)
	if f.EndOffset() != 3 {
		t.Errorf("log ends at %d", f.EndOffset())
	}
}

func TestSnapshotHasKafkasBytes(t *testing.T) {
	l, fsys := newLog(t, Config{})
	l.now = func() time.Time { return time.UnixMilli(0x0102030405) }
	appendTo(t, l, plain(1, 2), 0)
	appendTo(t, l, txnMarker(9, 2, false, 4), 0) // 2: only epochs are known of it
	appendTo(t, l, txnBatch(7, 3, 10, 2), 0)     // 3, 4
	appendTo(t, l, txnBatch(7, 3, 12, 3), 0)     // 5, 6, 7
	must(t, l.Close())
	got, err := vfs.ReadFile(fsys, segmentPath(dir, 8, snapshotSuffix), 1<<10)
	must(t, err)
	body := []byte{
		0, 0, 0, 2, // producers
		0, 0, 0, 0, 0, 0, 0, 7, // producer id
		0, 3, // epoch
		0, 0, 0, 14, // last sequence
		0, 0, 0, 0, 0, 0, 0, 7, // last offset
		0, 0, 0, 2, // offset delta
		0, 0, 0, 1, 2, 3, 4, 5, // timestamp
		0xff, 0xff, 0xff, 0xff, // coordinator epoch
		0, 0, 0, 0, 0, 0, 0, 3, // first offset of the open transaction
		0, 0, 0, 0, 0, 0, 0, 9,
		0, 2,
		0xff, 0xff, 0xff, 0xff,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
		0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 5, // the marker's own
		0, 0, 0, 4,
		0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
	}
	want := be.AppendUint32([]byte{0, 1}, crc32.Checksum(body, castagnoli))
	if want = append(want, body...); !bytes.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
	l = openTest(t, fsys, Config{ProducerExpiry: math.MaxInt64}, OpenOptions{CleanShutdown: true, Now: l.now})
	defer l.Close()
	wantUnstable(t, l, 3)
	if _, err := l.AppendLeader(txnMarker(7, 3, true, 0), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendLeader(txnMarker(9, 2, true, 3), 0); !errors.Is(err, kerr.TransactionCoordinatorFenced) {
		t.Errorf("the coordinator epoch is forgotten: %v", err)
	}
	wantAborted(t, l, 0, 9, AbortedTransaction{7, 3})
}

func TestSnapshotWithOpenTransactionsOutOfOrderIsSorted(t *testing.T) {
	ps := &producers{}
	for id, first := range map[int64]int64{1: 30, 2: 10, 3: 20} {
		b := txnBatch(id, 0, 0, 1)
		b.SetBaseOffset(first)
		ps.add(b, 1)
	}
	got, err := decodeSnapshot(ps.encode())
	must(t, err)
	if want := []txn{{2, 10, -1}, {3, 20, -1}, {1, 30, -1}}; !slices.Equal(got.open, want) {
		t.Errorf("open: %+v, want %+v", got.open, want)
	}
}

func TestOpenTransactionIsNeverForgotten(t *testing.T) {
	l, _ := newLog(t, Config{})
	appendTo(t, l, txnBatch(1, 0, 0, 1), 0)
	appendTo(t, l, idempotent(2, 0, 0, 1), 0)
	l.ExpireProducers(time.Now().AddDate(10, 0, 0))
	wantUnstable(t, l, 0)
	if len(l.producers.byID) != 1 {
		t.Errorf("%d producers are left, want the one with an open transaction", len(l.producers.byID))
	}
	aborts(t, l, 1)
	l.ExpireProducers(time.Now().AddDate(10, 0, 0))
	if len(l.producers.byID) != 0 {
		t.Error("a producer is kept after its transaction")
	}
	wantAborted(t, l, 0, 2, AbortedTransaction{1, 0})
}

func TestAppendsInsideTransactionsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l, err := Open(vfs.OS, t.TempDir()+"/t-0", Config{}, OpenOptions{CleanShutdown: true})
	must(t, err)
	defer l.Close()
	b := txnBatch(1, 0, 0, 1)
	seq := int32(0)
	next := func() {
		be.PutUint32(b[53:], uint32(seq)) // base sequence
		be.PutUint32(b[17:], b.ComputeCRC())
		seq++
		if _, err := l.AppendLeader(b, 0); err != nil {
			t.Fatal(err)
		}
		l.SetHighWatermark(l.EndOffset())
	}
	next()
	before := testing.AllocsPerRun(100, func() {
		if _, _, err := l.ReadCommitted(0, 1<<20, l.FirstUnstableOffset(), true); err != nil {
			t.Fatal(err)
		}
	})
	if n := testing.AllocsPerRun(100, next); n > 0 {
		t.Errorf("%v allocations an append", n)
	}
	if before > 0 {
		t.Errorf("%v allocations a read that finds nothing", before)
	}
}
