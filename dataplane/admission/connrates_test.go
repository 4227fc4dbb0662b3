package admission

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

type clockwork struct{ now time.Time }

func (c *clockwork) connections(l ConnectionLimits) *Connections {
	c.now = time.Unix(1_000_000, 0)
	conns := NewConnections(l)
	conns.clock = func() time.Time { return c.now }
	return conns
}

// A rate may be used up for ten windows at once; what comes above waits, until the rate is kept again,
// for a window at most.
func TestConnectionsAboveTheRateWait(t *testing.T) {
	var k clockwork
	c := k.connections(ConnectionLimits{Rate: 5, RatePerListener: map[string]int{"SLOW": 2}, Protected: "INTERNAL"})
	for i := range 50 {
		if d := c.Arrived("FAST"); d != 0 {
			t.Fatalf("connection %d waits %v", i, d)
		}
	}
	if d := c.Arrived("FAST"); d != 200*time.Millisecond {
		t.Errorf("one above the rate waits %v", d)
	}
	for range 100 {
		if d := c.Arrived("INTERNAL"); d != 0 {
			t.Fatalf("the protected listener waits %v", d)
		}
	}
	for range 100 {
		c.Arrived("FAST")
	}
	if d := c.Arrived("FAST"); d != time.Second {
		t.Errorf("far above the rate: %v", d)
	}
	k.now = k.now.Add(time.Minute)
	if d := c.Arrived("FAST"); d != 0 {
		t.Errorf("after a minute's rest: %v", d)
	}
	for range 20 {
		c.Arrived("SLOW")
	}
	if d := c.Arrived("SLOW"); d != 500*time.Millisecond {
		t.Errorf("above the listener's own rate: %v", d)
	}
	c.SetLimits(ConnectionLimits{})
	if d := c.Arrived("SLOW"); d != 0 {
		t.Errorf("without limits: %v", d)
	}
	c.SetLimits(ConnectionLimits{Rate: -1})
	if d := c.Arrived("SLOW"); d != time.Second {
		t.Errorf("at a rate of nothing: %v", d)
	}
}

func TestAddressesAboveTheirRateAreRefused(t *testing.T) {
	var k clockwork
	c := k.connections(ConnectionLimits{MaxPerIP: 1000})
	accept := func(ip string) error {
		release, err := c.Accept("L", netip.MustParseAddr(ip))
		if err == nil {
			release()
		}
		return err
	}
	refused := func(ip string) (after time.Duration) {
		t.Helper()
		var te *ThrottledError
		if err := accept(ip); !errors.As(err, &te) {
			t.Fatalf("%s: %v", ip, err)
		}
		return te.CloseAfter()
	}
	for range 100 {
		if err := accept("10.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	for path, rate := range map[string]string{"ips/<default>": "1", "/config/ips/10.0.0.2": "3", "ips/%3A%3A1": "2"} {
		if err := c.UpdateIP(path, map[string]string{ConnectionCreationRate: rate}); err != nil {
			t.Fatal(err)
		}
	}
	for ip, n := range map[string]int{"10.0.0.1": 10, "10.0.0.2": 30, "::1": 20, "::ffff:10.0.0.9": 10} {
		for range n {
			if err := accept(ip); err != nil {
				t.Fatalf("%s: %v", ip, err)
			}
		}
	}
	if d := refused("10.0.0.2"); d != 333*time.Millisecond {
		t.Errorf("closed after %v", d)
	}
	for range 100 { // who is refused is not counted, or would never get in again
		if d := refused("10.0.0.9"); d != time.Second {
			t.Fatalf("closed after %v", d)
		}
	}
	refused("::1")
	k.now = k.now.Add(11 * time.Second)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.9", "::1"} {
		if err := accept(ip); err != nil {
			t.Errorf("%s after a rest: %v", ip, err)
		}
	}
	for _, path := range []string{"ips/<default>", "ips/10.0.0.2"} {
		if err := c.UpdateIP(path, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if err := errors.Join(accept("10.0.0.2"), accept("10.0.0.7")); err != nil {
			t.Fatalf("without a quota: %v", err)
		}
	}
	for range 19 {
		accept("::1")
	}
	refused("::1") // its own holds on
	for _, path := range []string{"users/x", "ips/", "ips/localhost", "ips/%zz", "ips/1.2.3.4/clients/c"} {
		if err := c.UpdateIP(path, map[string]string{ConnectionCreationRate: "1"}); err == nil {
			t.Errorf("%s is taken", path)
		}
	}
	for _, v := range []string{"x", "NaN", "-1", ""} {
		if err := c.UpdateIP("ips/10.0.0.1", map[string]string{ConnectionCreationRate: v}); err == nil {
			t.Errorf("%q is taken", v)
		}
	}
}

// Strangers have any number of addresses: what is kept of them is bounded, and goes when they rest.
func TestRatesOfAddressesAreBounded(t *testing.T) {
	var k clockwork
	c := k.connections(ConnectionLimits{})
	if err := c.UpdateIP("ips/<default>", map[string]string{ConnectionCreationRate: "1"}); err != nil {
		t.Fatal(err)
	}
	ip := netip.MustParseAddr("fd00::1")
	for range maxAddresses + 1000 {
		if release, err := c.Accept("L", ip); err == nil {
			release()
		}
		ip = ip.Next()
	}
	if n := len(c.rates.byIP); n > maxAddresses+1 {
		t.Errorf("%d addresses are kept", n)
	}
	k.now = k.now.Add(time.Minute)
	if _, err := c.Accept("L", ip); err != nil {
		t.Error(err)
	}
	if n := len(c.rates.byIP); n > 1 {
		t.Errorf("%d addresses are kept after a rest", n)
	}
}
