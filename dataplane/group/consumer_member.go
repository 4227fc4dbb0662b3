package group

import (
	"maps"
	"slices"
	"time"

	"penstock/dataplane/group/assignor"
	"penstock/dataplane/protocol"
)

// memberState says where a member stands between what it has and what it is to have; the
// numbers are those of its record.
type memberState int8

const (
	memberStable     memberState = 0 // has all of the target
	memberUnrevoked  memberState = 1 // is to give partitions up first
	memberUnreleased memberState = 2 // waits for partitions that others have not given up
)

// Member epochs that say something else.
const (
	epochJoining    = 0
	epochLeaving    = -1
	epochStaticAway = -2 // a static member has left and means to come back
)

// holding is partitions by topic id, and for each the member epoch in which the member
// got it.
type holding map[protocol.UUID]map[int32]int32

func (h holding) has(t protocol.UUID, p int32) bool {
	_, ok := h[t][p]
	return ok
}

func (h *holding) add(t protocol.UUID, p, epoch int32) {
	if *h == nil {
		*h = make(holding)
	}
	if (*h)[t] == nil {
		(*h)[t] = make(map[int32]int32)
	}
	(*h)[t][p] = epoch
}

func (h holding) equal(o holding) bool {
	return maps.EqualFunc(h, o, func(a, b map[int32]int32) bool { return maps.Equal(a, b) })
}

// samePartitions compares without the epochs.
func (h holding) samePartitions(o holding) bool {
	return maps.EqualFunc(h, o, func(a, b map[int32]int32) bool {
		return maps.EqualFunc(a, b, func(int32, int32) bool { return true })
	})
}

// touches says whether any of the partitions is held.
func (h holding) touches(owned assignor.Assignment) bool {
	for t, ps := range owned {
		for _, p := range ps {
			if h.has(t, p) {
				return true
			}
		}
	}
	return false
}

// covers says whether all of the partitions are held.
func (h holding) covers(owned assignor.Assignment) bool {
	for t, ps := range owned {
		for _, p := range ps {
			if !h.has(t, p) {
				return false
			}
		}
	}
	return true
}

func (h holding) partitions() assignor.Assignment {
	a := make(assignor.Assignment, len(h))
	for t, ps := range h {
		if len(ps) > 0 {
			a[t] = slices.Sorted(maps.Keys(ps))
		}
	}
	return a
}

// consumerMember is a member of a consumer group. It is never changed: another takes its
// place, so that a decision whose records could not be stored can be taken back.
type consumerMember struct {
	id               string
	instance, rack   *string
	clientID, host   string
	rebalanceTimeout time.Duration
	names            []string     // subscribed topics, sorted, without doubles
	regex            string       // "" for none
	assignor         string       // asked for; "" if it does not care
	classic          *classicSide // nil unless it speaks the classic protocol

	epoch, previous int32 // of the member; previous is accepted from one that lost an answer
	state           memberState
	has             holding // may be used
	revoking        holding // has to be given up; nobody else has it until then
}

// sameMetadata compares what the member's metadata record holds.
func (m *consumerMember) sameMetadata(o *consumerMember) bool {
	return str(m.instance) == str(o.instance) && str(m.rack) == str(o.rack) &&
		m.clientID == o.clientID && m.host == o.host && m.rebalanceTimeout == o.rebalanceTimeout &&
		slices.Equal(m.names, o.names) && m.regex == o.regex && m.assignor == o.assignor && m.classic.equal(o.classic)
}

// sameAssignment compares what the record of its current assignment holds.
func (m *consumerMember) sameAssignment(o *consumerMember) bool {
	return m.epoch == o.epoch && m.previous == o.previous && m.state == o.state && m.has.equal(o.has) && m.revoking.equal(o.revoking)
}

// reconciled says whether the member has what it is to have in that epoch.
func (m *consumerMember) reconciled(epoch int32) bool {
	return m.state == memberStable && m.epoch == epoch
}

// goal is what a member is brought towards.
type goal struct {
	epoch  int32 // of the target assignment
	target assignor.Assignment
	// free says whether the partition belongs to nobody else.
	free func(protocol.UUID, int32) bool
	// owned is what the member says it still has; nil if it does not say.
	owned assignor.Assignment
}

// next is the member one step nearer to its goal, or itself if it has to do something
// first. It is KIP-848's reconciliation: a member first gives up what it may not keep, and
// stays in its epoch for that; then it enters the target's epoch and gets what is free of
// the rest, and waits for what is not.
func (m *consumerMember) next(to goal) *consumerMember {
	switch m.state {
	case memberStable:
		if m.epoch == to.epoch {
			return m
		}
		return m.towards(to, m.epoch)
	case memberUnrevoked:
		if to.owned == nil || m.revoking.touches(to.owned) {
			return m
		}
		return m.towards(to, m.epoch+1)
	default:
		return m.towards(to, m.epoch)
	}
}

func (m *consumerMember) towards(to goal, epoch int32) *consumerMember {
	n := *m
	n.has, n.revoking, n.previous = nil, nil, m.epoch
	waits := false
	for t, ps := range to.target {
		for _, p := range ps {
			if since, ok := m.has[t][p]; ok {
				n.has.add(t, p, since)
			}
		}
	}
	for t, ps := range m.has {
		for p, since := range ps {
			if !n.has.has(t, p) {
				n.revoking.add(t, p, since)
			}
		}
	}
	if n.revoking != nil && (to.owned == nil || n.revoking.touches(to.owned)) {
		n.state, n.epoch = memberUnrevoked, epoch
		return &n
	}
	n.revoking = nil
	for t, ps := range to.target {
		for _, p := range ps {
			switch {
			case n.has.has(t, p):
			case to.free(t, p):
				n.has.add(t, p, to.epoch)
			default:
				waits = true
			}
		}
	}
	n.epoch, n.state = to.epoch, memberStable
	if waits {
		n.state = memberUnreleased
	}
	return &n
}
