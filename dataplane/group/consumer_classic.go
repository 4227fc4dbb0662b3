package group

import (
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/group/assignor"
)

// While a group goes over from one protocol to the other, some of its members speak the
// classic one. In a consumer group their JoinGroup is what a heartbeat is for the others:
// it says what they subscribe to and have, and its generation is the member's epoch.
// SyncGroup fetches what the member may use, and Heartbeat says REBALANCE_IN_PROGRESS when
// the member has to join again to get or to give up something. Nobody is a leader: the
// broker assigns.

// classicSide is what a member has that speaks the classic protocol in a consumer group.
type classicSide struct {
	session   time.Duration
	protocols []groupProtocol // never empty; the first one is in use
}

func (c *classicSide) equal(o *classicSide) bool {
	if c == nil || o == nil {
		return c == o
	}
	return c.session == o.session && (&member{protocols: c.protocols}).sameProtocols(o.protocols)
}

// joinConsumer handles a JoinGroup to a consumer group.
func (g *group) joinConsumer(fx *effects, j *joiner) {
	refuse := func(err *kerr.Error) { fx.call(func() { j.reply(joinError(j.memberID, err)) }) }
	cg := g.consumer
	if len(cg.members) == 0 {
		if j.memberID != "" {
			refuse(kerr.UnknownMemberID)
			return
		}
		g.leaveConsumerKind(fx, func(fx *effects, err error) {
			if err != nil || g.state == stateDead {
				refuse := joinError("", kerr.CoordinatorNotAvailable)
				fx.call(func() { j.reply(refuse) })
				return
			}
			g.handleJoin(fx, j)
		})
		return
	}
	sub, err := g.mayJoinConsumer(j)
	if err != nil {
		refuse(err)
		return
	}
	if j.memberID == "" && j.needsKnownMember {
		id := newMemberID(nil, j.ci.ClientID)
		fx.call(func() { j.reply(joinError(id, kerr.MemberIDRequired)) })
		return
	}
	old, err := cg.classicComer(j)
	if err != nil {
		refuse(err)
		return
	}
	if j.memberID == "" {
		j.memberID = newMemberID(j.instanceID, j.ci.ClientID)
	}

	ch := cg.begin()
	was := &consumerMember{id: j.memberID}
	switch {
	case old != nil && old.id == j.memberID:
		was = old
	case old != nil:
		was = g.replaceMember(ch, old, j.memberID)
	}
	m := *was
	m.instance, m.rebalanceTimeout = j.instanceID, j.rebal
	m.clientID, m.host = j.ci.ClientID, j.ci.Host
	m.rack, m.assignor, m.regex = sub.Rack, "", ""
	m.names = distinctSorted(cloned(sub.Topics))
	m.classic = &classicSide{j.session, j.protocols}
	g.setMember(ch, &m)
	g.dropUnmatched(ch)
	subscribed := !slices.Equal(m.names, was.names) || was.regex != ""
	g.bump(ch, subscribed || cg.epoch == 0)
	g.aim(ch, subscribed && old != nil)
	n := g.reconcile(ch, m.id, g.ownedOf(sub))
	g.keepMember(m.id)
	cg.afterStored(fx, func(fx *effects, err error) {
		if err != nil {
			fx.call(func() { j.reply(joinError(j.memberID, storeError(err))) })
			return
		}
		if old != nil && old.classic == nil && g.downgrade(fx, "", nil) {
			g.handleJoin(fx, j) // it was the last that spoke the other protocol
			return
		}
		g.joinedConsumer(n.id)
		r := joinResult{generation: n.epoch, protocolType: consumerProtocolType, protocol: &n.classic.protocols[0].name, memberID: n.id}
		fx.call(func() { j.reply(r) })
	})
	g.flush(fx)
}

// mayJoinConsumer says why a classic member may not join, or reads its subscription.
func (g *group) mayJoinConsumer(j *joiner) (*kmsg.ConsumerMemberMetadata, *kerr.Error) {
	cg := g.consumer
	if len(cg.members) >= g.c.cfg.ConsumerMaxSize && cg.members[j.memberID] == nil {
		return nil, kerr.GroupMaxSizeReached
	}
	if g.c.cfg.Migration == MigrateDisabled || j.protocolType != consumerProtocolType || !cg.supportsClassic(j) {
		return nil, kerr.InconsistentGroupProtocol
	}
	sub := new(kmsg.ConsumerMemberMetadata)
	if err := sub.ReadFrom(j.protocols[0].metadata); err != nil {
		return nil, kerr.InconsistentGroupProtocol
	}
	sub.Rack = cloneStr(sub.Rack)
	return sub, nil
}

// supportsClassic says whether some protocol of the joiner is known to all other classic
// members.
func (cg *consumerGroup) supportsClassic(j *joiner) bool {
	return slices.ContainsFunc(j.protocols, func(p groupProtocol) bool {
		for _, m := range cg.members {
			if m.classic != nil && m.id != j.memberID && !slices.ContainsFunc(m.classic.protocols, func(o groupProtocol) bool { return o.name == p.name }) {
				return false
			}
		}
		return true
	})
}

// classicComer finds the member that a JoinGroup comes from: nil for a new one, and for a
// static member the one whose place it takes.
func (cg *consumerGroup) classicComer(j *joiner) (*consumerMember, *kerr.Error) {
	if j.instanceID == nil {
		return cg.members[j.memberID], nil
	}
	m := cg.members[cg.static[*j.instanceID]]
	switch {
	case j.memberID == "":
		return m, nil
	case m == nil:
		return nil, kerr.UnknownMemberID
	case m.id != j.memberID:
		return nil, kerr.FencedInstanceID
	}
	return m, nil
}

// ownedOf is what a subscription says that its member has. One that says nothing has
// nothing: it gave all up before it joined.
func (g *group) ownedOf(sub *kmsg.ConsumerMemberMetadata) assignor.Assignment {
	owned := make(assignor.Assignment)
	topics := g.c.cfg.Topics()
	for _, o := range sub.OwnedPartitions {
		if topics == nil {
			break
		}
		if id, _, ok := topics.Topic(o.Topic); ok {
			owned[id] = append(owned[id], o.Partitions...)
		}
	}
	return owned
}

// joinedConsumer gives a classic member that has its join's answer its rebalance timeout
// to come for its assignment.
func (g *group) joinedConsumer(id string) {
	m := g.consumer.members[id]
	if m == nil || m.classic == nil {
		return
	}
	k := g.consumer.clock(id)
	k.join.cancel()
	k.sync.cancel()
	k.sync = g.after(m.rebalanceTimeout, func(fx *effects) { g.classicLate(fx, id, k, "it did not sync in time") })
}

// mustRejoin gives it as long to join again, from the first time that it is told.
func (g *group) mustRejoin(m *consumerMember) *kerr.Error {
	k, id := g.consumer.clock(m.id), m.id
	if k.join == nil || k.join.over {
		k.join = g.after(m.rebalanceTimeout, func(fx *effects) { g.classicLate(fx, id, k, "it did not join again in time") })
	}
	return kerr.RebalanceInProgress
}

func (g *group) classicLate(fx *effects, id string, k *clock, why string) {
	if g.state != stateDead && g.consumer != nil && g.consumer.clocks[id] == k {
		g.fence(fx, id, why)
	}
}

// classicMember finds the classic member that a request comes from.
func (g *group) classicMember(id string, instance *string, generation int32) (*consumerMember, *kerr.Error) {
	m, err := g.consumer.speaker(id, instance)
	switch {
	case err != nil:
		return nil, err
	case m.classic == nil:
		return nil, kerr.UnknownMemberID
	case generation != m.epoch:
		return nil, kerr.IllegalGeneration
	}
	return m, nil
}

// syncConsumer handles a SyncGroup to a consumer group.
func (g *group) syncConsumer(fx *effects, req *kmsg.SyncGroupRequest, reply func(syncResult)) *kerr.Error {
	m, err := g.classicMember(req.MemberID, req.InstanceID, req.Generation)
	if err != nil {
		return err
	}
	name := m.classic.protocols[0].name
	switch {
	case req.ProtocolType != nil && *req.ProtocolType != consumerProtocolType, req.Protocol != nil && *req.Protocol != name:
		return kerr.InconsistentGroupProtocol
	case m.epoch < g.consumer.assigned && m.state != memberUnrevoked:
		return g.mustRejoin(m)
	}
	r := syncResult{protocolType: consumerProtocolType, protocol: &name, assignment: g.classicAssignment(m)}
	g.consumer.afterStored(fx, func(fx *effects, err error) {
		if err != nil {
			r = syncResult{err: storeError(err)}
		} else if g.consumer != nil {
			if k := g.consumer.clocks[m.id]; k != nil {
				k.sync.cancel()
			}
			g.keepMember(m.id)
		}
		fx.call(func() { reply(r) })
	})
	return nil
}

// classicAssignment is what the member may use, in the classic protocol's form.
func (g *group) classicAssignment(m *consumerMember) []byte {
	var a kmsg.ConsumerMemberAssignment
	if p := m.classic.protocols[0].metadata; len(p) >= 2 {
		a.Version = int16(p[0])<<8 | int16(p[1])
	}
	if topics := g.c.cfg.Topics(); topics != nil {
		for _, tp := range named(m.has.partitions(), topics) {
			a.Topics = append(a.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: tp.Topic, Partitions: tp.Partitions})
		}
	}
	return a.AppendTo(nil)
}

// heartbeatConsumer handles a Heartbeat to a consumer group.
func (g *group) heartbeatConsumer(fx *effects, req *kmsg.HeartbeatRequest) *kerr.Error {
	cg := g.consumer
	m, err := g.classicMember(req.MemberID, req.InstanceID, req.Generation)
	if err != nil {
		return err
	}
	g.keepMember(m.id)
	ch := cg.begin()
	g.bump(ch, false)
	g.aim(ch, false)
	g.flush(fx)
	if m.epoch < cg.assigned || m.state == memberUnrevoked || m.state == memberUnreleased && !cg.waits(m) {
		return g.mustRejoin(m)
	}
	return nil
}

// waits says whether somebody else still has a partition that the member is to have.
func (cg *consumerGroup) waits(m *consumerMember) bool {
	free := cg.freeFor(m.id)
	for t, ps := range cg.target[m.id] {
		for _, p := range ps {
			if !m.has.has(t, p) && !free(t, p) {
				return true
			}
		}
	}
	return false
}

// leaveClassic handles a LeaveGroup to a consumer group: of a classic member, or of any that an administrator removes.
func (g *group) leaveClassic(fx *effects, l kmsg.LeaveGroupRequestMember) *kerr.Error {
	cg := g.consumer
	m := cg.members[l.MemberID]
	if l.InstanceID != nil {
		m = cg.members[cg.static[*l.InstanceID]]
		if m != nil && l.MemberID != "" && m.id != l.MemberID {
			return kerr.FencedInstanceID
		}
	}
	if m == nil {
		return kerr.UnknownMemberID
	}
	if !g.maybeDowngrade(fx, m.id, nil) {
		g.removeMembers(m.id)
		g.flush(fx)
	}
	return nil
}

// mayBecomeConsumer says why a member of the consumer protocol may not join the group,
// which is a classic one.
func (g *group) mayBecomeConsumer(b *beat) *refusal {
	switch {
	case b.epoch != epochJoining:
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", g.id)
	case g.state == stateEmpty:
		return nil
	case !g.c.cfg.Migration.upgrade():
		return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because online upgrade is disabled.", g.id)
	case g.protocolType != consumerProtocolType:
		return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because the group does not use the consumer embedded protocol.", g.id)
	case len(g.order) > g.c.cfg.ConsumerMaxSize:
		return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because the group size exceeds the consumer group maximum size.", g.id)
	}
	for _, m := range g.order {
		_, a, ok := g.embedded(m)
		if !ok {
			return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because the embedded consumer protocol is malformed.", g.id)
		}
		if len(a.UserData) > 0 { // what an assignor of the clients keeps there would be lost
			return refuse(kerr.GroupIDNotFound, "Cannot upgrade classic group %s to consumer group because an unsupported custom assignor is in use.", g.id)
		}
	}
	return nil
}

// embedded reads subscription and assignment of a member of the classic group.
func (g *group) embedded(m *member) (sub kmsg.ConsumerMemberMetadata, a kmsg.ConsumerMemberAssignment, ok bool) {
	metadata := m.metadata(str(g.protocol))
	if metadata == nil && len(m.protocols) > 0 {
		metadata = m.protocols[0].metadata
	}
	if sub.ReadFrom(metadata) != nil {
		return sub, a, false
	}
	return sub, a, len(m.assignment) == 0 || a.ReadFrom(m.assignment) == nil
}

// becomeConsumer makes the classic group a consumer group. Its members keep what they were
// assigned and go on in the classic protocol; who waits for a rebalance is told to join
// again. What the log has of the group as a classic one goes with the first batch.
//
// This is not taken back if it cannot be stored: another broker may load the classic group
// then, whose members are in the same generation.
func (g *group) becomeConsumer(fx *effects) {
	for id := range g.pending {
		g.dropPending(id)
	}
	g.rebalance.cancel()
	g.syncTimer.cancel()
	clear(g.unsynced)
	cg := newConsumerGroup()
	g.consumer = cg
	if len(g.order) == 0 {
		return
	}
	g.c.cfg.Logger.Info("classic group becomes a consumer group", "group", g.id, "generation", g.generation, "members", len(g.order))
	ch := cg.begin()
	topics := g.c.cfg.Topics()
	for _, m := range slices.Clone(g.order) {
		sub, a, _ := g.embedded(m)
		g.answerJoin(fx, m, joinError(m.id, kerr.RebalanceInProgress))
		g.answerSync(fx, m, syncResult{err: kerr.RebalanceInProgress})
		n := &consumerMember{
			id: m.id, instance: m.instanceID, rack: cloneStr(sub.Rack), clientID: m.clientID, host: m.host,
			rebalanceTimeout: m.rebalanceTimeout, names: distinctSorted(cloned(sub.Topics)),
			classic: &classicSide{m.sessionTimeout, m.protocols},
			epoch:   g.generation, previous: g.generation,
		}
		for _, t := range a.Topics {
			if topics == nil {
				break
			}
			id, count, ok := topics.Topic(t.Topic)
			for _, p := range t.Partitions {
				if ok && p >= 0 && p < count && cg.owner[id][p] == "" { // else its leader gave it to two
					n.has.add(id, p, g.generation)
				}
			}
		}
		g.setMember(ch, n)
		g.setTarget(ch, n.id, n.has.partitions())
		g.remove(m)
	}
	g.setEpoch(ch, g.generation, 0)
	g.setAssigned(ch, g.generation, time.Time{})
	ch.undo = nil
	g.generation, g.protocol, g.leader, g.newMember, g.initialDelay = 0, nil, "", false, false
	g.noteTopics()
	g.enter(stateEmpty)
	g.watchAll()
}

// maybeDowngrade makes the group a classic one if the member that leaves is the last of
// the consumer protocol; then is called when that is stored.
func (g *group) maybeDowngrade(fx *effects, leaving string, then func(*effects, error)) bool {
	return g.consumer.members[leaving].classic == nil && g.downgrade(fx, leaving, then)
}

// downgrade makes the group a classic one, without the member that leaves, if all others
// speak the classic protocol and the policy allows it. They keep what they have until they
// have joined again. As becomeConsumer, it is not taken back; what the log has of the
// consumer group goes with the classic group's record.
func (g *group) downgrade(fx *effects, leaving string, then func(*effects, error)) bool {
	cg := g.consumer
	left := 0
	for id, m := range cg.members {
		if id == leaving {
			continue
		}
		if m.classic == nil {
			return false
		}
		left++
	}
	if left == 0 || left > g.c.cfg.MaxSize || !g.c.cfg.Migration.downgrade() {
		return false
	}
	g.c.cfg.Logger.Info("consumer group becomes a classic group", "group", g.id, "epoch", cg.epoch, "members", left)
	g.leftover = g.consumerKeys()
	for _, ch := range cg.changes { // what they rest on is not what it was
		for _, f := range ch.done {
			f(fx, kerr.NotEnoughReplicas)
		}
	}
	cg.changes = nil
	cg.stopClocks()
	for _, cm := range cg.sortedMembers() {
		if cm.id == leaving {
			continue
		}
		m := &member{
			id: cm.id, instanceID: cm.instance, clientID: cm.clientID, host: cm.host,
			sessionTimeout: cm.classic.session, rebalanceTimeout: cm.rebalanceTimeout,
			protocols: cm.classic.protocols, assignment: g.classicAssignment(cm),
		}
		g.add(m, consumerProtocolType)
		g.keepAlive(m)
	}
	g.consumer = nil
	g.generation = cg.epoch
	g.protocol = new(g.selectProtocol())
	g.noteTopics()
	g.enter(stateStable)
	g.storeGroup(fx, func(fx *effects, err error) {
		if err != nil {
			g.c.cfg.Logger.Warn("classic group not stored", "group", g.id, "err", err)
		}
		if then != nil {
			then(fx, err)
		}
	})
	g.prepareRebalance(fx)
	return true
}

// replaceMember puts another process in the place of a static member, with all that it
// has.
func (g *group) replaceMember(ch *change, old *consumerMember, id string) *consumerMember {
	n := *old
	n.id, n.epoch, n.previous, n.state, n.revoking = id, 0, 0, memberStable, nil
	target := g.consumer.target[old.id]
	g.dropMember(ch, old.id)
	g.setMember(ch, &n)
	g.setTarget(ch, id, target)
	return &n
}

func cloned(ss []string) []string {
	out := make([]string, len(ss))
	for i, s := range ss {
		out[i] = strings.Clone(s)
	}
	return out
}
