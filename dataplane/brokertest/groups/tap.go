package groups

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// tap stands in the dialer of one member's client. It passes on what the client and its
// brokers say to each other, lets a reader see it, and holds or loses it on demand.
type tap struct {
	read *reader

	mu      sync.Mutex
	changed *sync.Cond
	held    bool // nothing comes through
	dead    bool // and nothing ever will
	conns   map[*tapped]struct{}
}

func newTap(read *reader) *tap {
	t := &tap{read: read, conns: map[*tapped]struct{}{}}
	t.changed = sync.NewCond(&t.mu)
	return t
}

var errCut = errors.New("the member is cut off")

// dial is for kgo.Dialer.
func (t *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := t.await(func() bool { return ctx.Err() != nil }, ctx.Done()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	inner, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &tapped{Conn: inner, t: t, exchange: newExchange(t.read, addr)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		inner.Close()
		return nil, errCut
	}
	t.conns[c] = struct{}{}
	return c, nil
}

// await returns when nothing is held, or when given up, which wake announces.
func (t *tap) await(givenUp func() bool, wake <-chan struct{}) error {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-wake:
			t.mu.Lock()
			t.changed.Broadcast()
			t.mu.Unlock()
		case <-stop:
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.held && !t.dead && !givenUp() {
		t.changed.Wait()
	}
	if t.dead {
		return errCut
	}
	return nil
}

// hold stops everything; let sends what was held on its way, late.
func (t *tap) hold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = true
}

func (t *tap) let() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = false
	for c := range t.conns {
		c.flush()
	}
	t.changed.Broadcast()
}

// kill loses all connections with what they hold, without an orderly end: so goes a
// machine that loses its power.
func (t *tap) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
	for c := range t.conns {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
		c.Conn.Close()
	}
	clear(t.conns)
	t.changed.Broadcast()
}

// tapped is one connection. Its waiting bytes are guarded by the tap's mutex.
type tapped struct {
	net.Conn
	t        *tap
	exchange *exchange

	waiting  []byte // written while held
	closing  bool   // the client has closed it, and its waiting bytes are still to go
	deadline time.Time
}

// Write sees the request before it can have any effect.
func (c *tapped) Write(b []byte) (int, error) {
	c.exchange.wrote(b)
	c.t.mu.Lock()
	if c.t.held {
		c.waiting = append(c.waiting, b...)
		c.t.mu.Unlock()
		return len(b), nil
	}
	c.t.mu.Unlock()
	return c.Conn.Write(b)
}

// flush is called with the tap's mutex held. What was written meanwhile was little: a client
// has few requests under way.
func (c *tapped) flush() {
	if len(c.waiting) > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(c.waiting) // the client will hear of an error by its next
		_ = c.Conn.SetWriteDeadline(time.Time{})
		c.waiting = nil
	}
	if c.closing {
		delete(c.t.conns, c)
		c.Conn.Close()
	}
}

// Read sees the answer before the client can act on it.
func (c *tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if err := c.awaitRead(); err != nil {
			return 0, err
		}
		c.exchange.readSome(b[:n])
	}
	return n, err
}

func (c *tapped) awaitRead() error {
	c.t.mu.Lock()
	held, deadline := c.t.held, c.deadline
	c.t.mu.Unlock()
	if !held {
		return nil
	}
	expired := make(chan struct{})
	if !deadline.IsZero() {
		timer := time.AfterFunc(time.Until(deadline), func() { close(expired) })
		defer timer.Stop()
	}
	over := func() bool { return c.closing || !deadline.IsZero() && !time.Now().Before(deadline) }
	if err := c.t.await(over, expired); err != nil {
		return err
	}
	if over() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// SetReadDeadline and SetDeadline also end a wait for what is held.
func (c *tapped) SetReadDeadline(t time.Time) error {
	c.t.mu.Lock()
	c.deadline = t
	c.t.mu.Unlock()
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *tapped) SetDeadline(t time.Time) error {
	c.t.mu.Lock()
	c.deadline = t
	c.t.mu.Unlock()
	return c.Conn.SetDeadline(t)
}

// Close leaves the connection open as long as it holds something: what the kernel has
// taken is sent also after a process has closed its end.
func (c *tapped) Close() error {
	c.exchange.ended()
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.closing = true
	c.t.changed.Broadcast()
	if len(c.waiting) > 0 && !c.t.dead {
		return nil
	}
	delete(c.t.conns, c)
	return c.Conn.Close()
}

// exchange puts the frames of one connection together and matches answers with requests.
type exchange struct {
	read   *reader
	broker string

	mu      sync.Mutex
	out, in []byte
	skip    int // bytes of an answer nobody wants
	under   map[int32]asked
}

// asked is a request that is under way.
type asked struct {
	key, version int16
	sent         int64
	broker       string
	body         []byte // without the header
}

func newExchange(r *reader, broker string) *exchange {
	return &exchange{read: r, broker: broker, under: map[int32]asked{}}
}

// wrote takes what the client writes. A frame is a request header, whose client id is a
// plain string in all versions, and the body.
func (x *exchange) wrote(b []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.out = append(x.out, b...)
	for len(x.out) >= 4 {
		size := int(binary.BigEndian.Uint32(x.out))
		if len(x.out) < 4+size {
			return
		}
		frame := x.out[4 : 4+size]
		if len(frame) >= 10 {
			key, version := int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
			if x.read.wants(key) {
				id := max(int(int16(binary.BigEndian.Uint16(frame[8:]))), 0)
				a := asked{key, version, now(), x.broker, append([]byte(nil), frame[min(10+id, len(frame)):]...)}
				x.under[int32(binary.BigEndian.Uint32(frame[4:]))] = a
				x.read.request(a)
			}
		}
		x.out = append(x.out[:0], x.out[4+size:]...)
	}
}

// readSome takes what the client is about to read.
func (x *exchange) readSome(b []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(b) > 0 {
		if x.skip > 0 {
			n := min(x.skip, len(b))
			x.skip -= n
			b = b[n:]
			continue
		}
		n := min(8-len(x.in), len(b)) // the length and the correlation id
		if n <= 0 {
			n = min(4+int(binary.BigEndian.Uint32(x.in))-len(x.in), len(b))
		}
		x.in = append(x.in, b[:n]...)
		b = b[n:]
		if len(x.in) < 8 {
			continue
		}
		size := 4 + int(binary.BigEndian.Uint32(x.in))
		id := int32(binary.BigEndian.Uint32(x.in[4:]))
		a, wanted := x.under[id]
		if !wanted {
			x.skip = size - len(x.in)
			x.in = x.in[:0]
			continue
		}
		if len(x.in) == size {
			delete(x.under, id)
			x.read.answer(a, x.in[8:])
			x.in = x.in[:0]
		}
	}
}

// ended says that nothing more will be read.
func (x *exchange) ended() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range x.under {
		x.read.unanswered(a)
	}
	clear(x.under)
}
