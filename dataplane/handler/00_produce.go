package handler

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// Produce (key 0), versions 3 to 13.
//
// Each partition's batch is checked and appended by itself; one's failure is
// not the others'. acks=0 has no reply: an error closes the connection, which
// is all that such a client can notice. The whole request is charged to the
// byte quota; the reply goes out at once and the connection is muted after it
// (KIP-219). From v10 the reply names the current leader (KIP-951), from v13 topics go by
// their ids (KIP-516).
//
// Where there is a transactional batch, the request names its transactional id, to which
// the caller must have the right. The first batch of a transaction in a partition makes its leader
// ask the transaction coordinator (KIP-890), see verifyTransaction; from v12 the partition
// is thereby added to the transaction.
func (h *Handler) produce(r *listener.Request) {
	req := r.Body.(*kmsg.ProduceRequest)
	x := newProducing(h, r, req)
	r.AddThrottle(h.Quotas.Produce(User(r.Conn), r.ClientID, r.Size))
	r.Exempt = req.Acks == 0

	inTxn := anyTransactional(req)
	var bad error
	switch {
	case req.Acks < -1 || req.Acks > 1:
		bad = kerr.InvalidRequiredAcks
	case inTxn && (req.TransactionID == nil || !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, *req.TransactionID)):
		bad = kerr.TransactionalIDAuthorizationFailed
	}
	resp := &x.resp
	resp.Topics = protocol.Again(resp.Topics, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = protocol.Again(rt.Partitions, len(t.Partitions))
		x.size += len(t.Partitions)
		err, topic, id := bad, t.Topic, protocol.UUID{}
		if req.Version >= 13 {
			var ok bool
			if topic, ok = h.Metadata.Image().TopicName(t.TopicID); !ok && err == nil {
				err = unknown(h.Metadata.Image(), kerr.UnknownTopicID, kerr.NotLeaderForPartition)
			}
			id = t.TopicID
		}
		if err == nil && !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, topic) {
			err = kerr.TopicAuthorizationFailed
		}
		// Brokers may write to internal topics: usage goes to its leader this way.
		internal := err == nil && protocol.InternalTopic(topic) && h.authorizeCluster(r, kmsg.ACLOperationClusterAction)
		for j := range t.Partitions {
			p, rp := &t.Partitions[j], &rt.Partitions[j]
			*rp = kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = p.Partition, -1, -1, -1
			if err != nil {
				rp.ErrorCode, x.failed = code(err), true
				continue
			}
			x.entries = append(x.entries, partition.AppendEntry{
				TP: partition.TopicPartition{Topic: topic, Partition: p.Partition}, TopicID: id, Records: p.Records, Internal: internal,
			})
			x.answers = append(x.answers, rp)
		}
	}
	if len(x.entries) == 0 {
		x.done(nil)
		return
	}
	if inTxn {
		x.verifyTransaction(*req.TransactionID)
	}
	h.Partitions.Append(partition.AppendRequest{
		Acks: req.Acks, Timeout: time.Duration(req.TimeoutMillis) * time.Millisecond,
		Entries: x.entries, Principal: h.metered(r.Conn), ProduceVersion: req.Version, Results: x.results,
	}, x.callback)
	// x may be another request's by now. The batches are in the log, or refused: a
	// wait for replicas must not hold the memory that the replicas' own requests may
	// need.
	r.ReleaseBody()
}

func transactional(records []byte) bool {
	return len(records) >= recordbatch.HeaderSize && recordbatch.Batch(records).IsTransactional()
}

func anyTransactional(req *kmsg.ProduceRequest) bool {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			if transactional(req.Topics[i].Partitions[j].Records) {
				return true
			}
		}
	}
	return false
}

// maxErrorRecords is how many bad records one reply names: beyond it, the batches
// that have them are refused as a whole, and a reply stays a fraction of its request.
const maxErrorRecords = 10_000

// answerAppend fills in one partition's answer, naming at most limit bad records,
// and tells how many it has named.
func answerAppend(rp *kmsg.ProduceResponseTopicPartition, a *partition.AppendResult, limit int) int {
	rp.ErrorCode = code(a.Err)
	rp.BaseOffset, rp.LogAppendTime, rp.LogStartOffset = a.BaseOffset, a.LogAppendTime, a.LogStartOffset
	if a.Err == nil {
		return 0
	}
	rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = a.Leader, a.LeaderEpoch
	rp.ErrorMessage = text(a.Err)
	var invalid *recordbatch.InvalidError
	if !errors.As(a.Err, &invalid) {
		return 0
	}
	rp.ErrorMessage = &invalid.Message
	for _, e := range invalid.Records[:min(limit, len(invalid.Records))] { // KIP-467, v8
		er := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		msg := e.Message()
		er.RelativeOffset, er.ErrorMessage = e.Index, &msg
		rp.ErrorRecords = append(rp.ErrorRecords, er)
	}
	return len(rp.ErrorRecords)
}

func (h *Handler) produceBroker(id int32, listenerName string) *kmsg.ProduceResponseBroker {
	b := h.Metadata.Image().Brokers[id]
	if b == nil {
		return nil
	}
	e, ok := b.Endpoint(listenerName)
	if !ok {
		return nil
	}
	out := kmsg.NewProduceResponseBroker()
	out.NodeID, out.Host, out.Port, out.Rack = id, e.Host, e.Port, b.Rack
	return &out
}

// addBroker keeps each broker once.
func addBroker(list []kmsg.ProduceResponseBroker, b *kmsg.ProduceResponseBroker) []kmsg.ProduceResponseBroker {
	if b == nil {
		return list
	}
	for i := range list {
		if list[i].NodeID == b.NodeID {
			return list
		}
	}
	return append(list, *b)
}
