package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a server that answers each request with what reply returns; nil
// closes the connection.
func broker(t *testing.T, reply func(h protocol.RequestHeader, req kmsg.Request) []byte) *Dialer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(nc, reply) })
			t.Cleanup(func() { nc.Close() })
		}
	})
	return &Dialer{Addr: ln.Addr().String(), ClientID: "broker-1", Timeout: 5 * time.Second}
}

func serve(nc net.Conn, reply func(protocol.RequestHeader, kmsg.Request) []byte) {
	defer nc.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(nc, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(nc, frame); err != nil {
			return
		}
		h, body, err := protocol.ParseRequestHeader(frame)
		if err != nil {
			return
		}
		req, err := protocol.Lookup(h.Key).Decode(h.Version, body)
		if err != nil {
			return
		}
		out := reply(h, req)
		if out == nil {
			return
		}
		nc.Write(out)
	}
}

func framed(h protocol.RequestHeader, resp kmsg.Response) []byte {
	resp.SetVersion(h.Version)
	b := protocol.AppendResponseHeader(make([]byte, 4), h.Key, h.Version, h.CorrelationID)
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func metadata(version int16) kmsg.Request {
	r := kmsg.NewPtrMetadataRequest()
	r.Version = version
	return r
}

func echo(h protocol.RequestHeader, req kmsg.Request) []byte {
	resp := req.ResponseKind()
	if m, ok := resp.(*kmsg.MetadataResponse); ok {
		m.ControllerID = h.CorrelationID
	}
	return framed(h, resp)
}

func TestLoginByPlainThenRequestsOfBothHeaderVersions(t *testing.T) {
	var seen []int16
	var mu sync.Mutex
	d := broker(t, func(h protocol.RequestHeader, req kmsg.Request) []byte {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, h.Key)
		if string(h.ClientID) != "broker-1" {
			t.Errorf("client id %q", h.ClientID)
		}
		if a, ok := req.(*kmsg.SASLAuthenticateRequest); ok && string(a.SASLAuthBytes) != "\x00broker\x00secret" {
			t.Errorf("token %q", a.SASLAuthBytes)
		}
		return echo(h, req)
	})
	d.User, d.Password = "broker", "secret"
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, v := range []int16{1, 12} {
		resp, err := c.Do(t.Context(), metadata(v))
		if err != nil {
			t.Fatal(err)
		}
		if m := resp.(*kmsg.MetadataResponse); m.Version != v {
			t.Errorf("version %d", m.Version)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(seen) != 4 || seen[0] != 17 || seen[1] != 36 {
		t.Errorf("keys %v", seen)
	}
}

func TestRefusedLoginIsAKafkaError(t *testing.T) {
	d := broker(t, func(h protocol.RequestHeader, req kmsg.Request) []byte {
		resp := req.ResponseKind()
		if a, ok := resp.(*kmsg.SASLAuthenticateResponse); ok {
			a.ErrorCode = kerr.SaslAuthenticationFailed.Code
			a.ErrorMessage = kmsg.StringPtr("wrong password")
		}
		return framed(h, resp)
	})
	d.User = "broker"
	if _, err := d.Dial(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) || !strings.Contains(err.Error(), "wrong password") {
		t.Errorf("%v", err)
	}
}

func TestLoginIsRenewedBeforeTheSessionEnds(t *testing.T) {
	var logins atomic.Int32
	d := broker(t, func(h protocol.RequestHeader, req kmsg.Request) []byte {
		resp := req.ResponseKind()
		if a, ok := resp.(*kmsg.SASLAuthenticateResponse); ok {
			logins.Add(1)
			a.SessionLifetimeMillis = 1
		}
		return framed(h, resp)
	})
	d.User = "broker"
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(2 * time.Millisecond)
	if _, err := c.Do(t.Context(), metadata(12)); err != nil || logins.Load() != 2 {
		t.Errorf("%v, %d logins", err, logins.Load())
	}
}

func TestCallersTakeTurns(t *testing.T) {
	d := broker(t, echo)
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	seen := make([]atomic.Int32, 41)
	for range 40 {
		wg.Go(func() {
			resp, err := c.Do(t.Context(), metadata(12))
			if err != nil {
				t.Error(err)
				return
			}
			seen[resp.(*kmsg.MetadataResponse).ControllerID].Add(1)
		})
	}
	wg.Wait()
	for i := 1; i <= 40; i++ {
		if seen[i].Load() != 1 {
			t.Errorf("reply %d came %d times", i, seen[i].Load())
		}
	}
}

func fetchRequest() kmsg.Request {
	req := kmsg.NewPtrFetchRequest()
	req.Version = 12
	return req
}

func takeAll(b *Body) error { b.Take(b.Left()); return b.Err() }

func TestStreamHasTheBodyInAPooledBuffer(t *testing.T) {
	want := kmsg.NewPtrFetchResponse()
	want.Version, want.SessionID = 12, 7
	d := broker(t, func(h protocol.RequestHeader, _ kmsg.Request) []byte { return framed(h, want) })
	d.Buffers = protocol.NewPool()
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 2 {
		err = c.DoStream(t.Context(), fetchRequest(), func(b *Body) error {
			if got := b.Take(b.Left()); string(got) != string(want.AppendTo(nil)) || d.Buffers.InUse() != 1 {
				t.Errorf("%x, %d buffers", got, d.Buffers.InUse())
			}
			return nil
		})
		if err != nil || d.Buffers.InUse() != 0 {
			t.Errorf("%v, %d buffers not given back", err, d.Buffers.InUse())
		}
	}
}

// Nobody knows where the next response begins when a reader has failed, or left something.
func TestReaderThatDoesNotTakeAllBreaksTheConnection(t *testing.T) {
	refused := errors.New("refused")
	for _, read := range []func(*Body) error{
		func(b *Body) error { return refused },
		func(b *Body) error { b.Take(b.Left() - 1); return nil },
		func(b *Body) error { b.Take(b.Left() + 1); return nil },
		func(b *Body) error { b.Take(-1); return nil },
	} {
		d := broker(t, echo)
		d.Buffers = protocol.NewPool()
		c, err := d.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.DoStream(t.Context(), fetchRequest(), read); !errors.Is(err, refused) && !errors.Is(err, errBody) || !c.Broken() || d.Buffers.InUse() != 0 {
			t.Errorf("%v, broken: %v, %d buffers", err, c.Broken(), d.Buffers.InUse())
		}
	}
}

// The timeout is for each wait: neither an answer that takes longer in all nor a reader who
// takes longer with a part of it ends the connection. Silence does, and so does the context.
func TestStreamWaitsForEachPart(t *testing.T) {
	f := func(pause, taking, cancel time.Duration, want error) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			d := &Dialer{Timeout: time.Second, Buffers: protocol.NewPool(), DialContext: func(context.Context, string, string) (net.Conn, error) { return here, nil }}
			c, err := d.Dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				var size [4]byte
				_, _ = io.ReadFull(there, size[:])
				frame := make([]byte, binary.BigEndian.Uint32(size[:]))
				_, _ = io.ReadFull(there, frame)
				h, _, _ := protocol.ParseRequestHeader(frame)
				out := framed(h, kmsg.NewPtrFetchResponse())
				binary.BigEndian.PutUint32(out, uint32(len(out)-4+10*readBeyond))
				for range 10 {
					if _, err := there.Write(out); err != nil {
						return
					}
					out = make([]byte, readBeyond)
					time.Sleep(pause)
				}
				_, _ = there.Write(out)
			})
			ctx := t.Context()
			if cancel > 0 {
				var stop context.CancelFunc
				ctx, stop = context.WithTimeout(ctx, cancel)
				defer stop()
			}
			err = c.DoStream(ctx, fetchRequest(), func(b *Body) error {
				for b.Err() == nil && b.Left() > 0 {
					b.Drop()
					b.Take(min(b.Left(), readBeyond))
					time.Sleep(taking)
				}
				return b.Err()
			})
			if !errors.Is(err, want) || c.Broken() != (want != nil) || d.Buffers.InUse() != 0 {
				t.Errorf("%v, want %v; broken: %v, %d buffers", err, want, c.Broken(), d.Buffers.InUse())
			}
		})
	}
	f(900*time.Millisecond, 0, 0, nil)
	f(0, 3*time.Second, 0, nil)
	f(1100*time.Millisecond, 0, 0, os.ErrDeadlineExceeded)
	f(900*time.Millisecond, 0, 2*time.Second, context.DeadlineExceeded)
}

func TestAnyFaultBreaksTheConnection(t *testing.T) {
	stall := make(chan struct{})
	defer close(stall)
	size := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	f := func(name string, timeout time.Duration, want error, reply func(protocol.RequestHeader, kmsg.Request) []byte) {
		t.Helper()
		d := broker(t, reply)
		d.MaxResponse = 1 << 10
		d.Buffers = protocol.NewPool()
		c, err := d.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		err = c.DoStream(ctx, metadata(12), takeAll)
		if err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
		if _, err := c.Do(t.Context(), metadata(12)); !c.Broken() || !errors.Is(err, ErrClosed) {
			t.Errorf("%s: used again: %v", name, err)
		}
		if n := d.Buffers.InUse(); n != 0 {
			t.Errorf("%s: %d buffers leaked", name, n)
		}
	}
	f("closed", time.Second, io.EOF, func(protocol.RequestHeader, kmsg.Request) []byte { return nil })
	f("too large", time.Second, nil, func(protocol.RequestHeader, kmsg.Request) []byte { return size(1<<10 + 1) })
	f("negative", time.Second, nil, func(protocol.RequestHeader, kmsg.Request) []byte { return size(1 << 31) })
	f("wrong id", time.Second, nil, func(h protocol.RequestHeader, r kmsg.Request) []byte { h.CorrelationID++; return echo(h, r) })
	f("half a frame", 50*time.Millisecond, context.DeadlineExceeded, func(h protocol.RequestHeader, r kmsg.Request) []byte { return echo(h, r)[:20] })
	f("silence", 50*time.Millisecond, context.DeadlineExceeded, func(protocol.RequestHeader, kmsg.Request) []byte {
		<-stall
		return nil
	})
}

func TestRequestWithoutADeadlineEndsByTheDialersTimeout(t *testing.T) {
	stall := make(chan struct{})
	defer close(stall)
	d := broker(t, func(protocol.RequestHeader, kmsg.Request) []byte { <-stall; return nil })
	d.Timeout = 50 * time.Millisecond
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do(context.Background(), metadata(12)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestCloseFailsTheRequestUnderWay(t *testing.T) {
	arrived, stall := make(chan struct{}), make(chan struct{})
	defer close(stall)
	d := broker(t, func(protocol.RequestHeader, kmsg.Request) []byte { close(arrived); <-stall; return nil })
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := c.Do(context.Background(), metadata(12)); done <- err }()
	<-arrived
	c.Close()
	if err := <-done; err == nil {
		t.Error("no error")
	}
}

// A broker of an older release has fewer versions: it is asked once a connection, and a
// request is never sent in a version that it would hang up on.
func TestNewestIsWhatBothHave(t *testing.T) {
	var asked atomic.Int32
	d := broker(t, func(h protocol.RequestHeader, req kmsg.Request) []byte {
		if h.Key != 18 || h.Version != 0 {
			return nil
		}
		asked.Add(1)
		resp := kmsg.NewPtrApiVersionsResponse()
		for key, newest := range map[int16]int16{1: 13, 56: 2} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key, newest
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		return framed(h, resp)
	})
	c, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, q := range []struct{ key, ours, want int16 }{{1, 15, 13}, {1, 12, 12}, {56, 3, 2}} {
		if v, err := c.Newest(t.Context(), q.key, q.ours); err != nil || v != q.want {
			t.Errorf("key %d up to %d: %d, %v; want %d", q.key, q.ours, v, err, q.want)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	if _, err := c.Newest(t.Context(), 67, 0); err == nil {
		t.Error("a version of an API that is not there")
	}
}
