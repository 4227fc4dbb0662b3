package commitlog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/planted"
	"penstock/dataplane/recordbatch"
)

// rememberedBatches is how many batches of a producer are known as duplicates: as
// many as a producer may have in flight.
const rememberedBatches = 5

// batchMeta is one appended batch of an idempotent producer.
type batchMeta struct {
	lastSeq     int32
	lastOffset  int64
	offsetDelta int32 // last offset - first offset
	timestamp   int64 // largest, ms
}

func (m *batchMeta) firstSeq() int32    { return recordbatch.AddSequence(m.lastSeq, -m.offsetDelta) }
func (m *batchMeta) firstOffset() int64 { return m.lastOffset - int64(m.offsetDelta) }

// producer is the state of one producer id in one partition.
type producer struct {
	epoch            int16
	n                int // valid batches, oldest first
	batches          [rememberedBatches]batchMeta
	lastTimestamp    int64 // when the last batch or marker came, ms; see add
	coordinatorEpoch int32 // of the last marker, -1 if none
	txnFirst         int64 // first offset of the open transaction, -1 if none
}

func (p *producer) lastSeq() int32 {
	if p.n == 0 {
		return recordbatch.NoSequence
	}
	return p.batches[p.n-1].lastSeq
}

// producers is the state of all producers of a log, guarded by Log.mu.
type producers struct {
	byID map[int64]*producer
	open []txn // the open transactions, by first offset
}

// duplicate is the earlier append of the same batch, nil if there is none. A coordinator's
// batches have no sequence to know them by.
func (ps *producers) duplicate(b recordbatch.Batch) *batchMeta {
	p, first := ps.byID[b.ProducerID()], b.BaseSequence()
	if p == nil || b.ProducerEpoch() != p.epoch || first == recordbatch.NoSequence {
		return nil
	}
	for i := range p.n {
		if m := &p.batches[i]; m.firstSeq() == first && m.lastSeq == b.LastSequence() {
			return m
		}
	}
	return nil
}

// check judges a data batch that is no duplicate. Of a coordinator's batch, which has no
// sequence, only the epoch is looked at.
func (ps *producers) check(b recordbatch.Batch) error {
	p := ps.byID[b.ProducerID()]
	if p == nil {
		return nil // unknown or expired: any sequence may start
	}
	if planted.Bug == planted.AnySequence {
		if rand.IntN(10) == 0 {
			return kerr.NotEnoughReplicas
		}
		return nil
	}
	epoch, first := b.ProducerEpoch(), b.BaseSequence()
	sequenced := first != recordbatch.NoSequence
	switch {
	case epoch < p.epoch:
		return staleEpoch(b.ProducerID(), epoch, p.epoch)
	case sequenced && epoch != p.epoch && first != 0 && p.epoch >= 0:
		return fmt.Errorf("producer %d: sequence %d for the new epoch %d: %w", b.ProducerID(), first, epoch, kerr.OutOfOrderSequenceNumber)
	case sequenced && epoch == p.epoch && recordbatch.AddSequence(p.lastSeq(), 1) != first:
		return fmt.Errorf("producer %d: sequence %d after %d: %w", b.ProducerID(), first, p.lastSeq(), kerr.OutOfOrderSequenceNumber)
	case p.txnFirst >= 0 && !b.IsTransactional():
		return fmt.Errorf("producer %d has an open transaction: %w", b.ProducerID(), kerr.InvalidTxnState)
	}
	return nil
}

// add takes over a data batch that is in the log. Only its header is used.
//
// What counts for expiry is when the batch came (now, ms), not the time that its
// client gave the records: events of years ago would have their producer forgotten
// while it is at work, and a retry appended again. Kafka goes by the records' time;
// the snapshot's field is the same. The log keeps no time of arrival but that of
// LogAppendTime, so of batches that are read back, now is the time of the reading.
func (ps *producers) add(h recordbatch.Batch, now int64) {
	p := ps.get(h.ProducerID())
	if e := h.ProducerEpoch(); e != p.epoch {
		p.epoch, p.n = e, 0
	}
	if p.n == rememberedBatches {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = batchMeta{h.LastSequence(), h.LastOffset(), h.LastOffsetDelta(), h.MaxTimestamp()}
	p.n++
	p.lastTimestamp = now
	if h.IsLogAppendTime() {
		p.lastTimestamp = h.MaxTimestamp()
	}
	if h.IsTransactional() && p.txnFirst < 0 {
		ps.begin(p, h.ProducerID(), h.BaseOffset())
	}
}

// begin opens a transaction of producer p.
func (ps *producers) begin(p *producer, id, first int64) {
	p.txnFirst = first
	i := len(ps.open)
	for i > 0 && ps.open[i-1].first > first { // of a snapshot only, which is sorted by id
		i--
	}
	ps.open = slices.Insert(ps.open, i, txn{producerID: id, first: first, last: -1})
}

// firstOpen is where the oldest open transaction begins, noOffset if there is none.
func (ps *producers) firstOpen() int64 {
	if len(ps.open) == 0 {
		return noOffset
	}
	return ps.open[0].first
}

// checkMarker judges a marker that the transaction coordinator wants appended. In the
// second version of transactions its epoch follows that of the transaction's batches: one of the
// same epoch is late, for the transaction before, unless nothing is open here; then it is a
// marker that comes again, as its answer was lost or its coordinator is another one.
func (ps *producers) checkMarker(b recordbatch.Batch, transactionVersion int8) error {
	m, ok, err := parseMarker(b)
	if err != nil {
		return fmt.Errorf("%w: %w", err, kerr.InvalidRecord)
	}
	p := ps.byID[b.ProducerID()]
	switch {
	case !ok || p == nil:
		return nil
	case b.ProducerEpoch() < p.epoch,
		transactionVersion >= 2 && b.ProducerEpoch() == p.epoch && p.txnFirst >= 0:
		return fmt.Errorf("producer %d has epoch %d, its marker (transaction version %d) %d: %w", b.ProducerID(), p.epoch, transactionVersion,
			b.ProducerEpoch(), kerr.InvalidProducerEpoch)
	case m.coordinatorEpoch < p.coordinatorEpoch:
		return fmt.Errorf("producer %d: marker of coordinator epoch %d after one of %d: %w", b.ProducerID(), m.coordinatorEpoch, p.coordinatorEpoch,
			kerr.TransactionCoordinatorFenced)
	}
	return nil
}

// end takes over the marker of control batch b: the producer's transaction is over.
// ok is false if it had none; then only the epochs are news.
func (ps *producers) end(b recordbatch.Batch, m marker) (t txn, ok bool) {
	id := b.ProducerID()
	p := ps.get(id)
	if e := b.ProducerEpoch(); e != p.epoch {
		p.epoch, p.n = e, 0
	}
	p.coordinatorEpoch, p.lastTimestamp = m.coordinatorEpoch, m.timestamp
	if p.txnFirst < 0 {
		return txn{}, false
	}
	t = txn{producerID: id, first: p.txnFirst, last: b.BaseOffset()}
	ps.forget(t)
	return t, true
}

// forget closes a transaction.
func (ps *producers) forget(t txn) {
	ps.byID[t.producerID].txnFirst = -1
	ps.open = slices.DeleteFunc(ps.open, func(o txn) bool { return o.producerID == t.producerID })
}

func (ps *producers) get(id int64) *producer {
	p := ps.byID[id]
	if p == nil {
		if ps.byID == nil {
			ps.byID = map[int64]*producer{}
		}
		p = &producer{epoch: recordbatch.NoProducerEpoch, coordinatorEpoch: -1, txnFirst: -1}
		ps.byID[id] = p
	}
	return p
}

// expire forgets producers that wrote nothing for the time; those with an open
// transaction stay.
func (ps *producers) expire(now time.Time, after time.Duration) {
	for id, p := range ps.byID {
		if p.txnFirst < 0 && now.UnixMilli()-p.lastTimestamp >= after.Milliseconds() {
			delete(ps.byID, id)
		}
	}
}

// ActiveProducer is what a log knows of a producer (KIP-664).
type ActiveProducer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // -1 if no batch of the epoch is known
	LastTimestamp    int64 // when its last batch or marker came, ms since 1970
	CoordinatorEpoch int32 // of its last marker, -1 if there was none
	TransactionStart int64 // first offset of its open transaction, -1 if it has none
}

// Producers lists the producers that have not expired, by id.
func (l *Log) Producers() []ActiveProducer {
	l.mu.Lock()
	out := make([]ActiveProducer, 0, len(l.producers.byID))
	for id, p := range l.producers.byID {
		out = append(out, ActiveProducer{id, p.epoch, p.lastSeq(), p.lastTimestamp, p.coordinatorEpoch, p.txnFirst})
	}
	l.mu.Unlock()
	slices.SortFunc(out, func(a, b ActiveProducer) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
