package chaos

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/nemesis"
)

// Topic says what is promised of a topic's records.
type Topic struct {
	Name    string `json:"name"`
	Acks    string `json:"acks"`
	Keeps   bool   `json:"keeps"`   // what is acknowledged is there for good, at its offset
	Once    bool   `json:"once"`    // no record is there twice
	Ordered bool   `json:"ordered"` // a writer's records are in the order of its sends
}

// Record is what a reader found at an offset.
type Record struct {
	Offset int64
	Epoch  int32 // the leader epoch of its batch
	Writer int
	Seq    int
}

// write is one record that was sent; its place in partition.writes is its
// writer and sequence.
type write struct {
	acked  time.Duration // 0: it was not
	offset int64
}

// entry is what was read at an offset: the first to read it decides.
type entry struct {
	seen   bool
	writer int32
	epoch  int32
	seq    int64
}

type ack struct {
	at     time.Duration
	offset int64
}

// latest is an answer about the end of what is committed, by a leader of an
// epoch that the asker named.
type latest struct {
	asked  time.Duration
	epoch  int32
	offset int64
}

type partition struct {
	writes    map[int][]write
	log       []entry
	acks      []ack
	latest    []latest
	marks     map[string]int64 // by reader and epoch: the last watermark and stable offset
	delivered []bool           // to the consumer group
	group     int64            // what it has committed, acknowledged
	maxHW     int64
}

// commits is a row of rising offsets that one committer wrote for one partition
// of a group.
type commits struct {
	sent, acked int64
}

// History is what clients did and saw. Its methods may be called by any
// goroutine. What can be told at once is an anomaly at once; Check finds the
// rest when all is over.
type History struct {
	*nemesis.Journal

	mu      sync.Mutex
	topics  map[string]Topic
	parts   map[nemesis.TP]*partition
	commits map[string]*commits
	counts  Counts
}

// Counts tell what a run was made of.
type Counts struct {
	Sent, Acked, Failed, Read, Latest, Commits, Delivered int
	Lost                                                  int // where it is allowed
}

// NewHistory begins now; what is noted goes to out as lines of JSON.
func NewHistory(out io.Writer, topics ...Topic) *History {
	h := &History{Journal: nemesis.NewJournal(out), topics: map[string]Topic{}, parts: map[nemesis.TP]*partition{}, commits: map[string]*commits{}}
	for _, t := range topics {
		h.topics[t.Name] = t
		h.Note("topic", t)
	}
	return h
}

// Counts is what has been counted up to now.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

func (h *History) anomaly(kind string, at nemesis.TP, format string, args ...any) {
	h.Anomaly(kind, at.Topic, at.Partition, format, args...)
}

func (h *History) part(topic string, p int32) *partition {
	at := nemesis.TP{Topic: topic, Partition: p}
	if h.parts[at] == nil {
		h.parts[at] = &partition{writes: map[int][]write{}, marks: map[string]int64{}}
	}
	return h.parts[at]
}

// Sent notes that a writer is about to send its next record to a partition, and
// returns the record's sequence.
func (h *History) Sent(topic string, p int32, writer int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.part(topic, p)
	part.writes[writer] = append(part.writes[writer], write{})
	h.counts.Sent++
	return len(part.writes[writer]) - 1
}

// Acked notes that a record was acknowledged; the offset is -1 where the client
// is not told.
func (h *History) Acked(topic string, p int32, writer, seq int, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.part(topic, p)
	now := h.Now()
	part.writes[writer][seq] = write{acked: now, offset: offset}
	part.acks = append(part.acks, ack{now, offset})
	h.counts.Acked++
}

// Failed notes that a client gave a record up. It may be there all the same. No
// producer of a topic that keeps what it has acknowledged need do so, with one
// exception, see reset.
func (h *History) Failed(topic string, p int32, writer, seq int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Failed++
	var eof *kgo.ErrFirstReadEOF
	if h.topics[topic].Keeps && !errors.As(err, &eof) {
		h.anomaly("given up", nemesis.TP{Topic: topic, Partition: p}, "writer %d, record %d: %v", writer, seq, err)
	}
}

// Read notes a reply to a Fetch that named the leader's epoch.
func (h *History) Read(reader, topic string, p, epoch int32, hw, lso int64, records []Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := nemesis.TP{Topic: topic, Partition: p}
	part := h.part(topic, p)
	for what, offset := range map[string]int64{"hw": hw, "lso": lso} {
		key := fmt.Sprint(what, reader, epoch)
		if last := part.marks[key]; offset < last {
			h.anomaly(what+" back", at, "from %d to %d under one leader, epoch %d, seen by %s", last, offset, epoch, reader)
		}
		part.marks[key] = offset
	}
	if lso > hw {
		h.anomaly("lso", at, "stable offset %d is above the watermark %d", lso, hw)
	}
	part.maxHW = max(part.maxHW, hw)
	for _, r := range records {
		h.counts.Read++
		if r.Offset >= hw {
			h.anomaly("uncommitted", at, "%s was given offset %d with watermark %d", reader, r.Offset, hw)
		}
		for int64(len(part.log)) <= r.Offset {
			part.log = append(part.log, entry{})
		}
		got := entry{seen: true, writer: int32(r.Writer), epoch: r.Epoch, seq: int64(r.Seq)}
		switch first := part.log[r.Offset]; {
		case !first.seen:
			part.log[r.Offset] = got
			if r.Seq < 0 || r.Seq >= len(part.writes[r.Writer]) {
				h.anomaly("invented", at, "offset %d: record %d of writer %d was never sent", r.Offset, r.Seq, r.Writer)
			}
		case first != got:
			h.anomaly("changed", at, "offset %d was record %d of writer %d, epoch %d; %s sees record %d of writer %d, epoch %d",
				r.Offset, first.seq, first.writer, first.epoch, reader, got.seq, got.writer, got.epoch)
		}
	}
}

// Latest notes an answer to ListOffsets for the end of what is committed, which
// named the leader's epoch and was asked at that time.
func (h *History) Latest(topic string, p, epoch int32, asked time.Duration, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.part(topic, p)
	part.latest = append(part.latest, latest{asked, epoch, offset})
	h.counts.Latest++
}

// Commit notes that an offset is about to be committed for a row of commits.
func (h *History) Commit(row string, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.commits[row] == nil {
		h.commits[row] = &commits{sent: -1, acked: -1}
	}
	h.commits[row].sent = offset
}

// Committed notes that it was acknowledged.
func (h *History) Committed(row string, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.commits[row].acked = max(h.commits[row].acked, offset)
	h.counts.Commits++
}

// Delivered notes that a member of the consumer group got a record.
func (h *History) Delivered(topic string, p int32, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	part := h.part(topic, p)
	for int64(len(part.delivered)) <= offset {
		part.delivered = append(part.delivered, false)
	}
	part.delivered[offset] = true
	h.counts.Delivered++
}
