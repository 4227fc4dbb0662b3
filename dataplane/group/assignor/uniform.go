package assignor

import (
	"cmp"
	"container/heap"
	"slices"

	"penstock/dataplane/protocol"
)

// Uniform gives every member as many partitions as any other, as near as the
// subscriptions allow, and leaves with a member what it had as far as that allows it. If
// all subscribe to the same topics, no two members differ by more than one partition and
// no more partitions move than that takes. Else no partition could be passed on, or a
// chain of them, such that two members come nearer to each other.
func Uniform(g Group) []Assignment {
	order := byID(g.Members)
	subs := g.subscribers(order)
	for _, s := range subs {
		if len(s) != len(g.Members) {
			return mixed(g, order, subs)
		}
	}
	return alike(g, order, subs)
}

// alike is Uniform where all subscribe to the same topics.
func alike(g Group, order []int, subs map[protocol.UUID][]int) []Assignment {
	out := make([]Assignment, len(g.Members))
	if len(order) == 0 {
		return out
	}
	topics := sortedTopics(subs)
	total := 0
	taken := make(map[protocol.UUID][]bool, len(topics))
	for _, t := range topics {
		total += int(g.Partitions[t])
		taken[t] = make([]bool, g.Partitions[t])
	}
	share, more := total/len(order), total%len(order)

	// Who has more than its share keeps one more, as long as there is one to spare:
	// it is one that need not move.
	short := make([]int, len(g.Members)) // what each still gets
	for _, i := range order {
		out[i] = Assignment{}
		type place struct {
			topic     protocol.UUID
			partition int32
		}
		var mine []place
		for _, t := range topics {
			for _, p := range g.Members[i].Had[t] {
				if p >= 0 && p < g.Partitions[t] && !taken[t][p] {
					taken[t][p] = true
					mine = append(mine, place{t, p})
				}
			}
		}
		keep := min(len(mine), share)
		if len(mine) > share && more > 0 {
			keep, more = share+1, more-1
		}
		for _, m := range mine[:keep] {
			out[i][m.topic] = append(out[i][m.topic], m.partition)
		}
		for _, m := range mine[keep:] {
			taken[m.topic][m.partition] = false
		}
		short[i] = share - keep
	}
	for _, i := range order {
		if more > 0 && short[i] >= 0 {
			short[i]++
			more--
		}
	}

	// The rest goes round, so that a topic's partitions spread over the members.
	next := 0
	for _, t := range topics {
		for p := range g.Partitions[t] {
			if taken[t][p] {
				continue
			}
			for short[order[next]] <= 0 {
				next = (next + 1) % len(order)
			}
			i := order[next]
			out[i][t] = append(out[i][t], p)
			short[i]--
			next = (next + 1) % len(order)
		}
	}
	return tidy(out)
}

// mixed is Uniform where the subscriptions differ.
func mixed(g Group, order []int, subs map[protocol.UUID][]int) []Assignment {
	out := make([]Assignment, len(g.Members))
	load := make([]int, len(g.Members))
	give := func(i int, t protocol.UUID, p int32) {
		out[i][t] = append(out[i][t], p)
		load[i]++
	}
	taken := make(map[protocol.UUID][]bool, len(subs))
	for t := range subs {
		taken[t] = make([]bool, g.Partitions[t])
	}
	for _, i := range order {
		out[i] = Assignment{}
		for _, t := range g.Members[i].Topics {
			for _, p := range g.Members[i].Had[t] {
				if p >= 0 && p < g.Partitions[t] && !taken[t][p] {
					taken[t][p] = true
					give(i, t, p)
				}
			}
		}
	}

	// Topics that few can take first: the others make up for it.
	topics := sortedTopics(subs)
	slices.SortStableFunc(topics, func(a, b protocol.UUID) int { return cmp.Compare(len(subs[a]), len(subs[b])) })
	for _, t := range topics {
		h := &lightest{who: slices.Clone(subs[t]), load: load}
		heap.Init(h)
		for p, has := range taken[t] {
			if !has {
				give(h.who[0], t, int32(p))
				heap.Fix(h, 0)
			}
		}
	}

	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(load[b], load[a]) })
	for changed := true; changed; {
		changed = false
		for _, i := range order {
			for relieve(g, i, subs, out, load) {
				changed = true
			}
		}
	}
	return tidy(out)
}

// relieve takes one partition from the member and passes it on, maybe through others
// that pass one on in their turn, to somebody who has at least two fewer. It goes the
// shortest way, and is false if there is none. Sums of squares of the loads fall with
// each, so that relieving comes to an end.
func relieve(g Group, from int, subs map[protocol.UUID][]int, out []Assignment, load []int) bool {
	if load[from] < 2 || load[from]-2 < slices.Min(load) {
		return false
	}
	type step struct {
		from  int
		topic protocol.UUID
	}
	came := map[int]step{from: {from: -1}}
	seen := make(map[protocol.UUID]bool)
	queue := []int{from}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for _, t := range g.Members[i].Topics { // in the member's order: maps have none
			if seen[t] || len(out[i][t]) == 0 {
				continue
			}
			seen[t] = true
			for _, to := range subs[t] {
				if _, ok := came[to]; ok {
					continue
				}
				came[to] = step{i, t}
				if load[to] > load[from]-2 {
					queue = append(queue, to)
					continue
				}
				load[from]--
				load[to]++
				for at := to; at != from; at = came[at].from {
					s := came[at]
					has := out[s.from][s.topic]
					out[at][s.topic] = append(out[at][s.topic], has[len(has)-1])
					if out[s.from][s.topic] = has[:len(has)-1]; len(has) == 1 {
						delete(out[s.from], s.topic)
					}
				}
				return true
			}
		}
	}
	return false
}

// lightest is a heap of members, who has least first.
type lightest struct {
	who  []int
	load []int
}

func (h *lightest) Len() int           { return len(h.who) }
func (h *lightest) Less(a, b int) bool { return h.load[h.who[a]] < h.load[h.who[b]] }
func (h *lightest) Swap(a, b int)      { h.who[a], h.who[b] = h.who[b], h.who[a] }
func (h *lightest) Push(any)           { panic("not used") }
func (h *lightest) Pop() any           { panic("not used") }
