package apache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// InZooKeeper describes an Apache Kafka 3.9 broker in ZooKeeper mode: one that
// can stand beside ours in a cluster, or take turns with it over one folder.
type InZooKeeper struct {
	ID       int32
	Connect  string   // zookeeper.connect: host:port and chroot
	Port     int      // of its one plaintext listener; the caller keeps it reserved
	LogDirs  []string // log.dirs
	Home     string   // where its server.properties and broker.log go
	Settings []string // further lines of server.properties, which win
}

// Properties are the lines of server.properties; ours reads the same ones.
func (o InZooKeeper) Properties() []string {
	return append([]string{
		fmt.Sprintf("broker.id=%d", o.ID), "log.dirs=" + strings.Join(o.LogDirs, ","),
		fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:%d", o.Port),
		"zookeeper.connect=" + o.Connect, "zookeeper.session.timeout.ms=6000",
		"inter.broker.protocol.version=3.9", "group.initial.rebalance.delay.ms=0",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
	}, o.Settings...)
}

// Start runs the broker and waits until it answers. Kafka 3.9 gives up when a
// registration of its id is still there, so that one is waited for first.
func (o InZooKeeper) Start(ctx context.Context) (*Broker, error) {
	if err := awaitUnregistered(ctx, o.ID, o.Connect); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Home, 0o755); err != nil {
		return nil, err
	}
	b := &Broker{Dir: o.Home, Addr: fmt.Sprintf("127.0.0.1:%d", o.Port), version: V39, properties: filepath.Join(o.Home, "server.properties")}
	if err := os.WriteFile(b.properties, []byte(strings.Join(o.Properties(), "\n")+"\n"), 0o644); err != nil {
		return nil, err
	}
	err := b.launch(ctx, shortLived...)
	if err == nil {
		err = b.await(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// shortLived are Java's options for brokers that live for seconds or minutes: a
// small heap and the quick compiler. Of its logs Kafka tells at level info what it
// repairs.
var shortLived = []string{
	"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
	"-Dorg.slf4j.simpleLogger.showDateTime=true", "-Dorg.slf4j.simpleLogger.log.kafka.log=info",
	"-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage=info",
}

// ZooKeeperBroker is the command that runs a broker of Apache Kafka 3.9 with this
// server.properties, for a caller that keeps the process itself. It waits first
// until no broker of the id is registered: see Start.
func ZooKeeperBroker(ctx context.Context, id int32, connect, properties string) (*exec.Cmd, error) {
	if err := awaitUnregistered(ctx, id, connect); err != nil {
		return nil, err
	}
	return Tool(context.WithoutCancel(ctx), V39, "broker", shortLived, properties)
}

// awaitUnregistered waits until no broker of this id is registered: the session
// of one that was killed has to time out.
func awaitUnregistered(ctx context.Context, id int32, connect string) error {
	host, chroot, _ := strings.Cut(connect, "/")
	conn, _, err := zk.Connect(strings.Split(host, ","), 10*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		return err
	}
	defer conn.Close()
	path := fmt.Sprintf("/%s/brokers/ids/%d", chroot, id)
	if chroot == "" {
		path = fmt.Sprintf("/brokers/ids/%d", id)
	}
	for {
		there, _, changed, err := conn.ExistsW(path)
		if err != nil || !there {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still there: %w", path, ctx.Err())
		case <-changed:
		}
	}
}

// silent keeps the ZooKeeper client's chatter out of a test's output.
type silent struct{}

func (silent) Printf(string, ...any) {}
