//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// consumers is a group of two that reads a topic all the while, commits what it has
// read, and keeps count of it.
type consumers struct {
	t    *testing.T
	mu   sync.Mutex
	seen map[string]int
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func startConsumers(c *Cluster, t *testing.T, group, topic string) *consumers {
	r := &consumers{t: t, seen: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	t.Cleanup(stop)
	for range 2 {
		cl := c.Client(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(2*time.Second))
		r.wg.Go(func() {
			defer cl.Close()
			for ctx.Err() == nil {
				f := cl.PollRecords(ctx, 2000)
				if f.IsClientClosed() {
					return
				}
				r.mu.Lock()
				f.EachRecord(func(rec *kgo.Record) { r.seen[string(rec.Value)]++ })
				r.mu.Unlock()
				if ctx.Err() == nil {
					f.EachError(func(topic string, p int32, err error) { t.Errorf("consuming %s-%d: %v", topic, p, err) })
					commit, cancel := context.WithTimeout(ctx, 30*time.Second)
					if err := cl.CommitUncommittedOffsets(commit); err != nil && ctx.Err() == nil {
						t.Logf("a commit failed: %v", err)
					}
					cancel()
				}
				cl.AllowRebalance()
			}
		})
	}
	return r
}

// all waits until the group has read all that was acknowledged, and ends it.
func (r *consumers) all(l *ledger) {
	r.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	Await(r.t, 2*time.Minute, "the group has read everything", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		missing := 0
		for v := range l.acked {
			if r.seen[v] == 0 {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d are missing", missing, len(l.acked))
		}
		return nil
	})
	r.stop()
	r.wg.Wait()
	again := 0
	for _, n := range r.seen {
		again += n - 1
	}
	r.t.Logf("the group has read all %d acknowledged records, %d of them again after a rebalance", len(l.acked), again)
}

// gone waits until nothing of a topic is left in a broker's folder.
func (c *Cluster) gone(id int32, topic string) {
	c.t.Helper()
	Await(c.t, time.Minute, fmt.Sprintf("nothing of %s on broker %d (%s)", topic, id, c.maker(id)), func() error {
		left, err := filepath.Glob(filepath.Join(c.Brokers[id].LogDir, topic+"-*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v", left)
		}
		return err
	})
}

// TestMixedMigration is docs/migrate-from-kafka.md: a cluster of Apache Kafka gets
// brokers of ours, all replicas move to them, and Kafka's brokers are stopped for
// good; then the way back. An idempotent acks=all producer and a consumer group work
// all the while; neither sees an error, nothing is lost, doubled or out of order.
func TestMixedMigration(t *testing.T) {
	c := startMixed(t, 3, 3, "offsets.topic.num.partitions=2", "log.segment.delete.delay.ms=1000")
	ours, theirs := c.of(penstock), c.of(kafka)
	c.control(kafka)
	for _, id := range ours { // what the cluster was before
		c.Brokers[id].Stop()
	}
	const topic = "orders"
	c.assign(topic, [][]int32{{3, 4, 5}, {4, 5, 3}, {5, 3, 4}, {3, 5, 4}}, "min.insync.replicas=2")
	c.assign("java", [][]int32{{3, 4, 5}, {4, 5, 3}}, "min.insync.replicas=2")
	topics := map[string]int32{topic: 4, "java": 2, "__consumer_offsets": 2}
	l := startLoad(c, topic)
	group := startConsumers(c, t, "billing", topic)
	java := startJava(c, t, apache.V44, "java")
	goOn := func() {
		t.Helper()
		l.goesOn(1000, time.Minute)
		java.goesOn(100)
	}
	goOn()

	there := func(controller make_, from, to []int32) {
		t.Helper()
		for _, id := range to {
			c.Brokers[id].Start()
		}
		t.Logf("brokers %v have joined", to)
		goOn()
		c.control(controller)
		c.move(apache.V39, to, topics)
		t.Logf("all replicas are on %v", to)
		for _, id := range from {
			for name := range topics {
				c.gone(id, name)
			}
		}
		goOn()
		for _, id := range from {
			c.Brokers[id].Stop()
			t.Logf("broker %d has left", id)
			goOn()
		}
	}
	there(kafka, theirs, ours)
	there(penstock, ours, theirs)
	java.end()
	l.end(t)
	group.all(&l.ledger)
	c.understood()
}
