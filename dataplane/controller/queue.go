package controller

import (
	"context"
	"sync"
)

// event is one step of the loop. An error ends the controller's term.
type event func() error

// eventQueue is the loop's mailbox. Posting never blocks, since hooks and
// watches post. It is bounded by its posters: events with a key are queued once,
// a broker's sender has one answer under way, and callers wait for theirs.
type eventQueue struct {
	mu     sync.Mutex
	events []keyed
	queued map[string]bool
	closed bool
	wake   chan struct{}
}

type keyed struct {
	key string
	ev  event
}

func (q *eventQueue) init() {
	q.queued = map[string]bool{}
	q.wake = make(chan struct{}, 1)
}

// post adds an event unless one with that key waits already. An empty key never
// matches. It is false when the queue is closed.
func (q *eventQueue) post(key string, ev event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	if key != "" {
		if q.queued[key] {
			return true
		}
		q.queued[key] = true
	}
	q.events = append(q.events, keyed{key, ev})
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take waits for the next event; false when ctx has ended.
func (q *eventQueue) take(ctx context.Context) (event, bool) {
	for {
		if ctx.Err() != nil {
			return nil, false
		}
		q.mu.Lock()
		if len(q.events) > 0 {
			k := q.events[0]
			q.events = q.events[1:]
			delete(q.queued, k.key) // before it runs: what happens from now on counts anew
			q.mu.Unlock()
			return k.ev, true
		}
		q.events = nil
		q.mu.Unlock()
		select {
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.events = nil
}
