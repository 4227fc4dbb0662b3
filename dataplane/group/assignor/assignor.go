// Package assignor shares partitions out among the members of a consumer group
// (KIP-848): pure functions of who is there, what each subscribes to and what each
// was to have before. Racks are not looked at.
//
// Every assignor gives each partition of a topic that somebody subscribes to, to
// exactly one of its subscribers, and gives the same answer to the same question,
// whatever the order of the members in it.
package assignor

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"penstock/dataplane/protocol"
)

// Names of the assignors, as clients ask for them.
const (
	NameUniform = "uniform"
	NameRange   = "range"
)

// Assignment is partitions by topic id, each list in ascending order and none empty.
type Assignment map[protocol.UUID][]int32

// Equal says whether both hold the same partitions.
func (a Assignment) Equal(b Assignment) bool {
	return maps.EqualFunc(a, b, func(x, y []int32) bool { return slices.Equal(x, y) })
}

// Len is the number of partitions.
func (a Assignment) Len() int {
	n := 0
	for _, ps := range a {
		n += len(ps)
	}
	return n
}

// Member is what an assignor knows of a member.
type Member struct {
	ID       string
	Instance string          // of a static member, or ""
	Topics   []protocol.UUID // subscribed, without doubles; those not in Group.Partitions do not count
	Had      Assignment      // what it was to have before
}

// Group is a question: who shares which topics.
type Group struct {
	Members    []Member
	Partitions map[protocol.UUID]int32 // number of partitions of each topic that exists
}

// Func answers it: what each member is to have, in the order of g.Members.
type Func func(g Group) []Assignment

// ByName returns the assignor of that name, nil if there is none.
func ByName(name string) Func {
	switch name {
	case NameUniform:
		return Uniform
	case NameRange:
		return Range
	}
	return nil
}

func compareID(a, b protocol.UUID) int { return bytes.Compare(a[:], b[:]) }

// byID is the members' places in the order of their ids.
func byID(ms []Member) []int {
	order := make([]int, len(ms))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(ms[a].ID, ms[b].ID) })
	return order
}

// subscribers lists, for each topic that exists and that somebody subscribes to, who
// does, in the given order of the members.
func (g Group) subscribers(order []int) map[protocol.UUID][]int {
	subs := make(map[protocol.UUID][]int)
	for _, i := range order {
		for _, t := range g.Members[i].Topics {
			if g.Partitions[t] > 0 {
				subs[t] = append(subs[t], i)
			}
		}
	}
	return subs
}

func sortedTopics[V any](m map[protocol.UUID]V) []protocol.UUID {
	return slices.SortedFunc(maps.Keys(m), compareID)
}

// tidy brings the result into its form.
func tidy(out []Assignment) []Assignment {
	for i := range out {
		if out[i] == nil {
			out[i] = Assignment{}
		}
		for _, ps := range out[i] {
			slices.Sort(ps)
		}
	}
	return out
}
