package handler

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/listener"
)

// The requests between controller and brokers in ZooKeeper mode: LeaderAndIsr
// (key 4, versions 0 to 7), StopReplica (5, 0 to 4), UpdateMetadata (6, 0 to 8),
// ControlledShutdown (7, 0 to 3), AlterPartition (56, 0 to 3) and
// AllocateProducerIds (67, 0; asked by Kafka's brokers only). All need
// ClusterAction. A request meant for an earlier life of this broker is refused
// with STALE_BROKER_EPOCH (KIP-380); older controllers are fenced further in.

func (h *Handler) leaderAndISR(r *listener.Request) {
	req := r.Body.(*kmsg.LeaderAndISRRequest)
	resp := req.ResponseKind().(*kmsg.LeaderAndISRResponse)
	if err := h.controllerRefused(r, req.BrokerEpoch, req.Version >= 2); err != nil {
		resp.ErrorCode = code(err)
		r.Reply(resp)
		return
	}
	r.Reply(h.Partitions.LeaderAndISR(req))
}

func (h *Handler) stopReplica(r *listener.Request) {
	req := r.Body.(*kmsg.StopReplicaRequest)
	resp := req.ResponseKind().(*kmsg.StopReplicaResponse)
	if err := h.controllerRefused(r, req.BrokerEpoch, req.Version >= 1); err != nil {
		resp.ErrorCode = code(err)
		r.Reply(resp)
		return
	}
	r.Reply(h.Partitions.StopReplica(req))
}

func (h *Handler) updateMetadata(r *listener.Request) {
	req := r.Body.(*kmsg.UpdateMetadataRequest)
	resp := req.ResponseKind().(*kmsg.UpdateMetadataResponse)
	err := h.controllerRefused(r, req.BrokerEpoch, req.Version >= 5)
	if err == nil {
		delta, applied := h.Metadata.Apply(req)
		if err = applied; err == nil && len(delta.Deleted) > 0 {
			h.Groups.OnPartitionsDeleted(delta.Deleted)
		}
		h.Partitions.BrokersChanged()
	}
	resp.ErrorCode = code(err)
	r.Reply(resp)
}

// controllerRefused checks the right and the broker epoch, which a version may
// not carry; -1 skips it.
func (h *Handler) controllerRefused(r *listener.Request, epoch int64, carried bool) error {
	if !h.authorizeCluster(r, kmsg.ACLOperationClusterAction) {
		return kerr.ClusterAuthorizationFailed
	}
	if !carried || epoch < 0 {
		return nil
	}
	return h.forThisLife(epoch)
}

// forThisLife holds a request's broker epoch against our own. Connections are
// served before this broker is registered, so a request that comes first may be
// for the life before, about whose end the controller has not heard: it waits
// until there is an epoch to hold it against. Taken in, it would make leaders
// and an image of the cluster that has only what it names.
func (h *Handler) forThisLife(epoch int64) error {
	select {
	case <-h.Registered:
	case <-h.ctx.Done():
		return kerr.BrokerNotAvailable
	}
	if own := h.BrokerEpoch(); epoch < own {
		h.Logger.Warn("a controller request for an earlier life of this broker is refused", "epoch", epoch, "own", own)
		return kerr.StaleBrokerEpoch
	}
	return nil
}

// asController serves a request to the controller, which says itself if it is
// not in office.
func (h *Handler) asController(r *listener.Request, refuse func(code int16) kmsg.Response, serve func(context.Context) kmsg.Response) {
	if !h.authorizeCluster(r, kmsg.ACLOperationClusterAction) {
		r.Reply(refuse(kerr.ClusterAuthorizationFailed.Code))
		return
	}
	ctx, cancel := h.within(0)
	defer cancel()
	r.Reply(serve(ctx))
}

func (h *Handler) controlledShutdown(r *listener.Request) {
	req := r.Body.(*kmsg.ControlledShutdownRequest)
	h.asController(r,
		func(code int16) kmsg.Response { return &kmsg.ControlledShutdownResponse{ErrorCode: code} },
		func(ctx context.Context) kmsg.Response { return h.Controller.ControlledShutdown(ctx, req) })
}

func (h *Handler) alterPartition(r *listener.Request) {
	req := r.Body.(*kmsg.AlterPartitionRequest)
	h.asController(r,
		func(code int16) kmsg.Response { return &kmsg.AlterPartitionResponse{ErrorCode: code} },
		func(ctx context.Context) kmsg.Response { return h.Controller.AlterPartition(ctx, req) })
}

func (h *Handler) allocateProducerIDs(r *listener.Request) {
	req := r.Body.(*kmsg.AllocateProducerIDsRequest)
	h.asController(r,
		func(code int16) kmsg.Response { return &kmsg.AllocateProducerIDsResponse{ErrorCode: code} },
		func(ctx context.Context) kmsg.Response { return h.Controller.AllocateProducerIDs(ctx, req) })
}
