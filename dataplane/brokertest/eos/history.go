package eos

import (
	"io"
	"sync"
	"time"

	"penstock/dataplane/brokertest/nemesis"
)

// Deed is what a client tells of a transaction.
type Deed string

// The deeds. The asks are told before the client does so, the outcomes after.
const (
	Begins    Deed = "begins" // and what it has consumed for it
	Asks      Deed = "asks for a commit"
	GivesUp   Deed = "asks for an abort"
	Committed Deed = "committed"
	Aborted   Deed = "aborted"
	Unsure    Deed = "unsure" // the client was given an error
)

// Event is one line of a client's report.
type Event struct {
	At   time.Duration `json:"at"` // nemesis.Monotonic
	Txn  string        `json:"txn"`
	Deed Deed          `json:"deed"`
	// Next is with Begins: by input partition, the offset after what was consumed.
	Next map[int32]int64 `json:"next,omitempty"`
	// Sent is with Asks and GivesUp: what was acknowledged.
	Sent []Place `json:"sent,omitempty"`
	Err  string  `json:"err,omitempty"`
}

// Place is where a record was acknowledged.
type Place struct {
	Partition int32 `json:"p"`
	Offset    int64 `json:"o"`
	Input     Input `json:"in"`
}

// txn is all that is known of a transaction.
type txn struct {
	to      string // the topic that it writes to
	group   string // the group whose offsets it commits; "": none
	from    string
	next    map[int32]int64
	sent    []Place
	asked   time.Duration // for a commit; 0: never
	gaveUp  bool          // an abort was asked for
	outcome Deed          // Committed, Aborted, Unsure or ""
}

// sighting is what readers of committed data found at an offset: the first of them
// decides.
type sighting struct {
	value string
	first time.Duration // since the journal's start; 0: nobody
	by    string
	last  bool // the last reader has seen it, too
}

// look is an answer about a group's committed offset.
type look struct {
	at     time.Duration
	broker int32
	offset int64
}

type groupTP struct {
	group string
	at    nemesis.TP
}

// History is what clients did and saw. Its methods may be called by any goroutine.
type History struct {
	*nemesis.Journal
	topics []string // first to last

	mu        sync.Mutex
	txns      map[string]*txn
	order     []string                  // of txns
	acked     map[Input]Place           // of feeders outside of transactions
	committed map[nemesis.TP][]sighting // by readers of committed data
	all       map[nemesis.TP][]sighting // by those who read everything
	marks     map[mark]int64
	most      map[nemesis.TP]int64 // the highest last stable offset that was seen
	looks     map[groupTP][]look
	arrived   map[string]map[Input]bool // by topic, committed
	counts    Counts
}

type mark struct {
	what, reader string
	at           nemesis.TP
	epoch        int32
}

// Counts tell what a run was made of.
type Counts struct {
	Inputs                        int // sent by feeders
	Txns                          int
	Committed, Aborted, Unsure    int
	Died                          int // transactions whose client never told the end
	Seen, Offsets                 int
	Kills, Pauses, Replaced, Left int // of members
	Deaths                        int // of members that died between two steps of a transaction
}

// NewHistory begins now; what is noted goes to out as lines of JSON.
func NewHistory(out io.Writer, topics ...string) *History {
	return &History{
		Journal: nemesis.NewJournal(out), topics: topics,
		txns: map[string]*txn{}, acked: map[Input]Place{}, committed: map[nemesis.TP][]sighting{}, all: map[nemesis.TP][]sighting{},
		marks: map[mark]int64{}, most: map[nemesis.TP]int64{}, looks: map[groupTP][]look{}, arrived: map[string]map[Input]bool{},
	}
}

func (h *History) anomaly(kind string, at nemesis.TP, format string, args ...any) {
	h.Anomaly(kind, at.Topic, at.Partition, format, args...)
}

// Count changes the counts.
func (h *History) Count(f func(*Counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.counts)
}

// Counts is what has been counted up to now.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

// Acked notes an input that was acknowledged outside of a transaction.
func (h *History) Acked(in Input, at Place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked[in] = at
}

// Tell notes an event of a transaction that consumes from and commits offsets of a
// group, both empty for a feeder's, and writes to a topic.
func (h *History) Tell(e Event, group, from, to string) {
	h.Note("txn", e)
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.txns[e.Txn]
	if t == nil {
		t = &txn{group: group, from: from, to: to}
		h.txns[e.Txn] = t
		h.order = append(h.order, e.Txn)
		h.counts.Txns++
	}
	switch e.Deed {
	case Begins:
		t.next = e.Next
	case Asks:
		t.asked, t.sent = h.At(e.At), e.Sent
	case GivesUp:
		t.gaveUp, t.sent = true, e.Sent
	case Committed:
		t.outcome = e.Deed
		h.counts.Committed++
	case Aborted:
		t.outcome = e.Deed
		h.counts.Aborted++
	case Unsure:
		t.outcome = e.Deed
		h.counts.Unsure++
	}
}

// Read is a reply to a Fetch that named the leader's epoch, and the records that it
// gave to one who reads only committed data, or everything.
type Read struct {
	Reader    string
	Committed bool // it reads committed data only
	Last      bool // it is the last one, who begins when all is over
	At        nemesis.TP
	Epoch     int32
	HW, LSO   int64
	Records   []Record
}

// Record is one record of a Read.
type Record struct {
	Offset int64
	Value  string
}

// Saw notes a reply that has just come, and what can be told of it at once.
func (h *History) Saw(r Read) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.LSO > r.HW {
		h.anomaly("lso above hw", r.At, "stable offset %d, watermark %d, under epoch %d", r.LSO, r.HW, r.Epoch)
	}
	m := mark{"lso", r.Reader, r.At, r.Epoch}
	if last := h.marks[m]; r.LSO < last {
		h.anomaly("lso back", r.At, "from %d to %d under one leader, epoch %d, seen by %s", last, r.LSO, r.Epoch, r.Reader)
	}
	h.marks[m] = r.LSO
	h.most[r.At] = max(h.most[r.At], r.LSO)
	log, bound := h.all, r.HW
	if r.Committed {
		log, bound = h.committed, r.LSO
	}
	for _, rec := range r.Records {
		h.counts.Seen++
		if rec.Offset >= bound {
			h.anomaly("beyond the end", r.At, "%s was given offset %d, its bound was %d", r.Reader, rec.Offset, bound)
		}
		for int64(len(log[r.At])) <= rec.Offset {
			log[r.At] = append(log[r.At], sighting{})
		}
		s := &log[r.At][rec.Offset]
		switch {
		case s.first == 0:
			*s = sighting{value: rec.Value, first: now, by: r.Reader}
			if r.Committed {
				h.arrive(r.At.Topic, rec.Value)
			}
		case s.value != rec.Value:
			h.anomaly("changed", r.At, "offset %d was %q, %s sees %q", rec.Offset, s.value, r.Reader, rec.Value)
		}
		s.last = s.last || r.Last
	}
}

func (h *History) arrive(topic, value string) {
	in, _, ok := parse(value)
	if !ok {
		return // Check says so
	}
	if h.arrived[topic] == nil {
		h.arrived[topic] = map[Input]bool{}
	}
	h.arrived[topic][in] = true
}

// Arrived is how many inputs readers of committed data have seen in a topic.
func (h *History) Arrived(topic string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.arrived[topic])
}

// Looked notes a broker's answer about what a group has committed.
func (h *History) Looked(group string, at nemesis.TP, broker int32, offset int64) {
	now := h.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	key := groupTP{group, at}
	h.counts.Offsets++
	if all := h.looks[key]; len(all) > 0 {
		if l := all[len(all)-1]; l.broker == broker && l.offset == offset {
			return
		}
	}
	h.looks[key] = append(h.looks[key], look{now, broker, offset})
}
