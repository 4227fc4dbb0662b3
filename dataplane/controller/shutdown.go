package controller

import (
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ControlledShutdown moves leadership away from a broker that is about to stop,
// takes it out of the ISRs of what it follows, and answers the partitions that
// it still leads because nobody else is in sync (versions 0 to 3). The answer comes
// when the new leaders lead. The broker counts as stopping until it registers anew
// or goes, so it is neither elected nor let into an ISR. Asking again is harmless
// and tries again.
//
// Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
func (c *Controller) ControlledShutdown(ctx context.Context, req *kmsg.ControlledShutdownRequest) *kmsg.ControlledShutdownResponse {
	resp := req.ResponseKind().(*kmsg.ControlledShutdownResponse)
	var in *term
	var followed []*partition
	err := c.call(ctx, func(t *term) error {
		b, ok := t.st.brokers[req.BrokerID]
		switch {
		case !ok:
			return kerr.BrokerNotAvailable
		case req.Version >= 2 && req.BrokerEpoch != -1 && req.BrokerEpoch < b.Epoch:
			return kerr.StaleBrokerEpoch
		}
		var remaining []topicPart
		var err error
		in = t
		remaining, followed, err = t.shutdown(req.BrokerID)
		for _, tp := range remaining {
			r := kmsg.NewControlledShutdownResponsePartitionsRemaining()
			r.Topic, r.Partition = tp.Topic, tp.Partition
			resp.PartitionsRemaining = append(resp.PartitionsRemaining, r)
		}
		return err
	})
	if err == nil {
		err = c.awaitMoved(ctx)
	}
	if err == nil {
		// Leaders are told first that they need not wait for this follower any more, and
		// it is told last to stop following.
		err = c.call(ctx, func(t *term) error {
			if t == in && t.st.stopping[req.BrokerID] {
				t.stopFollowing(req.BrokerID, followed)
			}
			return nil
		})
	}
	if err != nil {
		resp.PartitionsRemaining, resp.ErrorCode = nil, codeOf(err)
	}
	return resp
}

// movedWithin bounds the wait for brokers that do not answer, which must not keep
// another one from stopping.
const movedWithin = time.Second

// awaitMoved waits until the brokers have taken in what was last queued for them: the
// new leaders lead then, and everybody says so. The broker that has asked may then
// stop, and with it this controller, which it may be itself.
func (c *Controller) awaitMoved(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, movedWithin)
	defer cancel()
	err := c.await(short, func(*state) bool { return true })
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		c.log.Warn("controlled shutdown does not wait for all brokers to hear of it", "waited", movedWithin)
		return nil
	}
	return err
}

// shutdown gives the partitions that the broker leads on, and those that it has followed.
func (t *term) shutdown(id int32) (remaining []topicPart, followed []*partition, err error) {
	t.c.log.Info("controlled shutdown", "broker", id)
	t.st.stopping[id] = true
	var led []*partition
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
	if err == nil {
		err = t.replicasOffline(b, followed)
	}
	if err != nil {
		return nil, nil, err
	}
	// All of it in one request a broker: each costs a leader and its followers a new beginning.
	b.send()
	for _, p := range led {
		if p.state.Leader == id {
			remaining = append(remaining, p.tp)
		}
	}
	slices.SortFunc(remaining, compareTPs)
	return remaining, followed, nil
}

// stopFollowing has a broker that stops copy no more.
func (t *term) stopFollowing(id int32, parts []*partition) {
	b := t.newBatch()
	for _, p := range parts {
		if t.st.partition(p.tp) == p && p.state.Leader != id {
			b.stopReplica(id, p, false)
		}
	}
	b.send()
}
