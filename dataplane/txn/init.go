package txn

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

// initializer is an InitProducerId request on its way.
type initializer struct {
	id       string
	timeout  int32                 // ms
	expected *coordinator.Producer // what the producer believes to have (KIP-360); may be nil
	fresh    int64                 // a producer id that nobody has yet, if one was needed already
	reply    func(coordinator.Producer, *kerr.Error)
}

// InitProducerID handles InitProducerId (versions 0 to 5) with a transactional id: it
// gives the producer an epoch above all that others have of the same id, so that those
// are fenced. A transaction that is open is aborted first; the answer to that is
// CONCURRENT_TRANSACTIONS, and the next try gets the epoch. done is called exactly once.
//
// Errors besides: INVALID_REQUEST (no id), INVALID_TRANSACTION_TIMEOUT, NOT_COORDINATOR,
// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, PRODUCER_FENCED
// (INVALID_PRODUCER_EPOCH before version 4).
func (c *Coordinator) InitProducerID(req *kmsg.InitProducerIDRequest, done func(*kmsg.InitProducerIDResponse)) {
	version := req.Version
	r := &initializer{
		id: strings.Clone(*req.TransactionalID), timeout: req.TransactionTimeoutMillis, fresh: noProducerID,
		reply: func(p coordinator.Producer, err *kerr.Error) {
			resp := kmsg.NewPtrInitProducerIDResponse()
			resp.Version = version
			resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
			resp.ErrorCode = code(older(err, version, 4))
			done(resp)
		},
	}
	hasID, hasEpoch := req.ProducerID != noProducerID, req.ProducerEpoch != noEpoch
	limit := time.Duration(req.TransactionTimeoutMillis) * time.Millisecond
	switch {
	case version >= 3 && hasID != hasEpoch, r.id == "":
		r.refuse(kerr.InvalidRequest)
		return
	case limit <= 0, limit > c.cfg.MaxTimeout:
		r.refuse(kerr.InvalidTransactionTimeout)
		return
	case version >= 3 && hasID:
		r.expected = &coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	}
	c.initialize(r)
}

func (r *initializer) refuse(err *kerr.Error) { r.reply(coordinator.NoProducer, err) }

// initialize finds the id, or makes it once it has a producer id to give.
func (c *Coordinator) initialize(r *initializer) {
	for {
		t, err := c.shards.Find(r.id, nil)
		if err == nil && t == nil {
			if r.fresh == noProducerID {
				c.initializeWithNewID(r)
				return
			}
			t, err = c.shards.Find(r.id, func(sh *shard) (string, *transaction) {
				t := newTransaction(c, sh, r.id, meta{
					producerID: r.fresh, previousID: noProducerID, nextID: noProducerID,
					start: noTime, updated: nowMillis(), timeout: r.timeout,
					epoch: noEpoch, lastEpoch: noEpoch, nextEpoch: noEpoch,
				})
				r.fresh = noProducerID
				return t.id, t
			})
		}
		if err != nil {
			r.refuse(err)
			return
		}
		again, err := t.run(func(t *transaction, fx *effects) {
			t.attempt(fx, func(fx *effects, late bool) bool { return t.initialize(fx, r, late) }, r.refuse)
		})
		if err != nil {
			r.refuse(err)
		}
		if !again {
			return
		}
	}
}

func (c *Coordinator) initializeWithNewID(r *initializer) {
	c.allocate(func(id int64, err *kerr.Error) {
		if err != nil {
			r.refuse(err)
			return
		}
		r.fresh = id
		c.initialize(r)
	})
}

// initialize is a step.
func (t *transaction) initialize(fx *effects, r *initializer, late bool) (wait bool) {
	refuse := func(err *kerr.Error) { fx.call(func() { r.refuse(err) }) }
	switch {
	case t.pending && !late:
		return true
	case t.pending:
		refuse(kerr.ConcurrentTransactions)
		return false
	case r.expected != nil && !t.had(*r.expected):
		refuse(kerr.ProducerFenced)
		return false
	case t.state == stateOngoing:
		t.fence(fx, func(fx *effects, err *kerr.Error) {
			if err == nil {
				err = kerr.ConcurrentTransactions // come again for an epoch of your own
			}
			fx.call(func() { r.refuse(err) })
		})
		return false
	}
	next := t.meta
	next.state, next.parts, next.start, next.updated, next.timeout = stateEmpty, nil, noTime, nowMillis(), r.timeout
	switch {
	case exhausted(t.epoch) && (r.expected == nil || r.expected.Epoch == t.epoch):
		if r.fresh == noProducerID {
			fx.call(func() { t.c.initializeWithNewID(r) })
			return false
		}
		next.producerID, next.epoch, next.lastEpoch = r.fresh, 0, noEpoch
		if r.expected != nil {
			next.lastEpoch = t.epoch
		}
		r.fresh = noProducerID
	case r.expected == nil:
		next.epoch, next.lastEpoch = t.epoch+1, noEpoch
	case t.epoch == noEpoch, r.expected.Epoch == t.epoch:
		next.epoch, next.lastEpoch = t.epoch+1, t.epoch
	case r.expected.Epoch == t.lastEpoch:
		// It had its answer lost; no other producer has come since, or lastEpoch were gone.
	default:
		refuse(kerr.ProducerFenced)
		return false
	}
	t.write(fx, next, func(fx *effects, err *kerr.Error) {
		if err != nil {
			if t.gone == alive && t.epoch == noEpoch {
				t.forget(fx) // it never was
			}
			fx.call(func() { r.refuse(err) })
			return
		}
		t.c.cfg.Logger.Debug("a transactional producer begins", "id", t.id, "producer", next.producerID, "epoch", next.epoch)
		fx.call(func() { r.reply(coordinator.Producer{ID: next.producerID, Epoch: next.epoch}, nil) })
	})
	return false
}

// had says whether a producer that believes to be p may be the one of this id: its
// producer id is the current one, or the one before, whose epochs it had used up. An id
// that was just made knows nobody.
func (t *transaction) had(p coordinator.Producer) bool {
	return t.epoch == noEpoch || p.ID == t.producerID || p.ID == t.previousID && exhausted(p.Epoch)
}

// fence aborts the open transaction under the next epoch, so that whoever has the
// current one can go on no more.
func (t *transaction) fence(fx *effects, done func(*effects, *kerr.Error)) {
	next := t.meta
	next.state, next.updated, next.nextID = statePrepareAbort, nowMillis(), noProducerID
	next.lastEpoch, next.client = noEpoch, 0
	if !t.fenced {
		next.epoch++
		if v := t.c.cfg.Version(); v >= epochBump {
			// As an end by the producer itself, which may ask how it ended and go on.
			next.lastEpoch, next.client = t.epoch, v
		}
	}
	t.write(fx, next, func(fx *effects, err *kerr.Error) {
		switch {
		case err == nil:
			t.sendMarkers(fx)
		case t.gone == alive:
			t.epoch, t.lastEpoch, t.fenced = next.epoch, noEpoch, true
		}
		done(fx, err)
	})
}
