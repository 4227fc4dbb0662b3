package provision

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/dataplane/supervise"
	"penstock/internal/ports"
	"penstock/internal/process"
)

// The test binary takes the place of penstock-broker: `supervise` is the real
// subcommand, `--config FILE` a broker that listens where the file says.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "supervise":
			os.Exit(supervise.Main(os.Args[2:], os.Stderr))
		case "--config":
			playBroker(os.Args[2])
			return
		}
	}
	goleak.VerifyTestMain(m)
}

func playBroker(config string) {
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	b, err := os.ReadFile(config)
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(b)) {
		if addrs, ok := strings.CutPrefix(strings.TrimSpace(line), "listeners="); ok {
			for _, a := range strings.Split(addrs, ",") {
				_, hostport, _ := strings.Cut(a, "://")
				if _, err := net.Listen("tcp", hostport); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		}
	}
	<-term
}

func engine(t *testing.T, dir string, change func(*ProcessConfig)) *Process {
	t.Helper()
	c := ProcessConfig{Dir: dir, Binary: os.Args[0], Lifeline: process.Self(), Grace: 10 * time.Second}
	if change != nil {
		change(&c)
	}
	e, err := NewProcess(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		dirs, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
		for _, d := range dirs {
			if err := Halt(context.Background(), d, 10*time.Second); err != nil {
				t.Errorf("clean up %s: %v", d, err)
			}
		}
	})
	return e
}

func spec(id int32) BrokerSpec {
	return BrokerSpec{
		Ref: Ref{"clu_test", id}, Brokers: 3, ZooKeeper: "127.0.0.1:2181", Chroot: "/clusters/clu_test",
		Security: &Security{Issuer: "http://127.0.0.1:1", Audience: "clu_test", JWKSURL: "http://127.0.0.1:1/jwks", Secrets: NewSecrets("clu_test")},
	}
}

// running waits until the broker lives and answers.
func running(t *testing.T, e *Process, r Ref) BrokerStatus {
	t.Helper()
	return await(t, e, r, func(s BrokerStatus) bool { return s.State == Running && Answers(s.ClientAddr) })
}

func await(t *testing.T, e *Process, r Ref, ok func(BrokerStatus) bool) BrokerStatus {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		s, err := e.Status(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.Dir, logFile))
			t.Fatalf("broker %s is %+v\n%s", r, s, log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestEnsureIsIdempotentAndItsFilesArePrivate(t *testing.T) {
	dir := t.TempDir()
	e := engine(t, dir, nil)
	s := spec(1)
	ep, err := e.Reserve(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := e.Reserve(t.Context(), s); err != nil || again != ep {
		t.Fatalf("reserved %v, then %v, %v", ep, again, err)
	}
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first := running(t, e, s.Ref)
	if want := fmt.Sprintf("127.0.0.1:%d", ep.ClientPort); first.ClientAddr != want {
		t.Errorf("client address %s, reserved %s", first.ClientAddr, want)
	}
	second, err := e.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if second.Broker != first.Broker || second.Supervisor != first.Supervisor || second.Outdated {
		t.Errorf("second Ensure: %+v, first %+v", second, first)
	}
	for path, mode := range map[string]os.FileMode{"": 0o700, "server.properties": 0o600, "launch.json": 0o600, "broker.log": 0o600, "data": 0o700} {
		fi, err := os.Stat(filepath.Join(first.Dir, path))
		if err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%q: %v, %v, want mode %v", path, fi.Mode(), err, mode)
		}
	}
	s.Set = []Property{{"log.retention.ms", "1000"}}
	if st, err := e.Ensure(t.Context(), s); err != nil || !st.Outdated || st.Broker != first.Broker {
		t.Errorf("changed settings of a running broker: %+v, %v, want it left alone and outdated", st, err)
	}
}

func TestCrashAfterAnySideEffectConverges(t *testing.T) {
	crash := errors.New("crash")
	for _, point := range []string{"folder", "ports", "properties", "supervisor", "stopped", "moved"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// A crash takes the engine with it, reservations and locks included.
			crashing := func() *Process {
				return engine(t, dir, func(c *ProcessConfig) {
					c.fault = func(after string) error {
						if after == point {
							return crash
						}
						return nil
					}
				})
			}
			s := spec(0)
			e := crashing()
			_, err := e.Ensure(t.Context(), s)
			inEnsure := errors.Is(err, crash)
			if err != nil && !inEnsure {
				t.Fatal(err)
			}
			e.Close()
			e = engine(t, dir, nil)
			if _, err := e.Ensure(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			st := running(t, e, s.Ref)
			e.Close()
			e = crashing()
			if err := e.Remove(t.Context(), s.Ref); inEnsure && err != nil || !inEnsure && !errors.Is(err, crash) {
				t.Fatalf("remove: %v", err)
			}
			e = engine(t, dir, nil)
			if err := e.Remove(t.Context(), s.Ref); err != nil {
				t.Fatal(err)
			}
			if st.Broker.Alive() || st.Supervisor.Alive() {
				t.Error("a process is left")
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "clu*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if st, err := e.Status(t.Context(), s.Ref); err != nil || st.State != Absent {
				t.Errorf("status %+v, %v", st, err)
			}
		})
	}
}

func TestManyEnginesStartOneBroker(t *testing.T) {
	dir := t.TempDir()
	s := spec(0)
	first := engine(t, dir, nil)
	if _, err := first.Reserve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first.Close() // the reservation of one engine would keep the port from the next
	const n = 4
	got := make(chan error, n)
	for range n {
		e := engine(t, dir, nil)
		go func() {
			_, err := e.Ensure(context.Background(), s)
			got <- err
		}()
	}
	for range n {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	st := running(t, first, s.Ref)
	mine := 0
	for _, d := range process.Descendants(os.Getpid()) {
		if cmd, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.PID)); strings.Contains(string(cmd), dir) && d.Alive() {
			mine++
		}
	}
	if mine != 2 {
		t.Errorf("%d processes for one broker (%+v), want broker and supervisor", mine, st)
	}
}

func TestStoppedBrokerStaysStoppedThroughEnsure(t *testing.T) {
	e := engine(t, t.TempDir(), nil)
	s := spec(0)
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	st := running(t, e, s.Ref)
	if err := HoldStopped(t.Context(), st.Dir); err != nil {
		t.Fatal(err)
	}
	if st.Broker.Alive() {
		t.Fatal("broker lives after the stop")
	}
	// The supervisor's death does not bring the broker back either.
	if err := st.Supervisor.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got, _ := e.Status(t.Context(), s.Ref); got.State != Stopped {
		t.Errorf("state %s, want stopped", got.State)
	}
	if err := LetRun(t.Context(), st.Dir); err != nil {
		t.Fatal(err)
	}
	running(t, e, s.Ref)
}

func TestLostSupervisorIsStartedAgainOnTheSamePorts(t *testing.T) {
	e := engine(t, t.TempDir(), nil)
	s := spec(0)
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	first := running(t, e, s.Ref)
	if err := first.Supervisor.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Broker.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, _ := e.Status(t.Context(), s.Ref); st.State != Halted {
		t.Errorf("state %s, want halted", st.State)
	}
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	second := running(t, e, s.Ref)
	if second.Broker == first.Broker || second.ClientAddr != first.ClientAddr {
		t.Errorf("first %+v, second %+v", first, second)
	}
}

func TestTakenPortIsReplacedAndFilesFollow(t *testing.T) {
	dir := t.TempDir()
	e := engine(t, dir, nil)
	s := spec(0)
	ep, err := e.Reserve(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	e.Close()
	thief, err := net.Listen("tcp", loopback(ep.ClientPort))
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	e = engine(t, dir, nil)
	if _, err := e.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	st := running(t, e, s.Ref)
	if st.ClientAddr == loopback(ep.ClientPort) {
		t.Fatal("the taken port was used")
	}
	props, _ := os.ReadFile(filepath.Join(st.Dir, propertiesFile))
	if !strings.Contains(string(props), "advertised.listeners=CLIENT://"+st.ClientAddr+",") {
		t.Errorf("server.properties does not follow:\n%s", props)
	}
}

func TestAskedPortThatIsTakenIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := engine(t, t.TempDir(), nil)
	s := spec(0)
	s.Port = l.Addr().(*net.TCPAddr).Port
	if _, err := e.Ensure(t.Context(), s); !errors.Is(err, ports.ErrTaken) {
		t.Errorf("%v, want ports.ErrTaken", err)
	}
}

func TestInvalidSpecsAreRefused(t *testing.T) {
	e := engine(t, t.TempDir(), nil)
	for name, change := range map[string]func(*BrokerSpec){
		"path in the id": func(s *BrokerSpec) { s.ClusterID = "../x" },
		"hidden id":      func(s *BrokerSpec) { s.ClusterID = ".x" },
		"no id":          func(s *BrokerSpec) { s.ClusterID = "" },
		"negative id":    func(s *BrokerSpec) { s.BrokerID = -1 },
		"no brokers":     func(s *BrokerSpec) { s.Brokers = 0 },
		"no ZooKeeper":   func(s *BrokerSpec) { s.ZooKeeper = "" },
		"bad chroot":     func(s *BrokerSpec) { s.Chroot = "x" },
	} {
		s := spec(0)
		change(&s)
		if _, err := e.Ensure(t.Context(), s); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A supervisor has its lock before its pid file. Whoever removes the broker just
// then (the engine that started it having been killed) must not miss it.
func TestHaltWaitsForASupervisorThatIsJustStarting(t *testing.T) {
	dir := t.TempDir()
	lock, ok, err := process.TryLock(filepath.Join(dir, supervisorLock))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	defer lock.Close()
	properties := filepath.Join(dir, propertiesFile)
	if err := os.WriteFile(properties, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := process.Start(process.Spec{Path: os.Args[0], Args: []string{"--config", properties}, DeathSignal: syscall.SIGKILL})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.ID.Signal(syscall.SIGKILL)
		<-c.Done()
	}()
	halted := make(chan error, 1)
	go func() { halted <- Halt(t.Context(), dir, 10*time.Second) }()
	select {
	case err := <-halted:
		t.Fatalf("halted (%v) with a supervisor at work", err)
	case <-time.After(100 * time.Millisecond):
	}
	go func() {
		<-c.Done()
		lock.Close()
	}()
	if err := process.WriteFile(filepath.Join(dir, supervisorFile), c.ID); err != nil {
		t.Fatal(err)
	}
	if err := <-halted; err != nil {
		t.Fatal(err)
	}
	if c.ID.Alive() {
		t.Error("the supervisor lives")
	}
}
