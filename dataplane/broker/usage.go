package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// usageLink appends usage records to the usage topic's leader, whichever
// broker that is, and returns when all in-sync replicas have them.
type usageLink struct {
	link
	b *Broker
}

const usageTimeout = 5 * time.Second

var usagePartition = partition.TopicPartition{Topic: protocol.UsageTopic, Partition: 0}

func (l *usageLink) publish(ctx context.Context, key, value []byte) error {
	if err := l.b.ensureTopic(ctx, protocol.UsageTopic); err != nil {
		return err
	}
	batch, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Key: key, Value: value}})
	if err != nil {
		return err
	}
	for {
		image := l.b.metadata.Image()
		if err := l.send(ctx, image, batch); err == nil || !errors.Is(err, kerr.NotLeaderForPartition) {
			return err
		}
		// Leadership has moved: the controller's next word tells where to.
		if err := l.b.metadata.Await(ctx, func(im *metadata.Image) bool { return im != image }); err != nil {
			return err
		}
	}
}

func (l *usageLink) send(ctx context.Context, image *metadata.Image, batch []byte) error {
	e, id, ok := image.LeaderEndpoint(protocol.UsageTopic, 0, l.b.dialer.listener)
	if !ok {
		return kerr.NotLeaderForPartition
	}
	if id == l.b.cfg.ID {
		return l.local(ctx, batch)
	}
	return l.remote(ctx, hostPort(e.Host, e.Port), batch)
}

func (l *usageLink) local(ctx context.Context, batch []byte) error {
	done := make(chan error, 1)
	l.b.partitions.Append(partition.AppendRequest{
		Acks: -1, Timeout: usageTimeout,
		Entries: []partition.AppendEntry{{TP: usagePartition, Records: batch, Internal: true}},
	}, func(r []partition.AppendResult) { done <- r[0].Err })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remote produces as the broker, whom the leader lets write to internal topics.
func (l *usageLink) remote(ctx context.Context, addr string, batch []byte) error {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	req.Acks, req.TimeoutMillis = -1, int32(usageTimeout.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic = usagePartition.Topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = usagePartition.Partition, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := l.do(ctx, addr, req)
	if err != nil {
		return err
	}
	topics := resp.(*kmsg.ProduceResponse).Topics
	if len(topics) != 1 || len(topics[0].Partitions) != 1 {
		return fmt.Errorf("a reply of another shape than its request from %s", addr)
	}
	return kerr.ErrorForCode(topics[0].Partitions[0].ErrorCode)
}
