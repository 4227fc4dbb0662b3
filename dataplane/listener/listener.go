package listener

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Listener is one bound address.
type Listener struct {
	cfg    Config
	ln     net.Listener
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[*Conn]struct{}
	late   map[net.Conn]*time.Timer // refused, and to be closed later
	closed bool

	stats counters
}

// Stats of a listener, since its start but for Open.
type Stats struct {
	Open, Accepted, Refused int64
	BytesIn, BytesOut       int64
	// Record bytes by sendfile(2), and by read and write.
	SendfileBytes, CopiedBytes  int64
	Requests, Malformed, Panics int64
}

type counters struct {
	open, accepted, refused     atomic.Int64
	bytesIn, bytesOut           atomic.Int64
	sendfileBytes, copiedBytes  atomic.Int64
	requests, malformed, panics atomic.Int64
}

var connIDs atomic.Uint64

// Listen binds the address; nothing is accepted before Serve.
func Listen(cfg Config) (*Listener, error) {
	if cfg.Handler == nil {
		return nil, errors.New("listener: no handler")
	}
	ln, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", cfg.Name, err)
	}
	l := &Listener{cfg: cfg.withDefaults(), ln: ln, conns: map[*Conn]struct{}{}, late: map[net.Conn]*time.Timer{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l, nil
}

// Serve starts to accept and returns at once.
func (l *Listener) Serve() {
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		l.accept()
	}()
}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Name is the listener's name.
func (l *Listener) Name() string { return l.cfg.Name }

// Conns calls fn for every open connection (revocation, metrics).
func (l *Listener) Conns(fn func(*Conn)) {
	l.mu.Lock()
	all := make([]*Conn, 0, len(l.conns))
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		fn(c)
	}
}

// Stats counts since the start.
func (l *Listener) Stats() Stats {
	s := &l.stats
	return Stats{
		Open: s.open.Load(), Accepted: s.accepted.Load(), Refused: s.refused.Load(),
		BytesIn: s.bytesIn.Load(), BytesOut: s.bytesOut.Load(),
		SendfileBytes: s.sendfileBytes.Load(), CopiedBytes: s.copiedBytes.Load(),
		Requests: s.requests.Load(), Malformed: s.malformed.Load(), Panics: s.panics.Load(),
	}
}

// StopAccepting closes the bound socket; open connections live on.
func (l *Listener) StopAccepting() { l.ln.Close() }

// Close closes the socket and every connection, and waits for their
// goroutines. Requests that handlers have not answered yet stay theirs to answer.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	for nc, timer := range l.late {
		timer.Stop()
		nc.Close()
	}
	clear(l.late)
	l.mu.Unlock()
	err := l.ln.Close()
	l.cancel()
	l.Conns((*Conn).part)
	l.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil // StopAccepting came first
	}
	return err
}

func (l *Listener) accept() {
	pause := time.Duration(0)
	for {
		nc, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, mostly: wait until some are free again.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			l.cfg.Logger.Error("cannot accept", "listener", l.cfg.Name, "err", err, "pause", pause)
			select {
			case <-time.After(pause):
			case <-l.ctx.Done():
				return
			}
			continue
		}
		pause = 0
		if l.cfg.Limits != nil && !l.rest(l.cfg.Limits.Arrived(l.cfg.Name)) {
			nc.Close()
			return
		}
		l.admit(nc)
	}
}

// rest waits; false if the listener is closed meanwhile.
func (l *Listener) rest(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// maxLate bounds the connections that are kept after they were refused: they cost a file each.
const maxLate = 1000

// refuse closes a connection at once, or later if the error says so.
func (l *Listener) refuse(nc net.Conn, err error) {
	l.stats.refused.Add(1)
	var late interface {
		error
		CloseAfter() time.Duration
	}
	if !errors.As(err, &late) {
		l.cfg.Logger.Warn("connection refused", "listener", l.cfg.Name, "remote", nc.RemoteAddr(), "err", err)
		nc.Close()
		return
	}
	l.cfg.Logger.Debug("connection throttled", "listener", l.cfg.Name, "remote", nc.RemoteAddr(), "err", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.late) >= maxLate {
		nc.Close()
		return
	}
	l.late[nc] = time.AfterFunc(late.CloseAfter(), func() {
		l.mu.Lock()
		delete(l.late, nc)
		l.mu.Unlock()
		nc.Close()
	})
}

func (l *Listener) admit(nc net.Conn) {
	release := func() {}
	if l.cfg.Limits != nil {
		var ip netip.Addr
		if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
			ip = a.AddrPort().Addr().Unmap()
		}
		r, err := l.cfg.Limits.Accept(l.cfg.Name, ip)
		if err != nil {
			l.refuse(nc, err)
			return
		}
		release = r
	}
	c := newConn(l, nc)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		nc.Close()
		release()
		return
	}
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	l.stats.accepted.Add(1)
	l.stats.open.Add(1)
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		c.serve()
		l.mu.Lock()
		delete(l.conns, c)
		l.mu.Unlock()
		l.stats.open.Add(-1)
		release()
		if l.cfg.OnClose != nil {
			l.cfg.OnClose(c)
		}
	}()
}

// handshake completes TLS, bounded in time.
func (c *Conn) handshake() error {
	t, ok := c.nc.(*tls.Conn)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.l.cfg.FrameTimeout)
	defer cancel()
	return t.HandshakeContext(ctx)
}
