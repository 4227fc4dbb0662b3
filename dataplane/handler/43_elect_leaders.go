package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// ElectLeaders (key 43), versions 0 to 2: puts the preferred leaders back, or
// elects among replicas that are not in sync (KIP-460, version 1). Served by the
// controller; needs Alter on the cluster. The reply comes when every live broker
// knows the new leaders.
func (h *Handler) electLeaders(r *listener.Request) {
	req := r.Body.(*kmsg.ElectLeadersRequest)
	if !h.authorizeCluster(r, kmsg.ACLOperationAlter) {
		resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		for _, t := range req.Topics {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewElectLeadersResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p, resp.ErrorCode
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		r.Reply(resp)
		return
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	r.Reply(h.Controller.ElectLeaders(ctx, req))
}
