package coordination

import (
	"encoding/binary"
	"net"
	"time"

	"github.com/go-zookeeper/zk"

	"penstock/dataplane/coordination/zksession"
)

// hosts is the library's choice of servers with a quicker start: left to itself
// the library waits a whole second before it tries a lone server again, which
// every broker would pay for each blip, and once more before it learns that its
// session is over. The first attempts follow each other quickly instead; after
// them the library's pace holds, and with it its dropping of what waits to be
// sent.
type hosts struct {
	zk.HostProvider
	quick int // attempts in a row; the library's loop is the only caller
}

const (
	quickAttempts = 10
	quickPause    = 50 * time.Millisecond
)

func (h *hosts) Next() (server string, retryStart bool) {
	server, retryStart = h.HostProvider.Next()
	if retryStart && h.quick < quickAttempts {
		h.quick++
		time.Sleep(quickPause)
		retryStart = false
	}
	return server, retryStart
}

func (h *hosts) Connected() {
	h.quick = 0
	h.HostProvider.Connected()
}

// dialer opens connections whose first reply, the granting of the session, is
// bounded and looked at. The library waits for it for almost seven session timeouts,
// and a server that is just starting may accept a connection and never answer it.
// What the reply grants goes to granted before the library reads it.
func dialer(sessionTimeout time.Duration, granted func(server string, g zksession.Grant)) zk.Dialer {
	patience := min(max(sessionTimeout/4, time.Second), 3*time.Second)
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &firstReply{Conn: c, until: time.Now().Add(patience), granted: func(g zksession.Grant) { granted(address, g) }}, nil
	}
}

// firstReply shortens read deadlines until something has been read, and reads the
// first reply along. The library's loop is its only reader.
type firstReply struct {
	net.Conn
	until   time.Time
	seen    bool
	reply   []byte
	granted func(zksession.Grant) // nil once the reply has come
}

func (c *firstReply) SetReadDeadline(t time.Time) error {
	if !c.seen && !t.IsZero() && t.After(c.until) {
		t = c.until
	}
	return c.Conn.SetReadDeadline(t)
}

func (c *firstReply) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.seen = c.seen || n > 0
	if c.granted != nil {
		c.readAlong(b[:n])
	}
	return n, err
}

// readAlong gathers the reply, whose length comes first, and says what it grants.
func (c *firstReply) readAlong(b []byte) {
	c.reply = append(c.reply, b...)
	if len(c.reply) < 4 {
		return
	}
	size := int(binary.BigEndian.Uint32(c.reply))
	if size > zksession.MaxReply { // not ZooKeeper's: the library will say so
		c.granted, c.reply = nil, nil
		return
	}
	if len(c.reply) < 4+size {
		return
	}
	if g, err := zksession.ParseGrant(c.reply[4 : 4+size]); err == nil && g.ID != 0 {
		c.granted(g)
	}
	c.granted, c.reply = nil, nil
}
