package controller

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// deletionRetry is the wait before a broker that failed to delete a replica is
// asked again.
const deletionRetry = 10 * time.Second

// topicsChanged looks for topics that have come or gone.
func (t *term) topicsChanged() error {
	names, err := t.c.cfg.ZK.Topics(t.ctx)
	if err != nil {
		return err
	}
	there := map[string]bool{}
	var added []string
	for _, n := range names {
		there[n] = true
		if t.st.topics[n] == nil {
			added = append(added, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.st.topics)) {
		if !there[name] { // removed by hand: ours leave the state when they leave ZooKeeper
			t.c.log.Warn("topic was removed from zookeeper by somebody else", "topic", name)
			t.forget(t.st.topics[name])
		}
	}
	if len(added) == 0 {
		return nil
	}
	loaded, err := t.loadTopics(added)
	if err != nil {
		return err
	}
	var parts []*partition
	for _, tc := range loaded {
		parts = append(parts, tc.sorted()...)
	}
	return t.bringUp(parts)
}

// topicChanged looks for partitions that a topic has gained.
func (t *term) topicChanged(name string) error {
	tc := t.st.topics[name]
	if tc == nil {
		return nil
	}
	a, err := t.c.cfg.ZK.Topic(t.ctx, name)
	if errors.Is(err, coordination.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	if a.ID != tc.id { // removed and made anew behind our back
		t.forget(tc)
		return t.topicsChanged()
	}
	if tc.deleting {
		return nil
	}
	var parts []*partition
	for _, i := range slices.Sorted(maps.Keys(a.Partitions)) {
		if tc.parts[i] == nil {
			parts = append(parts, tc.add(i, a.Partitions[i]))
		}
	}
	return t.bringUp(parts)
}

// bringUp takes new partitions to Online.
func (t *term) bringUp(parts []*partition) error {
	if len(parts) == 0 {
		return nil
	}
	t.recordsMissed(parts...)
	for _, p := range parts {
		p.become(partitionNew)
		for _, r := range p.replicas {
			p.replicaBecome(r, replicaNew)
		}
		if p.known { // had a state in ZooKeeper before we heard of it
			next := partitionOffline
			if t.st.serving(p)(p.state.Leader) {
				next = partitionOnline
			}
			p.become(next)
		}
	}
	b := t.newBatch()
	for _, p := range parts {
		if p.status == partitionOnline {
			b.leaderAndISR(p.replicas, p, false)
		}
	}
	if err := t.electAmong(b, parts); err != nil {
		return err
	}
	for _, p := range parts {
		for _, r := range p.replicas {
			next := replicaOffline
			if t.st.up(r) {
				next = replicaOnline
			}
			p.replicaBecome(r, next)
		}
	}
	b.send()
	return nil
}

// deletionsChanged takes up the topics that are marked for deletion.
func (t *term) deletionsChanged() error {
	zk := t.c.cfg.ZK
	names, err := zk.TopicsToDelete(t.ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if t.st.topics[name] == nil {
			// Perhaps only just created: look before forgetting the mark.
			if err := t.topicsChanged(); err != nil {
				return err
			}
			break
		}
	}
	for _, name := range names {
		tc := t.st.topics[name]
		if tc == nil {
			if err := t.cleanUp(name); err != nil {
				return err
			}
			continue
		}
		tc.deleting = true
	}
	return t.resumeDeletions()
}

// cleanUp finishes the removal of a topic that a predecessor has broken off, or
// takes back the mark of a topic that never was.
func (t *term) cleanUp(name string) error {
	t.c.adminMu.Lock() // so that none of that name is created in between
	defer t.c.adminMu.Unlock()
	st, err := t.c.cfg.ZK.Exists(t.ctx, coordination.TopicPath(name))
	if err != nil || st != nil {
		return err
	}
	return t.c.cfg.ZK.RemoveTopic(t.ctx, t.fence, name)
}

// resumeDeletions does what can be done now about each topic that is to go. A
// replica on a broker that is down waits for it; the topic stays until then.
func (t *term) resumeDeletions() error {
	b := t.newBatch()
	for _, name := range slices.Sorted(maps.Keys(t.st.topics)) {
		tc := t.st.topics[name]
		if !tc.deleting {
			continue
		}
		if !tc.told {
			tc.told = true
			t.c.log.Info("deleting topic", "topic", name)
			for _, p := range tc.sorted() {
				if p.status != partitionNonExistent {
					p.become(partitionOffline)
					p.become(partitionNonExistent)
				}
				b.meta[p.tp] = true
			}
		}
		complete := true
		for _, p := range tc.sorted() {
			for _, r := range p.hosts() {
				switch s := p.replica[r]; {
				case s == replicaDeletionSuccessful:
				case s == replicaDeletionStarted, s == replicaDeletionIneligible:
					complete = false
				default:
					complete = false
					p.replicaBecome(r, replicaOffline)
					if t.st.up(r) {
						p.replicaBecome(r, replicaDeletionStarted)
						b.stopReplica(r, p, true)
					} else {
						p.replicaBecome(r, replicaDeletionIneligible)
					}
				}
			}
		}
		if complete {
			if err := t.c.cfg.ZK.RemoveTopic(t.ctx, t.fence, name); err != nil {
				return err
			}
			t.c.log.Info("topic deleted", "topic", name)
			t.st.removeTopic(tc)
			t.recordsOutlived()
			for _, p := range tc.parts { // all have been told
				delete(b.meta, p.tp)
			}
		}
	}
	b.send()
	return nil
}

// stopped takes in a broker's answer to StopReplica.
func (t *term) stopped(s *sender, req *kmsg.StopReplicaRequest, resp *kmsg.StopReplicaResponse) error {
	if t.senders[s.broker.ID] != s {
		return nil // of an earlier life: asked again meanwhile
	}
	codes := map[topicPart]int16{}
	for _, p := range resp.Partitions {
		codes[topicPart{Topic: p.Topic, Partition: p.Partition}] = p.ErrorCode
	}
	failed, left := false, false
	for _, ts := range req.Topics {
		for _, ps := range ts.PartitionStates {
			p := t.st.partition(topicPart{Topic: ts.Topic, Partition: ps.Partition})
			if !ps.Delete || p == nil || p.replica[s.broker.ID] != replicaDeletionStarted {
				continue
			}
			code, ok := codes[p.tp]
			if !ok {
				code = resp.ErrorCode
			}
			if !t.st.topics[ts.Topic].deleting {
				if ok {
					t.left(p, s.broker.ID, code)
					left = true
				}
				continue
			}
			if code == 0 {
				p.replicaBecome(s.broker.ID, replicaDeletionSuccessful)
				continue
			}
			failed = true
			t.c.log.Warn("broker could not delete a replica", "broker", s.broker.ID, "partition", p.tp, "code", code)
			p.replicaBecome(s.broker.ID, replicaDeletionIneligible)
		}
	}
	if left {
		if err := t.advance(); err != nil {
			return err
		}
	}
	if failed {
		t.stops = append(t.stops, t.c.after(deletionRetry, "", func() error {
			if t.c.term.Load() != t {
				return nil
			}
			t.retryDeletions(t.st.up)
			return t.resumeDeletions()
		}))
	}
	return t.resumeDeletions()
}

// failDeletions notes that brokers will not answer what they were asked.
func (t *term) failDeletions(ids []int32) {
	t.eachDeleting(func(p *partition, r int32) {
		if slices.Contains(ids, r) && p.replica[r] == replicaDeletionStarted {
			p.replicaBecome(r, replicaDeletionIneligible)
		}
	})
}

// retryDeletions makes replicas on the brokers eligible again.
func (t *term) retryDeletions(on func(int32) bool) {
	t.eachDeleting(func(p *partition, r int32) {
		if on(r) && p.replica[r] == replicaDeletionIneligible {
			p.replicaBecome(r, replicaOffline)
		}
	})
}

func (t *term) eachDeleting(fn func(p *partition, r int32)) {
	for _, tc := range t.st.topics {
		if tc.deleting {
			for _, p := range tc.parts {
				for _, r := range p.hosts() {
					fn(p, r)
				}
			}
		}
	}
}

// forget drops a topic that is no longer in ZooKeeper and tells the brokers.
func (t *term) forget(tc *topic) {
	tc.deleting = true
	b := t.newBatch()
	for _, p := range tc.parts {
		b.meta[p.tp] = true
	}
	b.send()
	t.st.removeTopic(tc)
	t.recordsOutlived()
}
