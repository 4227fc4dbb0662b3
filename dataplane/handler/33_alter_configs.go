package handler

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
)

// AlterConfigs (key 33), versions 0 to 2: the settings given become the whole
// set of the topic; what is not named falls back to its default.
// IncrementalAlterConfigs is the call that merges. Each resource by itself: a
// value that cannot be parsed is INVALID_CONFIG there and nothing of that
// resource is applied.
func (h *Handler) alterConfigs(r *listener.Request) {
	req := r.Body.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for i := range req.Resources {
		in := &req.Resources[i]
		ops := make([]config.Op, len(in.Configs))
		for j, c := range in.Configs {
			ops[j] = config.Op{Name: c.Name, Value: c.Value}
		}
		err := h.alterResource(r, in.ResourceType, in.ResourceName, req.ValidateOnly, func(map[string]string) (map[string]string, error) {
			return h.Broker.ReplaceTopic(ops)
		})
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = in.ResourceType, in.ResourceName, code(err), text(err)
		resp.Resources = append(resp.Resources, out)
	}
	r.Reply(resp)
}

// alterResource applies a change to a topic's overrides. Settings of brokers
// are read at start only, so far.
func (h *Handler) alterResource(r *listener.Request, typ kmsg.ConfigResourceType, name string, dry bool, change Change) error {
	switch typ {
	case kmsg.ConfigResourceTypeTopic:
	case kmsg.ConfigResourceTypeBroker:
		if !h.authorizeCluster(r, kmsg.ACLOperationAlterConfigs) {
			return kerr.ClusterAuthorizationFailed
		}
		return fmt.Errorf("%w: a broker's settings cannot be changed while it runs", kerr.InvalidRequest)
	default:
		return fmt.Errorf("%w: resources of type %v have no settings here", kerr.InvalidRequest, typ)
	}
	if !h.authorizeChange(r, kmsg.ACLOperationAlterConfigs, name) {
		return kerr.TopicAuthorizationFailed
	}
	if h.Metadata.Image().Topic(name) == nil {
		return kerr.UnknownTopicOrPartition
	}
	ctx, cancel := context.WithTimeout(h.ctx, h.Broker.RequestTimeout)
	defer cancel()
	if !dry {
		return h.Store.ChangeTopicConfig(ctx, name, change)
	}
	now, err := h.Store.TopicConfig(ctx, name)
	if err == nil {
		_, err = change(now)
	}
	return err
}
