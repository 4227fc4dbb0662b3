package group

import (
	"cmp"
	"slices"
	"time"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/group/assignor"
)

// consumerRecords is what the log holds of one consumer group: the last value of each key
// that has no tombstone.
type consumerRecords map[consumerKey]any

// addConsumer takes a record of a consumer group. errForeign says that it is none.
func (l *loader) addConsumer(rec coordinator.Record) error {
	k, err := readConsumerKey(rec.Key)
	if err != nil {
		return err
	}
	recs := l.consumers[k.group]
	if rec.Value == nil {
		delete(recs, k)
		if len(recs) == 0 {
			delete(l.consumers, k.group)
		}
		return nil
	}
	v, err := readConsumerValue(k.kind, rec.Value)
	if err != nil {
		return err
	}
	if recs == nil {
		recs = make(consumerRecords)
		l.consumers[k.group] = recs
	}
	recs[k] = v
	return nil
}

// restoreConsumer makes the group what its records say. Records that do not fit together,
// as a compacted log of another broker's may hold, count as little as they must; they are
// removed at the next write.
func (g *group) restoreConsumer(recs consumerRecords) {
	cg := newConsumerGroup()
	g.consumer = cg
	var members []*consumerMember
	for k, v := range recs {
		switch v := v.(type) {
		case epochValue:
			cg.epoch, cg.hash = v.epoch, v.hash
		case partitionsValue:
			cg.partitionsRecord = true
		case assignedValue:
			cg.assigned = v.epoch
			if v.at > 0 {
				cg.at = time.UnixMilli(v.at)
			}
		case regexValue:
			cg.putRegex(k.name, &resolved{topics: slices.Compact(slices.Sorted(slices.Values(v.topics))), at: v.at})
		case *consumerMember:
			v.id = k.name
			if c, ok := recs[consumerKey{kindCurrent, k.group, k.name}].(currentValue); ok {
				v.epoch, v.previous, v.state, v.has, v.revoking = c.epoch, c.previous, c.state, c.has, c.revoking
			}
			members = append(members, v)
		}
	}
	// The newest owner of a partition is the true one.
	slices.SortFunc(members, func(a, b *consumerMember) int {
		return cmp.Or(cmp.Compare(b.epoch, a.epoch), cmp.Compare(a.id, b.id))
	})
	for _, m := range members {
		dropped := cg.dropOwned(m.has, m.id)
		dropped = cg.dropOwned(m.revoking, m.id) || dropped
		if dropped {
			cg.unsure[consumerKey{kindCurrent, g.id, m.id}] = struct{}{}
		}
		cg.put(m.id, m)
	}
	for k, v := range recs {
		known := cg.members[k.name] != nil
		switch v := v.(type) {
		case currentValue:
			if !known {
				cg.unsure[k] = struct{}{}
			}
		case assignor.Assignment:
			if known {
				cg.putTarget(k.name, v, true)
			} else {
				cg.unsure[k] = struct{}{}
			}
		}
	}
}

// dropOwned takes out of the holding what belongs to other members.
func (cg *consumerGroup) dropOwned(h holding, id string) bool {
	some := false
	for t, ps := range h {
		for p := range ps {
			if other, ok := cg.owner[t][p]; ok && other != id {
				delete(ps, p)
				some = true
			}
		}
		if len(ps) == 0 {
			delete(h, t)
		}
	}
	return some
}
