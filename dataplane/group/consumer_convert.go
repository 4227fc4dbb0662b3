package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
)

// becomeConsumer makes the group, which has no members, a consumer group; what the log has
// of it as a classic group goes with the first record of the other kind.
func (g *group) becomeConsumer(fx *effects) {
	for id := range g.pending {
		g.dropPending(id)
	}
	g.consumer = newConsumerGroup()
	if !g.stored {
		return
	}
	ch := g.consumer.begin()
	ch.recs = append(ch.recs, coordinator.Record{Timestamp: time.Now().UnixMilli(), Key: groupRecordKey(g.id)})
	ch.done = append(ch.done, func(_ *effects, err error) {
		if err == nil {
			g.stored = false
		}
	})
}

// consumerTombstones are those of all that the log may have of the group as a consumer
// group, which has no members.
func (g *group) consumerTombstones() []coordinator.Record {
	cg := g.consumer
	if cg == nil || cg.blank() {
		return nil
	}
	keys := make(map[consumerKey]struct{})
	for k := range cg.unsure {
		keys[k] = struct{}{}
	}
	for _, ch := range cg.changes { // written before, or refused: then unsure too late
		for k := range ch.keys {
			keys[k] = struct{}{}
		}
	}
	for re := range cg.regexes {
		keys[consumerKey{kindRegex, g.id, re}] = struct{}{}
	}
	if cg.partitionsRecord {
		keys[consumerKey{kind: kindPartitions, group: g.id}] = struct{}{}
	}
	last := []consumerKey{{kind: kindAssigned, group: g.id}, {kind: kindEpoch, group: g.id}}
	for _, k := range last { // Kafka wants them after the others
		delete(keys, k)
	}
	var recs []coordinator.Record
	for k := range keys {
		recs = append(recs, k.record(nil))
	}
	for _, k := range last {
		recs = append(recs, k.record(nil))
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
			g.consumer = nil
		}
		then(fx, err)
	})
}

// mayBecomeConsumer says why a member of the consumer protocol may not join the group,
// which is a classic one.
func (g *group) mayBecomeConsumer(b *beat) *refusal {
	switch {
	case b.epoch != epochJoining:
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", g.id)
	case g.state != stateEmpty:
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", g.id)
	}
	return nil
}

func (g *group) maybeDowngrade(*effects, string, func(*effects, error)) bool { return false }

// classicSide is what a member has that speaks the classic protocol in a consumer group.
type classicSide struct {
	session   time.Duration
	protocols []groupProtocol
}

func (c *classicSide) equal(o *classicSide) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.session == o.session && (&member{protocols: c.protocols}).sameProtocols(o.protocols)
}
