package groups

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Protocol is how a group's members share its partitions.
type Protocol string

// The protocols.
const (
	Eager       Protocol = "eager"       // classic, range: all is given up at each rebalance
	Cooperative Protocol = "cooperative" // classic, cooperative-sticky (KIP-429)
	Consumer    Protocol = "consumer"    // KIP-848, uniform
)

// Anomaly is something that must not be.
type Anomaly struct {
	Kind      string `json:"kind"`
	Group     string `json:"group"`
	Partition int32  `json:"partition"` // -1: of the group
	Detail    string `json:"detail"`
}

func (a Anomaly) String() string {
	if a.Partition < 0 {
		return fmt.Sprintf("%-15s %s: %s", a.Kind, a.Group, a.Detail)
	}
	return fmt.Sprintf("%-15s %s, partition %d: %s", a.Kind, a.Group, a.Partition, a.Detail)
}

// incarnation is what is known of one while a run goes on.
type incarnation struct {
	start      Event
	ended      bool // or its worker was killed
	owns       map[int32]bool
	generation int32
	alive      Event // the newest answer of that kind
}

// History gathers the events of all logs. Its methods may be called by any goroutine.
type History struct {
	mu        sync.Mutex
	start     int64
	events    map[string][]Event // by group, in no order
	members   map[string]*incarnation
	anomalies []Anomaly
}

// NewHistory begins now.
func NewHistory() *History {
	return &History{start: now(), events: map[string][]Event{}, members: map[string]*incarnation{}}
}

// Add takes an event in. Those of one incarnation come in their order.
func (h *History) Add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events[e.Group] = append(h.events[e.Group], e)
	if e.Kind == Started {
		h.members[e.Member] = &incarnation{start: e, owns: map[int32]bool{}}
		return
	}
	m := h.members[e.Member]
	if m == nil {
		return // an observer's, or the run's
	}
	switch e.Kind {
	case Ended:
		m.ended = true
	case Alive:
		m.alive, m.generation = e, max(m.generation, e.Generation)
	case Owns:
		for _, p := range e.Partitions {
			m.owns[p] = true
		}
	case Released:
		for _, p := range e.Partitions {
			delete(m.owns, p)
		}
	}
}

// Anomaly notes one that the run itself has found.
func (h *History) Anomaly(kind, group string, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.anomalies = append(h.anomalies, Anomaly{kind, group, -1, fmt.Sprintf(format, args...)})
}

// Lost says that an incarnation's process was killed, and that it will not write any more.
func (h *History) Lost(member string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.members[member]; m != nil {
		m.ended = true
	}
}

// whole says why a group is not: each partition has one owner, and every member that
// lives is in the newest generation.
func (h *History) whole(group string, partitions int32) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	owners := map[int32]int{}
	newest := int32(0)
	for name, m := range h.members {
		if m.start.Group != group || m.ended {
			continue
		}
		for p := range m.owns {
			owners[p]++
		}
		newest = max(newest, m.generation)
		if m.alive.Rebalancing {
			return fmt.Errorf("%s is in a rebalance", name)
		}
	}
	for name, m := range h.members {
		if m.start.Group == group && !m.ended && m.generation != newest {
			return fmt.Errorf("%s is in generation %d, not %d", name, m.generation, newest)
		}
	}
	for p := range partitions {
		if owners[p] != 1 {
			return fmt.Errorf("partition %d has %d owners", p, owners[p])
		}
	}
	return nil
}

// generation is the newest that any member of the group has been told of.
func (h *History) generation(group string) int32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	newest := int32(0)
	for _, m := range h.members {
		if m.start.Group == group {
			newest = max(newest, m.generation)
		}
	}
	return newest
}

// living are the incarnations of a group that have not ended.
func (h *History) living(group string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name, m := range h.members {
		if m.start.Group == group && !m.ended {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// seconds is a time as people want to read it.
func (h *History) seconds(t int64) string {
	return fmt.Sprintf("%.3fs", time.Duration(t-h.start).Seconds())
}

// sorted are the names of all groups.
func (h *History) sorted() []string { return slices.Sorted(maps.Keys(h.events)) }

// byTime orders events by when they were written down.
func byTime(a, b Event) int { return cmp.Compare(a.At, b.At) }

// knows says whether the incarnation has written anything yet.
func (h *History) knows(member string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members[member] != nil
}
