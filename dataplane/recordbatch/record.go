package recordbatch

import (
	"fmt"
	"sync"
)

// Header is one record header.
type Header struct {
	Key   string
	Value []byte // nil is a null value
}

// Record is one record of a batch. nil Key or Value is Kafka's null.
type Record struct {
	Offset    int64
	Timestamp int64 // ms since 1970
	Key       []byte
	Value     []byte
	Headers   []Header
}

var records = sync.Pool{New: func() any { return new(Record) }}

// Records calls fn for each record in order. The record and all it points to are
// valid only during the call. An error of fn ends the walk and is returned.
//
// A compressed batch is unfolded as the walk goes on, so memory does not depend on
// what it comes to: a record at most MaxRecord bytes long is held at a time, and all
// walks of the process share a bound (see lane). So fn must not call Records for another
// batch, or wait for something that does.
func Records(b Batch, fn func(Record) error) error {
	if b.Codec() == CodecNone {
		return eachRecord(b, 0, fn)
	}
	use, err := b.decoderUse()
	if err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	readLane.enter(use)
	defer readLane.leave(use)
	return eachRecord(b, use, fn)
}

func eachRecord(b Batch, use int64, fn func(Record) error) error {
	r := records.Get().(*Record)
	defer records.Put(r)
	var stop error
	err := walk(b, use, func(rec []byte) error {
		c := cursor{buf: rec}
		h := c.body(int64(len(rec)), r)
		if c.err != nil {
			return c.err
		}
		r.Offset = b.BaseOffset() + int64(h.offsetDelta)
		r.Timestamp = b.timestamp(h.timestampDelta)
		stop = fn(*r)
		return stop
	})
	clear(r.Headers[:cap(r.Headers)])
	*r = Record{Headers: r.Headers[:0]}
	if err != nil && stop == nil {
		err = fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	return err
}

// timestamp of a record by its delta.
func (b Batch) timestamp(delta int64) int64 {
	if b.IsLogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.FirstTimestamp() + delta
}
