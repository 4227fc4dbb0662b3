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
	hold   int32                     // opcode of the requests that are kept from the server, 0 for none
	pass   int                       // of them that go through first
	held   chan struct{}             // closed by the first of them
	lose   int32                     // opcode of the request whose reply is lost, 0 for none
	losing int32                     // its xid, once it is on its way
	lost   chan struct{}             // closed when it is lost
	grants map[int64]zksession.Grant // by session: those that the server has let in
	left   int                       // transactions until the cut; 0: no cut
	last   int32                     // the xid of the one whose answer is cut off; 0: none yet
	cut    chan struct{}             // closed then
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

// CutAfter cuts the connection when the server has carried out the nth
// transaction (a "multi", as fenced writes are) from now on, before its answer
// reaches the client, and then closes the channel.
func (p *Proxy) CutAfter(n int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.last, p.cut = n, 0, make(chan struct{})
	return p.cut
}

// asked looks at a request: xid and kind.
func (p *Proxy) asked(b []byte) {
	const multi = 14
	if len(b) < 8 || binary.BigEndian.Uint32(b[4:]) != multi {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 {
		if p.left--; p.left == 0 {
			p.last = int32(binary.BigEndian.Uint32(b))
		}
	}
}

// answered looks at a reply and says whether it may pass.
func (p *Proxy) answered(b []byte) bool {
	p.mu.Lock()
	due := p.last != 0 && len(b) >= 4 && int32(binary.BigEndian.Uint32(b)) == p.last
	cut := p.cut
	if due {
		p.last = 0
	}
	p.mu.Unlock()
	if due {
		p.Cut()
		close(cut)
	}
	return !due
}

// Hold keeps requests with that opcode from the server, after so many of them and until
// Drop. What comes behind them goes through. The channel is closed by the first of them.
func (p *Proxy) Hold(opcode int32, after int) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.pass, p.held = opcode, after, make(chan struct{})
	return p.held
}

// LoseReply lets the next request with that opcode reach the server, and breaks the
// connection in place of its reply. The channel is closed then.
func (p *Proxy) LoseReply(opcode int32) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose, p.losing, p.lost = opcode, 0, make(chan struct{})
	return p.lost
}

// loses says that a reply is to be lost.
func (p *Proxy) loses(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.losing == 0 || int32(binary.BigEndian.Uint32(b)) != p.losing {
		return false
	}
	p.losing = 0
	close(p.lost)
	return true
}

// holds says that a packet is to be kept from the server.
func (p *Proxy) holds(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(b) < 8 {
		return false
	}
	op := int32(binary.BigEndian.Uint32(b[4:]))
	if p.lose != 0 && op == p.lose {
		p.lose, p.losing = 0, int32(binary.BigEndian.Uint32(b))
	}
	if p.hold == 0 || op != p.hold {
		return false
	}
	if p.pass > 0 {
		p.pass--
		return false
	}
	if p.held != nil {
		close(p.held)
		p.held = nil
	}
	return true
}

// Drop cuts the connections that are open; the client may connect again.
func (p *Proxy) Drop() {
	p.Cut()
	p.mu.Lock()
	p.hold = 0
	p.mu.Unlock()
	p.Heal()
}

// Expire ends the client's sessions at the server: of a broker one, besides those that it
// had for a reading of many znodes at once and has closed. It returns when the server has
// done so: the ephemeral znodes are gone by then.
func (p *Proxy) Expire(t testing.TB) {
	t.Helper()
	p.mu.Lock()
	grants := p.grants
	p.grants = nil
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ended := 0
	for _, g := range grants {
		err := zksession.End(ctx, zksession.Session{ID: g.ID, Password: g.Password, Timeout: 10 * time.Second, Server: p.target})
		if err == nil {
			ended++
		} else if !errors.Is(err, zksession.ErrOver) {
			t.Fatalf("expire session %#x: %v", g.ID, err)
		}
	}
	if ended == 0 {
		t.Fatalf("none of %d sessions was there to be ended", len(grants))
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
		p.forward(s, c)
		s.Close()
	}()
	// The server's first packet grants the session.
	if b, err := readPacket(s); err == nil {
		if g, err := zksession.ParseGrant(b); err == nil {
			p.mu.Lock()
			if p.grants == nil {
				p.grants = map[int64]zksession.Grant{}
			}
			p.grants[g.ID] = g
			p.mu.Unlock()
		}
		for err == nil && writePacket(c, b) == nil {
			if b, err = readPacket(s); err == nil && (p.loses(b) || !p.answered(b)) {
				break
			}
		}
	}
	c.Close()
	<-up
}

// forward passes the client's packets on, of which the first asks for a session and
// is no request.
func (p *Proxy) forward(s, c net.Conn) {
	for first := true; ; first = false {
		b, err := readPacket(c)
		if err != nil {
			return
		}
		if !first {
			p.asked(b)
			if p.holds(b) {
				continue
			}
		}
		if writePacket(s, b) != nil {
			return
		}
	}
}

func readPacket(r io.Reader) ([]byte, error) {
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(n[:])
	if size > 1<<26 {
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
