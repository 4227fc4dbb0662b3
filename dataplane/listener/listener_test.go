package listener

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

func TestRepliesCarryTheRightHeaderForEveryVersion(t *testing.T) {
	l := start(t, Config{})
	c := dial(t, l)
	for v := int16(0); v <= 4; v++ {
		if resp := c.call(apiVersions(v)).(*kmsg.ApiVersionsResponse); len(resp.ApiKeys) != len(protocol.APIs()) {
			t.Errorf("ApiVersions v%d: %d keys", v, len(resp.ApiKeys))
		}
	}
	for v := int16(0); v <= 12; v++ {
		c.call(at(kmsg.NewPtrMetadataRequest(), v))
	}
}

func TestApiVersionsNewerThanOursIsAnsweredInVersion0AndTheConnectionStays(t *testing.T) {
	for _, sasl := range []bool{false, true} {
		l := start(t, Config{SASL: sasl})
		c := dial(t, l)
		req := formatter.AppendRequest(nil, apiVersions(4), 7)
		binary.BigEndian.PutUint16(req[6:], 99)
		c.write(req)
		corr, body := c.receive()
		resp := kmsg.NewPtrApiVersionsResponse()
		if err := resp.ReadFrom(body); err != nil || corr != 7 || resp.ErrorCode != 35 || len(resp.ApiKeys) == 0 {
			t.Fatalf("corr %d, error %d, %d keys, %v", corr, resp.ErrorCode, len(resp.ApiKeys), err)
		}
		if resp := c.call(apiVersions(3)).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 {
			t.Error("the connection did not go on")
		}
	}
}

func TestProducesArePipelinedAndAnsweredInOrder(t *testing.T) {
	var g gate
	l := start(t, Config{Handler: g.handle})
	c := dial(t, l)
	var ids []int32
	for range 5 {
		ids = append(ids, c.send(produce(-1, []byte("records"))))
	}
	g.get(t, 4) // all five have started with none answered
	for i := 4; i >= 0; i-- {
		g.get(t, i).Reply(kmsg.NewPtrProduceResponse())
	}
	for _, want := range ids {
		if got, _ := c.receive(); got != want {
			t.Errorf("reply %d, want %d", got, want)
		}
	}
}

func TestOtherRequestsWaitForAnUnansweredProduceAndTheReverse(t *testing.T) {
	var g gate
	l := start(t, Config{Handler: g.handle})
	c := dial(t, l)
	c.send(produce(-1, nil))
	c.send(metadata())
	c.send(produce(-1, nil))
	g.get(t, 0)
	if n := g.n.Load(); n != 1 {
		t.Fatalf("%d requests started, want the first alone", n)
	}
	g.get(t, 0).Reply(kmsg.NewPtrProduceResponse())
	c.receive()
	if r := g.get(t, 1); r.Key != 3 || g.n.Load() != 2 {
		t.Fatalf("key %d, %d started", r.Key, g.n.Load())
	}
	g.get(t, 1).Reply(kmsg.NewPtrMetadataResponse())
	g.get(t, 2).Reply(kmsg.NewPtrProduceResponse())
	c.receive()
	c.receive()
}

func TestPipelineIsBoundedByCountAndBytes(t *testing.T) {
	f := func(cfg Config, record int, want int64) {
		t.Helper()
		var g gate
		cfg.Handler = g.handle
		l := start(t, cfg)
		c := dial(t, l)
		for range 6 {
			c.send(produce(-1, make([]byte, record)))
		}
		g.get(t, int(want-1))
		c.l(t, l, want) // the next has been read, and waits
		for i := range 6 {
			g.get(t, i).Reply(kmsg.NewPtrProduceResponse())
			c.receive()
		}
	}
	f(Config{MaxPipelined: 3}, 10, 3)
	f(Config{MaxPipelinedBytes: 250}, 100, 1)
	f(Config{MaxPipelinedBytes: 300}, 100, 2)
}

// l waits until one request more than started has been read, and checks that it has not started.
func (c *client) l(t *testing.T, l *Listener, started int64) {
	t.Helper()
	waitFor(t, "next request read", func() bool { return l.Stats().Requests == started+1 })
	l.Conns(func(c *Conn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.queue) != int(started) {
			t.Errorf("%d requests under way, want %d", len(c.queue), started)
		}
	})
}

func TestThrottledReplyGoesAtOnceAndMutesTheConnection(t *testing.T) {
	const throttle = 300 * time.Millisecond
	l := start(t, Config{
		Handler: func(r *Request) {
			if r.Key == 3 {
				r.AddThrottle(throttle)
				r.Reply(kmsg.NewPtrMetadataResponse())
				return
			}
			answer(r)
		},
		OnLocalDone: func(r *Request, d time.Duration) time.Duration { return 20 * time.Millisecond },
	})
	c, other := dial(t, l), dial(t, l)
	began := time.Now()
	resp := c.call(metadata()).(*kmsg.MetadataResponse)
	if took := time.Since(began); took > throttle/2 {
		t.Errorf("the reply took %v, want at once", took)
	}
	if resp.ThrottleMillis != 300 {
		t.Errorf("throttle %d ms, want the larger of both, 300", resp.ThrottleMillis)
	}
	c.send(apiVersions(3)) // a client that does not wait
	other.call(apiVersions(3))
	if took := time.Since(began); took > throttle/2 {
		t.Errorf("another connection was held up for %v", took)
	}
	c.receive()
	if took := time.Since(began); took < throttle {
		t.Errorf("next request served after %v, want %v", took, throttle)
	}
}

func TestLoginRulesAndSessionExpiry(t *testing.T) {
	l := start(t, Config{SASL: true, Handler: func(r *Request) {
		switch r.Key {
		case 36:
			r.Conn.SetPrincipal("User:x")
			r.Conn.SetSessionExpiry(time.Now().Add(time.Duration(len(r.Body.(*kmsg.SASLAuthenticateRequest).SASLAuthBytes)-1) * time.Hour))
		case 3:
			if r.Conn.Principal() != "User:x" {
				t.Errorf("principal %q", r.Conn.Principal())
			}
		}
		answer(r)
	}})
	login := func(c *client, hours int) {
		c.call(apiVersions(3))
		c.call(at(kmsg.NewPtrSASLHandshakeRequest(), 1))
		a := kmsg.NewPtrSASLAuthenticateRequest()
		a.SASLAuthBytes = make([]byte, 1+hours)
		c.call(at(a, 2))
	}
	early := dial(t, l)
	early.send(metadata())
	early.mustClose()

	c := dial(t, l)
	login(c, 1)
	c.call(metadata())
	c.call(metadata())

	over := dial(t, l) // a session that is over at once
	login(over, 0)
	login2 := kmsg.NewPtrSASLHandshakeRequest()
	over.call(at(login2, 1)) // logging in again is always possible
	over.send(metadata())
	over.mustClose()

	l.Conns(func(c *Conn) { c.Close("revoked") })
	c.mustClose()
}

func TestFailedLoginIsAnsweredLateAndThenClosed(t *testing.T) {
	l := start(t, Config{SASL: true, Handler: func(r *Request) {
		r.ReplyThenClose(r.Body.ResponseKind(), 100*time.Millisecond, "bad password")
	}})
	c := dial(t, l)
	began := time.Now()
	c.call(at(kmsg.NewPtrSASLAuthenticateRequest(), 2))
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	c.mustClose()
}

func TestPanicClosesOnlyItsConnection(t *testing.T) {
	b := newBudget(1 << 20)
	l := start(t, Config{Budget: b, Handler: func(r *Request) {
		if r.Key == 0 {
			panic("handler at fault")
		}
		answer(r)
	}})
	bad, good := dial(t, l), dial(t, l)
	good.call(apiVersions(3))
	bad.send(produce(1, []byte("x")))
	bad.mustClose()
	good.call(metadata())
	if s := l.Stats(); s.Panics != 1 {
		t.Errorf("%d panics counted", s.Panics)
	}
	waitFor(t, "budget back", func() bool { return b.inUse() == 0 })
}

func TestCloseWithUnansweredRequestsLeaksNothing(t *testing.T) {
	var g gate
	b := newBudget(1 << 20)
	l := start(t, Config{Handler: g.handle, Budget: b})
	c := dial(t, l)
	for range 3 {
		c.send(produce(-1, []byte("x")))
	}
	d := dial(t, l)
	d.send(metadata())
	g.get(t, 3)
	l.Close()
	cleaned := false
	for i := range 4 {
		if r := g.get(t, i); i == 1 {
			r.ReplyScatter(nil, func() { cleaned = true }, func(int64) { t.Error("told sent") })
		} else {
			r.Reply(r.Body.ResponseKind())
		}
	}
	if !cleaned || b.inUse() != 0 {
		t.Errorf("cleaned %v, budget in use %d", cleaned, b.inUse())
	}
}

func TestNothingIsSentForAcks0AndASecondReplyIsIgnored(t *testing.T) {
	b := newBudget(1 << 20)
	l := start(t, Config{Budget: b, Handler: func(r *Request) {
		if r.Key != 0 {
			answer(r)
			return
		}
		r.ReleaseBody()
		if n := b.inUse(); n != 0 {
			t.Errorf("budget still holds %d after ReleaseBody", n)
		}
		r.ReplyNothing()
		cleaned := false
		r.ReplyScatter(nil, func() { cleaned = true }, nil)
		r.Reply(kmsg.NewPtrProduceResponse())
		if !cleaned {
			t.Error("the reply that came too late was not cleaned up")
		}
	}})
	c := dial(t, l)
	c.send(produce(0, []byte("x")))
	c.call(metadata()) // the next frame is this one's
}

func TestErrorOfAcks0ClosesTheConnection(t *testing.T) {
	l := start(t, Config{Handler: func(r *Request) { r.CloseConn("not leader") }})
	c := dial(t, l)
	c.send(produce(0, []byte("x")))
	c.mustClose()
}

func TestIdleConnectionIsClosedButNotOneThatWaitsForAReply(t *testing.T) {
	var g gate
	l := start(t, Config{Handler: g.handle, IdleTimeout: 50 * time.Millisecond})
	waiting, idle := dial(t, l), dial(t, l)
	waiting.send(produce(-1, nil))
	r := g.get(t, 0)
	idle.mustClose()
	time.Sleep(120 * time.Millisecond) // more than twice the idle time
	r.Reply(kmsg.NewPtrProduceResponse())
	waiting.receive()
	waiting.mustClose()
}
