package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type spread struct{ leads, total map[int32]int }

func spreadOf(brokers []placement, parts ...[][]int32) spread {
	s := spread{map[int32]int{}, map[int32]int{}}
	for _, b := range brokers {
		s.leads[b.id], s.total[b.id] = 0, 0
	}
	for _, ps := range parts {
		for _, p := range ps {
			s.leads[p[0]]++
			for _, r := range p {
				s.total[r]++
			}
		}
	}
	return s
}

func gap(m map[int32]int) int {
	lo, hi := 1<<30, 0
	for _, n := range m {
		lo, hi = min(lo, n), max(hi, n)
	}
	return hi - lo
}

func checkDistinct(t *rapid.T, parts [][]int32, count, factor int) {
	if len(parts) != count {
		t.Fatalf("%d partitions, want %d", len(parts), count)
	}
	for _, p := range parts {
		q := slices.Clone(p)
		slices.Sort(q)
		if len(p) != factor || len(slices.Compact(q)) != factor {
			t.Fatalf("replicas %v, want %d different ones", p, factor)
		}
	}
}

func TestAssignmentIsEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "brokers")
		factor := rapid.IntRange(1, min(n, 5)).Draw(t, "factor")
		count := rapid.IntRange(1, 80).Draw(t, "partitions")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var brokers []placement
		for i := range n {
			brokers = append(brokers, placement{id: int32(i * 3)})
		}
		parts := assignReplicas(rng, brokers, count, factor, nil)
		checkDistinct(t, parts, count, factor)
		if s := spreadOf(brokers, parts); gap(s.leads) > 1 || gap(s.total) > 1 {
			t.Fatalf("leaders %v, replicas %v", s.leads, s.total)
		}
	})
}

func TestAssignmentOverEqualRacksIsEvenAndSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(2, 5).Draw(t, "racks")
		each := rapid.IntRange(1, 4).Draw(t, "brokers a rack")
		factor := rapid.IntRange(1, racks).Draw(t, "factor")
		count := rapid.IntRange(1, 80).Draw(t, "partitions")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var brokers []placement
		for i := range racks * each {
			brokers = append(brokers, placement{int32(i), fmt.Sprint("r", i%racks)})
		}
		parts := assignReplicas(rng, brokers, count, factor, nil)
		checkDistinct(t, parts, count, factor)
		for _, p := range parts {
			seen := map[int32]bool{}
			for _, r := range p {
				seen[r%int32(racks)] = true
			}
			if len(seen) != factor {
				t.Fatalf("%v lies in %d racks", p, len(seen))
			}
		}
		if s := spreadOf(brokers, parts); gap(s.leads) > 1 || gap(s.total) > 1 {
			t.Fatalf("leaders %v, replicas %v", s.leads, s.total)
		}
	})
}

func TestAssignmentOverUnequalRacksUsesAsManyRacksAsItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 12).Draw(t, "brokers")
		var brokers []placement
		racks := map[string]bool{}
		for i := range n {
			r := fmt.Sprint("r", rapid.IntRange(0, 3).Draw(t, "rack"))
			racks[r] = true
			brokers = append(brokers, placement{int32(i), r})
		}
		factor := rapid.IntRange(1, min(n, 4)).Draw(t, "factor")
		count := rapid.IntRange(1, 40).Draw(t, "partitions")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		parts := assignReplicas(rng, brokers, count, factor, nil)
		checkDistinct(t, parts, count, factor)
		for _, p := range parts {
			seen := map[string]bool{}
			for _, r := range p {
				seen[brokers[r].rack] = true
			}
			if want := min(factor, len(racks)); len(seen) < want {
				t.Fatalf("%v lies in %d racks of %d", p, len(seen), want)
			}
		}
	})
}

func TestAssignmentOfMorePartitionsStaysEven(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		racks := rapid.IntRange(1, 4).Draw(t, "racks") // 1 for none
		each := rapid.IntRange(1, 12/racks).Draw(t, "brokers a rack")
		most := racks
		if racks == 1 {
			most = min(each, 4)
		}
		factor := rapid.IntRange(1, most).Draw(t, "factor")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		var brokers []placement
		for i := range racks * each {
			b := placement{id: int32(i)}
			if racks > 1 {
				b.rack = fmt.Sprint("r", i%racks)
			}
			brokers = append(brokers, b)
		}
		var all [][]int32
		for range rapid.IntRange(2, 5).Draw(t, "times") {
			more := rapid.IntRange(1, 30).Draw(t, "more")
			parts := assignReplicas(rng, brokers, more, factor, all)
			checkDistinct(t, parts, more, factor)
			all = append(all, parts...)
			if s := spreadOf(brokers, all); gap(s.leads) > 1 || gap(s.total) > 1 {
				t.Fatalf("leaders %v, replicas %v", s.leads, s.total)
			}
			for _, p := range parts {
				seen := map[int32]bool{}
				for _, r := range p {
					seen[r%int32(racks)] = true
				}
				if racks > 1 && len(seen) != factor {
					t.Fatalf("%v lies in %d racks", p, len(seen))
				}
			}
		}
	})
}

func TestElections(t *testing.T) {
	only := func(ids ...int32) func(int32) bool {
		return func(id int32) bool { return slices.Contains(ids, id) }
	}
	replicas := []int32{3, 1, 2}
	for _, tc := range []struct {
		name string
		got  choice
		want choice
	}{
		{"new: first live, live ones in sync", electNew(replicas, only(1, 2)), choice{leader: 1, isr: []int32{1, 2}}},
		{"new: nobody lives", electNew(replicas, only()), choice{leader: noLeader}},
		{"offline: assignment order, not ISR order", electOffline(replicas, []int32{2, 1}, only(1, 2), false), choice{leader: 1, isr: []int32{2, 1}}},
		{"offline: dead ones leave the ISR", electOffline(replicas, []int32{3, 2}, only(1, 2), false), choice{leader: 2, isr: []int32{2}}},
		{"offline: nobody in sync", electOffline(replicas, []int32{3}, only(1, 2), false), choice{leader: noLeader}},
		{"unclean: first live", electOffline(replicas, []int32{3}, only(1, 2), true), choice{leader: 1, isr: []int32{1}, recovering: true}},
		{"unclean: clean if possible", electOffline(replicas, []int32{2}, only(1, 2), true), choice{leader: 2, isr: []int32{2}}},
		{"preferred", electPreferred(replicas, []int32{1, 3}, only(1, 3)), choice{leader: 3, isr: []int32{1, 3}}},
		{"preferred not in sync", electPreferred(replicas, []int32{1}, only(1, 3)), choice{leader: noLeader}},
		{"preferred dead", electPreferred(replicas, []int32{1, 3}, only(1)), choice{leader: noLeader}},
		{"shutdown", electShutdown(replicas, []int32{3, 1, 2}, only(1, 2, 3), only(3, 1)), choice{leader: 2, isr: []int32{2}}},
		{"shutdown of the last", electShutdown(replicas, []int32{3}, only(1, 2, 3), only(3)), choice{leader: noLeader}},
	} {
		if tc.got.leader != tc.want.leader || !slices.Equal(tc.got.isr, tc.want.isr) || tc.got.recovering != tc.want.recovering {
			t.Errorf("%s: got %+v, want %+v", tc.name, tc.got, tc.want)
		}
	}
}
