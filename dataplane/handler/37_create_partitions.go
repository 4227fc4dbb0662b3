package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// CreatePartitions (key 37), versions 0 to 3: more partitions for a topic.
// Served by the controller; needs Alter on the topic. The reply comes when the
// new partitions have leaders that every live broker knows.
func (h *Handler) createPartitions(r *listener.Request) {
	req := r.Body.(*kmsg.CreatePartitionsRequest)
	rest := *req
	rest.Topics = nil
	var denied []kmsg.CreatePartitionsResponseTopic
	for _, t := range req.Topics {
		if h.authorizeChange(r, kmsg.ACLOperationAlter, t.Topic) {
			rest.Topics = append(rest.Topics, t)
			continue
		}
		d := kmsg.NewCreatePartitionsResponseTopic()
		d.Topic, d.ErrorCode = t.Topic, kerr.TopicAuthorizationFailed.Code
		denied = append(denied, d)
	}
	ctx, cancel := h.within(req.TimeoutMillis)
	defer cancel()
	resp := h.Controller.CreatePartitions(ctx, &rest)
	var grown []string
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && !req.ValidateOnly {
			grown = append(grown, t.Topic)
		}
	}
	if len(grown) > 0 && h.Controller.AwaitPropagated(ctx, grown...) != nil {
		for i := range resp.Topics {
			if t := &resp.Topics[i]; t.ErrorCode == 0 {
				t.ErrorCode = kerr.RequestTimedOut.Code
			}
		}
	}
	resp.Topics = append(resp.Topics, denied...)
	r.Reply(resp)
}
