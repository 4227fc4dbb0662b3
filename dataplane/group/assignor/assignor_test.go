package assignor

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/dataplane/protocol"
)

func topicID(n int) protocol.UUID { return protocol.UUID{15: byte(n + 1)} }

// drawGroup makes a group; in a uniform one all subscribe to all topics.
func drawGroup(t *rapid.T, uniform bool) Group {
	g := Group{Partitions: make(map[protocol.UUID]int32)}
	topics := rapid.IntRange(1, 5).Draw(t, "topics")
	for i := range topics {
		g.Partitions[topicID(i)] = rapid.Int32Range(0, 9).Draw(t, "partitions")
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "members") {
		g.Members = append(g.Members, drawMember(t, i, topics, uniform))
	}
	return g
}

func drawMember(t *rapid.T, i, topics int, uniform bool) Member {
	m := Member{ID: fmt.Sprint("m", i)}
	if rapid.Bool().Draw(t, "static") {
		m.Instance = fmt.Sprint("i", 9-i)
	}
	for k := range topics {
		if uniform || rapid.Bool().Draw(t, "subscribed") {
			m.Topics = append(m.Topics, topicID(k))
		}
	}
	if rapid.Bool().Draw(t, "gone") {
		m.Topics = append(m.Topics, topicID(99)) // one that does not exist
	}
	return m
}

// check holds what every assignor promises, and gives the loads.
func check(t *rapid.T, g Group, out []Assignment) []int {
	owner := make(map[protocol.UUID]map[int32]int)
	loads := make([]int, len(out))
	for i, a := range out {
		for topic, ps := range a {
			if !slices.Contains(g.Members[i].Topics, topic) {
				t.Fatalf("%s does not subscribe to %v", g.Members[i].ID, topic)
			}
			if len(ps) == 0 || !slices.IsSorted(ps) {
				t.Fatalf("%v", ps)
			}
			for _, p := range ps {
				if p < 0 || p >= g.Partitions[topic] {
					t.Fatalf("partition %d of %d", p, g.Partitions[topic])
				}
				if owner[topic] == nil {
					owner[topic] = make(map[int32]int)
				}
				if other, ok := owner[topic][p]; ok {
					t.Fatalf("partition %d belongs to %s and %s", p, g.Members[other].ID, g.Members[i].ID)
				}
				owner[topic][p] = i
				loads[i]++
			}
		}
	}
	for topic, subs := range g.subscribers(byID(g.Members)) {
		if n := len(owner[topic]); n != int(g.Partitions[topic]) && len(subs) > 0 {
			t.Fatalf("%d of %d partitions are given", n, g.Partitions[topic])
		}
	}
	return loads
}

// again asks the same with the members in another order.
func again(t *rapid.T, g Group, out []Assignment, f Func) {
	order := rapid.Permutation(slices.Collect(maps.Keys(maps.Collect(slices.All(g.Members))))).Draw(t, "order")
	other := Group{Partitions: g.Partitions}
	for _, i := range order {
		other.Members = append(other.Members, g.Members[i])
	}
	for k, a := range f(other) {
		if !a.Equal(out[order[k]]) {
			t.Fatalf("%s has %v, and %v if asked in the order %v", other.Members[k].ID, out[order[k]], a, order)
		}
	}
}

// moved counts the partitions that another member has than had them before.
func moved(g Group, out []Assignment) int {
	n := 0
	for i, m := range g.Members {
		for topic, ps := range out[i] {
			for _, p := range ps {
				for k, o := range g.Members {
					if k != i && slices.Contains(o.Had[topic], p) && !slices.Contains(m.Had[topic], p) {
						n++
					}
				}
			}
		}
	}
	return n
}

func spread(loads []int) int { return slices.Max(loads) - slices.Min(loads) }

func TestUniformIsBalancedWithinOneAndMovesNoMoreThanItMust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, true)
		out := Uniform(g)
		if loads := check(t, g, out); spread(loads) > 1 {
			t.Fatalf("loads %v", loads)
		}
		again(t, g, out, Uniform)
		for i := range g.Members {
			g.Members[i].Had = out[i]
		}
		for i, a := range Uniform(g) {
			if !a.Equal(out[i]) {
				t.Fatalf("nothing changed, and %s has %v instead of %v", g.Members[i].ID, a, out[i])
			}
		}

		// Members leave and come; topics grow.
		topics := len(g.Partitions)
		for range rapid.IntRange(0, 3).Draw(t, "leave") {
			if len(g.Members) > 1 {
				i := rapid.IntRange(0, len(g.Members)-1).Draw(t, "who")
				g.Members = slices.Delete(g.Members, i, i+1)
			}
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "come") {
			g.Members = append(g.Members, drawMember(t, 10+i, topics, true))
		}
		id := topicID(rapid.IntRange(0, topics-1).Draw(t, "grows"))
		g.Partitions[id] += rapid.Int32Range(0, 5).Draw(t, "by")
		out = Uniform(g)
		loads := check(t, g, out)
		if spread(loads) > 1 {
			t.Fatalf("loads %v", loads)
		}
		// Each has to give up what it has beyond its load; no other partition moves.
		total := 0
		for _, n := range loads {
			total += n
		}
		share, more := total/len(loads), total%len(loads)
		must := 0
		for _, m := range g.Members {
			switch over := m.Had.Len() - share; {
			case over > 0 && more > 0:
				must += over - 1
				more--
			case over > 0:
				must += over
			}
		}
		if n := moved(g, out); n > must {
			t.Fatalf("%d partitions moved, and %d had to", n, must)
		}
		again(t, g, out, Uniform)
	})
}

// No chain of partitions passed on brings two members nearer to each other: by trying
// every owner of a small group's partitions.
func TestUniformOfDifferentSubscriptionsIsAsBalancedAsAnyCanBe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := Group{Partitions: map[protocol.UUID]int32{}}
		for i := range 3 {
			g.Partitions[topicID(i)] = rapid.Int32Range(0, 2).Draw(t, "partitions")
		}
		for i := range rapid.IntRange(2, 4).Draw(t, "members") {
			m := drawMember(t, i, 3, false)
			for k := range 3 { // any history, as long as no two had the same
				for p := range g.Partitions[topicID(k)] {
					if rapid.Bool().Draw(t, "had") && !slices.ContainsFunc(g.Members, func(o Member) bool { return slices.Contains(o.Had[topicID(k)], p) }) {
						if m.Had == nil {
							m.Had = Assignment{}
						}
						m.Had[topicID(k)] = append(m.Had[topicID(k)], p)
					}
				}
			}
			g.Members = append(g.Members, m)
		}
		out := Uniform(g)
		again(t, g, out, Uniform)
		squares := func(loads []int) (n int) {
			for _, l := range loads {
				n += l * l
			}
			return n
		}
		got := squares(check(t, g, out))
		var all [][]int // subscribers of each partition
		for topic, subs := range g.subscribers(byID(g.Members)) {
			for range g.Partitions[topic] {
				all = append(all, subs)
			}
		}
		best := got
		loads := make([]int, len(g.Members))
		var try func(k int)
		try = func(k int) {
			if k == len(all) {
				best = min(best, squares(loads))
				return
			}
			for _, i := range all[k] {
				loads[i]++
				try(k + 1)
				loads[i]--
			}
		}
		try(0)
		if got > best {
			t.Fatalf("loads have squares of %d, and %d is possible: %+v, %v", got, best, g, out)
		}
	})
}

func TestRangeGivesConsecutivePartitionsAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := drawGroup(t, rapid.Bool().Draw(t, "uniform"))
		out := Range(g)
		check(t, g, out)
		again(t, g, out, Range)
		for topic, subs := range g.subscribers(byID(g.Members)) {
			var loads []int
			for _, i := range subs {
				ps := out[i][topic]
				loads = append(loads, len(ps))
				if len(ps) > 0 && int(ps[len(ps)-1]-ps[0]) != len(ps)-1 {
					t.Fatalf("%v are not consecutive", ps)
				}
				for other, osubs := range g.subscribers(byID(g.Members)) {
					if g.Partitions[other] == g.Partitions[topic] && slices.Equal(subs, osubs) && !slices.Equal(ps, out[i][other]) {
						t.Fatalf("%v of one topic and %v of another that is alike", ps, out[i][other])
					}
				}
			}
			if spread(loads) > 1 {
				t.Fatalf("loads %v", loads)
			}
		}
	})
}

func TestRangeTakesStaticMembersFirst(t *testing.T) {
	id := topicID(0)
	g := Group{Partitions: map[protocol.UUID]int32{id: 3}, Members: []Member{
		{ID: "a", Topics: []protocol.UUID{id}}, {ID: "z", Instance: "2", Topics: []protocol.UUID{id}}, {ID: "y", Instance: "3", Topics: []protocol.UUID{id}},
	}}
	out := Range(g)
	if fmt.Sprint(out[1][id], out[2][id], out[0][id]) != "[0] [1] [2]" {
		t.Errorf("%v", out)
	}
}

func BenchmarkUniform(b *testing.B) {
	g := Group{Partitions: map[protocol.UUID]int32{}}
	var ids []protocol.UUID
	for i := range 20 {
		g.Partitions[topicID(i)] = 100
		ids = append(ids, topicID(i))
	}
	for i := range 200 {
		g.Members = append(g.Members, Member{ID: fmt.Sprint(i), Topics: ids[:10+i%11]})
	}
	for b.Loop() {
		Uniform(g)
	}
}
