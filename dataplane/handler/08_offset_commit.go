package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// OffsetCommit (key 8), versions 2 to 10.
//
// Needs Read on the group and on each topic; topics that may not be read or do
// not exist fail by themselves, the others are committed. The answer comes when
// the offsets are stored (acks=all). A retention time (v2 to v4) is kept with
// the offset; since v5 the broker's setting alone counts (KIP-211). The leader
// epoch (v6, KIP-320) and the instance id (v7, KIP-345) are honoured. Since v10 topics
// come by id, and one that is not known is UNKNOWN_TOPIC_ID.
func (h *Handler) offsetCommit(r *listener.Request) {
	req := r.Body.(*kmsg.OffsetCommitRequest)
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	var refused error
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		refused = kerr.GroupAuthorizationFailed
	}

	// What may be committed goes on in a request of its own; at says where the
	// answer to each of its partitions belongs.
	type place struct{ topic, partition int }
	var at []place
	allowed := *req
	allowed.Topics = nil
	image := h.Metadata.Image()
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, rt := &req.Topics[i], &resp.Topics[i]
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		known := true
		if req.Version >= 10 {
			t.Topic, known = image.TopicName(t.TopicID)
		}
		err := refused
		if err == nil && !known {
			err = unknown(image, kerr.UnknownTopicID, kerr.NotCoordinator)
		}
		if err == nil && !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, t.Topic) {
			err = kerr.TopicAuthorizationFailed
		}
		var rest []kmsg.OffsetCommitRequestTopicPartition
		for j := range t.Partitions {
			p := &t.Partitions[j]
			err := err
			if err == nil && image.Partition(t.Topic, p.Partition) == nil {
				err = unknown(image, kerr.UnknownTopicOrPartition, kerr.NotCoordinator)
			}
			rt.Partitions[j].Partition, rt.Partitions[j].ErrorCode = p.Partition, code(err)
			if err == nil {
				rest = append(rest, *p)
				at = append(at, place{i, j})
			}
		}
		if len(rest) > 0 {
			allowed.Topics = append(allowed.Topics, kmsg.OffsetCommitRequestTopic{Topic: t.Topic, Partitions: rest})
		}
	}
	if len(at) == 0 {
		r.Reply(resp)
		return
	}
	h.Groups.Commit(&allowed, func(committed *kmsg.OffsetCommitResponse) {
		n := 0
		for _, t := range committed.Topics {
			for _, p := range t.Partitions {
				resp.Topics[at[n].topic].Partitions[at[n].partition].ErrorCode = p.ErrorCode
				n++
			}
		}
		r.Reply(resp)
	})
}
