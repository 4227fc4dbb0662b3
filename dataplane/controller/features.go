package controller

import (
	"errors"
	"maps"
	"slices"

	"penstock/dataplane/coordination"
)

// A feature is in force at what all brokers can do, those too that are away and will be back: a
// client that has used more meanwhile would be refused by them. What each broker could do when
// it was seen last is kept in ZooKeeper (coordination.FeatureRecords). Brokers write down what
// they see; the controller knows who will be back: an id that a partition has among its
// replicas. It removes the records of the others that are away, and adds one that can do
// nothing for an id that was away before any broker of ours was there to see it.
//
// A controller of Kafka 3.9 does neither, and need not: while it lives nothing is in force.

// neededRecords gives what the records become, and whether that is something else. used says of each
// broker whether it has replicas, up whether it lives; could is what is remembered of brokers that
// have gone, and may know less than the records.
func neededRecords(have map[int32]coordination.Abilities, used map[int32]topicPart, up func(int32) bool, could map[int32]coordination.Abilities) (next map[int32]coordination.Abilities, changed bool) {
	next = map[int32]coordination.Abilities{}
	for id, can := range have {
		if _, ok := used[id]; ok || up(id) {
			next[id] = can
		}
	}
	changed = len(next) < len(have)
	for id := range used {
		if _, ok := next[id]; !ok && !up(id) {
			next[id], changed = could[id], true
		}
	}
	return next, changed
}

// used gives for each broker with replicas one partition that has it.
func (s *state) used() map[int32]topicPart {
	of := map[int32]topicPart{}
	for _, tc := range s.topics { // also those that are deleted: they wait for brokers that are away
		for _, p := range tc.parts {
			for _, r := range p.hosts() {
				if _, ok := of[r]; !ok {
					of[r] = p.tp
				}
			}
		}
	}
	return of
}

// keepRecords looks through all partitions, and is called when brokers have gone, at the
// beginning of a term, and when one of the three below says so.
func (t *term) keepRecords() error {
	used := t.st.used()
	for {
		have, err := t.c.cfg.ZK.FeatureRecords(t.ctx)
		if err != nil {
			return err
		}
		next, changed := neededRecords(have.Of, used, t.st.up, t.st.could)
		t.st.away = used
		maps.DeleteFunc(t.st.away, func(id int32, _ topicPart) bool { return t.st.up(id) })
		if !changed && have.Bad == nil {
			return nil
		}
		err = t.c.cfg.ZK.WriteFeatureRecords(t.ctx, have, next, &t.fence)
		switch {
		case err == nil:
			t.c.log.Info("kept what brokers can do", "brokers", slices.Sorted(maps.Keys(next)), "away", slices.Sorted(maps.Keys(t.st.away)), "bad", have.Bad)
			return nil
		case errors.Is(err, coordination.ErrBadVersion):
			// A broker has written what it sees.
		case errors.Is(err, coordination.ErrNoAuth):
			// As with any znode of another user's. It costs the levels, not the cluster its controller.
			t.c.log.Error("what brokers can do cannot be written", "err", err)
			return nil
		default:
			return err
		}
	}
}

// recordsOutlived looks whether a broker that is away has just lost its last replica. It looks at one
// partition for each such broker only, and at all of them when that one has it no longer.
func (t *term) recordsOutlived() {
	for id, tp := range t.st.away {
		if p := t.st.partition(tp); !t.st.up(id) && (p == nil || !slices.Contains(p.hosts(), id)) {
			t.post("records", t.keepRecords)
			return
		}
	}
}

// recordsMissed looks whether partitions that are new or move have a replica on a broker that has just
// gone, and whose record may have been removed.
func (t *term) recordsMissed(parts ...*partition) {
	for _, p := range parts {
		for _, r := range p.replicas {
			if _, ok := t.st.away[r]; !ok && !t.st.up(r) {
				t.post("records", t.keepRecords)
				return
			}
		}
	}
}

// recordsChanged looks whether somebody has damaged or removed what a broker needs that is away.
func (t *term) recordsChanged() error {
	have, err := t.c.cfg.ZK.FeatureRecords(t.ctx)
	if err != nil {
		return err
	}
	for id := range t.st.away {
		if _, ok := have.Of[id]; !ok && !t.st.up(id) {
			return t.keepRecords()
		}
	}
	if have.Bad != nil {
		return t.keepRecords()
	}
	return nil
}
