package txn

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
)

// presence says whether a transaction still is what its id stands for.
type presence uint8

const (
	alive     presence = iota
	forgotten          // expired, or never stored: look again
	lost               // this broker does not lead its partition any more
)

// transaction is one transactional id with the transaction that it is in, if any. Every
// field below mu is guarded by it.
//
// Invariants: while pending, nobody but the one who set it may change meta; a prepared
// transaction is pending; epoch never goes back under one producer id.
type transaction struct {
	id string
	c  *Coordinator
	sh *shard

	mu sync.Mutex
	// meta is what was stored last, less the partitions that have their markers.
	meta
	gone presence
	// pending: a record is being written, or the markers of what was decided are.
	pending bool
	// fenced: a write that was to fence the producer failed, and may be in the log all
	// the same. epoch is the one of that write, which nobody was given.
	fenced  bool
	waiting []*waiter
}

func newTransaction(c *Coordinator, sh *shard, id string, m meta) *transaction {
	return &transaction{id: strings.Clone(id), c: c, sh: sh, meta: m}
}

// effects are what a decision wants done once the mutex is free.
type effects struct {
	calls []func()
	drain bool
}

func (fx *effects) call(f func()) { fx.calls = append(fx.calls, f) }

// do runs f with the mutex held, then its effects.
func (t *transaction) do(f func(*effects)) {
	var fx effects
	t.mu.Lock()
	f(&fx)
	t.mu.Unlock()
	for _, call := range fx.calls {
		call()
	}
	if fx.drain {
		t.sh.Drain()
	}
}

// write stores next, which is in force when done is told so; done runs with the mutex
// held, and not pending any more.
func (t *transaction) write(fx *effects, next meta, done func(*effects, *kerr.Error)) {
	next.previousID = t.producerID
	t.pending = true
	rec := record(t.id, &next, t.c.cfg.Version())
	fx.drain = true
	t.sh.Enqueue(coordinator.Batch{Records: []coordinator.Record{rec}, Producer: coordinator.NoProducer}, func(err error) {
		t.do(func(fx *effects) {
			if t.gone != alive {
				// Stored or not: the next coordinator goes by its log.
				done(fx, kerr.NotCoordinator)
				return
			}
			t.pending = false
			if err != nil {
				t.c.cfg.Logger.Warn("a transaction's record was not stored", "id", t.id, "state", next.state, "err", err)
			} else {
				t.meta, t.fenced = next, false
			}
			done(fx, storeError(err))
			t.wake(fx)
		})
	})
}

// forget takes the id out of the table: it holds nothing worth to be remembered.
func (t *transaction) forget(fx *effects) {
	t.gone = forgotten
	fx.call(func() { t.sh.Forget(t.id, t) })
	t.dismiss(fx)
}

// lose ends the transaction here: its partition is not led any more.
func (t *transaction) lose(fx *effects) {
	t.gone = lost
	t.dismiss(fx)
}

// waiter is a request that waits until nothing is pending.
type waiter struct {
	// try is called with the mutex held; with late set it must come to an end.
	try   step
	leave func(*kerr.Error)
	timer *time.Timer
}

// step does what a request asks for, and returns true when it has to wait for what is
// pending; never when late is set.
type step func(fx *effects, late bool) (wait bool)

// maxWaiting bounds the requests that wait for one transaction.
const maxWaiting = 1000

// attempt runs try now, and if it has to wait again once nothing is pending or the
// patience is at its end. leave is called instead of it when the transaction is gone.
func (t *transaction) attempt(fx *effects, try step, leave func(*kerr.Error)) {
	late := t.c.cfg.Patience <= 0 || len(t.waiting) >= maxWaiting
	if !try(fx, late) {
		return
	}
	w := &waiter{try: try, leave: leave}
	w.timer = time.AfterFunc(t.c.cfg.Patience, func() {
		t.do(func(fx *effects) {
			if i := slices.Index(t.waiting, w); i >= 0 {
				t.waiting = slices.Delete(t.waiting, i, i+1)
				w.try(fx, true)
			}
		})
	})
	t.waiting = append(t.waiting, w)
}

// wake lets those who wait try again, in their order, until something is pending.
func (t *transaction) wake(fx *effects) {
	for len(t.waiting) > 0 && !t.pending && t.gone == alive {
		w := t.waiting[0]
		t.waiting = slices.Delete(t.waiting, 0, 1)
		if w.try(fx, false) {
			t.waiting = append([]*waiter{w}, t.waiting...)
			return
		}
		w.timer.Stop()
	}
}

// dismiss sends those away who wait for a transaction that is gone.
func (t *transaction) dismiss(fx *effects) {
	for _, w := range t.waiting {
		w.timer.Stop()
		fx.call(func() { w.leave(kerr.NotCoordinator) })
	}
	t.waiting = nil
}
