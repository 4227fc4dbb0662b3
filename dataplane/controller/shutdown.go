package controller

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControlledShutdown moves leadership away from a broker that is about to stop,
// takes it out of the ISRs of what it follows, and answers the partitions that
// it still leads because nobody else is in sync (versions 0 to 3). The broker
// counts as stopping until it registers anew or goes, so it is neither elected
// nor let into an ISR. Asking again is harmless and tries again.
//
// Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
func (c *Controller) ControlledShutdown(ctx context.Context, req *kmsg.ControlledShutdownRequest) *kmsg.ControlledShutdownResponse {
	resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
	err := c.call(ctx, func(t *term) error {
		b, ok := t.st.brokers[req.BrokerID]
		switch {
		case !ok:
			return kerr.BrokerNotAvailable
		case req.Version >= 2 && req.BrokerEpoch != -1 && req.BrokerEpoch < b.Epoch:
			return kerr.StaleBrokerEpoch
		}
		remaining, err := t.shutdown(req.BrokerID)
		for _, tp := range remaining {
			r := kmsg.NewControlledShutdownResponsePartitionsRemaining()
			r.Topic, r.Partition = tp.Topic, tp.Partition
			resp.PartitionsRemaining = append(resp.PartitionsRemaining, r)
		}
		return err
	})
	if err != nil {
		resp.PartitionsRemaining, resp.ErrorCode = nil, codeOf(err)
	}
	return resp
}

func (t *term) shutdown(id int32) (remaining []topicPart, err error) {
	t.c.log.Info("controlled shutdown", "broker", id)
	t.st.stopping[id] = true
	var led, followed []*partition
	for _, p := range t.st.partitionsOn(id) {
		switch {
		case len(p.replicas) < 2 || !p.known: // nobody to move it to
		case p.state.Leader == id:
			led = append(led, p)
		default:
			followed = append(followed, p)
		}
	}
	b := t.newBatch()
	err = t.elect(b, led, func(p *partition) choice {
		return electShutdown(p.replicas, p.state.ISR, t.st.reachable(p), func(r int32) bool { return t.st.stopping[r] })
	})
	if err != nil {
		return nil, err
	}
	b.send()
	for _, p := range followed {
		b.stopReplica(id, p, false)
	}
	b.send()
	if err := t.replicasOffline(b, followed); err != nil {
		return nil, err
	}
	b.send()
	for _, p := range led {
		if p.state.Leader == id {
			remaining = append(remaining, p.tp)
		}
	}
	slices.SortFunc(remaining, compareTPs)
	return remaining, nil
}
