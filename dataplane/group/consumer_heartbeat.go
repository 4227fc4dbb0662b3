package group

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/group/assignor"
)

// refusal is an error for a client, with a text that says more.
type refusal struct {
	err  *kerr.Error
	text string
}

func refuse(err *kerr.Error, format string, args ...any) *refusal {
	return &refusal{err, fmt.Sprintf(format, args...)}
}

// beat is a ConsumerGroupHeartbeat on its way through its group. Nothing in it aliases
// the request.
type beat struct {
	ci        ClientInfo
	mayTopic  func(topic string) bool
	group     string
	member    string
	epoch     int32
	instance  *string
	rack      *string
	rebalance time.Duration // negative: as before
	names     []string      // nil: as before
	regex     *string
	assignor  *string
	owned     assignor.Assignment // nil: not said
	version   int16

	found *resolution // what the expression matches, where that had to be looked up
	done  func(*kmsg.ConsumerGroupHeartbeatResponse)
}

func (b *beat) reply(resp *kmsg.ConsumerGroupHeartbeatResponse) {
	resp.Version = b.version
	b.done(resp)
}

func (b *beat) refuse(r *refusal) {
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.ErrorCode = r.err.Code
	if r.text != "" {
		resp.ErrorMessage = &r.text
	}
	b.reply(resp)
}

// full says whether the member tells all of itself: it wants to be told all in return.
func (b *beat) full() bool {
	return b.epoch == epochJoining || b.rebalance >= 0 && (b.names != nil || b.regex != nil) && b.owned != nil
}

// ConsumerHeartbeat handles ConsumerGroupHeartbeat (KIP-848; versions 0 and 1). done is
// called exactly once, when what it answers is stored. mayDescribe says whether the caller
// may Describe a topic: a regular expression matches only those; it may be called later.
func (c *Coordinator) ConsumerHeartbeat(ci ClientInfo, mayDescribe func(topic string) bool,
	req *kmsg.ConsumerGroupHeartbeatRequest, done func(*kmsg.ConsumerGroupHeartbeatResponse)) {
	b := &beat{
		ci: ClientInfo{strings.Clone(ci.ClientID), strings.Clone(ci.Host)}, mayTopic: mayDescribe,
		group: req.Group, member: strings.Clone(req.MemberID), epoch: req.MemberEpoch,
		instance: cloneStr(req.InstanceID), rack: cloneStr(req.RackID),
		rebalance: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		regex:     cloneStr(req.SubscribedTopicRegex), assignor: cloneStr(req.ServerAssignor),
		version: req.Version, done: done,
	}
	if req.SubscribedTopicNames != nil {
		b.names = []string{}
		for _, n := range req.SubscribedTopicNames {
			b.names = append(b.names, strings.Clone(n))
		}
		slices.Sort(b.names)
		b.names = slices.Compact(b.names)
	}
	if req.Topics != nil {
		b.owned = make(assignor.Assignment)
		for _, t := range req.Topics {
			b.owned[t.TopicID] = append(b.owned[t.TopicID], t.Partitions...)
		}
		for id, ps := range b.owned {
			if slices.Sort(ps); len(ps) == 0 {
				delete(b.owned, id)
			}
		}
	}
	if r := c.checkBeat(b); r != nil {
		b.refuse(r)
		return
	}
	c.beat(b)
}

// checkBeat checks what can be checked without the group.
func (c *Coordinator) checkBeat(b *beat) *refusal {
	blank := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	switch {
	case !c.cfg.ConsumerProtocol:
		return refuse(kerr.UnsupportedVersion, "the consumer protocol is not among group.coordinator.rebalance.protocols")
	case (b.version >= 1 || b.epoch > 0 || b.epoch == epochLeaving || b.epoch == epochStaticAway) && blank(&b.member):
		return refuse(kerr.InvalidRequest, "MemberId can't be empty.")
	case blank(&b.group):
		return refuse(kerr.InvalidRequest, "GroupId can't be empty.")
	case blank(b.instance):
		return refuse(kerr.InvalidRequest, "InstanceId can't be empty.")
	case blank(b.rack):
		return refuse(kerr.InvalidRequest, "RackId can't be empty.")
	case tooLong(b.group) || tooLong(b.member) || b.regex != nil && tooLong(*b.regex):
		return refuse(kerr.InvalidRequest, "a group id, a member id and an expression have at most 32767 bytes")
	case b.epoch < epochStaticAway:
		return refuse(kerr.InvalidRequest, "MemberEpoch is %d, but must be greater than or equal to -2.", b.epoch)
	case b.epoch == epochStaticAway && b.instance == nil:
		return refuse(kerr.InvalidRequest, "InstanceId can't be null.")
	case b.epoch == epochJoining && b.rebalance == -time.Millisecond:
		return refuse(kerr.InvalidRequest, "RebalanceTimeoutMs must be provided in first request.")
	case b.epoch == epochJoining && (b.owned == nil || len(b.owned) > 0):
		return refuse(kerr.InvalidRequest, "TopicPartitions must be empty when (re-)joining.")
	case b.epoch == epochJoining && b.names == nil && b.regex == nil:
		return refuse(kerr.InvalidRequest, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case b.assignor != nil && !slices.Contains(c.cfg.ConsumerAssignors, *b.assignor):
		return refuse(kerr.UnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *b.assignor, strings.Join(c.cfg.ConsumerAssignors, ", "))
	}
	return nil
}

// beat brings the heartbeat to its group.
func (c *Coordinator) beat(b *beat) {
	err := c.with(b.group, b.epoch == epochJoining, func(g *group, fx *effects) {
		if g == nil {
			b.refuse(refuse(kerr.GroupIDNotFound, "Group %s not found.", b.group))
			return
		}
		if r := g.handleBeat(fx, b); r != nil {
			g.forgetIfIdle(fx)
			fx.call(func() { b.refuse(r) })
		}
	})
	if err != nil {
		b.refuse(&refusal{err: err})
	}
}

func (g *group) handleBeat(fx *effects, b *beat) *refusal {
	switch {
	case g.deleting:
		return refuse(kerr.CoordinatorNotAvailable, "")
	case b.epoch < epochJoining:
		return g.leaveConsumer(fx, b)
	}
	cg := g.consumer
	if cg == nil {
		if r := g.mayBecomeConsumer(b); r != nil {
			return r
		}
	} else if n := g.c.cfg.ConsumerMaxSize; len(cg.members) >= n && cg.members[b.member] == nil {
		return refuse(kerr.GroupMaxSizeReached, "The consumer group has reached its maximum capacity of %d members.", n)
	}
	if !g.hasRoomForBeat(b) {
		return refuse(kerr.CoordinatorNotAvailable, "The groups of this broker hold as much memory as they may.")
	}
	if g.mustResolve(b) { // before anything is changed: it comes back
		fx.call(func() { g.c.resolveLater(b) })
		return nil
	}
	if cg == nil {
		g.becomeConsumer(fx)
		cg = g.consumer
	}
	if b.member == "" {
		b.member = uuid.NewString()
	}
	old, r := cg.comer(g.id, b)
	if r != nil {
		return r
	}

	ch := cg.begin()
	was := &consumerMember{id: b.member, rebalanceTimeout: -time.Millisecond}
	switch {
	case old == nil:
	case old.id == b.member && old.epoch != epochStaticAway:
		was = old
	default: // a static member is back, maybe as another process
		was = g.replaceMember(ch, old, b.member)
	}
	m := *was
	b.update(&m)
	subscribed := !slices.Equal(m.names, was.names) || m.regex != was.regex
	g.setMember(ch, &m)
	if b.found != nil && cg.matched[b.found.regex] > 0 {
		g.setRegex(ch, b.found.regex, b.found.result)
	}
	g.dropUnmatched(ch)
	g.bump(ch, subscribed || cg.epoch == 0)
	g.aim(ch, subscribed && old != nil)
	n := g.reconcile(ch, m.id, b.owned)
	g.keepMember(m.id)
	g.maybeRefresh(fx, b)

	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = &n.id, n.epoch
	resp.HeartbeatIntervalMillis = int32(g.settings().HeartbeatInterval.Milliseconds())
	// One that says that it has other partitions may have lost the answer that told it.
	if b.full() || old == nil || !n.has.samePartitions(was.has) || b.owned != nil && !b.owned.Equal(n.has.partitions()) {
		resp.Assignment = assignmentOf(n.has)
	}
	cg.afterStored(fx, func(fx *effects, err error) {
		fx.call(func() { b.answer(resp, err) })
	})
	g.flush(fx)
	return nil
}

// answer gives the reply, or the error for which what it rests on was taken back.
func (b *beat) answer(resp *kmsg.ConsumerGroupHeartbeatResponse, err error) {
	if err != nil {
		b.refuse(&refusal{err: deleteError(err)})
		return
	}
	b.reply(resp)
}

// update takes over what the heartbeat says of its member.
func (b *beat) update(m *consumerMember) {
	if b.instance != nil {
		m.instance = b.instance
	}
	if b.rack != nil {
		m.rack = b.rack
	}
	if b.rebalance >= 0 {
		m.rebalanceTimeout = b.rebalance
	}
	if b.names != nil {
		m.names = b.names
	}
	if b.regex != nil {
		m.regex = *b.regex
	}
	if b.assignor != nil {
		m.assignor = *b.assignor
	}
	m.clientID, m.host, m.classic = b.ci.ClientID, b.ci.Host, nil
}

// comer finds the member that the heartbeat comes from: nil for a new one, and for a
// static member that is back the one whose place it takes.
func (cg *consumerGroup) comer(group string, b *beat) (*consumerMember, *refusal) {
	m := cg.members[b.member]
	if b.instance != nil {
		m = cg.members[cg.static[*b.instance]]
		switch {
		case m == nil && b.epoch == epochJoining:
			return cg.members[b.member], nil
		case m == nil:
			return nil, refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *b.instance)
		case b.epoch != epochJoining && m.id != b.member:
			return nil, refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", b.member, *b.instance, m.id)
		case b.epoch == epochJoining && m.id != b.member:
			if m.epoch != epochStaticAway && m.classic == nil {
				return nil, refuse(kerr.UnreleasedInstanceID, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", b.member, *b.instance, m.id)
			}
			return m, nil
		}
		if b.epoch == epochJoining && m.epoch == epochStaticAway {
			return m, nil
		}
	}
	if m == nil {
		if b.epoch == epochJoining {
			return nil, nil
		}
		return nil, refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", b.member, group)
	}
	const again = "The member must abandon all its partitions and rejoin."
	switch {
	case b.epoch > m.epoch:
		return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). %s", b.epoch, m.epoch, again)
	case b.epoch == epochJoining: // again: it has nothing any more, or lost the answer
	case b.epoch < m.epoch && (b.epoch != m.previous || b.owned == nil || !m.has.covers(b.owned)):
		// One that comes with the epoch before lost an answer.
		return nil, refuse(kerr.FencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). %s", b.epoch, m.epoch, again)
	}
	return m, nil
}

func assignmentOf(h holding) *kmsg.ConsumerGroupHeartbeatResponseAssignment {
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	a.Topics = []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic{}
	ps := h.partitions()
	for _, t := range sortedIDs(ps) {
		at := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		at.TopicID, at.Partitions = t, ps[t]
		a.Topics = append(a.Topics, at)
	}
	return &a
}

// leaveConsumer handles a heartbeat by which a member leaves.
func (g *group) leaveConsumer(fx *effects, b *beat) *refusal {
	cg := g.consumer
	if cg == nil {
		return refuse(kerr.GroupIDNotFound, "Group %s is not a consumer group.", g.id)
	}
	m := cg.members[b.member]
	if b.instance != nil {
		m = cg.members[cg.static[*b.instance]]
		switch {
		case m == nil:
			return refuse(kerr.UnknownMemberID, "Instance id %s is unknown.", *b.instance)
		case m.id != b.member:
			return refuse(kerr.FencedInstanceID, "Static member %s with instance id %s was fenced by member %s.", b.member, *b.instance, m.id)
		}
	}
	if m == nil {
		return refuse(kerr.UnknownMemberID, "Member %s is not a member of group %s.", b.member, g.id)
	}
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	resp.MemberID, resp.MemberEpoch = &m.id, b.epoch
	answer := func(fx *effects, err error) { fx.call(func() { b.answer(resp, err) }) }
	if b.epoch == epochStaticAway {
		n := *m
		n.epoch, n.revoking, n.state = epochStaticAway, nil, memberStable
		g.setMember(cg.begin(), &n)
		g.watchRevocation(&n)
	} else {
		if g.maybeDowngrade(fx, m.id, answer) {
			return nil
		}
		g.removeMembers(m.id)
	}
	cg.afterStored(fx, answer)
	g.flush(fx)
	return nil
}

// loseConsumer gives the group up: another broker leads it now.
func (g *group) loseConsumer(fx *effects) {
	cg := g.consumer
	if cg == nil {
		return
	}
	for _, ch := range cg.changes {
		for _, f := range ch.done {
			f(fx, kerr.NotLeaderForPartition)
		}
	}
	cg.changes = nil
	cg.stopClocks()
}

func distinctSorted(lists ...[]string) []string {
	set := make(map[string]struct{})
	for _, l := range lists {
		for _, s := range l {
			set[s] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(set))
}
