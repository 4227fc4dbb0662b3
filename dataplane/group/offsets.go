package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// Commit handles OffsetCommit (versions 2 to 10, by topic name). done is called exactly
// once, when the storage has answered; only then are the offsets visible to Fetch.
// Whether the topics exist and may be read is the caller's to check.
func (c *Coordinator) Commit(req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	cm := c.newCommit(req.Group, req.MemberID, req.InstanceID, req.Generation, req.Version)
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		cm.expires = time.Now().UnixMilli() + req.RetentionTimeMillis
	}
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p, rp := &t.Partitions[j], &rt.Partitions[j]
			rp.Partition = p.Partition
			epoch := int32(-1)
			if req.Version >= 6 {
				epoch = p.LeaderEpoch
			}
			cm.add(t.Topic, p.Partition, p.Offset, epoch, str(p.Metadata), &rp.ErrorCode)
		}
	}
	cm.done = func() { done(resp) }
	c.commit(cm)
}

// dropOffsets writes tombstones for the committed offsets that which names and
// nobody is just committing, in a transaction or not, and forgets them once those are
// stored. A group that holds nothing else goes with its last offset.
func (g *group) dropOffsets(fx *effects, which func(string, *offset) bool) {
	if g.state == stateDead || g.deleting {
		return
	}
	var gone []protocol.TopicPartition
	left := 0
	g.offsets.each(func(topic string, o *offset) {
		tp := protocol.TopicPartition{Topic: topic, Partition: o.partition}
		if g.unstable[tp] > 0 || g.inFlight[tp] > 0 || !which(topic, o) {
			left++
			return
		}
		gone = append(gone, tp)
	})
	g.bury(fx, gone, left == 0, nil)
}

// bury writes tombstones for these partitions, and forgets what is older than them
// once they are stored; with last nothing is left then, and a group without members
// goes, too. done may be nil; it runs with the mutex held.
func (g *group) bury(fx *effects, gone []protocol.TopicPartition, last bool, done func(*effects, error)) {
	now := time.Now().UnixMilli()
	recs := make([]coordinator.Record, 0, len(gone))
	tombstone := func(tp protocol.TopicPartition) {
		recs = append(recs, coordinator.Record{Timestamp: now, Key: offsetRecordKey(g.id, tp.Topic, tp.Partition)})
	}
	for _, tp := range gone {
		tombstone(tp)
	}
	last = last && g.memberless() && len(g.pending) == 0 && len(g.inFlight) == 0 && len(g.open) == 0
	if last {
		for tp := range g.doubtful {
			if g.offsets.get(tp.Topic, tp.Partition) == nil {
				tombstone(tp)
			}
		}
		if g.stored {
			recs = append(recs, coordinator.Record{Timestamp: now, Key: groupRecordKey(g.id)})
		}
	}
	if last {
		recs = append(recs, g.consumerTombstones()...)
	}
	if len(recs) == 0 {
		if last {
			g.kill(fx)
		}
		if done != nil {
			done(fx, nil)
		}
		return
	}
	g.deleting = last
	g.seq++
	seq := g.seq
	g.append(fx, recs, func(fx *effects, err error) {
		if last {
			g.deleting = false
		}
		switch {
		case g.state == stateDead:
		case err != nil:
			g.c.cfg.Logger.Warn("offsets not removed", "group", g.id, "err", err)
		default:
			for _, tp := range gone {
				g.supersede(tp, seq)
				if o := g.offsets.get(tp.Topic, tp.Partition); o != nil && o.seq < seq {
					g.offsets.remove(tp.Topic, tp.Partition)
				}
			}
			if last {
				g.kill(fx)
			}
		}
		if done != nil {
			done(fx, err)
		}
	})
}

// expireOffsets drops what has outlived its use: all offsets of a group that
// has been Empty for the retention time; of a live consumer group those of
// topics that nobody subscribes to; of consumers without a group each offset
// on its own; always by the commit's own retention if it had one.
func (g *group) expireOffsets(fx *effects, now time.Time) {
	retention := g.c.cfg.OffsetsRetention
	g.dropOffsets(fx, func(topic string, o *offset) bool {
		since := time.UnixMilli(o.committed)
		switch {
		case g.consumer != nil:
			if g.consumer.subscribes(topic) {
				return false
			}
		case g.protocolType == "":
		case g.state == stateEmpty:
			since = g.stateAt
		case g.state == stateStable && g.topics != nil && !g.topicsUnknown && !g.topics[topic]:
		default:
			return false
		}
		if e := o.expires(); e != noExpiry {
			return now.UnixMilli() >= e
		}
		return now.Sub(since) >= retention
	})
}
