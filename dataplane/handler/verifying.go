package handler

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/txnverify"
)

// The versions of Produce in which a client understands TRANSACTION_ABORTABLE, and in which
// its partitions are added to the transaction by the leader (KIP-890).
const (
	produceKnowsAbortable = 11
	produceAdds           = 12
)

// verifyTransaction has the coordinator asked about each partition in which a batch of the
// request may begin a transaction, and refuses the entries of those that it does not have.
// It blocks while it asks, and with it the connection: its batches must come into the log in the
// order in which they were sent. A batch of a transaction that is open in its partition costs
// a look into the producer's state.
func (x *producing) verifyTransaction(txnID string) {
	add := x.r.Version >= produceAdds
	producer, batches, at := coordinator.NoProducer, []txnverify.Batch(nil), []int(nil)
	for i := range x.entries {
		e := &x.entries[i]
		b := recordbatch.Batch(e.Records)
		if !transactional(b) || !b.HasProducerID() {
			continue
		}
		p := coordinator.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch()}
		if producer != coordinator.NoProducer && producer != p {
			// One transactional id has one producer. As Kafka does, nothing of such a request is taken.
			for i := range x.entries {
				x.entries[i].Refused = kerr.InvalidProducerIDMapping
			}
			return
		}
		producer = p
		if !add && !x.h.Broker().VerifyTransactions {
			continue
		}
		guard, err := x.h.Partitions.BeginVerification(e.TP, commitlog.VerificationRequest{
			ProducerID: p.ID, Epoch: p.Epoch, Sequence: b.BaseSequence(), Adds: add,
		})
		if e.Refused = err; err == nil && guard != 0 {
			batches, at = append(batches, txnverify.Batch{TP: e.TP, Sequence: b.BaseSequence(), Guard: guard}), append(at, i)
		}
	}
	if len(batches) == 0 {
		return
	}
	size := int64(x.r.Size)
	waiting := x.h.verifying.Add(size)
	defer x.h.verifying.Add(-size)
	if max := x.h.VerifyingMax; max > 0 && waiting > max && waiting > size {
		// The memory that these hold others need, the coordinators' requests to this broker among
		// them: two brokers whose budgets are full of such would wait for each other.
		for _, i := range at {
			x.entries[i].Refused = refusal(kerr.CoordinatorNotAvailable, x.r.Version)
		}
		return
	}
	answered := make(chan []error, 1)
	began := time.Now()
	x.h.VerifyBatches(txnID, producer, batches, add, func(errs []error) { answered <- errs })
	for n, err := range <-answered { // the verifier's time is bounded
		x.entries[at[n]].Refused = refusal(err, x.r.Version)
	}
	x.r.Start = x.r.Start.Add(time.Since(began)) // not the tenant's time, nor this broker's work
}

// refusal is how a producer of that version of Produce is told what its coordinator said.
func refusal(err error, version int16) error {
	is := func(e *kerr.Error) bool { return errors.Is(err, e) }
	switch {
	case err == nil:
		return nil
	case is(kerr.TransactionAbortable) && version < produceKnowsAbortable, is(kerr.InvalidTxnState):
		return fmt.Errorf("%w: Partition was not added to the transaction", kerr.InvalidTxnState)
	case is(kerr.ConcurrentTransactions) && version < produceAdds, is(kerr.NetworkException),
		is(kerr.CoordinatorLoadInProgress), is(kerr.CoordinatorNotAvailable), is(kerr.NotCoordinator):
		// Old clients do not try again after some of these. This error they do, and without asking for metadata.
		return fmt.Errorf("%w: Unable to verify the partition has been added to the transaction. Underlying error: %v", kerr.NotEnoughReplicas, err)
	}
	return err
}
