package group

import (
	"time"

	"penstock/dataplane/coordinator"
)

// consumerKeys are the keys of all that the log may have of the group as a consumer group.
func (g *group) consumerKeys() map[consumerKey]struct{} {
	keys := make(map[consumerKey]struct{})
	for k := range g.leftover {
		keys[k] = struct{}{}
	}
	cg := g.consumer
	if cg == nil {
		return keys
	}
	for k := range cg.unsure {
		keys[k] = struct{}{}
	}
	for _, ch := range cg.changes {
		for k := range ch.keys {
			keys[k] = struct{}{}
		}
	}
	for id := range cg.members {
		for _, kind := range []uint16{kindCurrent, kindTarget, kindMember} {
			keys[consumerKey{kind, g.id, id}] = struct{}{}
		}
	}
	for re := range cg.regexes {
		keys[consumerKey{kindRegex, g.id, re}] = struct{}{}
	}
	if cg.partitionsRecord {
		keys[consumerKey{kind: kindPartitions, group: g.id}] = struct{}{}
	}
	if cg.epoch > 0 {
		keys[consumerKey{kind: kindEpoch, group: g.id}] = struct{}{}
		keys[consumerKey{kind: kindAssigned, group: g.id}] = struct{}{}
	}
	return keys
}

// consumerTombstones are the tombstones of those keys, in the order that Kafka asks for: a
// member's assignments before the member, and the group last.
func (g *group) consumerTombstones() []coordinator.Record {
	keys := g.consumerKeys()
	var recs []coordinator.Record
	for _, kind := range []uint16{kindCurrent, kindTarget, kindMember, kindRegex, kindPartitions, kindAssigned, kindEpoch} {
		for k := range keys {
			if k.kind == kind {
				recs = append(recs, k.record(nil))
			}
		}
	}
	return recs
}

// leaveConsumerKind makes the group, a consumer group without members, a group of no kind
// again, so that a classic member may join it; then runs with the mutex held.
func (g *group) leaveConsumerKind(fx *effects, then func(*effects, error)) {
	recs := g.consumerTombstones()
	if len(recs) == 0 {
		g.consumer.stopClocks()
		g.consumer = nil
		then(fx, nil)
		return
	}
	g.deleting = true
	g.append(fx, recs, func(fx *effects, err error) {
		g.deleting = false
		if err == nil && g.state != stateDead {
			g.consumer.stopClocks()
			g.consumer, g.leftover = nil, nil
		}
		then(fx, err)
	})
}

// classicTombstone is the tombstone of the group's record as a classic group, if the log
// may have one.
func (g *group) classicTombstone() []coordinator.Record {
	if !g.stored {
		return nil
	}
	return []coordinator.Record{{Timestamp: time.Now().UnixMilli(), Key: groupRecordKey(g.id)}}
}
