package admission

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryWaitersAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		ctx := context.Background()
		if err := m.Acquire(ctx, 80); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int64
		for _, n := range []int64{60, 10, 30} { // the small ones must not pass the large one
			go func() {
				if m.Acquire(ctx, n) == nil {
					mu.Lock()
					order = append(order, n)
					mu.Unlock()
				}
			}()
			synctest.Wait()
		}
		if m.Waiting() != 3 || m.Used() != 80 {
			t.Fatalf("%d waiting, %d used", m.Waiting(), m.Used())
		}
		m.Release(80)
		synctest.Wait()
		if len(order) != 3 || m.Used() != 100 {
			t.Fatalf("%v, %d used", order, m.Used())
		}
		m.Release(100)
	})
}

func TestMemoryWaiterGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		m.Acquire(context.Background(), 90)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		got := make(chan error)
		go func() { got <- m.Acquire(ctx, 50) }()
		synctest.Wait()
		small := make(chan error)
		go func() { small <- m.Acquire(context.Background(), 5) }()
		if err := <-got; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := <-small; err != nil { // who waited behind it is served now
			t.Fatal(err)
		}
		if m.Used() != 95 || m.Waiting() != 0 {
			t.Fatalf("%d used, %d waiting", m.Used(), m.Waiting())
		}
	})
}

func TestLargerThanTheBudgetGoesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(100)
		m.Acquire(context.Background(), 1)
		done := make(chan struct{})
		go func() { m.Acquire(context.Background(), 500); close(done) }()
		synctest.Wait()
		if m.Used() != 1 {
			t.Fatal("admitted next to another")
		}
		m.Release(1)
		<-done
		if m.Used() != 500 {
			t.Fatal(m.Used())
		}
	})
}

func TestMemoryNeverExceedsItsBound(t *testing.T) {
	m := NewMemory(1000)
	var wg sync.WaitGroup
	for g := range int64(8) {
		wg.Go(func() {
			for i := range int64(200) {
				n := (g*37+i*11)%400 + 1
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%3)*time.Millisecond+time.Microsecond)
				if m.Acquire(ctx, n) == nil {
					if m.Used() > 1000 {
						t.Error("above the bound")
					}
					m.Release(n)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if m.Used() != 0 || m.Waiting() != 0 {
		t.Fatalf("%d used, %d waiting at the end", m.Used(), m.Waiting())
	}
}

func TestUnboundedMemory(t *testing.T) {
	m := NewMemory(0)
	for range 2 {
		if err := m.Acquire(context.Background(), 1<<40); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConnectionLimits(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	c := NewConnections(ConnectionLimits{Max: 5, MaxPerIP: 2, Overrides: map[netip.Addr]int{b: 4, netip.MustParseAddr("10.0.0.9"): 0}, PerListener: map[string]int{"TINY": 1}, Protected: "INTERNAL"})
	take := func(listener string, ip netip.Addr, want bool) func() {
		t.Helper()
		release, err := c.Accept(listener, ip)
		if (err == nil) != want || (err != nil && !errors.Is(err, ErrTooManyConnections)) {
			t.Fatalf("%s %s: %v", listener, ip, err)
		}
		return release
	}
	r1 := take("CLIENT", a, true)
	take("CLIENT", netip.MustParseAddr("::ffff:10.0.0.1"), true) // the same address
	take("CLIENT", a, false)
	r1()
	r1() // twice is once
	take("TINY", a, true)
	take("TINY", b, false)
	take("CLIENT", netip.MustParseAddr("10.0.0.9"), false)
	for range 3 {
		take("CLIENT", b, true)
	}
	take("CLIENT", netip.MustParseAddr("10.0.0.3"), false) // max.connections
	take("INTERNAL", netip.MustParseAddr("10.0.0.3"), true)
	if c.Total() != 6 {
		t.Fatal(c.Total())
	}
	c.SetLimits(ConnectionLimits{})
	take("CLIENT", a, true)
	if len(c.byIP) != 3 {
		t.Fatalf("%v", c.byIP)
	}
}
