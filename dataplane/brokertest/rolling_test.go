package brokertest

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

var (
	rollings       = flag.Int("rollings", 1, "rounds of TestRollingRestartIsNotSeenByAStockProducer")
	rollingRecords = flag.Int("rolling.records", 500, "records that are to be acknowledged between two restarts; p99 is taken over all of them")
	rollingP99     = flag.Float64("rolling.p99", 0, "bound on p99 during the restarts as a multiple of the undisturbed one, 5 on a quiet machine; 0: not judged")
)

// stock produces with a client's default settings, but for those given, and notes
// how long each record takes.
type stock struct {
	ledger
	took []time.Duration
	slow []slowRecord // those that took longer than slowAfter
	errs []error
	stop context.CancelFunc
	done sync.WaitGroup
}

// slowRecord is one that is worth a line in the log.
type slowRecord struct {
	partition  int32
	sent, over time.Time
}

const slowAfter = 50 * time.Millisecond

// stretches tells when and where records were slow, those of a partition that overlap
// together, with times since began.
func stretches(slow []slowRecord, began time.Time) (lines []string) {
	slices.SortFunc(slow, func(a, b slowRecord) int {
		return cmp.Or(cmp.Compare(a.partition, b.partition), a.sent.Compare(b.sent))
	})
	since := func(t time.Time) time.Duration { return t.Sub(began).Round(time.Millisecond) }
	type stretch struct {
		line string
		from time.Time
	}
	var all []stretch
	for i := 0; i < len(slow); {
		j, over, longest := i, slow[i].over, time.Duration(0)
		for ; j < len(slow) && slow[j].partition == slow[i].partition && !slow[j].sent.After(over); j++ {
			longest = max(longest, slow[j].over.Sub(slow[j].sent))
			if slow[j].over.After(over) {
				over = slow[j].over
			}
		}
		all = append(all, stretch{fmt.Sprintf("from %v to %v: %d records of partition %d, the slowest %v",
			since(slow[i].sent), since(over), j-i, slow[i].partition, longest.Round(time.Millisecond)), slow[i].sent})
		i = j
	}
	slices.SortFunc(all, func(a, b stretch) int { return a.from.Compare(b.from) })
	for _, s := range all {
		lines = append(lines, s.line)
	}
	return lines
}

func startStock(c *Cluster, topic string, opts ...kgo.Opt) *stock {
	s := &stock{}
	s.acked = map[string]bool{}
	cl := c.Client(append([]kgo.Opt{kgo.DefaultProduceTopic(topic)}, opts...)...)
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	c.t.Cleanup(cancel)
	s.done.Go(func() {
		const keys = 24
		for i := 0; ctx.Err() == nil; i++ {
			v, began := fmt.Sprintf("%d/%09d", i%keys, i), time.Now()
			s.mu.Lock()
			s.sent++
			s.mu.Unlock()
			cl.Produce(context.Background(), &kgo.Record{Key: fmt.Append(nil, i%keys), Value: []byte(v)}, func(r *kgo.Record, err error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if err != nil {
					s.errs = append(s.errs, fmt.Errorf("%s after %v: %w", v, time.Since(began).Round(time.Millisecond), err))
					return
				}
				s.acked[v] = true
				s.took = append(s.took, time.Since(began))
				if time.Since(began) > slowAfter {
					s.slow = append(s.slow, slowRecord{r.Partition, began, time.Now()})
				}
			})
			time.Sleep(time.Millisecond)
		}
		if err := cl.Flush(context.Background()); err != nil {
			s.mu.Lock()
			s.errs = append(s.errs, err)
			s.mu.Unlock()
		}
	})
	return s
}

// take gives what was noted since the last take.
func (s *stock) take() (took []time.Duration, slow []slowRecord, errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	took, slow, errs = s.took, s.slow, s.errs
	s.took, s.slow, s.errs = nil, nil, nil
	return took, slow, errs
}

func (s *stock) goesOn(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	want := len(s.acked) + n
	s.mu.Unlock()
	Await(t, time.Minute, "acknowledged records", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if have := len(s.acked); have < want {
			return fmt.Errorf("%d of %d", have, want)
		}
		return nil
	})
}

func percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(p*float64(len(took))))]
}

// hopper produces to one partition one record after the other, and goes where it is
// told. It connects anew for each hop, so that each try that fails is a broker's doing
// and not that of a connection which broke a restart ago.
type hopper struct {
	c         *Cluster
	topic     string
	partition int32
	leader    int32
	cl        *kgo.Client
}

// put returns how often it had to try again.
func (h *hopper) put(ctx context.Context) (retries int, err error) {
	b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}})
	if err != nil {
		return 0, err
	}
	var last error
	for ; ctx.Err() == nil; retries++ {
		if h.cl == nil {
			if h.cl, err = kgo.NewClient(kgo.SeedBrokers(h.c.Brokers[h.leader].Addr), naming()); err != nil {
				return retries, err
			}
		}
		req := kmsg.NewPtrProduceRequest()
		req.Acks, req.TimeoutMillis = -1, 30_000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = h.topic
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = h.partition, b
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := req.RequestWith(ctx, h.cl.SeedBrokers()[0])
		if err == nil {
			p := resp.Topics[0].Partitions[0]
			if err = kerr.ErrorForCode(p.ErrorCode); err == nil {
				return retries, nil
			}
			if p.CurrentLeader.LeaderID >= 0 {
				h.leader = p.CurrentLeader.LeaderID
			}
		} else {
			h.leader = h.c.leader(h.topic, h.partition)
		}
		last = errors.Join(last, err)
		h.close()
	}
	return retries, last
}

func (h *hopper) close() {
	if h.cl != nil {
		h.cl.Close()
		h.cl = nil
	}
}

// Every broker is restarted in order, one at once after the other. A producer with
// default settings sees no error, and nothing is lost. One that goes where it is told
// has to try again once for each leader that moves, and each time gets through.
func TestRollingRestartIsNotSeenByAStockProducer(t *testing.T) {
	c := Start(t, Options{Brokers: 3})
	c.CreateTopic("stock", 6, 3, "min.insync.replicas=2")
	c.CreateTopic("hops", 6, 3, "min.insync.replicas=2")
	s := startStock(c, "stock")
	s.goesOn(t, 200)
	s.take()
	s.goesOn(t, 2000)
	before, _, _ := s.take()
	start := time.Now()
	at := func() time.Duration { return time.Since(start).Round(time.Millisecond) }

	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	var hopping sync.WaitGroup
	for i := range int32(6) {
		hopping.Go(func() {
			h := &hopper{c: c, topic: "hops", partition: i, leader: c.leader("hops", i)}
			defer h.close()
			for ctx.Err() == nil {
				within, cancel := context.WithTimeout(context.Background(), time.Minute)
				from := h.leader
				retries, err := h.put(within)
				cancel()
				if err != nil {
					t.Errorf("partition %d: given up: %v", i, err)
					return
				}
				if retries > 1 {
					t.Errorf("partition %d: %d retries on the way from broker %d to %d", i, retries, from, h.leader)
				}
				time.Sleep(2 * time.Millisecond) // a steady load, not a flood
			}
		})
	}
	for range *rollings {
		for _, n := range c.Brokers {
			controller, began := c.controller(), at()
			n.Stop()
			stopped := at()
			n.Start()
			c.AwaitWhole("stock", time.Minute)
			c.AwaitWhole("hops", time.Minute)
			t.Logf("broker %d (controller %d): told to stop at %v, stopped at %v, all in sync again at %v", n.ID, controller, began, stopped, at())
			s.goesOn(t, *rollingRecords)
		}
	}
	stop()
	hopping.Wait()
	s.stop()
	s.done.Wait()
	during, slow, errs := s.take()
	for _, err := range errs {
		t.Errorf("the stock producer saw an error: %v", err)
	}
	quiet, busy := percentile(before, 0.99), percentile(during, 0.99)
	t.Logf("p99 %v undisturbed (%d records), %v during the restarts (%d records, slowest %v): %.1f times",
		quiet.Round(time.Microsecond), len(before), busy.Round(time.Microsecond), len(during), percentile(during, 1).Round(time.Millisecond), float64(busy)/float64(quiet))
	for _, line := range stretches(slow, start) {
		t.Log(line)
	}
	if *rollingP99 > 0 && float64(busy) > *rollingP99*float64(quiet) {
		t.Errorf("p99 during the restarts is more than %.1f times the undisturbed one", *rollingP99)
	}
	verify(t, c, "stock", &s.ledger)
	c.sameLogs("stock")
	c.sameLogs("hops")
}
