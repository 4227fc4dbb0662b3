package devtest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/controlplane/dev"
)

// steps are what a demonstration must have shown.
var steps = []string{"1. A tenant", "2. Real events", "3. Quotas", "4. A broker is killed", "5. Rewinding", "6. Usage",
	"compare every byte", "no acknowledged record lost", "read again from an offset", "read again from a time", "equals what was sent and read"}

// once runs the demonstration and stops.
func (f *folder) once(t *testing.T) string {
	t.Helper()
	out, err := run(t.Context(), f, 4*time.Minute, "--once")
	if err != nil {
		f.logs(t)
		t.Errorf("--once: %v\n%s", err, out)
		return out
	}
	for _, s := range steps {
		if !strings.Contains(out, s) {
			t.Errorf("--once does not tell %q:\n%s", s, out)
		}
	}
	f.nothingLeft(t, 0, "--once")
	if _, err := dev.ReadInfo(f.dir); !errors.Is(err, dev.ErrNotRunning) {
		t.Errorf("dev.json after --once: %v", err)
	}
	return out
}

// testOnce runs two services side by side, each twice on its folder. One of the
// folders has seen its service ended at random moments of its start before.
func testOnce(t *testing.T) {
	shared.Lock()
	if shared.f != nil {
		shared.Unlock()
		t.Fatal("the shared service runs already")
	}
	shared.f = newFolder("shared")
	shared.Unlock()
	t.Run("ended", func(t *testing.T) { shared.f.endAtRandomMoments(t) })
	t.Run("twice", func(t *testing.T) {
		t.Parallel()
		f := newFolder("other")
		f.once(t)
		if again := f.once(t); !strings.Contains(again, "produced by an earlier run") || !strings.Contains(again, "1,707 events") {
			t.Errorf("the second run does not find the first one's events:\n%s", again)
		}
		pg := f.pg
		if out, err := run(t.Context(), f, time.Minute, "reset"); err != nil {
			t.Errorf("reset: %v\n%s", err, out)
		}
		for _, dir := range []string{f.dir, pg} {
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after reset: %v", dir, err)
			}
		}
	})
	t.Run("after", func(t *testing.T) {
		t.Parallel()
		f := shared.f
		f.once(t)
		out, err := run(t.Context(), f, 4*time.Minute, "--detach")
		if err != nil || !strings.Contains(out, "produced by an earlier run") {
			f.logs(t)
			t.Errorf("--detach after --once: %v\n%s", err, out)
		}
	})
}

// endAtRandomMoments starts the service and ends it on its way up.
func (f *folder) endAtRandomMoments(t *testing.T) {
	r := random(t)
	for i := range *starts {
		sig := []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM}[i%3]
		c := command(t.Context(), f, "--once")
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		if err := c.Start(); err != nil {
			t.Error(err)
			return
		}
		after := time.Duration(r.IntN(6000)) * time.Millisecond
		time.Sleep(after) // the random moment
		_ = c.Process.Signal(sig)
		began := time.Now()
		err := c.Wait()
		var exit *exec.ExitError
		switch {
		case sig == syscall.SIGKILL:
			// Supervisors give their brokers five seconds.
			f.nothingLeft(t, 15*time.Second, "kill -9")
		case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled() && after < 100*time.Millisecond:
			// before it had its handler
		case err != nil:
			t.Errorf("%v after %v: %v\n%s", sig, after, err, out.String())
		default:
			f.nothingLeft(t, 0, sig.String())
		}
		t.Logf("%v after %v: all gone after another %v", sig, after, time.Since(began).Round(time.Millisecond))
	}
}

// testKilled kills the serving service: nothing may be left, and the commands
// must cope with what is.
func testKilled(t *testing.T) {
	f := service(t)
	in := f.info(t)
	kill9(t, in.PIDs.Dev)
	f.nothingLeft(t, 15*time.Second, "kill -9")
	if out := f.must(t, "status"); !strings.Contains(out, "has died") {
		t.Errorf("status: %s", out)
	}
	if out, err := run(t.Context(), f, time.Minute, "broker", "start", "0"); err == nil {
		t.Errorf("a broker of a dead service was started: %s", out)
		f.nothingLeft(t, 15*time.Second, "broker start on a dead service")
	}
	f.must(t, "stop")
	f.must(t, "stop") // twice is no error
	if _, err := dev.ReadInfo(f.dir); !errors.Is(err, dev.ErrNotRunning) {
		t.Errorf("dev.json after stop: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "state.json")); err != nil {
		t.Errorf("stop has removed the state: %v", err)
	}
}
