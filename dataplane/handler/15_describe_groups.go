package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// DescribeGroups (key 15), versions 0 to 6. Needs Describe on each group; one
// that may not be described fails by itself. A group that does not exist is
// Dead, without an error; from v6 on with GROUP_ID_NOT_FOUND (KIP-1043). From v3 the caller's rights may be asked for
// (KIP-430).
func (h *Handler) describeGroups(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeGroupsRequest)
	req.Groups = distinct(req.Groups, self)
	allowed := *req
	allowed.Groups = nil
	for _, g := range req.Groups {
		if h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, g) {
			allowed.Groups = append(allowed.Groups, g)
		}
	}
	h.Groups.Describe(&allowed, func(described *kmsg.DescribeGroupsResponse) {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		next := described.Groups
		for _, g := range req.Groups {
			if len(next) > 0 && next[0].Group == g {
				d := next[0]
				next = next[1:]
				if req.IncludeAuthorizedOperations && d.ErrorCode == 0 {
					d.AuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeGroup, g)
				}
				resp.Groups = append(resp.Groups, d)
				continue
			}
			d := kmsg.NewDescribeGroupsResponseGroup()
			d.Group, d.ErrorCode = g, kerr.GroupAuthorizationFailed.Code
			resp.Groups = append(resp.Groups, d)
		}
		r.Reply(resp)
	})
}
