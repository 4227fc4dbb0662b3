package brokertest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createOn makes a topic whose partitions are all on the given brokers, each in
// turn the preferred leader.
func (c *Cluster) createOn(topic string, partitions int, brokers []int32, configs ...string) {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for i := range partitions {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(i), rotated(brokers, i)
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = k, &v
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 30_000
	resp, err := req.RequestWith(context.Background(), c.Client())
	if err != nil || resp.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("creating %s: %v, %+v", topic, err, resp)
	}
}

func rotated(ids []int32, by int) []int32 {
	by %= len(ids)
	return append(append([]int32{}, ids[by:]...), ids[:by]...)
}

// moveTo asks for other brokers for all partitions of a topic.
func (c *Cluster) moveTo(topic string, partitions int, brokers []int32) {
	c.t.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	for i := range partitions {
		req.Assign(topic, int32(i), rotated(brokers, i))
	}
	Await(c.t, 30*time.Second, "the reassignment being taken", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		resp, err := kadm.NewClient(c.freshClient()).AlterPartitionAssignments(ctx, req)
		if err == nil {
			err = resp.Error()
		}
		return err
	})
}

// freshClient knows nothing of brokers that were killed.
func (c *Cluster) freshClient() *kgo.Client {
	var alive []string
	for _, n := range c.Brokers {
		if !n.ended() {
			alive = append(alive, n.Addr)
		}
	}
	return c.Client(kgo.SeedBrokers(alive...), kgo.RetryTimeout(5*time.Second))
}

// awaitMoved waits until no partition of the topic is under reassignment.
func (c *Cluster) awaitMoved(topic string) {
	c.t.Helper()
	Await(c.t, 90*time.Second, topic+" being moved", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		cl := c.freshClient()
		defer cl.Close()
		resp, err := kadm.NewClient(cl).ListPartitionReassignments(ctx, nil)
		if err == nil && len(resp) > 0 {
			err = fmt.Errorf("still under way: %v", resp.Sorted())
		}
		return err
	})
}

// gone waits until a broker has no files of a topic any more.
func (n *Node) gone(topic string) {
	n.c.t.Helper()
	Await(n.c.t, 30*time.Second, fmt.Sprintf("broker %d without %s", n.ID, topic), func() error {
		left, err := filepath.Glob(filepath.Join(n.LogDir, topic+"-?"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("it has %v", left)
		}
		return err
	})
}

// TestReassignmentUnderLoad moves every replica of a loaded topic from three brokers to
// three others and back, while the controller is killed. Nothing is lost, doubled or
// given up, and the files go with the replicas.
func TestReassignmentUnderLoad(t *testing.T) {
	const topic, partitions = "moving", 6
	c := Start(t, Options{Brokers: 6, Settings: []string{"replica.lag.time.max.ms=3000", "zookeeper.session.timeout.ms=2000", "log.segment.bytes=1048576"}})
	here, there := []int32{0, 1, 2}, []int32{3, 4, 5}
	c.createOn(topic, partitions, here, "min.insync.replicas=2")
	l := startLoad(c, topic)
	l.goesOn(2000, 30*time.Second)
	for round, way := range [][2][]int32{{here, there}, {there, here}} {
		c.moveTo(topic, partitions, way[1])
		if id := c.controller(); id >= 0 {
			t.Logf("round %d: killing the controller, broker %d", round, id)
			c.Brokers[id].Kill()
			l.goesOn(500, 30*time.Second)
			c.Brokers[id].Start()
		}
		c.awaitMoved(topic)
		l.goesOn(1000, 30*time.Second)
		for _, id := range way[0] {
			c.Brokers[id].gone(topic)
		}
		c.describe(topic, func(m *kmsg.MetadataResponse) {
			for _, p := range m.Topics[0].Partitions {
				if len(p.Replicas) != 3 || len(without(p.Replicas, way[1])) > 0 || len(without([]int32{p.Leader}, way[1])) > 0 {
					t.Errorf("round %d, partition %d: leader %d, replicas %v", round, p.Partition, p.Leader, p.Replicas)
				}
			}
		})
	}
	l.end(t)
}

func without(a, b []int32) []int32 {
	var out []int32
	for _, id := range a {
		found := false
		for _, other := range b {
			found = found || id == other
		}
		if !found {
			out = append(out, id)
		}
	}
	return out
}

// TestUncleanElectionIsSwitchedOnWhileOffline: a partition whose only replica in sync
// is gone gets a leader as soon as its topic allows it.
func TestUncleanElectionIsSwitchedOnWhileOffline(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"replica.lag.time.max.ms=1500", "zookeeper.session.timeout.ms=2000"}})
	c.createOn("t", 1, []int32{1, 2})
	inSync := func(want int) {
		t.Helper()
		Await(t, 30*time.Second, fmt.Sprint(want, " in sync"), func() error {
			have := -1
			c.describe("t", func(m *kmsg.MetadataResponse) { have = len(m.Topics[0].Partitions[0].ISR) })
			if have != want {
				return fmt.Errorf("%d are", have)
			}
			return nil
		})
	}
	c.Brokers[2].Kill()
	inSync(1)
	c.Brokers[1].Kill()
	c.Brokers[2].Start()
	Await(t, 30*time.Second, "nobody leading", func() error {
		leader := int32(1)
		c.describe("t", func(m *kmsg.MetadataResponse) { leader = m.Topics[0].Partitions[0].Leader })
		if leader == 2 {
			t.Fatal("a replica that is not in sync leads")
		}
		if leader != -1 {
			return fmt.Errorf("%d leads", leader)
		}
		return nil
	})
	value := "true"
	cl := kadm.NewClient(c.freshClient())
	resp, err := cl.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Name: "unclean.leader.election.enable", Value: &value}}, "t")
	if err != nil || resp[0].Err != nil {
		t.Fatal(err, resp)
	}
	if id := c.awaitLeader("t", 0, -1); id != 2 {
		t.Fatalf("%d leads", id)
	}
	c.Brokers[1].Start()
	inSync(2)
	results, err := cl.ElectLeaders(context.Background(), kadm.ElectPreferredReplica, kadm.TopicsSet{"t": {0: {}}})
	if err != nil || results["t"][0].Err != nil {
		t.Fatal(err, results)
	}
	if id := c.leader("t", 0); id != 1 {
		t.Fatalf("%d leads after the preferred election", id)
	}
}
