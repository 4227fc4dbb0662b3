package group

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type syncResult struct {
	err          *kerr.Error
	protocolType string
	protocol     *string
	assignment   []byte
}

func (r syncResult) response(version int16) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.Version = version
	resp.ErrorCode = code(r.err)
	if r.err == nil {
		resp.ProtocolType = &r.protocolType
		resp.Protocol = r.protocol
		resp.MemberAssignment = r.assignment
	}
	return resp
}

// Sync handles SyncGroup (versions 0 to 5). done is called exactly once: for
// the leader when its assignment is stored, for the others with it.
func (c *Coordinator) Sync(req *kmsg.SyncGroupRequest, done func(*kmsg.SyncGroupResponse)) {
	version := req.Version
	reply := func(r syncResult) { done(r.response(version)) }
	switch {
	case req.Group == "":
		reply(syncResult{err: kerr.InvalidGroupID})
		return
	case version >= 5 && (req.ProtocolType == nil || req.Protocol == nil):
		reply(syncResult{err: kerr.InconsistentGroupProtocol})
		return
	}
	err := c.with(req.Group, false, func(g *group, fx *effects) {
		if g == nil {
			reply(syncResult{err: kerr.UnknownMemberID})
			return
		}
		if err := g.handleSync(fx, req, reply); err != nil {
			fx.call(func() { reply(syncResult{err: err}) })
		}
	})
	if err == kerr.CoordinatorLoadInProgress {
		// The rebalance that this sync belongs to is lost: join again at once
		// rather than repeat the sync until its generation proves unknown.
		err = kerr.RebalanceInProgress
	}
	if err != nil {
		reply(syncResult{err: err})
	}
}

func (g *group) handleSync(fx *effects, req *kmsg.SyncGroupRequest, reply func(syncResult)) *kerr.Error {
	if g.consumer != nil && !g.deleting {
		return g.syncConsumer(fx, req, reply)
	}
	m, err := g.member(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case g.deleting || g.state == stateEmpty:
		return kerr.UnknownMemberID
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case req.ProtocolType != nil && *req.ProtocolType != g.protocolType,
		req.Protocol != nil && *req.Protocol != str(g.protocol):
		return kerr.InconsistentGroupProtocol
	case g.state == statePreparing:
		return kerr.RebalanceInProgress
	case g.state == stateStable:
		g.synced(m)
		r := g.syncedResult(m)
		fx.call(func() { reply(r) })
		g.keepAlive(m)
		return nil
	}
	g.answerSync(fx, m, syncResult{err: kerr.RebalanceInProgress}) // an earlier one, given up by the client
	m.sync = reply
	g.synced(m)
	if m.id != g.leader {
		return nil
	}
	assigned, more := make(map[string][]byte, len(req.GroupAssignment)), int64(0)
	for _, a := range req.GroupAssignment {
		if g.members[a.MemberID] != nil {
			assigned[g.members[a.MemberID].id] = bytes.Clone(a.MemberAssignment)
			more += int64(len(a.MemberAssignment))
		}
	}
	for _, m := range g.order {
		more -= int64(len(m.assignment))
	}
	if !g.room(more, false) {
		g.failAssignment(fx, kerr.CoordinatorNotAvailable)
		g.prepareRebalance(fx)
		return nil // answered with the others
	}
	for _, m := range g.order {
		g.assign(m, assigned[m.id])
	}
	generation := g.generation
	g.storeGroup(fx, func(fx *effects, err error) {
		if g.state != stateCompleting || g.generation != generation {
			return // who waited has been answered
		}
		if err != nil {
			g.c.cfg.Logger.Warn("assignment not stored", "group", g.id, "err", err)
			g.failAssignment(fx, storeError(err))
			g.prepareRebalance(fx)
			return
		}
		g.enter(stateStable)
		for _, m := range g.order {
			if g.answerSync(fx, m, g.syncedResult(m)) {
				g.keepAlive(m)
			}
		}
	})
	return nil
}

func (g *group) syncedResult(m *member) syncResult {
	return syncResult{protocolType: g.protocolType, protocol: g.protocol, assignment: m.assignment}
}
