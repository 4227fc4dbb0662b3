package groups

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// interval is a time during which an incarnation was sure to own a partition.
type interval struct {
	member     string
	from, to   int64
	why        string // what ended it
	generation int32  // the newest it knew when it began
}

// life is all that one incarnation has written down, in the order of time.
type life struct {
	start  Event
	alive  []Event
	fenced []Event
	owned  []Event // Owns and Released
	last   int64   // when the newest of all was written
}

// lives sorts a group's events by incarnation.
func lives(events []Event) map[string]*life {
	all := map[string]*life{}
	reigns := reignsIn(events)
	for _, e := range events {
		if e.Kind == Started {
			all[e.Member] = &life{start: e, last: e.At}
		}
	}
	for _, e := range events {
		l := all[e.Member]
		if l == nil {
			continue
		}
		l.last = max(l.last, e.At)
		switch e.Kind {
		case Alive:
			if !deposed(reigns, e) {
				l.alive = append(l.alive, e)
			}
		case Fenced:
			l.fenced = append(l.fenced, e)
		case Owns, Released:
			l.owned = append(l.owned, e)
		}
	}
	for _, l := range all {
		slices.SortStableFunc(l.alive, byTime)
		slices.SortStableFunc(l.fenced, byTime)
		slices.SortStableFunc(l.owned, byTime)
	}
	return all
}

// reignsIn are the coordinators' loads, in the order of time.
func reignsIn(events []Event) []Event {
	var reigns []Event
	for _, e := range events {
		if e.Kind == Reigns {
			reigns = append(reigns, e)
		}
	}
	slices.SortStableFunc(reigns, byTime)
	return reigns
}

// deposed says whether an answer came from a broker that was not the coordinator any more
// when it was asked.
func deposed(reigns []Event, e Event) bool {
	var now *Event
	for i := range reigns {
		if reigns[i].At > e.Sent {
			break
		}
		now = &reigns[i]
	}
	return now != nil && e.Broker != "" && e.Broker != now.Broker
}

// never is the end of what has none.
const never = int64(1<<63 - 1)

// intervals finds, by partition and in the order of time, who owned what when. See the
// package comment for what ends an interval.
func intervals(events []Event) map[int32][]interval {
	all := lives(events)
	taken := takeovers(events)
	found := map[int32][]interval{}
	for name, l := range all {
		for i, e := range l.owned {
			if e.Kind != Owns {
				continue
			}
			for _, p := range e.Partitions {
				in := interval{member: name, from: e.At, to: never, why: "it goes on"}
				in.cut(l.released(i, p), "it was released")
				in.cut(l.fence(e.At))
				in.cut(l.sessionEnd(in.to), "the session was over")
				in.cut(l.tooSlow(p, e.At, in.to), "the rebalance timeout was over")
				if l.start.Instance != "" {
					for _, t := range taken[l.start.Instance] {
						if t.Member != name && t.Sent >= e.At {
							in.cut(t.Sent, "replaced by "+t.Member)
						}
					}
				}
				for _, a := range l.alive {
					if a.At <= e.At {
						in.generation = max(in.generation, a.Generation)
					}
				}
				if in.to > in.from {
					found[p] = append(found[p], in)
				}
			}
		}
	}
	for _, in := range found {
		slices.SortFunc(in, func(a, b interval) int { return int(min(1, max(-1, a.from-b.from))) })
	}
	return found
}

func (in *interval) cut(at int64, why string) {
	if at < in.to {
		in.to, in.why = at, why
	}
}

// released is when the partition that was assigned by the i-th event was given up.
func (l *life) released(i int, p int32) int64 {
	for _, e := range l.owned[i+1:] {
		if e.Kind == Released && slices.Contains(e.Partitions, p) {
			return e.At
		}
	}
	return never
}

func (l *life) fence(after int64) (at int64, why string) {
	for _, e := range l.fenced {
		if e.At >= after {
			return e.At, "it was told " + kerr.ErrorForCode(e.Code).Error()
		}
	}
	return never, ""
}

// sessionEnd is when a member that was alive up to a time must have thought its
// session over.
func (l *life) sessionEnd(upTo int64) int64 {
	newest := int64(0)
	for _, a := range l.alive {
		if a.Sent <= upTo {
			newest = max(newest, a.Sent)
		}
	}
	return newest + int64(l.start.Session)
}

// tooSlow is when a member must have thought that a rebalance went on without it.
func (l *life) tooSlow(p int32, from, upTo int64) int64 {
	if l.start.Protocol == Consumer {
		for _, a := range l.alive {
			if a.Told && a.At > from && !slices.Contains(a.Partitions, p) {
				return a.Sent + int64(l.start.Rebalance)
			}
		}
		return never
	}
	newest := int64(0)
	for _, a := range l.alive {
		if a.Sent <= upTo && !a.Rebalancing {
			newest = max(newest, a.Sent)
		}
	}
	return newest + int64(l.start.Rebalance)
}

// expellable is from when on the coordinator may have thrown a member out, by what the
// member knew before a time.
func (l *life) expellable(before int64) int64 {
	var newest, calm int64
	for _, a := range l.alive {
		if a.At >= before || a.Key == int16(kmsg.JoinGroup) { // a join that is answered may be lost with its coordinator
			continue
		}
		newest = max(newest, a.Sent)
		if !a.Rebalancing {
			calm = max(calm, a.Sent)
		}
	}
	at := newest + int64(l.start.Session)
	if l.start.Protocol != Consumer {
		return min(at, calm+int64(l.start.Rebalance))
	}
	for i, e := range l.owned {
		for _, p := range e.Partitions {
			if e.Kind == Owns && l.released(i, p) >= before {
				at = min(at, l.tooSlow(p, e.At, before))
			}
		}
	}
	return at
}

// takeovers are the joins of static members of the classic protocol that put
// themselves in the place of whoever had the instance id.
func takeovers(events []Event) map[string][]Event {
	byInstance := map[string][]Event{}
	for _, e := range events {
		if e.Kind == Joining && e.Key == int16(kmsg.JoinGroup) {
			byInstance[e.Instance] = append(byInstance[e.Instance], e)
		}
	}
	return byInstance
}
