package admission

import (
	"container/list"
	"context"
	"sync"
)

// Memory is a budget of bytes. Waiters are served in the order in which they
// came, so a large one is not starved by small ones.
type Memory struct {
	mu      sync.Mutex
	limit   int64
	used    int64
	waiters list.List // of *memoryWaiter
}

type memoryWaiter struct {
	n     int64
	ready chan struct{}
}

// NewMemory makes a budget of limit bytes. limit <= 0 is no bound.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit} }

// Acquire takes n bytes, waiting until they are free or ctx is done. More than
// the whole budget is given when nothing else is taken: one request of any
// allowed size must be able to pass, so the bound is max(limit, largest n).
func (m *Memory) Acquire(ctx context.Context, n int64) error {
	if n <= 0 {
		return nil
	}
	m.mu.Lock()
	if m.waiters.Len() == 0 && m.fits(n) {
		m.used += n
		m.mu.Unlock()
		return nil
	}
	w := &memoryWaiter{n: n, ready: make(chan struct{})}
	el := m.waiters.PushBack(w)
	m.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		select {
		case <-w.ready: // granted while we gave up: give it back
			m.used -= n
		default:
			m.waiters.Remove(el)
		}
		m.grant()
		return ctx.Err()
	}
}

// Release gives n bytes back.
func (m *Memory) Release(n int64) {
	if n <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used -= n; m.used < 0 {
		panic("admission: BUG: more memory released than acquired")
	}
	m.grant()
}

func (m *Memory) fits(n int64) bool {
	return m.limit <= 0 || m.used == 0 || n <= m.limit-m.used
}

func (m *Memory) grant() {
	for el := m.waiters.Front(); el != nil; el = m.waiters.Front() {
		w := el.Value.(*memoryWaiter)
		if !m.fits(w.n) {
			return
		}
		m.used += w.n
		m.waiters.Remove(el)
		close(w.ready)
	}
}

// Used is the number of bytes taken and Waiting the number of waiters.
func (m *Memory) Used() int64  { m.mu.Lock(); defer m.mu.Unlock(); return m.used }
func (m *Memory) Waiting() int { m.mu.Lock(); defer m.mu.Unlock(); return m.waiters.Len() }
