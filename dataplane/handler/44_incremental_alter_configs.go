package handler

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
)

// IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339): set, delete,
// append to and subtract from single settings of a topic. A resource named
// twice is refused.
func (h *Handler) incrementalAlterConfigs(r *listener.Request) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	type resource struct {
		typ  kmsg.ConfigResourceType
		name string
	}
	times := map[resource]int{}
	for _, in := range req.Resources {
		times[resource{in.ResourceType, in.ResourceName}]++
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		ops := make([]config.Op, len(in.Configs))
		for j, c := range in.Configs {
			ops[j] = config.Op{Name: c.Name, Op: c.Op, Value: c.Value}
		}
		var err error = kerr.InvalidRequest
		if times[resource{in.ResourceType, in.ResourceName}] == 1 {
			err = h.alterResource(r, in.ResourceType, in.ResourceName, req.ValidateOnly, func(now map[string]string) (map[string]string, error) {
				return h.Broker.AlterTopic(now, ops)
			})
		}
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = in.ResourceType, in.ResourceName, code(err), text(err)
		resp.Resources = append(resp.Resources, out)
	}
	r.Reply(resp)
}
