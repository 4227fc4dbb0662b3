package zkbulk

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"penstock/dataplane/coordination/zksession"
)

// Config says where to read.
type Config struct {
	// Servers are host:port each; the first that takes the connection is read from.
	Servers []string
	// Digest is "user:password" of the digest scheme; empty: none.
	Digest string
	// Patience is how long the server may take for its next answer, default 10 s. The session
	// times out as soon should this process die.
	Patience time.Duration
}

// Stat is what a reader needs of a znode's metadata.
type Stat struct {
	Mzxid   int64 // of the last write
	Version int32
}

// ErrNoNode says that there is no such znode.
var ErrNoNode = errors.New("zkbulk: no such znode")

// Read calls each with the content of each znode, in the order of paths, which are whole ones,
// from the server's root. data is valid during the call only; err is nil or ErrNoNode. An error of each
// ends the reading and is returned, as are those of the network and of the server.
func Read(ctx context.Context, cfg Config, paths []string, each func(i int, data []byte, st Stat, err error) error) error {
	if len(paths) == 0 {
		return nil
	}
	if cfg.Patience <= 0 {
		cfg.Patience = 10 * time.Second
	}
	var failed error
	for _, server := range cfg.Servers {
		conn, err := dial(ctx, server, cfg)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", server, err))
			continue
		}
		defer conn.close()
		if err := conn.read(paths, each); err != nil {
			return fmt.Errorf("zkbulk: reading from %s: %w", server, err)
		}
		return nil
	}
	if failed == nil {
		failed = errors.New("no server is named")
	}
	return fmt.Errorf("zkbulk: %w", failed)
}

// ZooKeeper's own numbers.
const (
	opGetData = 4
	opSync    = 9
	opClose   = -11
	opSetAuth = 100
	xidAuth   = -4
	codeNone  = -101 // no such znode

	// maxReply is what a znode may have (jute.maxbuffer), and what stands around it.
	maxReply = 1<<20 + 4<<10
	// replyHead is xid, zxid and code.
	replyHead = 4 + 8 + 4
	statSize  = 68
)

type conn struct {
	nc       net.Conn
	patience time.Duration
	r        *bufio.Reader
	w        *bufio.Writer
	reply    []byte // its memory is used again
	stop     func() bool
}

// dial connects and has a session granted.
func dial(ctx context.Context, server string, cfg Config) (*conn, error) {
	d := net.Dialer{Timeout: cfg.Patience}
	nc, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, patience: cfg.Patience, r: bufio.NewReaderSize(nc, 64<<10), w: bufio.NewWriterSize(nc, 64<<10)}
	c.stop = context.AfterFunc(ctx, func() { nc.Close() })
	if err := c.begin(cfg); err != nil {
		c.stop()
		nc.Close()
		return nil, err
	}
	return c, nil
}

func (c *conn) begin(cfg Config) error {
	hello := be32(nil, 0)  // protocol version
	hello = be64(hello, 0) // of the last change seen
	hello = be32(hello, int32(cfg.Patience.Milliseconds()))
	hello = be64(hello, 0) // a new session
	hello = buffer(hello, make([]byte, 16))
	c.send(hello)
	if err := c.w.Flush(); err != nil {
		return err
	}
	granted, err := c.receive(zksession.MaxReply)
	if err != nil {
		return err
	}
	g, err := zksession.ParseGrant(granted)
	if err != nil {
		return err
	}
	if g.ID == 0 {
		return errors.New("no session is granted")
	}
	if cfg.Digest == "" {
		return nil
	}
	m := be32(be32(be32(nil, xidAuth), opSetAuth), 0)
	c.send(buffer(buffer(m, []byte("digest")), []byte(cfg.Digest)))
	if err := c.w.Flush(); err != nil {
		return err
	}
	_, err = c.answer(xidAuth)
	return err
}

// close ends the session, so that the server need not keep it until it times out.
func (c *conn) close() {
	c.send(be32(be32(nil, 1), opClose))
	if c.w.Flush() == nil {
		_, _ = c.receive(maxReply)
	}
	c.stop()
	c.nc.Close()
}

func (c *conn) read(paths []string, each func(i int, data []byte, st Stat, err error) error) error {
	sent := make(chan error, 1)
	go func() { // beside the reading: both sides' buffers are bounded
		m := be32(be32(nil, 1), opSync)
		c.send(buffer(m, []byte(paths[0])))
		for i, p := range paths {
			m = buffer(be32(be32(m[:0], int32(i)+2), opGetData), []byte(p))
			c.send(append(m, 0)) // no watch
		}
		sent <- c.w.Flush()
	}()
	err := c.take(len(paths), each)
	if err != nil {
		c.nc.Close() // for the writer
	}
	return errors.Join(err, <-sent)
}

func (c *conn) take(n int, each func(i int, data []byte, st Stat, err error) error) error {
	if _, err := c.answer(1); err != nil && !errors.Is(err, ErrNoNode) {
		return err
	}
	for i := range n {
		body, err := c.answer(int32(i) + 2)
		var data []byte
		var st Stat
		if err == nil {
			data, st, err = parseNode(body)
		}
		if err != nil && !errors.Is(err, ErrNoNode) {
			return err
		}
		if err := each(i, data, st, err); err != nil {
			return err
		}
	}
	return nil
}

// answer reads the reply to the request of that number; ErrNoNode if that is what it says.
func (c *conn) answer(xid int32) (body []byte, err error) {
	b, err := c.receive(maxReply)
	if err != nil {
		return nil, err
	}
	if len(b) < replyHead {
		return nil, fmt.Errorf("a reply of %d bytes", len(b))
	}
	if got := int32(binary.BigEndian.Uint32(b)); got != xid {
		return nil, fmt.Errorf("a reply to request %d instead of %d", got, xid)
	}
	switch code := int32(binary.BigEndian.Uint32(b[12:])); code {
	case 0:
		return b[replyHead:], nil
	case codeNone:
		return nil, ErrNoNode
	default:
		return nil, fmt.Errorf("the server's error %d", code)
	}
}

// parseNode reads what a getData answers: the content, whose length comes first and is -1 for
// none, and the metadata.
func parseNode(b []byte) (data []byte, st Stat, err error) {
	if len(b) < 4 {
		return nil, st, io.ErrUnexpectedEOF
	}
	n := max(int(int32(binary.BigEndian.Uint32(b))), 0)
	if b = b[4:]; len(b) < statSize || n > len(b)-statSize {
		return nil, st, fmt.Errorf("a znode of %d bytes in a reply of %d", n, len(b))
	}
	data, b = b[:n], b[n:]
	// czxid, mzxid, ctime, mtime, version, ...
	st.Mzxid, st.Version = int64(binary.BigEndian.Uint64(b[8:])), int32(binary.BigEndian.Uint32(b[32:]))
	return data, st, nil
}

// send puts a packet into the writer, whose error Flush gives.
func (c *conn) send(m []byte) {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(m)))
	_, _ = c.w.Write(head[:])
	_, _ = c.w.Write(m)
}

// receive reads a packet of at most limit bytes, valid until the next.
func (c *conn) receive(limit int) ([]byte, error) {
	if c.r.Buffered() < 4 { // there is a system call to come
		_ = c.nc.SetReadDeadline(time.Now().Add(c.patience))
	}
	var head [4]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > uint32(limit) {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	if cap(c.reply) < int(n) {
		c.reply = make([]byte, n)
	}
	b := c.reply[:n]
	_, err := io.ReadFull(c.r, b)
	return b, err
}

func be32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func be64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func buffer(b, v []byte) []byte { return append(be32(b, int32(len(v))), v...) }
