package controller

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// placement is a broker as the choice of replicas sees it.
type placement struct {
	id   int32
	rack string
}

// assignReplicas chooses replicas for count new partitions, the preferred
// leader first. existing are the topic's partitions so far, whose load counts.
//
// The number of preferred leaders of any two brokers differs by at most one, and so
// does the number of replicas, if that held for the existing ones, all their brokers
// live, and all were placed by this function. With racks (all brokers have one) the
// replicas of a partition lie in as many racks as possible; when racks are of
// unequal size, or fewer than replicas, that goes before evenness.
func assignReplicas(rng *rand.Rand, brokers []placement, count, factor int, existing [][]int32) [][]int32 {
	brokers = slices.Clone(brokers)
	rng.Shuffle(len(brokers), func(i, j int) { brokers[i], brokers[j] = brokers[j], brokers[i] })
	racks := byRack(brokers)
	if len(racks) > 1 && len(racks) >= factor && sameSize(racks) {
		return assignOverRacks(rng, racks, count, factor, existing)
	}
	return assignGreedily(rng, brokers, count, factor, existing, len(racks) > 1)
}

// byRack groups the brokers; nil when not all of them have a rack.
func byRack(brokers []placement) [][]placement {
	at := map[string]int{}
	var racks [][]placement
	for _, b := range brokers {
		if b.rack == "" {
			return nil
		}
		i, ok := at[b.rack]
		if !ok {
			i = len(racks)
			at[b.rack] = i
			racks = append(racks, nil)
		}
		racks[i] = append(racks[i], b)
	}
	return racks
}

func sameSize(racks [][]placement) bool {
	return !slices.ContainsFunc(racks, func(r []placement) bool { return len(r) != len(racks[0]) })
}

// assignOverRacks spreads over the racks first, as if each were one broker, and
// then within each rack. Rack counts differ by at most one, and dealing them
// out within racks of equal size keeps the brokers' counts within one.
func assignOverRacks(rng *rand.Rand, racks [][]placement, count, factor int, existing [][]int32) [][]int32 {
	units := make([]placement, len(racks))
	rackOf := map[int32]int32{}
	lead, load := map[int32]int{}, map[int32]int{}
	for i := range racks {
		units[i] = placement{id: int32(i)}
		for _, b := range racks[i] {
			rackOf[b.id] = int32(i)
		}
	}
	var before [][]int32 // existing, by racks
	for _, rs := range existing {
		var p []int32
		for j, r := range rs {
			rack, ok := rackOf[r]
			if !ok {
				rack = -1 // of a broker that does not live
			}
			p = append(p, rack)
			load[r]++
			if j == 0 {
				lead[r]++
			}
		}
		before = append(before, p)
	}
	parts := assignGreedily(rng, units, count, factor, before, false)
	for _, p := range parts { // leaders of all partitions first
		p[0] = least(racks[p[0]], func(a, b int32) int { return cmp.Or(lead[a]-lead[b], load[a]-load[b]) })
		lead[p[0]]++
		load[p[0]]++
	}
	for _, p := range parts {
		for j := 1; j < len(p); j++ {
			p[j] = least(racks[p[j]], func(a, b int32) int { return cmp.Or(load[a]-load[b], lead[b]-lead[a]) })
			load[p[j]]++
		}
	}
	return parts
}

// least is the broker that comes first by the comparison; the brokers of a rack are
// in random order.
func least(rack []placement, compare func(a, b int32) int) int32 {
	return slices.MinFunc(rack, func(a, b placement) int { return compare(a.id, b.id) }).id
}

// assignGreedily deals the leaders out evenly and then gives each partition the
// followers with the least load, preferring brokers that do not yet follow that
// leader so that a dead broker's load spreads; what this leaves uneven is
// levelled in the end.
func assignGreedily(rng *rand.Rand, brokers []placement, count, factor int, existing [][]int32, racks bool) [][]int32 {
	n := len(brokers)
	at := make(map[int32]int, n)
	for i, b := range brokers {
		at[b.id] = i
	}
	lead, load := make([]int, n), make([]int, n)
	for _, rs := range existing {
		for j, r := range rs {
			if i, ok := at[r]; ok {
				load[i]++
				if j == 0 {
					lead[i]++
				}
			}
		}
	}
	parts := make([][]int, count)
	for p := range parts {
		l := 0
		for i := 1; i < n; i++ {
			if lead[i] < lead[l] || lead[i] == lead[l] && load[i] < load[l] {
				l = i
			}
		}
		lead[l]++
		load[l]++
		parts[p] = append(make([]int, 0, factor), l)
	}
	pairs := make([]int, n*n)
	used := map[string]int{}
	for p := range parts {
		l := parts[p][0]
		clear(used)
		used[brokers[l].rack]++
		for len(parts[p]) < factor {
			best, start := -1, rng.IntN(n)
			for k := range n {
				i := (start + k) % n
				if slices.Contains(parts[p], i) {
					continue
				}
				if best < 0 || better(i, best, l, brokers, load, pairs, used, racks) {
					best = i
				}
			}
			parts[p] = append(parts[p], best)
			load[best]++
			pairs[l*n+best]++
			used[brokers[best].rack]++
		}
	}
	level(parts, lead, load, func(p []int, from, to int) bool {
		if !racks {
			return true
		}
		for _, i := range p {
			if i != from && brokers[i].rack == brokers[to].rack {
				return brokers[from].rack == brokers[to].rack
			}
		}
		return true
	})
	out := make([][]int32, count)
	for p := range parts {
		for _, i := range parts[p] {
			out[p] = append(out[p], brokers[i].id)
		}
	}
	return out
}

func better(i, best, leader int, brokers []placement, load, pairs []int, used map[string]int, racks bool) bool {
	if racks {
		if a, b := used[brokers[i].rack], used[brokers[best].rack]; a != b {
			return a < b
		}
	}
	if load[i] != load[best] {
		return load[i] < load[best]
	}
	n := len(brokers)
	return pairs[leader*n+i] < pairs[leader*n+best]
}

// level moves replicas from the fullest to the emptiest broker until they
// differ by at most one or no move is allowed. Leader counts stay as they are:
// a follower is moved, or, if the fullest broker leads all that it does not
// share with the emptiest, the two swap a leadership for it.
//
// Among those that differ by one, the brokers with fewer leaders get fewer
// replicas, too. They are the ones to lead the partitions by which the topic grows
// later: were they full, leaders and replicas could not both stay even.
func level(parts [][]int, lead, load []int, allowed func(p []int, from, to int) bool) {
	if len(load) == 0 {
		return
	}
	for {
		from, to := 0, 0
		for i := range load {
			if load[i] > load[from] {
				from = i
			}
			if load[i] < load[to] {
				to = i
			}
		}
		if load[from]-load[to] <= 1 || !moveOne(parts, from, to, allowed) {
			break
		}
		load[from]--
		load[to]++
	}
	for from := range load {
		for to := range load {
			if load[from] > load[to] && lead[from] < lead[to] && moveOne(parts, from, to, allowed) {
				load[from]--
				load[to]++
			}
		}
	}
}

func moveOne(parts [][]int, from, to int, allowed func(p []int, from, to int) bool) bool {
	led, shared := -1, -1 // a partition of from's leading without to; one of to's leading with from
	for i, p := range parts {
		f, t := slices.Index(p, from), slices.Index(p, to)
		switch {
		case f > 0 && t < 0 && allowed(p, from, to):
			p[f] = to
			return true
		case f == 0 && t < 0 && allowed(p, from, to):
			led = i
		case f > 0 && t == 0:
			shared = i
		}
	}
	if led < 0 || shared < 0 {
		return false
	}
	parts[led][0] = to
	p := parts[shared]
	f := slices.Index(p, from)
	p[0], p[f] = p[f], p[0]
	return true
}
