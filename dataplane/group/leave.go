package group

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/planted"
)

// Heartbeat handles Heartbeat (versions 0 to 4); done is called before it returns.
func (c *Coordinator) Heartbeat(req *kmsg.HeartbeatRequest, done func(*kmsg.HeartbeatResponse)) {
	var result *kerr.Error
	err := c.with(req.Group, false, func(g *group, fx *effects) {
		switch {
		case g == nil:
			result = kerr.UnknownMemberID
		case g.consumer != nil && !g.deleting:
			result = g.heartbeatConsumer(fx, req)
		default:
			result = g.heartbeat(req)
		}
	})
	switch {
	case req.Group == "":
		result = kerr.InvalidGroupID
	case err == kerr.CoordinatorLoadInProgress:
		// Sessions start when the load is over: until then everybody is alive.
	case err != nil:
		result = err
	}
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = req.Version
	resp.ErrorCode = code(result)
	done(resp)
}

func (g *group) heartbeat(req *kmsg.HeartbeatRequest) *kerr.Error {
	m, err := g.member(req.MemberID, req.InstanceID)
	switch {
	case err != nil:
		return err
	case req.Generation != g.generation:
		return kerr.IllegalGeneration
	case g.state == stateEmpty:
		return kerr.UnknownMemberID
	}
	g.keepAlive(m)
	if g.state == statePreparing || planted.Bug == planted.Restless {
		return kerr.RebalanceInProgress
	}
	return nil
}

// Leave handles LeaveGroup (versions 0 to 5; several members from 3 on); done
// is called before it returns.
func (c *Coordinator) Leave(req *kmsg.LeaveGroupRequest, done func(*kmsg.LeaveGroupResponse)) {
	leaving := req.Members
	if req.Version < 3 {
		leaving = []kmsg.LeaveGroupRequestMember{{MemberID: req.MemberID}}
	}
	results := make([]*kerr.Error, len(leaving))
	err := c.with(req.Group, false, func(g *group, fx *effects) {
		for i, l := range leaving {
			if g == nil {
				results[i] = kerr.UnknownMemberID
			} else {
				results[i] = g.leave(fx, l)
			}
		}
	})
	if req.Group == "" {
		err = kerr.InvalidGroupID
	}
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = req.Version
	resp.ErrorCode = code(err)
	if err == nil {
		if req.Version < 3 {
			resp.ErrorCode = code(results[0])
		}
		for i, l := range leaving {
			m := kmsg.NewLeaveGroupResponseMember()
			m.MemberID, m.InstanceID, m.ErrorCode = l.MemberID, l.InstanceID, code(results[i])
			resp.Members = append(resp.Members, m)
		}
	}
	done(resp)
}

func (g *group) leave(fx *effects, l kmsg.LeaveGroupRequestMember) *kerr.Error {
	if g.consumer != nil {
		return g.leaveClassic(fx, l)
	}
	if l.MemberID == "" && l.InstanceID != nil { // an operator removes a static member
		m := g.static[*l.InstanceID]
		if m == nil {
			return kerr.UnknownMemberID
		}
		g.removeAndUpdate(fx, m)
		return nil
	}
	if _, ok := g.pending[l.MemberID]; ok && l.InstanceID == nil {
		g.dropPending(l.MemberID)
		g.tryCompleteJoin(fx)
		g.forgetIfIdle(fx)
		return nil
	}
	m, err := g.member(l.MemberID, l.InstanceID)
	if err != nil {
		return err
	}
	g.removeAndUpdate(fx, m)
	return nil
}
