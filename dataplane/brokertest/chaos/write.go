package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/nemesis"
)

// writer is one stock producer. It goes from partition to partition, and knows
// for each how many records it has sent there: that number is the record.
type writer struct {
	h     *History
	id    int
	topic Topic
	cl    *kgo.Client
	every time.Duration
	gate  *nemesis.Gate

	mu         sync.Mutex
	partitions []int32
}

func newWriter(h *History, id int, topic Topic, partitions int32, rate int, seeds []string, g *nemesis.Gate) (*writer, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(2 * time.Millisecond),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DialTimeout(2 * time.Second), kgo.RequestTimeoutOverhead(2 * time.Second),
		kgo.ProduceRequestTimeout(3 * time.Second), kgo.MetadataMinAge(100 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second), kgo.MaxBufferedRecords(500)}
	switch topic.Acks {
	case "all":
		if !topic.Once {
			opts = append(opts, kgo.DisableIdempotentWrite())
		}
	case "1":
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	case "0":
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck()))
	default:
		return nil, fmt.Errorf("acks=%s", topic.Acks)
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	w := &writer{h: h, id: id, topic: topic, cl: cl, every: time.Second / time.Duration(rate), gate: g}
	for p := range partitions {
		w.partitions = append(w.partitions, p)
	}
	return w, nil
}

// run sends until the context is over.
func (w *writer) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for i := 0; w.gate.Pass(ctx); i++ {
		w.mu.Lock()
		p := w.partitions[i%len(w.partitions)]
		w.mu.Unlock()
		r, seq := w.record(p)
		w.cl.Produce(ctx, r, func(r *kgo.Record, err error) { w.answered(p, seq, r, err) })
		<-tick.C
	}
}

func (w *writer) record(p int32) (*kgo.Record, int) {
	seq := w.h.Sent(w.topic.Name, p, w.id)
	value := fmt.Sprintf("%d/%d", w.id, seq)
	return &kgo.Record{Topic: w.topic.Name, Partition: p, Key: fmt.Appendf(nil, "%d", w.id), Value: []byte(value + strings.Repeat(".", max(0, 100-len(value))))}, seq
}

func (w *writer) answered(p int32, seq int, r *kgo.Record, err error) {
	switch {
	case err == context.Canceled: // given up by us
	case err != nil:
		w.h.Failed(w.topic.Name, p, w.id, seq, err)
	case w.topic.Acks == "0":
		w.h.Acked(w.topic.Name, p, w.id, seq, -1)
	default:
		w.h.Acked(w.topic.Name, p, w.id, seq, r.Offset)
	}
}

// grow takes a new partition into use when the client's metadata has it: what is
// refused until then has not been sent.
func (w *writer) grow(ctx context.Context, p int32) {
	r, seq := w.record(p)
	for ctx.Err() == nil {
		got := w.cl.ProduceSync(ctx, r)[0]
		if got.Err != nil && strings.Contains(got.Err.Error(), "invalid record partitioning") {
			w.cl.ForceMetadataRefresh()
			nemesis.Wait(ctx, 200*time.Millisecond)
			r = &kgo.Record{Topic: r.Topic, Partition: p, Key: r.Key, Value: r.Value}
			continue
		}
		w.answered(p, seq, got.Record, got.Err)
		w.mu.Lock()
		w.partitions = append(w.partitions, p)
		w.mu.Unlock()
		return
	}
}
