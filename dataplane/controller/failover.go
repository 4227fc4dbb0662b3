package controller

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// failover takes over the cluster. The watches come first, so that what changes
// after the reads is seen; brokers are told who lives before who leads.
func (t *term) failover() error {
	zk := t.c.cfg.ZK
	children := func(path, key string, ev event) {
		t.stops = append(t.stops, zk.WatchChildren(path, func() { t.post(key, ev) }))
	}
	children(coordination.BrokersPath, "brokers", t.brokersChanged)
	children(coordination.TopicsPath, "topics", t.topicsChanged)
	children(coordination.DeleteTopicsPath, "deletions", t.deletionsChanged)
	children(coordination.ISRChangesPath, "isr", t.isrNotified)
	children(coordination.LogDirEventsPath, "log dirs", t.logDirsFailed)
	data := func(path, key string, ev event) {
		t.stops = append(t.stops, zk.WatchData(path, func() { t.post(key, ev) }))
	}
	data(coordination.PreferredPath, "preferred", t.preferredRequested)
	data(coordination.ReassignPath, "reassignments", t.reassignmentsAsked)
	data(coordination.FeaturesPath, "feature records", t.recordsChanged)

	if err := zk.EnsureLayout(t.ctx); err != nil {
		return err
	}
	for _, path := range []string{coordination.ISRChangesPath, coordination.LogDirEventsPath} {
		if _, err := t.takeNotifications(path); err != nil {
			return err
		}
	}
	if err := t.load(); err != nil {
		return err
	}
	t.c.log.Info("controller took over", "epoch", t.fence.Epoch, "brokers", len(t.st.brokers), "topics", len(t.st.topics))
	// Before the first word to anybody, on which brokers tell clients what is in force.
	if err := t.keepRecords(); err != nil {
		return err
	}
	for _, id := range t.st.ids() {
		t.addSender(t.st.brokers[id])
	}
	// All of the cluster at once: for a broker that has just started this is the
	// controller's first word, and what it leaves out does not exist for clients.
	t.sendMetadata(t.st.ids(), t.allPartitions())

	b := t.newBatch()
	if err := t.rebornOut(b); err != nil {
		return err
	}
	t.startReplicas(b)
	b.send()
	if err := t.startPartitions(b); err != nil {
		return err
	}
	b.send()
	if err := t.replicasOffline(b, t.st.partitionsOn(t.missing()...)); err != nil {
		return err
	}
	b.send()
	if err := t.resumeReassignments(b); err != nil {
		return err
	}
	if err := t.deletionsChanged(); err != nil {
		return err
	}
	if err := t.preferredRequested(); err != nil {
		return err
	}
	if t.c.cfg.AutoRebalance {
		t.scheduleRebalance(t.c.cfg.RebalanceDelay)
	}
	return nil
}

// load reads brokers, topics and partition states.
func (t *term) load() error {
	zk := t.c.cfg.ZK
	brokers, err := zk.Brokers(t.ctx)
	if err != nil {
		return err
	}
	for _, b := range brokers {
		t.st.brokers[b.ID] = b
	}
	names, err := zk.Topics(t.ctx)
	if err != nil {
		return err
	}
	if _, err := t.loadTopics(names); err != nil {
		return err
	}
	marked, err := zk.TopicsToDelete(t.ctx)
	if err != nil {
		return err
	}
	for _, name := range marked {
		if tc := t.st.topics[name]; tc != nil {
			tc.deleting = true
		}
	}
	return nil
}

// loadTopics adds topics with what ZooKeeper has of their partitions, and
// watches each for growth. A topic whose znode makes no sense is left out: one
// bad znode must not cost the cluster its controller.
func (t *term) loadTopics(names []string) ([]*topic, error) {
	zk := t.c.cfg.ZK
	unwatch := map[string]func(){}
	for _, name := range names {
		unwatch[name] = zk.WatchData(coordination.TopicPath(name), func() {
			t.post("topic "+name, func() error { return t.topicChanged(name) })
		})
	}
	defer func() {
		for _, stop := range unwatch { // those that were not taken over
			stop()
		}
	}()
	assigned := map[string]coordination.TopicAssignment{}
	var bad []string
	all, err := zk.TopicAssignments(t.ctx, names)
	if err == nil {
		assigned = all
	} else if t.ctx.Err() != nil || errors.Is(err, coordination.ErrExpired) {
		return nil, err
	} else { // find the ones that can be read
		for _, name := range names {
			a, err := zk.Topic(t.ctx, name)
			if err == nil {
				assigned[name] = a
			} else if !errors.Is(err, coordination.ErrNoNode) {
				bad = append(bad, name)
				t.c.log.Error("topic left out: its znode can not be read", "topic", name, "err", err)
			}
		}
		if len(bad) == 0 || len(assigned) == 0 {
			return nil, err
		}
	}
	var loaded []*topic
	var tps []topicPart
	for _, name := range slices.Sorted(maps.Keys(assigned)) {
		a := assigned[name]
		if a.ID == [16]byte{} { // made before there were topic ids
			a.ID = coordination.NewTopicID()
			if err := zk.SetTopic(t.ctx, t.fence, name, a); err != nil {
				return nil, err
			}
		}
		tc := t.st.addTopic(name, a)
		tc.unwatch = unwatch[name]
		delete(unwatch, name)
		loaded = append(loaded, tc)
		for i := range tc.parts {
			tps = append(tps, topicPart{Topic: name, Partition: i})
		}
	}
	states, err := zk.PartitionStates(t.ctx, tps)
	if err != nil {
		return nil, err
	}
	for tp, s := range states {
		p := t.st.partition(tp)
		p.state, p.known = s, true
	}
	return loaded, nil
}

// startReplicas puts the replicas into their first state and tells the live
// ones about the partitions that have a state.
func (t *term) startReplicas(b *batch) {
	for _, name := range slices.Sorted(maps.Keys(t.st.topics)) {
		tc := t.st.topics[name]
		for _, p := range tc.sorted() {
			for _, r := range p.replicas {
				switch {
				case t.st.up(r):
					p.replica[r] = replicaOnline
				case tc.deleting:
					p.replica[r] = replicaDeletionIneligible
				default:
					p.replica[r] = replicaOffline
				}
			}
			if p.known && !tc.deleting {
				b.leaderAndISR(p.replicas, p, false)
			}
		}
	}
}

// startPartitions puts the partitions into their first state and elects leaders
// for those without one that lives.
func (t *term) startPartitions(b *batch) error {
	for _, tc := range t.st.topics {
		for _, p := range tc.parts {
			switch {
			case !p.known:
				p.status = partitionNew
			case t.st.live(p.state.Leader):
				p.status = partitionOnline
			default:
				p.status = partitionOffline
			}
		}
	}
	return t.electOnline(b)
}

func (t *term) allPartitions() []topicPart {
	var tps []topicPart
	t.st.eachPartition(func(_ *topic, p *partition) { tps = append(tps, p.tp) })
	return tps
}

// missing are the brokers that have replicas but are not registered.
func (t *term) missing() []int32 {
	gone := map[int32]bool{}
	t.st.eachPartition(func(_ *topic, p *partition) {
		for _, r := range p.replicas {
			if !t.st.up(r) {
				gone[r] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(gone))
}

// takeNotifications reads and removes the sequence children of a path, which
// must not block the term when they are gone already.
func (t *term) takeNotifications(path string) ([][]byte, error) {
	zk := t.c.cfg.ZK
	names, err := zk.Children(t.ctx, path)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out [][]byte
	for _, n := range names {
		data, _, err := zk.Get(t.ctx, path+"/"+n)
		if errors.Is(err, coordination.ErrNoNode) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, data)
		_, err = zk.Fenced(t.ctx, t.fence, coordination.DeleteOp(path+"/"+n, -1))
		if err != nil && !errors.Is(err, coordination.ErrNoNode) {
			return nil, err
		}
	}
	return out, nil
}

// isrNotified reads anew the partitions whose ISR a broker has written by
// itself, as those with an inter.broker.protocol.version below 2.7 do (before
// KIP-497). What a note names and is not there is left alone: notes are written by
// anybody, and must not cost the cluster its controller.
func (t *term) isrNotified() error {
	notes, err := t.takeNotifications(coordination.ISRChangesPath)
	if err != nil {
		return err
	}
	named := map[topicPart]bool{}
	for _, data := range notes {
		for _, tp := range partitionsOf(data) {
			if p := t.st.partition(tp); p != nil && p.known {
				named[tp] = true
			}
		}
	}
	states, err := t.c.cfg.ZK.PartitionStates(t.ctx, sortedTPs(named))
	if err != nil {
		return err
	}
	b := t.newBatch()
	for _, tp := range sortedTPs(states) {
		p := t.st.partition(tp)
		p.state = states[tp]
		b.meta[tp] = true
		t.progress(p)
	}
	b.send()
	return nil
}

// partitionsOf reads the list of partitions in a znode's JSON.
func partitionsOf(data []byte) []topicPart {
	var j struct {
		Partitions []struct {
			Topic     string `json:"topic"`
			Partition int32  `json:"partition"`
		} `json:"partitions"`
	}
	if json.Unmarshal(data, &j) != nil {
		return nil
	}
	var tps []topicPart
	for _, p := range j.Partitions {
		tps = append(tps, topicPart{Topic: p.Topic, Partition: p.Partition})
	}
	return tps
}

// addSender starts the queue to a broker's present life.
func (t *term) addSender(b coordination.Broker) {
	s := newSender(t.ctx, b)
	s.dial, s.log = t.c.cfg.Dial, t.c.log
	s.done = func(it item, resp kmsg.Response) bool { return t.answered(s, it, resp) }
	s.resync = func() { t.post("", func() error { return t.resync(s) }) }
	t.senders[b.ID] = s
	t.wg.Add(1)
	go func() { defer t.wg.Done(); s.run() }()
}

func (t *term) removeSender(id int32) {
	if s := t.senders[id]; s != nil {
		s.cancel() // what it waits for ends with its context; drop waits for it
		delete(t.senders, id)
	}
}

func (t *term) enqueue(id int32, it item) {
	if s := t.senders[id]; s != nil {
		s.enqueue(it)
	}
}

// answered looks at a broker's answer and says whether it did as it was told; it
// runs in the sender's goroutine.
func (t *term) answered(s *sender, it item, resp kmsg.Response) bool {
	var code int16
	switch r := resp.(type) {
	case *kmsg.LeaderAndISRResponse:
		code = r.ErrorCode
		t.post("", func() error { return t.ordered(s, it.req.(*kmsg.LeaderAndISRRequest), r) })
		for _, tr := range r.Topics {
			for _, p := range tr.Partitions {
				// After a failover brokers are told what most of them have: that
				// epoch again is "stale" to them, and nothing is amiss.
				if p.ErrorCode != 0 && p.ErrorCode != kerr.StaleControllerEpoch.Code {
					t.c.log.Warn("broker refused a partition", "broker", s.broker.ID, "topic id", tr.TopicID, "partition", p.Partition, "err", kerr.ErrorForCode(p.ErrorCode))
				}
			}
		}
	case *kmsg.UpdateMetadataResponse:
		code = r.ErrorCode
	case *kmsg.StopReplicaResponse:
		code = r.ErrorCode
		t.post("", func() error { return t.stopped(s, it.req.(*kmsg.StopReplicaRequest), r) })
	default:
		t.c.log.Error("broker answered with something else", "broker", s.broker.ID, "request", it.key())
		return false
	}
	switch code {
	case 0:
	case kerr.StaleControllerEpoch.Code:
		t.c.queue.post("elect", t.c.elect)
	case kerr.StaleBrokerEpoch.Code:
		// It has registered again since; the watch is about to say so.
		t.post("brokers", t.brokersChanged)
	default:
		t.c.log.Warn("broker answered with an error", "broker", s.broker.ID, "request", strings.TrimPrefix(kmsg.NameForKey(it.req.Key()), "kmsg."), "err", kerr.ErrorForCode(code))
	}
	return code == 0
}
