package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// AlterPartitionReassignments (key 45), versions 0 and 1: moves partitions to
// other brokers, or takes that back (KIP-455). Served by the controller; needs
// Alter on the cluster. The reply comes when ZooKeeper has the wish, long before
// anything is copied.
func (h *Handler) alterPartitionReassignments(r *listener.Request) {
	req := r.Body.(*kmsg.AlterPartitionAssignmentsRequest)
	if !h.authorizeCluster(r, kmsg.ACLOperationAlter) {
		resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.ErrorCode, resp.AllowReplicationFactorChange = kerr.ClusterAuthorizationFailed.Code, req.AllowReplicationFactorChange
		for _, t := range req.Topics {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, resp.ErrorCode
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		r.Reply(resp)
		return
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	r.Reply(h.Controller.AlterPartitionAssignments(ctx, req))
}

// ListPartitionReassignments (key 46), version 0: which partitions are being
// moved. Served by the controller; needs Describe on the cluster.
func (h *Handler) listPartitionReassignments(r *listener.Request) {
	req := r.Body.(*kmsg.ListPartitionReassignmentsRequest)
	if !h.authorizeCluster(r, kmsg.ACLOperationDescribe) {
		resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	r.Reply(h.Controller.ListPartitionReassignments(ctx, req))
}
