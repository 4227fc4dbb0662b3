package group

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinResult is the answer to a JoinGroup before it takes the form of the
// version that asked.
type joinResult struct {
	err          *kerr.Error
	generation   int32
	protocolType string
	protocol     *string
	leader       string
	memberID     string
	skip         bool
	members      []kmsg.JoinGroupResponseMember // the leader's only
}

func joinError(memberID string, err *kerr.Error) joinResult {
	return joinResult{err: err, generation: -1, memberID: memberID}
}

// response has every field that some version knows; the encoding leaves out
// those that the asking version cannot carry.
func (r joinResult) response(version int16) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Version = version
	resp.ErrorCode = code(r.err)
	resp.Generation = r.generation
	resp.MemberID = r.memberID
	if r.err == nil {
		resp.ProtocolType = &r.protocolType
		resp.Protocol = r.protocol
		resp.LeaderID = r.leader
		resp.SkipAssignment = r.skip
		resp.Members = r.members
	}
	return resp
}

// joiner is a JoinGroup request on its way through the group.
type joiner struct {
	ci               ClientInfo
	memberID         string
	instanceID       *string
	protocolType     string
	protocols        []groupProtocol
	session, rebal   time.Duration
	knowsSkip        bool // v9: understands skip_assignment
	needsKnownMember bool // v4: must come back with an id of ours
	reply            func(joinResult)
}

// Join handles JoinGroup (versions 0 to 9). done is called exactly once: at
// once, or when the rebalance that the member waits for is over.
func (c *Coordinator) Join(ci ClientInfo, req *kmsg.JoinGroupRequest, done func(*kmsg.JoinGroupResponse)) {
	version := req.Version
	reply := func(r joinResult) { done(r.response(version)) }
	if req.Group == "" {
		reply(joinError(req.MemberID, kerr.InvalidGroupID))
		return
	}
	session := time.Duration(req.SessionTimeoutMillis) * time.Millisecond
	if session < c.cfg.MinSessionTimeout || session > c.cfg.MaxSessionTimeout {
		// Ownership comes first: a client must not take a wrong broker's word.
		err := kerr.InvalidSessionTimeout
		if _, e := c.find(req.Group, false); e != nil {
			err = e
		}
		reply(joinError(req.MemberID, err))
		return
	}
	j := &joiner{
		ci:               ClientInfo{strings.Clone(ci.ClientID), strings.Clone(ci.Host)},
		memberID:         strings.Clone(req.MemberID),
		instanceID:       cloneStr(req.InstanceID),
		protocolType:     req.ProtocolType,
		protocols:        cloneProtocols(req.Protocols),
		session:          session,
		rebal:            time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		knowsSkip:        version >= 9,
		needsKnownMember: version >= 4 && req.InstanceID == nil,
		reply:            reply,
	}
	if version == 0 || j.rebal < 0 {
		j.rebal = session // v0 has no rebalance timeout
	}
	err := c.with(req.Group, j.memberID == "", func(g *group, fx *effects) {
		if g == nil {
			reply(joinError(j.memberID, kerr.UnknownMemberID))
			return
		}
		g.handleJoin(fx, j)
	})
	if err != nil {
		reply(joinError(j.memberID, err))
	}
}

func (g *group) handleJoin(fx *effects, j *joiner) {
	refuse := func(err *kerr.Error) { fx.call(func() { j.reply(joinError(j.memberID, err)) }) }
	switch {
	case g.deleting:
		refuse(kerr.CoordinatorNotAvailable)
		return
	case !g.hasRoomFor(j):
		refuse(kerr.CoordinatorNotAvailable)
		g.forgetIfIdle(fx)
		return
	case g.consumer != nil:
		g.joinConsumer(fx, j)
		return
	case !g.admits(j.memberID):
		if m := g.members[j.memberID]; m != nil {
			g.removeAndUpdate(fx, m)
		} else {
			g.dropPending(j.memberID)
			g.tryCompleteJoin(fx)
		}
		refuse(kerr.GroupMaxSizeReached)
		return
	case !g.supportsProtocols(j.protocolType, j.protocols):
		refuse(kerr.InconsistentGroupProtocol)
		return
	}
	var err *kerr.Error
	if j.memberID == "" {
		err = g.joinNew(fx, j)
	} else {
		err = g.joinKnown(fx, j)
	}
	if err != nil {
		refuse(err)
		return
	}
	g.tryCompleteJoin(fx)
}

// admits applies group.max.size. While a rebalance is being prepared those who
// wait are counted, since others may have gone.
func (g *group) admits(memberID string) bool {
	limit := g.c.cfg.MaxSize
	m := g.members[memberID]
	switch g.state {
	case statePreparing:
		return m != nil && m.join != nil || g.waiting < limit
	case stateCompleting, stateStable:
		return m != nil || len(g.order) < limit
	}
	return true
}

// joinNew handles a join without a member id.
func (g *group) joinNew(fx *effects, j *joiner) *kerr.Error {
	id := newMemberID(j.instanceID, j.ci.ClientID)
	if j.instanceID != nil {
		if old := g.static[*j.instanceID]; old != nil {
			g.replaceStatic(fx, j, old, id)
			return nil
		}
		g.addAndRebalance(fx, j, id)
		return nil
	}
	if !j.needsKnownMember {
		g.addAndRebalance(fx, j, id)
		return nil
	}
	if len(g.pending) >= g.c.cfg.MaxPendingMembers {
		return kerr.CoordinatorNotAvailable // ids run out within a session timeout
	}
	g.pending[id] = g.after(j.session, func(fx *effects) {
		delete(g.pending, id)
		g.tryCompleteJoin(fx)
		g.forgetIfIdle(fx)
	})
	fx.call(func() { j.reply(joinError(id, kerr.MemberIDRequired)) })
	return nil
}

// forgetIfIdle drops a group that never came to anything.
func (g *group) forgetIfIdle(fx *effects) {
	if g.idle() {
		g.kill(fx)
	}
}

// joinKnown handles a join with a member id.
func (g *group) joinKnown(fx *effects, j *joiner) *kerr.Error {
	if _, ok := g.pending[j.memberID]; ok {
		if j.instanceID != nil {
			return kerr.UnknownMemberID // ids are never pending for static members
		}
		g.addAndRebalance(fx, j, j.memberID)
		return nil
	}
	m, err := g.member(j.memberID, j.instanceID)
	if err != nil {
		return err
	}
	same := m.sameProtocols(j.protocols)
	switch {
	case g.state == stateEmpty:
		return kerr.UnknownMemberID
	case g.state == stateCompleting && same:
		// It lost the answer, or did not wait for it.
		g.answerCurrent(fx, j, m, m.id == g.leader)
	case g.state == stateStable && same && m.id != g.leader:
		g.answerCurrent(fx, j, m, false)
	default:
		g.update(fx, m, j)
		g.maybePrepareRebalance(fx)
	}
	return nil
}

// answerCurrent answers a join with the generation that is.
func (g *group) answerCurrent(fx *effects, j *joiner, m *member, withMembers bool) {
	r := g.joinedResult(m, withMembers)
	fx.call(func() { j.reply(r) })
	g.keepAlive(m)
}

func (g *group) joinedResult(m *member, withMembers bool) joinResult {
	r := joinResult{
		generation:   g.generation,
		protocolType: g.protocolType,
		protocol:     g.protocol,
		leader:       g.leader,
		memberID:     m.id,
	}
	if withMembers {
		r.members = g.memberList()
	}
	return r
}

func (g *group) memberList() []kmsg.JoinGroupResponseMember {
	list := make([]kmsg.JoinGroupResponseMember, len(g.order))
	for i, m := range g.order {
		list[i] = kmsg.JoinGroupResponseMember{MemberID: m.id, InstanceID: m.instanceID, ProtocolMetadata: m.metadata(str(g.protocol))}
	}
	return list
}

// member finds a member by id, and by instance id if it gives one. A static
// member whose place was taken over by another process is fenced.
func (g *group) member(id string, instanceID *string) (*member, *kerr.Error) {
	if instanceID != nil {
		switch m := g.static[*instanceID]; {
		case m == nil:
			return nil, kerr.UnknownMemberID
		case m.id != id:
			return nil, kerr.FencedInstanceID
		}
	}
	m := g.members[id]
	if m == nil {
		return nil, kerr.UnknownMemberID
	}
	return m, nil
}

// addAndRebalance takes a new member in.
func (g *group) addAndRebalance(fx *effects, j *joiner, id string) {
	m := &member{id: id, instanceID: j.instanceID, isNew: true}
	g.fill(m, j)
	if g.state == statePreparing && g.generation == 0 {
		g.newMember = true
	}
	g.add(m, j.protocolType)
	g.setJoin(fx, m, j)
	g.expireIn(m, newMemberTimeout)
	g.maybePrepareRebalance(fx)
}

// fill takes over what a join says of the member; the member is not counted
// in g.supports at this time.
func (g *group) fill(m *member, j *joiner) {
	m.clientID, m.host = j.ci.ClientID, j.ci.Host
	m.sessionTimeout, m.rebalanceTimeout = j.session, j.rebal
	m.protocols = j.protocols
}

// update is a known member's join that waits for the next generation.
func (g *group) update(fx *effects, m *member, j *joiner) {
	g.count(m, -1)
	g.fill(m, j)
	g.count(m, +1)
	g.setJoin(fx, m, j)
}

// setJoin makes j the join that the member waits in; an earlier one, whose
// answer nobody can be waiting for any more, is answered so that it ends.
func (g *group) setJoin(fx *effects, m *member, j *joiner) {
	g.answerJoin(fx, m, joinError(m.id, kerr.RebalanceInProgress))
	m.join = j.reply
	g.waiting++
}

// replaceStatic lets the process that now has the instance id take the place
// of the one that had it: same assignment, new member id. In Stable, and if
// the vote stays the same, there is no rebalance.
func (g *group) replaceStatic(fx *effects, j *joiner, m *member, id string) {
	oldID, oldLeader := m.id, g.leader
	before := struct {
		protocols      []groupProtocol
		ci             ClientInfo
		session, rebal time.Duration
	}{m.protocols, ClientInfo{m.clientID, m.host}, m.sessionTimeout, m.rebalanceTimeout}

	g.answerJoin(fx, m, joinError(oldID, kerr.FencedInstanceID))
	g.answerSync(fx, m, syncResult{err: kerr.FencedInstanceID})
	g.rename(m, id)
	g.count(m, -1)
	g.fill(m, j)
	g.count(m, +1)
	if m.isNew {
		g.expireIn(m, newMemberTimeout)
	} else {
		g.keepAlive(m)
	}

	if g.state != stateStable || g.selectProtocol() != str(g.protocol) {
		g.setJoin(fx, m, j)
		g.maybePrepareRebalance(fx)
		return
	}
	generation := g.generation
	g.storeGroup(fx, func(fx *effects, err error) {
		if err != nil {
			g.c.cfg.Logger.Warn("static member's new id not stored", "group", g.id, "err", err)
			if g.members[id] == m && g.generation == generation && g.state == stateStable {
				g.rename(m, oldID)
				g.count(m, -1)
				m.protocols = before.protocols
				m.clientID, m.host = before.ci.ClientID, before.ci.Host
				m.sessionTimeout, m.rebalanceTimeout = before.session, before.rebal
				g.count(m, +1)
			}
			fx.call(func() { j.reply(joinError(id, storeError(err))) })
			return
		}
		switch {
		case g.members[id] != m:
			fx.call(func() { j.reply(joinError(id, kerr.FencedInstanceID)) })
			return
		case g.generation != generation || g.state != stateStable:
			// Things moved on meanwhile; it must join again.
			fx.call(func() { j.reply(joinError(id, kerr.RebalanceInProgress)) })
			return
		}
		r := g.joinedResult(m, false)
		if g.leader == id {
			if j.knowsSkip {
				r.skip, r.members = true, g.memberList()
			} else {
				r.leader = oldLeader // an older client would assign anew if it thought itself the leader
			}
		}
		fx.call(func() { j.reply(r) })
		g.keepAlive(m)
	})
}

// rename gives the member another id.
func (g *group) rename(m *member, id string) {
	delete(g.members, m.id)
	if _, ok := g.unsynced[m.id]; ok {
		delete(g.unsynced, m.id)
		g.unsynced[id] = struct{}{}
	}
	if g.leader == m.id {
		g.leader = id
	}
	m.id = id
	g.members[id] = m
}
