// Package apache runs Apache Kafka beside Penstock: as the peer that the
// benchmark is measured against, and for its tools, whose word on log files
// and clients counts more than ours. It needs Java 17 and Maven, fetches the
// jars once into the user's cache folder, and listens on loopback only.
package apache

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"penstock/internal/ports"
)

// The versions compared with: the newest, and the last one with ZooKeeper.
const (
	V44 = "4.4.0"
	V39 = "3.9.2"
)

//go:embed pom.xml
var pom []byte

// tools maps the names of Kafka's command-line tools to their classes.
var tools = map[string]map[string]string{
	"dump-log":             {V44: "org.apache.kafka.tools.DumpLogSegments", V39: "kafka.tools.DumpLogSegments"},
	"console-producer":     {V44: "org.apache.kafka.tools.ConsoleProducer", V39: "kafka.tools.ConsoleProducer"},
	"console-consumer":     {V44: "org.apache.kafka.tools.consumer.ConsoleConsumer", V39: "org.apache.kafka.tools.consumer.ConsoleConsumer"},
	"format":               {V44: "kafka.tools.StorageTool", V39: "kafka.tools.StorageTool"},
	"broker":               {V44: "kafka.Kafka", V39: "kafka.Kafka"},
	"configs":              {V44: "org.apache.kafka.tools.ConfigCommand", V39: "kafka.admin.ConfigCommand"},
	"acls":                 {V44: "org.apache.kafka.tools.AclCommand", V39: "kafka.admin.AclCommand"},
	"broker-api-versions":  {V44: "org.apache.kafka.tools.BrokerApiVersionsCommand", V39: "kafka.admin.BrokerApiVersionsCommand"},
	"producer-perf":        {V44: "org.apache.kafka.tools.ProducerPerformance", V39: "org.apache.kafka.tools.ProducerPerformance"},
	"consumer-perf":        {V44: "org.apache.kafka.tools.ConsumerPerformance", V39: "org.apache.kafka.tools.ConsumerPerformance"},
	"topics":               {V44: "org.apache.kafka.tools.TopicCommand", V39: "org.apache.kafka.tools.TopicCommand"},
	"log-dirs":             {V44: "org.apache.kafka.tools.LogDirsCommand", V39: "org.apache.kafka.tools.LogDirsCommand"},
	"delete-records":       {V44: "org.apache.kafka.tools.DeleteRecordsCommand", V39: "org.apache.kafka.tools.DeleteRecordsCommand"},
	"groups":               {V44: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", V39: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"},
	"reassign":             {V44: "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", V39: "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"},
	"transactions":         {V44: "org.apache.kafka.tools.TransactionsCommand", V39: "org.apache.kafka.tools.TransactionsCommand"},
	"leader-election":      {V44: "org.apache.kafka.tools.LeaderElectionCommand", V39: "org.apache.kafka.tools.LeaderElectionCommand"},
	"verifiable-producer":  {V44: "org.apache.kafka.tools.VerifiableProducer", V39: "org.apache.kafka.tools.VerifiableProducer"},
	"verifiable-consumer":  {V44: "org.apache.kafka.tools.VerifiableConsumer", V39: "org.apache.kafka.tools.VerifiableConsumer"},
	"get-offsets":          {V44: "org.apache.kafka.tools.GetOffsetShell", V39: "org.apache.kafka.tools.GetOffsetShell"},
	"replica-verification": {V44: "org.apache.kafka.tools.ReplicaVerificationTool", V39: "org.apache.kafka.tools.ReplicaVerificationTool"},
	"cluster":              {V44: "org.apache.kafka.tools.ClusterTool", V39: "org.apache.kafka.tools.ClusterTool"},
}

// Get makes sure that the jars of a version are in the cache and returns the
// folder that holds them.
func Get(ctx context.Context, version string) (string, error) {
	cache := os.Getenv("PEERS_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(home, ".cache", "penstock-peers")
	}
	dir := filepath.Join(cache, "kafka-"+version)
	if _, err := os.Stat(filepath.Join(dir, ".complete")); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file, "-Dkafka.version="+version, "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fetching Apache Kafka %s: %w\n%s", version, err, out)
	}
	// Exactly one slf4j binding may stand on the class path.
	for _, pattern := range []string{"slf4j-reload4j-*.jar", "log4j-slf4j*-impl-*.jar"} {
		jars, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, j := range jars {
			if err := os.Remove(j); err != nil {
				return "", err
			}
		}
	}
	return dir, os.WriteFile(filepath.Join(dir, ".complete"), nil, 0o644)
}

// Tool is the command that runs one of Kafka's tools, not yet started.
// javaOpts stand before the class name (-D settings).
func Tool(ctx context.Context, version, name string, javaOpts []string, args ...string) (*exec.Cmd, error) {
	dir, err := Get(ctx, version)
	if err != nil {
		return nil, err
	}
	class := tools[name][version]
	if class == "" {
		return nil, fmt.Errorf("no tool %q of Apache Kafka %s", name, version)
	}
	argv := append([]string{"-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, javaOpts...)
	argv = append(argv, "-cp", filepath.Join(dir, "*"), class)
	cmd := exec.CommandContext(ctx, "java", append(argv, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, nil
}

// Broker is a running Apache Kafka: 4.4 in KRaft mode, broker and controller in
// one process (StartCluster), or 3.9 in ZooKeeper mode (InZooKeeper).
type Broker struct {
	Addr    string
	Dir     string
	Started time.Duration // from exec to the first answered request

	version    string
	properties string
	cmd        *exec.Cmd
	end        chan struct{} // closed when the process has ended
	err        error         // how it ended; valid after end
	killed     bool          // by Kill: its end is no error then
	ports      ports.Pool
	began      time.Time
}

// Start runs one broker in dir, see StartCluster.
func Start(ctx context.Context, dir string, settings ...string) (*Broker, error) {
	all, err := StartCluster(ctx, dir, 1, settings...)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// StartCluster formats a folder in dir for each of n brokers and starts them,
// each with a heap of 1 GiB as Kafka's own start script sets it, and waits until
// every one answers. settings are further lines of every server.properties.
func StartCluster(ctx context.Context, dir string, n int, settings ...string) (all []*Broker, err error) {
	defer func() {
		if err != nil {
			for _, b := range all {
				err = errors.Join(err, b.Stop())
			}
		}
	}()
	client, controller := make([]int, n), make([]int, n)
	for i := range n {
		b := &Broker{Dir: filepath.Join(dir, fmt.Sprintf("kafka-%d", i+1)), version: V44}
		all = append(all, b)
		if client[i], err = b.ports.Any(); err != nil {
			return all, err
		}
		if controller[i], err = b.ports.Any(); err != nil {
			return all, err
		}
		b.Addr = fmt.Sprintf("127.0.0.1:%d", client[i])
	}
	var voters []string
	for i := range n {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, controller[i]))
	}
	rf := min(n, 3)
	for i := range n {
		home := filepath.Join(dir, fmt.Sprintf("kafka-%d", i+1))
		if err := os.MkdirAll(home, 0o755); err != nil {
			return all, err
		}
		lines := append([]string{
			"process.roles=broker,controller", fmt.Sprintf("node.id=%d", i+1),
			fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", client[i], controller[i]),
			fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", client[i]),
			"controller.listener.names=CONTROLLER", "controller.quorum.voters=" + strings.Join(voters, ","),
			"log.dirs=" + filepath.Join(home, "data"),
			fmt.Sprintf("offsets.topic.replication.factor=%d", rf),
			fmt.Sprintf("transaction.state.log.replication.factor=%d", rf), "transaction.state.log.min.isr=1",
			fmt.Sprintf("share.coordinator.state.topic.replication.factor=%d", rf), "share.coordinator.state.topic.min.isr=1",
			"group.initial.rebalance.delay.ms=0",
		}, settings...)
		file := filepath.Join(home, "server.properties")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return all, err
		}
		format, err := Tool(ctx, V44, "format", nil, "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", file)
		if err != nil {
			return all, err
		}
		if out, err := format.CombinedOutput(); err != nil {
			return all, fmt.Errorf("formatting Apache Kafka: %w\n%s", err, out)
		}
		all[i].properties = file
	}
	for _, b := range all {
		err := b.launch(ctx, heap...)
		if err != nil {
			return all, err
		}
	}
	for _, b := range all {
		if err := b.await(ctx); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (b *Broker) launch(ctx context.Context, javaOpts ...string) error {
	// The broker's life is not that of ctx, which bounds the start.
	cmd, err := Tool(context.WithoutCancel(ctx), b.version, "broker", javaOpts, b.properties)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(b.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	b.began = time.Now()
	started := make(chan error)
	end := make(chan struct{})
	go func() {
		// The death signal goes by the thread that has started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			b.cmd, b.end, b.killed = cmd, end, false
		}
		started <- err
		if err == nil {
			b.err = cmd.Wait()
			close(end)
		}
	}()
	return <-started
}

// LogFile is where the broker's output goes; a later start adds to it.
func (b *Broker) LogFile() string { return filepath.Join(b.Dir, "broker.log") }

// patience is how long a broker may take to start or to end: several Javas do so at
// once, maybe beside others. An end in order was seen to take 77 s on a busy machine.
const patience = 5 * time.Minute

// await waits for the first answer.
func (b *Broker) await(ctx context.Context) error {
	var last error
	for time.Since(b.began) < patience {
		if last = Answers(b.Addr); last == nil {
			b.Started = time.Since(b.began)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.end:
			return fmt.Errorf("broker of Apache Kafka ended at once, see %s: %w", b.LogFile(), b.err)
		case <-time.After(5 * time.Millisecond): // a port has no event to await
		}
	}
	return fmt.Errorf("no answer from Apache Kafka on %s within %v, see %s: %w", b.Addr, patience, b.LogFile(), last)
}

// Answers connects to a broker of any make and asks for its API versions: a port
// may be bound long before somebody serves it.
func Answers(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	// ApiVersions v0, correlation id 1, no client id.
	if _, err := conn.Write([]byte{0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff}); err != nil {
		return err
	}
	var head [10]byte // length, correlation id, error code
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if head[7] != 1 || head[8] != 0 || head[9] != 0 {
		return fmt.Errorf("unexpected answer % x", head)
	}
	return nil
}

// PID is the Java process.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Stop ends the broker in order and waits for it; its files stay. One that does
// not end within the time that a start may take is killed, and that is an error.
// Of one that Kill has ended it gives the ports back.
func (b *Broker) Stop() error {
	defer b.ports.Release()
	if b.cmd == nil {
		return nil
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.end:
	case <-time.After(patience):
		b.Kill()
		return fmt.Errorf("broker of Apache Kafka does not stop within %v, see %s", patience, b.LogFile())
	}
	if b.killed || EndedBySIGTERM(b.err) {
		return nil
	}
	return b.err
}

// EndedBySIGTERM says that Java has ended in order after a SIGTERM, which it
// reports by the status 143.
func EndedBySIGTERM(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 128+int(syscall.SIGTERM)
}

// Kill ends the broker by SIGKILL and waits until it is gone; its files stay.
func (b *Broker) Kill() {
	if b.cmd != nil {
		b.killed = true
		_ = b.cmd.Process.Kill()
		<-b.end
	}
}
