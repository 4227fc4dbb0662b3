// Package txnverify asks transaction coordinators whether a producer's transaction has a
// partition in it, before the partition's leader appends the transaction's first batch (KIP-890):
// a batch that the coordinator does not know of would never get a marker, and hold up readers of
// committed data for ever. In the second version of the protocol the leader does not ask
// whether the partition was added, it adds it.
//
// What is asked of one broker goes in one request at a time, with all that has come together
// meanwhile. What was asked and answered is kept by the partition's log, which knows when it
// stops to hold.
//
// Verifier.mu is a leaf: nothing is called with it held.
package txnverify

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// ErrOldCoordinator is the error of Config.Ask for a coordinator of a release that cannot
// be asked: it has no AddPartitionsToTxn of version 4.
var ErrOldCoordinator = errors.New("the transaction coordinator is too old to be asked")

// Config is a Verifier's world. All fields but Logger are required.
type Config struct {
	// Enabled is transaction.partition.verification.enable. Without it nothing is asked,
	// but partitions are added where the protocol demands it.
	Enabled func() bool
	// Coordinator is the broker that coordinates a transactional id. Error:
	// COORDINATOR_NOT_AVAILABLE.
	Coordinator func(txnID string) (broker int32, err error)
	// Ask has the request answered by a broker. It ends with ctx.
	Ask func(ctx context.Context, broker int32, req *kmsg.AddPartitionsToTxnRequest) (*kmsg.AddPartitionsToTxnResponse, error)

	// Begin and End are the log's: partition.Manager.BeginVerification and EndVerification.
	Begin func(tp protocol.TopicPartition, r commitlog.VerificationRequest) (commitlog.Guard, error)
	End   func(tp protocol.TopicPartition, producerID int64, epoch int16, guard commitlog.Guard, verified bool)

	// Timeout bounds a request to a coordinator: request.timeout.ms.
	Timeout time.Duration
	// RetryBackoff and RetryFor are add.partitions.to.txn.retry.backoff.ms and .max.ms: a
	// partition cannot be added while the transaction before is being ended, which takes so
	// little that the client's own pause would be the longer one.
	RetryBackoff, RetryFor time.Duration

	Logger *slog.Logger
}

// Verifier is one broker's. Its methods are safe for concurrent use.
type Verifier struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	queues map[int32][]*question // by coordinator's broker; a key exists exactly while its loop runs
	closed bool
	stats  Stats
}

// Stats says what has been asked of coordinators since the start.
type Stats struct {
	Requests   int64         // answered or not
	Partitions int64         // that they asked about
	Failures   int64         // of those: unverified for an error, whether the coordinator's or of the way to it
	Time       time.Duration // that the requests took, all together
	Longest    time.Duration // of those since the last Stats
}

// Stats resets Longest.
func (v *Verifier) Stats() Stats {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.stats
	v.stats.Longest = 0
	return s
}

// New returns a Verifier; Close must be called.
func New(cfg Config) *Verifier {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	v := &Verifier{cfg: cfg, queues: map[int32][]*question{}}
	v.ctx, v.cancel = context.WithCancel(context.Background())
	return v
}

// Close has all that is still asked fail, and returns when nothing runs any more.
func (v *Verifier) Close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.cancel()
	v.wg.Wait()
}

// Batch is one partition's batch that may begin a transaction there.
type Batch struct {
	TP       protocol.TopicPartition
	Sequence int32 // its first; recordbatch.NoSequence if it has none

	// Guard is that of a verification which the caller has begun for it, 0 if none is.
	Guard commitlog.Guard
}

// Verify is VerifyBatches for batches without a sequence, as coordinators write them.
func (v *Verifier) Verify(txnID string, p coordinator.Producer, tps []protocol.TopicPartition, add bool, done func(errs []error)) {
	batches := make([]Batch, len(tps))
	for i, tp := range tps {
		batches[i] = Batch{TP: tp, Sequence: recordbatch.NoSequence}
	}
	v.VerifyBatches(txnID, p, batches, add, done)
}

// VerifyBatches asks whether the producer's transaction has the partitions in it, or, with
// add, has them added to it. What the logs know already is not asked. done is called exactly
// once, on any goroutine, maybe before the return (batches is not the caller's any more), with an error or nil for each batch; after
// nil the batch may be appended, as long as no marker comes in between.
//
// Errors: those of an append to a partition that is not led here; the coordinator's, of which
// PRODUCER_FENCED is told as INVALID_PRODUCER_EPOCH, which producers expect;
// COORDINATOR_NOT_AVAILABLE; NETWORK_EXCEPTION if it did not answer.
func (v *Verifier) VerifyBatches(txnID string, p coordinator.Producer, batches []Batch, add bool, done func(errs []error)) {
	a := &asking{v: v, txnID: txnID, producer: p, add: add, batches: batches, errs: make([]error, len(batches)), done: done, began: time.Now()}
	if !add && !v.cfg.Enabled() {
		done(a.errs)
		return
	}
	a.open = make([]int, len(batches))
	for i := range a.open {
		a.open[i] = i
	}
	a.ask()
}

// asking is one call of VerifyBatches.
type asking struct {
	v        *Verifier
	txnID    string
	producer coordinator.Producer
	add      bool
	batches  []Batch
	errs     []error
	done     func([]error)
	began    time.Time

	open   []int             // batches that have no answer yet
	guards []commitlog.Guard // of these
}

// ask begins a verification of each open batch and puts the question.
func (a *asking) ask() {
	a.guards = a.guards[:0]
	still := a.open[:0]
	for _, i := range a.open {
		b := &a.batches[i]
		guard, err := b.Guard, error(nil)
		if b.Guard = 0; guard == 0 { // of an earlier question it is worth nothing
			guard, err = a.v.cfg.Begin(b.TP, commitlog.VerificationRequest{
				ProducerID: a.producer.ID, Epoch: a.producer.Epoch, Sequence: b.Sequence, Adds: a.add,
			})
		}
		if a.errs[i] = err; err == nil && guard != 0 {
			still, a.guards = append(still, i), append(a.guards, guard)
		}
	}
	if a.open = still; len(a.open) == 0 {
		a.done(a.errs)
		return
	}
	broker, err := a.v.cfg.Coordinator(a.txnID)
	if err != nil {
		a.answer(func(protocol.TopicPartition) error { return err })
		return
	}
	a.v.put(broker, &question{a.txnID, a.producer, a.add, a.partitions(), a.answer})
}

func (a *asking) partitions() []protocol.TopicPartition {
	tps := make([]protocol.TopicPartition, len(a.open))
	for n, i := range a.open {
		tps[n] = a.batches[i].TP
	}
	return tps
}

// answer takes what the coordinator said of each partition asked about.
func (a *asking) answer(said func(protocol.TopicPartition) error) {
	again, failed := a.open[:0], int64(0)
	for n, i := range a.open {
		tp := a.batches[i].TP
		err := said(tp)
		if err != nil {
			failed++
		}
		if errors.Is(err, kerr.ProducerFenced) {
			err = kerr.InvalidProducerEpoch
		}
		if err == nil || !passing(err) {
			a.v.cfg.End(tp, a.producer.ID, a.producer.Epoch, a.guards[n], err == nil)
		}
		a.errs[i] = err
		if a.add && errors.Is(err, kerr.ConcurrentTransactions) {
			again = append(again, i)
		}
	}
	if failed > 0 {
		a.v.failed(failed)
	}
	a.open = again
	if len(again) == 0 || time.Since(a.began) >= a.v.cfg.RetryFor || !a.v.later(a.v.cfg.RetryBackoff, a.ask) {
		a.done(a.errs)
	}
}

// passing says that an answer may be another one soon.
func passing(err error) bool {
	for _, e := range []error{kerr.ConcurrentTransactions, kerr.NetworkException, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// later calls f after the pause, or as soon as the verifier is closed; false if it is.
func (v *Verifier) later(pause time.Duration, f func()) bool {
	return v.spawn(func() {
		t := time.NewTimer(pause)
		defer t.Stop()
		select {
		case <-t.C:
		case <-v.ctx.Done():
		}
		f()
	})
}

func (v *Verifier) spawn(f func()) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.wg.Go(f)
	return true
}

// question is what one asking wants to know of a coordinator.
type question struct {
	txnID    string
	producer coordinator.Producer
	add      bool
	tps      []protocol.TopicPartition
	answer   func(said func(protocol.TopicPartition) error)
}

// maxPartitions bounds one request, some 100 KiB: behind it the next ones wait.
const maxPartitions = 2000

// put adds a question to those for a broker.
func (v *Verifier) put(broker int32, q *question) {
	v.mu.Lock()
	if v.closed {
		v.mu.Unlock()
		q.fail(kerr.NetworkException)
		return
	}
	_, running := v.queues[broker]
	v.queues[broker] = append(v.queues[broker], q)
	if !running {
		v.wg.Go(func() { v.serve(broker) })
	}
	v.mu.Unlock()
}

func (q *question) fail(err error) {
	q.answer(func(protocol.TopicPartition) error { return err })
}

// serve asks a broker until there are no questions for it.
func (v *Verifier) serve(broker int32) {
	for {
		qs := v.take(broker)
		if len(qs) == 0 {
			return
		}
		v.askAll(broker, qs)
	}
}

// take gives questions that fit one request, in which a transactional id stands once.
func (v *Verifier) take(broker int32) []*question {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out, rest []*question
	partitions, ids := 0, map[string]bool{}
	for _, q := range v.queues[broker] {
		if ids[q.txnID] || len(out) > 0 && partitions+len(q.tps) > maxPartitions {
			ids[q.txnID] = true // the order of an id's questions stays
			rest = append(rest, q)
			continue
		}
		ids[q.txnID] = true
		partitions += len(q.tps)
		out = append(out, q)
	}
	if len(out) == 0 {
		delete(v.queues, broker)
	} else {
		v.queues[broker] = rest
	}
	return out
}

func (v *Verifier) askAll(broker int32, qs []*question) {
	ctx, cancel := context.WithTimeout(v.ctx, v.cfg.Timeout)
	defer cancel()
	began := time.Now()
	resp, err := v.cfg.Ask(ctx, broker, request(qs))
	v.note(qs, time.Since(began))
	switch {
	case errors.Is(err, ErrOldCoordinator):
		// Nothing can be learnt; producers of that time did without. To add it cannot do at all.
		v.cfg.Logger.Warn("transactions are not verified", "coordinator", broker, "error", err)
		for _, q := range qs {
			if q.add {
				q.fail(kerr.InvalidTxnState)
			} else {
				q.fail(nil)
			}
		}
		return
	case err != nil:
		if v.ctx.Err() == nil {
			v.cfg.Logger.Warn("transactions could not be verified", "coordinator", broker, "transactions", len(qs), "error", err)
		}
		err = kerr.NetworkException
	case resp.ErrorCode == kerr.ClusterAuthorizationFailed.Code:
		err = kerr.InvalidTxnState // ours to mend, not the client's to know
	case resp.ErrorCode != 0:
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		for _, q := range qs {
			q.fail(err)
		}
		return
	}
	said := answers(resp)
	for _, q := range qs {
		of := said[q.txnID]
		q.answer(func(tp protocol.TopicPartition) error {
			if code, ok := of[tp]; ok {
				return kerr.ErrorForCode(code)
			}
			return kerr.CoordinatorNotAvailable // it left the partition out
		})
	}
}

// note counts a request.
func (v *Verifier) note(qs []*question, took time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.Requests++
	for _, q := range qs {
		v.stats.Partitions += int64(len(q.tps))
	}
	v.stats.Time, v.stats.Longest = v.stats.Time+took, max(v.stats.Longest, took)
}

// failed counts partitions that could not be verified.
func (v *Verifier) failed(n int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.Failures += n
}

// request is the batched form, which only brokers may send.
func request(qs []*question) *kmsg.AddPartitionsToTxnRequest {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version = 5
	for _, q := range qs {
		t := kmsg.NewAddPartitionsToTxnRequestTransaction()
		t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = q.txnID, q.producer.ID, q.producer.Epoch, !q.add
		at := map[string]int{}
		for _, tp := range q.tps {
			i, ok := at[tp.Topic]
			if !ok {
				rt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
				rt.Topic = tp.Topic
				i, t.Topics = len(t.Topics), append(t.Topics, rt)
				at[tp.Topic] = i
			}
			t.Topics[i].Partitions = append(t.Topics[i].Partitions, tp.Partition)
		}
		req.Transactions = append(req.Transactions, t)
	}
	return req
}

func answers(resp *kmsg.AddPartitionsToTxnResponse) map[string]map[protocol.TopicPartition]int16 {
	all := make(map[string]map[protocol.TopicPartition]int16, len(resp.Transactions))
	for i := range resp.Transactions {
		x := &resp.Transactions[i]
		of := map[protocol.TopicPartition]int16{}
		for j := range x.Topics {
			for _, p := range x.Topics[j].Partitions {
				of[protocol.TopicPartition{Topic: x.Topics[j].Topic, Partition: p.Partition}] = p.ErrorCode
			}
		}
		all[x.TransactionalID] = of
	}
	return all
}
