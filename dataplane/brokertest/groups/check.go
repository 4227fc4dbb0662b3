package groups

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Counts tell what a run was made of.
type Counts struct {
	Incarnations int // members that were started
	Changes      int // of membership, see Allowed
	Moves        int // of the coordinator
	Generations  int
	Intervals    int // of ownership
	Commits      int // acknowledged
	Refused      int // commits
	Fetches      int // answers to OffsetFetch
	Fences       int
}

// Check finds what the whole of a history shows, and returns every anomaly, and the
// counts of each group. All logs have been read to their ends.
func (h *History) Check() ([]Anomaly, map[string]Counts) {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := map[string]Counts{}
	for _, group := range h.sorted() {
		c := &checker{h: h, group: group, events: h.events[group], owned: intervals(h.events[group])}
		c.count()
		c.owners()
		c.fences()
		c.strayCommits()
		c.offsets()
		c.storm()
		counts[group] = c.counts
		h.anomalies = append(h.anomalies, c.found...)
	}
	return slices.Clone(h.anomalies), counts
}

// checker looks at one group.
type checker struct {
	h      *History
	group  string
	events []Event
	owned  map[int32][]interval
	counts Counts
	found  []Anomaly
}

func (c *checker) anomaly(kind string, partition int32, format string, args ...any) {
	c.found = append(c.found, Anomaly{kind, c.group, partition, fmt.Sprintf(format, args...)})
}

func (c *checker) at(t int64) string { return c.h.seconds(t) }

// partitions are all that have been owned.
func (c *checker) partitions() []int32 {
	var all []int32
	for p := range c.owned {
		all = append(all, p)
	}
	slices.Sort(all)
	return all
}

func (c *checker) owners() {
	for _, p := range c.partitions() {
		var last interval // the one that reaches farthest
		for i, in := range c.owned[p] {
			if i > 0 && in.from < last.to && in.member != last.member {
				c.anomaly("two owners", p, "%s from %s to %s (%s), and %s from %s (generations %d and %d)",
					last.member, c.at(last.from), c.at(last.to), last.why, in.member, c.at(in.from), last.generation, in.generation)
			}
			if in.to > last.to {
				last = in
			}
		}
	}
}

// fences finds members that were thrown out before their time. Only answers to heartbeats
// count: whoever sends one has been in a sync that was answered, and so stored.
func (c *checker) fences() {
	taken := takeovers(c.events)
	for name, l := range lives(c.events) {
		if slices.ContainsFunc(taken[l.start.Instance], func(t Event) bool { return t.Member != name && l.start.Instance != "" }) {
			continue // both may have had the id in turns
		}
		for _, f := range l.fenced {
			if f.Code != kerr.UnknownMemberID.Code || f.Key != int16(kmsg.Heartbeat) && f.Key != int16(kmsg.ConsumerGroupHeartbeat) {
				continue
			}
			if left := l.expellable(f.At) - f.At; left > 0 {
				c.anomaly("fenced early", -1, "%s was told at %s that it is no member, %v before its time", name, c.at(f.At), time.Duration(left).Round(time.Millisecond))
			}
		}
	}
}

// strayCommits finds commits that were acknowledged though the partition was somebody
// else's already.
func (c *checker) strayCommits() {
	for _, e := range c.events {
		if e.Kind != Committed || e.Code != 0 {
			continue
		}
		for p := range e.Offsets {
			for _, in := range c.owned[p] {
				if in.member != e.Member && in.from < e.Sent && e.Sent < in.to {
					c.anomaly("stray commit", p, "%s committed %d at %s, which %s had owned since %s",
						e.Member, e.Offsets[p], c.at(e.Sent), in.member, c.at(in.from))
				}
			}
		}
	}
}

// point is a time and an offset.
type point struct {
	at     int64
	offset int64
	who    string
}

func (c *checker) offsets() {
	type rows struct {
		known []point // what is known to be committed from a time on
		sent  []point // what might be
		seen  []Event
	}
	parts := map[int32]*rows{}
	row := func(p int32) *rows {
		if parts[p] == nil {
			parts[p] = new(rows)
		}
		return parts[p]
	}
	for _, e := range c.events {
		for p, offset := range e.Offsets {
			r := row(p)
			switch {
			case e.Kind == Commits:
				r.sent = append(r.sent, point{e.At, offset, e.Member})
			case e.Kind == Committed && e.Code == 0:
				r.known = append(r.known, point{e.At, offset, e.Member + "'s commit"})
			case e.Kind == Seen:
				r.seen = append(r.seen, e)
				r.known = append(r.known, point{e.At, offset, "an answer"})
			}
		}
	}
	reigns := reignsIn(c.events)
	for p, r := range parts {
		known, sent := highest(r.known), highest(r.sent)
		for _, e := range r.seen {
			got := e.Offsets[p]
			if before, ok := last(known, e.Sent); ok && before.offset > got && !deposed(reigns, e) {
				c.anomaly("offset back", p, "OffsetFetch, asked at %s, says %d; %s had shown %d at %s", c.at(e.Sent), got, before.who, before.offset, c.at(before.at))
			}
			if before, ok := last(sent, e.At); got >= 0 && (!ok || before.offset < got) {
				c.anomaly("offset invented", p, "OffsetFetch says %d at %s; the largest that was sent by then is %d", got, c.at(e.At), before.offset)
			}
		}
	}
}

// highest orders points by time and leaves out those that do not exceed all before.
func highest(ps []point) []point {
	slices.SortStableFunc(ps, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	var top []point
	for _, p := range ps {
		if len(top) == 0 || p.offset > top[len(top)-1].offset {
			top = append(top, p)
		}
	}
	return top
}

// last is the newest point before a time.
func last(ps []point, before int64) (point, bool) {
	i, _ := slices.BinarySearchFunc(ps, before, func(p point, t int64) int { return cmp.Compare(p.at, t) })
	if i == 0 {
		return point{offset: -1}, false
	}
	return ps[i-1], true
}

// count fills in the counts.
func (c *checker) count() {
	for _, in := range c.owned {
		c.counts.Intervals += len(in)
	}
	first, newest := int32(0), int32(0)
	for _, e := range c.events {
		switch e.Kind {
		case Started:
			c.counts.Incarnations++
			c.counts.Changes++
		case Moved:
			c.counts.Moves++
		case Fenced:
			c.counts.Fences++
		case Seen:
			c.counts.Fetches++
		case Committed:
			if e.Code == 0 {
				c.counts.Commits++
			} else {
				c.counts.Refused++
			}
		case Alive:
			if e.Generation > 0 && (first == 0 || e.Generation < first) {
				first = e.Generation
			}
			newest = max(newest, e.Generation)
		}
	}
	c.counts.Generations = int(newest - first + 1)
	for _, l := range lives(c.events) {
		c.counts.Changes += 1 + 2*len(l.returns())
	}
}

// returns are when an incarnation was told that it is no member, after its time was over by
// its own clock and it had been one since the last time: it went, and came back or may have.
func (l *life) returns() (all []int64) {
	for _, f := range l.fenced {
		again := slices.ContainsFunc(l.alive, func(a Event) bool { return (len(all) == 0 || a.At > all[len(all)-1]) && a.At < f.At })
		if again && f.Code == kerr.UnknownMemberID.Code && l.expellable(f.At) <= f.At {
			all = append(all, f.At)
		}
	}
	return all
}

// Allowed is how many generations a group may have had. Each change of membership (a
// member that starts, leaves, dies, or falls silent for a session timeout and comes back) needs one
// rebalance; several may share one. The cooperative protocol needs a second for what was
// given up in the first, and a third when somebody's giving up outlasts the second. A coordinator that
// takes a group over while it is rebalancing may have to begin anew, with members who
// know of the generation that was lost and those who do not: two.
func Allowed(p Protocol, c Counts) int {
	per := map[Protocol]int{Eager: 1, Cooperative: 3, Consumer: 1}[p]
	return per*c.Changes + 2*per*c.Moves + 1
}

// storm looks at each round by itself: at its end the group was whole and still, so what changed
// in a round is no excuse for a rebalance in the next.
func (c *checker) storm() {
	all := lives(c.events)
	var protocol Protocol
	var rests []int64
	for _, l := range all {
		protocol = l.start.Protocol
	}
	for _, e := range c.events {
		if e.Kind == Rested {
			rests = append(rests, e.At)
		}
	}
	slices.Sort(rests)
	from, before := int64(0), int32(0)
	for _, to := range append(rests, never) {
		n, newest := c.round(all, from, to)
		n.Generations = int(max(newest, before) - before)
		if most := Allowed(protocol, n); n.Generations > most {
			c.anomaly("storm", -1, "%d generations between %s and %s; %d changes of members and %d of the coordinator allow %d",
				n.Generations, c.at(max(from, c.h.start)), c.at(min(to, c.newest())), n.Changes, n.Moves, most)
		}
		from, before = to, max(newest, before)
	}
}

// round counts what changed in a time, and finds the newest generation that anybody knew in it.
func (c *checker) round(all map[string]*life, from, to int64) (n Counts, newest int32) {
	in := func(t int64) bool { return t >= from && t < to }
	reigns := 0
	for _, e := range c.events {
		switch {
		case !in(e.At):
		case e.Kind == Started:
			n.Changes++
		case e.Kind == Moved:
			n.Moves++
		case e.Kind == Reigns:
			reigns++
		case e.Kind == Alive:
			newest = max(newest, e.Generation)
		}
	}
	n.Moves = max(n.Moves, reigns) // one that was killed may get the group back
	for _, l := range all {
		for _, t := range l.returns() {
			if in(t) {
				n.Changes += 2
			}
		}
		// It may have gone, killed, up to a session after it was heard of.
		if l.last < to && l.last+int64(l.start.Session) >= from {
			n.Changes++
		}
	}
	return n, newest
}

// newest is when the last event was written.
func (c *checker) newest() int64 {
	return slices.MaxFunc(c.events, byTime).At
}

// Report is for people: the anomalies by kind, and what the run was made of.
func Report(anomalies []Anomaly, counts map[string]Counts, took time.Duration) string {
	var b strings.Builder
	for group, c := range counts {
		fmt.Fprintf(&b, "%s, %v: %d members were started, %d changes, %d coordinators killed, %d generations; %d times of ownership, %d fences; %d commits, %d refused, %d offset fetches\n",
			group, took.Round(time.Second), c.Incarnations, c.Changes, c.Moves, c.Generations, c.Intervals, c.Fences, c.Commits, c.Refused, c.Fetches)
	}
	if len(anomalies) == 0 {
		b.WriteString("no anomaly\n")
		return b.String()
	}
	kinds := map[string]int{}
	for _, a := range anomalies {
		if kinds[a.Kind]++; kinds[a.Kind] <= 8 {
			fmt.Fprintf(&b, "%s\n", a)
		}
	}
	fmt.Fprintf(&b, "%d anomalies: %v\n", len(anomalies), kinds)
	return b.String()
}
