package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

// AlterPartition answers a leader's wish for another ISR (KIP-497; versions 0
// to 3, topic ids from 2 on, broker epochs of the ISR's members from 3 on).
//
// Errors of the whole request: NOT_CONTROLLER, STALE_BROKER_EPOCH. Of a
// partition: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH
// (the leader's epoch is old), NOT_CONTROLLER (it is newer than ours, so we are
// the old one), INVALID_UPDATE_VERSION (the partition epoch is old and the wish
// is not what is there already), INELIGIBLE_REPLICA (a member does not live, has
// lost the replica with a log folder, is stopping or is in another life; OPERATION_NOT_ATTEMPTED before version 2),
// INVALID_REQUEST.
func (c *Controller) AlterPartition(ctx context.Context, req *kmsg.AlterPartitionRequest) *kmsg.AlterPartitionResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionResponse)
	err := c.call(ctx, func(t *term) error {
		b, ok := t.st.brokers[req.BrokerID]
		if !ok || b.Epoch != req.BrokerEpoch {
			return kerr.StaleBrokerEpoch
		}
		var err error
		resp.Topics, err = t.alterPartitions(req)
		return err
	})
	if err != nil {
		resp.Topics, resp.ErrorCode = nil, codeOf(err)
	}
	return resp
}

// codeOf is the wire's code for an error of call; a caller whose time is up is
// told so.
func codeOf(err error) int16 {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return kerr.RequestTimedOut.Code
	}
	return protocol.Code(err)
}

// wish is one partition of the request.
type wish struct {
	out  *kmsg.AlterPartitionResponseTopicPartition
	req  *kmsg.AlterPartitionRequestTopicPartition
	p    *partition
	next coordination.PartitionState
}

func (t *term) alterPartitions(req *kmsg.AlterPartitionRequest) ([]kmsg.AlterPartitionResponseTopic, error) {
	out := make([]kmsg.AlterPartitionResponseTopic, len(req.Topics))
	var wishes []*wish
	for i := range req.Topics {
		rt := &req.Topics[i]
		out[i] = kmsg.NewAlterPartitionResponseTopic()
		out[i].Topic, out[i].TopidID = rt.Topic, rt.TopicID
		name, unknown := rt.Topic, kerr.UnknownTopicOrPartition
		if req.Version >= 2 {
			name, unknown = t.st.names[rt.TopicID], kerr.UnknownTopicID
		}
		tc := t.st.topics[name]
		out[i].Partitions = make([]kmsg.AlterPartitionResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			po := &out[i].Partitions[j]
			*po = kmsg.NewAlterPartitionResponseTopicPartition()
			po.Partition = rt.Partitions[j].Partition
			if tc == nil || tc.deleting {
				po.ErrorCode = unknown.Code
				continue
			}
			w := &wish{out: po, req: &rt.Partitions[j], p: tc.parts[po.Partition]}
			noop, err := t.check(req.Version, w)
			switch {
			case err != nil:
				po.ErrorCode = err.Code
			case noop:
				w.grant()
			default:
				wishes = append(wishes, w)
			}
		}
	}
	ws := make([]coordination.StateWrite, len(wishes))
	for i, w := range wishes {
		ws[i] = coordination.StateWrite{TP: w.p.tp, State: w.next}
	}
	errs, err := t.c.cfg.ZK.UpdateStates(t.ctx, t.fence, ws)
	if err != nil {
		return nil, err
	}
	b := t.newBatch()
	for i, w := range wishes {
		if errs[i] == nil {
			w.p.state = ws[i].State
			w.grant()
			b.meta[w.p.tp] = true
			t.progress(w.p)
			continue
		}
		w.out.ErrorCode = kerr.InvalidUpdateVersion.Code
		if !errors.Is(errs[i], coordination.ErrBadVersion) {
			continue
		}
		// Either our own write, whose reply was lost, or somebody else's.
		if err := t.reread(w.p); err != nil {
			return nil, err
		}
		b.meta[w.p.tp] = true
		if sameState(w.p.state, w.next) {
			w.out.ErrorCode = 0
			w.grant()
			t.progress(w.p)
		}
	}
	b.send()
	return out, nil
}

// check says whether a wish may be written, and fills in what to write. noop:
// it is what is there already, asked for again by a leader that did not hear
// the answer.
func (t *term) check(version int16, w *wish) (noop bool, err *kerr.Error) {
	r, p := w.req, w.p
	if p == nil || !p.known {
		return false, kerr.UnknownTopicOrPartition
	}
	now := p.state
	switch {
	case r.LeaderEpoch > now.LeaderEpoch:
		return false, kerr.NotController
	case r.LeaderEpoch < now.LeaderEpoch:
		return false, kerr.FencedLeaderEpoch
	}
	isr, epochs := r.NewISR, map[int32]int64{}
	if version >= 3 {
		isr = nil
		for _, m := range r.NewEpochISR {
			isr = append(isr, m.BrokerID)
			epochs[m.BrokerID] = m.BrokerEpoch
		}
	}
	w.next = coordination.PartitionState{
		Leader: now.Leader, LeaderEpoch: now.LeaderEpoch, ControllerEpoch: t.fence.Epoch,
		ISR: slices.Clone(isr), Recovering: r.LeaderRecoveryState == 1, Version: now.Version,
	}
	switch {
	case r.PartitionEpoch > now.Version:
		return false, kerr.NotController
	case r.PartitionEpoch < now.Version && sameState(now, w.next):
		return true, nil
	case r.PartitionEpoch < now.Version:
		return false, kerr.InvalidUpdateVersion
	case len(isr) == 0, !slices.Contains(isr, now.Leader), repeats(isr):
		return false, kerr.InvalidRequest
	case w.next.Recovering && (len(isr) > 1 || !now.Recovering):
		return false, kerr.InvalidRequest
	}
	for _, id := range isr {
		if !slices.Contains(p.replicas, id) {
			return false, kerr.InvalidRequest
		}
		epoch, told := epochs[id]
		if !t.st.serving(p)(id) || told && epoch != -1 && epoch != t.st.brokers[id].Epoch {
			if id == now.Leader && t.st.reachable(p)(id) && (!told || epoch == -1 || epoch == t.st.brokers[id].Epoch) {
				continue // a stopping leader that could not be replaced may still shrink
			}
			if version < 2 {
				return false, kerr.OperationNotAttempted
			}
			return false, kerr.IneligibleReplica
		}
	}
	return false, nil
}

// grant answers with what the partition is now.
func (w *wish) grant() {
	s := w.p.state
	w.out.LeaderID, w.out.LeaderEpoch, w.out.ISR, w.out.PartitionEpoch = s.Leader, s.LeaderEpoch, s.ISR, s.Version
	if s.Recovering {
		w.out.LeaderRecoveryState = 1
	}
}

// sameState compares all but the versions and the writer. The order of an ISR
// means nothing.
func sameState(a, b coordination.PartitionState) bool {
	x, y := slices.Clone(a.ISR), slices.Clone(b.ISR)
	slices.Sort(x)
	slices.Sort(y)
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && a.Recovering == b.Recovering && slices.Equal(x, y)
}

func repeats(ids []int32) bool {
	s := slices.Clone(ids)
	slices.Sort(s)
	return len(slices.Compact(s)) != len(ids)
}
