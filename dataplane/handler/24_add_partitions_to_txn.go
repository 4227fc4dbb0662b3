package handler

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// AddPartitionsToTxn (key 24), versions 0 to 5.
//
// Up to version 3 it comes from producers, with one transaction, and needs Write on the
// transactional id and on each topic; the internal topics are nobody's to add. From
// version 4 (KIP-890) it comes from brokers, which need ClusterAction: several
// transactions, whose partitions are added or (VerifyOnly) looked for. Version 5 says
// that the producers speak the second protocol of transactions.
//
// Partitions are added all or none: where one may not be written to or does not exist,
// the others are OPERATION_NOT_ATTEMPTED.
func (h *Handler) addPartitionsToTxn(r *listener.Request) {
	req := r.Body.(*kmsg.AddPartitionsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version < 4 {
		t := kmsg.NewAddPartitionsToTxnRequestTransaction()
		t.TransactionalID, t.ProducerID, t.ProducerEpoch = req.TransactionalID, req.ProducerID, req.ProducerEpoch
		for _, rt := range req.Topics {
			tt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			tt.Topic, tt.Partitions = rt.Topic, rt.Partitions
			t.Topics = append(t.Topics, tt)
		}
		h.addToTransaction(r, &t, func(added kmsg.AddPartitionsToTxnResponseTransaction) {
			for _, at := range added.Topics {
				rt := kmsg.NewAddPartitionsToTxnResponseTopic()
				rt.Topic = at.Topic
				for _, ap := range at.Partitions {
					rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
					rp.Partition, rp.ErrorCode = ap.Partition, ap.ErrorCode
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			r.Reply(resp)
		})
		return
	}
	if !h.authorizeCluster(r, kmsg.ACLOperationClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	if len(req.Transactions) == 0 {
		r.Reply(resp)
		return
	}
	resp.Transactions = make([]kmsg.AddPartitionsToTxnResponseTransaction, len(req.Transactions))
	var mu sync.Mutex
	open := len(req.Transactions)
	for i := range req.Transactions {
		h.addToTransaction(r, &req.Transactions[i], func(added kmsg.AddPartitionsToTxnResponseTransaction) {
			mu.Lock()
			resp.Transactions[i] = added
			open--
			last := open == 0
			mu.Unlock()
			if last {
				r.Reply(resp)
			}
		})
	}
}

// addToTransaction checks the partitions of one transaction before the coordinator gets it.
func (h *Handler) addToTransaction(r *listener.Request, t *kmsg.AddPartitionsToTxnRequestTransaction, done func(kmsg.AddPartitionsToTxnResponseTransaction)) {
	version := r.Body.GetVersion()
	fromClient := version < 4
	var refused error
	if fromClient && !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, t.TransactionalID) {
		refused = kerr.TransactionalIDAuthorizationFailed
	}
	image := h.Metadata.Image()
	answer := kmsg.NewAddPartitionsToTxnResponseTransaction()
	answer.TransactionalID = t.TransactionalID
	failed := refused != nil
	for _, topic := range t.Topics {
		err := refused
		if err == nil && fromClient && (protocol.InternalTopic(topic.Topic) || !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic, topic.Topic)) {
			err = kerr.TopicAuthorizationFailed
		}
		at := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		at.Topic = topic.Topic
		for _, p := range topic.Partitions {
			err := err
			if err == nil && image.Partition(topic.Topic, p) == nil {
				err = unknown(image, kerr.UnknownTopicOrPartition, kerr.NotCoordinator)
			}
			failed = failed || err != nil
			ap := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			ap.Partition, ap.ErrorCode = p, code(err)
			at.Partitions = append(at.Partitions, ap)
		}
		answer.Topics = append(answer.Topics, at)
	}
	if !failed {
		h.Transactions.AddPartitions(version, t, done)
		return
	}
	for i := range answer.Topics {
		for j := range answer.Topics[i].Partitions {
			if p := &answer.Topics[i].Partitions[j]; p.ErrorCode == 0 {
				p.ErrorCode = kerr.OperationNotAttempted.Code
			}
		}
	}
	done(answer)
}
