package handler

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// OffsetFetch (key 9), versions 1 to 10; several groups from v8 (KIP-709).
//
// Needs Describe on the group and on each topic. Topics that may not be
// described fail by themselves, or are left out where all were asked for (null,
// from v2). What was never committed is offset -1 without an error, also of
// topics that do not exist. With RequireStable (v7, KIP-447) an offset that an
// open transaction is about to replace is UNSTABLE_OFFSET_COMMIT. The member id and epoch of v9 are
// checked where the group is one of the newer protocol (KIP-848). Since v10 topics go by id: one
// that is not known is UNKNOWN_TOPIC_ID, and where all were asked for, offsets of topics
// that are no more are left out.
func (h *Handler) offsetFetch(r *listener.Request) {
	req := r.Body.(*kmsg.OffsetFetchRequest)
	asked := offsetGroups(req)
	byID := req.Version >= 10
	image := h.Metadata.Image()
	var unknown map[string][]kmsg.OffsetFetchResponseGroupTopic // by group
	if byID {
		unknown = nameTopics(asked, image.TopicName)
	}
	asked = distinctOffsets(asked)
	results := make([]kmsg.OffsetFetchResponseGroup, 0, len(asked))
	for _, g := range asked {
		result := h.fetchOffsets(r, g, req.RequireStable)
		if byID && result.ErrorCode == 0 {
			result.Topics = append(identified(result.Topics, image.TopicID), unknown[g.Group]...)
		}
		results = append(results, result)
	}
	r.Reply(offsetsResponse(req, results))
}

// offsetGroups is what the request asks for, in the form of v8; before, there
// is exactly one group.
func offsetGroups(req *kmsg.OffsetFetchRequest) []kmsg.OffsetFetchRequestGroup {
	if req.Version >= 8 {
		return req.Groups
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil { // null means all, empty means none
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	return []kmsg.OffsetFetchRequestGroup{g}
}

// nameTopics gives the topics of the request their names, and takes those out that
// have none: they are answered by group.
func nameTopics(groups []kmsg.OffsetFetchRequestGroup, name func(protocol.UUID) (string, bool)) map[string][]kmsg.OffsetFetchResponseGroupTopic {
	unknown := make(map[string][]kmsg.OffsetFetchResponseGroupTopic)
	for i := range groups {
		g := &groups[i]
		if g.Topics == nil {
			continue
		}
		named := make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(g.Topics)) // null would mean all
		for _, t := range g.Topics {
			n, ok := name(t.TopicID)
			if !ok {
				rt := noOffsets(t, kerr.UnknownTopicID.Code)
				rt.TopicID = t.TopicID
				unknown[g.Group] = append(unknown[g.Group], rt)
				continue
			}
			t.Topic = n
			named = append(named, t)
		}
		g.Topics = named
	}
	return unknown
}

// identified gives the topics of a response their ids, and takes those out that have none.
func identified(topics []kmsg.OffsetFetchResponseGroupTopic, id func(string) (protocol.UUID, bool)) []kmsg.OffsetFetchResponseGroupTopic {
	kept := topics[:0]
	for _, t := range topics {
		if tid, ok := id(t.Topic); ok {
			t.TopicID = tid
			kept = append(kept, t)
		}
	}
	return kept
}

// offsetsResponse gives the results the form of the request's version.
func offsetsResponse(req *kmsg.OffsetFetchRequest, results []kmsg.OffsetFetchResponseGroup) *kmsg.OffsetFetchResponse {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if req.Version >= 8 {
		resp.Groups = results
		return resp
	}
	g := results[0]
	resp.ErrorCode = g.ErrorCode
	if req.Version < 2 && g.ErrorCode != 0 { // v1 has no place for it but the partitions
		for _, t := range offsetGroups(req)[0].Topics {
			g.Topics = append(g.Topics, noOffsets(t, g.ErrorCode))
		}
	}
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// fetchOffsets answers for one group, without what the caller may not see.
func (h *Handler) fetchOffsets(r *listener.Request, g kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, g.Group) {
		out := kmsg.NewOffsetFetchResponseGroup()
		out.Group, out.ErrorCode = g.Group, kerr.GroupAuthorizationFailed.Code
		return out
	}
	mayDescribe := func(topic string) bool {
		return h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, topic)
	}
	all := g.Topics == nil
	var refused []kmsg.OffsetFetchResponseGroupTopic
	if !all {
		topics := make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(g.Topics))
		for _, t := range g.Topics {
			if mayDescribe(t.Topic) {
				topics = append(topics, t)
			} else {
				refused = append(refused, noOffsets(t, kerr.TopicAuthorizationFailed.Code))
			}
		}
		g.Topics = topics
	}
	out := h.Groups.FetchGroup(g, stable)
	if all {
		out.Topics = slices.DeleteFunc(out.Topics, func(t kmsg.OffsetFetchResponseGroupTopic) bool { return !mayDescribe(t.Topic) })
	}
	if out.ErrorCode == 0 {
		out.Topics = append(out.Topics, refused...)
	}
	return out
}

// noOffsets answers for partitions with an error.
func noOffsets(t kmsg.OffsetFetchRequestGroupTopic, code int16) kmsg.OffsetFetchResponseGroupTopic {
	rt := kmsg.NewOffsetFetchResponseGroupTopic()
	rt.Topic = t.Topic
	for _, p := range t.Partitions {
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		rp.Partition, rp.Offset, rp.Metadata, rp.ErrorCode = p, -1, new(""), code
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
