package listener

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Anonymous is the principal of connections without a login.
const Anonymous = "User:ANONYMOUS"

// Conn is one connection of a client or broker.
type Conn struct {
	// ID counts the connections of the process.
	ID     uint64
	l      *Listener
	start  time.Time
	nc     net.Conn
	raw    syscall.RawConn // nil with TLS
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc

	auth      atomic.Value // see SetAuth
	principal atomic.Pointer[string]
	expiry    atomic.Int64 // Unix nanoseconds; 0 is never
	muteUntil atomic.Int64 // Unix nanoseconds; no frame is read before (KIP-219)
	idleSince atomic.Int64 // Unix nanoseconds; 0 while it is not waiting for a frame
	clientID  string       // of the last request, kept to save the copy
	host      string       // the peer's address without its port
	out       writing      // only for send

	// mu guards what follows and the reply state of the connection's requests.
	mu     sync.Mutex
	change sync.Cond // any of it has changed
	closed bool
	reason string
	// queue holds the requests whose replies the writing goroutine sends, in
	// order; it runs exactly while queue is not empty.
	queue       []*Request
	queuedBytes int
	writers     sync.WaitGroup
}

func newConn(l *Listener, nc net.Conn) *Conn {
	c := &Conn{ID: connIDs.Add(1), l: l, nc: nc, start: time.Now()}
	c.change.L = &c.mu
	c.ctx, c.cancel = context.WithCancel(l.ctx)
	if tc, ok := nc.(*net.TCPConn); ok {
		// A connection that has ended already says so again when it is read.
		if l.cfg.SendBuffer > 0 {
			_ = tc.SetWriteBuffer(l.cfg.SendBuffer)
		}
		if l.cfg.ReceiveBuffer > 0 {
			_ = tc.SetReadBuffer(l.cfg.ReceiveBuffer)
		}
		if l.cfg.TLS == nil {
			c.raw, _ = tc.SyscallConn()
		}
	}
	c.out.try = c.out.step
	c.host = hostOf(nc.RemoteAddr())
	if l.cfg.TLS != nil {
		c.nc = tls.Server(nc, l.cfg.TLS)
	}
	return c
}

// Listener is the name of the listener that accepted the connection.
func (c *Conn) Listener() string { return c.l.cfg.Name }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.nc.RemoteAddr() }

// Host is the peer's address without its port, as ACLs name it.
func (c *Conn) Host() string { return c.host }

func hostOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	h, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return h
}

// LocalAddr is the address the peer has connected to.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// SASL reports whether the listener demands a login.
func (c *Conn) SASL() bool { return c.l.cfg.SASL }

// SetAuth keeps the login's state, which is the handlers' own. All must be of one type.
func (c *Conn) SetAuth(v any) { c.auth.Store(v) }

// Auth is what SetAuth was given last, nil before; from any goroutine.
func (c *Conn) Auth() any { return c.auth.Load() }

// Principal is who is logged in, Anonymous before and without a login.
func (c *Conn) Principal() string {
	if p := c.principal.Load(); p != nil {
		return *p
	}
	return Anonymous
}

// SetPrincipal marks the connection as logged in.
func (c *Conn) SetPrincipal(p string) { c.principal.Store(&p) }

// Authenticated reports whether requests other than the login are accepted.
func (c *Conn) Authenticated() bool { return !c.l.cfg.SASL || c.principal.Load() != nil }

// SetSessionExpiry sets when the session ends: from then on any request but a
// new login closes the connection (KIP-368). The zero time is never. A time that
// has passed counts as passed, not as never.
func (c *Conn) SetSessionExpiry(t time.Time) {
	if t.IsZero() {
		c.expiry.Store(0)
		return
	}
	c.expiry.Store(max(t.UnixNano(), 1))
}

func (c *Conn) expired(now time.Time) bool {
	e := c.expiry.Load()
	return e != 0 && now.UnixNano() >= e
}

// Close closes the connection at once; safe from any goroutine, any number of
// times. The first reason is logged.
func (c *Conn) Close(reason string) {
	c.mu.Lock()
	first := !c.closed
	if first {
		c.closed, c.reason = true, reason
	}
	c.change.Broadcast()
	c.mu.Unlock()
	if first {
		c.cancel()
		c.hangUp()
		c.l.cfg.Logger.Debug("connection closed", "conn", c.ID, "listener", c.l.cfg.Name, "remote", c.RemoteAddr(),
			"principal", c.Principal(), "reason", reason)
	}
}

// hangUp closes the socket. A TLS close waits for its alert to be written, which
// a peer that does not read would delay; so the deadline comes first.
func (c *Conn) hangUp() {
	if t, ok := c.nc.(*tls.Conn); ok {
		t.NetConn().Close()
		return
	}
	c.nc.Close()
}

// Closed reports whether Close has been called.
func (c *Conn) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// mute holds back reading until t.
func (c *Conn) mute(t time.Time) {
	for n := t.UnixNano(); ; {
		old := c.muteUntil.Load()
		if old >= n || c.muteUntil.CompareAndSwap(old, n) {
			return
		}
	}
}

// sleepUntil returns false if the connection ended meanwhile.
func (c *Conn) sleepUntil(t time.Time) bool {
	d := time.Until(t)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// unmuted waits until a throttle is over.
func (c *Conn) unmuted() bool {
	for {
		n := c.muteUntil.Load()
		if n == 0 {
			return true
		}
		if !c.sleepUntil(time.Unix(0, n)) {
			return false
		}
		if c.muteUntil.CompareAndSwap(n, 0) {
			return true
		}
	}
}
