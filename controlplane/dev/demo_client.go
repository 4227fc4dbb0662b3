package dev

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"

	"penstock/controlplane/client"
)

// batchHeader is what a record batch has besides its records (KIP-98): kgo tells
// the size of the records as they went over the wire; a whole batch, as it lies
// in the log and as the broker meters it, is this much longer.
const batchHeader = 61

// counter counts what a client has really sent and read, in whole batches. It
// is a hook of kgo.
type counter struct {
	in, out               atomic.Int64 // bytes
	inRecords, outRecords atomic.Int64
	outBatches, inBatches atomic.Int64
}

// OnProduceBatchWritten is called once a batch has been acknowledged.
func (c *counter) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	c.in.Add(int64(m.CompressedBytes) + batchHeader)
	c.inRecords.Add(int64(m.NumRecords))
	c.inBatches.Add(1)
}

// OnFetchBatchRead is called for each batch of a fetch's answer.
func (c *counter) OnFetchBatchRead(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.FetchBatchMetrics) {
	c.out.Add(int64(m.CompressedBytes) + batchHeader)
	c.outRecords.Add(int64(m.NumRecords))
	c.outBatches.Add(1)
}

// kafka makes a stock client that logs in as the service account. All of what it
// moves is counted.
func (d *demo) kafka(as credential, opts ...kgo.Opt) (*kgo.Client, error) {
	t := tokens{url: d.s.apiURL() + "/oauth2/token", as: as}
	base := []kgo.Opt{
		kgo.SeedBrokers(d.bootstrap...),
		kgo.ClientID("penstock-dev"),
		kgo.SASL(oauth.Oauth(t.get)),
		kgo.WithHooks(d.counts[as.ClientID]),
		kgo.DialTimeout(2 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	return kgo.NewClient(append(base, opts...)...)
}

// tokens fetches and keeps the token of one service account.
type tokens struct {
	url string
	as  credential

	mu sync.Mutex
	t  client.Token
}

func (t *tokens) get(ctx context.Context) (oauth.Auth, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Until(t.t.ExpiresAt) < time.Minute {
		fresh, err := client.FetchToken(ctx, nil, t.url, t.as.ClientID, t.as.ClientSecret, "")
		if err != nil {
			return oauth.Auth{}, err
		}
		t.t = fresh
	}
	return oauth.Auth{Token: t.t.AccessToken}, nil
}

// awaitSync waits until three brokers are there and every replica is in sync.
func (d *demo) awaitSync(ctx context.Context) (string, error) {
	cl, err := d.kafka(d.st.Account)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	return "", until(ctx, "the cluster", func(ctx context.Context) error { return inSync(ctx, cl, eventsTopic) })
}

// inSync says what is missing until all replicas of the topic are in sync.
func inSync(ctx context.Context, cl *kgo.Client, topic string) error {
	md, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil {
		return err
	}
	if n := len(md.Brokers); n != 3 {
		return fmt.Errorf("%d brokers", n)
	}
	t := md.Topics[topic]
	if t.Err != nil {
		return t.Err
	}
	if len(t.Partitions) != partitions {
		return fmt.Errorf("topic %s has %d partitions", topic, len(t.Partitions))
	}
	for _, p := range t.Partitions {
		if p.Leader < 0 || len(p.ISR) < 3 {
			return fmt.Errorf("partition %d of %s has leader %d and in-sync replicas %v", p.Partition, topic, p.Leader, p.ISR)
		}
	}
	return nil
}

// ends gives the end of each partition of a topic.
func ends(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("ends of %s: %w", topic, err)
	}
	out := map[int32]int64{}
	for p, o := range listed[topic] {
		out[p] = o.Offset
	}
	return out, nil
}

// at makes the option that consumes a topic from these offsets.
func at(topic string, offsets map[int32]int64) kgo.Opt {
	m := map[int32]kgo.Offset{}
	for p, o := range offsets {
		m[p] = kgo.NewOffset().At(o)
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: m})
}

// readTo polls until every partition has been read up to its end. Reading to
// the very end leaves no answer on its way that would be metered and not seen.
func readTo(ctx context.Context, cl *kgo.Client, from, to map[int32]int64, each func(*kgo.Record)) error {
	next := map[int32]int64{}
	left := 0
	for p, end := range to {
		next[p] = from[p]
		if from[p] < end {
			left++
		}
	}
	for left > 0 {
		fetches := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d partitions are not read to their end: %w", left, context.Cause(ctx))
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return fmt.Errorf("fetch partition %d: %w", errs[0].Partition, errs[0].Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if each != nil {
				each(r)
			}
			was := next[r.Partition]
			next[r.Partition] = r.Offset + 1
			if was < to[r.Partition] && r.Offset+1 >= to[r.Partition] {
				left--
			}
		})
	}
	return nil
}
