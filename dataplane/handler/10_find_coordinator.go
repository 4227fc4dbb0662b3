package handler

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// FindCoordinator (key 10), versions 0 to 6, several keys from v4 (KIP-699).
//
// The coordinator of a group (key type 0) is the leader of its partition of
// __consumer_offsets, that of a transactional id (1) the leader of its partition of
// __transaction_state; each topic is made on first use. Needs Describe on the group or the
// transactional id.
func (h *Handler) findCoordinator(r *listener.Request) {
	req := r.Body.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		c := h.coordinator(r, req.CoordinatorType, req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
		r.Reply(resp)
		return
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, h.coordinator(r, req.CoordinatorType, key))
	}
	r.Reply(resp)
}

func (h *Handler) coordinator(r *listener.Request, kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	fail := func(err error) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = code(err), text(err)
		return c
	}
	var topic string
	var partitionOf func(string) int32
	switch kind {
	case 0:
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, key) {
			return fail(kerr.GroupAuthorizationFailed)
		}
		topic, partitionOf = protocol.OffsetsTopic, h.Groups.PartitionOf
	case 1:
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTransactionalId, key) {
			return fail(kerr.TransactionalIDAuthorizationFailed)
		}
		topic, partitionOf = protocol.TransactionsTopic, h.Transactions.PartitionOf
	default:
		return fail(kerr.InvalidRequest)
	}
	if err := h.ensureInternal(topic); err != nil {
		return fail(errors.Join(kerr.CoordinatorNotAvailable, err))
	}
	e, id, ok := h.Metadata.Image().LeaderEndpoint(topic, partitionOf(key), r.Conn.Listener())
	if !ok {
		return fail(kerr.CoordinatorNotAvailable)
	}
	c.NodeID, c.Host, c.Port = id, e.Host, e.Port
	return c
}
