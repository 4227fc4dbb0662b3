package group

import (
	"sync/atomic"

	"penstock/dataplane/group/assignor"
)

// What groups hold in memory is bounded all together (Config.Memory): whoever may join or
// commit could fill the broker otherwise, by members with large subscriptions or by offsets
// of ever new groups. It is an estimate: lengths of what clients have sent, and for the rest
// of each thing a constant.
//
// A group's share is worked out anew after everything that is done to it, of sums that the
// changes keep; so nothing is charged twice or forgotten. What is loaded is never refused.
const (
	groupCost     = 1500 // with its empty maps
	memberCost    = 900  // with its clocks and its places in the maps
	pendingCost   = 500  // a member id that was given out
	offsetCost    = 48
	runCost       = 100
	partitionCost = 100 // an entry of a map by topic and partition, or of a holding and its owner
)

// budget is shared by all groups of a coordinator.
type budget struct {
	limit   int64 // 0: none
	held    atomic.Int64
	refused atomic.Int64
}

// room says whether that much more may be held. The last quarter is for what is there
// already: a new group, member or offset must not keep others from going on.
func (b *budget) room(more int64, newcomer bool) bool {
	limit := b.limit
	if newcomer {
		limit -= limit / 4
	}
	if b.limit == 0 || more <= 0 || b.held.Load()+more <= limit {
		return true
	}
	b.refused.Add(1)
	return false
}

// room counts in what the group has not been charged for yet: itself, if it is new.
func (g *group) room(more int64, newcomer bool) bool {
	return more <= 0 || g.c.memory.room(more+g.size()-g.charged, newcomer)
}

// MemoryStats says what groups hold in memory, in bytes, and how many requests were refused
// since the start for want of room.
func (c *Coordinator) MemoryStats() (held, refused int64) {
	return c.memory.held.Load(), c.memory.refused.Load()
}

// account charges the group for what it holds now.
func (g *group) account() {
	if g.c == nil {
		return // a group of its own, in a test
	}
	now := g.size()
	g.c.memory.held.Add(now - g.charged)
	g.charged = now
}

func (g *group) size() int64 {
	if g.state == stateDead {
		return 0
	}
	n := int64(groupCost+len(g.id)) + g.memberBytes + g.offsets.bytes + g.openBytes + pendingCost*int64(len(g.pending)) +
		partitionCost*int64(len(g.inFlight)+len(g.doubtful)+len(g.leftover))
	if g.consumer != nil {
		n += g.consumer.bytes
	}
	return n
}

func (m *member) size() int64 {
	return int64(memberCost+len(str(m.instanceID))+len(m.clientID)+len(m.host)) + protocolBytes(m.protocols)
}

func protocolBytes(ps []groupProtocol) (n int64) {
	for _, p := range ps {
		n += int64(len(p.name)+len(p.metadata)) + partitionCost // also in supports
	}
	return n
}

// assign gives the member its assignment.
func (g *group) assign(m *member, assignment []byte) {
	g.memberBytes += int64(len(assignment) - len(m.assignment))
	m.assignment = assignment
}

func (j *joiner) size() int64 {
	return (&member{instanceID: j.instanceID, clientID: j.ci.ClientID, host: j.ci.Host, protocols: j.protocols}).size()
}

// hasRoomFor says whether there is room for what a join says of its member.
func (g *group) hasRoomFor(j *joiner) bool {
	old := g.members[j.memberID]
	if old == nil && j.instanceID != nil {
		old = g.static[*j.instanceID]
	}
	if old != nil {
		return g.room(j.size()-old.size(), false)
	}
	if g.consumer != nil {
		if old := g.consumer.comes(j.memberID, j.instanceID); old != nil {
			return g.room(j.size()-old.size(), false)
		}
	}
	return g.room(j.size(), true)
}

// comes is the member that has the id, or else the instance id.
func (cg *consumerGroup) comes(id string, instance *string) *consumerMember {
	if m := cg.members[id]; m != nil || instance == nil {
		return m
	}
	return cg.members[cg.static[*instance]]
}

func (m *consumerMember) size() int64 {
	n := int64(memberCost+len(str(m.instance))+len(str(m.rack))+len(m.clientID)+len(m.host)+len(m.regex)) + nameBytes(m.names)
	if m.classic != nil {
		n += protocolBytes(m.classic.protocols)
	}
	for _, h := range []holding{m.has, m.revoking} {
		for _, ps := range h {
			n += partitionCost * int64(1+len(ps))
		}
	}
	return n
}

func nameBytes(names []string) (n int64) {
	for _, s := range names {
		n += int64(16+len(s)) + partitionCost // also in subscribed
	}
	return n
}

// hasRoomFor says whether there is room for what the heartbeat says of its member.
func (g *group) hasRoomForBeat(b *beat) bool {
	more := nameBytes(b.names) + int64(len(str(b.regex)))
	if g.consumer != nil {
		if old := g.consumer.comes(b.member, b.instance); old != nil {
			return b.names == nil && b.regex == nil || g.room(more-nameBytes(old.names)-int64(len(old.regex)), false)
		}
	}
	return g.room(memberCost+more, true)
}

func targetBytes(a assignor.Assignment) (n int64) {
	for _, ps := range a {
		n += partitionCost + 4*int64(len(ps))
	}
	return n
}

func (r *resolved) size() int64 {
	if r == nil {
		return 0
	}
	return partitionCost + 16*int64(len(r.topics)) // the names are the cluster's
}

// putTarget is what the member is to have; without known it is forgotten.
func (cg *consumerGroup) putTarget(id string, a assignor.Assignment, known bool) {
	cg.bytes += targetBytes(a) - targetBytes(cg.target[id])
	if cg.target[id] = a; !known {
		delete(cg.target, id)
	}
}

// putRegex is what the expression matches; nil forgets it.
func (cg *consumerGroup) putRegex(re string, r *resolved) {
	cg.bytes += r.size() - cg.regexes[re].size()
	if cg.regexes[re] = r; r == nil {
		delete(cg.regexes, re)
	}
}

func (o *offset) size() int64 {
	if o.note == nil {
		return offsetCost
	}
	return offsetCost + partitionCost + int64(len(o.note.metadata))
}

// hasRoomForOffset says whether there is room for a write; taken is what the writes
// before it in its request take.
func (g *group) hasRoomForOffset(w *commitWrite, inTxn bool, taken int64) (more int64, ok bool) {
	old := g.offsets.get(w.topic, w.partition)
	more = w.size() + partitionCost // while it is under way
	switch {
	case old == nil:
		more += int64(runCost + len(w.topic))
	case !inTxn:
		more -= old.size() + partitionCost
	}
	return max(more, 0), more <= 0 || g.room(taken+more, old == nil && g.inFlight[w.tp()] == 0)
}
