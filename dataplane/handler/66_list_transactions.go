package handler

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// ListTransactions (key 66), versions 0 to 2 (KIP-664): the transactional ids that this
// broker coordinates and the caller may Describe, by state and producer id, by age from v1
// (KIP-994) and by a pattern of the id from v2 (KIP-1152).
func (h *Handler) listTransactions(r *listener.Request) {
	resp := h.Transactions.List(r.Body.(*kmsg.ListTransactionsRequest))
	resp.TransactionStates = slices.DeleteFunc(resp.TransactionStates, func(t kmsg.ListTransactionsResponseTransactionState) bool {
		return !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTransactionalId, t.TransactionalID)
	})
	r.Reply(resp)
}
