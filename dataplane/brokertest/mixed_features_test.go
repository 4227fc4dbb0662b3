//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Beside a broker of Kafka 3.9, which cannot do the second version of transactions, clients are
// told to use the first, and a leader of ours verifies with Kafka's coordinator, also while that broker
// is only down. Kafka's controller and brokers do not mind the features that ours register.
func TestMixedFeatures(t *testing.T) {
	c := startMixed(t, 2, 1)
	ours, theirs := c.Brokers[:2], c.Brokers[2]
	epoch := agreed(t, "no features beside Kafka", 0, -1, ours...)
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Minute)
	defer cancel()

	const topic = "exact"
	c.assign("__transaction_state", [][]int32{{2, 0}, {2, 1}}, "cleanup.policy=compact")
	c.assign(topic, [][]int32{{0, 2}, {1, 2}, {2, 0}})
	cl := c.Client(kgo.TransactionalID("tx"), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var want []string
	for i := range 6 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(3) {
			v := fmt.Sprintf("%d/%d", p, i)
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				want = append(want, v)
			}
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	r := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	var have []string
	for len(have) < len(want) {
		fs := r.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d of %d: %v", len(have), len(want), err)
		}
		fs.EachRecord(func(rec *kgo.Record) { have = append(have, string(rec.Value)) })
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("read %q, wanted %q", have, want)
	}

	c.control(kafka)
	ours[1].Stop()
	ours[1].Start() // registers its features under Kafka's controller
	ours[1].AwaitServing()
	c.AwaitWhole(topic, 2*time.Minute)
	epoch = agreed(t, "no features under Kafka's controller", 0, epoch, ours...)
	theirs.Kill()
	epoch = agreed(t, "no features while Kafka is down", 0, epoch, ours...)
	theirs.Start()
	theirs.AwaitServing()
	epoch = agreed(t, "no features with Kafka again", 0, epoch, ours...)

	// Drained and stopped it is gone for good, and what began with the first version goes on with the second.
	for name, partitions := range map[string]int{topic: 3, "__transaction_state": 2} {
		c.AwaitWhole(name, 2*time.Minute)
		c.moveTo(name, partitions, []int32{0, 1})
		c.awaitMoved(name)
	}
	epoch = agreed(t, "no features beside a drained broker", 0, epoch-1, ours...)
	theirs.Stop()
	epoch = agreed(t, "features without Kafka", 2, epoch, ours...)
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("last")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	theirs.Start()
	theirs.AwaitServing()
	agreed(t, "no features with Kafka again", 0, epoch, ours...)
	c.understood()
}
