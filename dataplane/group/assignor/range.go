package assignor

import (
	"cmp"
	"slices"
)

// Range gives the subscribers of each topic consecutive partitions, in one order for all
// topics: static members by instance id, then the others by member id. Topics with the
// same number of partitions and the same subscribers are shared out alike, so that who
// joins two of them finds equal keys at the same member. Within a topic nobody has more
// than one partition more than another; the first in the order have it.
func Range(g Group) []Assignment {
	order := byID(g.Members)
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := g.Members[a].Instance, g.Members[b].Instance
		if (x == "") != (y == "") {
			return cmp.Compare(len(y), len(x)) // static members first
		}
		return cmp.Compare(x, y)
	})
	out := make([]Assignment, len(g.Members))
	for i := range out {
		out[i] = Assignment{}
	}
	for topic, subs := range g.subscribers(order) {
		n := int(g.Partitions[topic])
		share, more := n/len(subs), n%len(subs)
		next := 0
		for k, i := range subs {
			take := share
			if k < more {
				take++
			}
			for range take {
				out[i][topic] = append(out[i][topic], int32(next))
				next++
			}
		}
	}
	return tidy(out)
}
