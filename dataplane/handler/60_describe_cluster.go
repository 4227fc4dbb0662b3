package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// DescribeCluster (key 60), versions 0 to 2 (KIP-700): the live brokers on the
// caller's listener, the controller and the cluster's id. There are no KRaft
// controllers to describe (endpoint type 2), and no fenced brokers (version 2): a
// broker either lives or is not known.
func (h *Handler) describeCluster(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterAuthorizedOperations = noOperations
	resp.ControllerID = -1
	if req.Version >= 1 {
		resp.EndpointType = req.EndpointType
		if req.EndpointType != 1 {
			err := kerr.UnsupportedEndpointType
			if req.EndpointType == 2 { // KRaft controllers, which a broker is not
				err = kerr.MismatchedEndpointType
			}
			resp.ErrorCode, resp.ErrorMessage = err.Code, kmsg.StringPtr("only brokers can be described")
			r.Reply(resp)
			return
		}
	}
	image := h.Metadata.Image()
	resp.ClusterID, resp.ControllerID = image.ClusterID, image.ControllerID
	for _, b := range image.BrokersOn(r.Conn.Listener()) {
		e, _ := b.Endpoint(r.Conn.Listener())
		rb := kmsg.NewDescribeClusterResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.ID, e.Host, e.Port, b.Rack
		resp.Brokers = append(resp.Brokers, rb)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeCluster, clusterName)
	}
	r.Reply(resp)
}
