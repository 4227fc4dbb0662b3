package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/planted"
)

// maybePrepareRebalance starts a rebalance unless one is being prepared.
func (g *group) maybePrepareRebalance(fx *effects) {
	if g.state != statePreparing && g.state != stateDead {
		g.prepareRebalance(fx)
	}
}

// prepareRebalance waits for all members to join again, for as long as the
// slowest of them may take.
func (g *group) prepareRebalance(fx *effects) {
	if g.state == stateCompleting {
		g.failAssignment(fx, kerr.RebalanceInProgress)
	}
	g.syncTimer.cancel()
	clear(g.unsynced)
	delay := g.c.cfg.InitialRebalanceDelay
	fromEmpty := g.state == stateEmpty
	g.enter(statePreparing)
	if fromEmpty && delay > 0 {
		g.initialDelay = true
		g.remaining = max(g.rebalanceTimeout()-delay, 0)
		g.newMember = false
		g.rebalance = g.after(delay, g.initialDelayOver)
		return
	}
	g.initialDelay = false
	g.awaitJoins()
	g.tryCompleteJoin(fx)
}

func (g *group) awaitJoins() {
	g.rebalance.cancel()
	g.rebalance = g.after(g.rebalanceTimeout(), g.completeJoin)
}

// initialDelayOver waits once more if someone came during the delay, since
// then others may still be starting; at most a rebalance timeout in all.
func (g *group) initialDelayOver(fx *effects) {
	if g.newMember && g.remaining > 0 {
		delay := min(g.c.cfg.InitialRebalanceDelay, g.remaining)
		g.remaining -= delay
		g.newMember = false
		g.rebalance = g.after(delay, g.initialDelayOver)
		return
	}
	g.initialDelay = false
	g.completeJoin(fx)
}

// tryCompleteJoin ends the preparation if everybody is here and no id that was
// given out is still to come back.
func (g *group) tryCompleteJoin(fx *effects) {
	all := g.waiting == len(g.order) && len(g.pending) == 0 || planted.Bug == planted.NoWaiting && g.waiting > 0
	if g.state == statePreparing && !g.initialDelay && all {
		g.completeJoin(fx)
	}
}

// completeJoin begins the next generation with those who have joined. Static
// members may be late: they stay until their session ends.
func (g *group) completeJoin(fx *effects) {
	if g.state != statePreparing {
		return
	}
	g.rebalance.cancel()
	for _, m := range append([]*member(nil), g.order...) {
		if m.join == nil && m.instanceID == nil {
			g.c.cfg.Logger.Info("group member did not rejoin in time", "group", g.id, "member", m.id)
			g.remove(m)
		}
	}
	if len(g.order) > 0 && !g.electJoined() {
		g.awaitJoins() // only static members, all of them late: wait on
		return
	}
	g.generation++
	if len(g.order) == 0 {
		g.protocol = nil
		g.noteTopics()
		g.enter(stateEmpty)
		g.storeGroup(fx, func(_ *effects, err error) {
			if err != nil {
				g.c.cfg.Logger.Warn("empty group not stored", "group", g.id, "err", err)
			}
		})
		return
	}
	g.protocol = new(g.selectProtocol())
	g.noteTopics()
	g.enter(stateCompleting)
	clear(g.unsynced)
	for _, m := range g.order {
		g.unsynced[m.id] = struct{}{}
		g.answerJoin(fx, m, g.joinedResult(m, m.id == g.leader))
		m.isNew = false
		g.keepAlive(m)
	}
	generation := g.generation
	g.syncTimer = g.after(g.rebalanceTimeout(), func(fx *effects) { g.syncOverdue(fx, generation) })
}

// syncOverdue expels the members that took the join's answer and never came
// for their assignment.
func (g *group) syncOverdue(fx *effects, generation int32) {
	if g.generation != generation || (g.state != stateCompleting && g.state != stateStable) || len(g.unsynced) == 0 {
		return
	}
	for _, m := range append([]*member(nil), g.order...) {
		if _, ok := g.unsynced[m.id]; ok {
			g.c.cfg.Logger.Info("group member did not sync in time", "group", g.id, "member", m.id)
			g.remove(m)
		}
	}
	g.prepareRebalance(fx)
}

// synced notes that the member came for its assignment.
func (g *group) synced(m *member) {
	delete(g.unsynced, m.id)
	if len(g.unsynced) == 0 {
		g.syncTimer.cancel()
	}
}

// removeAndUpdate takes the member out and rebalances what is left.
func (g *group) removeAndUpdate(fx *effects, m *member) {
	g.answerJoin(fx, m, joinError(m.id, kerr.UnknownMemberID))
	g.answerSync(fx, m, syncResult{err: kerr.UnknownMemberID})
	g.remove(m)
	switch g.state {
	case stateStable, stateCompleting:
		g.prepareRebalance(fx)
	case statePreparing:
		g.tryCompleteJoin(fx) // it may have been the one we waited for
	}
}

// failAssignment answers the waiting syncs with the error and forgets the
// assignments.
func (g *group) failAssignment(fx *effects, err *kerr.Error) {
	for _, m := range g.order {
		g.assign(m, nil)
		if g.answerSync(fx, m, syncResult{err: err}) {
			g.keepAlive(m)
		}
	}
}

// lose makes the group dead because another broker leads it now.
func (g *group) lose(fx *effects) {
	if g.state == stateDead {
		return
	}
	for _, m := range g.order {
		g.answerJoin(fx, m, joinError(m.id, kerr.NotCoordinator))
		g.answerSync(fx, m, syncResult{err: kerr.NotCoordinator})
	}
	g.loseConsumer(fx)
	g.lost = true
	g.kill(fx)
}

// stateAtMillis is when the group entered its state, for its record.
func (g *group) stateAtMillis() int64 { return g.stateAt.Round(time.Millisecond).UnixMilli() }
