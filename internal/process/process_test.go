package process

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is its own child: `child MODE` takes a part below.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		playChild(os.Args[2])
		return
	}
	goleak.VerifyTestMain(m)
}

func playChild(mode string) {
	switch mode {
	case "exit1":
		os.Exit(1)
	case "stubborn": // does not end on SIGTERM
		ignore := make(chan os.Signal, 1)
		notify(ignore, syscall.SIGTERM)
		os.Stdout.WriteString("ready\n")
		select {}
	case "parent": // starts a child that must die with it, and says its pid
		c, err := Start(Spec{Path: os.Args[0], Args: []string{"child", "sleep"}, DeathSignal: syscall.SIGKILL})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(strconv.Itoa(c.ID.PID) + "\n")
		time.Sleep(time.Hour)
	default:
		time.Sleep(time.Hour)
	}
}

func start(t *testing.T, mode string, s Spec) (*Child, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	s.Path, s.Args, s.Stdout, s.Stderr = os.Args[0], []string{"child", mode}, w, os.Stderr
	if s.DeathSignal == 0 {
		s.DeathSignal = syscall.SIGKILL
	}
	c, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.ID.Signal(syscall.SIGKILL)
		<-c.Done()
	})
	return c, bufio.NewReader(r)
}

func ctxFor(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestIDIsNotFooledByAnotherProcessWithThePid(t *testing.T) {
	me := Self()
	if !me.Alive() {
		t.Fatal("this process is not alive")
	}
	other := ID{PID: me.PID, Start: me.Start + 1}
	if other.Alive() {
		t.Error("a process of another start time counts as alive")
	}
	if err := other.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Fatalf("signal: %v, want ErrGone", err)
	}
	if err := other.Wait(t.Context()); err != nil {
		t.Errorf("wait: %v, want nil at once", err)
	}
}

func TestWaitEndsWithTheProcessOrTheContext(t *testing.T) {
	c, _ := start(t, "sleep", Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.ID.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait under an ended context: %v", err)
	}
	got := make(chan error, 1)
	go func() { got <- c.ID.Wait(ctxFor(t)) }()
	if err := c.ID.Kill(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	if c.ID.Alive() {
		t.Error("alive after its end")
	}
}

func TestTerminateKillsWhatDoesNotEndInTime(t *testing.T) {
	c, out := start(t, "stubborn", Spec{})
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := c.ID.Terminate(ctxFor(t), 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := c.Describe(); !strings.Contains(got, "killed") {
		t.Errorf("ended by %q, want killed", got)
	}
}

func TestChildDiesWithAKilledParent(t *testing.T) {
	parent, out := start(t, "parent", Spec{})
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	child, err := Lookup(pid)
	if err != nil {
		t.Fatal(err)
	}
	if got := Descendants(os.Getpid()); !contains(got, child) || !contains(got, parent.ID) {
		t.Errorf("descendants %v lack %v or %v", got, parent.ID, child)
	}
	if err := parent.ID.Kill(ctxFor(t)); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(ctxFor(t)); err != nil {
		t.Fatalf("the child outlives its parent: %v", err)
	}
}

func contains(ids []ID, id ID) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

func TestPidFileRoundTripAndRefusals(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pid")
	want := Self()
	if err := WriteFile(path, want); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadFile(path); err != nil || got != want {
		t.Fatalf("got %v, %v, want %v", got, err, want)
	}
	if fi, _ := os.Stat(path); fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", fi.Mode())
	}
	if _, err := ReadFile(path + ".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	for _, bad := range []string{"", "12", "x 1", "0 1", "-3 1", "1 x", "1 -1"} {
		if id, err := Parse(bad); err == nil {
			t.Errorf("Parse(%q) = %v", bad, id)
		}
	}
}

func TestLockIsSeenWithoutBeingTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if held, err := Locked(path); err != nil || held {
		t.Fatalf("lock without a file: %v, %v", held, err)
	}
	f, ok, err := TryLock(path)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if held, err := Locked(path); err != nil || !held {
		t.Fatalf("held lock is not seen: %v, %v", held, err)
	}
	if _, ok, err := TryLock(path); ok || err != nil {
		t.Fatalf("second lock: %v, %v", ok, err)
	}
	f.Close()
	if held, err := Locked(path); err != nil || held {
		t.Fatalf("after close: %v, %v", held, err)
	}
}
