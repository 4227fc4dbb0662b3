package purgatory

import (
	"container/heap"
	"sync"
	"time"
)

// The geometry of the wheel: the finest slot, and how many slots make one turn
// and one slot of the next level.
const (
	tick  = time.Millisecond
	slots = 20
)

// Wheel runs functions after a delay, cheaply for many timers of which most
// are stopped before they fire: starting and stopping a timer is constant
// time, whatever their number.
//
// The invariant behind the slots: now (in ticks) only moves forward to the
// expiry of a bucket taken off the queue, or to the present when no bucket is
// due. So every queued bucket of a level begins after now and within one turn
// of it, and a slot never holds two turns at once.
type Wheel struct {
	start time.Time

	mu     sync.Mutex
	now    int64 // ticks since start that have been handled
	levels []*level
	queue  bucketQueue
	due    bucket // timers to run now; Stop still catches them
	closed bool

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

type level struct {
	width   int64 // ticks in one slot
	buckets [slots]bucket
}

// bucket is a ring of timers around a sentinel.
type bucket struct {
	head   Timer
	expiry int64
	index  int // place in the queue plus one; zero when not queued
}

// Timer is one pending call. The zero value is a timer that was never
// started; it may be embedded and started with Wheel.Start.
type Timer struct {
	wheel      *Wheel
	next, prev *Timer
	expiry     int64
	f          func()
}

// NewWheel starts a wheel. Close ends it.
func NewWheel() *Wheel {
	w := &Wheel{
		start: time.Now(),
		wake:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
	}
	w.due.init()
	go w.run()
	return w
}

// AfterFunc calls f once after d, on the wheel's own goroutine: f must be
// quick and must not wait for another timer or call Close. It never fires
// early, and up to 1 ms late by design. On a closed wheel it never fires.
func (w *Wheel) AfterFunc(d time.Duration, f func()) *Timer {
	t := new(Timer)
	w.Start(t, d, f)
	return t
}

// Start is AfterFunc for a Timer that the caller provides, so that an
// operation can carry its timer without another allocation. A timer that is
// pending already is moved.
func (w *Wheel) Start(t *Timer, d time.Duration, f func()) {
	at := time.Since(w.start) + max(d, 0)
	expiry := int64((at + tick - 1) / tick)

	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	t.unlink()
	t.wheel, t.f, t.expiry = w, f, expiry
	w.advanceIdle()
	before := w.nextExpiry()
	w.insert(t)
	earlier := before < 0 || w.nextExpiry() < before || w.due.head.next != &w.due.head
	w.mu.Unlock()
	if earlier {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// Stop keeps the timer from firing. It reports false if the call has been made
// or begun already, or the timer was never started.
func (t *Timer) Stop() bool {
	w := t.wheel
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return t.unlink()
}

// Close drops all pending timers without calling them and waits for a call
// that is under way.
func (w *Wheel) Close() {
	w.mu.Lock()
	already := w.closed
	w.closed = true
	w.mu.Unlock()
	if !already {
		close(w.stop)
	}
	<-w.done
}

func (w *Wheel) run() {
	defer close(w.done)
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		w.mu.Lock()
		w.expire(int64(time.Since(w.start) / tick))
		t := w.due.head.next
		if t != &w.due.head && !w.closed {
			t.unlink()
			f := t.f
			w.mu.Unlock()
			f()
			continue
		}
		next := w.nextExpiry()
		closed := w.closed
		w.mu.Unlock()
		if closed {
			return
		}
		if next < 0 {
			alarm.Stop()
		} else {
			alarm.Reset(time.Duration(next)*tick - time.Since(w.start))
		}
		select {
		case <-alarm.C:
		case <-w.wake:
		case <-w.stop:
			return
		}
	}
}

// expire takes every bucket that begins at or before present off the queue:
// its timers are due, or fall to a finer level.
func (w *Wheel) expire(present int64) {
	for len(w.queue) > 0 && w.queue[0].expiry <= present {
		b := heap.Pop(&w.queue).(*bucket)
		w.now = b.expiry
		for t := b.head.next; t != &b.head; t = b.head.next {
			t.unlink()
			w.insert(t)
		}
	}
}

// advanceIdle brings now to the present when nothing is due, so that a timer
// started after a quiet time lands in the finest level that can hold it.
func (w *Wheel) advanceIdle() {
	present := int64(time.Since(w.start) / tick)
	if next := w.nextExpiry(); next < 0 || next > present {
		w.now = present
	}
}

func (w *Wheel) insert(t *Timer) {
	if t.expiry <= w.now {
		w.due.push(t)
		return
	}
	width := int64(1)
	for i := 0; ; i++ {
		if i == len(w.levels) {
			l := &level{width: width}
			for j := range l.buckets {
				l.buckets[j].init()
			}
			w.levels = append(w.levels, l)
		}
		if id := t.expiry / width; id < w.now/width+slots {
			b := &w.levels[i].buckets[id%slots]
			b.push(t)
			if b.index == 0 {
				b.expiry = id * width
				heap.Push(&w.queue, b)
			}
			return
		}
		width *= slots
	}
}

// nextExpiry is when the first bucket that holds a timer begins, -1 if there
// is none. Buckets that Stop has emptied leave the queue here.
func (w *Wheel) nextExpiry() int64 {
	for len(w.queue) > 0 {
		b := w.queue[0]
		if b.head.next != &b.head {
			return b.expiry
		}
		heap.Pop(&w.queue)
	}
	return -1
}

func (b *bucket) init() { b.head.next, b.head.prev = &b.head, &b.head }

func (b *bucket) push(t *Timer) {
	t.prev, t.next = b.head.prev, &b.head
	t.prev.next, b.head.prev = t, t
}

func (t *Timer) unlink() bool {
	if t.next == nil {
		return false
	}
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev = nil, nil
	return true
}

// bucketQueue orders buckets by their beginning (container/heap).
type bucketQueue []*bucket

func (q bucketQueue) Len() int           { return len(q) }
func (q bucketQueue) Less(i, j int) bool { return q[i].expiry < q[j].expiry }
func (q bucketQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i+1, j+1
}
func (q *bucketQueue) Push(x any) {
	b := x.(*bucket)
	*q = append(*q, b)
	b.index = len(*q)
}
func (q *bucketQueue) Pop() any {
	old := *q
	b := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	b.index = 0
	return b
}
