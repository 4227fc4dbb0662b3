package group

import (
	"time"
)

// clock is a member's clocks. It is not part of the member: it stays when the member is
// replaced by another state of itself.
type clock struct {
	deadline time.Time // when the session is over
	session  *timer
	armed    time.Time // when session fires
	rebal    *timer    // a member that has to give partitions up has done so in time
	join     *timer    // a classic member has to join again in time
	sync     *timer    // and to fetch its assignment
}

func (k *clock) stop() {
	if k == nil {
		return
	}
	k.session.cancel()
	k.rebal.cancel()
	k.join.cancel()
	k.sync.cancel()
}

func (cg *consumerGroup) clock(id string) *clock {
	k := cg.clocks[id]
	if k == nil {
		k = new(clock)
		cg.clocks[id] = k
	}
	return k
}

// sessionTimeout is how long the member may be silent.
func (g *group) sessionTimeout(m *consumerMember) time.Duration {
	if m.classic != nil {
		return m.classic.session
	}
	return g.settings().SessionTimeout
}

// keepMember starts the member's session anew. As for classic members, a heartbeat is only
// a new deadline.
func (g *group) keepMember(id string) {
	m := g.consumer.members[id]
	if m == nil {
		return
	}
	k := g.consumer.clock(id)
	d := g.sessionTimeout(m)
	k.deadline = time.Now().Add(d)
	if k.session != nil && !k.session.over && !k.armed.After(k.deadline) {
		return
	}
	k.session.cancel()
	k.armed = k.deadline
	k.session = g.after(d, func(fx *effects) { g.memberSilent(fx, id, k) })
}

func (g *group) memberSilent(fx *effects, id string, k *clock) {
	if g.state == stateDead || g.consumer == nil || g.consumer.clocks[id] != k {
		return
	}
	if left := time.Until(k.deadline); left > 0 {
		k.armed = k.deadline
		k.session = g.after(left, func(fx *effects) { g.memberSilent(fx, id, k) })
		return
	}
	g.fence(fx, id, "its session expired")
}

// watchRevocation gives a member that has to give partitions up its rebalance timeout for
// it, from the time at which it is told.
func (g *group) watchRevocation(m *consumerMember) {
	k := g.consumer.clock(m.id)
	k.rebal.cancel()
	k.rebal = nil
	if m.state != memberUnrevoked || m.classic != nil {
		return
	}
	id, epoch := m.id, m.epoch
	k.rebal = g.after(m.rebalanceTimeout, func(fx *effects) {
		if g.state == stateDead || g.consumer == nil {
			return
		}
		if now := g.consumer.members[id]; now != nil && now.epoch == epoch && now.state == memberUnrevoked {
			g.fence(fx, id, "it did not give up partitions within its rebalance timeout")
		}
	})
}

// watchAll gives every member the clocks it needs and has not got: after the group was
// loaded, or decisions were taken back.
func (g *group) watchAll() {
	cg := g.consumer
	for id, k := range cg.clocks {
		if cg.members[id] == nil {
			k.stop()
			delete(cg.clocks, id)
		}
	}
	for id, m := range cg.members {
		k := cg.clock(id)
		if k.session == nil || k.session.over {
			g.keepMember(id)
		}
		if m.state == memberUnrevoked && (k.rebal == nil || k.rebal.over) {
			g.watchRevocation(m)
		}
	}
}

// fence removes a member that does not do its part.
func (g *group) fence(fx *effects, id, why string) {
	if g.deleting || g.consumer.members[id] == nil {
		return
	}
	g.c.cfg.Logger.Info("consumer group member fenced", "group", g.id, "member", id, "because", why)
	if g.maybeDowngrade(fx, id, func(*effects, error) {}) {
		return
	}
	g.removeMembers(id)
	g.flush(fx)
}

// removeMembers takes the members out and begins a new epoch without them.
func (g *group) removeMembers(ids ...string) *change {
	ch := g.consumer.begin()
	for _, id := range ids {
		g.dropMember(ch, id)
	}
	g.dropUnmatched(ch)
	g.bump(ch, true)
	return ch
}

// stopClocks ends all clocks of the group.
func (cg *consumerGroup) stopClocks() {
	for _, k := range cg.clocks {
		k.stop()
	}
	clear(cg.clocks)
	cg.retarget.cancel()
}
