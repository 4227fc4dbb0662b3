package metering

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/cluster"
	"penstock/tenants"
)

// topic is a cluster's real usage topic.
type topic struct {
	cl      *kgo.Client
	adm     *kadm.Client
	pending []kgo.FetchTopicPartition
}

// openTopic connects; with offsets it consumes from there.
func (r *Reader) openTopic(_ context.Context, c cluster.Cluster, at map[int32]int64) (source, error) {
	opts, err := r.c.Client(c)
	if err != nil {
		return nil, err
	}
	if at != nil {
		offsets := map[int32]kgo.Offset{}
		for part, next := range at {
			offsets[part] = kgo.NewOffset().At(next)
		}
		opts = append(opts,
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{tenants.UsageTopic: offsets}),
			// Only what all in-sync replicas have, and whatever came before an offset
			// that is gone: counters are cumulative, so beginning at the start is safe.
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchMaxBytes(8<<20), kgo.KeepRetryableFetchErrors())
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &topic{cl: cl, adm: kadm.NewClient(cl)}, nil
}

func (t *topic) close() { t.cl.Close() }

func (t *topic) ends(ctx context.Context) (map[int32]int64, error) {
	listed, err := t.adm.ListEndOffsets(ctx, tenants.UsageTopic)
	if err != nil {
		return nil, fmt.Errorf("list the ends of the usage topic: %w", err)
	}
	out := map[int32]int64{}
	for part, o := range listed[tenants.UsageTopic] {
		if errors.Is(o.Err, kerr.UnknownTopicOrPartition) {
			return nil, errNoTopic
		}
		if o.Err != nil {
			return nil, fmt.Errorf("list the end of partition %d: %w", part, o.Err)
		}
		out[part] = o.Offset
	}
	return out, nil
}

func (t *topic) poll(ctx context.Context) (int32, []Message, error) {
	for len(t.pending) == 0 {
		fetches := t.cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return 0, nil, err
		}
		for _, e := range fetches.Errors() {
			if !kerr.IsRetriable(e.Err) {
				return 0, nil, fmt.Errorf("read the usage topic, partition %d: %w", e.Partition, e.Err)
			}
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) > 0 {
				t.pending = append(t.pending, p)
			}
		})
	}
	p := t.pending[0]
	t.pending = t.pending[1:]
	msgs := make([]Message, len(p.Records))
	for i, r := range p.Records {
		msgs[i] = Message{Offset: r.Offset, Value: r.Value}
	}
	return p.Partition, msgs, nil
}
