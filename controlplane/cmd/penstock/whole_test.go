package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"penstock/controlplane/dev"
	"penstock/internal/process"
)

// realPrograms builds the three programs.
func realPrograms(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	c := exec.Command("go", "build", "-o", bin+"/", "./controlplane/cmd/...", "./dataplane/cmd/...")
	c.Dir = filepath.Join("..", "..", "..")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(bin, "penstock")
}

func runFor(t *testing.T, limit time.Duration, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), limit) // also in cleanups
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	out, err := c.CombinedOutput()
	return string(out), err
}

// The whole main job, with all real parts: the demonstration on a new state,
// then on the old one in the background; then clients' world with the control
// plane and PostgreSQL dead; and nothing left at the end.
func TestDemonstrationHoldsTwiceAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute and a half")
	}
	bin := realPrograms(t)
	dir := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() {
		if out, err := runFor(t, 2*time.Minute, bin, "dev", "reset", "--dir", dir); err != nil && !strings.Contains(out, "not removed") {
			t.Errorf("reset: %v\n%s", err, out)
		}
	})
	out, err := runFor(t, 4*time.Minute, bin, "dev", "--once", "--dir", dir)
	if err != nil {
		t.Fatalf("first run: %v\n%s", err, out)
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left after --once: %v", left)
	}
	if _, err := dev.ReadInfo(dir); err == nil {
		t.Error("dev.json is left after --once")
	}

	out, err = runFor(t, 4*time.Minute, bin, "dev", "--detach", "--dir", dir)
	if err != nil {
		t.Fatalf("second run: %v\n%s", err, out)
	}
	in := info(t, dir)
	for _, b := range in.Cluster.Brokers {
		if id, err := process.Lookup(b.PID); err != nil || !id.Alive() {
			t.Errorf("dev.json names pid %d for broker %d: %v", b.PID, b.ID, err)
		}
		if b.LogDirs[0] == "" || b.Addr == "" || !strings.Contains(in.Cluster.Bootstrap, b.Addr) {
			t.Errorf("broker %+v, bootstrap %s", b, in.Cluster.Bootstrap)
		}
	}
	if in.Tenant.ID == "" || in.ServiceAccount.ClientSecret == "" || in.Cluster.SecurityProtocol != "SASL_PLAINTEXT" {
		t.Errorf("dev.json %+v", in)
	}

	// With the control plane and PostgreSQL held dead, brokers stop and start by hand.
	for _, pid := range []int{in.PIDs.Control, in.PIDs.Postgres} {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, verb := range []string{"stop", "start", "kill", "start"} {
		if out, err := runFor(t, time.Minute, bin, "dev", "broker", verb, "1", "--dir", dir); err != nil {
			t.Errorf("broker %s: %v\n%s", verb, err, out)
		}
	}
	for _, pid := range []int{in.PIDs.Control, in.PIDs.Postgres} {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	eventually(t, "all is healthy again", func() bool {
		s, err := dev.Look(t.Context(), dir)
		return err == nil && s.Healthy && len(s.Parts) == 7
	})

	// Killed, it takes all with it.
	if err := syscall.Kill(info(t, dir).PIDs.Dev, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left", func() bool { return len(processesOf(dir)) == 0 })
	if pg := postgresProcesses(t, dir); len(pg) > 0 {
		t.Errorf("PostgreSQL is left: %v", pg)
	}
}

// postgresProcesses lists servers on the state folder's database; as root that
// lies elsewhere.
func postgresProcesses(t *testing.T, dir string) []string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), `"dir": "`)
	data, _, _ := strings.Cut(rest, `"`)
	if data == "" {
		t.Fatal("state.json names no folder of PostgreSQL")
	}
	return processesOf(data)
}
