package zksession

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

const (
	// hedge is how long a server may take before the next one is asked as well. A
	// session that is ended twice is ended.
	hedge = 200 * time.Millisecond
	// again is the pause before all are asked anew.
	again = 100 * time.Millisecond
)

// ErrOver says that there is no such session any more.
var ErrOver = errors.New("the session is over already")

// End ends the session, so that its ephemeral znodes are gone when it returns. The
// server that granted it is asked first, the others when that fails or takes long.
// It goes on until one has done it or says ErrOver, or ctx ends.
func End(ctx context.Context, s Session) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // those that are still being asked
	servers := []string{s.Server}
	for _, a := range s.Servers {
		if !slices.Contains(servers, a) {
			servers = append(servers, a)
		}
	}
	var last error
	tried := false // a close has been sent: who finds no session then, finds its effect
	for {
		answers := make(chan outcome, len(servers))
		asked, pending := 0, 0
		for asked < len(servers) || pending > 0 {
			var next <-chan time.Time
			switch {
			case asked == len(servers):
			case pending == 0:
				next = time.After(0)
			default:
				next = time.After(hedge)
			}
			select {
			case <-next:
				server := servers[asked]
				asked, pending = asked+1, pending+1
				go func() { answers <- endAt(ctx, server, s) }()
			case o := <-answers:
				tried = tried || o.sent
				switch {
				case errors.Is(o.err, ErrOver) && tried:
					return nil
				case o.err == nil, errors.Is(o.err, ErrOver):
					return o.err
				}
				last, pending = o.err, pending-1
			case <-ctx.Done():
				return cutShort(ctx, last)
			}
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return cutShort(ctx, last)
		}
	}
}

func cutShort(ctx context.Context, last error) error {
	if last != nil {
		return last
	}
	return ctx.Err()
}

// ZooKeeper's own numbers.
const (
	opClose   = -11
	opSetAuth = 100
	xidAuth   = -4
	xidClose  = 1
)

// outcome is one server's; sent says that it was asked to close the session,
// whatever became of the answer.
type outcome struct {
	sent bool
	err  error
}

func endAt(ctx context.Context, server string, s Session) outcome {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server)
	if err != nil {
		return outcome{err: err}
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := takeOver(conn, s); err != nil {
		return outcome{err: fmt.Errorf("%s: taking session %#x over: %w", server, s.ID, err)}
	}
	if err := closeOn(conn, s); err != nil {
		return outcome{true, fmt.Errorf("%s: ending session %#x: %w", server, s.ID, err)}
	}
	return outcome{true, nil}
}

// takeOver makes the connection that of the session.
func takeOver(conn net.Conn, s Session) error {
	var hello []byte
	hello = be32(hello, 0) // protocol version
	hello = be64(hello, 0) // of the last change seen: none, so that a server that lags takes us too
	hello = be32(hello, int32(s.Timeout.Milliseconds()))
	hello = be64(hello, s.ID)
	hello = buffer(hello, s.Password)
	if err := send(conn, hello); err != nil {
		return err
	}
	reply, err := receive(conn)
	if err != nil {
		return err
	}
	g, err := ParseGrant(reply)
	if err != nil {
		return err
	}
	if g.ID == 0 || g.Timeout <= 0 {
		return ErrOver
	}
	return nil
}

// closeOn ends the session of the connection and waits for the answer.
func closeOn(conn net.Conn, s Session) error {
	if s.Digest != "" {
		m := be32(be32(be32(nil, xidAuth), opSetAuth), 0)
		m = buffer(buffer(m, []byte("digest")), []byte(s.Digest))
		if err := send(conn, m); err != nil {
			return err
		}
	}
	if err := send(conn, be32(be32(nil, xidClose), opClose)); err != nil {
		return err
	}
	for {
		reply, err := receive(conn)
		if err != nil {
			return err
		}
		if len(reply) < 16 { // xid, the change's number, error
			return fmt.Errorf("a reply of %d bytes", len(reply))
		}
		code := int32(binary.BigEndian.Uint32(reply[12:]))
		switch xid := int32(binary.BigEndian.Uint32(reply)); {
		case code != 0:
			return fmt.Errorf("error %d", code)
		case xid == xidClose:
			return nil
		}
	}
}

// Grant is a server's first reply on a connection.
type Grant struct {
	ID       int64 // 0: there is no such session any more
	Timeout  time.Duration
	Password []byte
}

// ParseGrant reads it, its length left out.
func ParseGrant(b []byte) (Grant, error) {
	const head = 4 + 4 + 8 + 4 // version, timeout, id, length of the password
	if len(b) < head {
		return Grant{}, fmt.Errorf("a session's grant of %d bytes", len(b))
	}
	g := Grant{
		Timeout: time.Duration(int32(binary.BigEndian.Uint32(b[4:]))) * time.Millisecond,
		ID:      int64(binary.BigEndian.Uint64(b[8:])),
	}
	n := int32(binary.BigEndian.Uint32(b[16:]))
	if n < 0 || int(n) > len(b)-head {
		return Grant{}, errors.New("a session's grant that ends early")
	}
	g.Password = slices.Clone(b[head : head+int(n)])
	return g, nil
}

func be32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func be64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func buffer(b, v []byte) []byte { return append(be32(b, int32(len(v))), v...) }

func send(conn net.Conn, m []byte) error {
	_, err := conn.Write(buffer(nil, m))
	return err
}

// MaxReply bounds what is read of any reply here.
const MaxReply = 1 << 10

func receive(conn net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > MaxReply {
		return nil, fmt.Errorf("a reply of %d bytes", n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(conn, b)
	return b, err
}
