package commitlog

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

func verifyingLog(t *testing.T) *Log {
	l, _ := newLog(t, Config{VerifyTransactions: true})
	return l
}

func wantAppend(t *testing.T, l *Log, what string, b recordbatch.Batch, version int8, want *kerr.Error) {
	t.Helper()
	end := l.EndOffset()
	_, err := l.AppendLeaderMarker(b, 0, version)
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	if moved := l.EndOffset() != end; moved != (err == nil) {
		t.Errorf("%s: the end went from %d to %d, error %v", what, end, l.EndOffset(), err)
	}
}

// begin wants something to be asked, or not.
func begin(t *testing.T, l *Log, pid int64, epoch int16, seq int32, asked bool) Guard {
	t.Helper()
	g, err := l.BeginVerification(VerificationRequest{ProducerID: pid, Epoch: epoch, Sequence: seq})
	if err != nil || (g != 0) != asked {
		t.Fatalf("producer %d, epoch %d: guard %d, %v; asked: %v", pid, epoch, g, err, asked)
	}
	return g
}

func TestBatchThatBeginsATransactionMustBeVerified(t *testing.T) {
	l := verifyingLog(t)
	wantAppend(t, l, "not verified", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)
	g := begin(t, l, 1, 0, 0, true)
	wantAppend(t, l, "not answered", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)
	l.Verified(1, 0, g)
	begin(t, l, 1, 0, 1, false) // of a second batch, before the first is in the log
	wantAppend(t, l, "of another producer", txnBatch(2, 0, 0, 1), 0, kerr.InvalidTxnState)
	wantAppend(t, l, "verified", txnBatch(1, 0, 0, 1), 0, nil)
	begin(t, l, 1, 0, 1, false)
	wantAppend(t, l, "goes on", txnBatch(1, 0, 1, 1), 0, nil)
	wantAppend(t, l, "marker", txnMarker(1, 0, false, 0), 0, nil)
	wantAppend(t, l, "the next transaction", txnBatch(1, 0, 2, 1), 0, kerr.InvalidTxnState)
	wantAppend(t, l, "outside of transactions", idempotent(1, 0, 2, 1), 0, nil)
	if info := appendTo(t, l, txnBatch(1, 0, 1, 1), 0); !info.Duplicate || info.FirstOffset != 1 {
		t.Errorf("a retry after the marker: %+v", info)
	}

	l.SetConfig(Config{})
	wantAppend(t, l, "verification is off", txnBatch(2, 0, 0, 1), 0, nil)
}

// No marker will come for a batch that is appended after its transaction's.
func TestMarkerEndsWhatWasVerified(t *testing.T) {
	l := verifyingLog(t)
	late := begin(t, l, 1, 0, 0, true)
	wantAppend(t, l, "marker while the question is under way", txnMarker(1, 0, true, 0), 0, nil)
	l.Verified(1, 0, late)
	wantAppend(t, l, "verified for the transaction before", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)

	// The next transaction does not have the partition. An old answer must not stand for its.
	if g := begin(t, l, 1, 0, 0, true); g == late {
		t.Fatal("the guard is the one before")
	}
	l.Verified(1, 0, late)
	wantAppend(t, l, "an old answer", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)

	l.Verified(1, 0, begin(t, l, 1, 0, 0, true))
	wantAppend(t, l, "marker after the answer", txnMarker(1, 0, true, 0), 0, nil)
	wantAppend(t, l, "batch after that marker", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)
	wantUnstable(t, l, noOffset)
}

// A leader that lost its office and has it again meanwhile has seen the marker as a follower.
// By the second protocol a producer may go on, under its next epoch, before the markers of
// its last transaction are everywhere: the marker must not spoil the verification.
func TestMarkerOfTheTransactionBeforeLeavesTheVerificationAlone(t *testing.T) {
	for _, answered := range []bool{false, true} {
		l := verifyingLog(t)
		ask := func(epoch int16) Guard {
			g, err := l.BeginVerification(VerificationRequest{ProducerID: 1, Epoch: epoch, Sequence: 0, Adds: true})
			if err != nil || g == 0 {
				t.Fatalf("epoch %d: guard %d, %v", epoch, g, err)
			}
			return g
		}
		l.Verified(1, 0, ask(0))
		wantAppend(t, l, "the first transaction", txnBatch(1, 0, 0, 1), 0, nil)
		g := ask(1)
		if answered {
			l.Verified(1, 1, g)
		}
		wantAppend(t, l, "its marker", txnMarker(1, 1, true, 0), 2, nil)
		if !answered {
			wantAppend(t, l, "not answered yet", txnBatch(1, 1, 0, 1), 0, kerr.InvalidTxnState)
			l.Verified(1, 1, g)
		}
		wantAppend(t, l, "the second transaction", txnBatch(1, 1, 0, 1), 0, nil)
		l.Verified(1, 2, ask(2))
		wantAppend(t, l, "the second one's marker", txnMarker(1, 2, true, 0), 2, nil)
		wantAppend(t, l, "a fence", txnMarker(1, 3, false, 0), 2, nil)
		wantAppend(t, l, "what was fenced", txnBatch(1, 2, 0, 1), 0, kerr.InvalidProducerEpoch)
	}
}

func TestMarkerThatCameByReplicationEndsWhatWasVerified(t *testing.T) {
	l := verifyingLog(t)
	l.Verified(1, 0, begin(t, l, 1, 0, 0, true))
	b := txnMarker(1, 0, true, 0)
	b.SetBaseOffset(0)
	b.SetLeaderEpoch(1)
	if _, err := l.AppendFollower(b); err != nil {
		t.Fatal(err)
	}
	wantAppend(t, l, "batch after the marker", txnBatch(1, 0, 0, 1), 0, kerr.InvalidTxnState)
}

// In the second version of the protocol a transaction's marker has the epoch after its
// batches', with which the next one begins.
func TestEachTransactionHasAnEpochOfItsOwn(t *testing.T) {
	l := verifyingLog(t)
	verified := func(epoch int16) {
		t.Helper()
		g, err := l.BeginVerification(VerificationRequest{ProducerID: 1, Epoch: epoch, Adds: true})
		if err != nil || g == 0 {
			t.Fatalf("epoch %d: %d, %v", epoch, g, err)
		}
		l.Verified(1, epoch, g)
	}
	verified(0)
	wantAppend(t, l, "not the first", txnBatch(1, 0, 1, 1), 0, kerr.OutOfOrderSequenceNumber)
	wantAppend(t, l, "first", txnBatch(1, 0, 0, 1), 0, nil)
	wantAppend(t, l, "second", txnBatch(1, 0, 1, 1), 0, nil)
	wantAppend(t, l, "a late marker of the one before", txnMarker(1, 0, true, 0), 2, kerr.InvalidProducerEpoch)
	wantAppend(t, l, "the marker", txnMarker(1, 1, false, 0), 2, nil)
	wantAppend(t, l, "the marker again", txnMarker(1, 1, false, 0), 2, nil)
	wantAppend(t, l, "a new batch after the marker", txnBatch(1, 0, 2, 1), 0, kerr.InvalidProducerEpoch)
	wantAppend(t, l, "an old batch after the marker", txnBatch(1, 0, 1, 1), 0, kerr.InvalidProducerEpoch)
	if _, err := l.BeginVerification(VerificationRequest{ProducerID: 1, Epoch: 0, Adds: true}); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("verification of an old epoch: %v", err)
	}
	verified(1)
	wantAppend(t, l, "sequences begin anew", txnBatch(1, 1, 2, 1), 0, kerr.OutOfOrderSequenceNumber)
	wantAppend(t, l, "the next transaction", txnBatch(1, 1, 0, 1), 0, nil)
	wantAppend(t, l, "the last marker once more", txnMarker(1, 1, true, 0), 2, kerr.InvalidProducerEpoch)
	wantAppend(t, l, "an administrator's marker", txnMarker(1, 1, true, -1), 0, kerr.TransactionCoordinatorFenced)
	wantAppend(t, l, "one with the epoch seen last", txnMarker(1, 1, true, 0), 0, nil)
	l.SetHighWatermark(l.EndOffset())
	wantUnstable(t, l, noOffset)
}

// The first version has a transaction aborted with the next epoch if it was given up; what its
// producer still sends is refused, whether or not verification is on.
func TestBatchOfAnAbortedTransactionIsFenced(t *testing.T) {
	for _, verify := range []bool{true, false} {
		l, _ := newLog(t, Config{VerifyTransactions: verify})
		l.Verified(1, 0, begin(t, l, 1, 0, 0, true))
		wantAppend(t, l, "batch", txnBatch(1, 0, 0, 1), 0, nil)
		wantAppend(t, l, "abort", txnMarker(1, 1, true, 0), 0, nil)
		wantAppend(t, l, "the zombie's next", txnBatch(1, 0, 1, 1), 0, kerr.InvalidProducerEpoch)
	}
}

// Of batches in flight the one that was sent first must be the first in the log.
func TestHigherSequenceWaitsForTheLowest(t *testing.T) {
	l := verifyingLog(t)
	g := begin(t, l, 1, 0, 5, true)
	if begin(t, l, 1, 0, 0, true) != g {
		t.Error("a second question has a guard of its own")
	}
	l.Verified(1, 0, g)
	wantAppend(t, l, "the higher first", txnBatch(1, 0, 5, 1), 0, kerr.OutOfOrderSequenceNumber)
	wantAppend(t, l, "the lower", txnBatch(1, 0, 0, 5), 0, nil)
	wantAppend(t, l, "the higher", txnBatch(1, 0, 5, 1), 0, nil)
}

// The coordinator decides which of two epochs lives; a zombie's question takes nothing from the other.
func TestZombieDoesNotDisturbAVerification(t *testing.T) {
	l := verifyingLog(t)
	g := begin(t, l, 1, 1, 0, true)
	if begin(t, l, 1, 0, 3, true) != g {
		t.Error("a zombie's question has a guard of its own")
	}
	l.Refused(1, 0, g)
	l.Verified(1, 1, g)
	wantAppend(t, l, "the zombie", txnBatch(1, 0, 3, 1), 0, kerr.InvalidProducerEpoch)
	if _, err := l.BeginVerification(VerificationRequest{ProducerID: 1, Epoch: 0}); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("the zombie's next question: %v", err)
	}
	l.Verified(1, 0, g)
	wantAppend(t, l, "the living", txnBatch(1, 1, 0, 1), 0, nil)
	if len(l.verifying) != 0 {
		t.Errorf("%d verifications are left", len(l.verifying))
	}

	// A newer epoch has to be asked about, though an older one is verified.
	l.Verified(2, 0, begin(t, l, 2, 0, 0, true))
	wantAppend(t, l, "the newer", txnBatch(2, 1, 0, 1), 0, kerr.InvalidTxnState)
	l.Verified(2, 1, begin(t, l, 2, 1, 0, true))
	wantAppend(t, l, "the older", txnBatch(2, 0, 0, 1), 0, kerr.InvalidProducerEpoch)
	wantAppend(t, l, "the newer", txnBatch(2, 1, 0, 1), 0, nil)
}

func TestVerificationsAreForgotten(t *testing.T) {
	l := verifyingLog(t)
	l.Refused(1, 0, begin(t, l, 1, 0, 0, true))
	if len(l.verifying) != 0 {
		t.Error("a refused producer is remembered")
	}
	begin(t, l, 1, 0, 0, true)
	l.ExpireProducers(time.Now().Add(23 * time.Hour))
	if len(l.verifying) != 1 {
		t.Error("forgotten too early")
	}
	l.ExpireProducers(time.Now().Add(25 * time.Hour))
	if len(l.verifying) != 0 {
		t.Error("a producer that did not come back is remembered")
	}
}

// A replica that moves to another folder meanwhile takes with it what was verified.
func TestCopyKnowsWhatWasVerified(t *testing.T) {
	from, to := verifyingLog(t), verifyingLog(t)
	from.Verified(1, 0, begin(t, from, 1, 0, 0, true))
	to.LearnProducers(from)
	wantAppend(t, to, "verified before the move", txnBatch(1, 0, 0, 1), 0, nil)
	wantAppend(t, from, "the log before", txnBatch(1, 0, 0, 1), 0, nil)
}

// Coordinators write without sequences: two of their batches are never taken for one.
func TestBatchesWithoutASequenceAreNotTakenForEachOther(t *testing.T) {
	l := verifyingLog(t)
	l.Verified(1, 3, begin(t, l, 1, 3, recordbatch.NoSequence, true))
	for range 3 {
		wantAppend(t, l, "offsets in a transaction", txnBatch(1, 3, recordbatch.NoSequence, 1), 0, nil)
	}
	wantAppend(t, l, "an older epoch", txnBatch(1, 2, recordbatch.NoSequence, 1), 0, kerr.InvalidProducerEpoch)
	wantAppend(t, l, "the marker", txnMarker(1, 3, false, 0), 0, nil)
	wantAppend(t, l, "not verified anew", txnBatch(1, 3, recordbatch.NoSequence, 1), 0, kerr.InvalidTxnState)
	l.Verified(1, 4, begin(t, l, 1, 4, recordbatch.NoSequence, true))
	wantAppend(t, l, "the next epoch", txnBatch(1, 4, recordbatch.NoSequence, 1), 0, nil)
}

func TestMarkerHasKafkasBytes(t *testing.T) {
	b, err := Marker{ProducerID: 9, ProducerEpoch: 2, Committed: true, CoordinatorEpoch: 7, TimestampMs: 11}.Batch()
	must(t, err)
	if !b.IsControl() || !b.IsTransactional() || b.ProducerID() != 9 || b.ProducerEpoch() != 2 || b.BaseSequence() != -1 || b.Count() != 1 || b.MaxTimestamp() != 11 {
		t.Errorf("header % x", []byte(b))
	}
	must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
		if !bytes.Equal(r.Key, []byte{0, 0, 0, 1}) || !bytes.Equal(r.Value, []byte{0, 0, 0, 0, 0, 7}) {
			t.Errorf("key % x, value % x", r.Key, r.Value)
		}
		return nil
	}))
	b, err = Marker{ProducerID: 9, CoordinatorEpoch: -1}.Batch()
	must(t, err)
	if m, ok, err := parseMarker(b); err != nil || !ok || m != (marker{abort: true, coordinatorEpoch: -1}) {
		t.Errorf("%+v, %v, %v", m, ok, err)
	}
}

func TestProducersAreListed(t *testing.T) {
	l, _ := newLog(t, Config{})
	l.now = func() time.Time { return time.UnixMilli(77) }
	appendTo(t, l, txnBatch(3, 4, 0, 2), 0)
	appendTo(t, l, idempotent(1, 0, 6, 2), 0)
	appendTo(t, l, txnMarker(2, 1, true, 5), 0)
	if got, want := l.Producers(), []ActiveProducer{{1, 0, 7, 77, -1, -1}, {2, 1, -1, 5, 5, -1}, {3, 4, 1, 77, -1, 0}}; !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
