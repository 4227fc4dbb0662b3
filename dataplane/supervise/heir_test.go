package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"penstock/dataplane/coordination"
	"penstock/dataplane/coordination/zksession"
	"penstock/dataplane/coordination/zktest"
	"penstock/internal/process"
)

// register does what a broker does of its session: it has one that times out in a
// minute, and is registered under it and each later one.
func register(ensemble string) *coordination.Client {
	box, err := zksession.Inherited()
	exitOn(err)
	if box == nil {
		exitOn(errors.New("no box from the supervisor"))
	}
	c, err := coordination.Connect(context.Background(), coordination.Config{Connect: ensemble, SessionTimeout: time.Minute, Box: box})
	exitOn(err)
	me := func(ctx context.Context) error {
		_, err := c.RegisterBroker(ctx, coordination.Broker{ID: 1, Endpoints: []coordination.Endpoint{{Listener: "P", SecurityProtocol: "PLAINTEXT", Host: "h", Port: 1}}})
		return err
	}
	c.OnSession(me)
	exitOn(me(context.Background()))
	return c
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}

// registered is a supervised broker that has registered, and a view of that.
func registered(t *testing.T, ensemble string) (dir string, b process.ID, s *process.Child, epoch func() int64) {
	t.Helper()
	path := zktest.Path()
	dir = folder(t, "zookeeper="+ensemble+path)
	s = supervisor(t, dir, "--no-restart")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	zk, err := coordination.Connect(ctx, coordination.Config{Connect: zktest.Shared(t).Addr() + path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(zk.Close)
	epoch = func() int64 { // of the registration, 0 without one
		b, err := zk.Broker(context.Background(), 1)
		if err != nil && !errors.Is(err, coordination.ErrNoNode) {
			t.Fatal(err)
		}
		return b.Epoch
	}
	return dir, broker(t, dir, process.ID{}), s, epoch
}

func missed(t *testing.T, epoch func() int64) {
	t.Helper()
	await(t, "end of the registration", func() (struct{}, bool) { return struct{}{}, epoch() == 0 })
}

func TestKilledBrokerIsMissedAtOnce(t *testing.T) {
	_, b, _, epoch := registered(t, zktest.Shared(t).Addr())
	killed := time.Now()
	_ = b.Signal(syscall.SIGKILL)
	missed(t, epoch)
	t.Logf("missed after %v", time.Since(killed))
}

func TestKilledBrokerIsMissedUnderALaterSessionToo(t *testing.T) {
	p := zktest.NewProxy(t, zktest.Shared(t))
	_, b, _, epoch := registered(t, p.Addr())
	first := epoch()
	p.Drop() // the same session on another connection
	p.Expire(t)
	p.Drop()
	await(t, "registration under another session", func() (struct{}, bool) {
		e := epoch()
		return struct{}{}, e != 0 && e != first
	})
	_ = b.Signal(syscall.SIGKILL)
	missed(t, epoch)
}

func TestBrokerThatOnlyStandsStillIsNotMissed(t *testing.T) {
	dir, b, _, epoch := registered(t, zktest.Shared(t).Addr())
	first := epoch()
	_ = b.Signal(syscall.SIGSTOP)
	await(t, "stopped process", func() (struct{}, bool) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.PID))
		return struct{}{}, err == nil && len(stat) > 0 && containsState(stat, 'T')
	})
	// What does not happen has no event: the kill below takes some milliseconds.
	time.Sleep(300 * time.Millisecond)
	if epoch() != first {
		t.Error("a stopped broker has lost its registration")
	}
	_ = b.Signal(syscall.SIGCONT)
	if id, err := process.ReadFile(filepath.Join(dir, BrokerFile)); err != nil || id != b {
		t.Errorf("broker.pid: %v, %v, want %v", id, err, b)
	}
	_ = b.Signal(syscall.SIGKILL)
	missed(t, epoch)
}

// containsState looks at the field after the command's name in /proc/PID/stat.
func containsState(stat []byte, state byte) bool {
	for i := len(stat) - 1; i > 0; i-- {
		if stat[i] == ')' {
			return len(stat) > i+2 && stat[i+2] == state
		}
	}
	return false
}

func TestWithoutItsSupervisorADeadBrokersSessionTimesOut(t *testing.T) {
	_, b, s, epoch := registered(t, zktest.Shared(t).Addr())
	first := epoch()
	_ = s.ID.Signal(syscall.SIGKILL)
	ended(t, b)
	if epoch() != first {
		t.Error("nobody is left to end the session, and it is over")
	}
}

// The supervisor's own end does not wait for a ZooKeeper that is gone, and a clean
// stop leaves it nothing to say.
func TestSupervisorEndsWithoutZooKeeper(t *testing.T) {
	p := zktest.NewProxy(t, zktest.Shared(t))
	_, b, s, _ := registered(t, p.Addr())
	p.Cut()
	_ = b.Signal(syscall.SIGKILL)
	ended(t, b)
	_ = s.ID.Signal(syscall.SIGTERM)
	if err := s.Err(); err != nil {
		t.Errorf("supervisor: %v", err)
	}
}

func TestInheritedTakesNothingButABox(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, v := range []string{"", "x", "-1", "99999", fmt.Sprint(f.Fd())} {
		t.Setenv("PENSTOCK_SESSION_FD", v)
		if b, err := zksession.Inherited(); err == nil || b != nil {
			t.Errorf("%q: %v, %v", v, b, err)
		}
		if _, ok := os.LookupEnv("PENSTOCK_SESSION_FD"); ok {
			t.Errorf("%q: still in the environment", v)
		}
	}
}
