package brokertest

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	failovers    = flag.Int("failovers", 4, "kills of each kind in TestFailover")
	failoverGap  = flag.Duration("failover.gap", 15*time.Second, "bound on the time between two acknowledged produces of a partition whose leader is killed; 500ms on a quiet machine")
	failoverLead = flag.Duration("failover.lead", 15*time.Second, "bound on the time from the kill to the first acknowledged produce at a new leader; 300ms on a quiet machine")
	steadyGap    = flag.Duration("failover.steady", 10*time.Second, "bound on the time between two acknowledged produces of a partition that a kill should not touch; 100ms on a quiet machine")
)

// pulse produces to each partition one record after the other, a few milliseconds
// apart, and keeps the time.
type pulse struct {
	ledger
	c     *Cluster
	topic string
	stop  context.CancelFunc
	done  sync.WaitGroup
	mark  time.Time
	paces []pace // by partition
}

type pace struct {
	last  time.Time     // acknowledged
	gap   time.Duration // the longest since the mark between two acknowledgements
	first time.Time     // acknowledgement of a record that was produced after the mark
}

// startPulse takes a client that asks and tries again quickly: what is measured is
// the cluster, and not a client's patience.
func startPulse(c *Cluster, topic string, partitions int) *pulse {
	p := &pulse{c: c, topic: topic, paces: make([]pace, partitions)}
	p.acked = map[string]bool{}
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(2*time.Minute), kgo.MetadataMinAge(20*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	c.t.Cleanup(cancel)
	for i := range partitions {
		p.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p.mu.Lock()
				p.sent++
				p.mu.Unlock()
				v, began := fmt.Sprintf("%d/%09d", i, n), time.Now()
				r := &kgo.Record{Partition: int32(i), Key: fmt.Append(nil, i), Value: []byte(v)}
				if err := cl.ProduceSync(context.Background(), r).FirstErr(); err != nil {
					c.t.Errorf("record %s was given up: %v", v, err)
					return
				}
				p.ack(i, v, began)
				time.Sleep(2 * time.Millisecond) // a steady load, not a flood
			}
		})
	}
	return p
}

func (p *pulse) ack(partition int, v string, began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked[v] = true
	now, b := time.Now(), &p.paces[partition]
	if !b.last.IsZero() {
		b.gap = max(b.gap, now.Sub(b.last))
	}
	if b.first.IsZero() && began.After(p.mark) {
		b.first = now
	}
	b.last = now
}

// measureFrom starts anew with what is measured.
func (p *pulse) measureFrom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.paces {
		p.paces[i].gap = 0
	}
	p.awaitLocked()
}

// awaitFromNow has measured wait for records that are produced from now on.
func (p *pulse) awaitFromNow() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaitLocked()
}

func (p *pulse) awaitLocked() {
	p.mark = time.Now()
	for i := range p.paces {
		p.paces[i].first = time.Time{}
	}
}

// measured waits until every partition has acknowledged something produced after
// the mark, and gives what was measured.
func (p *pulse) measured(within time.Duration) []pace {
	p.c.t.Helper()
	var got []pace
	Await(p.c.t, within, "an acknowledged record in each partition", func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, b := range p.paces {
			if b.first.IsZero() {
				return fmt.Errorf("partition %d has none", i)
			}
		}
		got = slices.Clone(p.paces)
		return nil
	})
	return got
}

// leaders are those of the topic's partitions.
func (c *Cluster) leaders(topic string) map[int32]int32 {
	got := map[int32]int32{}
	c.describe(topic, func(m *kmsg.MetadataResponse) {
		for _, p := range m.Topics[0].Partitions {
			got[p.Partition] = p.Leader
		}
	})
	return got
}

// A supervised broker is killed while it leads. Its partitions have new leaders long
// before its session would have timed out; nothing that was acknowledged is lost.
func TestFailoverOfAKilledLeaderDoesNotWaitForItsSession(t *testing.T) {
	const topic, partitions = "pulse", 6
	c := Start(t, Options{Brokers: 3, Supervised: true, Settings: []string{"zookeeper.session.timeout.ms=60000", "auto.leader.rebalance.enable=false"}})
	c.CreateTopic(topic, partitions, 3, "min.insync.replicas=2")
	p := startPulse(c, topic, partitions)
	p.measured(30 * time.Second)

	var gap, lead, slowest time.Duration
	for round := range *failovers {
		leaders, controller := c.leaders(topic), c.controller()
		victim := c.Brokers[leaders[int32(round%partitions)]]
		p.measureFrom()
		killed := victim.KillProcess()
		p.awaitFromNow() // what is produced from here on cannot reach the killed one
		var worst, fastest, last, followed time.Duration
		for i, b := range p.measured(time.Minute) {
			if leaders[int32(i)] != victim.ID { // these wait until it is out of the in-sync set
				followed = max(followed, b.gap)
				continue
			}
			worst, last = max(worst, b.gap), max(last, b.first.Sub(killed))
			if d := b.first.Sub(killed); fastest == 0 || d < fastest {
				fastest = d
			}
		}
		t.Logf("round %d: broker %d (controller %d) killed: new leaders acknowledged after %v to %v, longest gap of its partitions %v, of others %v",
			round, victim.ID, controller, fastest.Round(time.Millisecond), last.Round(time.Millisecond), worst.Round(time.Millisecond), followed.Round(time.Millisecond))
		gap, lead, slowest = max(gap, worst, followed), max(lead, fastest), max(slowest, last)
		victim.Restart()
		c.AwaitWhole(topic, time.Minute)
	}
	t.Logf("%d kills: first acknowledgement of a new leader after at most %v, of the slowest partition %v; longest gap %v",
		*failovers, lead.Round(time.Millisecond), slowest.Round(time.Millisecond), gap.Round(time.Millisecond))
	if gap > *failoverGap {
		t.Errorf("longest gap %v, want at most %v", gap, *failoverGap)
	}
	if lead > *failoverLead {
		t.Errorf("a new leader acknowledged after %v, want at most %v", lead, *failoverLead)
	}
	p.stop()
	p.done.Wait()
	verify(t, c, topic, &p.ledger)
	c.sameLogs(topic)
}

// The controller is killed, and nobody who produces notices: the partitions that it
// has no replica of go on, and its successor does what was left undone.
func TestFailoverOfAKilledControllerStopsNoProducer(t *testing.T) {
	const partitions = 6
	c := Start(t, Options{Brokers: 4, Supervised: true, Settings: []string{"zookeeper.session.timeout.ms=60000", "auto.leader.rebalance.enable=false"}})
	var longest, slowest time.Duration
	for round := range *failovers {
		victim := c.Brokers[c.controller()]
		topic := fmt.Sprintf("steady-%d", round)
		c.createOnOthers(topic, partitions, victim.ID)
		p := startPulse(c, topic, partitions)
		p.measured(30 * time.Second)
		p.measureFrom()
		killed := victim.KillProcess()
		// A topic can be made again as soon as there is a controller.
		c.CreateTopic(topic+"-next", 1, 3)
		office := time.Since(killed)
		p.awaitFromNow()
		var gap time.Duration
		for _, b := range p.measured(time.Minute) {
			gap = max(gap, b.gap)
		}
		t.Logf("round %d: controller %d killed: longest time between two acknowledgements %v; the next controller made a topic after %v",
			round, victim.ID, gap.Round(time.Millisecond), office.Round(time.Millisecond))
		longest, slowest = max(longest, gap), max(slowest, office)
		p.stop()
		p.done.Wait()
		victim.Restart()
		verify(t, c, topic, &p.ledger)
		c.sameLogs(topic)
	}
	t.Logf("%d kills: longest time between two acknowledgements %v, until the next controller made a topic %v",
		*failovers, longest.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if longest > *steadyGap {
		t.Errorf("longest time between two acknowledgements %v, want at most %v", longest, *steadyGap)
	}
}

// createOnOthers makes a topic with three replicas a partition, none of them on the
// broker that is not to have any, and leaders in turns.
func (c *Cluster) createOnOthers(topic string, partitions int, not int32) {
	c.t.Helper()
	var others []int32
	for _, n := range c.Brokers {
		if n.ID != not {
			others = append(others, n.ID)
		}
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 30_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for i := range partitions {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition = int32(i)
		for j := range 3 {
			a.Replicas = append(a.Replicas, others[(i+j)%len(others)])
		}
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, rt)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, c.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		c.t.Fatalf("creating topic %s: %v", topic, err)
	}
}
