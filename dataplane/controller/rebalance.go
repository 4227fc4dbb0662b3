package controller

import (
	"errors"
	"slices"
	"time"

	"penstock/dataplane/coordination"
)

// preferredOf lists the partitions that prefer the broker as leader, and those
// among them that another one leads. A reassignment moves leaders by itself.
func (t *term) preferredOf(id int32) (all, away []*partition) {
	t.st.eachPartition(func(_ *topic, p *partition) {
		if p.known && len(p.replicas) > 0 && p.replicas[0] == id && !p.moving() {
			all = append(all, p)
			if p.state.Leader != id {
				away = append(away, p)
			}
		}
	})
	return all, away
}

// scheduleRebalance puts the next look at the preferred leaders on the clock.
func (t *term) scheduleRebalance(d time.Duration) {
	t.stopTimer = t.c.after(d, "", func() error {
		if t.c.term.Load() != t {
			return nil
		}
		if err := t.rebalance(); err != nil {
			return err
		}
		t.scheduleRebalance(t.c.cfg.RebalanceInterval)
		return nil
	})
}

// rebalance gives brokers back what they are preferred for, where too much of
// it is led by others.
func (t *term) rebalance() error {
	b := t.newBatch()
	for _, id := range t.st.ids() {
		if !t.st.live(id) {
			continue
		}
		all, away := t.preferredOf(id)
		if len(away)*100 <= len(all)*t.c.cfg.ImbalancePercent {
			continue
		}
		t.c.log.Info("moving leadership back to the preferred broker", "broker", id, "partitions", len(away), "of", len(all))
		if err := t.electPreferred(b, away); err != nil {
			return err
		}
	}
	b.send()
	return nil
}

func (t *term) electPreferred(b *batch, parts []*partition) error {
	return t.elect(b, parts, func(p *partition) choice {
		if p.status != partitionOnline && p.status != partitionOffline || p.state.Leader == p.replicas[0] {
			return choice{leader: noLeader}
		}
		return electPreferred(p.replicas, p.state.ISR, t.st.serving(p))
	})
}

// preferredRequested carries out an operator's request in ZooKeeper.
func (t *term) preferredRequested() error {
	zk := t.c.cfg.ZK
	data, st, err := zk.Get(t.ctx, coordination.PreferredPath)
	if errors.Is(err, coordination.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	var parts []*partition
	for _, tp := range partitionsOf(data) {
		if p := t.st.partition(tp); p != nil && p.known && !t.st.topics[tp.Topic].deleting {
			parts = append(parts, p)
		}
	}
	parts = slices.CompactFunc(parts, func(a, b *partition) bool { return a == b })
	b := t.newBatch()
	if err := t.electPreferred(b, parts); err != nil {
		return err
	}
	b.send()
	_, err = zk.Fenced(t.ctx, t.fence, coordination.DeleteOp(coordination.PreferredPath, st.Version))
	if errors.Is(err, coordination.ErrNoNode) || errors.Is(err, coordination.ErrBadVersion) {
		return nil
	}
	return err
}
