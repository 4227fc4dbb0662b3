package nemesis

import (
	"io"
	"net"
	"sync"
	"time"
)

// Party is one end of a link: a broker by its id, or one of these.
type Party int

// The parties that are not brokers. A client with a process of its own may be
// one by itself, see Member.
const (
	Clients   Party = -1
	ZooKeeper Party = -2
)

// Member is a client's process, by its number among those of its kind.
func Member(i int) Party { return Party(-100 - i) }

type link struct{ from, to Party }

// quality is what a direction of a link is like just now.
type quality struct {
	cut   bool
	delay time.Duration // of each piece that is passed on
}

// Network is the set of all links. Every party has a door in front of it: a
// proxy on an address of its own, which is what the others are told. A cut
// stops the bytes of one direction where they are, as lost packets do: neither
// side hears of it. What was stopped goes on after Heal, late, or is lost with
// its connection, as the caller says.
type Network struct {
	// owner tells whose a connection is that came in from an address.
	owner func(remote, local *net.TCPAddr) Party

	mu      sync.Mutex
	changed *sync.Cond
	links   map[link]quality
	conns   map[*conn]struct{}
	doors   []net.Listener
	closed  bool
	wg      sync.WaitGroup
}

// conn is one connection through a door.
type conn struct {
	from, to  Party
	near, far net.Conn
	stopped   bool // a cut has held some of its bytes, or its beginning
}

// NewNetwork makes a network in which all is well.
func NewNetwork(owner func(remote, local *net.TCPAddr) Party) *Network {
	n := &Network{owner: owner, links: map[link]quality{}, conns: map[*conn]struct{}{}}
	n.changed = sync.NewCond(&n.mu)
	return n
}

// Door opens a door to a party that listens at target, and returns its address.
// Whoever comes through is asked for by owner, unless only one can.
func (n *Network) Door(to Party, target func() string, only ...Party) (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	n.mu.Lock()
	n.doors = append(n.doors, l)
	n.mu.Unlock()
	n.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() {
				from := Party(0)
				if len(only) > 0 {
					from = only[0]
				} else {
					from = n.owner(near.RemoteAddr().(*net.TCPAddr), near.LocalAddr().(*net.TCPAddr))
				}
				n.serve(&conn{from: from, to: to, near: near}, target())
			})
		}
	})
	return l.Addr().String(), nil
}

func (n *Network) serve(c *conn, target string) {
	n.mu.Lock()
	closed := n.closed
	if !closed {
		n.conns[c] = struct{}{}
	}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.conns, c)
		n.mu.Unlock()
		c.near.Close()
	}()
	// A connection takes packets of both directions.
	if closed || !n.pass(c, c.from, c.to) || !n.pass(c, c.to, c.from) {
		return
	}
	far, err := net.DialTimeout("tcp4", target, 5*time.Second)
	if err != nil {
		reset(c.near)
		return
	}
	defer far.Close()
	n.mu.Lock()
	c.far = far
	n.mu.Unlock()
	back := make(chan struct{})
	go func() {
		defer close(back)
		n.pump(c, far, c.near, c.to, c.from)
	}()
	n.pump(c, c.near, far, c.from, c.to)
	<-back
}

// reset has a connection end with an error at its other end. What the door has
// accepted would have been refused, or a killed process was asked, and franz-go
// takes the orderly end of a new connection for a broker that wants TLS or a
// login, and gives up.
func reset(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }

// pump moves the bytes of one direction, and then its end.
func (n *Network) pump(c *conn, src, dst net.Conn, from, to Party) {
	buf := make([]byte, 32<<10)
	for {
		k, err := src.Read(buf)
		if !n.pass(c, from, to) {
			break
		}
		if k > 0 {
			if _, werr := dst.Write(buf[:k]); werr != nil {
				// The reset travels the other way.
				if n.pass(c, to, from) {
					src.Close()
				}
				return
			}
		}
		if err == io.EOF && src == c.near {
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		}
		if err != nil {
			break
		}
	}
	reset(src)
	reset(dst)
	src.Close()
	dst.Close()
}

// pass waits until the direction lets something through; false says that the
// connection is lost.
func (n *Network) pass(c *conn, from, to Party) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.links[link{from, to}].cut {
		if _, open := n.conns[c]; !open || n.closed {
			return false
		}
		c.stopped = true
		n.changed.Wait()
	}
	if delay := n.links[link{from, to}].delay; delay > 0 {
		n.mu.Unlock()
		time.Sleep(delay)
		n.mu.Lock()
	}
	_, open := n.conns[c]
	return open && !n.closed
}

// Cut stops what goes from one party to another.
func (n *Network) Cut(from, to Party) { n.set(from, to, quality{cut: true}) }

// Slow makes each piece that goes from one party to another late.
func (n *Network) Slow(from, to Party, by time.Duration) { n.set(from, to, quality{delay: by}) }

func (n *Network) set(from, to Party, q quality) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[link{from, to}] = q
	n.changed.Broadcast()
}

// Heal mends the direction. What a cut had stopped is delivered now, or lost
// with its connections.
func (n *Network) Heal(from, to Party, lose bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.links, link{from, to})
	for c := range n.conns {
		if !c.stopped || !((c.from == from && c.to == to) || (c.from == to && c.to == from)) {
			continue
		}
		c.stopped = false
		if lose {
			n.drop(c)
		}
	}
	n.changed.Broadcast()
}

// drop is called with mu held.
func (n *Network) drop(c *conn) {
	delete(n.conns, c)
	reset(c.near)
	c.near.Close()
	if c.far != nil {
		reset(c.far)
		c.far.Close()
	}
}

// Close ends all doors and connections.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	for _, l := range n.doors {
		l.Close()
	}
	for c := range n.conns {
		n.drop(c)
	}
	n.changed.Broadcast()
	n.mu.Unlock()
	n.wg.Wait()
}
