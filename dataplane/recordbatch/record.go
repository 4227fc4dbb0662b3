package recordbatch

import (
	"fmt"
	"math"
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

// DefaultMaxDecompressed bounds what one batch may unfold to, in bytes.
const DefaultMaxDecompressed = 128 << 20

// Records calls fn for each record in order, decompressing if needed, at most
// DefaultMaxDecompressed bytes. The record and all it points to are valid only
// during the call. An error of fn ends the walk and is returned.
func Records(b Batch, fn func(Record) error) error {
	return recordsUpTo(b, DefaultMaxDecompressed, fn)
}

func recordsUpTo(b Batch, limit int64, fn func(Record) error) error {
	payload := b.Payload()
	if b.Codec() != CodecNone {
		p, done, err := decompress(b, limit)
		if err != nil {
			return fmt.Errorf("decompress batch at offset %d: %w", b.BaseOffset(), err)
		}
		defer done()
		payload = p
	}
	c := cursor{buf: payload}
	var r Record
	for n := b.Count(); n > 0; n-- {
		h := c.record(&r)
		if c.err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), c.err)
		}
		r.Offset = b.BaseOffset() + int64(h.offsetDelta)
		r.Timestamp = b.timestamp(h.timestampDelta)
		if err := fn(r); err != nil {
			return err
		}
	}
	if len(c.buf) > 0 {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), errRemaining)
	}
	return nil
}

// timestamp of a record by its delta.
func (b Batch) timestamp(delta int64) int64 {
	if b.IsLogAppendTime() {
		return b.MaxTimestamp()
	}
	return b.FirstTimestamp() + delta
}

// BuildOptions say how Build makes a batch. The zero value is not useful: start
// from NoProducer().
type BuildOptions struct {
	Codec         Codec
	BaseOffset    int64
	LeaderEpoch   int32
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool // all records carry the largest timestamp
}

// NoProducer is a BuildOptions without producer id, leader epoch -1.
func NoProducer() BuildOptions {
	return BuildOptions{LeaderEpoch: NoLeaderEpoch, ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence}
}

// Build encodes recs, at least one, as one batch with consecutive offsets from
// BaseOffset (the records' own Offset is ignored).
func Build(o BuildOptions, recs []Record) (Batch, error) {
	if len(recs) == 0 || len(recs) > math.MaxInt32 {
		return nil, fmt.Errorf("build batch: %d records", len(recs))
	}
	first, last := recs[0].Timestamp, recs[0].Timestamp
	var body []byte
	for i := range recs {
		last = max(last, recs[i].Timestamp)
		body = appendRecord(body, &recs[i], recs[i].Timestamp-first, int32(i))
	}
	return assemble(o, int32(len(recs)), first, last, body)
}

func assemble(o BuildOptions, count int32, first, last int64, body []byte) (Batch, error) {
	out, err := compress(o.Codec, make([]byte, HeaderSize, HeaderSize+len(body)), body)
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	if len(out)-LogOverhead > math.MaxInt32 {
		return nil, fmt.Errorf("build batch: %d bytes", len(out))
	}
	attr := int16(o.Codec) & attrCodecMask
	for _, f := range []struct {
		on  bool
		bit int16
	}{{o.LogAppendTime, attrLogAppendTime}, {o.Transactional, attrTransactional}, {o.Control, attrControl}} {
		if f.on {
			attr |= f.bit
		}
	}
	b := Batch(out)
	b.SetBaseOffset(o.BaseOffset)
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	b.SetLeaderEpoch(o.LeaderEpoch)
	b[offMagic] = Magic
	be.PutUint16(b[offAttributes:], uint16(attr))
	be.PutUint32(b[offLastOffsetDelta:], uint32(count-1))
	be.PutUint64(b[offFirstTimestamp:], uint64(first))
	be.PutUint64(b[offMaxTimestamp:], uint64(last))
	be.PutUint64(b[offProducerID:], uint64(o.ProducerID))
	be.PutUint16(b[offProducerEpoch:], uint16(o.ProducerEpoch))
	be.PutUint32(b[offBaseSequence:], uint32(o.BaseSequence))
	be.PutUint32(b[offCount:], uint32(count))
	b.resetCRC()
	return b, nil
}

func appendRecord(dst []byte, r *Record, tsDelta int64, offDelta int32) []byte {
	n := 1 + varintLen(tsDelta) + varintLen(int64(offDelta)) + fieldLen(r.Key) + fieldLen(r.Value) + varintLen(int64(len(r.Headers)))
	for i := range r.Headers {
		k := len(r.Headers[i].Key)
		n += varintLen(int64(k)) + k + fieldLen(r.Headers[i].Value)
	}
	dst = appendVarint(dst, int64(n))
	dst = append(dst, 0)
	dst = appendVarint(dst, tsDelta)
	dst = appendVarint(dst, int64(offDelta))
	dst = appendField(dst, r.Key)
	dst = appendField(dst, r.Value)
	dst = appendVarint(dst, int64(len(r.Headers)))
	for i := range r.Headers {
		dst = appendVarint(dst, int64(len(r.Headers[i].Key)))
		dst = append(dst, r.Headers[i].Key...)
		dst = appendField(dst, r.Headers[i].Value)
	}
	return dst
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return appendVarint(dst, -1)
	}
	return append(appendVarint(dst, int64(len(b))), b...)
}

func fieldLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

func zigzag(v int64) uint64 { return uint64(v<<1) ^ uint64(v>>63) }

func varintLen(v int64) int {
	n := 1
	for u := zigzag(v); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

func appendVarint(dst []byte, v int64) []byte {
	u := zigzag(v)
	for u >= 0x80 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}
