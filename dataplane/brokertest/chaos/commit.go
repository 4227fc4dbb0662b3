package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/nemesis"
)

// committer commits rising offsets for a group without members. A commit whose
// answer is lost may still be on its way, and arrive after a later one, so its
// group is left for a new one then.
type committer struct {
	h    *History
	name string
	at   nemesis.TP
	v    *nemesis.View

	mu     sync.Mutex
	groups []string
}

func (c *committer) run(ctx context.Context) {
	group, coordinator := c.fresh(), int32(-1)
	for n := int64(0); nemesis.Wait(ctx, 150*time.Millisecond); {
		if coordinator < 0 {
			if id, err := nemesis.Coordinator(ctx, c.v.Client, group, 0); err == nil {
				coordinator = id
			}
			continue
		}
		n++
		row := group
		c.h.Commit(row, n)
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = group, -1
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = c.at.Topic
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = c.at.Partition, n
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := nemesis.Ask[*kmsg.OffsetCommitResponse](ctx, c.v.Client, coordinator, req)
		switch {
		case err != nil:
			group, coordinator = c.fresh(), -1
		case resp.Topics[0].Partitions[0].ErrorCode != 0:
			coordinator = -1
		default:
			c.h.Committed(row, n)
		}
	}
}

func (c *committer) fresh() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	group := fmt.Sprintf("%s-%d", c.name, len(c.groups))
	c.groups = append(c.groups, group)
	return group
}

// committed asks what a group has committed for a partition; there is false if
// nothing is.
func committed(ctx context.Context, cl *kgo.Client, group string, at nemesis.TP) (offset int64, there bool, err error) {
	coordinator, err := nemesis.Coordinator(ctx, cl, group, 0)
	if err != nil {
		return 0, false, fmt.Errorf("group %s: %w", group, err)
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	t := kmsg.NewOffsetFetchRequestTopic()
	t.Topic, t.Partitions = at.Topic, []int32{at.Partition}
	req.Topics = append(req.Topics, t)
	resp, err := nemesis.Ask[*kmsg.OffsetFetchResponse](ctx, cl, coordinator, req)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, false, err
	}
	offset = resp.Topics[0].Partitions[0].Offset
	return offset, offset >= 0, nil
}

// member is one consumer of the group: it commits what it was given.
type member struct {
	h      *History
	topics []string
	cl     *kgo.Client
}

func newMember(h *History, group string, topics, seeds []string) (*member, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(500*time.Millisecond), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond), kgo.RebalanceTimeout(10*time.Second), kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(2*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(2*time.Second), kgo.RetryTimeout(3*time.Second))
	if err != nil {
		return nil, err
	}
	return &member{h: h, topics: topics, cl: cl}, nil
}

func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		polled := m.cl.PollFetches(ctx)
		offsets := map[string]map[int32]kgo.EpochOffset{}
		polled.EachRecord(func(r *kgo.Record) {
			m.h.Delivered(r.Topic, r.Partition, r.Offset)
			if offsets[r.Topic] == nil {
				offsets[r.Topic] = map[int32]kgo.EpochOffset{}
			}
			offsets[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset + 1}
		})
		if len(offsets) > 0 {
			commit, cancel := context.WithTimeout(ctx, 3*time.Second)
			m.cl.CommitOffsetsSync(commit, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
				if err != nil {
					return
				}
				for _, t := range resp.Topics {
					for _, p := range t.Partitions {
						if p.ErrorCode == 0 {
							m.h.GroupCommitted(t.Topic, p.Partition, offsets[t.Topic][p.Partition].Offset)
						}
					}
				}
			})
			cancel()
		}
		m.cl.AllowRebalance()
	}
	m.cl.CloseAllowingRebalance()
}
