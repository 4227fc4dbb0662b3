package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// ConsumerGroupDescribe (key 69), versions 0 and 1 (the kind of each member, KIP-1099).
// Needs Describe on each group, and on every topic that a group's answer would name: else
// the group is TOPIC_AUTHORIZATION_FAILED. A group that does not exist or is a classic one
// is GROUP_ID_NOT_FOUND.
func (h *Handler) consumerGroupDescribe(r *listener.Request) {
	req := r.Body.(*kmsg.ConsumerGroupDescribeRequest)
	req.Groups = distinct(req.Groups, self)
	allowed := *req
	allowed.Groups = nil
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, g := range req.Groups {
		if h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeGroup, g) {
			allowed.Groups = append(allowed.Groups, g)
			continue
		}
		d := kmsg.NewConsumerGroupDescribeResponseGroup()
		d.Group, d.ErrorCode = g, kerr.GroupAuthorizationFailed.Code
		resp.Groups = append(resp.Groups, d)
	}
	h.Groups.DescribeConsumer(&allowed, func(described *kmsg.ConsumerGroupDescribeResponse) {
		for _, d := range described.Groups {
			if d.ErrorCode == 0 && !h.maySeeTopics(r, &d) {
				group := d.Group
				d = kmsg.NewConsumerGroupDescribeResponseGroup()
				d.Group, d.ErrorCode = group, kerr.TopicAuthorizationFailed.Code
				d.ErrorMessage = kmsg.StringPtr("The group has described topic(s) that the client is not authorized to describe.")
			}
			if req.IncludeAuthorizedOperations && d.ErrorCode == 0 {
				d.AuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeGroup, d.Group)
			}
			resp.Groups = append(resp.Groups, d)
		}
		r.Reply(resp)
	})
}

// maySeeTopics says whether the caller may Describe every topic that the answer names.
func (h *Handler) maySeeTopics(r *listener.Request, d *kmsg.ConsumerGroupDescribeResponseGroup) bool {
	asked := map[string]bool{}
	may := func(topic string) bool {
		ok, known := asked[topic]
		if !known {
			ok = h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, topic)
			asked[topic] = ok
		}
		return ok
	}
	for i := range d.Members {
		m := &d.Members[i]
		for _, t := range m.SubscribedTopics {
			if !may(t) {
				return false
			}
		}
		for _, a := range [][]kmsg.AssignmentTopicPartition{m.Assignment.TopicPartitions, m.TargetAssignment.TopicPartitions} {
			for _, tp := range a {
				if !may(tp.Topic) {
					return false
				}
			}
		}
	}
	return true
}
