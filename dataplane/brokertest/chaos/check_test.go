package chaos

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCheckFindsEachAnomaly has one small history for each kind, and one that is
// as it should be.
func TestCheckFindsEachAnomaly(t *testing.T) {
	const topic = "t"
	rec := func(offset int64, epoch int32, seq int) Record {
		return Record{Offset: offset, Epoch: epoch, Writer: 1, Seq: seq}
	}
	// send sends n records of writer 1 and acknowledges the first of them in order.
	send := func(h *History, n, acked int) {
		for i := range n {
			seq := h.Sent(topic, 0, 1)
			if i < acked {
				h.Acked(topic, 0, 1, seq, int64(i))
			}
		}
	}
	good := func(h *History) Final {
		send(h, 3, 3)
		h.Latest(topic, 0, 1, h.Now(), 3)
		h.Read("a", topic, 0, 1, 2, 2, []Record{rec(0, 1, 0), rec(1, 1, 1)})
		h.Read("a", topic, 0, 1, 3, 3, []Record{rec(2, 1, 2)})
		h.Read("b", topic, 0, 1, 3, 3, []Record{rec(0, 1, 0), rec(1, 1, 1), rec(2, 1, 2)})
		for o := range int64(3) {
			h.Delivered(topic, 0, o)
		}
		h.GroupCommitted(topic, 0, 3)
		h.Commit("g", 4)
		h.Committed("g", 4)
		h.Commit("g", 5)
		return Final{Ends: map[string]map[int32]int64{topic: {0: 3}}, Commits: map[string]int64{"g": 5}, Group: map[string]map[int32]int64{topic: {0: 3}}}
	}
	for kind, change := range map[string]func(h *History, f *Final){
		"":          func(*History, *Final) {},
		"lost":      func(h *History, _ *Final) { h.Acked(topic, 0, 1, h.Sent(topic, 0, 1), 1) },
		"misplaced": func(h *History, _ *Final) { h.Acked(topic, 0, 1, 2, 7) },
		"given up":  func(h *History, _ *Final) { h.Failed(topic, 0, 1, h.Sent(topic, 0, 1), errors.New("no")) },
		"invented": func(h *History, f *Final) {
			h.Read("a", topic, 0, 1, 4, 4, []Record{rec(3, 1, 9)})
			f.Ends[topic][0] = 4
		},
		"duplicate": func(h *History, f *Final) {
			h.Read("a", topic, 0, 1, 4, 4, []Record{rec(3, 1, 2)})
			f.Ends[topic][0] = 4
		},
		"changed": func(h *History, _ *Final) { h.Read("b", topic, 0, 2, 3, 3, []Record{rec(2, 2, 1)}) },
		"uncommitted": func(h *History, f *Final) {
			h.Sent(topic, 0, 1)
			h.Read("a", topic, 0, 1, 3, 3, []Record{rec(3, 1, 3)})
			f.Ends[topic][0] = 4
		},
		"reordered": func(h *History, f *Final) {
			send(h, 2, 0)
			h.Read("a", topic, 0, 1, 5, 5, []Record{rec(3, 1, 4), rec(4, 1, 3)})
			f.Ends[topic][0] = 5
		},
		"epoch back": func(h *History, f *Final) {
			h.Sent(topic, 0, 1)
			h.Read("a", topic, 0, 1, 4, 4, []Record{rec(3, 0, 3)})
			f.Ends[topic][0] = 4
		},
		"hw back":         func(h *History, _ *Final) { h.Read("a", topic, 0, 1, 2, 3, nil) },
		"lso back":        func(h *History, _ *Final) { h.Read("a", topic, 0, 1, 3, 2, nil) },
		"lso":             func(h *History, _ *Final) { h.Read("c", topic, 0, 1, 2, 3, nil) },
		"unreadable":      func(_ *History, f *Final) { f.Ends[topic][0] = 4 },
		"read is gone":    func(_ *History, f *Final) { f.Ends[topic][0] = 2 },
		"stale end":       func(h *History, _ *Final) { h.Latest(topic, 0, 1, h.Now()+time.Second, 2) },
		"skipped":         func(h *History, f *Final) { f.Group[topic][0] = 4 },
		"commit back":     func(_ *History, f *Final) { f.Commits["g"] = 3 },
		"commit lost":     func(_ *History, f *Final) { delete(f.Commits, "g") },
		"commit invented": func(_ *History, f *Final) { f.Commits["g"] = 6 },
	} {
		t.Run(strings.ReplaceAll(kind, " ", "-"), func(t *testing.T) {
			once := kind != "stale end" // an idempotent producer's acknowledgement does not tell which leader it came from
			h := NewHistory(io.Discard, Topic{Name: topic, Acks: "all", Keeps: true, Once: once, Ordered: true})
			f := good(h)
			change(h, &f)
			var kinds []string
			for _, a := range h.Check(f) {
				kinds = append(kinds, a.Kind)
			}
			if kind == "" && len(kinds) > 0 || kind != "" && !slices.Contains(kinds, kind) {
				t.Errorf("found %v", kinds)
			}
		})
	}
}

// TestCheckAllowsWhatIsAllowed has what looks bad and is not: losses and
// duplicates of those who asked for no better, a deposed leader that does not know
// it yet.
func TestCheckAllowsWhatIsAllowed(t *testing.T) {
	h := NewHistory(io.Discard, Topic{Name: "one", Acks: "1"}, Topic{Name: "all", Acks: "all", Keeps: true}, Topic{Name: "once", Acks: "all", Keeps: true, Once: true})
	h.Acked("once", 0, 3, h.Sent("once", 0, 3), 0) // by the leader of epoch 4, for a duplicate
	h.Read("a", "once", 0, 4, 1, 1, []Record{{0, 3, 3, 0}})
	h.Latest("once", 0, 3, h.Now()+time.Second, 0) // of the deposed one
	h.Acked("one", 0, 1, h.Sent("one", 0, 1), 0)
	h.Acked("one", 0, 1, h.Sent("one", 0, 1), 0)
	h.Read("a", "one", 0, 3, 2, 2, []Record{{0, 3, 1, 1}, {1, 3, 1, 1}})
	for i := range 2 {
		h.Acked("all", 0, 2, h.Sent("all", 0, 2), int64(i))
	}
	h.Read("a", "all", 0, 4, 2, 2, []Record{{0, 3, 2, 0}, {1, 4, 2, 1}})
	h.Latest("all", 0, 3, h.Now()+time.Second, 1)
	h.GroupCommitted("all", 1, 5) // of a partition that did not heal, and was not asked for
	f := Final{Ends: map[string]map[int32]int64{"one": {0: 2}, "all": {0: 2}, "once": {0: 1}}}
	if got := h.Check(f); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	if h.Counts().Lost != 1 {
		t.Errorf("%d lost", h.Counts().Lost)
	}
	h.Latest("all", 0, 4, h.Now()+time.Second, 1)
	if got := h.Check(f); len(got) != 1 || got[0].Kind != "stale end" {
		t.Errorf("found %v", got)
	}
}
