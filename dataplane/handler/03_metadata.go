package handler

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
	"penstock/tenants"
)

// autoCreateWait is how long a Metadata request waits for a topic that it has
// caused to be made. Kafka answers at once with an error and lets the client
// ask again; waiting saves every client that round of back-off.
const autoCreateWait = 5 * time.Second

// Metadata (key 3), versions 0 to 12.
//
// Topics by name or (v12+) id; all topics for a null list (v1+) or an empty one
// (v0). A topic that the caller may not describe is left out of "all", and
// TOPIC_AUTHORIZATION_FAILED (without saying whether it exists) by name. Only
// live brokers that have the caller's listener are named. With
// auto.create.topics.enable a missing topic is made if the caller may create
// it, and the reply waits until it can be served.
func (h *Handler) metadata(r *listener.Request) {
	req := r.Body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	req.Topics = distinctTopics(req.Topics)
	if !idsAllowed(req) {
		for _, t := range req.Topics {
			rt := kmsg.NewMetadataResponseTopic()
			rt.Topic, rt.TopicID, rt.ErrorCode, rt.AuthorizedOperations = t.Topic, t.TopicID, kerr.InvalidRequest.Code, noOperations
			if rt.Topic == nil { // not every version can leave the name out
				rt.Topic = kmsg.StringPtr("")
			}
			resp.Topics = append(resp.Topics, rt)
		}
		resp.AuthorizedOperations, resp.ControllerID = noOperations, -1
		r.Reply(resp)
		return
	}
	h.awaitFirstImage()
	h.autoCreate(r, req)
	image := h.Metadata.Image()

	for _, b := range image.BrokersOn(r.Conn.Listener()) {
		e, _ := b.Endpoint(r.Conn.Listener())
		rb := kmsg.NewMetadataResponseBroker()
		rb.NodeID, rb.Host, rb.Port, rb.Rack = b.ID, e.Host, e.Port, b.Rack
		resp.Brokers = append(resp.Brokers, rb)
	}
	resp.ClusterID = kmsg.StringPtr(image.ClusterID)
	resp.ControllerID = image.ControllerID
	resp.AuthorizedOperations = noOperations
	if req.Version >= 8 && req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeCluster, clusterName)
	}

	resp.Topics = []kmsg.MetadataResponseTopic{}
	if req.Topics == nil || (req.Version == 0 && len(req.Topics) == 0) {
		for t := range image.Topics() {
			if h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, t.Name) {
				resp.Topics = append(resp.Topics, h.describeTopic(r, image, t.Name, req))
			}
		}
		r.Reply(resp)
		return
	}
	for _, t := range req.Topics {
		resp.Topics = append(resp.Topics, h.askedTopic(r, image, t, req))
	}
	r.Reply(resp)
}

// idsAllowed: versions 10 and 11 have topic ids in the request, but only from 12
// on may they be used (KIP-516).
func idsAllowed(req *kmsg.MetadataRequest) bool {
	return req.Version >= 12 || !slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool {
		return t.Topic == nil || t.TopicID != protocol.UUID{}
	})
}

// awaitFirstImage waits, for a broker that has just started, for the
// controller's first word. Kafka answers with an empty cluster meanwhile, from
// which clients conclude that their topics are gone. When that word does not come in
// time no topic is unknown: franz-go gives a record up after five such answers.
func (h *Handler) awaitFirstImage() {
	if h.Metadata.Image().ControllerEpoch != 0 {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, autoCreateWait)
	defer cancel()
	_ = h.Metadata.Await(ctx, func(im *metadata.Image) bool { return im.ControllerEpoch != 0 })
}

// unknown is the error for a topic or a partition that the image does not have. While it has
// nothing at all, since this broker has just started, that says nothing of the topic, and
// clients give up what is unknown for some answers (franz-go's records after five): then it is
// elsewhere, the error by which a client goes and asks again.
func unknown(image *metadata.Image, err, elsewhere *kerr.Error) error {
	if image.ControllerEpoch == 0 {
		return elsewhere
	}
	return err
}

func (h *Handler) askedTopic(r *listener.Request, image *metadata.Image, t kmsg.MetadataRequestTopic, req *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.AuthorizedOperations = t.Topic, t.TopicID, noOperations
	if t.Topic == nil {
		name, ok := image.TopicName(t.TopicID)
		if !ok || !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name) {
			rt.ErrorCode = code(unknown(image, kerr.UnknownTopicID, kerr.LeaderNotAvailable))
			return rt
		}
		return h.describeTopic(r, image, name, req)
	}
	name := *t.Topic
	switch {
	case !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name):
		rt.TopicID, rt.ErrorCode = protocol.UUID{}, kerr.TopicAuthorizationFailed.Code
	case tenants.CheckTopicName(name) != nil:
		rt.ErrorCode = kerr.InvalidTopicException.Code
	case image.Topic(name) == nil:
		rt.ErrorCode = code(unknown(image, kerr.UnknownTopicOrPartition, kerr.LeaderNotAvailable))
	default:
		return h.describeTopic(r, image, name, req)
	}
	return rt
}

func (h *Handler) describeTopic(r *listener.Request, image *metadata.Image, name string, req *kmsg.MetadataRequest) kmsg.MetadataResponseTopic {
	t := image.Topic(name)
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID, rt.AuthorizedOperations = &t.Name, t.ID, noOperations
	rt.IsInternal = protocol.InternalTopic(name)
	if req.Version >= 8 && req.IncludeTopicAuthorizedOperations {
		rt.AuthorizedOperations = h.authorizedOperations(r, kmsg.ACLResourceTypeTopic, name)
	}
	rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, 0, t.Len())
	for _, p := range t.Sorted() {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.LeaderEpoch = p.Index, p.Leader, p.LeaderEpoch
		rp.Replicas, rp.ISR, rp.OfflineReplicas = p.Replicas, p.ISR, offlineReplicas(image, p)
		if err := unreachable(r, image, p); err != nil {
			if req.Version < 6 {
				err = kerr.LeaderNotAvailable
			}
			rp.ErrorCode, rp.Leader = err.Code, metadata.NoLeader
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

func offlineReplicas(image *metadata.Image, p *metadata.Partition) (offline []int32) {
	for _, id := range p.Replicas {
		if !image.Alive(id) || slices.Contains(p.Offline, id) {
			offline = append(offline, id)
		}
	}
	return offline
}

// unreachable says why the caller can not reach a partition's leader, nil if it
// can.
func unreachable(r *listener.Request, image *metadata.Image, p *metadata.Partition) *kerr.Error {
	b := image.Brokers[p.Leader]
	if b == nil {
		return kerr.LeaderNotAvailable
	}
	if _, ok := b.Endpoint(r.Conn.Listener()); !ok {
		return kerr.ListenerNotFound
	}
	return nil
}

// autoCreate makes the missing topics that the request names.
func (h *Handler) autoCreate(r *listener.Request, req *kmsg.MetadataRequest) {
	if req.Version >= 4 && !req.AllowAutoTopicCreation {
		return
	}
	image := h.Metadata.Image()
	var missing []string
	for _, t := range req.Topics {
		if t.Topic == nil || image.Topic(*t.Topic) != nil || tenants.CheckTopicName(*t.Topic) != nil {
			continue
		}
		name := *t.Topic
		if !h.authorize(r, kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTopic, name) {
			continue
		}
		if h.Broker().AutoCreateTopics && h.mayTouch(r, name) &&
			(h.authorizeCluster(r, kmsg.ACLOperationCreate) || h.authorize(r, kmsg.ACLOperationCreate, kmsg.ACLResourceTypeTopic, name)) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(h.ctx, autoCreateWait)
	defer cancel()
	for _, name := range missing {
		if err := h.EnsureTopic(ctx, name); err != nil {
			h.Logger.Warn("a topic could not be made on first use", "topic", name, "error", err)
		}
	}
}

// noOperations tells a client that it did not ask for its rights.
const noOperations = -1 << 31

// authorizedOperations is the bit set of what the caller may do (KIP-430).
func (h *Handler) authorizedOperations(r *listener.Request, typ kmsg.ACLResourceType, name string) int32 {
	return h.ACLs.Operations(r.Conn.Principal(), r.Conn.Host(), typ, name)
}
