package coordination

import (
	"context"
	"errors"
	"testing"
	"time"

	"penstock/dataplane/coordination/zktest"
)

func TestParseConnect(t *testing.T) {
	for _, tc := range []struct {
		in      string
		servers int
		chroot  string
		ok      bool
	}{
		{"a:1", 1, "", true}, {"a:1,b:2/x/y", 2, "/x/y", true}, {"a:1/", 1, "", true}, {"a/x/", 1, "/x", true},
		{"", 0, "", false}, {"/x", 0, "", false}, {"a:1/x//y", 0, "", false},
	} {
		servers, chroot, err := ParseConnect(tc.in)
		if (err == nil) != tc.ok || len(servers) != tc.servers || chroot != tc.chroot {
			t.Errorf("%q: %v %q %v", tc.in, servers, chroot, err)
		}
	}
}

func TestClusterIDIsMadeOnceAndKept(t *testing.T) {
	ctx, at := testContext(t), zktest.Chroot(t)
	a, b := connect(t, Config{Connect: at}), connect(t, Config{Connect: at})
	id, err := a.ClusterID(ctx)
	must(t, err)
	again, err := b.ClusterID(ctx)
	must(t, err)
	if id != again || len(id) != 22 {
		t.Fatalf("%q, then %q", id, again)
	}
}

func TestACLsKeepOthersFromWriting(t *testing.T) {
	ctx, at := testContext(t), zktest.Chroot(t)
	owner := connect(t, Config{Connect: at, Digest: "tenant:secret", SetACL: true})
	must(t, owner.EnsureLayout(ctx))
	must(t, owner.ChangeConfig(ctx, "users/u", to(map[string]string{"k": "v"})))
	must(t, owner.ChangeConfig(ctx, "topics/t", to(map[string]string{"k": "v"})))

	other := connect(t, Config{Connect: at, Digest: "other:secret", SetACL: true})
	if err := other.ChangeConfig(ctx, "topics/t", to(nil)); !errors.Is(err, ErrNoAuth) {
		t.Errorf("another user's write: %v, want no auth", err)
	}
	if _, err := other.Config(ctx, "topics/t"); err != nil {
		t.Errorf("reading an insensitive znode: %v", err)
	}
	if _, err := other.Config(ctx, "users/u"); !errors.Is(err, ErrNoAuth) {
		t.Errorf("reading a sensitive znode: %v, want no auth", err)
	}
	again := connect(t, Config{Connect: at, Digest: "tenant:secret", SetACL: true})
	must(t, again.ChangeConfig(ctx, "topics/t", to(nil)))
}

func TestACLsSurviveReconnection(t *testing.T) {
	t.Parallel()

	ctx, path := testContext(t), zktest.Path()
	p := zktest.NewProxy(t, zktest.Shared(t))
	c := connect(t, Config{Connect: p.Addr() + path, Digest: "u:p", SetACL: true, SessionTimeout: 30 * time.Second})
	must(t, c.EnsurePath(ctx, "/a/b"))
	p.Drop()
	_, err := c.Set(ctx, "/a/b", []byte("2"), -1)
	must(t, err)
	p.Expire(t)
	p.Drop()
	// A call under way is told that the session ended; the next one has another.
	_, err = c.Set(ctx, "/a/b", []byte("3"), -1)
	for errors.Is(err, ErrExpired) {
		_, err = c.Set(ctx, "/a/b", []byte("3"), -1)
	}
	must(t, err)
}

func TestMultiNamesTheOperationThatFailed(t *testing.T) {
	ctx := testContext(t)
	c := connect(t, Config{Connect: zktest.Chroot(t)})
	must(t, c.Create(ctx, "/a", nil))
	_, err := c.Multi(ctx, CheckOp("/a", 0), CreateOp("/b", nil), SetOp("/a", nil, 7), CreateOp("/c", nil))
	var me *MultiError
	if !errors.As(err, &me) || me.Index != 2 || !errors.Is(err, ErrBadVersion) {
		t.Fatalf("got %#v", err)
	}
	if st, err := c.Exists(ctx, "/b"); err != nil || st != nil {
		t.Fatalf("half of a failed multi was done: %v %v", st, err)
	}
}

func TestCallsEndWithTheirContext(t *testing.T) {
	c, p := proxied(t, zktest.Path())
	p.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Topics(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	p.Heal()
	c.Close()
	if _, err := c.Topics(context.Background()); !errors.Is(err, ErrClosed) {
		t.Fatalf("after Close: %v", err)
	}
}

// follow reads a path's children at each wake of its watch.
func follow(t *testing.T, c *Client, path string) <-chan int {
	t.Helper()
	ctx, out := testContext(t), make(chan int, 100)
	read := func() {
		if kids, err := c.Children(ctx, path); err == nil {
			out <- len(kids)
		} else if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
			t.Errorf("children: %v", err)
		}
	}
	t.Cleanup(c.WatchChildren(path, read))
	read()
	return out
}

// awaitCount takes values until one is n; each wake reads the whole state, so
// lower ones may come first.
func awaitCount(t *testing.T, ch <-chan int, n int) {
	t.Helper()
	for recv(t, ch, "watch") != n {
	}
}

func TestWatchesSurviveReconnectionAndExpiry(t *testing.T) {
	t.Parallel()

	ctx, path := testContext(t), zktest.Path()
	other := connect(t, Config{Connect: zktest.Shared(t).Addr() + path})
	must(t, other.EnsurePath(ctx, "/w"))
	c, p := proxied(t, path)
	seen := follow(t, c, "/w")
	awaitCount(t, seen, 0)
	must(t, other.Create(ctx, "/w/1", nil))
	awaitCount(t, seen, 1)

	// What changes while the connection is down is told after it.
	p.Cut()
	must(t, other.Create(ctx, "/w/2", nil))
	p.Heal()
	awaitCount(t, seen, 2)

	// A reconnection without a change leaves the watch armed.
	id := c.SessionID()
	p.Drop()
	_, err := c.Children(ctx, "/")
	must(t, err)
	must(t, other.Create(ctx, "/w/3", nil))
	awaitCount(t, seen, 3)
	if c.SessionID() != id {
		t.Fatal("the session was not kept")
	}

	// Likewise over the end of the session.
	p.Cut()
	p.Expire(t)
	must(t, other.Create(ctx, "/w/4", nil))
	p.Heal()
	awaitCount(t, seen, 4)
	must(t, other.Create(ctx, "/w/5", nil))
	awaitCount(t, seen, 5)
	if c.SessionID() == id {
		t.Fatal("the session was not replaced")
	}
}

func TestWatchesSurviveServerRestart(t *testing.T) {
	t.Parallel()

	s, err := zktest.Start()
	must(t, err)
	defer s.Stop()
	ctx := testContext(t)
	c := connect(t, Config{Connect: s.Addr() + "/x", SessionTimeout: 60 * time.Second})
	must(t, c.EnsurePath(ctx, "/w"))
	seen := follow(t, c, "/w")
	awaitCount(t, seen, 0)
	id := c.SessionID()
	s.Kill()
	must(t, s.Up())
	must(t, c.Create(ctx, "/w/1", nil))
	awaitCount(t, seen, 1)
	if c.SessionID() != id {
		t.Fatal("the session was not kept over the server's restart")
	}
	c.Close()
}

func TestReadingAWatchedZnodeAgainArmsNothingTwice(t *testing.T) {
	ctx, path := testContext(t), zktest.Path()
	c, _ := proxied(t, path)
	must(t, c.EnsurePath(ctx, "/w"))
	wakes := make(chan struct{}, 100)
	stop := c.WatchData("/w", func() { wakes <- struct{}{} })
	defer stop()
	for range 5 {
		_, _, err := c.Get(ctx, "/w")
		must(t, err)
		if c.watches.arm(watchKey{"/w", watchData}) {
			t.Fatal("the next read would set another watch")
		}
	}
	_, err := c.Set(ctx, "/w", []byte("x"), -1)
	must(t, err)
	recv(t, wakes, "the change")
	if !c.watches.arm(watchKey{"/w", watchData}) {
		t.Fatal("the watch is used up and the next read would not set it again")
	}
}

func TestWatchOfAMissingZnodeSeesItsCreation(t *testing.T) {
	ctx, path := testContext(t), zktest.Path()
	c, _ := proxied(t, path)
	wakes := make(chan struct{}, 100)
	defer c.WatchData("/later", func() { wakes <- struct{}{} })()
	if _, _, err := c.Get(ctx, "/later"); !errors.Is(err, ErrNoNode) {
		t.Fatal(err)
	}
	must(t, c.Create(ctx, "/later", nil))
	recv(t, wakes, "creation")
}

func TestHooksRunInOrderForANewSession(t *testing.T) {
	t.Parallel()

	c, p := proxied(t, zktest.Path())
	got := make(chan string, 10)
	c.OnExpired(func() { got <- "expired" })
	failed := false
	c.OnSession(func(context.Context) error {
		got <- "first"
		if !failed {
			failed = true
			return errors.New("once")
		}
		return nil
	})
	c.OnSession(func(ctx context.Context) error {
		got <- "second"
		_, err := c.Children(ctx, "/") // the new session is there to be used
		return err
	})
	p.Expire(t)
	for _, want := range []string{"expired", "first", "first", "second"} {
		if g := recv(t, got, want); g != want {
			t.Fatalf("got %s, want %s", g, want)
		}
	}
}
