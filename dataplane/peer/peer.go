// Package peer is a connection from this broker to another: dialled, logged in,
// and used for one request at a time. Pools, retries and queues are the
// callers', since a follower's fetcher and a controller's sender need different
// ones.
package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

const (
	readBuffer = 4 << 10
	// maxLoginResponse bounds what is read before the other side is known.
	maxLoginResponse = 64 << 10
)

// ErrClosed is the error of a connection that has been closed or is broken.
var ErrClosed = errors.New("peer: connection is closed")

// Dialer opens connections to one broker. Zero values mean the default named
// with the field.
type Dialer struct {
	// Addr is host:port.
	Addr string
	// ClientID goes into every request header. Default none (null).
	ClientID string
	// User and Password log in by SASL PLAIN (RFC 4616); an empty User means no login.
	User, Password string
	// TLS makes the connection a TLS one.
	TLS *tls.Config
	// Timeout bounds dial and login, and a request whose context has no
	// deadline. Default 30 s.
	Timeout time.Duration
	// MaxResponse bounds a response in bytes. Default 100 MiB.
	MaxResponse int
	// Buffers for DoStream; nil makes an own pool.
	Buffers *protocol.Pool
	// DialContext replaces the network, for tests.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Dial connects and logs in. A refused login is a *kerr.Error in the chain.
func (d *Dialer) Dial(ctx context.Context) (*Conn, error) {
	c := &Conn{d: *d, slot: make(chan struct{}, 1)}
	if c.d.Timeout <= 0 {
		c.d.Timeout = 30 * time.Second
	}
	if c.d.MaxResponse <= 0 {
		c.d.MaxResponse = 100 << 20
	}
	if c.d.Buffers == nil {
		c.d.Buffers = protocol.NewPool()
	}
	if c.d.DialContext == nil {
		c.d.DialContext = new(net.Dialer).DialContext
	}
	c.format = kmsg.NewRequestFormatter()
	if d.ClientID != "" {
		c.format = kmsg.NewRequestFormatter(kmsg.FormatterClientID(d.ClientID))
	}
	ctx, cancel := context.WithTimeout(ctx, c.d.Timeout)
	defer cancel()
	nc, err := c.d.DialContext(ctx, "tcp", d.Addr)
	if err != nil {
		return nil, fmt.Errorf("peer: dial: %w", err)
	}
	c.nc = nc
	if d.TLS != nil {
		t := tls.Client(nc, d.TLS)
		if err := t.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, fmt.Errorf("peer: TLS with %s: %w", d.Addr, err)
		}
		c.nc = t
	}
	c.br = bufio.NewReaderSize(c.nc, readBuffer)
	if d.User != "" {
		if err := c.login(ctx); err != nil {
			c.Close()
			return nil, fmt.Errorf("peer: login at %s: %w", d.Addr, err)
		}
	}
	return c, nil
}

// Conn carries one request at a time; callers may be many, they take turns. It
// is broken for good after any error.
type Conn struct {
	d      Dialer
	nc     net.Conn
	br     *bufio.Reader
	format *kmsg.RequestFormatter

	slot    chan struct{}   // held by the request under way
	has     map[int16]int16 // newest version of each API over there; nil until asked
	corr    int32
	reauth  time.Time // when to log in anew; zero is never
	out     []byte
	body    Body // of the streamed response under way
	broken  atomic.Bool
	closing sync.Once
}

// Do sends req at the version set in it and reads the response. The response
// owns its memory. Cancelling ctx breaks the connection: its reply could come
// at any later time.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	var resp kmsg.Response
	err := c.turn(ctx, func(ctx context.Context) (err error) {
		resp, err = c.do(ctx, req, c.d.MaxResponse)
		return err
	})
	return resp, err
}

// Newest is the newest version of an API, up to ours, that the other broker has. It is asked
// once a connection: a broker of another release may be older than this one.
func (c *Conn) Newest(ctx context.Context, key, ours int16) (int16, error) {
	var newest int16
	err := c.turn(ctx, func(ctx context.Context) error {
		if c.has == nil {
			req := kmsg.NewPtrApiVersionsRequest() // version 0 is understood by all
			resp, err := c.do(ctx, req, c.d.MaxResponse)
			if err != nil {
				return err
			}
			av := resp.(*kmsg.ApiVersionsResponse)
			if err := kerr.ErrorForCode(av.ErrorCode); err != nil {
				return fmt.Errorf("peer: the versions of %s: %w", c.d.Addr, err)
			}
			c.has = make(map[int16]int16, len(av.ApiKeys))
			for _, k := range av.ApiKeys {
				c.has[k.ApiKey] = k.MaxVersion
			}
		}
		theirs, ok := c.has[key]
		if !ok {
			return fmt.Errorf("peer: %s does not have %s", c.d.Addr, kmsg.NameForKey(key))
		}
		newest = min(ours, theirs)
		return nil
	})
	return newest, err
}

// DoStream is Do with a response that read takes field by field while it arrives. The
// connection's timeout is then for each wait, not for the whole: read may take its time.
// read must take everything, and not use the connection nor keep the body.
func (c *Conn) DoStream(ctx context.Context, req kmsg.Request, read func(*Body) error) error {
	return c.turn(ctx, func(ctx context.Context) error {
		return c.exchange(ctx, req, c.d.MaxResponse, func(size int) error {
			b := &c.body
			*b = Body{src: c.br, conn: c, pool: c.d.Buffers, later: size}
			defer b.Close()
			if corr := b.Int32(); b.err == nil && corr != c.corr {
				return fmt.Errorf("response to request %d, want %d", corr, c.corr)
			}
			if protocol.ResponseHeaderFlexible(req.Key(), req.GetVersion()) {
				b.Tags(nil)
			}
			if b.err != nil {
				return b.err
			}
			if err := read(b); err != nil {
				return err
			}
			if b.err == nil && b.Left() > 0 {
				return fmt.Errorf("%d bytes behind the response: %w", b.Left(), errBody)
			}
			return b.err
		})
	})
}

// Broken reports whether the connection can no longer be used.
func (c *Conn) Broken() bool { return c.broken.Load() }

// Close closes the connection; a request under way fails.
func (c *Conn) Close() error {
	c.broken.Store(true)
	var err error
	c.closing.Do(func() { err = c.nc.Close() })
	return err
}

// LocalAddr is this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.nc.LocalAddr() }

// turn runs f when it is the caller's turn, within a deadline. Any error breaks
// the connection, since nothing tells then where the next reply begins.
func (c *Conn) turn(ctx context.Context, f func(context.Context) error) error {
	select {
	case c.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err() // nothing has been sent
	}
	defer func() { <-c.slot }()
	if c.Broken() {
		return ErrClosed
	}
	if !c.reauth.IsZero() && time.Now().After(c.reauth) {
		if err := c.login(ctx); err != nil {
			c.Close()
			return fmt.Errorf("peer: new login at %s: %w", c.d.Addr, err)
		}
	}
	if err := f(ctx); err != nil {
		c.Close()
		return err
	}
	return nil
}

func (c *Conn) do(ctx context.Context, req kmsg.Request, limit int) (kmsg.Response, error) {
	resp := req.ResponseKind()
	err := c.exchange(ctx, req, limit, func(size int) error {
		frame := make([]byte, size)
		if _, err := io.ReadFull(c.br, frame); err != nil {
			return err
		}
		corr, body, err := protocol.ParseResponseHeader(req.Key(), req.GetVersion(), frame)
		if err != nil {
			return err
		}
		if corr != c.corr {
			return fmt.Errorf("response to request %d, want %d", corr, c.corr)
		}
		return resp.ReadFrom(body)
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// exchange sends one request and has take read the response of that many bytes.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request, limit int, take func(size int) error) (err error) {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(c.d.Timeout)
	}
	c.nc.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err() // closed under the reply
		}
		if err == nil {
			return
		}
		if cause := ctx.Err(); cause != nil {
			err = cause
		} else if ok && errors.Is(err, os.ErrDeadlineExceeded) {
			err = context.DeadlineExceeded // the socket's clock was the faster one
		}
		err = fmt.Errorf("peer: %s to %s: %w", kmsg.NameForKey(req.Key()), c.d.Addr, err)
	}()

	c.corr++
	c.out = c.format.AppendRequest(c.out[:0], req, c.corr)
	if _, err := c.nc.Write(c.out); err != nil {
		return err
	}
	if cap(c.out) > 1<<20 {
		c.out = nil // one large request must not pin its memory
	}

	head, err := c.br.Peek(4)
	if err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < 4 || size > limit {
		return fmt.Errorf("response of %d bytes, limit %d", size, limit)
	}
	c.br.Discard(4)
	return take(size)
}

// login runs SASL PLAIN, and again before the session ends (KIP-368).
func (c *Conn) login(ctx context.Context) error {
	h := kmsg.NewPtrSASLHandshakeRequest()
	h.Version, h.Mechanism = 1, "PLAIN"
	resp, err := c.do(ctx, h, maxLoginResponse)
	if err != nil {
		return err
	}
	if hr := resp.(*kmsg.SASLHandshakeResponse); hr.ErrorCode != 0 {
		return fmt.Errorf("%w (it has %v)", kerr.ErrorForCode(hr.ErrorCode), hr.SupportedMechanisms)
	}
	a := kmsg.NewPtrSASLAuthenticateRequest()
	a.Version = 1
	a.SASLAuthBytes = []byte("\x00" + c.d.User + "\x00" + c.d.Password)
	if resp, err = c.do(ctx, a, maxLoginResponse); err != nil {
		return err
	}
	ar := resp.(*kmsg.SASLAuthenticateResponse)
	if ar.ErrorCode != 0 {
		msg := ""
		if ar.ErrorMessage != nil {
			msg = *ar.ErrorMessage
		}
		return fmt.Errorf("%w: %s", kerr.ErrorForCode(ar.ErrorCode), msg)
	}
	c.reauth = time.Time{}
	if ar.SessionLifetimeMillis > 0 {
		c.reauth = time.Now().Add(time.Duration(ar.SessionLifetimeMillis) * time.Millisecond * 4 / 5)
	}
	return nil
}
