package handler

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/config"
	"penstock/dataplane/listener"
	"penstock/tenants"
)

// DescribeConfigs (key 32), versions 1 to 4.
//
// The settings of topics, of consumer groups (KIP-848), of this broker and (by an empty name) the dynamic ones of
// all brokers, with where each value comes from and, if asked, the chain it was
// taken from. Only the keys asked for; names that are no settings are left out.
// Needs DescribeConfigs on the topic, the group or the cluster.
func (h *Handler) describeConfigs(r *listener.Request) {
	req := r.Body.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	ctx, cancel := h.within(0)
	defer cancel()
	req.Resources = distinctResources(req.Resources)
	for i := range req.Resources {
		in := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
		out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{}
		entries, err := h.describeResource(ctx, r, in)
		out.ErrorCode, out.ErrorMessage = code(err), text(err)
		for j := range entries {
			out.Configs = append(out.Configs, describeEntry(&entries[j], req))
		}
		resp.Resources = append(resp.Resources, out)
	}
	r.Reply(resp)
}

func (h *Handler) describeResource(ctx context.Context, r *listener.Request, in *kmsg.DescribeConfigsRequestResource) ([]config.Entry, error) {
	switch in.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		if !h.authorize(r, kmsg.ACLOperationDescribeConfigs, kmsg.ACLResourceTypeTopic, in.ResourceName) {
			return nil, kerr.TopicAuthorizationFailed
		}
		if tenants.CheckTopicName(in.ResourceName) != nil {
			return nil, kerr.InvalidTopicException
		}
		if h.Metadata.Image().Topic(in.ResourceName) == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		overrides, err := h.Store.TopicConfig(ctx, in.ResourceName)
		if err != nil {
			return nil, err
		}
		return h.Broker().DescribeTopic(overrides, in.ConfigNames), nil
	case kmsg.ConfigResourceTypeBroker:
		if !h.authorizeCluster(r, kmsg.ACLOperationDescribeConfigs) {
			return nil, kerr.ClusterAuthorizationFailed
		}
		if in.ResourceName == "" {
			return h.Broker().DescribeDefault(in.ConfigNames), nil
		}
		if err := h.isMe(in.ResourceName); err != nil {
			return nil, err
		}
		return h.Broker().DescribeBroker(in.ConfigNames), nil
	case kmsg.ConfigResourceTypeBrokerLogger:
		return h.describeLogger(r, in)
	case kmsg.ConfigResourceTypeGroupConfig:
		if !h.authorize(r, kmsg.ACLOperationDescribeConfigs, kmsg.ACLResourceTypeGroup, in.ResourceName) {
			return nil, kerr.GroupAuthorizationFailed
		}
		if err := namesGroup(in.ResourceName); err != nil {
			return nil, err
		}
		settings, err := h.Store.GroupConfig(ctx, in.ResourceName)
		if err != nil {
			return nil, err
		}
		return h.Broker().DescribeGroup(settings, in.ConfigNames), nil
	}
	return nil, fmt.Errorf("%w: resources of type %v have no settings here", kerr.InvalidRequest, in.ResourceType)
}

func describeEntry(e *config.Entry, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Name, c.Value, c.ReadOnly, c.IsDefault = e.Name, e.Value, e.ReadOnly, e.IsDefault()
	c.Source, c.IsSensitive, c.ConfigType = e.Source, e.Sensitive, e.Type
	if req.IncludeDocumentation && e.Doc != "" {
		c.Documentation = &e.Doc
	}
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			out := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			out.Name, out.Value, out.Source = s.Name, s.Value, s.Source
			c.ConfigSynonyms = append(c.ConfigSynonyms, out)
		}
	}
	return c
}
