package controller

import (
	"slices"

	"penstock/dataplane/coordination"
)

// reborn tells which brokers have registered since p's state was written: the
// state speaks of a life that is over.
func (s *state) reborn(p *partition) func(int32) bool {
	return func(id int32) bool {
		b, ok := s.brokers[id]
		return ok && b.Epoch > p.state.Written
	}
}

// rebornOut does at the start of a term what brokersChanged does within one: a
// broker that was away, however shortly, is not in sync until it has caught up,
// and leads in a new epoch only. Its log may have lost its end, and its high
// watermark is that of its last checkpoint: going on under the old epoch would
// take consumers back, and write other records at offsets that followers hold
// under that very epoch. It happens when the controller itself is killed and is
// back first: nobody was in office to see its registration go.
//
// Where all of the ISR is such, there is nobody better. A partition with one replica is
// left alone, as Kafka leaves it: nobody else has anything of that epoch.
func (t *term) rebornOut(b *batch) error {
	var parts []*partition
	for _, tc := range t.st.topics {
		for _, p := range tc.parts {
			if p.known && !tc.deleting && len(p.replicas) > 1 && slices.ContainsFunc(p.state.ISR, t.st.reborn(p)) {
				parts = append(parts, p)
			}
		}
	}
	changed, err := t.update(parts, func(p *partition) (coordination.PartitionState, bool) {
		reborn, serving := t.st.reborn(p), t.st.serving(p)
		stay := filter(p.state.ISR, func(id int32) bool { return serving(id) && !reborn(id) })
		switch {
		case !slices.ContainsFunc(p.state.ISR, reborn): // read again, and settled by somebody else
			return coordination.PartitionState{}, false
		case slices.Contains(stay, p.state.Leader):
			return coordination.PartitionState{Leader: p.state.Leader, ISR: stay, Recovering: p.state.Recovering}, true
		}
		c := electOffline(p.replicas, stay, serving, false)
		if c.leader == noLeader {
			c = electOffline(p.replicas, p.state.ISR, serving, false)
		}
		return stateOf(c), c.leader != noLeader
	}, false)
	for _, p := range changed {
		b.leaderAndISR(p.replicas, p, false)
	}
	return err
}
