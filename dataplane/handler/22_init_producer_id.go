package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// InitProducerId (key 22), versions 0 to 5.
//
// With a transactional id, which needs Write on it, the answer is the transaction
// coordinator's: see txn.Coordinator. Without one it is a new producer id with epoch 0
// for an idempotent producer, which needs IdempotentWrite on the cluster or Write on any
// topic (KIP-679). The id comes from this broker's block of ids. An id and epoch that the
// producer had before (v3, KIP-360) count for transactions only, but come together or not
// at all.
func (h *Handler) initProducerID(r *listener.Request) {
	req := r.Body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	fail := func(err error) {
		resp.ErrorCode = code(err)
		r.Reply(resp)
	}
	if req.TransactionalID != nil {
		if !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, *req.TransactionalID) {
			fail(kerr.TransactionalIDAuthorizationFailed)
			return
		}
		h.Transactions.InitProducerID(req, func(resp *kmsg.InitProducerIDResponse) { r.Reply(resp) })
		return
	}
	if !h.authorizeCluster(r, kmsg.ACLOperationIdempotentWrite) &&
		!h.ACLs.AuthorizeAny(r.Conn.Principal(), r.Conn.Host(), kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTopic) {
		fail(kerr.ClusterAuthorizationFailed)
		return
	}
	if req.Version >= 3 && (req.ProducerID < 0) != (req.ProducerEpoch < 0) {
		fail(kerr.InvalidRequest)
		return
	}
	ctx, cancel := h.within(req.TransactionTimeoutMillis)
	defer cancel()
	id, err := h.NextProducerID(ctx)
	if err != nil {
		h.Logger.Warn("no producer id could be had", "error", err)
		fail(kerr.CoordinatorLoadInProgress) // retried by every client
		return
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
	r.Reply(resp)
}
