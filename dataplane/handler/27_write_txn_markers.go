package handler

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
	"penstock/dataplane/planted"
	"penstock/dataplane/protocol"
)

// WriteTxnMarkers (key 27), versions 0 to 2.
//
// The transaction coordinator has each partition of a transaction told how it ended: a control
// batch a producer and partition, with acks=all (KIP-98). Needs ClusterAction, or Alter on the
// cluster: an administrator who aborts a hanging transaction sends one, too (KIP-664), with the
// coordinator epoch that the partition has seen last, -1 if it has seen none. A marker that
// comes twice is appended twice, which changes nothing. From v2 it tells the version of its
// transaction, by which a late one of an earlier transaction is known.
//
// One partition's failure is not the others'; the answer waits for all. In a partition of
// __consumer_offsets the marker decides about the offsets committed in the transaction, of which the
// group coordinator hears before the answer goes out. Exempt from the request quota.
func (h *Handler) writeTxnMarkers(r *listener.Request) {
	req := r.Body.(*kmsg.WriteTxnMarkersRequest)
	m := &marking{h: h, r: r, resp: req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)}
	var refused error
	if h.authorizeCluster(r, kmsg.ACLOperationAlter) || h.authorizeCluster(r, kmsg.ACLOperationClusterAction) {
		r.Exempt = true
	} else {
		refused = kerr.ClusterAuthorizationFailed
	}
	for i := range req.Markers {
		m.add(&req.Markers[i], refused)
	}
	if len(m.entries) == 0 {
		m.done(nil)
		return
	}
	h.Partitions.Append(partition.AppendRequest{Acks: -1, Timeout: h.Broker().RequestTimeout, Entries: m.entries}, m.done)
}

// marking is one WriteTxnMarkers request until its reply.
type marking struct {
	h       *Handler
	r       *listener.Request
	resp    *kmsg.WriteTxnMarkersResponse
	entries []partition.AppendEntry
	answers []markerAnswer // of the entries
}

// markerAnswer is where an entry's result goes: places in the response, whose arrays move
// while they grow.
type markerAnswer struct {
	marker, topic, partition int
	committed                bool
}

// add makes an entry for each partition of a marker. Of two markers of one producer id the
// answer has one element, by which Kafka's coordinators look for it.
func (m *marking) add(w *kmsg.WriteTxnMarkersRequestMarker, refused error) {
	at := len(m.resp.Markers)
	for i := range m.resp.Markers {
		if m.resp.Markers[i].ProducerID == w.ProducerID {
			at = i
		}
	}
	if at == len(m.resp.Markers) {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = w.ProducerID
		m.resp.Markers = append(m.resp.Markers, rm)
	}
	rm := &m.resp.Markers[at]
	if refused == nil && (w.ProducerID < 0 || w.ProducerEpoch < 0 || w.TransactionVersion < 0) {
		refused = kerr.InvalidRequest
	}
	marker := commitlog.Marker{
		ProducerID: w.ProducerID, ProducerEpoch: w.ProducerEpoch, Committed: w.Committed,
		CoordinatorEpoch: w.CoordinatorEpoch, TimestampMs: time.Now().UnixMilli(),
	}
	for i := range w.Topics {
		t := &w.Topics[i]
		rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
			rp.Partition, rp.ErrorCode = p, code(refused)
			marker.Committed = w.Committed && !(planted.Bug == planted.MarkerTurned && p == 0 && !protocol.InternalTopic(t.Topic))
			if planted.Bug == planted.MarkerSkipped && p == 0 && !protocol.InternalTopic(t.Topic) {
				rt.Partitions = append(rt.Partitions, rp)
				continue
			}
			if refused == nil {
				b, err := marker.Batch() // each is stamped in place
				m.entries = append(m.entries, partition.AppendEntry{
					TP: partition.TopicPartition{Topic: t.Topic, Partition: p}, Records: b, Internal: true,
					TransactionVersion: w.TransactionVersion, Refused: err,
				})
				m.answers = append(m.answers, markerAnswer{at, len(rm.Topics), len(rt.Partitions), w.Committed})
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		rm.Topics = append(rm.Topics, rt)
	}
}

func (m *marking) done(results []partition.AppendResult) {
	for i := range results {
		a, res := m.answers[i], &results[i]
		rm := &m.resp.Markers[a.marker]
		rm.Topics[a.topic].Partitions[a.partition].ErrorCode = code(res.Err)
		if res.Err == nil && res.TP.Topic == protocol.OffsetsTopic {
			m.h.Groups.EndTransaction(res.TP.Partition, rm.ProducerID, a.committed)
		}
	}
	m.r.Reply(m.resp)
}
