package handler

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// FindCoordinator (key 10), versions 0 to 6, several keys from v4 (KIP-699).
//
// The coordinator of a group is the leader of its partition of
// __consumer_offsets, which is made on first use. Transactions (key type 1) are
// not served yet; the answer says so instead of sending the client round and
// round.
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
	if kind != 0 {
		return fail(kerr.InvalidRequest)
	}
	if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, key) {
		return fail(kerr.GroupAuthorizationFailed)
	}
	h.awaitFirstImage()
	if h.Metadata.Image().Topic(protocol.OffsetsTopic) == nil {
		ctx, cancel := context.WithTimeout(h.ctx, autoCreateWait)
		defer cancel()
		if err := h.EnsureTopic(ctx, protocol.OffsetsTopic); err != nil {
			h.Logger.Warn("the offsets topic could not be made", "error", err)
			return fail(errors.Join(kerr.CoordinatorNotAvailable, err))
		}
	}
	e, id, ok := h.Metadata.Image().LeaderEndpoint(protocol.OffsetsTopic, h.Groups.PartitionOf(key), r.Conn.Listener())
	if !ok {
		return fail(kerr.CoordinatorNotAvailable)
	}
	c.NodeID, c.Host, c.Port = id, e.Host, e.Port
	return c
}
