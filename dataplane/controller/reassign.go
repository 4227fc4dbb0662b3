package controller

import (
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordination"
)

// A reassignment (KIP-455) goes through these steps. Each is safe to break off
// after any write: the next controller goes on from what the topic's znode says.
//
//  1. The znode gets the old and the new replicas, and which of them come and
//     which go.
//  2. The leader epoch goes up, so that brokers take the new list in: those that
//     come begin to follow.
//  3. When all replicas that are to stay are in sync, those that go are taken
//     out of the in-sync set, the leader moves if it is one of them, and they are
//     told to delete what they have.
//  4. When those of them that live have said so, the znode gets the new list
//     alone. Kafka does that before it knows; a controller that ends in between
//     leaves folders behind then that nobody ever looks at again.
//
// A reassignment that is replaced or cancelled goes the same way: what the
// earlier one was adding is "leaving" (the znode calls that removing) until it is
// gone.

// move is one partition's wish.
type move struct {
	p      *partition
	target []int32
}

// moving is so until the topic's znode has nothing but the replicas.
func (p *partition) moving() bool { return len(p.adding)+len(p.removing) > 0 || p.listed }

// origin and target are the replicas before and after the reassignment.
func (p *partition) origin() []int32 { return without(p.replicas, p.adding) }
func (p *partition) target() []int32 { return without(p.replicas, p.removing) }

// hosts may have files of the partition.
func (p *partition) hosts() []int32 {
	if len(p.leaving) == 0 {
		return p.replicas
	}
	return union(p.replicas, p.leaving)
}

func without(a, b []int32) []int32 {
	return filter(a, func(id int32) bool { return !slices.Contains(b, id) })
}

func union(a, b []int32) []int32 { return append(slices.Clone(a), without(b, a)...) }

// within is the partition's next state if only members may be in sync and
// lead. An in-sync set that would be empty stays.
func (t *term) within(p *partition, members []int32) coordination.PartitionState {
	s := coordination.PartitionState{Leader: p.state.Leader, ISR: p.state.ISR, Recovering: p.state.Recovering}
	if isr := filter(p.state.ISR, func(r int32) bool { return slices.Contains(members, r) }); len(isr) > 0 {
		s.ISR = isr
	}
	if !slices.Contains(members, s.Leader) || !t.st.reachable(p)(s.Leader) {
		c := electOffline(members, s.ISR, t.st.serving(p), false)
		s.Leader, s.Recovering = c.leader, false
	}
	return s
}

// complete says whether all replicas that are to stay are in sync and one of them
// can lead.
func (t *term) complete(p *partition) bool {
	if !p.known || len(p.adding)+len(p.removing) == 0 {
		return false
	}
	target := p.target()
	return len(target) > 0 && len(without(target, p.state.ISR)) == 0 && t.within(p, target).Leader != noLeader
}

// reassign starts reassignments, replaces those under way, and, with the replicas
// that a partition had before as the target, takes them back.
func (t *term) reassign(moves []move) error {
	type plan struct {
		replicas, adding, removing []int32
		gone                       []int32 // what an earlier reassignment was adding
	}
	plans := make([]plan, len(moves))
	written := map[topicPart]coordination.Assignment{}
	for i, m := range moves {
		p, origin := m.p, m.p.origin()
		n := plan{replicas: union(m.target, origin), adding: without(m.target, origin), removing: without(origin, m.target)}
		n.gone = without(p.replicas, n.replicas)
		if p.known && t.within(p, n.replicas).Leader == noLeader && len(without(p.state.ISR, n.gone)) < len(p.state.ISR) {
			// Only they may have all that was acknowledged: they stay until the others do.
			n.replicas, n.removing, n.gone = append(n.replicas, n.gone...), append(n.removing, n.gone...), nil
		}
		plans[i] = n
		leaving := union(without(p.leaving, n.replicas), n.gone)
		written[p.tp] = coordination.Assignment{Replicas: union(n.replicas, leaving), Adding: n.adding, Removing: union(n.removing, leaving)}
		t.c.log.Info("reassigning", "partition", p.tp, "from", p.replicas, "to", m.target, "adding", n.adding, "removing", n.removing)
	}
	if err := t.c.cfg.ZK.Reassign(t.ctx, t.fence, written); err != nil {
		return err
	}
	b := t.newBatch()
	var known, fresh []*partition
	for i, m := range moves {
		p, n := m.p, plans[i]
		for _, r := range n.replicas {
			if slices.Contains(p.leaving, r) { // comes back before it has said that it is gone
				delete(p.replica, r)
			}
			if p.replica[r] == replicaNonExistent {
				p.replicaBecome(r, replicaNew)
				t.settle(p, r)
			}
		}
		p.replicas, p.adding, p.removing, p.leaving = n.replicas, n.adding, n.removing, without(p.leaving, n.replicas)
		t.release(b, p, n.gone)
		t.track(p)
		t.recordsMissed(p)
		if p.known {
			known = append(known, p)
		} else if p.status == partitionNew {
			fresh = append(fresh, p)
		}
	}
	if err := t.announce(b, known); err != nil {
		return err
	}
	if _, err := t.createStates(b, fresh); err != nil {
		return err
	}
	b.send()
	return t.advance()
}

// settle puts a replica into the state that its broker allows.
func (t *term) settle(p *partition, r int32) {
	next := replicaOffline
	if t.st.up(r) {
		next = replicaOnline
	}
	p.replicaBecome(r, next)
}

func (t *term) track(p *partition) {
	if p.moving() {
		t.st.moving[p.tp] = p
	} else {
		delete(t.st.moving, p.tp)
	}
}

// announce raises the leader epoch and tells the replicas who they are.
func (t *term) announce(b *batch, parts []*partition) error {
	changed, err := t.update(parts, func(p *partition) (coordination.PartitionState, bool) { return t.within(p, p.replicas), true }, false)
	for _, p := range changed {
		t.settleLeader(p)
		b.leaderAndISR(p.replicas, p, false)
	}
	return err
}

// settleLeader puts a partition into the state that its leader allows.
func (t *term) settleLeader(p *partition) {
	if p.state.Leader == noLeader {
		p.become(partitionOffline)
	} else {
		p.become(partitionOnline)
	}
}

// release tells replicas that a partition no longer has to delete what they
// have.
func (t *term) release(b *batch, p *partition, gone []int32) {
	p.listed = p.listed || len(gone) > 0
	for _, r := range gone {
		if !t.st.up(r) {
			t.stray(p, r)
			continue
		}
		p.replicaBecome(r, replicaOffline)
		p.replicaBecome(r, replicaDeletionStarted)
		p.leaving = append(p.leaving, r)
		b.stopReplica(r, p, true)
	}
}

// stray notes that a broker was gone when its replica was moved away. It is told
// when it returns; a controller that is elected meanwhile does not know, and the
// files stay, as they do with Kafka. Should the broker become a replica again, it
// cuts that log back like any other that returns.
func (t *term) stray(p *partition, r int32) {
	t.c.log.Warn("a replica was moved away from a broker that is gone", "broker", r, "partition", p.tp)
	delete(p.replica, r)
	put(t.st.strays, r, p.tp, true)
}

func (t *term) stopStrays(b *batch, ids []int32) {
	for _, id := range ids {
		for tp := range t.st.strays[id] {
			if p := t.st.partition(tp); p != nil && !slices.Contains(p.hosts(), id) {
				b.stopReplica(id, p, true)
			}
		}
		delete(t.st.strays, id)
	}
}

// stopLeaving repeats to brokers what they may not have heard, or forgotten.
func (t *term) stopLeaving(b *batch, ids []int32) {
	for _, p := range t.movingSorted() {
		for _, r := range p.leaving {
			if slices.Contains(ids, r) {
				b.stopReplica(r, p, true)
			}
		}
	}
}

// left takes in that a broker has answered. What it could not delete lies in a
// folder that has failed.
func (t *term) left(p *partition, id int32, code int16) {
	if code != 0 {
		t.c.log.Warn("broker could not delete a replica that was moved away", "broker", id, "partition", p.tp, "err", kerr.ErrorForCode(code))
	}
	p.leaving = without(p.leaving, []int32{id})
	delete(p.replica, id)
}

// progress looks, soon, whether a reassignment can go on.
func (t *term) progress(p *partition) {
	if p.moving() {
		t.post("reassigned", t.advance)
	}
}

func (t *term) movingSorted() []*partition {
	return slices.SortedFunc(maps.Values(t.st.moving), func(a, b *partition) int { return compareTPs(a.tp, b.tp) })
}

// advance takes every reassignment as far as it can go now.
func (t *term) advance() error {
	b := t.newBatch()
	var ready []*partition
	for _, p := range t.movingSorted() {
		if !t.st.topics[p.tp.Topic].deleting && t.complete(p) { // those of a topic that goes all go
			ready = append(ready, p)
		}
	}
	changed, err := t.update(ready, func(p *partition) (coordination.PartitionState, bool) {
		return t.within(p, p.target()), t.complete(p)
	}, false)
	for _, p := range changed {
		gone := p.removing
		p.replicas, p.adding, p.removing, p.listed = p.target(), nil, nil, true
		t.settleLeader(p)
		b.leaderAndISR(p.replicas, p, false)
		t.release(b, p, gone)
	}
	if err != nil {
		return err
	}
	b.send()
	return t.finish()
}

// finish writes the assignments of partitions whose former replicas are gone.
func (t *term) finish() error {
	written := map[topicPart]coordination.Assignment{}
	for _, p := range t.movingSorted() {
		if t.st.topics[p.tp.Topic].deleting {
			continue
		}
		if now := filter(p.leaving, t.st.up); len(now) < len(p.leaving) {
			for _, r := range without(p.leaving, now) {
				t.stray(p, r)
			}
			p.leaving = now
		}
		if p.listed && len(p.leaving) == 0 {
			written[p.tp] = coordination.Assignment{Replicas: p.replicas, Adding: p.adding, Removing: p.removing}
		}
	}
	if err := t.c.cfg.ZK.Reassign(t.ctx, t.fence, written); err != nil {
		return err
	}
	for tp := range written {
		p := t.st.partition(tp)
		p.listed = false
		if t.track(p); !p.moving() {
			t.c.log.Info("reassigned", "partition", p.tp, "replicas", p.replicas, "leader", p.state.Leader)
		}
	}
	t.recordsOutlived()
	return t.sweepAsked()
}

// resumeReassignments goes on, after a failover, with what the znodes say.
func (t *term) resumeReassignments(b *batch) error {
	var known []*partition
	for _, p := range t.movingSorted() {
		if p.known && !t.st.topics[p.tp.Topic].deleting {
			t.c.log.Info("going on with a reassignment", "partition", p.tp, "replicas", p.replicas, "adding", p.adding, "removing", p.removing)
			known = append(known, p)
		}
	}
	if err := t.announce(b, known); err != nil {
		return err
	}
	b.send()
	if err := t.advance(); err != nil {
		return err
	}
	return t.reassignmentsAsked()
}

// reassignmentsAsked carries out what tools from before KIP-455 have left in
// ZooKeeper. An entry stays there until it is done.
func (t *term) reassignmentsAsked() error {
	asked, version, err := t.c.cfg.ZK.AskedReassignments(t.ctx)
	if errors.Is(err, coordination.ErrNoNode) {
		t.asked = nil
		return nil
	}
	if err != nil {
		return err
	}
	var moves []move
	for _, tp := range sortedTPs(asked) {
		old, again := t.asked[tp]
		p, target := t.st.partition(tp), asked[tp]
		if again && slices.Equal(old, target) { // under way
			continue
		}
		if p == nil || t.st.topics[tp.Topic].deleting || len(target) == 0 || repeats(target) || slices.Min(target) < 0 {
			t.c.log.Error("a reassignment that was asked for in zookeeper makes no sense", "partition", tp, "replicas", target)
			continue
		}
		moves = append(moves, move{p, target})
	}
	t.asked = asked
	if len(asked) == 0 {
		err := t.c.cfg.ZK.SetAskedReassignments(t.ctx, t.fence, nil, version)
		if errors.Is(err, coordination.ErrNoNode) || errors.Is(err, coordination.ErrBadVersion) {
			return nil // the watch says so
		}
		return err
	}
	if len(moves) > 0 {
		err := t.reassign(moves)
		if !errors.Is(err, coordination.ErrTooLarge) {
			return err
		}
		t.c.log.Error("reassignments that were asked for in zookeeper are too many at once", "err", err)
	}
	return t.sweepAsked()
}

// sweepAsked takes out of the znode what is done, was replaced or makes no
// sense.
func (t *term) sweepAsked() error {
	over := func(tp topicPart, target []int32) bool {
		p := t.st.partition(tp)
		return p == nil || t.st.moving[tp] == nil || t.st.topics[tp.Topic].deleting || !slices.Equal(p.target(), target)
	}
	for tp, target := range t.asked {
		if !over(tp, target) {
			continue
		}
		asked, version, err := t.c.cfg.ZK.AskedReassignments(t.ctx)
		if err == nil {
			maps.DeleteFunc(asked, func(tp topicPart, target []int32) bool {
				return slices.Equal(t.asked[tp], target) && over(tp, target)
			})
			err = t.c.cfg.ZK.SetAskedReassignments(t.ctx, t.fence, asked, version)
		}
		if err == nil {
			maps.DeleteFunc(t.asked, over)
			return nil
		}
		if errors.Is(err, coordination.ErrNoNode) || errors.Is(err, coordination.ErrBadVersion) {
			return nil // the watch says so
		}
		return err
	}
	return nil
}
