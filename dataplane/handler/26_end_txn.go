package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// EndTxn (key 26), versions 0 to 5. Needs Write on the transactional id. The answer comes
// when the decision is stored; by version 5 (KIP-890) it has the producer id and epoch to
// go on with.
func (h *Handler) endTxn(r *listener.Request) {
	req := r.Body.(*kmsg.EndTxnRequest)
	if !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, req.TransactionalID) {
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	h.Transactions.EndTxn(req, func(resp *kmsg.EndTxnResponse) { r.Reply(resp) })
}
