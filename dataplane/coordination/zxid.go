package coordination

import (
	"encoding/binary"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// zxids keeps account, in the library's place, of how much of ZooKeeper's history a
// session has seen, so that no watch is lost when its connection breaks again and again.
//
// On each new connection the library names its watches to the server, together
// with the last zxid it has seen, and the server tells of what has changed after
// that one. But its users' requests go first, whose replies move that zxid, and it
// does not go back to where it was when the connection breaks before all watches are
// named: what changed before is never told. (It also reads it while it is written.)
//
// So the library sees no zxid in replies, and those that it sends are put into
// their place on the way.
type zxids struct {
	mu   sync.Mutex
	seen int64 // the last one; a server that has not got there is not to be talked to
	told int64 // every change up to this one has been told; moves only while all watches stand
	any  bool  // the session had a connection before
}

// What of the protocol is looked at. A packet is its length, then for a request
// xid and opcode, for a reply xid and zxid. The first packet of either direction
// is about the session itself.
const (
	setWatchesOp = 101
	// partBatch is more than the last of the requests that name watches can be sure
	// to be below: the library begins another where 128 KiB would be passed.
	partBatch = 128<<10 - 4<<10
	replyHead = 4 + 4 + 8
)

func (z *zxids) dialer(dial zk.Dialer) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := dial(network, address, timeout)
		if err != nil {
			return nil, err
		}
		return &zxidConn{Conn: c, z: z}, nil
	}
}

// zxidConn has one reader and one writer, which are the library's loops.
type zxidConn struct {
	net.Conn
	z *zxids

	asked bool // the writer's: the session was asked for

	head    []byte // the reader's: of the packet that is being read
	rest    int    // of that packet after the head
	granted bool   // the session was granted

	mu    sync.Mutex
	whole bool  // all watches stand
	last  int32 // xid of the request that names the last of them, 0 when it was not sent
}

// Write is called with whole packets, in a buffer of the library's that it has no
// further use for. It has no errors: a connection that cannot be written to is closed,
// and its reader says so. With an error the library tells the one caller of the
// network's error, as if it had been the server's answer, and then tells it once more that
// the connection is closed, which blocks it for ever if the caller has left.
func (c *zxidConn) Write(b []byte) (int, error) {
	c.z.mu.Lock()
	switch {
	case !c.asked && len(b) >= 16:
		binary.BigEndian.PutUint64(b[8:], uint64(c.z.seen))
	case c.asked && len(b) >= 20 && binary.BigEndian.Uint32(b[8:]) == setWatchesOp:
		binary.BigEndian.PutUint64(b[12:], uint64(c.z.told))
		if len(b) < partBatch {
			c.mu.Lock()
			c.last = int32(binary.BigEndian.Uint32(b[4:]))
			c.mu.Unlock()
		}
	}
	c.z.mu.Unlock()
	c.asked = true
	if _, err := c.Conn.Write(b); err != nil {
		c.Conn.Close()
	}
	return len(b), nil
}

func (c *zxidConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for p := b[:n]; len(p) > 0; {
		if c.rest > 0 {
			k := min(c.rest, len(p))
			c.rest -= k
			p = p[k:]
			continue
		}
		at := len(c.head)
		c.head = append(c.head, p[0])
		if c.granted && at >= 8 {
			p[0] = 0
		}
		p = p[1:]
		if len(c.head) == replyHead {
			c.rest = int(binary.BigEndian.Uint32(c.head)) - (replyHead - 4)
			c.packet(int32(binary.BigEndian.Uint32(c.head[4:])), int64(binary.BigEndian.Uint64(c.head[8:])))
			c.head = c.head[:0]
		}
	}
	return n, err
}

// packet is called with the head of each packet from the server, in order.
func (c *zxidConn) packet(xid int32, zxid int64) {
	c.z.mu.Lock()
	defer c.z.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.granted { // the session's first connection has no watches to name
		c.granted = true
		c.whole, c.z.any = !c.z.any, true
		return
	}
	if xid <= 0 { // of pings and watches
		return
	}
	c.whole = c.whole || xid == c.last
	c.z.seen = max(c.z.seen, zxid)
	if c.whole {
		c.z.told = c.z.seen
	}
}
