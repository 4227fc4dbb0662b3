package partition

import (
	"sync"
	"time"
)

const (
	// moveChunk is what is copied at one go, bytes; less at a low rate, which would
	// otherwise come in bursts.
	moveChunk, leastChunk = 1 << 20, 16 << 10
	// movePause is the wait before a move is tried again whose replica was being changed.
	movePause = 20 * time.Millisecond
)

// movers copy replicas to other folders of this broker: MoveThreads at a time, in
// turns, all together no faster than MoveRate. While nothing moves there is no
// goroutine.
type movers struct {
	m    *Manager
	pace pace

	mu      sync.Mutex
	queue   []*Partition
	queued  map[*Partition]bool // waiting, or in a mover's hands
	running int
}

func (v *movers) init(m *Manager) {
	v.m, v.queued = m, map[*Partition]bool{}
	v.pace.rate = m.cfg.MoveRate
}

// add sets a replica moving that has a copy; others are left alone.
func (v *movers) add(p *Partition) {
	if p.copying() == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queued[p] {
		return
	}
	v.queued[p] = true
	v.queue = append(v.queue, p)
	if v.running < v.m.cfg.MoveThreads {
		v.running++
		v.m.background(v.run)
	}
}

func (v *movers) take() *Partition {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.queue) == 0 || v.m.stopping() {
		v.running--
		return nil
	}
	p := v.queue[0]
	v.queue = v.queue[1:]
	return p
}

// release gives a replica back; it comes again if there is more to do.
func (v *movers) release(p *Partition) {
	v.mu.Lock()
	delete(v.queued, p)
	v.mu.Unlock()
	v.add(p)
}

func (v *movers) chunk() int64 {
	if v.pace.rate <= 0 {
		return moveChunk
	}
	return min(moveChunk, max(leastChunk, v.pace.rate/10))
}

func (v *movers) run() {
	buf := make([]byte, v.chunk())
	for p := v.take(); p != nil; p = v.take() {
		f := p.copying()
		if f == nil {
			v.release(p)
			continue
		}
		n, next := p.copyStep(f, &buf)
		if next == moved && p.EndOffset()-f.log.EndOffset() <= 0 {
			next = level
		}
		if next == level {
			next = p.takeFuture(f, &buf)
			v.m.deletes.Check(p)
		}
		if next == paused {
			v.m.cfg.Wheel.AfterFunc(movePause, func() { v.release(p) })
			continue
		}
		v.release(p)
		wait(v.m.stop, v.pace.take(n, v.m.now()))
	}
}

func (m *Manager) stopping() bool {
	select {
	case <-m.stop:
		return true
	default:
		return false
	}
}

// wait ends after d, or when done is closed.
func wait(done <-chan struct{}, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-done:
	}
}

// pace spreads bytes over time.
type pace struct {
	rate int64 // bytes a second; 0 or less: no limit

	mu   sync.Mutex
	next time.Time // when all that was taken has been paid for
}

// take accounts for n bytes and tells how long to wait before taking more.
func (c *pace) take(n int, now time.Time) time.Duration {
	if c.rate <= 0 || n <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.Before(now) {
		c.next = now
	}
	// In two parts, since the product of bytes and nanoseconds would overflow.
	whole, rest := int64(n)/c.rate, int64(n)%c.rate
	c.next = c.next.Add(time.Duration(whole)*time.Second + time.Duration(float64(rest)/float64(c.rate)*float64(time.Second)))
	return c.next.Sub(now)
}
