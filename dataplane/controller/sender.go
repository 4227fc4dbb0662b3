package controller

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

const (
	// givenUp is how long a broker may refuse connections before nobody waits
	// for it any more: clients cannot reach it either.
	givenUp = time.Second
	// maxQueued bounds the requests that wait for one broker. A broker that
	// falls further behind is told everything anew when it answers again.
	maxQueued      = 2000
	requestTimeout = 30 * time.Second
	retryPause     = 100 * time.Millisecond
)

// item is one request on its way to a broker.
type item struct {
	req      kmsg.Request
	metadata bool // an UpdateMetadata, which awaiters count
	seq      uint64
}

// sender keeps the order of the requests to one life of one broker. A request
// is repeated over new connections until it is answered or the broker is gone.
type sender struct {
	broker coordination.Broker
	dial   func(ctx context.Context, b coordination.Broker) (Peer, error)
	done   func(it item, resp kmsg.Response) bool // did the broker take it in; called by the sender's goroutine
	resync func()                                 // likewise; the broker answers again after an overflow
	log    *slog.Logger

	term   context.Context // the term's
	ctx    context.Context // ends with the term or the broker's life
	cancel context.CancelFunc

	mu       sync.Mutex
	items    []item
	wake     chan struct{}
	seq      uint64    // of the last queued
	metadata uint64    // of the last queued UpdateMetadata
	acked    uint64    // of the last UpdateMetadata that the broker has taken in
	failing  time.Time // of the first failure since the last answer
	overflow bool
	changed  chan struct{} // closed and replaced when acked or failing moves, and at each failure
}

func newSender(ctx context.Context, b coordination.Broker) *sender {
	s := &sender{term: ctx, broker: b, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

func (s *sender) enqueue(it item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) >= maxQueued {
		s.items, s.overflow = nil, true
	}
	s.seq++
	it.seq = s.seq
	if it.metadata {
		s.metadata = s.seq
	}
	if !s.overflow {
		s.items = append(s.items, it)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lastMetadata is the number of the UpdateMetadata queued last.
func (s *sender) lastMetadata() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metadata
}

// await blocks until the broker has taken in an UpdateMetadata queued at or
// after seq, the broker is gone or has not been reachable for a while, ctx ends,
// or the term does (NOT_CONTROLLER).
func (s *sender) await(ctx context.Context, seq uint64) error {
	for {
		s.mu.Lock()
		ok, ch := s.acked >= seq || !s.failing.IsZero() && time.Since(s.failing) > givenUp, s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ch:
		case <-s.ctx.Done():
			if s.term.Err() != nil {
				return kerr.NotController
			}
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *sender) take() (it item, resync, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.overflow {
		return item{}, true, true
	}
	if len(s.items) == 0 {
		return item{}, false, false
	}
	it = s.items[0]
	s.items = s.items[1:]
	if len(s.items) == 0 {
		s.items = nil
	}
	return it, false, true
}

func (s *sender) run() {
	var conn Peer
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for {
		it, resync, ok := s.take()
		if !ok {
			select {
			case <-s.wake:
				continue
			case <-s.ctx.Done():
				return
			}
		}
		for {
			if s.ctx.Err() != nil {
				return
			}
			var resp kmsg.Response
			var err error
			if conn == nil {
				conn, err = s.connect()
			}
			if err == nil && resync {
				s.mu.Lock()
				s.overflow = false
				s.mu.Unlock()
				s.resync()
				break
			}
			if err == nil {
				resp, err = s.do(conn, it.req)
			}
			if err == nil {
				s.answered(it, resp)
				break
			}
			if s.ctx.Err() != nil {
				return
			}
			if s.failed() {
				s.log.Warn("request to broker failed; it is repeated until it is answered", "broker", s.broker.ID, "key", it.key(), "err", err)
			}
			if conn != nil {
				conn.Close()
				conn = nil
			}
			select {
			case <-time.After(retryPause):
			case <-s.ctx.Done():
				return
			}
		}
	}
}

func (it item) key() int16 {
	if it.req == nil {
		return -1
	}
	return it.req.Key()
}

func (s *sender) connect() (Peer, error) {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	conn, err := s.dial(ctx, s.broker)
	if err != nil {
		return nil, err // and not a Peer that holds a nil pointer
	}
	return conn, nil
}

func (s *sender) do(conn Peer, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	return conn.Do(ctx, req)
}

func (s *sender) answered(it item, resp kmsg.Response) {
	took := s.done(it, resp)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = time.Time{}
	if took && it.metadata {
		s.acked = it.seq
		s.notify()
	}
}

// failed notes a failure and says whether it is the first since the last answer.
func (s *sender) failed() (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first = s.failing.IsZero(); first {
		s.failing = time.Now()
	}
	s.notify()
	return first
}

// notify wakes those who wait; s.mu is held.
func (s *sender) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}
