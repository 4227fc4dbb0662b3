package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// Heartbeat (key 12), versions 0 to 4. Needs Read on the group. Keeps a
// member's session and tells it of a rebalance; instance id from v3 (KIP-345).
func (h *Handler) heartbeat(r *listener.Request) {
	req := r.Body.(*kmsg.HeartbeatRequest)
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	h.Groups.Heartbeat(req, func(resp *kmsg.HeartbeatResponse) { r.Reply(resp) })
}
