//go:build compat

package brokertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// mixedSettings are server.properties of both makes in a mixed cluster.
var mixedSettings = []string{
	"zookeeper.session.timeout.ms=6000", "replica.lag.time.max.ms=5000", "auto.create.topics.enable=false",
	"auto.leader.rebalance.enable=false", "controlled.shutdown.retry.backoff.ms=500",
	"num.network.threads=2", "num.io.threads=4", "num.recovery.threads.per.data.dir=2",
	"transaction.state.log.num.partitions=2", "transaction.state.log.replication.factor=2", "transaction.state.log.min.isr=1",
	"log.cleaner.dedupe.buffer.size=4194304", "log.cleaner.io.buffer.size=65536",
}

// startMixed brings up a cluster of brokers of ours, then brokers of Apache Kafka.
func startMixed(t *testing.T, ours, kafkas int, settings ...string) *Cluster {
	t.Helper()
	began := time.Now()
	c := Start(t, Options{Brokers: ours + kafkas, Apache: kafkas, Settings: append(slices.Clone(mixedSettings), settings...)})
	t.Logf("%d brokers of ours and %d of Apache Kafka after %v", ours, kafkas, time.Since(began).Round(100*time.Millisecond))
	return c
}

// maker is who made the broker of this id.
func (c *Cluster) maker(id int32) make_ {
	switch {
	case id < 0:
		return nobody
	case c.Brokers[id].Apache:
		return kafka
	}
	return penstock
}

// of lists the ids of the brokers of one make.
func (c *Cluster) of(m make_) (ids []int32) {
	for _, n := range c.Brokers {
		if c.maker(n.ID) == m {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// zkClient is a session of the test's own.
func (c *Cluster) zkClient() *zk.Conn {
	c.t.Helper()
	conn, _, err := zk.Connect([]string{c.ZK.Addr()}, 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(conn.Close)
	return conn
}

// control hands the controller's office to a broker of that make: its znode is
// deleted, as an operator does, while the brokers of the other make are frozen.
// It returns when every broker knows.
func (c *Cluster) control(m make_) {
	c.t.Helper()
	conn := c.zkClient()
	defer conn.Close()
	path := c.chroot + coordination.ControllerPath
	inOffice := func() int32 {
		b, _, err := conn.Get(path)
		if err != nil {
			return -1
		}
		var z struct {
			BrokerID int32 `json:"brokerid"`
		}
		if err := json.Unmarshal(b, &z); err != nil {
			c.t.Fatalf("%s holds %s: %v", path, b, err)
		}
		return z.BrokerID
	}
	if now := inOffice(); c.maker(now) != m {
		for _, n := range c.Brokers {
			if c.maker(n.ID) != m && !n.ended() {
				n.freeze()
			}
		}
		if err := conn.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			c.t.Error(err)
		}
		Await(c.t, 20*time.Second, fmt.Sprint(m, " in office"), func() error {
			if now = inOffice(); c.maker(now) != m {
				return fmt.Errorf("broker %d is", now)
			}
			return nil
		})
		for _, n := range c.Brokers {
			if n.frozen {
				n.thaw()
			}
		}
	}
	c.each(func(n *Node, cl *kgo.Client) {
		Await(c.t, time.Minute, fmt.Sprintf("broker %d knowing that %s is in control", n.ID, m), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			resp, err := metadataFor(12).RequestWith(ctx, cl.SeedBrokers()[0])
			if err == nil && c.maker(resp.ControllerID) != m {
				err = fmt.Errorf("it says %d", resp.ControllerID)
			}
			return err
		})
	})
}

// each runs f for every broker that runs, with a client to be used for it only.
func (c *Cluster) each(f func(*Node, *kgo.Client)) {
	c.t.Helper()
	for _, n := range c.Brokers {
		if n.ended() {
			continue
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr))
		if err != nil {
			c.t.Fatal(err)
		}
		f(n, cl)
		cl.Close()
	}
}

// assign makes a topic with these replicas of each partition, the leader first.
func (c *Cluster) assign(topic string, replicas [][]int32, configs ...string) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for i, ids := range replicas {
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: ids})
	}
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 30_000
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		c.t.Fatalf("creating %s: %v", topic, err)
	}
	c.awaitShape(topic, replicas)
}

// awaitShape waits until every broker describes the topic with these replicas, all
// in sync, and the first of each leading.
func (c *Cluster) awaitShape(topic string, replicas [][]int32) {
	c.t.Helper()
	c.each(func(n *Node, cl *kgo.Client) {
		Await(c.t, 2*time.Minute, fmt.Sprintf("%s on broker %d (%s)", topic, n.ID, c.maker(n.ID)), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			resp, err := metadataFor(12, &topic).RequestWith(ctx, cl.SeedBrokers()[0])
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
				return err
			}
			if have := len(resp.Topics[0].Partitions); have != len(replicas) {
				return fmt.Errorf("%d partitions", have)
			}
			for _, p := range resp.Topics[0].Partitions {
				want := replicas[p.Partition]
				if p.ErrorCode != 0 || p.Leader != want[0] || !slices.Equal(p.Replicas, want) || len(p.ISR) != len(want) {
					return fmt.Errorf("partition %d: leader %d, ISR %v of %v, wanted %v, %v", p.Partition, p.Leader, p.ISR, p.Replicas, want, kerr.ErrorForCode(p.ErrorCode))
				}
			}
			return nil
		})
	})
}

// misunderstandings are what either make says when it cannot read the other's
// bytes, or is told what cannot be.
var misunderstandings = map[make_][]string{
	kafka: {
		"Unexpected error", "Error processing", "InvalidRequestException", "SchemaException", "Uncaught", "Error for partition", "Error due to", "fatal error",
		"Invalid message", "CorruptRecordException", "UnsupportedVersionException", "Failed to update ISR",
	},
	penstock: {"refused StopReplica", "refused LeaderAndIsr", "panic", "fetch response", "epoch=-", "level=ERROR"},
}

// understood fails the test for every misunderstanding in the brokers' logs. What an
// old controller still said when it was replaced is none.
func (c *Cluster) understood() {
	c.t.Helper()
	for _, n := range c.Brokers {
		b, err := os.ReadFile(n.logFile())
		if err != nil {
			c.t.Fatal(err)
		}
		if dir := os.Getenv("MIXED_LOGS"); dir != "" {
			_ = os.WriteFile(fmt.Sprintf("%s/broker-%d.log", dir, n.ID), b, 0o644)
		}
		lines := strings.Split(string(b), "\n")
		said := 0
		for i, line := range lines {
			if strings.Contains(line, "STALE_CONTROLLER_EPOCH") || i+1 < len(lines) && strings.Contains(lines[i+1], "ControllerMovedException") {
				continue
			}
			if slices.ContainsFunc(misunderstandings[c.maker(n.ID)], func(w string) bool { return strings.Contains(line, w) }) {
				if said++; said <= 5 {
					c.t.Errorf("broker %d (%s): %.600s", n.ID, c.maker(n.ID), line)
				}
			}
		}
	}
}
