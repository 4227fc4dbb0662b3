package handler

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
)

// IncrementalAlterConfigs (key 44), versions 0 and 1 (KIP-339): set, delete,
// append to and subtract from single settings of a topic, of a consumer group (KIP-848),
// of this broker, or (by an empty name) of all brokers; set the level of this broker's log (KIP-412). A resource named twice is refused.
func (h *Handler) incrementalAlterConfigs(r *listener.Request) {
	req := r.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	times := map[configResource]int{}
	for _, in := range req.Resources {
		times[configResource{in.ResourceType, in.ResourceName}]++
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		a := alteration{configResource: configResource{in.ResourceType, in.ResourceName}, dry: req.ValidateOnly}
		for _, c := range in.Configs {
			a.ops = append(a.ops, config.Op{Name: c.Name, Op: c.Op, Value: c.Value})
		}
		err := h.alter(r, &a, times[a.configResource])
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = in.ResourceType, in.ResourceName, code(err), text(err)
		resp.Resources = append(resp.Resources, out)
	}
	r.Reply(resp)
}
