// Package brokertest runs whole clusters for tests: real broker processes with
// a real ZooKeeper, which a test may kill, stop and start again. The brokers
// end with the test, and with the test's process should that die.
package brokertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination/zktest"
	"penstock/internal/ports"
)

// Cluster is a running cluster.
type Cluster struct {
	Dir     string
	ZK      *zktest.Server
	ZKs     []*zktest.Server // all of them, of an ensemble
	Brokers []*Node

	t      testing.TB
	chroot string
	ports  ports.Pool
}

// Node is one broker of a Cluster.
type Node struct {
	ID         int32
	Addr       string // of the first listener
	Properties string // its server.properties
	LogDir     string
	SecondDir  string        // another of its log.dirs, for tests that give it one
	ZK         *zktest.Proxy // to ZooKeeper; nil unless the Options ask for it
	Apache     bool          // Apache Kafka 3.9, not ours

	c          *Cluster
	binary     string
	supervised bool
	frozen     bool // its process is stopped by SIGSTOP
	debug      bool // the next start logs its steps

	mu  sync.Mutex
	cmd *exec.Cmd
	end chan struct{} // closed when the process has ended
	err error         // how it ended; valid after end
}

// Options of a cluster. The zero value is one plaintext broker.
type Options struct {
	Brokers  int
	Apache   int      // so many of them, the last, are Apache Kafka 3.9
	Settings []string // further lines of every server.properties, which win
	// Each gives further lines for one broker, which win over all others.
	Each func(id int) []string
	// Listeners replaces the one plaintext listener: for each broker the lines
	// that define its listeners, given free ports as many as Ports says.
	Ports     int
	Listeners func(id int, ports []int) []string
	// Proxies puts a proxy between each broker and ZooKeeper.
	Proxies bool
	// ZooKeepers is how many servers ZooKeeper has, 1 unless set; more cannot be behind
	// proxies.
	ZooKeepers int
	// Ensemble gives the address under which a broker finds ZooKeeper, where it
	// is not the server's own.
	Ensemble func(id int, server string) string
	// Made is told of the cluster before any broker is started.
	Made func(*Cluster)
	// Binary is the broker to run, where it is not Binary's.
	Binary string
	// Wrap puts words before the broker's command line, strace for one.
	Wrap []string
	// Supervised runs each broker under a supervisor, which leaves a dead one dead
	// until Restart. Kill then ends both.
	Supervised bool
}

var binary struct {
	once sync.Once
	path string
	err  error
}

// Binary builds the broker once a test binary and returns its path.
func Binary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		dir, err := os.MkdirTemp("", "penstock-brokertest")
		if err != nil {
			binary.err = err
			return
		}
		binary.path = filepath.Join(dir, "penstock-broker")
		binary.err = Build(binary.path)
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Build builds the broker to a path of the caller's; args are for go build.
func Build(path string, args ...string) error {
	_, here, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, args...), "./dataplane/cmd/penstock-broker")...)
	cmd.Dir = filepath.Join(filepath.Dir(here), "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// Main runs a package's tests and removes what Binary built.
func Main(m *testing.M) int {
	code := m.Run()
	if binary.path != "" {
		_ = os.RemoveAll(filepath.Dir(binary.path))
	}
	return code
}

// Start brings a cluster up and waits until every broker answers and knows all
// others.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Ports == 0 {
		o.Ports = 1
		o.Listeners = func(_ int, ports []int) []string {
			return []string{fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", ports[0])}
		}
	}
	open := !strings.Contains(strings.Join(o.Listeners(0, make([]int, o.Ports)), "\n"), "SASL")
	dir := t.TempDir()
	zks, err := zktest.StartEnsemble(max(1, o.ZooKeepers))
	if err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for _, zk := range zks {
		t.Cleanup(zk.Stop)
		addrs = append(addrs, zk.Addr())
	}
	zk := zks[0]
	c := &Cluster{Dir: dir, ZK: zk, ZKs: zks, t: t, chroot: "/clusters/test"}
	rf := min(o.Brokers, 3)
	for id := range o.Brokers {
		ports := c.freePorts(o.Ports)
		n := &Node{
			ID: int32(id), c: c, supervised: o.Supervised, Apache: id >= o.Brokers-o.Apache,
			Addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), LogDir: filepath.Join(dir, fmt.Sprintf("data-%d", id)),
		}
		n.Properties = filepath.Join(dir, fmt.Sprintf("broker-%d", id), "server.properties")
		if err := os.Mkdir(filepath.Dir(n.Properties), 0o700); err != nil {
			t.Fatal(err)
		}
		ensemble := strings.Join(addrs, ",")
		if o.Proxies {
			n.ZK = zktest.NewProxy(t, zk)
			ensemble = n.ZK.Addr()
		}
		if o.Ensemble != nil {
			ensemble = o.Ensemble(id, ensemble)
		}
		if n.binary = o.Binary; n.binary == "" {
			n.binary = Binary(t)
		}
		lines := []string{
			fmt.Sprintf("broker.id=%d", id), "log.dirs=" + n.LogDir,
			fmt.Sprintf("zookeeper.connect=%s%s", ensemble, c.chroot), "zookeeper.session.timeout.ms=4000",
			fmt.Sprintf("offsets.topic.replication.factor=%d", rf), "offsets.topic.num.partitions=4",
			fmt.Sprintf("transaction.state.log.replication.factor=%d", rf), "transaction.state.log.num.partitions=4",
			fmt.Sprintf("transaction.state.log.min.isr=%d", max(1, rf-1)),
			fmt.Sprintf("default.replication.factor=%d", rf), "num.partitions=4", "group.initial.rebalance.delay.ms=0",
		}
		lines = append(lines, o.Listeners(id, ports)...)
		lines = append(lines, o.Settings...)
		if o.Each != nil {
			lines = append(lines, o.Each(id)...)
		}
		if err := os.WriteFile(n.Properties, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Brokers = append(c.Brokers, n)
	}
	t.Cleanup(c.stopAll)
	if o.Made != nil {
		o.Made(c)
	}
	for _, n := range c.Brokers {
		n.start(o.Wrap)
	}
	for _, n := range c.Brokers {
		n.AwaitServing()
	}
	if open { // who must log in first, asks by itself
		for _, n := range c.Brokers {
			n.awaitBrokers(len(c.Brokers))
		}
	}
	return c
}

// awaitBrokers waits until the broker knows that many.
func (n *Node) awaitBrokers(want int) {
	t := n.c.t
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	Await(t, 30*time.Second, fmt.Sprintf("broker %d knowing the others", n.ID), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl.SeedBrokers()[0])
		if err == nil && len(resp.Brokers) < want {
			err = fmt.Errorf("it knows %d of %d", len(resp.Brokers), want)
		}
		return err
	})
}

func (c *Cluster) stopAll() {
	for _, n := range c.Brokers {
		n.Kill()
	}
	c.ports.Release()
	if c.t.Failed() {
		for _, n := range c.Brokers {
			if b, err := os.ReadFile(n.logFile()); err == nil {
				c.t.Logf("broker %d said at last:\n%s", n.ID, tail(b, 4000))
			}
		}
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// Bootstrap lists the brokers' addresses.
func (c *Cluster) Bootstrap() []string {
	var addrs []string
	for _, n := range c.Brokers {
		addrs = append(addrs, n.Addr)
	}
	return addrs
}

// Client makes a client that is closed with the test.
func (c *Cluster) Client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Bootstrap()...)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// CreateTopic makes a topic or fails the test.
func (c *Cluster) CreateTopic(topic string, partitions int32, rf int16, configs ...string) {
	c.t.Helper()
	cfg := map[string]*string{}
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		cfg[k] = &v
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(c.Client()).CreateTopic(ctx, partitions, rf, cfg, topic); err != nil {
		c.t.Fatalf("creating topic %s: %v", topic, err)
	}
}

// Await polls until cond holds; what is asked of other processes has no event
// to wait for.
func Await(t testing.TB, within time.Duration, what string, cond func() error) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(within); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if last = cond(); last == nil {
			return
		}
	}
	t.Fatalf("%s: not within %v: %v", what, within, last)
}

// AwaitWhole waits until every partition of the topic has its whole replica set
// in sync.
func (c *Cluster) AwaitWhole(topic string, within time.Duration) {
	c.t.Helper()
	cl := c.Client()
	Await(c.t, within, topic+" whole again", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		req := kmsg.NewPtrMetadataRequest() // kadm would answer from the client's cache
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topic
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
			return err
		}
		for _, p := range resp.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("partition %d: leader %d, ISR %v of %v, %v", p.Partition, p.Leader, p.ISR, p.Replicas, kerr.ErrorForCode(p.ErrorCode))
			}
		}
		return nil
	})
}

func (n *Node) logFile() string {
	return filepath.Join(n.c.Dir, fmt.Sprintf("broker-%d.log", n.ID))
}

func (n *Node) command(wrap []string) *exec.Cmd {
	t := n.c.t
	t.Helper()
	if n.Apache {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // it may have to be fetched
		defer cancel()
		cmd, err := apache.ZooKeeperBroker(ctx, n.ID, n.c.ZK.Addr()+n.c.chroot, n.Properties)
		if err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	argv := append(append([]string{}, wrap...), n.binary)
	if n.supervised {
		argv = append(argv, "supervise", "--no-restart")
	}
	argv = append(argv, "--config", n.Properties)
	if n.debug {
		argv = append(argv, "--log-level", "DEBUG")
	}
	return exec.Command(argv[0], argv[1:]...)
}

func (n *Node) start(wrap []string) {
	t := n.c.t
	t.Helper()
	cmd := n.command(wrap)
	out, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	end := make(chan struct{})
	started := make(chan error)
	go func() {
		// The death signal goes by the thread that has started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		close(end)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	n.mu.Lock()
	n.cmd, n.end = cmd, end
	n.mu.Unlock()
}

// Start starts the broker again after Kill or Stop and waits until it serves.
func (n *Node) Start() {
	n.c.t.Helper()
	n.start(nil)
	n.AwaitServing()
}

// Launch starts the broker again after its process has ended, and waits for nothing.
func (n *Node) Launch() {
	n.c.t.Helper()
	n.start(nil)
}

// AwaitServing waits until the broker answers.
func (n *Node) AwaitServing() {
	n.c.t.Helper()
	within := 30 * time.Second
	if n.Apache {
		within = 2 * time.Minute
	}
	Await(n.c.t, within, fmt.Sprintf("broker %d serving", n.ID), func() error {
		if n.ended() {
			n.mu.Lock()
			defer n.mu.Unlock()
			return fmt.Errorf("the process has ended: %v", n.err)
		}
		if n.Apache { // binds its port long before it serves
			return apache.Answers(n.Addr)
		}
		conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Ended tells whether the broker's process is gone.
func (n *Node) Ended() bool { return n.ended() }

func (n *Node) ended() bool {
	n.mu.Lock()
	end := n.end
	n.mu.Unlock()
	select {
	case <-end:
		return true
	default:
		return false
	}
}

// PID is the broker's process, the last one if it has ended; 0 before its first start.
func (n *Node) PID() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Signal sends a signal to the broker, or to its supervisor.
func (n *Node) Signal(sig syscall.Signal) {
	to := -n.PID()
	if n.supervised && sig != syscall.SIGKILL { // which passes it on
		to = n.PID()
	}
	_ = syscall.Kill(to, sig)
}

// Kill ends the broker by SIGKILL and waits until it is gone.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	n.Signal(syscall.SIGKILL)
	<-n.end
}

// Stop ends the broker in order and fails the test unless it exits with 0
// within 30 s.
func (n *Node) Stop() {
	n.c.t.Helper()
	n.Signal(syscall.SIGTERM)
	select {
	case <-n.end:
	case <-time.After(30 * time.Second):
		n.c.t.Fatalf("broker %d does not stop", n.ID)
	}
	if n.err != nil && !(n.Apache && apache.EndedBySIGTERM(n.err)) {
		n.c.t.Fatalf("broker %d stopped with: %v", n.ID, n.err)
	}
}

// freePorts reserves ports until the test ends, so that neither another broker
// nor an outgoing connection sits on one when its broker starts, also anew.
func (c *Cluster) freePorts(n int) []int {
	c.t.Helper()
	var got []int
	for range n {
		port, err := c.ports.Any()
		if err != nil {
			c.t.Fatal(err)
		}
		got = append(got, port)
	}
	return got
}
