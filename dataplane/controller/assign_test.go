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

// cell is a topic's partition as the functions that decide about it see it.
type cell struct {
	topic    int
	replicas []int32
	leader   int32
	isr      []int32
}

// life is a cluster that lives on the pure functions alone: what the loop does with each event, without the loop.
type life struct {
	rng     *rand.Rand
	brokers []placement
	up      map[int32]bool
	factor  map[int]int // of each topic
	cells   []*cell
}

func (l *life) live(id int32) bool { return l.up[id] }

func (l *life) liveBrokers() (live []placement) {
	for _, b := range l.brokers {
		if l.up[b.id] {
			live = append(live, b)
		}
	}
	return live
}

func (l *life) parts(topic int) (out [][]int32) {
	for _, c := range l.cells {
		if c.topic == topic {
			out = append(out, c.replicas)
		}
	}
	return out
}

// grow adds partitions to a topic, which may be new.
func (l *life) grow(topic, more int) {
	for _, rs := range assignReplicas(l.rng, l.liveBrokers(), more, l.factor[topic], l.parts(topic)) {
		c := electNew(rs, l.live)
		l.cells = append(l.cells, &cell{topic, rs, c.leader, c.isr})
	}
}

func (l *life) lose(id int32) {
	delete(l.up, id)
	for _, c := range l.cells {
		if c.leader == id {
			if e := electOffline(c.replicas, c.isr, l.live, false); e.leader != noLeader {
				c.leader, c.isr = e.leader, e.isr
			} else {
				c.leader = noLeader
			}
		}
		if stay := filter(c.isr, l.live); len(stay) > 0 {
			c.isr = stay
		}
	}
}

// back brings a broker back. Replicas that live catch up with whoever leads.
func (l *life) back(id int32) {
	l.up[id] = true
	for _, c := range l.cells {
		if c.leader == noLeader {
			if e := electOffline(c.replicas, c.isr, l.live, false); e.leader != noLeader {
				c.leader, c.isr = e.leader, e.isr
			}
		}
		for _, r := range c.replicas { // also who was back before there was a leader
			if c.leader != noLeader && l.up[r] && !slices.Contains(c.isr, r) {
				c.isr = append(c.isr, r)
			}
		}
	}
}

// rebalance elects the preferred leader wherever it can lead.
func (l *life) rebalance() {
	for _, c := range l.cells {
		if e := electPreferred(c.replicas, c.isr, l.live); e.leader != noLeader {
			c.leader, c.isr = e.leader, e.isr
		}
	}
}

// After any creations, growths, losses, returns and rebalances: while all brokers are there, leaders and
// replicas of a topic that has always been placed over all of them differ by at most one between any two
// brokers once leaders have been rebalanced; and whatever is down, nothing but a live member of the in-sync set leads, and each
// partition that has one is led.
func TestLeadersAndReplicasStayEvenThroughACluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "brokers")
		l := &life{
			rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), up: map[int32]bool{}, factor: map[int]int{},
		}
		for i := range n {
			l.brokers = append(l.brokers, placement{id: int32(i)})
			l.up[int32(i)] = true
		}
		uneven := map[int]bool{} // topics that were placed while a broker was away
		anyBroker := rapid.Int32Range(0, int32(n-1))
		for range rapid.IntRange(1, 25).Draw(t, "events") {
			switch rapid.SampledFrom([]string{"create", "grow", "lose", "back", "rebalance"}).Draw(t, "event") {
			case "create":
				topic := len(l.factor)
				l.factor[topic] = rapid.IntRange(1, min(4, max(1, len(l.up)))).Draw(t, "factor")
				if len(l.up) < l.factor[topic] {
					delete(l.factor, topic)
					continue
				}
				uneven[topic] = len(l.up) < n
				l.grow(topic, rapid.IntRange(1, 20).Draw(t, "partitions"))
			case "grow":
				if len(l.factor) == 0 {
					continue
				}
				topic := rapid.IntRange(0, len(l.factor)-1).Draw(t, "topic")
				if len(l.up) < l.factor[topic] {
					continue
				}
				uneven[topic] = uneven[topic] || len(l.up) < n
				l.grow(topic, rapid.IntRange(1, 20).Draw(t, "more"))
			case "lose":
				l.lose(anyBroker.Draw(t, "broker"))
			case "back":
				l.back(anyBroker.Draw(t, "broker"))
			case "rebalance":
				l.rebalance()
			}
			for _, c := range l.cells {
				if c.leader != noLeader && (!l.up[c.leader] || !slices.Contains(c.isr, c.leader)) {
					t.Fatalf("%+v: its leader is down or out of sync", *c)
				}
				if c.leader == noLeader && slices.ContainsFunc(c.isr, l.live) {
					t.Fatalf("%+v: nobody leads, though one in sync lives", *c)
				}
			}
		}
		for _, b := range l.brokers {
			l.back(b.id)
		}
		l.rebalance()
		for topic := range l.factor {
			s := spreadOf(l.brokers, l.parts(topic))
			led := map[int32]int{}
			for _, b := range l.brokers {
				led[b.id] = 0
			}
			for _, c := range l.cells {
				if c.topic == topic {
					led[c.leader]++
				}
			}
			for id, want := range s.leads {
				if led[id] != want {
					t.Fatalf("topic %d: broker %d leads %d, is preferred for %d", topic, id, led[id], want)
				}
			}
			if !uneven[topic] && (gap(led) > 1 || gap(s.total) > 1) {
				t.Fatalf("topic %d: leaders %v, replicas %v", topic, led, s.total)
			}
		}
	})
}
