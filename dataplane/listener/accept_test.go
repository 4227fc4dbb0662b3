package listener

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// one admits one connection at a time.
type one struct{ open, released atomic.Int64 }

func (o *one) Arrived(string) time.Duration { return 0 }

func (o *one) Accept(name string, ip netip.Addr) (func(), error) {
	if name != "TEST" || !ip.IsLoopback() {
		return nil, errors.New("asked for something else")
	}
	if o.open.Add(1) > 1 {
		o.open.Add(-1)
		return nil, errors.New("too many")
	}
	return func() { o.open.Add(-1); o.released.Add(1) }, nil
}

func TestConnectionLimitsRefuseAtOnceAndAreGivenBack(t *testing.T) {
	var limits one
	var closed atomic.Int64
	l := start(t, Config{Limits: &limits, OnClose: func(*Conn) { closed.Add(1) }})
	first := dial(t, l)
	first.call(apiVersions(3))
	dial(t, l).mustClose()
	first.Close()
	waitFor(t, "place given back", func() bool { return limits.released.Load() == 1 && closed.Load() == 1 })
	dial(t, l).call(apiVersions(3))
	if s := l.Stats(); s.Refused != 1 || s.Accepted != 2 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

func TestStopAcceptingLeavesOpenConnections(t *testing.T) {
	l := start(t, Config{})
	c := dial(t, l)
	c.call(apiVersions(3))
	l.StopAccepting()
	c.call(metadata())
	if nc, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.Addr().String()); err == nil {
		nc.Close()
		t.Error("still accepts")
	}
}

func TestListenNamesTheListenerItCannotBind(t *testing.T) {
	l := start(t, Config{})
	if _, err := Listen(Config{Name: "CLIENT", Addr: l.Addr().String(), Handler: answer}); err == nil {
		t.Error("bound twice")
	}
	if _, err := Listen(Config{Name: "CLIENT"}); err == nil {
		t.Error("no handler, no error")
	}
}

// paced holds each connection up, or refuses it for a while.
type paced struct {
	wait  atomic.Int64
	after atomic.Int64
	asked chan struct{}
}

func (p *paced) Arrived(name string) time.Duration {
	p.asked <- struct{}{}
	return time.Duration(p.wait.Load())
}

func (p *paced) Accept(string, netip.Addr) (func(), error) {
	if d := p.after.Load(); d > 0 {
		return nil, later(d)
	}
	return func() {}, nil
}

type later time.Duration

func (l later) Error() string             { return "later" }
func (l later) CloseAfter() time.Duration { return time.Duration(l) }

// A connection over the rate waits in the listener, and those behind it in the system; a stop does not wait for them.
func TestConnectionsOverTheRateWait(t *testing.T) {
	limits := &paced{asked: make(chan struct{}, 16)}
	l := start(t, Config{Limits: limits})
	limits.wait.Store(int64(time.Millisecond))
	dial(t, l).call(apiVersions(3))
	<-limits.asked
	limits.wait.Store(int64(time.Hour))
	held := dial(t, l)
	<-limits.asked
	behind := dial(t, l)
	held.send(apiVersions(3))
	behind.send(apiVersions(3))
	if s := l.Stats(); s.Accepted != 1 || s.Open > 1 {
		t.Errorf("%+v", s)
	}
	if len(limits.asked) > 0 {
		t.Error("another connection is taken while one waits")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	held.mustClose()
}

// A refused one is closed when its refusal says so, and all of them with the listener.
func TestRefusedConnectionsAreClosedLater(t *testing.T) {
	limits := &paced{asked: make(chan struct{}, 16)}
	l := start(t, Config{Limits: limits})
	limits.after.Store(int64(time.Millisecond))
	dial(t, l).mustClose()
	limits.after.Store(int64(time.Hour))
	kept := dial(t, l)
	waitFor(t, "refused", func() bool { return l.Stats().Refused == 2 })
	kept.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := kept.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	kept.SetReadDeadline(time.Time{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	kept.mustClose()
}
