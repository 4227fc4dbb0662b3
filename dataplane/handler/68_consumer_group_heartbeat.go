package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/group"
	"penstock/dataplane/listener"
)

// ConsumerGroupHeartbeat (key 68), versions 0 and 1: a member of a consumer group joins,
// says what it still has, is told what it is to have, and leaves (KIP-848). Needs Read on
// the group and Describe on each topic that is subscribed to by name.
//
// From v1 a member may subscribe by a regular expression, which matches the topics that it
// may Describe, and makes its id itself (KIP-1082). The answer comes when what it says is
// stored.
func (h *Handler) consumerGroupHeartbeat(r *listener.Request) {
	req := r.Body.(*kmsg.ConsumerGroupHeartbeatRequest)
	refuse := func(err *kerr.Error) {
		resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
		resp.ErrorCode = err.Code
		r.Reply(resp)
	}
	if !h.authorize(r, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, req.Group) {
		refuse(kerr.GroupAuthorizationFailed)
		return
	}
	// Regular expressions are resolved later too, when the request is over.
	principal, host := r.Conn.Principal(), r.Conn.Host()
	mayDescribe := func(topic string) bool {
		return h.ACLs.Authorize(principal, host, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, topic)
	}
	for _, t := range req.SubscribedTopicNames {
		if !mayDescribe(t) {
			refuse(kerr.TopicAuthorizationFailed)
			return
		}
	}
	client := group.ClientInfo{ClientID: r.ClientID, Host: "/" + host}
	h.Groups.ConsumerHeartbeat(client, mayDescribe, req, func(resp *kmsg.ConsumerGroupHeartbeatResponse) { r.Reply(resp) })
}
