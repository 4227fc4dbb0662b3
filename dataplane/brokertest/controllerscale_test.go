package brokertest

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	movedPartitions = flag.Int("moved.partitions", 600, "partitions in TestLeadersOfManyPartitionsMoveAtOnce")
	movedWithin     = flag.Duration("moved.within", time.Minute, "how soon after the notice of a broker's death all of its partitions must be led by others in TestLeadersOfManyPartitionsMoveAtOnce; 2s on a quiet machine")
)

// TestLeadersOfManyPartitionsMoveAtOnce: all partitions of a set of topics on three
// brokers, one of which dies, and then, with its successor in office, the controller. The
// time counts from the end of the broker's session until each partition's new
// leader serves it and every broker names that leader.
func TestLeadersOfManyPartitionsMoveAtOnce(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Proxies: true, Settings: []string{
		"zookeeper.session.timeout.ms=30000", "auto.leader.rebalance.enable=false",
	}})
	const each = 100
	topics := max(1, *movedPartitions/each)
	req := createOf()
	req.TimeoutMillis = 120_000
	for i := range topics {
		req.Topics = append(req.Topics, newTopic(fmt.Sprintf("many-%03d", i), each, 3))
	}
	ctl := c.controller()
	began := time.Now()
	for _, rt := range ask[*kmsg.CreateTopicsResponse](dialBroker(t, c.Brokers[ctl].Addr), req).Topics {
		wantCode(t, "creating "+rt.Topic, rt.ErrorCode, nil)
	}
	t.Logf("%d partitions created in %v", topics*each, time.Since(began))
	c.awaitAllLed(topics*each, -1)
	t.Logf("each served after %v", time.Since(began))

	kill := func(what string, id int32) {
		n := c.Brokers[id]
		n.Kill()
		n.ZK.Expire(t)
		began := time.Now()
		c.awaitAllLed(topics*each, id)
		took := time.Since(began)
		t.Logf("%s: all %d partitions led by others after %v", what, topics*each, took)
		if took > *movedWithin {
			t.Errorf("%s: more than %v", what, *movedWithin)
		}
	}
	follower := (ctl + 1) % 3
	kill("a broker that is not the controller", follower)
	c.Brokers[follower].Start()
	for i := range topics {
		c.AwaitWhole(fmt.Sprintf("many-%03d", i), 5*time.Minute)
	}
	kill("the controller", ctl)
}

// awaitAllLed waits until every broker but one names leaders other than it for
// that many partitions, and these leaders serve them.
func (c *Cluster) awaitAllLed(partitions int, not int32) {
	t := c.t.(*testing.T)
	t.Helper()
	var led map[int32]map[string][]int32
	for _, n := range c.Brokers {
		if n.ID == not {
			continue
		}
		all := metadataFor(12)
		all.Topics = nil
		Await(t, 5*time.Minute, fmt.Sprintf("leaders as broker %d knows them", n.ID), func() error {
			led = map[int32]map[string][]int32{}
			found := 0
			for _, rt := range ask[*kmsg.MetadataResponse](dialBroker(t, n.Addr), all).Topics {
				for _, p := range rt.Partitions {
					if p.Leader < 0 || p.Leader == not {
						return fmt.Errorf("%s-%d is led by %d", *rt.Topic, p.Partition, p.Leader)
					}
					if led[p.Leader] == nil {
						led[p.Leader] = map[string][]int32{}
					}
					led[p.Leader][*rt.Topic] = append(led[p.Leader][*rt.Topic], p.Partition)
					found++
				}
			}
			if found < partitions {
				return fmt.Errorf("%d partitions", found)
			}
			return nil
		})
	}
	for id, topics := range led {
		req := at(kmsg.NewPtrListOffsetsRequest(), 7)
		req.ReplicaID = -1
		for topic, parts := range topics {
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = topic
			for _, p := range parts {
				rp := kmsg.NewListOffsetsRequestTopicPartition()
				rp.Partition, rp.Timestamp = p, -1
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		Await(t, 5*time.Minute, fmt.Sprintf("broker %d leading", id), func() error {
			for _, rt := range ask[*kmsg.ListOffsetsResponse](dialBroker(t, c.Brokers[id].Addr), req).Topics {
				for _, p := range rt.Partitions {
					if p.ErrorCode != 0 {
						return fmt.Errorf("%s-%d: %w", rt.Topic, p.Partition, kerr.ErrorForCode(p.ErrorCode))
					}
				}
			}
			return nil
		})
	}
}
