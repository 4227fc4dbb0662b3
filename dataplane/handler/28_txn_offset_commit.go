package handler

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// The versions of TxnOffsetCommit in which a client understands TRANSACTION_ABORTABLE, and in
// which the group's partition is added to the transaction (KIP-890).
const (
	txnOffsetCommitKnowsAbortable = 4
	txnOffsetCommitAdds           = 5
)

// TxnOffsetCommit (key 28), versions 0 to 5.
//
// Needs Write on the transactional id, Read on the group and on each topic; topics that
// may not be read or do not exist fail by themselves. From v3 the request says for which
// member of which generation it commits, and is fenced like OffsetCommit (KIP-447). The
// group's partition of __consumer_offsets must be part of the producer's transaction:
// the transaction's coordinator is asked (KIP-890), and told to make it so from v5 on.
// The offsets count with the transaction's commit.
func (h *Handler) txnOffsetCommit(r *listener.Request) {
	req := r.Body.(*kmsg.TxnOffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	var refused error
	switch {
	case !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, req.TransactionalID):
		refused = kerr.TransactionalIDAuthorizationFailed
	case !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group):
		refused = kerr.GroupAuthorizationFailed
	}

	// What may be committed goes on in a request of its own, as in offsetCommit.
	allowed := *req
	allowed.Topics = nil
	var codes []*int16
	image := h.Metadata.Image()
	resp.Topics = make([]kmsg.TxnOffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		err := refused
		if err == nil && !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, t.Topic) {
			err = kerr.TopicAuthorizationFailed
		}
		var rest []kmsg.TxnOffsetCommitRequestTopicPartition
		for j := range t.Partitions {
			p, rp := &t.Partitions[j], &rt.Partitions[j]
			err := err
			if err == nil && image.Partition(t.Topic, p.Partition) == nil {
				err = unknown(image, kerr.UnknownTopicOrPartition, kerr.NotCoordinator)
			}
			rp.Partition, rp.ErrorCode = p.Partition, code(err)
			if err == nil {
				rest = append(rest, *p)
				codes = append(codes, &rp.ErrorCode)
			}
		}
		if len(rest) > 0 {
			allowed.Topics = append(allowed.Topics, kmsg.TxnOffsetCommitRequestTopic{Topic: t.Topic, Partitions: rest})
		}
	}
	reply := func() {
		if req.Version < 2 { // clients of that time may end at an error they do not expect (KAFKA-7296)
			for _, c := range codes {
				if *c == kerr.CoordinatorLoadInProgress.Code {
					*c = kerr.CoordinatorNotAvailable.Code
				}
			}
		}
		r.Reply(resp)
	}
	if len(codes) == 0 {
		r.Reply(resp)
		return
	}
	fail := func(err error) {
		for _, c := range codes {
			*c = code(err)
		}
		reply()
	}
	switch err := h.Groups.Coordinates(req.Group); {
	case req.Group == "":
		fail(kerr.InvalidGroupID)
		return
	case err != nil: // to ask another coordinator would be for nothing
		fail(err)
		return
	}
	producer := coordinator.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}
	tp := protocol.TopicPartition{Topic: protocol.OffsetsTopic, Partition: h.Groups.PartitionOf(req.Group)}
	h.VerifyTransaction(req.TransactionalID, producer, []protocol.TopicPartition{tp}, req.Version >= txnOffsetCommitAdds, func(errs []error) {
		if err := errs[0]; err != nil {
			if req.Version < txnOffsetCommitKnowsAbortable && errors.Is(err, kerr.TransactionAbortable) {
				err = kerr.InvalidTxnState
			}
			fail(err)
			return
		}
		h.Groups.CommitInTransaction(&allowed, func(committed *kmsg.TxnOffsetCommitResponse) {
			n := 0
			for _, t := range committed.Topics {
				for _, p := range t.Partitions {
					*codes[n] = p.ErrorCode
					n++
				}
			}
			reply()
		})
	})
}
