package brokertest

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	kills = flag.Int("kills", 20, "rounds of kill -9 in TestKilledBrokersLoseNothing")
	seed  = flag.Uint64("seed", 0, "seed of random choices; 0 takes the time")
)

// ledger holds what a producer was told, per key in order.
type ledger struct {
	mu    sync.Mutex
	acked map[string]bool
	sent  int
}

// TestKilledBrokersLoseNothing kills brokers, the controller among them, at
// random moments under an idempotent acks=all producer. Afterwards every
// acknowledged record must be there exactly once and in order per key.
func TestKilledBrokersLoseNothing(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", s)
	random := rand.New(rand.NewPCG(s, s))
	c := Start(t, Options{Brokers: 3, Settings: []string{"replica.lag.time.max.ms=3000", "zookeeper.session.timeout.ms=2000"}})
	const topic, keys = "ledger", 8
	c.CreateTopic(topic, 6, 3, "min.insync.replicas=2")

	l := &ledger{acked: map[string]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	producing := make(chan struct{})
	// A broker that is killed between the first request of a connection and its answer looks to
	// franz-go like one that refuses its login, after which it gives records up.
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond), kgo.RecordDeliveryTimeout(2*time.Minute), kgo.AlwaysRetryEOF())
	go func() {
		defer close(producing)
		for i := 0; ctx.Err() == nil; i++ {
			v := fmt.Sprintf("%d/%09d", i%keys, i)
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
			cl.Produce(context.Background(), &kgo.Record{Key: fmt.Appendf(nil, "%d", i%keys), Value: []byte(v)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("record %s was given up: %v", v, err)
					return
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.acked[v] = true
			})
			if i%20 == 0 {
				time.Sleep(time.Millisecond) // a steady load, not a flood
			}
		}
	}()

	began := time.Now()
	for round := range *kills {
		n := c.Brokers[random.IntN(len(c.Brokers))]
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond) // the random moment
		n.Kill()
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		n.Start()
		c.AwaitWhole(topic, 60*time.Second)
		t.Logf("round %d: broker %d killed, cluster whole again after %v in all", round, n.ID, time.Since(began).Round(time.Millisecond))
	}
	stop()
	<-producing
	flush, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stopped := time.Now()
	if err := cl.Flush(flush); err != nil {
		t.Fatalf("not everything was answered: %v", err)
	}
	t.Logf("the last records were answered %v after the last was sent", time.Since(stopped).Round(time.Millisecond))
	verify(t, c, topic, l)
}

func verify(t *testing.T, c *Cluster, topic string, l *ledger) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := map[string]int{}
	last := map[string]string{}
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for missing := len(l.acked); missing > 0; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%d of %d acknowledged records are missing: %v", missing, len(l.acked), err)
		}
		f.EachRecord(func(r *kgo.Record) {
			v, k := string(r.Value), string(r.Key)
			if seen[v]++; seen[v] > 1 {
				t.Errorf("record %s is there %d times", v, seen[v])
			}
			if v <= last[k] {
				t.Errorf("key %s: %s comes after %s", k, v, last[k])
			}
			last[k] = v
			if l.acked[v] && seen[v] == 1 {
				missing--
			}
		})
	}
	t.Logf("%d records sent, %d acknowledged, all there once and in order", l.sent, len(l.acked))
}
