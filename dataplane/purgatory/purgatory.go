package purgatory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Operation is what waits.
type Operation interface {
	// TryComplete reports whether the operation is done, so that Complete can
	// follow. It may be called from any goroutine, never from two at once, and
	// not again after it said true.
	TryComplete() bool
	// Complete runs exactly once, on the goroutine that found the operation
	// done; expired says that time (or Close) ended it instead.
	Complete(expired bool)
}

const shardCount = 64

// Purgatory watches operations under keys of type K.
type Purgatory[K comparable] struct {
	wheel  *Wheel
	seed   maphash.Seed
	shards [shardCount]shard[K]
	count  atomic.Int64
}

type shard[K comparable] struct {
	mu     sync.Mutex
	lists  map[K]*watchList[K]
	closed bool
}

type watchList[K comparable] struct{ first, last *watch[K] }

// watch is a waiter's place in the list of one key.
type watch[K comparable] struct {
	w          *waiter[K]
	key        K
	list       *watchList[K]
	next, prev *watch[K]
}

type waiter[K comparable] struct {
	p       *Purgatory[K]
	op      Operation
	mu      sync.Mutex // serialises TryComplete
	done    bool       // under mu
	timer   Timer
	watches []watch[K]
}

// New makes a purgatory whose timeouts run on the wheel. The caller closes
// both, the purgatory first.
func New[K comparable](wheel *Wheel) *Purgatory[K] {
	p := &Purgatory[K]{wheel: wheel, seed: maphash.MakeSeed()}
	for i := range p.shards {
		p.shards[i].lists = map[K]*watchList[K]{}
	}
	return p
}

// Watch completes the operation at once if it is done, and otherwise keeps it
// until a Check of one of the keys (at least one) finds it done or the timeout
// ends it. It reports whether this call completed the operation. A timeout of
// zero or less ends it at once, as does a closed purgatory.
//
// The operation is tried again after it has been put under its keys: a change
// between the first try and that moment would wake nobody.
func (p *Purgatory[K]) Watch(op Operation, timeout time.Duration, keys ...K) bool {
	if op.TryComplete() {
		op.Complete(false)
		return true
	}
	if timeout <= 0 {
		op.Complete(true)
		return true
	}
	w := &waiter[K]{p: p, op: op, watches: make([]watch[K], len(keys))}
	p.count.Add(1)

	// The lock is held while the waiter is put in place, so that a Check that
	// completes it in between finds every watch linked and can remove it.
	w.mu.Lock()
	for i, k := range keys {
		if !p.link(&w.watches[i], w, k) {
			w.finish(true)
			return true
		}
	}
	p.wheel.Start(&w.timer, timeout, w.expire)
	w.mu.Unlock()
	return w.try()
}

// Check tries every operation that is watched under the key and returns how
// many it completed.
func (p *Purgatory[K]) Check(key K) int {
	s := p.shard(key)
	s.mu.Lock()
	l := s.lists[key]
	if l == nil {
		s.mu.Unlock()
		return 0
	}
	var fixed [8]*waiter[K]
	ws := fixed[:0]
	for e := l.first; e != nil; e = e.next {
		ws = append(ws, e.w)
	}
	s.mu.Unlock()
	n := 0
	for _, w := range ws {
		if w.try() {
			n++
		}
	}
	return n
}

// Len is the number of operations that wait.
func (p *Purgatory[K]) Len() int { return int(p.count.Load()) }

// Close ends every waiting operation as if its time were up; later ones end at
// once.
func (p *Purgatory[K]) Close() {
	var ws []*waiter[K]
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		s.closed = true
		for _, l := range s.lists {
			for e := l.first; e != nil; e = e.next {
				ws = append(ws, e.w)
			}
		}
		s.mu.Unlock()
	}
	for _, w := range ws {
		w.expire()
	}
}

// try reports whether this call completed the operation.
func (w *waiter[K]) try() bool {
	w.mu.Lock()
	if w.done || !w.op.TryComplete() {
		w.mu.Unlock()
		return false
	}
	w.finish(false)
	return true
}

func (w *waiter[K]) expire() {
	w.mu.Lock()
	if w.done {
		w.mu.Unlock()
		return
	}
	// What it waits for may have come just now; then it is no timeout.
	w.finish(!w.op.TryComplete())
}

// finish is entered with w.mu held and leaves it released.
func (w *waiter[K]) finish(expired bool) {
	w.done = true
	w.mu.Unlock()
	w.timer.Stop()
	for i := range w.watches {
		w.p.unlink(&w.watches[i])
	}
	w.p.count.Add(-1)
	w.op.Complete(expired)
}

func (p *Purgatory[K]) shard(key K) *shard[K] {
	return &p.shards[maphash.Comparable(p.seed, key)%shardCount]
}

// link puts e last under its key; false if the purgatory has been closed.
func (p *Purgatory[K]) link(e *watch[K], w *waiter[K], key K) bool {
	s := p.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	l := s.lists[key]
	if l == nil {
		l = &watchList[K]{}
		s.lists[key] = l
	}
	*e = watch[K]{w: w, key: key, list: l, prev: l.last}
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
	return true
}

func (p *Purgatory[K]) unlink(e *watch[K]) {
	if e.list == nil {
		return
	}
	s := p.shard(e.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		e.list.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		e.list.last = e.prev
	}
	if e.list.first == nil {
		delete(s.lists, e.key)
	}
}
