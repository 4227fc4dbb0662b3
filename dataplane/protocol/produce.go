package protocol

import (
	"encoding/binary"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A produce of one small record costs so little that kmsg's decoder shows: it makes
// the request, its arrays and its strings anew each time. Here they are taken from
// the request that had this memory before, which as a rule named the same topic.

var produces = sync.Pool{New: func() any { return kmsg.NewPtrProduceRequest() }}

// What a recycled request keeps at most, some 100 KiB: it is in no budget.
const (
	maxPooledTopics     = 16
	maxPooledPartitions = 128 // of each topic
)

// Recycle gives a decoded request back to be used again. Nobody may touch it
// afterwards, but for its strings.
func Recycle(r kmsg.Request) {
	req, ok := r.(*kmsg.ProduceRequest)
	if !ok || cap(req.Topics) > maxPooledTopics {
		return
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		if cap(t.Partitions) > maxPooledPartitions {
			t.Partitions = nil
		}
		clear(t.Partitions) // they alias the frame
	}
	produces.Put(req)
}

// readProduce reads a body of the versions that the table names into used memory.
// Tagged fields, of which these versions know none, are left out.
func readProduce(r *kmsg.ProduceRequest, version int16, body []byte) error {
	r.Version = version
	w := walker{b: body, version: version, flexible: version >= 9}
	if id, null := w.text(2); null {
		r.TransactionID = nil
	} else if r.TransactionID == nil || *r.TransactionID != string(id) {
		s := string(id)
		r.TransactionID = &s
	}
	r.Acks = w.i16()
	r.TimeoutMillis = w.i32()
	r.Topics = Again(r.Topics, w.count())
	for i := range r.Topics {
		t := &r.Topics[i]
		if version >= 13 {
			t.Topic, t.TopicID = "", w.uuid()
		} else if name, _ := w.text(2); t.Topic != string(name) { // does not allocate
			t.Topic = string(name)
		}
		t.Partitions = Again(t.Partitions, w.count())
		for j := range t.Partitions {
			p := &t.Partitions[j]
			p.Partition = w.i32()
			p.Records, _ = w.text(4)
			w.endOfStruct()
		}
		w.endOfStruct()
	}
	w.endOfStruct()
	if w.bad || len(w.b) > 0 {
		return ErrMalformed
	}
	return nil
}

// Again is s with n elements, which keep what they hold: to use their memory once more.
func Again[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	more := make([]T, n)
	copy(more, s[:cap(s)])
	return more
}

// count reads the length of an array; 0 for null.
func (w *walker) count() int {
	n := w.length(4)
	if n > len(w.b) { // no element is empty on the wire
		w.bad = true
	}
	if w.bad || n < 0 {
		return 0
	}
	return n
}

// text reads a string or byte field, whose bytes alias the body. width is that of
// its length in versions that are not flexible.
func (w *walker) text(width int) (b []byte, null bool) {
	n := w.length(width)
	if w.bad || n < 0 {
		return nil, true
	}
	if n > len(w.b) {
		w.bad = true
		return nil, true
	}
	b, w.b = w.b[:n:n], w.b[n:]
	return b, false
}

func (w *walker) i16() int16 {
	if len(w.b) < 2 {
		w.bad = true
		return 0
	}
	v := int16(binary.BigEndian.Uint16(w.b))
	w.b = w.b[2:]
	return v
}

func (w *walker) i32() int32 {
	if len(w.b) < 4 {
		w.bad = true
		return 0
	}
	v := int32(binary.BigEndian.Uint32(w.b))
	w.b = w.b[4:]
	return v
}

func (w *walker) uuid() (id UUID) {
	if len(w.b) < len(id) {
		w.bad = true
		return id
	}
	w.b = w.b[copy(id[:], w.b):]
	return id
}

// endOfStruct skips the tagged fields that end every struct of a flexible version.
func (w *walker) endOfStruct() {
	if w.flexible {
		w.tags()
	}
}
