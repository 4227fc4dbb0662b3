package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/dataplane/brokertest/nemesis"
)

// Final is what the healed cluster says when all is over.
type Final struct {
	Ends    map[string]map[int32]int64 // of each partition
	Commits map[string]int64           // of each row of commits; absent: nothing
	Group   map[string]map[int32]int64 // what the consumer group has committed
}

// Check finds what the whole of a history shows, and returns every anomaly. It
// is called when readers have read up to the ends.
func (h *History) Check(f Final) []nemesis.Anomaly {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range h.sorted() {
		part, topic := h.parts[at], h.topics[at.Topic]
		if end, ok := f.Ends[at.Topic][at.Partition]; ok { // else it did not heal, which is an anomaly already
			h.checkLog(at, part, end)
			h.checkGroup(at, part, f.Group[at.Topic][at.Partition])
		}
		h.checkWrites(at, part, topic)
		if topic.Keeps && !topic.Once {
			h.checkLatest(at, part)
		}
	}
	for row, c := range h.commits {
		got, there := f.Commits[row]
		switch {
		case c.acked >= 0 && !there:
			h.anomaly("commit lost", nemesis.TP{Topic: row, Partition: 0}, "%d was acknowledged, nothing is there", c.acked)
		case there && got < c.acked:
			h.anomaly("commit back", nemesis.TP{Topic: row, Partition: 0}, "%d was acknowledged, %d is there", c.acked, got)
		case there && got > c.sent:
			h.anomaly("commit invented", nemesis.TP{Topic: row, Partition: 0}, "%d is there, the last that was sent is %d", got, c.sent)
		}
	}
	return h.Anomalies()
}

func (h *History) sorted() []nemesis.TP {
	var all []nemesis.TP
	for at := range h.parts {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b nemesis.TP) int {
		return slices.Compare([]string{a.Topic, fmt.Sprintf("%09d", a.Partition)}, []string{b.Topic, fmt.Sprintf("%09d", b.Partition)})
	})
	return all
}

// checkLog holds what was read against the log's end.
func (h *History) checkLog(at nemesis.TP, part *partition, end int64) {
	if part.maxHW > end {
		h.anomaly("hw back", at, "the watermark has been at %d, the log ends at %d", part.maxHW, end)
	}
	if int64(len(part.log)) > end {
		h.anomaly("read is gone", at, "offset %d has been read, the log ends at %d", len(part.log)-1, end)
	}
	for offset := int64(0); offset < end; offset++ {
		if offset >= int64(len(part.log)) || !part.log[offset].seen {
			h.anomaly("unreadable", at, "offset %d was not read, the log ends at %d", offset, end)
			break
		}
	}
	for i := 1; i < len(part.log); i++ {
		if a, b := part.log[i-1], part.log[i]; a.seen && b.seen && b.epoch < a.epoch {
			h.anomaly("epoch back", at, "from %d to %d at offset %d", a.epoch, b.epoch, i)
		}
	}
}

// checkWrites holds what was sent and acknowledged against what was read.
func (h *History) checkWrites(at nemesis.TP, part *partition, topic Topic) {
	places := map[int][]int64{} // writer -> by sequence the first offset, -1 for none
	for w, sent := range part.writes {
		places[w] = slices.Repeat([]int64{-1}, len(sent))
	}
	last := map[int32]int64{}
	twice, disorder := 0, 0
	for offset, e := range part.log {
		if !e.seen || e.seq < 0 || e.seq >= int64(len(places[int(e.writer)])) {
			continue
		}
		if first := places[int(e.writer)][e.seq]; first >= 0 {
			if topic.Once {
				if twice++; twice <= 5 {
					h.anomaly("duplicate", at, "record %d of writer %d is at %d and at %d", e.seq, e.writer, first, offset)
				}
			}
			continue
		}
		places[int(e.writer)][e.seq] = int64(offset)
		if before, ok := last[e.writer]; ok && e.seq < before && topic.Ordered {
			if disorder++; disorder <= 5 {
				h.anomaly("reordered", at, "record %d of writer %d is at %d, behind its record %d", e.seq, e.writer, offset, before)
			}
		}
		last[e.writer] = max(last[e.writer], e.seq)
	}
	lost := 0
	for w, sent := range part.writes {
		for seq, s := range sent {
			switch place := places[w][seq]; {
			case s.acked == 0:
			case place < 0 && !topic.Keeps:
				h.counts.Lost++
			case place < 0:
				if lost++; lost <= 5 {
					h.anomaly("lost", at, "record %d of writer %d, acknowledged at %.3fs for offset %d%s", seq, w, s.acked.Seconds(), s.offset, h.whatIsAt(part, s.offset))
				}
			case topic.Keeps && topic.Once && s.offset >= 0 && s.offset != place:
				h.anomaly("misplaced", at, "record %d of writer %d was acknowledged for offset %d and is at %d", seq, w, s.offset, place)
			}
		}
	}
	for what, n := range map[string]int{"lost": lost, "duplicate": twice, "reordered": disorder} {
		if n > 5 {
			h.anomaly(what, at, "%d in all", n)
		}
	}
}

func (h *History) whatIsAt(part *partition, offset int64) string {
	if offset < 0 || offset >= int64(len(part.log)) || !part.log[offset].seen {
		return ", where nothing is"
	}
	e := part.log[offset]
	return fmt.Sprintf(", where record %d of writer %d is, epoch %d", e.seq, e.writer, e.epoch)
}

// checkLatest finds answers about the end of what is committed that are below a
// record acknowledged before the question. A leader that does not know yet that
// it was deposed may lag behind its successors, so only records of epochs up to
// its own count. Not of an idempotent producer: its record may be of the deposed
// one's epoch, and acknowledged by the successor, which knows it for a duplicate.
func (h *History) checkLatest(at nemesis.TP, part *partition) {
	acks := slices.Clone(part.acks)
	slices.SortStableFunc(acks, func(a, b ack) int { return int(a.at - b.at) })
	asked := slices.Clone(part.latest)
	slices.SortStableFunc(asked, func(a, b latest) int { return int(a.asked - b.asked) })
	largest := map[int32]ack{} // by epoch
	next := 0
	for _, q := range asked {
		for ; next < len(acks) && acks[next].at < q.asked; next++ {
			a := acks[next]
			if a.offset < 0 || a.offset >= int64(len(part.log)) || !part.log[a.offset].seen {
				continue
			}
			epoch := part.log[a.offset].epoch
			if old, ok := largest[epoch]; !ok || a.offset > old.offset {
				largest[epoch] = a
			}
		}
		for epoch, a := range largest {
			if epoch <= q.epoch && a.offset >= q.offset {
				h.anomaly("stale end", at, "asked at %.3fs under epoch %d the end was %d, offset %d of epoch %d had been acknowledged at %.3fs",
					q.asked.Seconds(), q.epoch, q.offset, a.offset, epoch, a.at.Seconds())
				return
			}
		}
	}
}

// checkGroup says that no record below the group's committed offset was kept
// from its members.
func (h *History) checkGroup(at nemesis.TP, part *partition, committed int64) {
	for offset := int64(0); offset < committed; offset++ {
		if offset >= int64(len(part.delivered)) || !part.delivered[offset] {
			h.anomaly("skipped", at, "the group has committed %d, no member was given %d", committed, offset)
			return
		}
	}
	if committed < part.group {
		h.anomaly("commit back", at, "the group had committed %d, now it is %d", part.group, committed)
	}
}

// GroupCommitted notes an acknowledged commit of the consumer group.
func (h *History) GroupCommitted(topic string, p int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.part(topic, p)
	part.group = max(part.group, offset)
}

// Report is for people: the anomalies by kind, and what the run was made of.
func Report(anomalies []nemesis.Anomaly, c Counts, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %d records sent, %d acknowledged, %d given up, %d read, %d delivered to the group, %d commits, %d questions for the end\n",
		took.Round(time.Second), c.Sent, c.Acked, c.Failed, c.Read, c.Delivered, c.Commits, c.Latest)
	fmt.Fprintf(&b, "acknowledged with acks=1 or 0 and lost, as is allowed: %d\n", c.Lost)
	b.WriteString(nemesis.Summary(anomalies))
	return b.String()
}
