package group

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// DeleteOffsets handles OffsetDelete (version 0, KIP-496). done is called exactly once,
// when the tombstones are stored. Offsets that open transactions have committed go, too.
// The members of a consumer group keep what they subscribe to
// (GROUP_SUBSCRIBED_TO_TOPIC); a group of another kind must have no members
// (NON_EMPTY_GROUP), since nobody here can tell what they read. Whether the topics exist
// and may be read is the caller's to check.
func (c *Coordinator) DeleteOffsets(req *kmsg.OffsetDeleteRequest, done func(*kmsg.OffsetDeleteResponse)) {
	resp := kmsg.NewPtrOffsetDeleteResponse()
	resp.Version = req.Version
	refuse := func(err *kerr.Error) {
		resp.Topics, resp.ErrorCode = nil, code(err)
		done(resp)
	}
	if req.Group == "" {
		refuse(kerr.InvalidGroupID)
		return
	}
	err := c.with(req.Group, false, func(g *group, fx *effects) {
		if g == nil {
			refuse(kerr.GroupIDNotFound)
			return
		}
		if err := g.mayDeleteOffsets(); err != nil {
			fx.call(func() { refuse(err) })
			return
		}
		var gone []protocol.TopicPartition
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetDeleteResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetDeleteResponseTopicPartition()
				rp.Partition = p.Partition
				tp := protocol.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				switch {
				case g.subscribed(t.Topic):
					rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
				case g.holds(tp):
					tp.Topic = strings.Clone(t.Topic)
					gone = append(gone, tp)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		g.bury(fx, gone, false, func(fx *effects, err error) {
			fx.call(func() {
				if err != nil {
					refuse(deleteError(err))
					return
				}
				done(resp)
			})
		})
	})
	if err != nil {
		refuse(err)
	}
}

// mayDeleteOffsets says whether single offsets of the group may be deleted.
func (g *group) mayDeleteOffsets() *kerr.Error {
	switch {
	case g.deleting:
		return kerr.CoordinatorNotAvailable
	case g.state != stateEmpty && g.protocolType != consumerProtocolType:
		return kerr.NonEmptyGroup
	}
	return nil
}

// subscribed says whether a member reads the topic, or may do so.
func (g *group) subscribed(topic string) bool {
	if g.consumer != nil {
		return g.consumer.subscribes(topic)
	}
	return g.state != stateEmpty && (g.topics == nil || g.topicsUnknown || g.topics[topic])
}

// holds says whether the log may have an offset of the partition.
func (g *group) holds(tp protocol.TopicPartition) bool {
	_, doubtful := g.doubtful[tp]
	return doubtful || g.unstable[tp] > 0 || g.inFlight[tp] > 0 || g.offsets.get(tp.Topic, tp.Partition) != nil
}

// dropDeleted forgets what was committed for partitions of deleted topics, in open
// transactions too: a topic of the same name starts afresh.
func (g *group) dropDeleted(fx *effects, deleted map[protocol.TopicPartition]bool) {
	if g.state == stateDead || g.deleting {
		return
	}
	var gone []protocol.TopicPartition
	left := 0
	g.offsets.each(func(topic string, o *offset) {
		if tp := (protocol.TopicPartition{Topic: topic, Partition: o.partition}); deleted[tp] {
			gone = append(gone, tp)
		} else {
			left++
		}
	})
	for tp := range deleted {
		if g.holds(tp) && g.offsets.get(tp.Topic, tp.Partition) == nil {
			gone = append(gone, tp)
		}
	}
	g.bury(fx, gone, left == 0 && len(gone) > 0, nil)
}
