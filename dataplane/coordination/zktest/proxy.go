package zktest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"penstock/dataplane/coordination/zksession"
)

// Proxy stands between one client and a server. It can cut the connection and
// it can end the client's session, as the server would after a timeout.
type Proxy struct {
	target string
	l      net.Listener
	wg     sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	down   bool
	closed bool
	grant  zksession.Grant
}

// NewProxy listens on a free port until the test ends.
func NewProxy(t testing.TB, s *Server) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: s.Addr(), l: l, conns: map[net.Conn]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Addr is the host:port that the client is to connect to.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.l.Close()
	p.Cut()
	p.wg.Wait()
}

// Cut drops the connections and refuses new ones until Heal.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for c := range p.conns {
		c.Close()
	}
}

// Heal lets connections through again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Drop cuts the connections that are open; the client may connect again.
func (p *Proxy) Drop() {
	p.Cut()
	p.Heal()
}

// Expire ends the client's session at the server. It returns when the server
// has done so: the session's ephemeral znodes are gone by then.
func (p *Proxy) Expire(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	g := p.grant
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := zksession.End(ctx, zksession.Session{ID: g.ID, Password: g.Password, Timeout: 10 * time.Second, Server: p.target}); err != nil {
		t.Fatalf("expire session %#x: %v", g.ID, err)
	}
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refuse := p.down || p.closed
		if !refuse {
			p.conns[c] = struct{}{}
		}
		p.mu.Unlock()
		if refuse {
			c.Close()
			continue
		}
		p.wg.Add(1)
		go p.serve(c)
	}
}

func (p *Proxy) serve(c net.Conn) {
	defer p.wg.Done()
	defer c.Close()
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	p.conns[s] = struct{}{}
	if p.down {
		c.Close()
		s.Close()
	}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		delete(p.conns, s)
		p.mu.Unlock()
	}()
	up := make(chan struct{})
	go func() {
		defer close(up)
		io.Copy(s, c)
		s.Close()
	}()
	// The server's first packet grants the session.
	if b, err := readPacket(s); err == nil {
		if g, err := zksession.ParseGrant(b); err == nil {
			p.mu.Lock()
			p.grant = g
			p.mu.Unlock()
		}
		if writePacket(c, b) == nil {
			io.Copy(c, s)
		}
	}
	c.Close()
	<-up
}

func readPacket(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > 1<<20 {
		return nil, errors.New("packet too large")
	}
	b := make([]byte, size)
	_, err := io.ReadFull(r, b)
	return b, err
}

func writePacket(w io.Writer, b []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}
