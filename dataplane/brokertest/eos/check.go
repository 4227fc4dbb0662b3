package eos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/dataplane/brokertest/nemesis"
)

// Final is what the healed cluster says when all is over.
type Final struct {
	Ends    map[nemesis.TP]int64 // of the logs; a partition that did not heal is not in it
	Offsets map[string]map[nemesis.TP]int64
}

// Check finds what the whole of a history shows, and returns every anomaly. It is
// called when the last reader has read up to the ends.
func (h *History) Check(f Final) []nemesis.Anomaly {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range sorted(h.committed) {
		h.checkTaken(at)
		h.checkVisible(at)
		h.checkEnd(at, f)
	}
	for _, name := range h.order {
		h.checkTorn(name, h.txns[name])
		if h.txns[name].outcome == "" {
			h.counts.Died++
		}
	}
	h.checkFeeds()
	for i, topic := range h.topics {
		h.checkOnce(topic)
		h.checkOrder(topic)
		if i > 0 {
			h.checkArrived(h.topics[i-1], topic)
		}
	}
	h.checkOffsets(f)
	return h.Anomalies()
}

func sorted[V any](m map[nemesis.TP]V) []nemesis.TP {
	return slices.SortedFunc(maps.Keys(m), func(a, b nemesis.TP) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// checkTaken: what was committed once is so for good.
func (h *History) checkTaken(at nemesis.TP) {
	for offset, s := range h.committed[at] {
		if s.first > 0 && !s.last {
			h.anomaly("dirty read", at, "%q at %d was given to %s at %.3fs, and is not committed in the end%s", s.value, offset, s.by, s.first.Seconds(), h.told(s.value))
		}
	}
}

// checkVisible holds each record that was read as committed against what its
// writer says: a commit was asked for, before, and the outcome was none other.
func (h *History) checkVisible(at nemesis.TP) {
	for offset, s := range h.committed[at] {
		if s.first == 0 {
			continue
		}
		in, name, ok := parse(s.value)
		t := h.txns[name]
		switch {
		case !ok || name != NoTxn && t == nil || name == NoTxn && at.Topic != h.topics[0]:
			h.anomaly("invented", at, "offset %d has %q, which nobody has sent", offset, s.value)
		case name == NoTxn:
		case t.to != at.Topic:
			h.anomaly("invented", at, "offset %d has %q of a transaction that writes to %s", offset, s.value, t.to)
		case t.gaveUp || t.outcome == Aborted:
			h.anomaly("aborted read", at, "offset %d, input %v, was given to %s at %.3fs%s", offset, in, s.by, s.first.Seconds(), h.told(s.value))
		case t.asked == 0:
			h.anomaly("dirty read", at, "offset %d, input %v, was given to %s at %.3fs, its commit was never asked for%s", offset, in, s.by, s.first.Seconds(), h.told(s.value))
		case s.first < t.asked:
			h.anomaly("dirty read", at, "offset %d, input %v, was given to %s at %.3fs, its commit was asked for at %.3fs%s",
				offset, in, s.by, s.first.Seconds(), t.asked.Seconds(), h.told(s.value))
		}
	}
}

// told is what there is to say of a value's transaction.
func (h *History) told(value string) string {
	_, name, _ := parse(value)
	t := h.txns[name]
	if t == nil {
		return ""
	}
	return fmt.Sprintf(" (transaction %s: %s)", name, t)
}

func (t *txn) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d records", len(t.sent))
	switch {
	case t.gaveUp:
		b.WriteString(", abort asked for")
	case t.asked > 0:
		fmt.Fprintf(&b, ", commit asked for at %.3fs", t.asked.Seconds())
	default:
		b.WriteString(", nothing asked for")
	}
	if t.outcome == "" {
		b.WriteString(", its client has died")
	} else {
		fmt.Fprintf(&b, ", %s", t.outcome)
	}
	return b.String()
}

// checkEnd: the stable offset never goes back, from leader to leader neither once
// all has healed. That it comes up to the end is asked of the brokers at each rest.
func (h *History) checkEnd(at nemesis.TP, f Final) {
	if end, ok := f.Ends[at]; ok && h.most[at] > end {
		h.anomaly("lso back", at, "the stable offset has been at %d, the log ends at %d", h.most[at], end)
	}
}

// checkTorn: of a transaction's records all are visible or none.
func (h *History) checkTorn(name string, t *txn) {
	if t.asked == 0 {
		return // none may be, which checkVisible says
	}
	var there, missing []string
	for _, p := range t.sent {
		at := nemesis.TP{Topic: t.to, Partition: p.Partition}
		place := fmt.Sprintf("%v at %d of partition %d", p.Input, p.Offset, p.Partition)
		if s := h.seenAt(at, p.Offset); s != nil && s.last {
			if in, by, _ := parse(s.value); in == p.Input && by == name {
				there = append(there, place)
				continue
			}
			place += fmt.Sprintf(" (where %q is)", s.value)
		}
		if all := h.all[at]; p.Offset < int64(len(all)) && all[p.Offset].first > 0 {
			place += " (read by those who read everything)"
		}
		missing = append(missing, place)
	}
	at := nemesis.TP{Topic: t.to, Partition: -1}
	switch {
	case len(missing) == 0:
	case len(there) > 0:
		h.anomaly("torn transaction", at, "%s (%s): there: %s; missing: %s", name, t, few(there), few(missing))
	case t.outcome == Committed:
		h.anomaly("lost write", at, "%s (%s): missing: %s", name, t, few(missing))
	}
}

func (h *History) seenAt(at nemesis.TP, offset int64) *sighting {
	log := h.committed[at]
	if offset < 0 || offset >= int64(len(log)) || log[offset].first == 0 {
		return nil
	}
	return &log[offset]
}

func few(all []string) string {
	if len(all) > 4 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:4], ", "), len(all)-4)
	}
	return strings.Join(all, ", ")
}

// checkFeeds: what was acknowledged outside of transactions is there.
func (h *History) checkFeeds() {
	for in, p := range h.acked {
		at := nemesis.TP{Topic: h.topics[0], Partition: p.Partition}
		s := h.seenAt(at, p.Offset)
		if s == nil || s.value != in.value(NoTxn) {
			what := "nothing"
			if s != nil {
				what = fmt.Sprintf("%q", s.value)
			}
			h.anomaly("lost write", at, "input %v was acknowledged at %d, where %s is", in, p.Offset, what)
		}
	}
}

// limit is how many anomalies of a kind are told of a topic one by one.
const limit = 5

// checkOnce: each input is once in a topic.
func (h *History) checkOnce(topic string) {
	type place struct {
		at     nemesis.TP
		offset int
		value  string
	}
	first := map[Input]place{}
	twice := 0
	for _, at := range h.partitions(topic) {
		for offset, s := range h.committed[at] {
			in, _, ok := parse(s.value)
			if !ok || !s.last {
				continue
			}
			if f, there := first[in]; there {
				if twice++; twice <= limit {
					h.anomaly("duplicate", at, "input %v is at %d of partition %d as %q%s and at %d as %q%s",
						in, f.offset, f.at.Partition, f.value, h.told(f.value), offset, s.value, h.told(s.value))
				}
				continue
			}
			first[in] = place{at, offset, s.value}
		}
	}
	if twice > limit {
		h.anomaly("duplicate", nemesis.TP{Topic: topic, Partition: -1}, "%d in all", twice)
	}
}

func (h *History) partitions(topic string) []nemesis.TP {
	return slices.DeleteFunc(sorted(h.committed), func(at nemesis.TP) bool { return at.Topic != topic })
}

// checkOrder: a feeder sends the inputs of a key in rising order, and a key's are
// all in one partition. Each partition has a key's inputs in that order.
func (h *History) checkOrder(topic string) {
	disorder := 0
	for _, at := range h.partitions(topic) {
		last := map[string]Input{}
		for offset, s := range h.committed[at] {
			in, _, ok := parse(s.value)
			if !ok || !s.last {
				continue
			}
			k := in.key()
			if before, there := last[k]; there && in.Seq < before.Seq {
				if disorder++; disorder <= limit {
					h.anomaly("reordered", at, "input %v of key %s is at %d, behind %v%s", in, k, offset, before, h.told(s.value))
				}
				continue
			}
			last[k] = in
		}
	}
	if disorder > limit {
		h.anomaly("reordered", nemesis.TP{Topic: topic, Partition: -1}, "%d in all", disorder)
	}
}

// checkArrived: all that is in a topic has been passed on to the next.
func (h *History) checkArrived(from, to string) {
	there := map[Input]bool{}
	for _, at := range h.partitions(to) {
		for _, s := range h.committed[at] {
			if in, _, ok := parse(s.value); ok && s.last {
				there[in] = true
			}
		}
	}
	lost := 0
	for _, at := range h.partitions(from) {
		for offset, s := range h.committed[at] {
			in, _, ok := parse(s.value)
			if !ok || !s.last || there[in] {
				continue
			}
			if lost++; lost <= limit {
				h.anomaly("lost write", nemesis.TP{Topic: to, Partition: -1}, "input %v, at %d of %s, was never passed on; who had it: %s", in, offset, at, h.consumers(at, int64(offset)))
			}
		}
	}
	if lost > limit {
		h.anomaly("lost write", nemesis.TP{Topic: to, Partition: -1}, "%d in all", lost)
	}
}

// consumers are the transactions that consumed a partition up to just beyond the
// offset, the nearest first.
func (h *History) consumers(at nemesis.TP, offset int64) string {
	var names []string
	for _, name := range h.order {
		if t := h.txns[name]; t.from == at.Topic && t.next[at.Partition] > offset {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(h.txns[a].next[at.Partition], h.txns[b].next[at.Partition])
	})
	var told []string
	for _, name := range names[:min(len(names), 3)] {
		told = append(told, fmt.Sprintf("%s up to %d (%s)", name, h.txns[name].next[at.Partition], h.txns[name]))
	}
	return few(told)
}

// checkOffsets holds the answers about committed offsets against each other and
// against the transactions that have asked for their commit, and are committed. Brokers that do not know
// yet that they have been deposed may lag behind each other, so while the run goes
// on only one broker's answers must never go back.
func (h *History) checkOffsets(f Final) {
	for key, looks := range h.looks {
		allowed := map[int64]time.Duration{} // offset -> when its commit was first asked for
		for name, t := range h.txns {
			next, ok := t.next[key.at.Partition]
			if t.group != key.group || t.from != key.at.Topic || !ok || t.asked == 0 || !h.committedIn(name, t) {
				continue
			}
			if first, there := allowed[next]; !there || t.asked < first {
				allowed[next] = t.asked
			}
		}
		last := map[int32]look{}
		most := int64(-1)
		back, dirty := 0, 0
		for _, l := range looks {
			if before, ok := last[l.broker]; ok && l.offset < before.offset {
				if back++; back <= limit {
					h.anomaly("offsets back", key.at, "group %s: broker %d said %d at %.3fs and %d at %.3fs", key.group, l.broker, before.offset, before.at.Seconds(), l.offset, l.at.Seconds())
				}
			}
			last[l.broker] = l
			most = max(most, l.offset)
			if asked, ok := allowed[l.offset]; l.offset >= 0 && (!ok || l.at < asked) {
				if dirty++; dirty <= limit {
					h.anomaly("dirty offsets", key.at, "group %s: broker %d said %d at %.3fs, no transaction had asked for the commit of that", key.group, l.broker, l.offset, l.at.Seconds())
				}
			}
		}
		if end, ok := f.Offsets[key.group][key.at]; ok && end < most {
			h.anomaly("offsets back", key.at, "group %s: %d had been committed, in the end it is %d", key.group, most, end)
		}
	}
}

// committedIn says whether a transaction is committed in the end: by its client's word, or,
// where there is none, by its records.
func (h *History) committedIn(name string, t *txn) bool {
	if t.outcome == Committed || t.outcome == Aborted {
		return t.outcome == Committed
	}
	for _, p := range t.sent {
		if s := h.seenAt(nemesis.TP{Topic: t.to, Partition: p.Partition}, p.Offset); s != nil {
			_, by, _ := parse(s.value)
			return s.last && by == name
		}
	}
	return len(t.sent) == 0
}

// Report is for people: the anomalies by kind, and what the run was made of.
func Report(anomalies []nemesis.Anomaly, c Counts, took time.Duration) string {
	return fmt.Sprintf("%v: %d inputs; %d transactions, %d committed, %d aborted, %d without a sure outcome, %d whose client died in them; "+
		"%d records read, %d answers about offsets; members: %d killed, %d more in the midst of a request, %d stopped for a while, %d replaced meanwhile, %d left or joined\n%s",
		took.Round(time.Second), c.Inputs, c.Txns, c.Committed, c.Aborted, c.Unsure, c.Died, c.Seen, c.Offsets, c.Kills, c.Deaths, c.Pauses, c.Replaced, c.Left, nemesis.Summary(anomalies))
}
