package handler

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
	"penstock/tenants"
)

// DescribeTopicPartitions (key 75), version 0 (KIP-966): topics in the order of
// their names, as many partitions as the caller and
// max.request.partition.size.limit allow, and a cursor that says where the next
// answer has to begin.
//
// No topic in the request means all that the caller may describe; one that it
// names and may not is answered TOPIC_AUTHORIZATION_FAILED, at the end and
// whatever the limit. A cursor must name a topic of the request (INVALID_REQUEST)
// and stays valid when that topic goes. There are no eligible leaders outside the
// in-sync set here: both lists are empty. They may be null, but Java's client does
// not survive that.
func (h *Handler) describeTopicPartitions(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	resp.Topics = []kmsg.DescribeTopicPartitionsResponseTopic{}
	names := make([]string, 0, len(req.Topics))
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if c := req.Cursor; c != nil && (c.Partition < 0 || len(names) > 0 && !slices.Contains(names, c.Topic)) {
		for _, name := range names {
			resp.Topics = append(resp.Topics, topicError(name, kerr.InvalidRequest))
		}
		r.Reply(resp)
		return
	}
	h.awaitFirstImage()
	image := h.Metadata.Image()
	all := len(names) == 0
	if all {
		for t := range image.Topics() {
			names = append(names, t.Name)
		}
	}
	var denied []kmsg.DescribeTopicPartitionsResponseTopic
	room := int(max(1, min(req.ResponsePartitionLimit, int32(h.Broker().MaxPartitionsDescribed))))
	for _, name := range names {
		if all && resp.NextCursor != nil {
			break
		}
		from := int32(0)
		if c := req.Cursor; c != nil {
			if name < c.Topic {
				continue
			}
			if name == c.Topic {
				from = c.Partition
			}
		}
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name) {
			if !all {
				denied = append(denied, topicError(name, kerr.TopicAuthorizationFailed))
			}
			continue
		}
		if resp.NextCursor != nil {
			continue // only those that are denied are still looked for
		}
		if room == 0 {
			resp.NextCursor = cursor(name, 0)
			continue
		}
		t := image.Topic(name)
		if t == nil {
			err := kerr.UnknownTopicOrPartition
			if tenants.CheckTopicName(name) != nil {
				err = kerr.InvalidTopicException
			}
			resp.Topics = append(resp.Topics, topicError(name, err))
			continue
		}
		rt := kmsg.NewDescribeTopicPartitionsResponseTopic()
		rt.Topic, rt.TopicID, rt.IsInternal = &t.Name, t.ID, protocol.InternalTopic(name)
		rt.AuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeTopic, name)
		rt.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
		for _, p := range t.Sorted() {
			if p.Index < from {
				continue
			}
			if room == 0 {
				resp.NextCursor = cursor(name, p.Index)
				break
			}
			room--
			rt.Partitions = append(rt.Partitions, describedPartition(r, image, p))
		}
		resp.Topics = append(resp.Topics, rt)
	}
	resp.Topics = append(resp.Topics, denied...)
	r.Reply(resp)
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func topicError(name string, err *kerr.Error) kmsg.DescribeTopicPartitionsResponseTopic {
	t := kmsg.NewDescribeTopicPartitionsResponseTopic()
	t.Topic, t.ErrorCode, t.AuthorizedOperations = &name, err.Code, noOperations
	t.Partitions = []kmsg.DescribeTopicPartitionsResponseTopicPartition{}
	return t
}

func describedPartition(r *listener.Request, image *metadata.Image, p *metadata.Partition) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	rp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	rp.Partition, rp.LeaderID, rp.LeaderEpoch = p.Index, p.Leader, p.LeaderEpoch
	rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, offlineReplicas(image, p)
	rp.EligibleLeaderReplicas, rp.LastKnownELR = []int32{}, []int32{}
	if err := unreachable(r, image, p); err != nil {
		rp.ErrorCode, rp.LeaderID = err.Code, metadata.NoLeader
	}
	return rp
}
