package group

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// Commit handles OffsetCommit (versions 2 to 9). done is called exactly once,
// when the storage has answered; only then are the offsets visible to Fetch.
// Whether the topics exist and may be read is the caller's to check.
func (c *Coordinator) Commit(req *kmsg.OffsetCommitRequest, done func(*kmsg.OffsetCommitResponse)) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	resp.Version = req.Version
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			if len(str(p.Metadata)) > c.cfg.MaxOffsetMetadataSize {
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	finish := func(err *kerr.Error) { // fills in all that has no error of its own
		for i := range resp.Topics {
			for j := range resp.Topics[i].Partitions {
				if p := &resp.Topics[i].Partitions[j]; p.ErrorCode == 0 {
					p.ErrorCode = code(err)
				}
			}
		}
		done(resp)
	}
	// A group that we do not know comes to be by the commit of a consumer that
	// assigns its partitions itself.
	err := c.with(req.Group, req.Generation < 0, func(g *group, fx *effects) {
		if g == nil {
			finish(kerr.IllegalGeneration)
			return
		}
		if err := g.mayCommit(req); err != nil {
			g.forgetIfIdle(fx)
			fx.call(func() { finish(err) })
			return
		}
		g.commit(fx, req, resp, finish)
	})
	if err != nil {
		finish(err)
	}
}

// mayCommit says whether the request comes from a member of the present
// generation, or from outside of a group without members.
func (g *group) mayCommit(req *kmsg.OffsetCommitRequest) *kerr.Error {
	if g.deleting {
		return kerr.CoordinatorNotAvailable
	}
	if g.consumer != nil {
		return g.consumerMayCommit(req.Version, req.MemberID, req.InstanceID, req.Generation, func(yield func(string, int32) bool) {
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					if !yield(t.Topic, p.Partition) {
						return
					}
				}
			}
		})
	}
	if req.Generation < 0 && g.state == stateEmpty {
		return nil
	}
	if req.Generation < 0 && req.MemberID == "" && req.InstanceID == nil {
		return kerr.UnknownMemberID
	}
	m, err := g.member(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case g.state == stateCompleting:
		return kerr.RebalanceInProgress
	}
	g.keepAlive(m)
	return nil
}

// commit writes the offsets that resp has no error for yet.
func (g *group) commit(fx *effects, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, finish func(*kerr.Error)) {
	type write struct {
		tp protocol.TopicPartition
		offset
	}
	now := time.Now().UnixMilli()
	expires := int64(noExpiry)
	if req.Version >= 2 && req.Version <= 4 && req.RetentionTimeMillis >= 0 {
		expires = now + req.RetentionTimeMillis
	}
	var writes []write
	var recs []coordinator.Record
	g.seq++
	for i, t := range req.Topics {
		topic := ""
		for j, p := range t.Partitions {
			if resp.Topics[i].Partitions[j].ErrorCode != 0 {
				continue
			}
			if topic == "" {
				topic = strings.Clone(t.Topic)
			}
			w := write{protocol.TopicPartition{Topic: topic, Partition: p.Partition}, offset{
				offset: p.Offset, epoch: -1, metadata: strings.Clone(str(p.Metadata)), committed: now, expires: expires, seq: g.seq,
			}}
			if req.Version >= 6 {
				w.epoch = p.LeaderEpoch
			}
			writes = append(writes, w)
			recs = append(recs, offsetRecord(g.id, topic, p.Partition, w.offset))
		}
	}
	if len(recs) == 0 {
		g.forgetIfIdle(fx)
		fx.call(func() { finish(nil) })
		return
	}
	for _, w := range writes {
		g.inFlight[w.tp]++
	}
	g.append(fx, recs, func(fx *effects, err error) {
		for _, w := range writes {
			if g.inFlight[w.tp]--; g.inFlight[w.tp] == 0 {
				delete(g.inFlight, w.tp)
			}
			// Answers may come in another order than the writes were issued in.
			if old, ok := g.offsets[w.tp.Topic][w.tp.Partition]; err == nil && (!ok || old.seq <= w.seq) && g.state != stateDead {
				setOffset(g.offsets, w.tp.Topic, w.tp.Partition, w.offset)
			}
			if err != nil {
				g.doubtful[w.tp] = struct{}{}
			} else {
				delete(g.doubtful, w.tp) // it is among the offsets now
			}
		}
		if err != nil {
			g.c.cfg.Logger.Warn("offsets not stored", "group", g.id, "err", err)
		}
		fx.call(func() { finish(commitError(err)) })
	})
}

func setOffset(offsets map[string]map[int32]offset, topic string, partition int32, o offset) {
	p := offsets[topic]
	if p == nil {
		p = make(map[int32]offset)
		offsets[topic] = p
	}
	p[partition] = o
}

// dropOffsets writes tombstones for the committed offsets that which names and
// nobody is just committing, in a transaction or not, and forgets them once those are stored. A group
// that holds nothing else goes with its last offset.
func (g *group) dropOffsets(fx *effects, which func(protocol.TopicPartition, offset) bool) {
	if g.state == stateDead || g.deleting {
		return
	}
	var gone []protocol.TopicPartition
	var recs []coordinator.Record
	left := 0
	now := time.Now().UnixMilli()
	for topic, parts := range g.offsets {
		for p, o := range parts {
			tp := protocol.TopicPartition{Topic: topic, Partition: p}
			if _, pending := g.unstable[tp]; pending || g.inFlight[tp] > 0 || !which(tp, o) {
				left++
				continue
			}
			gone = append(gone, tp)
			recs = append(recs, coordinator.Record{Timestamp: now, Key: offsetRecordKey(g.id, topic, p)})
		}
	}
	last := left == 0 && g.memberless() && len(g.pending) == 0 && len(g.inFlight) == 0 && len(g.unstable) == 0
	if last {
		for tp := range g.doubtful {
			if _, ok := g.offsets[tp.Topic][tp.Partition]; !ok {
				recs = append(recs, coordinator.Record{Timestamp: now, Key: offsetRecordKey(g.id, tp.Topic, tp.Partition)})
			}
		}
	}
	if last && g.stored {
		recs = append(recs, coordinator.Record{Timestamp: now, Key: groupRecordKey(g.id)})
	}
	if last {
		recs = append(recs, g.consumerTombstones()...)
	}
	if len(recs) == 0 {
		if last {
			g.kill(fx)
		}
		return
	}
	g.deleting = last
	g.seq++
	seq := g.seq
	g.append(fx, recs, func(fx *effects, err error) {
		g.deleting = false
		if err != nil {
			g.c.cfg.Logger.Warn("offsets not removed", "group", g.id, "err", err)
			return
		}
		for _, tp := range gone {
			parts := g.offsets[tp.Topic]
			if o, ok := parts[tp.Partition]; ok && o.seq < seq {
				if delete(parts, tp.Partition); len(parts) == 0 {
					delete(g.offsets, tp.Topic)
				}
			}
		}
		if last && g.state != stateDead {
			g.kill(fx)
		}
	})
}

// expireOffsets drops what has outlived its use: all offsets of a group that
// has been Empty for the retention time; of a live consumer group those of
// topics that nobody subscribes to; of consumers without a group each offset
// on its own; always by the commit's own retention if it had one.
func (g *group) expireOffsets(fx *effects, now time.Time) {
	retention := g.c.cfg.OffsetsRetention
	g.dropOffsets(fx, func(tp protocol.TopicPartition, o offset) bool {
		since := time.UnixMilli(o.committed)
		switch {
		case g.consumer != nil:
			if g.consumer.subscribes(tp.Topic) {
				return false
			}
		case g.protocolType == "":
		case g.state == stateEmpty:
			since = g.stateAt
		case g.state == stateStable && g.topics != nil && !g.topicsUnknown && !g.topics[tp.Topic]:
		default:
			return false
		}
		if o.expires != noExpiry {
			return now.UnixMilli() >= o.expires
		}
		return now.Sub(since) >= retention
	})
}
