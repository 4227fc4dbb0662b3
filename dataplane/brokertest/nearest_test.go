package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// sources notes from which broker each batch of a consumer came last.
type sources struct {
	mu      sync.Mutex
	batches map[int32]int
}

func (s *sources) OnFetchBatchRead(meta kgo.BrokerMetadata, _ string, _ int32, _ kgo.FetchBatchMetrics) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches[meta.NodeID]++
}

func (s *sources) from(id int32) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches[id]
}

// TestConsumerReadsInItsOwnRack follows a consumer (KIP-392) while the replica in its rack
// dies and comes back, and then the leader: it is sent to its own rack whenever that can be,
// and reads every record once and in order.
func TestConsumerReadsInItsOwnRack(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{
		"replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector", "zookeeper.session.timeout.ms=1500", "zookeeper.connection.timeout.ms=20000", "replica.lag.time.max.ms=2000",
	}, Each: func(id int) []string { return []string{fmt.Sprintf("broker.rack=rack-%d", id)} }})
	c.CreateTopic("ledger", 1, 3, "min.insync.replicas=2")
	c.AwaitWhole("ledger", 30*time.Second)
	l := startLoad(c, "ledger")
	leader := c.leader("ledger", 0)
	near := (leader + 1) % 3

	s := &sources{batches: map[int32]int{}}
	cl := c.Client(kgo.ConsumeTopics("ledger"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.Rack(fmt.Sprintf("rack-%d", near)),
		kgo.WithHooks(s), kgo.FetchMaxWait(time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(2*time.Second))
	var mu sync.Mutex
	next := int64(0)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fs := cl.PollFetches(ctx)
			mu.Lock()
			fs.EachRecord(func(r *kgo.Record) {
				if r.Offset != next {
					t.Errorf("read offset %d, want %d", r.Offset, next)
				}
				next = r.Offset + 1
			})
			mu.Unlock()
		}
	}()
	reads := func(from int32, what string) {
		t.Helper()
		had := s.from(from)
		Await(t, 30*time.Second, what, func() error {
			if n := s.from(from) - had; n < 20 {
				return fmt.Errorf("%d batches from broker %d", n, from)
			}
			return nil
		})
	}
	reads(near, "reading in its own rack")
	atLeader := s.from(leader)
	reads(near, "going on in its own rack")
	if n := s.from(leader) - atLeader; n > 0 {
		t.Errorf("%d batches from the leader meanwhile", n)
	}
	c.Brokers[near].Kill()
	reads(leader, "reading from the leader when the near replica is dead")
	c.Brokers[near].Start()
	c.AwaitWhole("ledger", 30*time.Second)
	reads(near, "reading in its own rack again")
	c.Brokers[leader].Kill()
	reads(near, "reading on when the leader is dead")
	c.Brokers[leader].Start()
	c.AwaitWhole("ledger", 30*time.Second)
	reads(near, "reading on when it is back")
	l.end(t)
	Await(t, 30*time.Second, "everything read", func() error {
		mu.Lock()
		defer mu.Unlock()
		if want := int64(l.count()); next < want {
			return fmt.Errorf("%d of %d", next, want)
		}
		return nil
	})
}
