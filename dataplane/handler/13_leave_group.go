package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// LeaveGroup (key 13), versions 0 to 5. Needs Read on the group. From v3
// several members may be taken out at once, static ones by their instance id
// alone (KIP-345); the reason (v5, KIP-800) is not kept.
func (h *Handler) leaveGroup(r *listener.Request) {
	req := r.Body.(*kmsg.LeaveGroupRequest)
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	h.Groups.Leave(req, func(resp *kmsg.LeaveGroupResponse) { r.Reply(resp) })
}
