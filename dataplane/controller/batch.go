package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Versions of the requests to brokers: those of Kafka 3.9. Version 4 of StopReplica
// has nothing but a flag for KRaft controllers, and kmsg puts that in a place where
// a Kafka broker reads part of the controller epoch.
const (
	leaderAndISRVersion   = 7
	updateMetadataVersion = 8
	stopReplicaVersion    = 3
)

const (
	leaderDuringDelete int32 = -2 // announced for a partition that is being deleted
	epochDuringDelete  int32 = -2 // of a StopReplica that deletes a topic for good
)

// batch gathers what one step has to tell to whom, so that each broker gets one
// request of a kind. What the requests say is read from the state when the
// batch is sent, after ZooKeeper has taken it.
type batch struct {
	t    *term
	lead map[int32]map[topicPart]bool // LeaderAndIsr: broker, partition, is it new
	stop map[int32]map[topicPart]bool // StopReplica: broker, partition, delete it
	meta map[topicPart]bool           // UpdateMetadata: partitions, to all brokers
	all  bool                         // UpdateMetadata to all even without partitions
}

func (t *term) newBatch() *batch {
	return &batch{t: t, lead: map[int32]map[topicPart]bool{}, stop: map[int32]map[topicPart]bool{}, meta: map[topicPart]bool{}}
}

// leaderAndISR tells the brokers that are there about p, and all about its
// metadata.
func (b *batch) leaderAndISR(brokers []int32, p *partition, isNew bool) {
	for _, id := range brokers {
		if b.t.st.up(id) {
			put(b.lead, id, p.tp, isNew)
		}
	}
	b.meta[p.tp] = true
}

func (b *batch) stopReplica(broker int32, p *partition, del bool) {
	if b.t.st.up(broker) {
		put(b.stop, broker, p.tp, del)
	}
}

// put keeps a flag that was set.
func put(m map[int32]map[topicPart]bool, id int32, tp topicPart, flag bool) {
	if m[id] == nil {
		m[id] = map[topicPart]bool{}
	}
	m[id][tp] = m[id][tp] || flag
}

// send queues the requests: LeaderAndIsr, then UpdateMetadata, then StopReplica.
func (b *batch) send() {
	t := b.t
	for _, id := range slices.Sorted(maps.Keys(b.lead)) {
		if req := t.leaderAndISRRequest(id, b.lead[id]); req != nil {
			t.enqueue(id, item{req: req})
		}
	}
	if b.all || len(b.meta) > 0 {
		t.sendMetadata(t.st.ids(), slices.Collect(maps.Keys(b.meta)))
	}
	for _, id := range slices.Sorted(maps.Keys(b.stop)) {
		t.enqueue(id, item{req: t.stopReplicaRequest(id, b.stop[id])})
	}
	*b = *t.newBatch()
}

// sendMetadata tells the brokers which brokers live and how the partitions are.
func (t *term) sendMetadata(to []int32, parts []topicPart) {
	sortTPs(parts)
	topics := t.metadataTopics(parts)
	live := t.liveBrokers()
	for _, id := range to {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version = updateMetadataVersion
		req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = t.c.cfg.BrokerID, t.fence.Epoch, t.st.brokers[id].Epoch
		req.TopicStates, req.LiveBrokers = topics, live
		t.enqueue(id, item{req: req, metadata: true})
	}
}

func (t *term) metadataTopics(parts []topicPart) []kmsg.UpdateMetadataRequestTopicState {
	var out []kmsg.UpdateMetadataRequestTopicState
	for _, tp := range parts {
		p := t.st.partition(tp)
		if p == nil || !p.known && !t.st.topics[tp.Topic].deleting {
			continue
		}
		if len(out) == 0 || out[len(out)-1].Topic != tp.Topic {
			ts := kmsg.NewUpdateMetadataRequestTopicState()
			ts.Topic, ts.TopicID = tp.Topic, t.st.topics[tp.Topic].id
			out = append(out, ts)
		}
		ps := kmsg.NewUpdateMetadataRequestTopicPartition()
		ps.Partition, ps.ControllerEpoch = tp.Partition, p.state.ControllerEpoch
		ps.Leader, ps.LeaderEpoch, ps.ISR, ps.ZKVersion = p.state.Leader, p.state.LeaderEpoch, p.state.ISR, p.state.Version
		ps.Replicas = p.replicas
		ps.OfflineReplicas = filter(p.replicas, func(id int32) bool { return !t.st.reachable(p)(id) })
		if t.st.topics[tp.Topic].deleting {
			ps.Leader = leaderDuringDelete
		}
		last := &out[len(out)-1]
		last.PartitionStates = append(last.PartitionStates, ps)
	}
	return out
}

var protocolIDs = map[string]int16{"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

func (t *term) liveBrokers() []kmsg.UpdateMetadataRequestLiveBroker {
	var out []kmsg.UpdateMetadataRequestLiveBroker
	for _, id := range t.st.ids() {
		b := t.st.brokers[id]
		lb := kmsg.NewUpdateMetadataRequestLiveBroker()
		lb.ID = id
		if b.Rack != "" {
			lb.Rack = &b.Rack
		}
		for _, e := range b.Endpoints {
			le := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
			le.Host, le.Port, le.ListenerName, le.SecurityProtocol = e.Host, e.Port, e.Listener, protocolIDs[e.SecurityProtocol]
			lb.Endpoints = append(lb.Endpoints, le)
		}
		out = append(out, lb)
	}
	return out
}

func (t *term) leaderAndISRRequest(to int32, parts map[topicPart]bool) *kmsg.LeaderAndISRRequest {
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version = leaderAndISRVersion
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = t.c.cfg.BrokerID, t.fence.Epoch, t.st.brokers[to].Epoch
	tps := slices.Collect(maps.Keys(parts))
	sortTPs(tps)
	leaders := map[int32]bool{}
	for _, tp := range tps {
		p := t.st.partition(tp)
		if p == nil || !p.known {
			continue
		}
		if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != tp.Topic {
			ts := kmsg.NewLeaderAndISRRequestTopicState()
			ts.Topic, ts.TopicID = tp.Topic, t.st.topics[tp.Topic].id
			req.TopicStates = append(req.TopicStates, ts)
		}
		ps := kmsg.NewLeaderAndISRRequestTopicPartition()
		ps.Topic, ps.Partition, ps.ControllerEpoch = tp.Topic, tp.Partition, p.state.ControllerEpoch
		ps.Leader, ps.LeaderEpoch, ps.ISR, ps.ZKVersion = p.state.Leader, p.state.LeaderEpoch, p.state.ISR, p.state.Version
		ps.Replicas, ps.AddingReplicas, ps.RemovingReplicas, ps.IsNew = p.replicas, p.adding, p.removing, parts[tp]
		if slices.Contains(p.adding, to) && !slices.Contains(p.state.ISR, to) {
			ps.IsNew = true // may be made anew wherever there is room: nothing counts on what it has
		}
		if p.state.Recovering {
			ps.LeaderRecoveryState = 1
		}
		ts := &req.TopicStates[len(req.TopicStates)-1]
		ts.PartitionStates = append(ts.PartitionStates, ps)
		leaders[p.state.Leader] = true
	}
	if len(req.TopicStates) == 0 {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(leaders)) {
		b, ok := t.st.brokers[id]
		if !ok {
			continue
		}
		if e, ok := b.Endpoint(t.c.cfg.Listener); ok {
			ll := kmsg.NewLeaderAndISRRequestLiveLeader()
			ll.BrokerID, ll.Host, ll.Port = id, e.Host, e.Port
			req.LiveLeaders = append(req.LiveLeaders, ll)
		}
	}
	return req
}

func (t *term) stopReplicaRequest(to int32, parts map[topicPart]bool) *kmsg.StopReplicaRequest {
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version = stopReplicaVersion
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = t.c.cfg.BrokerID, t.fence.Epoch, t.st.brokers[to].Epoch
	tps := slices.Collect(maps.Keys(parts))
	sortTPs(tps)
	for _, tp := range tps {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			ts := kmsg.NewStopReplicaRequestTopic()
			ts.Topic = tp.Topic
			req.Topics = append(req.Topics, ts)
		}
		ps := kmsg.NewStopReplicaRequestTopicPartitionState()
		ps.Partition, ps.Delete = tp.Partition, parts[tp]
		if tc := t.st.topics[tp.Topic]; tc != nil && tc.deleting {
			ps.LeaderEpoch = epochDuringDelete
		} else if p := t.st.partition(tp); p != nil && p.known {
			ps.LeaderEpoch = p.state.LeaderEpoch
		}
		ts := &req.Topics[len(req.Topics)-1]
		ts.PartitionStates = append(ts.PartitionStates, ps)
	}
	return req
}

func compareTPs(a, b topicPart) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

func sortedTPs[V any](m map[topicPart]V) []topicPart {
	return slices.SortedFunc(maps.Keys(m), compareTPs)
}

func sortTPs(tps []topicPart) { slices.SortFunc(tps, compareTPs) }
