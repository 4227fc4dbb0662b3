package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// FetchGroup is one group's part of OffsetFetch (versions 1 to 9), in the form
// that version 8 gave it. What was never committed is offset -1 without an
// error, whether or not group, topic and partition exist. Null topics ask for
// all that is committed. With stable, a partition for which an open transaction
// has an offset gets UNSTABLE_OFFSET_COMMIT (KIP-447).
func (c *Coordinator) FetchGroup(req kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	g, err := c.find(req.Group, false)
	if err != nil {
		resp.ErrorCode = err.Code
		return resp
	}
	var lost bool
	if g != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		lost = g.lost
		if g.consumer != nil && !lost && g.state != stateDead {
			if err := g.consumerMayFetch(req.MemberID, req.MemberEpoch); err != nil {
				resp.ErrorCode = err.Code
				return resp
			}
		}
	}
	switch {
	case lost:
		resp.ErrorCode = kerr.NotCoordinator.Code
	case req.Topics == nil && g != nil && g.state != stateDead:
		for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
			parts := slices.Sorted(maps.Keys(g.offsets[topic]))
			resp.Topics = append(resp.Topics, g.fetchTopic(kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: parts}, stable))
		}
	case req.Topics != nil && (g == nil || g.state == stateDead):
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, unknownOffsets(t))
		}
	default:
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, g.fetchTopic(t, stable))
		}
	}
	return resp
}

func (g *group) fetchTopic(t kmsg.OffsetFetchRequestGroupTopic, stable bool) kmsg.OffsetFetchResponseGroupTopic {
	rt := unknownOffsets(t)
	for i := range rt.Partitions {
		rp := &rt.Partitions[i]
		if _, pending := g.unstable[protocol.TopicPartition{Topic: t.Topic, Partition: rp.Partition}]; pending && stable {
			rp.ErrorCode = kerr.UnstableOffsetCommit.Code
			continue
		}
		if o, ok := g.offsets[t.Topic][rp.Partition]; ok {
			rp.Offset, rp.LeaderEpoch, rp.Metadata = o.offset, o.epoch, &o.metadata
		}
	}
	return rt
}

// unknownOffsets answers for partitions that nothing is known of.
func unknownOffsets(t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic = t.Topic
	for _, p := range t.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata = p, -1, new("")
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
