package controller

import (
	"slices"

	"penstock/dataplane/coordination"
)

// brokersChanged compares the registrations with the brokers that are known. A
// higher epoch under the same id is another life of the broker: what its former
// life was told is gone, so it is treated as lost and then as new.
func (t *term) brokersChanged() error {
	now, err := t.c.cfg.ZK.Brokers(t.ctx)
	if err != nil {
		return err
	}
	var added, again []coordination.Broker
	seen := map[int32]bool{}
	for _, b := range now {
		seen[b.ID] = true
		old, ok := t.st.brokers[b.ID]
		switch {
		case !ok:
			added = append(added, b)
		case bounced(old, b):
			again = append(again, b)
		}
	}
	var dead []int32
	for _, id := range t.st.ids() {
		if !seen[id] {
			dead = append(dead, id)
		}
	}
	if len(added)+len(again)+len(dead) == 0 {
		return nil
	}
	t.c.log.Info("brokers changed", "new", idsOf(added), "restarted", idsOf(again), "lost", dead)
	if len(added) > 0 {
		if err := t.brokersUp(added); err != nil {
			return err
		}
	}
	if len(again) > 0 {
		if err := t.brokersLost(idsOf(again)); err != nil {
			return err
		}
		if err := t.brokersUp(again); err != nil {
			return err
		}
	}
	if len(dead) > 0 {
		if err := t.brokersLost(dead); err != nil {
			return err
		}
		if err := t.keepRecords(); err != nil {
			return err
		}
	}
	return t.advance()
}

func idsOf(bs []coordination.Broker) []int32 {
	ids := make([]int32, len(bs))
	for i := range bs {
		ids[i] = bs[i].ID
	}
	return ids
}

// brokersUp welcomes brokers: all are told that they live, they are told
// everything, and partitions that waited for one of them get a leader.
func (t *term) brokersUp(bs []coordination.Broker) error {
	ids := idsOf(bs)
	for _, b := range bs {
		t.st.brokers[b.ID] = b
		delete(t.st.stopping, b.ID)
		delete(t.st.offline, b.ID)
		t.addSender(b)
	}
	old := filter(t.st.ids(), func(id int32) bool { return !slices.Contains(ids, id) })
	t.sendMetadata(old, nil)
	t.sendMetadata(ids, t.allPartitions())
	b := t.newBatch()
	for _, p := range t.st.partitionsOn(ids...) {
		for _, r := range p.replicas {
			if slices.Contains(ids, r) && p.replica[r].mayBecome(replicaOnline) {
				p.replicaBecome(r, replicaOnline)
			}
		}
		if p.known {
			b.leaderAndISR(filter(p.replicas, func(r int32) bool { return slices.Contains(ids, r) }), p, false)
		}
	}
	t.stopLeaving(b, ids)
	t.stopStrays(b, ids)
	b.send()
	if err := t.electOnline(b); err != nil {
		return err
	}
	b.send()
	t.retryDeletions(func(r int32) bool { return slices.Contains(ids, r) })
	return t.resumeDeletions()
}

// brokersLost elects new leaders where the brokers led, takes their replicas out
// of the ISRs, and tells the others.
func (t *term) brokersLost(ids []int32) error {
	for _, id := range ids {
		t.st.could[id] = t.st.brokers[id].Features
		delete(t.st.brokers, id)
		delete(t.st.stopping, id)
		delete(t.st.offline, id)
		t.removeSender(id)
	}
	t.st.eachPartition(func(_ *topic, p *partition) {
		if p.known && slices.Contains(ids, p.state.Leader) && p.status == partitionOnline {
			p.become(partitionOffline)
		}
	})
	b := t.newBatch()
	b.all = true
	if err := t.electOnline(b); err != nil {
		return err
	}
	b.send()
	if err := t.replicasOffline(b, t.st.partitionsOn(ids...)); err != nil {
		return err
	}
	b.send()
	t.failDeletions(ids)
	return t.resumeDeletions()
}

// resync tells one broker everything, after its queue has overflowed.
func (t *term) resync(s *sender) error {
	if t.senders[s.broker.ID] != s {
		return nil
	}
	id := s.broker.ID
	t.c.log.Warn("broker was far behind and is told everything anew", "broker", id)
	b := t.newBatch()
	for _, p := range t.st.partitionsOn(id) {
		if p.known {
			put(b.lead, id, p.tp, false)
		}
	}
	t.stopLeaving(b, []int32{id})
	b.send()
	t.sendMetadata([]int32{id}, t.allPartitions())
	t.failDeletions([]int32{id})
	t.retryDeletions(func(r int32) bool { return r == id })
	return t.resumeDeletions()
}

// bounced tells a broker's new life from the one that is known.
func bounced(old, now coordination.Broker) bool { return now.Epoch > old.Epoch }
