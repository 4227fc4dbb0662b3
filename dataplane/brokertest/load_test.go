package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// load is a steady idempotent acks=all producer that keeps a ledger.
type load struct {
	ledger
	c      *Cluster
	topic  string
	cl     *kgo.Client
	stop   context.CancelFunc
	done   chan struct{}
	last   time.Time     // of the latest answer
	gap    time.Duration // the longest time without an answer
	failed int
}

// startLoad produces until stopped. A record that is given up fails the test.
func startLoad(c *Cluster, topic string) *load {
	l := &load{c: c, topic: topic, done: make(chan struct{}), last: time.Now()}
	l.acked = map[string]bool{}
	l.cl = c.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond), kgo.RecordDeliveryTimeout(2*time.Minute), kgo.ProducerBatchMaxBytes(20_000),
		kgo.ProduceRequestTimeout(5*time.Second), kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(2*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	c.t.Cleanup(cancel)
	go func() {
		defer close(l.done)
		const keys = 8
		for i := 0; ctx.Err() == nil; i++ {
			v := fmt.Sprintf("%d/%09d", i%keys, i)
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
			l.cl.Produce(context.Background(), &kgo.Record{Key: fmt.Appendf(nil, "%d", i%keys), Value: []byte(v)}, func(_ *kgo.Record, err error) {
				l.mu.Lock()
				defer l.mu.Unlock()
				if err != nil {
					if l.failed++; l.failed == 1 {
						c.t.Errorf("record %s was given up: %v", v, err)
					}
					return
				}
				l.acked[v] = true
				now := time.Now()
				l.gap = max(l.gap, now.Sub(l.last))
				l.last = now
			})
			if i%10 == 0 {
				time.Sleep(time.Millisecond) // a steady load, not a flood
			}
		}
	}()
	return l
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// goesOn waits until n more records are acknowledged.
func (l *load) goesOn(n int, within time.Duration) {
	l.c.t.Helper()
	want := l.count() + n
	Await(l.c.t, within, fmt.Sprint(n, " more records"), func() error {
		if have := l.count(); have < want {
			return fmt.Errorf("%d are missing", want-have)
		}
		return nil
	})
}

// end stops producing, waits for all answers and checks that every acknowledged
// record is there once and in order, and that all replicas hold the same bytes.
func (l *load) end(t *testing.T) {
	t.Helper()
	l.stop()
	<-l.done
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := l.cl.Flush(ctx); err != nil {
		t.Fatalf("not everything was answered: %v", err)
	}
	t.Logf("longest time without an answer: %v", l.gap.Round(time.Millisecond))
	l.c.AwaitWhole(l.topic, time.Minute)
	verify(t, l.c, l.topic, &l.ledger)
	l.c.sameLogs(l.topic)
}

// sameLogs waits until every replica of every partition has the same records
// and leader epochs on disk, byte for byte.
func (c *Cluster) sameLogs(topic string) {
	c.t.Helper()
	req := metadataFor(12, &topic)
	resp, err := req.RequestWith(context.Background(), c.Client())
	if err != nil {
		c.t.Fatal(err)
	}
	total := 0
	for _, p := range resp.Topics[0].Partitions {
		folder := fmt.Sprintf("%s-%d", topic, p.Partition)
		Await(c.t, 20*time.Second, "equal replicas of "+folder, func() error {
			n, err := c.SameLogs(topic, p.Partition, p.Replicas)
			total += n
			return err
		})
	}
	c.t.Logf("%s: replicas hold the same %d bytes", topic, total)
}

// leader asks any of the brokers that answer who leads a partition.
func (c *Cluster) leader(topic string, partition int32) int32 {
	leader := int32(-1)
	c.describe(topic, func(m *kmsg.MetadataResponse) {
		for _, p := range m.Topics[0].Partitions {
			if p.Partition == partition {
				leader = p.Leader
			}
		}
	})
	return leader
}

// describe asks for a topic through a client of its own, since one that knew a
// broker that now hangs waits for it.
func (c *Cluster) describe(topic string, fn func(*kmsg.MetadataResponse)) {
	for _, n := range c.Brokers {
		if n.frozen || n.ended() {
			continue
		}
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.RetryTimeout(time.Second))
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		resp, err := metadataFor(12, &topic).RequestWith(ctx, cl.SeedBrokers()[0])
		cancel()
		cl.Close()
		if err == nil && len(resp.Topics) == 1 {
			fn(resp)
			return
		}
	}
}

func (c *Cluster) controller() int32 {
	id := int32(-1)
	c.describe("no-such-topic", func(m *kmsg.MetadataResponse) { id = m.ControllerID })
	return id
}

// awaitLeader waits until a broker other than not leads the partition.
func (c *Cluster) awaitLeader(topic string, partition, not int32) int32 {
	c.t.Helper()
	leader := int32(-1)
	Await(c.t, 30*time.Second, fmt.Sprintf("a new leader of %s-%d", topic, partition), func() error {
		if leader = c.leader(topic, partition); leader < 0 || leader == not {
			return fmt.Errorf("leader %d", leader)
		}
		return nil
	})
	return leader
}

// inParallel runs f for every broker.
func (c *Cluster) inParallel(f func(*Node)) {
	var wg sync.WaitGroup
	for _, n := range c.Brokers {
		wg.Go(func() { f(n) })
	}
	wg.Wait()
}
