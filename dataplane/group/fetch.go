package group

import (
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
		resp.Topics = g.fetchAll(stable)
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

// fetchAll answers for all that is committed, by topic and partition.
func (g *group) fetchAll(stable bool) []kmsg.OffsetFetchResponseGroupTopic {
	var topics []kmsg.OffsetFetchResponseGroupTopic
	for _, k := range g.offsets.sorted() {
		if n := len(topics); n == 0 || topics[n-1].Topic != k.topic {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic = k.topic
			topics = append(topics, rt)
		}
		rt := &topics[len(topics)-1]
		for i := range g.offsets.runs[k] {
			rp := unknownOffset(g.offsets.runs[k][i].partition)
			g.fetchPartition(&rp, k.topic, stable)
			rt.Partitions = append(rt.Partitions, rp)
		}
	}
	return topics
}

func (g *group) fetchTopic(t kmsg.OffsetFetchRequestGroupTopic, stable bool) kmsg.OffsetFetchResponseGroupTopic {
	rt := unknownOffsets(t)
	for i := range rt.Partitions {
		g.fetchPartition(&rt.Partitions[i], t.Topic, stable)
	}
	return rt
}

func (g *group) fetchPartition(rp *kmsg.OffsetFetchResponseGroupTopicPartition, topic string, stable bool) {
	if stable && g.unstable[protocol.TopicPartition{Topic: topic, Partition: rp.Partition}] > 0 {
		rp.ErrorCode = kerr.UnstableOffsetCommit.Code
		return
	}
	if o := g.offsets.get(topic, rp.Partition); o != nil {
		rp.Offset, rp.LeaderEpoch, rp.Metadata = o.offset, o.epoch, new(o.metadata())
	}
}

// unknownOffsets answers for partitions that nothing is known of.
func unknownOffsets(t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic = t.Topic
	for _, p := range t.Partitions {
		rt.Partitions = append(rt.Partitions, unknownOffset(p))
	}
	return rt
}

func unknownOffset(partition int32) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset, rp.Metadata = partition, -1, new("")
	return rp
}
