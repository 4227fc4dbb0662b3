package commitlog

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

// No transactional batch may begin a transaction that its coordinator does not know to
// have this partition in it: the coordinator would send no marker here, and readers of
// committed data would stand before it for ever (KIP-890). So the leader asks the
// coordinator first, and what it learnt must still hold when the batch is appended: a
// marker that came in between has ended the transaction that was asked about.
//
// A verification is that memory: made before the coordinator is asked, gone with the
// next marker or the first batch of the transaction. An answer counts only for the
// verification that it was asked under (the guard), so one that was long on its way says
// nothing of a later transaction of the same producer.

// Guard names a verification; no two of this process are the same. The zero value
// names none.
type Guard uint64

var lastGuard atomic.Uint64

// verification is what is known of a producer that is about to begin a transaction.
type verification struct {
	guard    Guard
	epoch    int16
	verified bool  // the coordinator has the partition in the transaction
	adds     bool  // second version of the protocol: each transaction has an epoch of its own
	lowest   int32 // lowest sequence asked about under the epoch, NoSequence if there was none
	since    int64 // ms
}

// VerificationRequest is what a leader wants to append and has to ask about.
type VerificationRequest struct {
	ProducerID int64
	Epoch      int16
	// Sequence is the first of the batch; recordbatch.NoSequence of a coordinator's.
	Sequence int32
	// Adds: the coordinator is to add the partition, not just to look for it
	// (second version of the protocol).
	Adds bool
}

// BeginVerification notes that the coordinator is about to be asked whether the producer's
// transaction has this partition in it. The zero guard says that nothing has to be asked:
// the transaction is open here, or verified already. Verified is to follow on a good answer.
// Errors: INVALID_PRODUCER_EPOCH for an epoch that has been followed by another.
func (l *Log) BeginVerification(r VerificationRequest) (Guard, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.producers.byID[r.ProducerID]; p != nil {
		switch {
		case r.Epoch < p.epoch:
			return 0, staleEpoch(r.ProducerID, r.Epoch, p.epoch)
		case r.Epoch == p.epoch && p.txnFirst >= 0:
			return 0, nil
		}
	}
	v := l.verifying[r.ProducerID]
	switch {
	case v == nil:
	case !v.verified:
		// Which of two epochs is right the coordinator tells: both are asked about.
		v.heard(r)
		return v.guard, nil
	case r.Epoch == v.epoch:
		v.heard(r)
		return 0, nil
	case r.Epoch < v.epoch:
		return 0, staleEpoch(r.ProducerID, r.Epoch, v.epoch)
	}
	v = &verification{guard: Guard(lastGuard.Add(1)), epoch: r.Epoch, adds: r.Adds, lowest: r.Sequence, since: l.now().UnixMilli()}
	if l.verifying == nil {
		l.verifying = map[int64]*verification{}
	}
	l.verifying[r.ProducerID] = v
	return v.guard, nil
}

// heard takes note of another batch. Of those in flight the lowest is to be the first in the
// log: a higher one that gets there sooner would have it refused for ever.
func (v *verification) heard(r VerificationRequest) {
	switch {
	case r.Epoch > v.epoch:
		v.epoch, v.lowest, v.adds = r.Epoch, r.Sequence, r.Adds
	case r.Epoch < v.epoch || r.Sequence == recordbatch.NoSequence:
	case v.lowest == recordbatch.NoSequence || r.Sequence < v.lowest:
		v.lowest = r.Sequence
	}
}

// Verified says that the coordinator has this partition in the transaction of the
// producer's epoch. It counts unless the verification of that guard is over.
func (l *Log) Verified(producerID int64, epoch int16, guard Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.verifying[producerID]
	if v == nil || v.guard != guard || v.verified && epoch < v.epoch {
		return
	}
	if epoch != v.epoch {
		v.epoch, v.lowest = epoch, recordbatch.NoSequence
	}
	v.verified = true
}

// Refused says that the coordinator does not have this partition in such a transaction: there
// is nothing to remember, unless another epoch is waited for.
func (l *Log) Refused(producerID int64, epoch int16, guard Guard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.verifying[producerID]; v != nil && v.guard == guard && !v.verified && v.epoch == epoch {
		delete(l.verifying, producerID)
	}
}

// checkVerified judges a transactional data batch that is to begin a transaction here.
// REQUIRES: mu held.
func (l *Log) checkVerified(b recordbatch.Batch) error {
	id, epoch := b.ProducerID(), b.ProducerEpoch()
	p := l.producers.byID[id]
	if p != nil {
		switch {
		case epoch == p.epoch && p.txnFirst >= 0:
			return nil
		case epoch < p.epoch:
			// Said before anything else: a client can go on after this error.
			return staleEpoch(id, epoch, p.epoch)
		}
	}
	if !l.cfg.VerifyTransactions {
		return nil
	}
	v := l.verifying[id]
	switch {
	case v == nil || !v.verified || epoch > v.epoch:
		return fmt.Errorf("the transaction of producer %d is not known to have this partition in it: %w", id, kerr.InvalidTxnState)
	case epoch < v.epoch:
		return staleEpoch(id, epoch, v.epoch)
	}
	first := b.BaseSequence()
	switch {
	case first == recordbatch.NoSequence:
	case v.adds && first != 0 && (p == nil || p.n == 0):
		return fmt.Errorf("producer %d: sequence %d, and nothing is known of what came before: %w", id, first, kerr.OutOfOrderSequenceNumber)
	case v.lowest != recordbatch.NoSequence && first > v.lowest:
		return fmt.Errorf("producer %d: sequence %d before %d, which was seen sooner: %w", id, first, v.lowest, kerr.OutOfOrderSequenceNumber)
	}
	return nil
}

// endVerification forgets what was verified: b has begun the transaction, or ended it. A
// marker of the transaction before does not end a verification for the next: by the second
// protocol every transaction has an epoch of its own, its marker already the one after, so
// that a marker of the epoch that is asked about is of the transaction before. That one may
// come at any time between the question and the batch.
// REQUIRES: mu held.
func (l *Log) endVerification(b recordbatch.Batch) {
	if len(l.verifying) == 0 || !b.IsTransactional() {
		return
	}
	v := l.verifying[b.ProducerID()]
	if v != nil && b.IsControl() && v.adds && b.ProducerEpoch() <= v.epoch {
		return
	}
	delete(l.verifying, b.ProducerID())
}

// expireVerifications forgets those that nobody came back to. REQUIRES: mu held.
func (l *Log) expireVerifications(now time.Time) {
	for id, v := range l.verifying {
		if now.UnixMilli()-v.since >= l.cfg.ProducerExpiry.Milliseconds() {
			delete(l.verifying, id)
		}
	}
}

func staleEpoch(id int64, epoch, current int16) error {
	return fmt.Errorf("producer %d has epoch %d, not %d: %w", id, current, epoch, kerr.InvalidProducerEpoch)
}
