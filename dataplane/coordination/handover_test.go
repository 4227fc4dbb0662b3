package coordination

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"penstock/dataplane/coordination/zksession"
	"penstock/dataplane/coordination/zktest"
)

func box(t testing.TB) *zksession.Box {
	t.Helper()
	b, err := zksession.NewBox()
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// held is what the box holds, which must be the client's session.
func held(t testing.TB, b *zksession.Box, c *Client) zksession.Session {
	t.Helper()
	s, ok, err := b.Get()
	must(t, err)
	if !ok || s.ID != c.SessionID() {
		t.Fatalf("the box holds %v session %#x, want %#x", ok, s.ID, c.SessionID())
	}
	return s
}

var broker7 = Broker{ID: 7, Endpoints: []Endpoint{{"PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9}}}

func gone(t testing.TB, c *Client, path string) bool {
	t.Helper()
	st, err := c.Exists(testContext(t), path)
	must(t, err)
	return st == nil
}

func TestSessionFromTheBoxIsEndedAtOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"plain": {}, "digest": {Digest: "u:p", SetACL: true}} {
		t.Run(name, func(t *testing.T) {
			ctx, at, b := testContext(t), zktest.Chroot(t), box(t)
			cfg.Connect, cfg.SessionTimeout, cfg.Box = at, time.Minute, b
			c, other := connect(t, cfg), connect(t, Config{Connect: at})
			expired := make(chan struct{})
			c.OnExpired(func() { close(expired) })
			_, err := c.RegisterBroker(ctx, broker7)
			must(t, err)
			s := held(t, b, c)
			must(t, zksession.End(ctx, s))
			if !gone(t, other, "/brokers/ids/7") {
				t.Error("the registration is still there")
			}
			if err := zksession.End(ctx, s); !errors.Is(err, zksession.ErrOver) {
				t.Errorf("ending it again: %v, want %v", err, zksession.ErrOver)
			}
			recv(t, expired, "word of the end")
		})
	}
}

// Under each new session the box is filled before any znode can belong to it, and a
// reconnection under the same one leaves it right.
func TestBoxHoldsTheSessionOverReconnectionAndExpiry(t *testing.T) {
	t.Parallel()
	ctx, b := testContext(t), box(t)
	p := zktest.NewProxy(t, zktest.Shared(t))
	c := connect(t, Config{Connect: p.Addr() + zktest.Path(), SessionTimeout: 30 * time.Second, Box: b})
	first := held(t, b, c)
	p.Drop()
	must(t, c.EnsurePath(ctx, "/x")) // over the next connection
	if again := held(t, b, c); again.ID != first.ID || string(again.Password) != string(first.Password) {
		t.Errorf("after a reconnection the box holds %+v, want %+v", again, first)
	}
	next := make(chan int64, 1)
	c.OnSession(func(context.Context) error {
		s, _, err := b.Get()
		next <- s.ID
		return err
	})
	p.Expire(t)
	p.Drop()
	if id := recv(t, next, "a new session"); id != c.SessionID() || id == first.ID {
		t.Errorf("the box holds %#x, the session is %#x after %#x", id, c.SessionID(), first.ID)
	}
}

func TestSessionIsEndedAtAnotherServerWhenItsOwnDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	refusing.Close()
	for name, server := range map[string]string{"silent": silent.Addr().String(), "gone": refusing.Addr().String()} {
		ctx, at, b := testContext(t), zktest.Chroot(t), box(t)
		c := connect(t, Config{Connect: at, SessionTimeout: time.Minute, Box: b})
		s := held(t, b, c)
		s.Servers = append(s.Servers, s.Server)
		s.Server = server
		if err := zksession.End(ctx, s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nobody answers at all: it ends with its context.
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := zksession.End(ctx, zksession.Session{ID: 1, Server: silent.Addr().String()}); err == nil {
		t.Error("no error from a server that never answers")
	}
}

func TestSessionWithAWrongPasswordIsLeftAlone(t *testing.T) {
	t.Parallel()
	ctx, at, b := testContext(t), zktest.Chroot(t), box(t)
	c := connect(t, Config{Connect: at, SessionTimeout: time.Minute, Box: b})
	_, err := c.RegisterBroker(ctx, broker7)
	must(t, err)
	s := held(t, b, c)
	s.Password[0]++
	if err := zksession.End(ctx, s); !errors.Is(err, zksession.ErrOver) {
		t.Errorf("%v, want %v: the server tells no more than that", err, zksession.ErrOver)
	}
	if gone(t, c, "/brokers/ids/7") {
		t.Error("it ended the session")
	}
}

// The reply may come in any pieces.
func TestFirstReplyIsReadInPieces(t *testing.T) {
	packet := []byte{0, 0, 0, 37, 0, 0, 0, 0, 0, 0, 0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 16}
	packet = append(packet, "0123456789abcdef\x00and what comes after it"...)
	for size := 1; size <= len(packet); size++ {
		a, z := net.Pipe()
		go func() {
			for i := 0; i < len(packet); i += size {
				a.Write(packet[i:min(i+size, len(packet))])
			}
			a.Close()
		}()
		var got []zksession.Grant
		c := &firstReply{Conn: z, granted: func(g zksession.Grant) { got = append(got, g) }}
		all, err := io.ReadAll(c)
		must(t, err)
		if string(all) != string(packet) {
			t.Fatalf("pieces of %d: what was read differs", size)
		}
		if len(got) != 1 || got[0].ID != 0x0102030405060708 || got[0].Timeout != 4*time.Second || string(got[0].Password) != "0123456789abcdef" {
			t.Fatalf("pieces of %d: %+v", size, got)
		}
	}
}
