package txn

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/planted"
)

// ending is an EndTxn request on its way.
type ending struct {
	id     string
	p      coordinator.Producer
	commit bool
	bump   bool  // the second protocol: every end gives a new epoch
	fresh  int64 // a producer id that nobody has yet, if one was needed already
	reply  func(coordinator.Producer, *kerr.Error)
}

// EndTxn handles EndTxn (versions 0 to 5): it decides the transaction. done is called
// exactly once, when the decision is stored; the markers follow by themselves.
//
// By version 5 (KIP-890) the answer has the producer id and the epoch to go on with, and
// a transaction that never began may be aborted. A request that was answered before is
// known by its epoch, and gets the same answer again.
//
// Errors: INVALID_REQUEST (no id), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
// COORDINATOR_NOT_AVAILABLE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
// (INVALID_PRODUCER_EPOCH before version 2), INVALID_TXN_STATE, CONCURRENT_TRANSACTIONS.
func (c *Coordinator) EndTxn(req *kmsg.EndTxnRequest, done func(*kmsg.EndTxnResponse)) {
	version := req.Version
	e := &ending{
		id: strings.Clone(req.TransactionalID), p: coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		commit: req.Commit, bump: version >= 5, fresh: noProducerID,
		reply: func(p coordinator.Producer, err *kerr.Error) {
			resp := kmsg.NewPtrEndTxnResponse()
			resp.Version = version
			resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
			resp.ErrorCode = code(older(err, version, 2))
			done(resp)
		},
	}
	if e.id == "" {
		e.refuse(kerr.InvalidRequest)
		return
	}
	c.end(e)
}

func (e *ending) refuse(err *kerr.Error) { e.reply(coordinator.NoProducer, err) }

func (c *Coordinator) end(e *ending) {
	err := c.with(e.id, func(t *transaction, fx *effects) {
		t.attempt(fx, func(fx *effects, late bool) bool { return t.end(fx, e, late) }, e.refuse)
	})
	if err != nil {
		e.refuse(err)
	}
}

// end is a step.
func (t *transaction) end(fx *effects, e *ending, late bool) (wait bool) {
	refuse := func(err *kerr.Error) { fx.call(func() { e.refuse(err) }) }
	again := e.bump && t.endedBefore(e.p)
	err := t.is(e.p)
	switch {
	case again:
		// The epoch is the one before: what it asks for has been done.
	case err != nil:
		refuse(err)
		return false
	case e.bump && t.state.prepared():
		// The end that is under way was answered with this epoch when it was decided, so its producer
		// may ask for the next one while markers are still being written.
		refuse(kerr.ConcurrentTransactions)
		return false
	}
	if t.pending {
		// While its markers are under way an end is not waited for: its producer would
		// learn no more than that it has to come again.
		if !late && !t.state.prepared() {
			return true
		}
		refuse(kerr.ConcurrentTransactions)
		return false
	}
	switch t.state {
	case stateOngoing:
	case stateCompleteCommit, stateCompleteAbort:
		same := e.commit == (t.state == stateCompleteCommit)
		switch {
		case same && again:
			p := coordinator.Producer{ID: t.producerID, Epoch: t.epoch}
			fx.call(func() { e.reply(p, nil) })
			return false
		case same && !e.bump:
			fx.call(func() { e.reply(coordinator.NoProducer, nil) })
			return false
		case again, !e.bump, e.commit:
			refuse(kerr.InvalidTxnState)
			return false
		}
	case stateEmpty:
		if !e.bump || e.commit {
			refuse(kerr.InvalidTxnState)
			return false
		}
	}
	t.decide(fx, e)
	return false
}

// endedBefore says whether an end by the second protocol with this producer's epoch has
// been decided already.
func (t *transaction) endedBefore(p coordinator.Producer) bool {
	switch t.state {
	case statePrepareCommit, statePrepareAbort:
		return p.ID == t.producerID && t.epoch == p.Epoch+1
	case stateCompleteCommit, stateCompleteAbort:
		return p.ID == t.producerID && t.epoch == p.Epoch+1 ||
			p.ID == t.previousID && p.Epoch == lastClientEpoch && t.epoch == 0
	}
	return false
}

// decide stores the outcome.
func (t *transaction) decide(fx *effects, e *ending) {
	next := t.meta
	next.state, next.updated, next.nextID, next.client = statePrepareAbort, nowMillis(), noProducerID, 0
	if e.commit || planted.Bug == planted.CommitForAbort {
		next.state = statePrepareCommit
	}
	if e.bump {
		if exhausted(t.epoch) {
			if e.fresh == noProducerID {
				fx.call(func() { t.c.endWithNewID(e) })
				return
			}
			next.nextID, e.fresh = e.fresh, noProducerID
		}
		next.epoch, next.lastEpoch, next.client = t.epoch+1, t.epoch, epochBump
		if t.state != stateOngoing {
			next.start, next.parts = next.updated, nil // nothing had begun
		}
	}
	t.write(fx, next, func(fx *effects, err *kerr.Error) {
		if err != nil {
			fx.call(func() { e.refuse(err) })
			return
		}
		p := coordinator.NoProducer
		if e.bump {
			done := t.completed()
			p = coordinator.Producer{ID: done.producerID, Epoch: done.epoch}
		}
		fx.call(func() { e.reply(p, nil) })
		t.sendMarkers(fx)
	})
}

func (c *Coordinator) endWithNewID(e *ending) {
	c.allocate(func(id int64, err *kerr.Error) {
		if err != nil {
			e.refuse(err)
			return
		}
		e.fresh = id
		c.end(e)
	})
}

// completed is what a prepared transaction is once all of its partitions have their
// markers.
func (t *transaction) completed() meta {
	next := t.meta
	next.state, next.parts, next.updated = stateCompleteAbort, nil, nowMillis()
	if t.state == statePrepareCommit {
		next.state = stateCompleteCommit
	}
	if next.client >= epochBump && next.nextID != noProducerID {
		next.producerID, next.epoch = next.nextID, 0
	}
	next.nextID = noProducerID
	return next
}

// complete stores that the transaction is over; done again until it is stored, or
// somebody else coordinates it.
func (t *transaction) complete(fx *effects) {
	t.write(fx, t.completed(), func(fx *effects, err *kerr.Error) {
		if err == nil || t.gone != alive {
			return
		}
		t.pending = true
		t.c.later(retryPause, func() {
			t.do(func(fx *effects) {
				if t.gone == alive {
					t.complete(fx)
				}
			})
		})
	})
}
