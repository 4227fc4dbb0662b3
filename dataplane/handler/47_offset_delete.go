package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// OffsetDelete (key 47), version 0 (KIP-496).
//
// Needs Delete on the group and Read on each topic; topics that may not be read or do
// not exist fail by themselves. What a member of the group subscribes to stays
// (GROUP_SUBSCRIBED_TO_TOPIC). The answer comes when the deletion is stored.
func (h *Handler) offsetDelete(r *listener.Request) {
	req := r.Body.(*kmsg.OffsetDeleteRequest)
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if !h.authorize(r, kmsg.ACLOperationDelete, kmsg.ACLResourceTypeGroup, req.Group) {
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		r.Reply(resp)
		return
	}
	type place struct{ topic, partition int }
	var at []place // where the answer to each partition belongs that may be deleted
	allowed := *req
	allowed.Topics = nil
	image := h.Metadata.Image()
	resp.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i, t := range req.Topics {
		rt := &resp.Topics[i]
		rt.Topic = t.Topic
		rt.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		var refused error
		if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, t.Topic) {
			refused = kerr.TopicAuthorizationFailed
		}
		var rest []kmsg.OffsetDeleteRequestTopicPartition
		for j, p := range t.Partitions {
			err := refused
			if err == nil && image.Partition(t.Topic, p.Partition) == nil {
				err = kerr.UnknownTopicOrPartition
			}
			rt.Partitions[j].Partition, rt.Partitions[j].ErrorCode = p.Partition, code(err)
			if err == nil {
				rest = append(rest, p)
				at = append(at, place{i, j})
			}
		}
		if len(rest) > 0 {
			allowed.Topics = append(allowed.Topics, kmsg.OffsetDeleteRequestTopic{Topic: t.Topic, Partitions: rest})
		}
	}
	// Asked also if nothing is left: the group itself may be why not.
	h.Groups.DeleteOffsets(&allowed, func(deleted *kmsg.OffsetDeleteResponse) {
		if deleted.ErrorCode != 0 {
			resp.ErrorCode, resp.Topics = deleted.ErrorCode, nil
		}
		n := 0
		for _, t := range deleted.Topics {
			for _, p := range t.Partitions {
				resp.Topics[at[n].topic].Partitions[at[n].partition].ErrorCode = p.ErrorCode
				n++
			}
		}
		r.Reply(resp)
	})
}
