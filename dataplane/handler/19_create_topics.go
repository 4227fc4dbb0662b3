package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// CreateTopics (key 19), versions 2 to 7.
//
// Served by the controller; others answer NOT_CONTROLLER. The reply comes when
// every live broker has been told of the new leaders or the request's time is
// up, so that a client may produce at once: many clients take "created" for
// "usable". Needs Create on the cluster or on the topic's name (see authorizeChange).
func (h *Handler) createTopics(r *listener.Request) {
	req := r.Body.(*kmsg.CreateTopicsRequest)
	denied := map[string]bool{}
	all := h.authorizeCluster(r, kmsg.ACLOperationCreate)
	rest := *req
	rest.Topics = nil
	for _, t := range req.Topics {
		if all && h.mayTouch(r, t.Topic) || h.authorizeChange(r, kmsg.ACLOperationCreate, t.Topic) {
			rest.Topics = append(rest.Topics, t)
		} else {
			denied[t.Topic] = true
		}
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	resp := h.Controller.CreateTopics(ctx, &rest)
	var made []string
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && !req.ValidateOnly {
			made = append(made, t.Topic)
		}
	}
	for name := range denied {
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic, t.ErrorCode = name, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, t)
	}
	if len(made) > 0 && h.Controller.AwaitPropagated(ctx, made...) != nil {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.ErrorCode == 0 {
				t.ErrorCode = kerr.RequestTimedOut.Code
				t.ErrorMessage = kmsg.StringPtr("the topic is made, but not yet served everywhere")
			}
		}
	}
	r.Reply(resp)
}
