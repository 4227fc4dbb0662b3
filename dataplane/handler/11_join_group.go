package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/group"
	"penstock/dataplane/listener"
)

// JoinGroup (key 11), versions 0 to 9. Needs Read on the group.
//
// The answer comes when the rebalance is over that the join starts or takes
// part in. From v4 a new member gets an id first and joins with it (KIP-394);
// v5 has static members (KIP-345), v7 the protocol type (KIP-559), v9 tells a
// static leader to skip the assignment (KIP-814). In v0 the rebalance timeout
// is the session timeout.
func (h *Handler) joinGroup(r *listener.Request) {
	req := r.Body.(*kmsg.JoinGroupRequest)
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode, resp.Generation, resp.MemberID = kerr.GroupAuthorizationFailed.Code, -1, req.MemberID
		r.Reply(resp)
		return
	}
	client := group.ClientInfo{ClientID: r.ClientID, Host: "/" + r.Conn.Host()}
	h.Groups.Join(client, req, func(resp *kmsg.JoinGroupResponse) { r.Reply(resp) })
}
