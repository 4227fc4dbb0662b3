package listener

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
)

// one admits one connection at a time.
type one struct{ open, released atomic.Int64 }

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
