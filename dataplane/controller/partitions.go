package controller

import (
	"errors"
	"slices"
	"strconv"

	"penstock/dataplane/coordination"
)

// decide gives a partition's next state, without epoch and version, from its
// present one; false leaves the partition alone.
type decide func(p *partition) (coordination.PartitionState, bool)

// update writes new states. The leader epoch goes up by one unless keepEpoch.
// A state that somebody else has written meanwhile is read again and decided
// anew. What could be written is in memory afterwards, and returned.
func (t *term) update(parts []*partition, d decide, keepEpoch bool) ([]*partition, error) {
	zk := t.c.cfg.ZK
	var changed []*partition
	for len(parts) > 0 {
		var todo []*partition
		var ws []coordination.StateWrite
		for _, p := range parts {
			s, ok := d(p)
			if !ok {
				continue
			}
			s.LeaderEpoch, s.ControllerEpoch, s.Version = p.state.LeaderEpoch, t.fence.Epoch, p.state.Version
			if !keepEpoch {
				s.LeaderEpoch++
			}
			todo = append(todo, p)
			ws = append(ws, coordination.StateWrite{TP: p.tp, State: s})
		}
		errs, err := zk.UpdateStates(t.ctx, t.fence, ws)
		if err != nil {
			return changed, err
		}
		parts = nil
		for i, p := range todo {
			switch {
			case errs[i] == nil:
				p.state = ws[i].State
				changed = append(changed, p)
			case errors.Is(errs[i], coordination.ErrBadVersion):
				if err := t.reread(p); err != nil {
					return changed, err
				}
				if sameState(p.state, ws[i].State) && p.state.ControllerEpoch == t.fence.Epoch {
					changed = append(changed, p) // our own write, whose reply was lost
				} else {
					parts = append(parts, p)
				}
			default:
				t.c.log.Error("partition state is gone", "partition", p.tp, "err", errs[i])
			}
		}
	}
	return changed, nil
}

func (t *term) reread(p *partition) error {
	s, err := t.c.cfg.ZK.PartitionState(t.ctx, p.tp)
	if err != nil {
		return err
	}
	if s.ControllerEpoch > t.fence.Epoch {
		return coordination.ErrControllerMoved
	}
	p.state, p.known = s, true
	return nil
}

func stateOf(c choice) coordination.PartitionState {
	return coordination.PartitionState{Leader: c.leader, ISR: c.isr, Recovering: c.recovering}
}

// electOnline tries to give a leader to every partition that has none.
func (t *term) electOnline(b *batch) error {
	var all []*partition
	t.st.eachPartition(func(_ *topic, p *partition) { all = append(all, p) })
	return t.electAmong(b, all)
}

// electAmong tries to give a leader to those of the partitions that have none.
func (t *term) electAmong(b *batch, parts []*partition) error {
	var fresh, offline []*partition
	for _, p := range parts {
		switch p.status {
		case partitionNew:
			fresh = append(fresh, p)
		case partitionOffline:
			offline = append(offline, p)
		}
	}
	found, err := t.createStates(b, fresh)
	if err != nil {
		return err
	}
	return t.electOffline(b, append(offline, found...))
}

// createStates elects the first leaders. It returns the partitions that turned
// out to have a state already and no live leader.
func (t *term) createStates(b *batch, parts []*partition) (offline []*partition, err error) {
	var todo []*partition
	var ws []coordination.StateWrite
	for _, p := range parts {
		c := electNew(p.replicas, t.st.serving(p))
		if c.leader == noLeader {
			t.c.log.Warn("new partition has no live replica yet", "partition", p.tp, "replicas", p.replicas)
			continue
		}
		s := stateOf(c)
		s.ControllerEpoch = t.fence.Epoch
		todo = append(todo, p)
		ws = append(ws, coordination.StateWrite{TP: p.tp, State: s})
	}
	errs, err := t.c.cfg.ZK.CreateStates(t.ctx, t.fence, ws)
	if err != nil {
		return nil, err
	}
	for i, p := range todo {
		switch {
		case errs[i] == nil:
			p.state, p.known = ws[i].State, true
			p.become(partitionOnline)
			b.leaderAndISR(p.replicas, p, true)
		case errors.Is(errs[i], coordination.ErrNodeExists):
			// A lost reply, or a predecessor's work that the reads came too
			// early for.
			if err := t.reread(p); err != nil {
				return nil, err
			}
			if t.st.serving(p)(p.state.Leader) {
				p.become(partitionOnline)
				b.leaderAndISR(p.replicas, p, p.state.LeaderEpoch == 0)
			} else {
				p.become(partitionOffline)
				offline = append(offline, p)
			}
		default:
			t.c.log.Warn("new partition could not be set up", "partition", p.tp, "err", errs[i])
		}
	}
	return offline, nil
}

// electOffline elects among the replicas in sync and, for topics that allow it,
// among the others.
func (t *term) electOffline(b *batch, parts []*partition) error {
	if err := t.elect(b, parts, func(p *partition) choice { return electOffline(p.replicas, p.state.ISR, t.st.serving(p), false) }); err != nil {
		return err
	}
	var unclean []*partition
	allowed := map[string]bool{}
	for _, p := range parts {
		if p.status != partitionOffline || !slices.ContainsFunc(p.replicas, t.st.serving(p)) {
			continue
		}
		ok, asked := allowed[p.tp.Topic]
		if !asked {
			var err error
			if ok, err = t.uncleanAllowed(p.tp.Topic); err != nil {
				return err
			}
			allowed[p.tp.Topic] = ok
		}
		if ok {
			unclean = append(unclean, p)
		}
	}
	if len(unclean) == 0 {
		return nil
	}
	return t.elect(b, unclean, t.uncleanly)
}

func (t *term) uncleanly(p *partition) choice {
	c := electOffline(p.replicas, p.state.ISR, t.st.serving(p), true)
	if c.recovering {
		t.c.log.Error("unclean leader election: acknowledged records may be lost", "partition", p.tp, "leader", c.leader, "isr", p.state.ISR)
	}
	return c
}

func (t *term) uncleanAllowed(topic string) (bool, error) {
	cfg, err := t.c.cfg.ZK.Config(t.ctx, "topics/"+topic)
	if err != nil {
		return false, err
	}
	if v, ok := cfg["unclean.leader.election.enable"]; ok {
		if set, err := strconv.ParseBool(v); err == nil {
			return set, nil
		}
	}
	return t.c.cfg.UncleanLeaderElection(), nil
}

// elect writes the choices for partitions that have a state; who is not chosen
// for stays as it is.
func (t *term) elect(b *batch, parts []*partition, choose func(p *partition) choice) error {
	changed, err := t.update(parts, func(p *partition) (coordination.PartitionState, bool) {
		c := choose(p)
		if c.leader == noLeader {
			return coordination.PartitionState{}, false
		}
		return stateOf(c), true
	}, false)
	for _, p := range changed {
		p.become(partitionOnline)
		b.leaderAndISR(p.replicas, p, false)
	}
	return err
}

// replicasOffline takes replicas on brokers that do not live (any more), or in log
// folders that have failed, out of the ISRs of the partitions, and tells the remaining ones. If that would leave
// an ISR empty it stays as it is: each of its members has all that was
// acknowledged, and the first to come back can lead.
func (t *term) replicasOffline(b *batch, parts []*partition) error {
	var known []*partition
	for _, p := range parts {
		for _, r := range p.replicas {
			if !t.st.serving(p)(r) && p.replica[r].mayBecome(replicaOffline) {
				p.replicaBecome(r, replicaOffline)
			}
		}
		b.meta[p.tp] = true
		if p.known {
			known = append(known, p)
		}
	}
	changed, err := t.update(known, func(p *partition) (coordination.PartitionState, bool) {
		// A leader that is stopping but could not be replaced stays in sync.
		keep := func(r int32) bool { return t.st.serving(p)(r) || r == p.state.Leader && t.st.reachable(p)(r) }
		s := coordination.PartitionState{Leader: p.state.Leader, ISR: filter(p.state.ISR, keep), Recovering: p.state.Recovering}
		if !t.st.reachable(p)(s.Leader) {
			s.Leader = noLeader
		}
		if len(s.ISR) == 0 {
			s.ISR = p.state.ISR
		}
		return s, s.Leader != p.state.Leader || len(s.ISR) != len(p.state.ISR)
	}, false)
	for _, p := range changed {
		if p.state.Leader == noLeader && p.status == partitionOnline {
			p.become(partitionOffline)
		}
		b.leaderAndISR(filter(p.replicas, t.st.serving(p)), p, false)
	}
	return err
}
