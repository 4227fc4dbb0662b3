package handler

import (
	"context"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
)

// AlterConfigs (key 33), versions 0 to 2: the settings given become the whole
// set of the topic or the group, or of the dynamic settings of this broker or (by an
// empty name) of all brokers; what is not named falls back to its default.
// IncrementalAlterConfigs is the call that merges. Each resource by itself: a
// value that is refused leaves all of its resource as it is. A resource named
// twice is refused.
func (h *Handler) alterConfigs(r *listener.Request) {
	req := r.Body.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	times := map[configResource]int{}
	for _, in := range req.Resources {
		times[configResource{in.ResourceType, in.ResourceName}]++
	}
	for i := range req.Resources {
		in := &req.Resources[i]
		a := alteration{configResource: configResource{in.ResourceType, in.ResourceName}, whole: true, dry: req.ValidateOnly}
		for _, c := range in.Configs {
			a.ops = append(a.ops, config.Op{Name: c.Name, Value: c.Value})
		}
		err := h.alter(r, &a, times[a.configResource])
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = in.ResourceType, in.ResourceName, code(err), text(err)
		resp.Resources = append(resp.Resources, out)
	}
	r.Reply(resp)
}

type configResource struct {
	typ  kmsg.ConfigResourceType
	name string
}

// alteration is what one resource is to become.
type alteration struct {
	configResource
	ops   []config.Op
	whole bool // the ops are the whole set, not changes
	dry   bool // only say whether it could be done
}

func (h *Handler) alter(r *listener.Request, a *alteration, times int) error {
	if times > 1 {
		return fmt.Errorf("%w: a resource is named %d times", kerr.InvalidRequest, times)
	}
	switch a.typ {
	case kmsg.ConfigResourceTypeTopic:
		return h.alterTopic(r, a)
	case kmsg.ConfigResourceTypeBroker:
		return h.alterBroker(r, a)
	case kmsg.ConfigResourceTypeBrokerLogger:
		return h.alterLogger(r, a)
	case kmsg.ConfigResourceTypeGroupConfig:
		return h.alterGroup(r, a)
	}
	return fmt.Errorf("%w: resources of type %v have no settings here", kerr.InvalidRequest, a.typ)
}

func (h *Handler) alterTopic(r *listener.Request, a *alteration) error {
	if !h.authorizeChange(r, kmsg.ACLOperationAlterConfigs, a.name) {
		return kerr.TopicAuthorizationFailed
	}
	if h.Metadata.Image().Topic(a.name) == nil {
		return kerr.UnknownTopicOrPartition
	}
	return h.change(a, h.Store.TopicConfig, h.Store.ChangeTopicConfig, a.name, func(now map[string]string) (map[string]string, error) {
		if a.whole {
			return h.Broker().ReplaceTopic(a.ops)
		}
		return h.Broker().AlterTopic(now, a.ops)
	})
}

func (h *Handler) alterBroker(r *listener.Request, a *alteration) error {
	if !h.authorizeCluster(r, kmsg.ACLOperationAlterConfigs) {
		return kerr.ClusterAuthorizationFailed
	}
	all := a.name == ""
	entity := a.name
	if all {
		entity = DefaultEntity
	} else if err := h.isMe(a.name); err != nil {
		return err
	}
	return h.change(a, h.Store.BrokerConfig, h.Store.ChangeBrokerConfig, entity, func(now map[string]string) (map[string]string, error) {
		if a.whole {
			return h.Broker().ReplaceBroker(now, a.ops, all)
		}
		return h.Broker().AlterBroker(now, a.ops, all)
	})
}

// alterGroup changes the settings of a consumer group (KIP-848), which need not be there.
func (h *Handler) alterGroup(r *listener.Request, a *alteration) error {
	if !h.authorize(r, kmsg.ACLOperationAlterConfigs, kmsg.ACLResourceTypeGroup, a.name) {
		return kerr.GroupAuthorizationFailed
	}
	if err := namesGroup(a.name); err != nil {
		return err
	}
	return h.change(a, h.Store.GroupConfig, h.Store.ChangeGroupConfig, a.name, func(now map[string]string) (map[string]string, error) {
		if a.whole {
			return h.Broker().ReplaceGroup(a.ops)
		}
		return h.Broker().AlterGroup(now, a.ops)
	})
}

func namesGroup(name string) error {
	if name == "" {
		return fmt.Errorf("%w: settings are of one group, which has to be named", kerr.InvalidRequest)
	}
	return nil
}

// isMe refuses the name of another broker: what can be set at a broker only that
// broker can judge.
func (h *Handler) isMe(name string) error {
	if name != strconv.Itoa(int(h.BrokerID)) {
		return fmt.Errorf("%w: this is broker %d, ask broker %q itself", kerr.InvalidRequest, h.BrokerID, name)
	}
	return nil
}

func (h *Handler) change(a *alteration, read func(context.Context, string) (map[string]string, error), write func(context.Context, string, Change) error, entity string, change Change) error {
	ctx, cancel := context.WithTimeout(h.ctx, h.Broker().RequestTimeout)
	defer cancel()
	if !a.dry {
		return write(ctx, entity, change)
	}
	now, err := read(ctx, entity)
	if err == nil {
		_, err = change(now)
	}
	return err
}
