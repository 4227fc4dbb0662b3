package commitlog

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func TestRetriedBatchesGetTheirFirstOffsets(t *testing.T) {
	l, fsys := newLog(t, Config{})
	appendTo(t, l, plain(1, 2, 3), 0)
	var sent []recordbatch.Batch
	for i := range 6 {
		b := idempotent(1, 0, int32(2*i), 2)
		sent = append(sent, bytes.Clone(b))
		appendTo(t, l, b, 0)
	}
	end := l.EndOffset()
	for i := 1; i < 6; i++ { // the last five
		info := appendTo(t, l, bytes.Clone(sent[i]), 0)
		if !info.Duplicate || info.FirstOffset != int64(3+2*i) || info.LastOffset != int64(4+2*i) || info.MaxTimestamp != sent[i].MaxTimestamp() {
			t.Errorf("retry of batch %d: %+v", i, info)
		}
	}
	if _, err := l.AppendLeader(bytes.Clone(sent[0]), 0); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("retry of a forgotten batch: %v", err)
	}
	if l.EndOffset() != end {
		t.Errorf("retries moved the end from %d to %d", end, l.EndOffset())
	}
	must(t, l.abandon())
	l = openTest(t, fsys, Config{}, OpenOptions{}) // no snapshot: all five come back from the log
	defer l.Close()
	if info := appendTo(t, l, bytes.Clone(sent[1]), 0); !info.Duplicate || info.FirstOffset != 5 {
		t.Errorf("retry after a crash: %+v", info)
	}
}

func TestSequenceRules(t *testing.T) {
	l, fsys := newLog(t, Config{})
	f := func(name string, want *kerr.Error, b recordbatch.Batch) {
		t.Helper()
		_, err := l.AppendLeader(b, 0)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	f("unknown producer starts anywhere", nil, idempotent(1, 3, math.MaxInt32-1, 2))
	f("wraps to 0", nil, idempotent(1, 3, 0, 1))
	f("gap", kerr.OutOfOrderSequenceNumber, idempotent(1, 3, 2, 1))
	f("older epoch", kerr.InvalidProducerEpoch, idempotent(1, 2, 1, 1))
	f("new epoch not at 0", kerr.OutOfOrderSequenceNumber, idempotent(1, 4, 1, 1))
	f("new epoch at 0", nil, idempotent(1, 4, 0, 1))
	f("the old epoch is fenced", kerr.InvalidProducerEpoch, idempotent(1, 3, 1, 1))
	must(t, l.Close())
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	defer l.Close()
	f("gap after a restart", kerr.OutOfOrderSequenceNumber, idempotent(1, 4, 2, 1))
	f("next after a restart", nil, idempotent(1, 4, 1, 1))
	l.ExpireProducers(time.Now().Add(23 * time.Hour))
	f("not yet expired", kerr.OutOfOrderSequenceNumber, idempotent(1, 4, 7, 1))
	l.ExpireProducers(time.Now().Add(25 * time.Hour))
	f("expired", nil, idempotent(1, 0, 7, 1))
}

// Clients stamp records with the time of the event, which may be years ago; a
// producer at work is not an idle one.
func TestProducerOfOldRecordsIsNotForgotten(t *testing.T) {
	l, fsys := newLog(t, Config{})
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 1, 0, 0
	b := mkBatch(o, time.Now().AddDate(-8, 0, 0).UnixMilli())
	appendTo(t, l, bytes.Clone(b), 0)
	retry := func(when string, l *Log) {
		t.Helper()
		if info := appendTo(t, l, bytes.Clone(b), 0); !info.Duplicate {
			t.Fatalf("retry %s was appended again: %+v", when, info)
		}
	}
	l.ExpireProducers(time.Now())
	retry("after a look for idle producers", l)
	must(t, l.abandon())
	l = openTest(t, fsys, Config{}, OpenOptions{})
	retry("after a kill", l)
	must(t, l.Close())
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	defer l.Close()
	retry("after a clean stop", l)
	l.ExpireProducers(time.Now().Add(25 * time.Hour))
	if len(l.producers.byID) != 0 {
		t.Error("an idle producer is kept")
	}
}

func TestWrappedBatchIsKnownAsDuplicate(t *testing.T) {
	l, _ := newLog(t, Config{})
	b := idempotent(1, 0, math.MaxInt32-1, 4) // sequences 2^31-2, 2^31-1, 0, 1
	again := bytes.Clone(b)
	appendTo(t, l, b, 0)
	if info := appendTo(t, l, again, 0); !info.Duplicate || info.LastOffset != 3 {
		t.Fatalf("%+v", info)
	}
	appendTo(t, l, idempotent(1, 0, 2, 1), 0)
}

func TestTransactionsOfALeaderAreStoredUntouched(t *testing.T) {
	l, fsys := newLog(t, Config{})
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional, o.LeaderEpoch = 9, 5, 0, true, 4
	data := mkBatch(o, 1, 2)
	o.Control, o.BaseSequence, o.BaseOffset, o.ProducerEpoch = true, -1, 2, 6
	marker, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: 3, Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 77}}})
	must(t, err)
	in := append(bytes.Clone(data), marker...)
	want := bytes.Clone(in)
	if _, err := l.AppendFollower(append(in, marker[:30]...)); err != nil { // and a cut one
		t.Fatal(err)
	}
	wantBytes(t, readAll(t, l, 0, 3, 1<<20), want)
	if e, _ := l.LatestEpoch(); e != 4 {
		t.Errorf("latest epoch %d", e)
	}
	must(t, l.Close())
	l = openTest(t, fsys, Config{ProducerExpiry: 1 << 62}, OpenOptions{CleanShutdown: true})
	defer l.Close()
	if p := l.producers.byID[9]; p == nil || p.coordinatorEpoch != 77 || p.txnFirst != -1 || p.epoch != 6 || p.lastSeq() != -1 {
		t.Fatalf("producer state after the marker: %+v", p)
	}
}

func TestSnapshotSurvivesItsCodecAndRefusesDamage(t *testing.T) {
	ps := &producers{}
	for i := range 3 {
		b := idempotent(int64(i), int16(i), int32(i), 3)
		b.SetBaseOffset(int64(100 + i))
		ps.add(b, b.MaxTimestamp())
	}
	enc := ps.encode()
	got, err := decodeSnapshot(enc)
	if err != nil || len(got.byID) != 3 || got.byID[2].batches[0] != ps.byID[2].batches[0] || !bytes.Equal(got.encode(), enc) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range enc {
		bad := bytes.Clone(enc)
		bad[i] ^= 1
		if _, err := decodeSnapshot(bad); !errors.Is(err, errSnapshot) {
			t.Fatalf("flipped byte %d: %v", i, err)
		}
	}
}

func TestBadSnapshotIsReplacedByTheLog(t *testing.T) {
	l, fsys := newLog(t, Config{})
	b := idempotent(1, 0, 0, 1)
	appendTo(t, l, bytes.Clone(b), 0)
	must(t, l.Close())
	f, err := fsys.Open(segmentPath(dir, 1, snapshotSuffix), false)
	must(t, err)
	_, err = f.WriteAt([]byte{0xff}, 12)
	must(t, err)
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	defer l.Close()
	if info := appendTo(t, l, b, 0); !info.Duplicate {
		t.Fatalf("%+v", info)
	}
	if vfs.Exists(fsys, segmentPath(dir, 1, snapshotSuffix)) {
		t.Error("the bad snapshot is still there")
	}
}
