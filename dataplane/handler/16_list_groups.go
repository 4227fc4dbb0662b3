package handler

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// ListGroups (key 16), versions 0 to 5: the groups that this broker
// coordinates. Who may Describe the cluster sees all, others those groups that
// they may Describe. Filters by state from v4 (KIP-518), by type from v5
// (KIP-848: classic and consumer).
func (h *Handler) listGroups(r *listener.Request) {
	all := h.authorizeCluster(r, kmsg.ACLOperationDescribe)
	h.Groups.List(r.Body.(*kmsg.ListGroupsRequest), func(resp *kmsg.ListGroupsResponse) {
		if !all {
			resp.Groups = slices.DeleteFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool {
				return !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, g.Group)
			})
		}
		r.Reply(resp)
	})
}
