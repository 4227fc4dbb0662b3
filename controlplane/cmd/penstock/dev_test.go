package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/controlplane/dev"
	"penstock/dataplane/supervise"
	"penstock/internal/process"
)

// The test binary stands for all of the service's programs: `dev` is the tool
// itself, `supervise` the broker's real subcommand, `--config` a broker that
// answers ApiVersions and nothing else.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "dev":
			main()
			return
		case "supervise":
			os.Exit(supervise.Main(os.Args[2:], os.Stderr))
		case "--check":
			return
		case "--config":
			playBroker(os.Args[2])
			return
		}
	}
	// Services that are not told a port would fight over the usual one, and lose
	// it to each other between two starts. Taken for good, they use free ones.
	if l, err := net.Listen("tcp", "127.0.0.1:9092"); err == nil {
		defer l.Close()
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
				l, err := net.Listen("tcp", hostport)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				go func() {
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						if _, err := io.ReadFull(c, make([]byte, 14)); err == nil {
							_, _ = c.Write([]byte{0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0})
						}
						c.Close()
					}
				}()
			}
		}
	}
	<-term
}

// programs makes a folder with all programs.
func programs(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	for i, name := range []string{"penstock", "penstock-broker"} {
		path := filepath.Join(bin, name)
		if i > 0 {
			err = os.Link(filepath.Join(bin, "penstock"), path)
		} else {
			err = os.WriteFile(path, b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(bin, "penstock")
}

// state makes a state folder whose service is stopped at the end of the test.
func stateFolder(t *testing.T, tool string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() {
		if out, err := exec.Command(tool, "dev", "stop", "--dir", dir).CombinedOutput(); err != nil {
			t.Errorf("stop: %v\n%s", err, out)
		}
		if left := processesOf(dir); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
		if t.Failed() {
			for _, f := range []string{"dev.log", "log/zookeeper.log", "brokers/bare/0/broker.log"} {
				b, _ := os.ReadFile(filepath.Join(dir, f))
				t.Logf("%s:\n%s", f, b)
			}
		}
	})
	return dir
}

// processesOf lists the processes that have the folder in their command line.
func processesOf(dir string) []string {
	var out []string
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !bytes.Contains(b, []byte(dir)) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if id, err := process.Lookup(pid); err == nil && id.Alive() {
			out = append(out, fmt.Sprint(pid, " ", string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))))
		}
	}
	return out
}

func tool(t *testing.T, tool string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errOut bytes.Buffer
	c := exec.CommandContext(ctx, tool, args...)
	c.Stderr = &errOut
	out, err := c.Output()
	if err != nil {
		t.Fatalf("penstock %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut.String())
	}
	return string(out)
}

func info(t *testing.T, dir string) *dev.Info {
	t.Helper()
	in, err := dev.ReadInfo(dir)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func needsZooKeeper(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil {
		t.Fatal("ZooKeeper is not installed: apt-get install zookeeper")
	}
}

func TestBareServiceInTheBackground(t *testing.T) {
	t.Parallel()
	needsZooKeeper(t)
	bin := programs(t)
	dir := stateFolder(t, bin)
	out := tool(t, bin, "dev", "--bare", "--brokers", "2", "--detach", "--dir", dir, "--set", "log.retention.ms=5")
	in := info(t, dir)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if got := lines[len(lines)-1]; got != in.Cluster.Bootstrap || strings.Count(got, ",") != 1 {
		t.Errorf("last line %q, bootstrap %q", got, in.Cluster.Bootstrap)
	}
	if fi, _ := os.Stat(filepath.Join(dir, "dev.json")); fi.Mode().Perm() != 0o600 {
		t.Errorf("dev.json has mode %v", fi.Mode())
	}
	if in.API != "" || in.Postgres != "" || in.Operator != nil || in.Cluster.SecurityProtocol != "PLAINTEXT" {
		t.Errorf("bare dev.json: %+v", in)
	}
	props, _ := os.ReadFile(filepath.Join(in.Cluster.Brokers[1].Dir, "server.properties"))
	if !strings.Contains(string(props), "\nlog.retention.ms=5\n") || !strings.Contains(string(props), "\nzookeeper.connect="+in.Cluster.ZooKeeperConnect+"\n") {
		t.Errorf("server.properties:\n%s", props)
	}
	if out, err := exec.Command(bin, "dev", "--bare", "--detach", "--dir", dir).CombinedOutput(); err == nil || !strings.Contains(string(out), "already") {
		t.Errorf("second service on the folder: %v, %s", err, out)
	}

	// Every verb waits for its effect, and dev.json follows.
	first := in.Cluster.Brokers[0]
	tool(t, bin, "dev", "broker", "kill", "0", "--dir", dir)
	if id, err := process.Lookup(first.PID); err == nil {
		t.Errorf("broker %v lives after its kill", id)
	}
	eventually(t, "the killed broker is back", func() bool { p := info(t, dir).Cluster.Brokers[0].PID; return p != 0 && p != first.PID })
	tool(t, bin, "dev", "broker", "stop", "0", "--dir", dir)
	eventually(t, "dev.json says that the broker is stopped", func() bool { return info(t, dir).Cluster.Brokers[0].PID == 0 })
	var s dev.Status
	if err := json.Unmarshal([]byte(tool(t, bin, "dev", "status", "--json", "--dir", dir)), &s); err != nil {
		t.Fatal(err)
	}
	if !s.Ready || s.Healthy {
		t.Errorf("status with a stopped broker: %+v", s)
	}
	tool(t, bin, "dev", "broker", "start", "0", "--dir", dir)
	tool(t, bin, "dev", "broker", "start", "0", "--dir", dir) // running already
	if out := tool(t, bin, "dev", "status", "--dir", dir); strings.Count(out, " ok\n") != 4 {
		t.Errorf("status:\n%s", out)
	}

	// A lost supervisor comes back, and so does ZooKeeper.
	sup, err := process.ReadFile(filepath.Join(first.Dir, "supervisor.pid"))
	if err != nil {
		t.Fatal(err)
	}
	zk := in.PIDs.ZooKeeper
	_ = sup.Signal(syscall.SIGKILL)
	_ = syscall.Kill(zk, syscall.SIGKILL)
	eventually(t, "all is healthy again", func() bool {
		s, err := dev.Look(t.Context(), dir)
		return err == nil && s.Healthy && info(t, dir).PIDs.ZooKeeper != zk
	})

	tool(t, bin, "dev", "stop", "--dir", dir)
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left after stop: %v", left)
	}
	if _, err := dev.ReadInfo(dir); err == nil {
		t.Error("dev.json is left after stop")
	}

	// The next start finds its ports again.
	tool(t, bin, "dev", "--bare", "--brokers", "2", "--detach", "--dir", dir)
	if again := info(t, dir); again.Cluster.Bootstrap != in.Cluster.Bootstrap || again.ZooKeeper != in.ZooKeeper {
		t.Errorf("ports moved: %+v, before %+v", again.Cluster, in.Cluster)
	}
	tool(t, bin, "dev", "reset", "--dir", dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("state after reset: %v", err)
	}
}

func TestKilledServiceLeavesNothing(t *testing.T) {
	t.Parallel()
	needsZooKeeper(t)
	bin := programs(t)
	a, b := stateFolder(t, bin), stateFolder(t, bin)
	// Two at the same time, side by side.
	done := make(chan string, 1)
	go func() { done <- tool(t, bin, "dev", "--bare", "--brokers", "1", "--detach", "--dir", a) }()
	tool(t, bin, "dev", "--bare", "--brokers", "2", "--detach", "--dir", b)
	<-done
	ia, ib := info(t, a), info(t, b)
	if ia.ZooKeeper == ib.ZooKeeper || strings.Contains(ib.Cluster.Bootstrap, ia.Cluster.Bootstrap) {
		t.Fatalf("two services share ports: %+v, %+v", ia, ib)
	}
	if err := syscall.Kill(ia.PIDs.Dev, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "nothing is left of the killed service", func() bool { return len(processesOf(a)) == 0 })
	if s, err := dev.Look(t.Context(), b); err != nil || !s.Healthy {
		t.Errorf("the other service: %+v, %v", s, err)
	}
	// A start on the state of a killed service works.
	tool(t, bin, "dev", "--bare", "--brokers", "1", "--detach", "--dir", a)
	if again := info(t, a); again.Cluster.Bootstrap != ia.Cluster.Bootstrap {
		t.Errorf("ports moved: %s, before %s", again.Cluster.Bootstrap, ia.Cluster.Bootstrap)
	}
}

func TestInterruptStopsTheServiceInTheForeground(t *testing.T) {
	t.Parallel()
	needsZooKeeper(t)
	bin := programs(t)
	dir := stateFolder(t, bin)
	c := exec.Command(bin, "dev", "--bare", "--dir", dir)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "dev.json", func() bool { _, err := dev.ReadInfo(dir); return err == nil })
	_ = c.Process.Signal(syscall.SIGINT)
	if err := c.Wait(); err != nil {
		t.Errorf("exit: %v\n%s", err, out.String())
	}
	if left := processesOf(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestNoRestartLeavesTheDeadDead(t *testing.T) {
	t.Parallel()
	needsZooKeeper(t)
	bin := programs(t)
	dir := stateFolder(t, bin)
	tool(t, bin, "dev", "--bare", "--no-restart", "--detach", "--dir", dir)
	in := info(t, dir)
	tool(t, bin, "dev", "broker", "kill", "0", "--dir", dir)
	_ = syscall.Kill(in.PIDs.ZooKeeper, syscall.SIGKILL)
	eventually(t, "dev.json says that both are gone", func() bool {
		now := info(t, dir)
		return now.PIDs.ZooKeeper == 0 && now.Cluster.Brokers[0].PID == 0
	})
	tool(t, bin, "dev", "broker", "start", "0", "--dir", dir) // by hand it works
	if now := info(t, dir); now.PIDs.ZooKeeper != 0 {
		t.Error("ZooKeeper was started again")
	}
}

func TestWrongUseIsRefused(t *testing.T) {
	bin := programs(t)
	dir := t.TempDir()
	for _, args := range [][]string{
		{"--port", "9092"}, {"--brokers", "3"}, {"--bare", "--once"}, {"--bare", "--brokers", "0"}, {"--bare", "--port", "70000"},
		{"--set", "nonsense"}, {"--detach", "--once"}, {"surplus"}, {"broker", "kill"}, {"broker", "kill", "x"}, {"broker", "kill", "0"}, {"reset"},
	} {
		out, err := exec.Command(bin, append(append([]string{"dev"}, args...), "--dir", dir)...).CombinedOutput()
		if err == nil || len(out) == 0 {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	if out := tool(t, bin, "dev", "status", "--dir", dir); !strings.Contains(out, "no dev service") {
		t.Errorf("status of an empty folder: %s", out)
	}
}
