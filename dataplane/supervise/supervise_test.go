package supervise

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/dataplane/coordination/zktest"
	"penstock/internal/process"
)

// The test binary takes the place of penstock-broker: `supervise …` is the real
// subcommand, `--config FILE` a broker that the file tells how to behave.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervise":
			os.Exit(Main(os.Args[2:], os.Stderr))
		case "--config":
			playBroker(os.Args[2])
			return
		case "sleep":
			time.Sleep(time.Hour)
		}
	}
	zktest.Main(m, func() error { return goleak.Find() })
}

func playBroker(config string) {
	mode, _ := os.ReadFile(config)
	if strings.Contains(string(mode), "crash") {
		os.Exit(7)
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	if ensemble, ok := strings.CutPrefix(string(mode), "zookeeper="); ok {
		defer register(ensemble).Close()
	}
	_ = os.WriteFile(filepath.Join(filepath.Dir(config), "args"), []byte(strings.Join(os.Args[1:], " ")), 0o600)
	<-term
	// A trace of the clean stop, which a kill would not leave.
	_ = os.WriteFile(filepath.Join(filepath.Dir(config), "clean"), nil, 0o600)
}

// folder makes a broker's folder.
func folder(t *testing.T, mode string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "server.properties"), []byte(mode), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// supervisor starts a real supervisor process.
func supervisor(t *testing.T, dir string, args ...string) *process.Child {
	t.Helper()
	c, err := process.Start(process.Spec{
		Path: os.Args[0], Args: append([]string{"supervise", "--config", filepath.Join(dir, "server.properties")}, args...),
		Stderr: os.Stderr, DeathSignal: syscall.SIGKILL,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.ID.Signal(syscall.SIGKILL)
		<-c.Done()
	})
	return c
}

// await polls for what another process does; there is no event to wait on.
func await[T any](t *testing.T, what string, f func() (T, bool)) T {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		if v, ok := f(); ok {
			return v
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// broker waits for a running broker other than not.
func broker(t *testing.T, dir string, not process.ID) process.ID {
	t.Helper()
	return await(t, "running broker", func() (process.ID, bool) {
		id, err := process.ReadFile(filepath.Join(dir, BrokerFile))
		if err != nil || !id.Alive() || id == not {
			return id, false
		}
		_, err = os.Stat(filepath.Join(dir, "args")) // it handles SIGTERM by now
		return id, err == nil
	})
}

func ended(t *testing.T, id process.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		t.Fatalf("process %v still runs: %v", id, err)
	}
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

func TestTermStopsTheBrokerCleanlyAndLeavesNoPidFiles(t *testing.T) {
	dir := folder(t, "")
	s := supervisor(t, dir, "--override", "a=b", "--override", "c=d e")
	b := broker(t, dir, process.ID{})
	if got, _ := os.ReadFile(filepath.Join(dir, "args")); !strings.HasSuffix(string(got), "server.properties --override a=b --override c=d e") {
		t.Errorf("broker's command line: %s", got)
	}
	if id, err := process.ReadFile(filepath.Join(dir, SupervisorFile)); err != nil || id != s.ID {
		t.Errorf("supervisor.pid: %v, %v, want %v", id, err, s.ID)
	}
	_ = s.ID.Signal(syscall.SIGTERM)
	if err := s.Err(); err != nil {
		t.Fatalf("supervisor: %v", err)
	}
	ended(t, b)
	if !exists(dir, "clean") {
		t.Error("the broker was not asked to stop")
	}
	if exists(dir, BrokerFile) || exists(dir, SupervisorFile) {
		t.Error("pid files left")
	}
}

func TestKilledBrokerIsBackAfterASecond(t *testing.T) {
	dir := folder(t, "")
	supervisor(t, dir)
	first := broker(t, dir, process.ID{})
	killed := time.Now()
	_ = first.Signal(syscall.SIGKILL)
	second := broker(t, dir, first)
	if d := time.Since(killed); d < 900*time.Millisecond {
		t.Errorf("back after %v, want a pause of a second", d)
	}
	if second == first {
		t.Error("the same broker")
	}
}

func TestBrokerDiesWithAKilledSupervisor(t *testing.T) {
	dir := folder(t, "")
	s := supervisor(t, dir)
	b := broker(t, dir, process.ID{})
	_ = s.ID.Signal(syscall.SIGKILL)
	ended(t, b)
	// The lock went with it: a new one can take over at once.
	s2 := supervisor(t, dir)
	if id := broker(t, dir, b); id == b {
		t.Error("no new broker")
	}
	_ = s2.ID.Signal(syscall.SIGTERM)
	ended(t, s2.ID)
}

func TestSupervisorEndsWithItsLifeline(t *testing.T) {
	life, err := process.Start(process.Spec{Path: os.Args[0], Args: []string{"sleep"}, DeathSignal: syscall.SIGKILL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { <-life.Done() }()
	dir := folder(t, "")
	s := supervisor(t, dir, "--lifeline-pid", strconv.Itoa(life.ID.PID), "--lifeline-start", strconv.FormatUint(life.ID.Start, 10))
	b := broker(t, dir, process.ID{})
	_ = life.ID.Signal(syscall.SIGKILL)
	ended(t, s.ID)
	ended(t, b)
	if !exists(dir, "clean") {
		t.Error("the broker was not asked to stop")
	}
}

func TestSupervisorOfAnotherLifeStartsNothing(t *testing.T) {
	dir := folder(t, "")
	me := process.Self()
	// The pid lives, but is not the process that was meant.
	s := supervisor(t, dir, "--lifeline-pid", strconv.Itoa(me.PID), "--lifeline-start", strconv.FormatUint(me.Start+1, 10))
	ended(t, s.ID)
	if exists(dir, "args") {
		t.Error("it started the broker")
	}
}

func TestSecondSupervisorOfAFolderEndsAtOnce(t *testing.T) {
	dir := folder(t, "")
	supervisor(t, dir)
	b := broker(t, dir, process.ID{})
	second := supervisor(t, dir)
	if got := second.Describe(); got != "exit status 3" {
		t.Errorf("second supervisor: %s", got)
	}
	if !b.Alive() {
		t.Error("it harmed the broker of the first")
	}
}

func TestStopHoldsOverARestartOfTheSupervisor(t *testing.T) {
	dir := folder(t, "")
	s := supervisor(t, dir)
	b := broker(t, dir, process.ID{})
	marker := filepath.Join(dir, StoppedFile)
	if err := os.WriteFile(marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_ = s.ID.Signal(syscall.SIGHUP)
	ended(t, b)
	if !exists(dir, "clean") {
		t.Error("not a clean stop")
	}
	_ = s.ID.Signal(syscall.SIGTERM)
	ended(t, s.ID)

	events := make(chan process.Event, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Binary: os.Args[0], Args: []string{"--config", filepath.Join(dir, "server.properties")},
			Dir: dir, OnEvent: func(e process.Event) { events <- e }})
	}()
	await(t, "supervisor", func() (struct{}, bool) { return struct{}{}, exists(dir, SupervisorFile) })
	// The next event is the start that the removal of the marker asks for: had it
	// been started before, that event would have come without it.
	select {
	case e := <-events:
		t.Fatalf("%v, want nothing while it shall stay stopped", e.Kind)
	default:
	}
	if err := os.Remove(marker); err != nil {
		t.Fatal(err)
	}
	_ = process.Self().Signal(syscall.SIGHUP)
	if e := <-events; e.Kind != process.Started {
		t.Fatalf("%v (%s), want started", e.Kind, e.Text)
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCrashLoopIsReportedWithGrowingPauses(t *testing.T) {
	dir := folder(t, "crash")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var delays []time.Duration
	err := Run(ctx, Config{
		Binary: os.Args[0], Args: []string{"--config", filepath.Join(dir, "server.properties")}, Dir: dir,
		First: time.Millisecond, Max: 4 * time.Millisecond,
		OnEvent: func(e process.Event) {
			if e.Kind == process.Died {
				if delays = append(delays, e.Delay); len(delays) == 4 {
					cancel()
				}
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []time.Duration{1, 2, 4, 4} {
		if delays[i] != want*time.Millisecond {
			t.Errorf("pauses %v", delays)
		}
	}
}

func TestWrongCommandLinesAreRefused(t *testing.T) {
	for _, args := range [][]string{{}, {"--config"}, {"--config", "x", "y"}, {"--lifeline-pid", "1"}, {"--config", "x", "--nonsense"}} {
		var out strings.Builder
		if got := Main(args, &out); got != 2 || out.Len() == 0 {
			t.Errorf("%v: status %d, %q", args, got, out.String())
		}
	}
	if err := Run(t.Context(), Config{Dir: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}
