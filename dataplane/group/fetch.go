package group

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Fetch handles OffsetFetch (versions 1 to 9; several groups from 8 on); done
// is called before it returns. What was never committed is offset -1 without
// an error, whether or not group, topic and partition exist. Null topics ask
// for all that is committed. RequireStable makes no difference as long as no
// transaction commits offsets.
func (c *Coordinator) Fetch(req *kmsg.OffsetFetchRequest, done func(*kmsg.OffsetFetchResponse)) {
	resp := kmsg.NewPtrOffsetFetchResponse()
	resp.Version = req.Version
	if req.Version >= 8 {
		for _, rg := range req.Groups {
			resp.Groups = append(resp.Groups, c.fetchGroup(rg))
		}
		done(resp)
		return
	}
	// The older versions are one group of the newer form.
	one := kmsg.OffsetFetchRequestGroup{Group: req.Group}
	if req.Topics != nil {
		one.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		one.Topics = append(one.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	g := c.fetchGroup(one)
	resp.ErrorCode = g.ErrorCode
	if g.ErrorCode != 0 && req.Version < 2 { // no place for the error but the partitions
		for _, t := range one.Topics {
			g.Topics = append(g.Topics, unknownOffsets(t, g.ErrorCode))
		}
	}
	for _, t := range g.Topics {
		rt := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	done(resp)
}

func (c *Coordinator) fetchGroup(req kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	resp := kmsg.NewOffsetFetchResponseGroup()
	resp.Group = req.Group
	var g *group
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
	}
	switch {
	case lost:
		resp.ErrorCode = kerr.NotCoordinator.Code
	case req.Topics == nil && g != nil && g.state != stateDead:
		for _, topic := range slices.Sorted(maps.Keys(g.offsets)) {
			parts := slices.Sorted(maps.Keys(g.offsets[topic]))
			resp.Topics = append(resp.Topics, g.fetchTopic(kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: parts}))
		}
	case req.Topics != nil && (g == nil || g.state == stateDead):
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, unknownOffsets(t, 0))
		}
	default:
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, g.fetchTopic(t))
		}
	}
	return resp
}

func (g *group) fetchTopic(t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	rt := unknownOffsets(t, 0)
	for i := range rt.Partitions {
		if o, ok := g.offsets[t.Topic][rt.Partitions[i].Partition]; ok {
			rp := &rt.Partitions[i]
			rp.Offset, rp.LeaderEpoch, rp.Metadata = o.offset, o.epoch, &o.metadata
		}
	}
	return rt
}

// unknownOffsets answers for partitions that nothing is known of.
func unknownOffsets(t kmsg.OffsetFetchRequestGroupTopic, errorCode int16) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic = t.Topic
	for _, p := range t.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata, rp.ErrorCode = p, -1, new(""), errorCode
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
