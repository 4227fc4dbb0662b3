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
	v.pace.set(m.cfg.MoveRate)
}

// SetMoveRate changes Config.MoveRate. What waits for the old rate goes on at once.
func (m *Manager) SetMoveRate(bytesPerSecond int64) { m.movers.pace.set(bytesPerSecond) }

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

func (v *movers) chunk() int {
	if rate := v.pace.get(); rate > 0 {
		return int(min(moveChunk, max(leastChunk, rate/10)))
	}
	return moveChunk
}

func (v *movers) run() {
	var buf []byte
	for p := v.take(); p != nil; p = v.take() {
		if n := v.chunk(); n > cap(buf) {
			buf = make([]byte, n)
		} else {
			buf = buf[:n]
		}
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
		v.pace.wait(n, v.m.now(), v.m.stop)
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
	mu      sync.Mutex
	rate    int64         // bytes a second; 0 or less: no limit
	next    time.Time     // when all that was taken has been paid for
	changed chan struct{} // closed when the rate changes
}

func (c *pace) get() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rate
}

// set changes the rate; what was taken at the old one counts as paid for.
func (c *pace) set(rate int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rate == c.rate && c.changed != nil {
		return
	}
	c.rate, c.next = rate, time.Time{}
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
}

// take accounts for n bytes and tells how long to wait before taking more, and
// what ends the wait before its time.
func (c *pace) take(n int, now time.Time) (time.Duration, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rate <= 0 || n <= 0 {
		return 0, nil
	}
	if c.next.Before(now) {
		c.next = now
	}
	// In two parts, since the product of bytes and nanoseconds would overflow.
	whole, rest := int64(n)/c.rate, int64(n)%c.rate
	c.next = c.next.Add(time.Duration(whole)*time.Second + time.Duration(float64(rest)/float64(c.rate)*float64(time.Second)))
	return c.next.Sub(now), c.changed
}

// wait takes n bytes and waits until they are paid for, the rate changes, or stop.
func (c *pace) wait(n int, now time.Time, stop <-chan struct{}) {
	d, changed := c.take(n, now)
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-stop:
	}
}
