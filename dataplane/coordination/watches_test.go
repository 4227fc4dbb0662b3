package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"penstock/dataplane/coordination/zktest"
)

// awaitValue reads a znode at each wake of its watch until it has that content.
func awaitValue(t *testing.T, c *Client, woken <-chan struct{}, path, want string) {
	t.Helper()
	for {
		recv(t, woken, "watch of "+path)
		data, _, err := c.Get(testContext(t), path)
		must(t, err)
		if string(data) == want {
			return
		}
	}
}

// watchWakes is a watch that is armed now.
func watchWakes(t *testing.T, c *Client, path string) <-chan struct{} {
	t.Helper()
	woken := make(chan struct{}, 100)
	t.Cleanup(c.WatchData(path, func() { woken <- struct{}{} }))
	_, _, err := c.Get(testContext(t), path)
	must(t, err)
	return woken
}

// TestNoWatchIsLostWhenTheConnectionFlaps: a znode changes while the connection is
// down; on the next one the client's reads are answered, but it breaks before the
// server has heard of the watches. By then the library has seen replies later
// than the change, and asks on the third connection only for what came after them.
func TestNoWatchIsLostWhenTheConnectionFlaps(t *testing.T) {
	t.Parallel()
	ctx, path := testContext(t), zktest.Path()
	other := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	must(t, other.Create(ctx, "/a", []byte("0")))
	must(t, other.Create(ctx, "/b", nil))
	c, p := proxied(t, path)
	woken := watchWakes(t, c, "/a")
	for i := range 3 {
		want := fmt.Sprint("changed ", i)
		p.Cut()
		_, err := other.Set(ctx, "/a", []byte(want), -1)
		must(t, err)
		held := p.Hold(setWatchesOp, 0)
		p.Heal()
		recv(t, held, "the watches sent again")
		_, _, err = c.Get(ctx, "/b")
		must(t, err)
		p.Drop()
		awaitValue(t, c, woken, "/a", want)
		// And it is armed again.
		_, err = other.Set(ctx, "/a", []byte("live "+want), -1)
		must(t, err)
		awaitValue(t, c, woken, "/a", "live "+want)
	}
}

// TestMoreWatchesThanAPacketHolds: two megabytes of watches, which no single request
// may have, are armed again after a connection is lost, also one that is lost while
// they are named. Only what has changed is told.
func TestMoreWatchesThanAPacketHolds(t *testing.T) {
	t.Parallel()
	const count = 8000 // of 250 bytes
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	path := zktest.Path()
	other := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	c, p := proxied(t, path)
	var names []string
	wakes := make([]atomic.Int32, count)
	woken := make(chan struct{}, 1)
	for i := range count {
		names = append(names, fmt.Sprintf("/%s-%04d", strings.Repeat("x", 240), i))
		t.Cleanup(c.WatchData(names[i], func() {
			wakes[i].Add(1)
			select {
			case woken <- struct{}{}:
			default:
			}
		}))
	}
	arm := func() {
		t.Helper()
		must(t, parallel(ctx, count, func(ctx context.Context, i int) error {
			_, _, err := c.Get(ctx, names[i])
			return err
		}))
	}
	change := func(step int) {
		t.Helper()
		must(t, parallel(ctx, count/step, func(ctx context.Context, i int) error {
			_, err := other.Set(ctx, names[i*step], nil, -1)
			return err
		}))
	}
	// told waits until each step-th watch has woken, and says how many others have.
	told := func(step int) (others int) {
		t.Helper()
		for {
			missing := 0
			others = 0
			for i := range wakes {
				switch n := wakes[i].Load(); {
				case i%step == 0 && n == 0:
					missing++
				case i%step != 0 && n > 0:
					others++
				}
			}
			if missing == 0 {
				break
			}
			select {
			case <-woken:
			case <-time.After(20 * time.Second):
				t.Fatalf("%d of %d changes were never told", missing, count/step)
			}
		}
		for i := range wakes {
			wakes[i].Store(0)
		}
		return others
	}
	must(t, parallel(ctx, count, func(ctx context.Context, i int) error { return other.Create(ctx, names[i], nil) }))
	arm()
	p.Cut()
	change(100)
	p.Heal()
	if n := told(100); n > 0 {
		t.Errorf("%d watches of znodes that had not changed woke", n)
	}
	arm()

	p.Cut()
	change(50)
	held := p.Hold(setWatchesOp, 5)
	p.Heal()
	recv(t, held, "some of the watches sent again")
	_, err := c.Exists(ctx, "/")
	must(t, err)
	p.Drop()
	told(50)
}

// TestRequestsAreRepeatedWhenTheyCannotBeWritten: the error of a write is the
// connection's end, not an answer.
func TestRequestsAreRepeatedWhenTheyCannotBeWritten(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	z := new(zxids)
	dial := z.dialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
		c, err := net.DialTimeout(network, address, timeout)
		return &brokenConn{Conn: c, broken: &broken}, err
	})
	conn, events, err := zk.Connect([]string{zktest.Shared(t).Addr()}, 30*time.Second, zk.WithDialer(dial), zk.WithLogger(zkLogger{slog.New(slog.DiscardHandler)}))
	must(t, err)
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	go func() {
		for range events {
		}
	}()
	broken.Store(true)
	if _, _, err := conn.Get("/"); !errors.Is(err, zk.ErrConnectionClosed) {
		t.Errorf("got %v", err)
	}
	conn.Close()
}

// brokenConn fails the next write.
type brokenConn struct {
	net.Conn
	broken *atomic.Bool
}

func (c *brokenConn) Write(b []byte) (int, error) {
	if c.broken.Swap(false) {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

// TestFollowersEndUpWithTheTruth: znodes come, change and go, with children, while the
// follower's connection is cut, dropped, kept from naming its watches, and its
// session ended. Who reads again at each wake knows in the end what is there.
func TestFollowersEndUpWithTheTruth(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	path := zktest.Path()
	other := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	c, p := proxied(t, path)

	const nodes = 6
	var mu sync.Mutex
	data, kids := map[int]string{}, map[int]int{} // as last read; missing when the znode is
	moved := make(chan struct{}, 1)
	read := func(i int) {
		at := fmt.Sprint("/n", i)
		for ctx.Err() == nil {
			d, _, err := c.Get(ctx, at)
			var names []string
			if err == nil {
				names, err = c.Children(ctx, at)
			}
			if err != nil && !errors.Is(err, ErrNoNode) {
				if errors.Is(err, ErrClosed) {
					return
				}
				continue // the session has ended: another follows
			}
			mu.Lock()
			delete(data, i)
			delete(kids, i)
			if err == nil {
				data[i], kids[i] = string(d), len(names)
			}
			mu.Unlock()
			select {
			case moved <- struct{}{}:
			default:
			}
			return
		}
	}
	for i := range nodes {
		at := fmt.Sprint("/n", i)
		t.Cleanup(c.WatchData(at, func() { read(i) }))
		t.Cleanup(c.WatchChildren(at, func() { read(i) }))
		read(i)
	}
	missing := func(err error) bool { return errors.Is(err, ErrNoNode) || errors.Is(err, ErrNodeExists) }
	session := true // one that the client certainly has, and is connected
	for step := range 400 {
		at := fmt.Sprint("/n", rng.IntN(nodes))
		var err error
		switch rng.IntN(12) {
		case 0, 1, 2:
			err = other.Create(ctx, at, fmt.Append(nil, step))
		case 3, 4, 5:
			_, err = other.Set(ctx, at, fmt.Append(nil, step), -1)
		case 6:
			err = other.Create(ctx, at+"/kid", nil)
		case 7:
			err = other.Delete(ctx, at+"/kid", -1)
		case 8:
			if err = other.Delete(ctx, at+"/kid", -1); err == nil {
				err = other.Delete(ctx, at, -1)
			}
		case 9:
			p.Cut()
			session = false
		case 10: // and be connected again, though perhaps only with what is to be sent first
			p.Heal()
			_, up := c.Exists(ctx, "/")
			if session = up == nil; !session && !errors.Is(up, ErrExpired) {
				t.Fatal(up)
			}
		case 11:
			switch rng.IntN(4) {
			case 0:
				p.Drop()
				session = false // until it is back
			case 1:
				if session {
					p.Expire(t)
					session = false
				}
			default:
				p.Hold(setWatchesOp, 0)
			}
		}
		if err != nil && !missing(err) {
			t.Fatal(err)
		}
	}
	p.Drop()
	for i := range nodes {
		at := fmt.Sprint("/n", i)
		want, _, err := other.Get(ctx, at)
		gone := errors.Is(err, ErrNoNode)
		var names []string
		if !gone {
			must(t, err)
			names, err = other.Children(ctx, at)
			must(t, err)
		}
		for {
			mu.Lock()
			d, ok := data[i]
			n := kids[i]
			mu.Unlock()
			if ok == !gone && d == string(want) && n == len(names) {
				break
			}
			select {
			case <-moved:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: known with %q and %d children (%v), in truth %q and %d (%v)", at, d, n, ok, want, len(names), !gone)
			}
		}
	}
}
