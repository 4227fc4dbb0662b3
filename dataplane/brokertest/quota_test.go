package brokertest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// quotaWindow shortens the 11 samples of Kafka's default to two. A client from
// rest may send the quota of all samples but one at once and waits for it after;
// over some such rounds the rate is the quota's, and these are short ones.
var quotaWindow = []string{"quota.window.num=2", "quota.window.size.seconds=1"}

// TestQuotas measures what a broker lets through, against a raw client that
// knows nothing of throttle_time_ms and sends again at once.
func TestQuotas(t *testing.T) {
	s := startSecured(t, 1, quotaWindow...)
	s.topic("in", 2, "max.message.bytes=4000000")
	s.topic("out", 1)
	s.topic("lumps", 1, "max.message.bytes=4000000")
	s.topic("orders", 1)
	for _, who := range []string{"alice", "producer", "consumer", "small", "bob", "carol"} {
		for _, topic := range []string{"in", "out", "lumps", "orders"} {
			s.allow(who, kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationRead, kmsg.ACLOperationWrite)
		}
	}
	root := s.control(s.internal[0])
	quota := func(user string, key string, value float64) {
		t.Helper()
		var name *string
		if user != "" {
			name = &user
		}
		if got := codes(root.must(alterQuota(name, key, value))); !slices.Equal(got, []int16{0}) {
			t.Fatalf("quota of %q: %v", user, got)
		}
	}
	t.Run("rates", func(t *testing.T) {
		const rate = 400_000
		quota("producer", "producer_byte_rate", rate)
		quota("consumer", "consumer_byte_rate", rate)
		fill := s.client("alice")
		for range 40 {
			fill.must(produceOf("out", 1, sized(t, 5_000)))
		}
		s.awaitThrottle(t, "producer", "in", true)
		c := s.customer(t, "orders")
		var wg sync.WaitGroup
		var in, in2, out meter
		end := time.Now().Add(10 * time.Second)
		for _, m := range []*meter{&in, &in2} { // two connections share what is one principal's
			w, frame := s.client("producer"), sized(t, 20_000)
			wg.Go(func() {
				req := produceOf("in", 1, frame)
				for time.Now().Before(end) {
					if _, err := w.ask(req); err != nil {
						t.Error(err)
						return
					}
					m.add(len(frame))
				}
			})
		}
		w := s.client("consumer")
		wg.Go(func() {
			for offset := int64(0); time.Now().Before(end); {
				resp, err := w.ask(fetchFrom("out", offset, 5_000))
				if err != nil {
					t.Error(err)
					return
				}
				p := resp.(*kmsg.FetchResponse).Topics
				if len(p) > 0 && len(p[0].Partitions[0].RecordBatches) > 0 {
					out.add(len(p[0].Partitions[0].RecordBatches))
					offset = (offset + 1) % 40
				}
			}
		})
		wg.Wait()
		in.at = append(in.at, in2.at...)
		for name, m := range map[string]*meter{"produce": &in, "fetch": &out} {
			got := m.rate(end.Add(-9 * time.Second))
			t.Logf("%s: %.0f bytes/s of %d", name, got, rate)
			if got > 1.1*rate || got < 0.9*rate {
				t.Errorf("%s: %.0f bytes/s, want %d within 10 %%", name, got, rate)
			}
		}
		c.served(t, time.Second)
		if n := c.written.Load(); n < 200 {
			t.Errorf("the other principal wrote %d records in 10 s", n)
		}
		c.stop()
	})
	t.Run("the channel is muted, the reply is not held back", func(t *testing.T) {
		quota("bob", "producer_byte_rate", 100_000)
		s.awaitThrottle(t, "bob", "orders", true)
		w, other := s.client("bob"), s.client("bob")
		began := time.Now()
		r := w.must(produceOf("in", 1, sized(t, 300_000))).(*kmsg.ProduceResponse)
		throttle := time.Duration(r.ThrottleMillis) * time.Millisecond
		if took := time.Since(began); took > throttle/2 || throttle < 500*time.Millisecond {
			t.Fatalf("answered after %v with a throttle of %v", took, throttle)
		}
		// Another channel of the same principal is not muted for what this one did.
		if other.must(metadataOf("in")); time.Since(began) > throttle/2 {
			t.Errorf("another connection was held back for %v", time.Since(began))
		}
		w.must(metadataOf("in")) // sent at once
		took := time.Since(began)
		if took < throttle-20*time.Millisecond {
			t.Errorf("the next request was served after %v, throttle %v", took, throttle)
		}
		// Who has waited is not made to wait again.
		again := time.Now()
		if w.must(metadataOf("in")); time.Since(again) > 500*time.Millisecond {
			t.Errorf("held back for %v more", time.Since(again))
		}
	})
	t.Run("a batch far above the quota still comes", func(t *testing.T) {
		quota("small", "consumer_byte_rate", 100_000)
		quota("small", "producer_byte_rate", 100_000)
		s.awaitThrottle(t, "small", "orders", true) // both have come
		w := s.client("alice")
		for range 2 { // 400 KB: more than the quota gives in the whole window
			if got := codes(w.must(produceOf("lumps", 1, sized(t, 400_000)))); !slices.Equal(got, []int16{0}) {
				t.Fatalf("producing: %v", got)
			}
		}
		w = s.client("small")
		began := time.Now()
		for offset, n := int64(0), 0; offset < 2; n++ {
			resp, err := w.ask(fetchFrom("lumps", offset, 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			if r := resp.(*kmsg.FetchResponse); len(r.Topics) > 0 && len(r.Topics[0].Partitions[0].RecordBatches) > 0 {
				offset++
			}
			if time.Since(began) > 25*time.Second {
				t.Fatalf("%d batches of two in %d fetches", offset, n)
			}
		}
		took := time.Since(began)
		t.Logf("two batches of 400 KB at 100 KB/s took %v", took.Round(time.Millisecond))
		if took < 2*time.Second {
			t.Error("the quota was not held")
		}
	})
	t.Run("an override's end brings back the default at once", func(t *testing.T) {
		quota("", "producer_byte_rate", 50_000) // every user's
		throttled := func(who string, want bool) { t.Helper(); s.awaitThrottle(t, who, "in", want) }
		throttled("carol", true)
		quota("carol", "producer_byte_rate", 1<<40)
		throttled("carol", false)
		quota("carol", "producer_byte_rate", 0) // removed
		throttled("carol", true)
		quota("", "producer_byte_rate", 0)
		throttled("carol", false)
		throttled("producer", true) // which has its own
	})
	t.Run("quotas are told as they are set", func(t *testing.T) {
		req := kmsg.NewPtrDescribeClientQuotasRequest()
		c := kmsg.NewDescribeClientQuotasRequestComponent()
		c.EntityType, c.MatchType = "user", 2
		req.Components = append(req.Components, c)
		r := root.must(req).(*kmsg.DescribeClientQuotasResponse)
		got := map[string]float64{}
		for _, e := range r.Entries {
			for _, v := range e.Values {
				got[*e.Entity[0].Name+" "+v.Key] = v.Value
			}
		}
		want := map[string]float64{"producer producer_byte_rate": 400_000, "consumer consumer_byte_rate": 400_000, "bob producer_byte_rate": 100_000,
			"small producer_byte_rate": 100_000, "small consumer_byte_rate": 100_000}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("what only brokers may ask is charged to a client that asks it", func(t *testing.T) {
		quota("bob", "request_percentage", 0.001)
		w := s.client("bob")
		req := kmsg.NewPtrWriteTxnMarkersRequest()
		req.Version = 1
		req.Markers = append(req.Markers, kmsg.NewWriteTxnMarkersRequestMarker())
		Await(t, 20*time.Second, "a mute of the client", func() error {
			began := time.Now()
			for range 5 {
				w.must(req)
			}
			if took := time.Since(began); took < 2*time.Second { // each is muted for about a second
				return fmt.Errorf("5 requests took %v", took)
			}
			return nil
		})
	})
}

// meter notes what went through when.
type meter struct{ at []passed }

type passed struct {
	when  time.Time
	bytes int
}

func (m *meter) add(n int) { m.at = append(m.at, passed{time.Now(), n}) }

// rate is the bytes per second after from. Throttled traffic comes in bursts,
// each paid for by the pause that follows it, and a stretch that cuts one counts
// too much or too little: so it reaches from the end of the first of the three
// longest pauses to that of the last.
func (m *meter) rate(from time.Time) float64 {
	slices.SortFunc(m.at, func(a, b passed) int { return a.when.Compare(b.when) })
	at := slices.DeleteFunc(slices.Clone(m.at), func(p passed) bool { return p.when.Before(from) })
	if len(at) < 5 {
		return 0
	}
	after := make([]int, len(at)-1) // a pause
	for i := range after {
		after[i] = i + 1
	}
	slices.SortFunc(after, func(i, j int) int { return int(at[j].when.Sub(at[j-1].when) - at[i].when.Sub(at[i-1].when)) })
	first, last := slices.Min(after[:3]), slices.Max(after[:3])
	sum := 0
	for _, p := range at[first:last] {
		sum += p.bytes
	}
	return float64(sum) / at[last].when.Sub(at[first].when).Seconds()
}

// awaitThrottle waits until a batch of 60 KB by the principal is throttled, or
// is not: a quota reaches the broker by a watch. Each try is a connection of its
// own, so that an earlier try's throttle does not hold it up.
func (s *secured) awaitThrottle(t *testing.T, who, topic string, want bool) {
	t.Helper()
	records := sized(t, 60_000)
	Await(t, 8*time.Second, fmt.Sprintf("throttled=%v for %s", want, who), func() error {
		w := s.client(who)
		defer w.Close()
		r := w.must(produceOf(topic, 1, records)).(*kmsg.ProduceResponse)
		if got := r.ThrottleMillis > 0; got != want {
			return fmt.Errorf("throttle %d ms", r.ThrottleMillis)
		}
		return nil
	})
}
