//go:build compat

package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination"
)

// admin is an admin client for whichever broker is up.
func (c *Cluster) admin() *kadm.Client { return kadm.NewClient(c.Client()) }

// put writes n records to each partition and returns when all replicas in sync
// have them.
func (c *Cluster) put(topic string, partitions int32, n int) {
	c.t.Helper()
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for p := range partitions {
		for i := range n {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: fmt.Append(nil, p, "/", i)}).FirstErr(); err != nil {
				c.t.Fatalf("record %d of %s-%d: %v", i, topic, p, err)
			}
		}
	}
}

// offsets waits until every partition of a topic starts and ends at these offsets.
func (c *Cluster) offsets(topic string, partitions int32, start, end int64) {
	c.t.Helper()
	adm := c.admin()
	Await(c.t, 30*time.Second, fmt.Sprintf("%s from %d to %d", topic, start, end), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		starts, err := adm.ListStartOffsets(ctx, topic)
		if err == nil {
			err = starts.Error()
		}
		if err != nil {
			return err
		}
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err == nil {
			err = ends.Error()
		}
		if err != nil {
			return err
		}
		for p := range partitions {
			s, _ := starts.Lookup(topic, p)
			e, _ := ends.Lookup(topic, p)
			if s.Offset != start || e.Offset != end {
				return fmt.Errorf("partition %d goes from %d to %d", p, s.Offset, e.Offset)
			}
		}
		return nil
	})
}

// unknown waits until no broker knows the topic any more.
func (c *Cluster) unknown(topic string) {
	c.t.Helper()
	c.each(func(n *Node, cl *kgo.Client) {
		Await(c.t, time.Minute, fmt.Sprintf("broker %d (%s) forgetting %s", n.ID, c.maker(n.ID), topic), func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			resp, err := metadataFor(12, &topic).RequestWith(ctx, cl.SeedBrokers()[0])
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); !errors.Is(err, kerr.UnknownTopicOrPartition) {
				return fmt.Errorf("it says %v", err)
			}
			return nil
		})
	})
}

// TestMixedTopics takes topics through their lives under controllers of both makes:
// grown, configured, their records deleted, deleted and made anew, also while a
// broker is down and under a controller of the other make than began.
func TestMixedTopics(t *testing.T) {
	c := startMixed(t, 2, 2, "log.segment.delete.delay.ms=1000", "log.retention.check.interval.ms=1000")
	for _, m := range []make_{penstock, kafka} {
		other := penstock + kafka - m
		who := strings.ToLower(m.String())
		if t.Failed() {
			break
		}
		t.Run(m.String()+" controls", func(t *testing.T) {
			c.t = t
			c.control(m)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			adm := c.admin()
			step := func(name string, f func(t *testing.T)) {
				if !t.Failed() { // it may have left a broker down
					t.Run(name, f)
				}
			}
			step("growth", func(t *testing.T) {
				c.t = t
				topic := "grown-" + who
				c.assign(topic, [][]int32{{0, 2}})
				c.put(topic, 1, 10)
				if out := c.mustTool(apache.V39, "topics", "--alter", "--topic", topic, "--partitions", "3", "--replica-assignment", "0:2,2:1,1:3"); out != "" {
					t.Errorf("topics --alter says:\n%s", out)
				}
				c.awaitShape(topic, [][]int32{{0, 2}, {2, 1}, {1, 3}})
				c.put(topic, 3, 10)
				c.sameLogs(topic)
			})
			step("configs", func(t *testing.T) {
				c.t = t
				topic := "configs-" + who
				c.assign(topic, mixedRoles)
				value := "500"
				rs, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &value}}, topic)
				if err != nil || rs[0].Err != nil {
					t.Fatal(err, rs)
				}
				// What either make says it has, and what it does.
				c.each(func(n *Node, cl *kgo.Client) {
					rcs, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topic)
					if err != nil || rcs[0].Err != nil {
						t.Fatal(err, rcs)
					}
					i := slices.IndexFunc(rcs[0].Configs, func(k kadm.Config) bool { return k.Key == "max.message.bytes" })
					if i < 0 || *rcs[0].Configs[i].Value != value {
						t.Errorf("broker %d (%s) says %+v", n.ID, c.maker(n.ID), rcs[0].Configs)
					}
				})
				cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
				for p, replicas := range mixedRoles {
					Await(t, 20*time.Second, fmt.Sprintf("the bound of %s-%d, led by %s", topic, p, c.maker(replicas[0])), func() error {
						err := cl.ProduceSync(ctx, &kgo.Record{Partition: int32(p), Value: make([]byte, 1000)}).FirstErr()
						if !errors.Is(err, kerr.MessageTooLarge) {
							return fmt.Errorf("1,000 bytes: %w", errors.Join(err, errors.New("not refused as too large")))
						}
						return nil
					})
				}
			})
			step("records deleted", func(t *testing.T) {
				c.t = t
				topic := "shortened-" + who
				c.assign(topic, mixedRoles)
				c.put(topic, 4, 20)
				var upTo kadm.Offsets
				for p := range int32(4) {
					upTo.Add(kadm.Offset{Topic: topic, Partition: p, At: 7})
				}
				rs, err := adm.DeleteRecords(ctx, upTo)
				if err == nil {
					err = rs.Error()
				}
				if err != nil {
					t.Fatal(err)
				}
				c.offsets(topic, 4, 7, 20)
				for _, id := range []int32{0, 2} { // the followers say what they have, as leaders
					c.Brokers[id].Stop()
					c.offsets(topic, 4, 7, 20)
					c.Brokers[id].Start()
					c.AwaitWhole(topic, time.Minute)
				}
				c.control(m)
			})
			step("deletion", func(t *testing.T) {
				c.t = t
				topic := "deleted-" + who
				for range 2 { // the second is of the same name and another id
					c.assign(topic, mixedTriples)
					c.put(topic, 4, 10)
					c.offsets(topic, 4, 0, 10)
					if rs, err := adm.DeleteTopics(ctx, topic); err != nil || rs.Error() != nil {
						t.Fatal(err, rs)
					}
					c.unknown(topic)
					for _, n := range c.Brokers {
						c.gone(n.ID, topic)
					}
				}
			})
			for _, down := range []int32{1, 3} {
				step(fmt.Sprintf("deletion without %s's broker %d, finished by another controller", c.maker(down), down), func(t *testing.T) {
					c.t = t
					topic := fmt.Sprintf("deleted-without-%d-%s", down, who)
					c.assign(topic, mixedTriples)
					c.put(topic, 4, 10)
					c.Brokers[down].Stop()
					c.control(m)
					if rs, err := adm.DeleteTopics(ctx, topic); err != nil || rs.Error() != nil {
						t.Fatal(err, rs)
					}
					c.control(other)
					c.Brokers[down].Start()
					c.unknown(topic)
					for _, n := range c.Brokers {
						c.gone(n.ID, topic)
					}
					zk := c.zkClient()
					Await(t, 30*time.Second, "the znode of "+topic+" going", func() error {
						there, _, err := zk.Exists(c.chroot + coordination.TopicPath(topic))
						if err == nil && there {
							err = errors.New("it is there")
						}
						return err
					})
					c.assign(topic, mixedTriples)
					c.put(topic, 4, 5)
					c.offsets(topic, 4, 0, 5)
					c.control(m)
				})
			}
			c.t = t
			c.understood()
		})
	}
}
