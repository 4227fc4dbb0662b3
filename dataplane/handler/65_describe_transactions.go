package handler

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// DescribeTransactions (key 65), version 0 (KIP-664). Needs Describe on each transactional
// id, and shows those partitions whose topics the caller may Describe.
func (h *Handler) describeTransactions(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeTransactionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	for _, id := range req.TransactionalIDs {
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTransactionalId, id) {
			d := kmsg.NewDescribeTransactionsResponseTransactionState()
			d.TransactionalID, d.ErrorCode = id, kerr.TransactionalIDAuthorizationFailed.Code
			resp.TransactionStates = append(resp.TransactionStates, d)
			continue
		}
		d := h.Transactions.Describe(id)
		d.Topics = slices.DeleteFunc(d.Topics, func(t kmsg.DescribeTransactionsResponseTransactionStateTopic) bool {
			return !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, t.Topic)
		})
		resp.TransactionStates = append(resp.TransactionStates, d)
	}
	r.Reply(resp)
}
