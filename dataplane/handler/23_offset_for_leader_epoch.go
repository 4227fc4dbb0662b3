package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/partition"
)

// OffsetForLeaderEpoch (key 23), versions 2 to 4.
//
// Where an epoch ended in the leader's log (KIP-101, KIP-279): the largest
// epoch not above the one asked for and its end. Followers need ClusterAction,
// consumers Describe.
func (h *Handler) offsetForLeaderEpoch(r *listener.Request) {
	req := r.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	broker := h.authorizeCluster(r, kmsg.ACLOperationClusterAction)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = t.Topic
		var refused error
		if !broker && !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, t.Topic) {
			refused = kerr.TopicAuthorizationFailed
		}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, -1, -1
			err := refused
			if err == nil {
				tp := partition.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				var epoch int32
				var end int64
				if epoch, end, err = h.Partitions.EpochEndOffset(tp, p.CurrentLeaderEpoch, p.LeaderEpoch); err == nil {
					rp.LeaderEpoch, rp.EndOffset = epoch, end
				}
			}
			rp.ErrorCode = code(err)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	r.Reply(resp)
}
