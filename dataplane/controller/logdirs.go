package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

// logDirsFailed asks brokers that have lost a log folder which replicas were in it:
// they are told anew what they have, and answer KAFKA_STORAGE_ERROR for what is gone
// (KIP-112). A controller that is elected meanwhile tells everybody everything.
func (t *term) logDirsFailed() error {
	notes, err := t.takeNotifications(coordination.LogDirEventsPath)
	if err != nil {
		return err
	}
	b := t.newBatch()
	for _, data := range notes {
		id, err := coordination.DecodeLogDirEvent(data)
		if err != nil {
			t.c.log.Warn("notification of a failed log folder makes no sense", "err", err)
			continue
		}
		t.c.log.Warn("broker has lost a log folder", "broker", id)
		for _, p := range t.st.partitionsOn(id) {
			if p.known && t.st.up(id) {
				put(b.lead, id, p.tp, false)
			}
		}
	}
	b.send()
	return nil
}

// ordered takes in a broker's answer to LeaderAndIsr: replicas that lie in a failed
// folder neither lead nor stay in sync.
func (t *term) ordered(s *sender, req *kmsg.LeaderAndISRRequest, resp *kmsg.LeaderAndISRResponse) error {
	id := s.broker.ID
	if t.senders[id] != s || resp.ErrorCode != 0 {
		return nil
	}
	names := map[protocol.UUID]string{}
	for _, ts := range req.TopicStates {
		names[ts.TopicID] = ts.Topic
	}
	var lost []*partition
	for _, ts := range resp.Topics {
		tc := t.st.topics[names[ts.TopicID]]
		if tc == nil || tc.id != ts.TopicID {
			continue
		}
		for _, ps := range ts.Partitions {
			p := tc.parts[ps.Partition]
			switch {
			case p == nil:
			case ps.ErrorCode == 0:
				delete(t.st.offline[id], p.tp)
			case ps.ErrorCode == kerr.KafkaStorageError.Code && !t.st.offline[id][p.tp]:
				if t.st.offline[id] == nil {
					t.st.offline[id] = map[topicPart]bool{}
				}
				t.st.offline[id][p.tp] = true
				if !tc.deleting { // those are answered to the StopReplica that deletes them
					lost = append(lost, p)
				}
			}
		}
	}
	if len(lost) == 0 {
		return nil
	}
	t.c.log.Warn("replicas are offline with their log folder", "broker", id, "partitions", len(lost))
	for _, p := range lost {
		if p.known && p.state.Leader == id && p.status == partitionOnline {
			p.become(partitionOffline)
		}
	}
	b := t.newBatch()
	if err := t.electOnline(b); err != nil {
		return err
	}
	b.send()
	if err := t.replicasOffline(b, lost); err != nil {
		return err
	}
	b.send()
	return nil
}
