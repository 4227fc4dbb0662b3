package listener

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves cfg on a loopback port; at the end of the test it closes the
// listener and checks that every buffer has come back.
func start(t testing.TB, cfg Config) *Listener {
	t.Helper()
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.Handler == nil {
		cfg.Handler = answer
	}
	cfg.Name = "TEST"
	l, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l.Serve()
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		waitFor(t, "all buffers back in the pool", func() bool { return l.cfg.Buffers.InUse() == 0 })
	})
	return l
}

// answer is a handler that replies with an empty response of the right kind.
func answer(r *Request) {
	switch r.Key {
	case 18:
		r.Reply(protocol.ApiVersions(r.Version))
	default:
		r.Reply(r.Body.ResponseKind())
	}
}

func waitFor(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return
		}
	}
	t.Errorf("not reached: %s", what)
}

// client is a raw connection.
type client struct {
	net.Conn
	t    testing.TB
	corr int32
}

func dial(t testing.TB, l *Listener) *client {
	t.Helper()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	return &client{Conn: nc, t: t}
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester"))

func (c *client) send(req kmsg.Request) int32 {
	c.t.Helper()
	c.corr++
	c.write(formatter.AppendRequest(nil, req, c.corr))
	return c.corr
}

func (c *client) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads one frame and returns correlation id and the rest.
func (c *client) receive() (int32, []byte) {
	c.t.Helper()
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		c.t.Fatalf("no reply: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:])-4)
	if _, err := io.ReadFull(c, body); err != nil {
		c.t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(head[4:])), body
}

func (c *client) call(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	want := c.send(req)
	corr, body := c.receive()
	if corr != want {
		c.t.Fatalf("correlation id %d, want %d", corr, want)
	}
	resp := req.ResponseKind()
	if protocol.ResponseHeaderFlexible(req.Key(), req.GetVersion()) {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// mustClose waits until the other side has closed, without an answer.
func (c *client) mustClose() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := io.Copy(io.Discard, c); n > 0 {
		c.t.Errorf("answered with %d bytes, want a closed connection", n)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		c.t.Error("connection still open")
	}
}

func at(r kmsg.Request, version int16) kmsg.Request { r.SetVersion(version); return r }

func apiVersions(version int16) kmsg.Request {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "t", "1"
	return at(r, version)
}

func metadata() kmsg.Request { return at(kmsg.NewPtrMetadataRequest(), 9) }

func produce(acks int16, records []byte) kmsg.Request {
	r := kmsg.NewPtrProduceRequest()
	r.Acks = acks
	tp := kmsg.NewProduceRequestTopic()
	tp.Topic = "t"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = records
	tp.Partitions = append(tp.Partitions, p)
	r.Topics = append(r.Topics, tp)
	return at(r, 9)
}

// gate is a handler that keeps requests until the test answers them.
type gate struct {
	mu  sync.Mutex
	all []*Request
	n   atomic.Int64
}

func (g *gate) handle(r *Request) {
	g.mu.Lock()
	g.all = append(g.all, r)
	g.mu.Unlock()
	g.n.Add(1)
}

func (g *gate) get(t testing.TB, i int) *Request {
	t.Helper()
	waitFor(t, "request arrived", func() bool { return int(g.n.Load()) > i })
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[i]
}

// budget is a strict little Budget.
type budget struct {
	mu          sync.Mutex
	limit, used int64
	peak        int64
	waiting     int
	change      chan struct{}
}

func newBudget(limit int64) *budget { return &budget{limit: limit, change: make(chan struct{})} }

func (b *budget) Acquire(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.used == 0 || b.used+n <= b.limit {
			b.used += n
			b.peak = max(b.peak, b.used)
			b.mu.Unlock()
			return nil
		}
		ch := b.change
		b.waiting++
		b.mu.Unlock()
		var err error
		select {
		case <-ch:
		case <-ctx.Done():
			err = ctx.Err()
		}
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

func (b *budget) Release(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	close(b.change)
	b.change = make(chan struct{})
}

func (b *budget) Waiting() int { b.mu.Lock(); defer b.mu.Unlock(); return b.waiting }

func (b *budget) inUse() int64 { b.mu.Lock(); defer b.mu.Unlock(); return b.used }
