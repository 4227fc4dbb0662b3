package coordinator

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Shard is one partition under this broker's leadership: from an OnLeader to the
// OnResign that ends it.
type Shard[E comparable] struct {
	log       Log
	partition int32
	epoch     atomic.Int32
	lost      chan struct{} // closed when it is given up, before the entities are

	mu       sync.Mutex
	entities map[string]E // nil while loading and after the end

	outMu    sync.Mutex
	idle     sync.Cond // on outMu: draining became false
	out      []write
	draining bool
}

// write is an append that was decided and has still to be issued.
type write struct {
	batch Batch
	done  func(error)
}

func newShard[E comparable](log Log, partition, epoch int32) *Shard[E] {
	sh := &Shard[E]{log: log, partition: partition, lost: make(chan struct{})}
	sh.epoch.Store(epoch)
	sh.idle.L = &sh.outMu
	return sh
}

// Partition is the number of the shard's partition.
func (sh *Shard[E]) Partition() int32 { return sh.partition }

// Epoch is the newest leader epoch known of this leadership.
func (sh *Shard[E]) Epoch() int32 { return sh.epoch.Load() }

// gone says that the shard is over.
func (sh *Shard[E]) gone() bool {
	select {
	case <-sh.lost:
		return true
	default:
		return false
	}
}

// Find returns the entity of that name. If there is none it makes one by create; the
// zero value if create is nil. Errors: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
func (sh *Shard[E]) Find(name string, create func() (string, E)) (E, *kerr.Error) {
	var none E
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gone() {
		return none, kerr.NotCoordinator
	}
	if sh.entities == nil {
		return none, kerr.CoordinatorLoadInProgress
	}
	e, ok := sh.entities[name]
	if !ok && create != nil {
		name, e = create() // a name that does not alias a request
		sh.entities[name] = e
	}
	return e, nil
}

// Forget takes an entity that is over out of the table, unless another of that name has
// taken its place.
func (sh *Shard[E]) Forget(name string, e E) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.entities[name] == e {
		delete(sh.entities, name)
	}
}

// all lists the entities; loading says that they are not there yet.
func (sh *Shard[E]) all() (entities []E, loading bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	entities = make([]E, 0, len(sh.entities))
	for _, e := range sh.entities {
		entities = append(entities, e)
	}
	return entities, sh.entities == nil && !sh.gone()
}

// publish opens the shard with the entities that were loaded.
func (sh *Shard[E]) publish(entities map[string]E) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.gone() {
		return false
	}
	sh.entities = entities
	return true
}

// abandon ends the shard: its entities are lost.
func (sh *Shard[E]) abandon(lose func(E)) {
	close(sh.lost)
	sh.mu.Lock()
	entities := sh.entities
	sh.entities = nil
	sh.mu.Unlock()
	for _, e := range entities {
		lose(e)
	}
}

// Enqueue appends to the queue of writes; called with the entity's mutex held, which is
// what gives the log the order of the decisions. Drain has to follow, with it free.
func (sh *Shard[E]) Enqueue(b Batch, done func(error)) {
	sh.outMu.Lock()
	sh.out = append(sh.out, write{b, done})
	sh.outMu.Unlock()
}

// Drain issues queued writes until there are none. Only one goroutine does so at a time;
// another's writes may be issued by it, and what has gathered while one append was under
// way goes into the next, see gather. No lock is held while the log is called.
func (sh *Shard[E]) Drain() {
	sh.outMu.Lock()
	defer sh.outMu.Unlock()
	if sh.draining {
		return
	}
	sh.draining = true
	for len(sh.out) > 0 {
		n := gather(sh.out)
		ws := sh.out[:n:n]
		sh.out = sh.out[n:]
		sh.outMu.Unlock()
		sh.issue(ws)
		clear(ws)
		sh.outMu.Lock()
	}
	sh.out = nil
	sh.draining = false
	sh.idle.Broadcast()
}

// maxGathered bounds the records' bytes of writes that share a batch: far below what any
// internal topic takes as a batch, and some thousand offsets.
const maxGathered = 128 << 10

// gather is how many of the writes, at least one, go into one batch: those in front that
// are of one producer. Most are of none, and a batch costs the log and each follower about
// as much with one record as with a hundred.
func gather(ws []write) (n int) {
	size := 0
	for n < len(ws) && ws[n].batch.Producer == ws[0].batch.Producer {
		for _, r := range ws[n].batch.Records {
			size += len(r.Key) + len(r.Value) + 16
		}
		if n > 0 && size > maxGathered {
			break
		}
		n++
	}
	return n
}

// issue appends the writes as one batch; all get its one answer. If that says at once that
// the batch is too large, each is tried on its own: one must not fail for another's sake.
func (sh *Shard[E]) issue(ws []write) {
	if sh.gone() {
		for _, w := range ws {
			w.done(kerr.NotLeaderForPartition)
		}
		return
	}
	if len(ws) == 1 {
		sh.log.Append(sh.partition, ws[0].batch, ws[0].done)
		return
	}
	b := Batch{Producer: ws[0].batch.Producer}
	dones := make([]func(error), len(ws))
	for i, w := range ws {
		b.Records = append(b.Records, w.batch.Records...)
		dones[i] = w.done
	}
	const undecided, tooLarge, answered = 0, 1, 2
	var state atomic.Int32 // tooLarge only while Append has not returned
	sh.log.Append(sh.partition, b, func(err error) {
		if isTooLarge(err) && state.CompareAndSwap(undecided, tooLarge) {
			return
		}
		for _, done := range dones {
			done(err)
		}
	})
	if !state.CompareAndSwap(undecided, answered) {
		for i := range ws {
			sh.issue(ws[i : i+1])
		}
	}
}

func isTooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// waitIdle returns when no write of an abandoned shard is being issued any more; later
// ones are refused. The next leadership waits for this before it reads the log: otherwise
// a late write of the old one could follow what was read, acknowledged and yet unknown to
// the new entities.
func (sh *Shard[E]) waitIdle() {
	sh.outMu.Lock()
	defer sh.outMu.Unlock()
	for sh.draining {
		sh.idle.Wait()
	}
}
