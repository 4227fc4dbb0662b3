package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// SyncGroup (key 14), versions 0 to 5. Needs Read on the group.
//
// The leader brings the assignment; everybody is answered when it is stored.
// Instance id from v3 (KIP-345); from v5 protocol type and name must be there
// and match (KIP-559).
func (h *Handler) syncGroup(r *listener.Request) {
	req := r.Body.(*kmsg.SyncGroupRequest)
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	h.Groups.Sync(req, func(resp *kmsg.SyncGroupResponse) { r.Reply(resp) })
}
