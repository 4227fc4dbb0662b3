package group

import (
	"time"

	"penstock/dataplane/group/assignor"
	"penstock/dataplane/protocol"
)

// bump begins a new group epoch if it must, or if there is something else to share than
// there was when the present one began. The topics are looked at only if they are others
// than last time.
func (g *group) bump(ch *change, must bool) {
	cg := g.consumer
	hash, topics := cg.hash, g.c.cfg.Topics()
	if topics != nil && (must || topics != cg.seen) {
		hash = cg.topicsHash(topics)
		cg.seen = topics
	}
	if must || hash != cg.hash {
		g.setEpoch(ch, cg.epoch+1, hash)
	}
}

// aim works the target assignment out anew if it is older than the group's epoch. That is
// done at most once in an assignment interval, unless now says that it cannot wait: many
// members that come at once would cause as many targets.
func (g *group) aim(ch *change, now bool) {
	cg := g.consumer
	if cg.epoch <= cg.assigned || len(cg.members) == 0 {
		return
	}
	topics := g.c.cfg.Topics()
	if topics == nil {
		return // of the next heartbeat
	}
	if wait := time.Until(cg.at.Add(g.settings().AssignmentInterval)); wait > 0 && cg.assigned > 0 && !now {
		if cg.retarget == nil || cg.retarget.over {
			cg.retarget = g.after(wait, func(fx *effects) {
				if g.consumer == cg && g.state != stateDead && !g.deleting {
					g.aim(cg.begin(), false)
					g.flush(fx)
				}
			})
		}
		return
	}
	cg.retarget.cancel()

	name := g.preferredAssignor()
	start := time.Now()
	question, members := cg.question(topics)
	answer := assignor.ByName(name)(question)
	for i, m := range members {
		if old, ok := cg.target[m.id]; !ok || !old.Equal(answer[i]) {
			g.setTarget(ch, m.id, answer[i])
		}
	}
	g.setAssigned(ch, cg.epoch, time.Now())
	g.c.cfg.Logger.Info("target assignment", "group", g.id, "epoch", cg.epoch, "assignor", name, "members", len(members), "took", time.Since(start))
}

// question is the group as an assignor sees it, with its members in the same order.
func (cg *consumerGroup) question(topics Topics) (assignor.Group, []*consumerMember) {
	q := assignor.Group{Partitions: make(map[protocol.UUID]int32)}
	ids := make(map[string]protocol.UUID)
	for _, name := range cg.topicNames() {
		if id, n, ok := topics.Topic(name); ok {
			ids[name] = id
			q.Partitions[id] = n
		}
	}
	members := cg.sortedMembers()
	for _, m := range members {
		am := assignor.Member{ID: m.id, Instance: str(m.instance), Had: cg.target[m.id]}
		for _, name := range cg.subscription(m) {
			if id, ok := ids[name]; ok {
				am.Topics = append(am.Topics, id)
			}
		}
		q.Members = append(q.Members, am)
	}
	return q, members
}

// subscription is the topics that the member subscribes to, without doubles.
func (cg *consumerGroup) subscription(m *consumerMember) []string {
	r := cg.regexes[m.regex]
	if m.regex == "" || r == nil || len(r.topics) == 0 {
		return m.names
	}
	if len(m.names) == 0 {
		return r.topics
	}
	return distinctSorted(m.names, r.topics)
}

// reconcile brings the member nearer to its target, and writes what that changes.
func (g *group) reconcile(ch *change, id string, owned assignor.Assignment) *consumerMember {
	cg := g.consumer
	m := cg.members[id]
	n := m.next(goal{epoch: cg.assigned, target: cg.target[id], free: cg.freeFor(id), owned: owned})
	if n == m || n.sameAssignment(m) {
		return m
	}
	g.setMember(ch, n)
	if n.state != m.state || n.epoch != m.epoch {
		g.watchRevocation(n)
	}
	return n
}
