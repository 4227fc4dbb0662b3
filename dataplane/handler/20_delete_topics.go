package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/protocol"
)

// DeleteTopics (key 20), versions 1 to 6, by id from v6.
//
// Served by the controller. The reply comes when the topics are gone from every
// live broker or the time is up (REQUEST_TIMED_OUT; the deletion goes on).
// Needs Delete on the topic; who may not even Describe a topic learns nothing
// of an id.
func (h *Handler) deleteTopics(r *listener.Request) {
	req := r.Body.(*kmsg.DeleteTopicsRequest)
	image := h.Metadata.Image()
	rest := *req
	rest.TopicNames, rest.Topics = nil, nil
	var denied []kmsg.DeleteTopicsResponseTopic
	deny := func(name *string, id protocol.UUID, err error) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode = name, id, code(err)
		denied = append(denied, t)
	}
	for _, name := range req.TopicNames {
		if h.authorizeChange(r, kmsg.ACLOperationDelete, name) {
			rest.TopicNames = append(rest.TopicNames, name)
		} else {
			deny(&name, protocol.UUID{}, kerr.TopicAuthorizationFailed)
		}
	}
	for _, t := range req.Topics {
		name, known := "", true
		if t.Topic != nil {
			name = *t.Topic
		} else {
			name, known = image.TopicName(t.TopicID)
		}
		switch {
		case t.Topic == nil && t.TopicID == protocol.UUID{}:
			rest.Topics = append(rest.Topics, t) // refused as a whole, below
		case !known || (t.Topic == nil && !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name)):
			deny(nil, t.TopicID, kerr.UnknownTopicID)
		case !h.authorizeChange(r, kmsg.ACLOperationDelete, name):
			deny(t.Topic, t.TopicID, kerr.TopicAuthorizationFailed)
		default:
			rest.Topics = append(rest.Topics, t)
		}
	}
	if !h.Broker().DeleteTopics {
		for i := range rest.Topics {
			deny(rest.Topics[i].Topic, rest.Topics[i].TopicID, kerr.TopicDeletionDisabled)
		}
		for i := range rest.TopicNames {
			deny(&rest.TopicNames[i], protocol.UUID{}, kerr.TopicDeletionDisabled)
		}
		rest.TopicNames, rest.Topics = nil, nil
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	resp := h.Controller.DeleteTopics(ctx, &rest)
	var going []string
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && t.Topic != nil {
			going = append(going, *t.Topic)
		}
	}
	if len(going) > 0 && h.Controller.AwaitDeleted(ctx, going...) != nil {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.ErrorCode == 0 {
				t.ErrorCode = kerr.RequestTimedOut.Code
			}
		}
	}
	resp.Topics = append(resp.Topics, denied...)
	r.Reply(resp)
}
