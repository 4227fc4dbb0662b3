package handler

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// AddOffsetsToTxn (key 25), versions 0 to 4. Needs Write on the transactional id and Read
// on the group, whose partition of __consumer_offsets becomes part of the transaction; the
// topic is made on first use.
func (h *Handler) addOffsetsToTxn(r *listener.Request) {
	req := r.Body.(*kmsg.AddOffsetsToTxnRequest)
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	fail := func(err error) {
		resp.ErrorCode = code(err)
		r.Reply(resp)
	}
	switch {
	case !h.authorize(r, kmsg.ACLOperationWrite, kmsg.ACLResourceTypeTransactionalId, req.TransactionalID):
		fail(kerr.TransactionalIDAuthorizationFailed)
		return
	case !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group):
		fail(kerr.GroupAuthorizationFailed)
		return
	}
	if err := h.ensureInternal(protocol.OffsetsTopic); err != nil {
		fail(kerr.CoordinatorNotAvailable)
		return
	}
	h.Transactions.AddOffsets(req, h.Groups.PartitionOf(req.Group), func(resp *kmsg.AddOffsetsToTxnResponse) { r.Reply(resp) })
}

// ensureInternal makes a coordinator's topic on first use.
func (h *Handler) ensureInternal(topic string) error {
	h.awaitFirstImage()
	if h.Metadata.Image().Topic(topic) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(h.ctx, autoCreateWait)
	defer cancel()
	err := h.EnsureTopic(ctx, topic)
	if err != nil {
		h.Logger.Warn("an internal topic could not be made", "topic", topic, "error", err)
	}
	return err
}
