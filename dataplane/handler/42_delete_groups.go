package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// DeleteGroups (key 42), versions 0 to 3 (KIP-229). Needs Delete on each group;
// each fails by itself. Only groups without members go; the answer comes when
// the deletion is stored. The message that v3 has room for is of other kinds of groups.
func (h *Handler) deleteGroups(r *listener.Request) {
	req := r.Body.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	resp.Groups = make([]kmsg.DeleteGroupsResponseGroup, len(req.Groups))
	allowed := *req
	allowed.Groups = nil
	var at []int // where the answer to each allowed group belongs
	for i, g := range req.Groups {
		resp.Groups[i].Group = g
		if !h.authorize(r, kmsg.ACLOperationDelete, kmsg.ACLResourceTypeGroup, g) {
			resp.Groups[i].ErrorCode = kerr.GroupAuthorizationFailed.Code
			continue
		}
		allowed.Groups = append(allowed.Groups, g)
		at = append(at, i)
	}
	h.Groups.Delete(&allowed, func(deleted *kmsg.DeleteGroupsResponse) {
		for i, g := range deleted.Groups {
			resp.Groups[at[i]].ErrorCode = g.ErrorCode
		}
		r.Reply(resp)
	})
}
