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
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
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
	"dump-log":         {V44: "org.apache.kafka.tools.DumpLogSegments", V39: "kafka.tools.DumpLogSegments"},
	"console-producer": {V44: "org.apache.kafka.tools.ConsoleProducer", V39: "kafka.tools.ConsoleProducer"},
	"console-consumer": {V44: "org.apache.kafka.tools.consumer.ConsoleConsumer", V39: "org.apache.kafka.tools.consumer.ConsoleConsumer"},
	"format":           {V44: "kafka.tools.StorageTool", V39: "kafka.tools.StorageTool"},
	"broker":           {V44: "kafka.Kafka", V39: "kafka.Kafka"},
	"producer-perf":    {V44: "org.apache.kafka.tools.ProducerPerformance", V39: "org.apache.kafka.tools.ProducerPerformance"},
	"topics":           {V44: "org.apache.kafka.tools.TopicCommand", V39: "org.apache.kafka.tools.TopicCommand"},
	"groups":           {V44: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", V39: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"},
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

// Broker is a running single-node Apache Kafka 4.4 in KRaft mode.
type Broker struct {
	Addr    string
	Dir     string
	Started time.Duration // from exec to the first answer on the port
	cmd     *exec.Cmd
}

// Start formats dir and starts one broker in it, with a heap of 1 GiB as
// Kafka's own start script sets it, and waits until it answers. settings are
// further lines of server.properties.
func Start(ctx context.Context, dir string, settings ...string) (*Broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	ctrl, err := freePort()
	if err != nil {
		return nil, err
	}
	lines := append([]string{
		"process.roles=broker,controller", "node.id=1",
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, ctrl),
		fmt.Sprintf("advertised.listeners=PLAINTEXT://127.0.0.1:%d", port),
		"controller.listener.names=CONTROLLER", fmt.Sprintf("controller.quorum.voters=1@127.0.0.1:%d", ctrl),
		"log.dirs=" + filepath.Join(dir, "data"),
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
		"share.coordinator.state.topic.replication.factor=1", "share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
	}, settings...)
	props := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(props, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	format, err := Tool(ctx, V44, "format", nil, "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", props)
	if err != nil {
		return nil, err
	}
	if out, err := format.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("formatting Apache Kafka: %w\n%s", err, out)
	}
	heap := []string{"-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}
	cmd, err := Tool(ctx, V44, "broker", heap, props)
	if err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "broker.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	b := &Broker{Addr: fmt.Sprintf("127.0.0.1:%d", port), Dir: dir, cmd: cmd}
	for time.Since(began) < time.Minute {
		if conn, err := net.DialTimeout("tcp", b.Addr, time.Second); err == nil {
			conn.Close()
			b.Started = time.Since(began)
			return b, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), b.Stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("Apache Kafka did not answer on %s within a minute, see %s", b.Addr, out.Name()), b.Stop())
}

// PID is the Java process.
func (b *Broker) PID() int { return b.cmd.Process.Pid }

// Stop ends the broker and waits for it; its files stay.
func (b *Broker) Stop() error {
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(20*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	err := b.cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) { // 143: ended by our own signal
		return nil
	}
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
