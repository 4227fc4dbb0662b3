package brokertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// teamOf are members of one group that tell what they have.
type teamOf struct {
	mu   sync.Mutex
	owns map[int]map[int32]bool // by member
	two  []string               // what was with two at a time
	got  map[string]int
}

func (s *teamOf) assigned(member int, parts []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		for other, ps := range s.owns {
			if other != member && ps[p] {
				s.two = append(s.two, fmt.Sprintf("partition %d with members %d and %d", p, other, member))
			}
		}
		s.owns[member][p] = true
	}
}

func (s *teamOf) gone(member int, parts []int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range parts {
		delete(s.owns[member], p)
	}
}

func (s *teamOf) counts() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n []int
	for _, ps := range s.owns {
		if len(ps) > 0 {
			n = append(n, len(ps))
		}
	}
	slices.Sort(n)
	return n
}

func (s *teamOf) read() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// TestConsumerGroupSharesATopic lets three consumers of the next protocol (KIP-848) share
// a topic; one goes, the coordinator is killed, one comes: every record is consumed, and
// no partition is with two of them.
func TestConsumerGroupSharesATopic(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=2000",
		"group.consumer.heartbeat.interval.ms=300", "group.consumer.min.heartbeat.interval.ms=300"}})
	c.CreateTopic("work", 6, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	s := &teamOf{owns: map[int]map[int32]bool{}, got: map[string]int{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	join := func(i int) *kgo.Client {
		s.mu.Lock()
		s.owns[i] = map[int32]bool{}
		s.mu.Unlock()
		cl := c.Client(kgo.ConsumerGroup("team"), kgo.ConsumeTopics("work"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(), kgo.AutoCommitInterval(200*time.Millisecond),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { s.assigned(i, m["work"]) }),
			kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { s.gone(i, m["work"]) }),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { s.gone(i, m["work"]) }))
		wg.Go(func() {
			for {
				fs := cl.PollFetches(ctx)
				if fs.IsClientClosed() || ctx.Err() != nil {
					return
				}
				fs.EachRecord(func(r *kgo.Record) {
					s.mu.Lock()
					s.got[string(r.Value)]++
					s.mu.Unlock()
					cl.MarkCommitRecords(r)
				})
			}
		})
		return cl
	}
	shared := func(want ...int) {
		t.Helper()
		Await(t, time.Minute, fmt.Sprint("partitions shared out as ", want), func() error {
			if n := s.counts(); !slices.Equal(n, want) {
				return fmt.Errorf("%v", n)
			}
			return nil
		})
	}
	produce := c.Client(kgo.DefaultProduceTopic("work"))
	sent := 0
	work := func() {
		t.Helper()
		for range 60 {
			sent++
			r := &kgo.Record{Key: fmt.Append(nil, sent), Value: fmt.Append(nil, sent)}
			if err := produce.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		Await(t, time.Minute, fmt.Sprint(sent, " records read"), func() error {
			if n := s.read(); n != sent {
				return fmt.Errorf("%d", n)
			}
			return nil
		})
	}
	members := []*kgo.Client{join(0), join(1), join(2)}
	shared(2, 2, 2)
	work()
	members[0].Close()
	shared(3, 3)
	work()

	var coordinator *Node
	w := (&target{addr: c.Brokers[1].Addr}).dial(t)
	Await(t, 30*time.Second, "the coordinator", func() error {
		id, err := findCoordinator(w, "team")
		coordinator = c.Brokers[id]
		return err
	})
	coordinator.Kill()
	work()
	shared(3, 3)
	members = append(members, join(3))
	shared(2, 2, 2)
	work()
	coordinator.Start()
	for _, m := range members[1:] {
		m.Close()
	}
	if len(s.two) > 0 {
		t.Errorf("%v", s.two)
	}
}

func findCoordinator(w *wire, group string) (int32, error) {
	w.t.Helper()
	req := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
	req.CoordinatorKey = group
	resp := ask[*kmsg.FindCoordinatorResponse](w, req)
	return resp.NodeID, kerr.ErrorForCode(resp.ErrorCode)
}
