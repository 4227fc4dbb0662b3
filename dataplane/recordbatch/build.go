package recordbatch

import (
	"fmt"
	"math"
	"sync"
)

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
// BaseOffset (the records' own Offset is ignored), at the codec's default level.
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
	e, err := newEncoder(o.Codec, o.Codec.DefaultLevel(), make([]byte, HeaderSize, HeaderSize+len(body)), math.MaxInt32)
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	defer e.release()
	_, _ = e.Write(body) // the error sticks
	out, err := e.finish()
	if err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	var attr int16
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
	b.seal(o.Codec)
	return b, nil
}

// seal sets length, codec and checksum of a batch whose records have been changed.
func (b Batch) seal(c Codec) {
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	be.PutUint16(b[offAttributes:], uint16(b.Attributes()&^attrCodecMask|int16(c)))
	b.resetCRC()
}

// Rewrite re-encodes the records with consecutive offsets and codec c at a level of
// KIP-390, to a batch of at most limit bytes; the other header fields are kept. The
// caller owns what it gets.
func Rewrite(b Batch, c Codec, level, limit int) (Batch, error) {
	use, err := b.decoderUse()
	if err != nil {
		return nil, err
	}
	longLane.enter(use)
	defer longLane.leave(use)
	e, err := newEncoder(c, level, make([]byte, HeaderSize), limit)
	if err != nil {
		return nil, err
	}
	defer e.release()
	return renumber(b, use, e)
}

// sealed ends a copy of b's records in e, whose out began with room for the header.
func sealed(b Batch, e *encoder) (Batch, error) {
	out, err := e.finish()
	if err != nil {
		return nil, err
	}
	copy(out, b[:HeaderSize])
	Batch(out).seal(e.codec)
	return out, nil
}

// renumber writes b's records to e with offsets in a row, and seals the batch. The
// caller holds a place of a lane for use.
func renumber(b Batch, use int64, e *encoder) (Batch, error) {
	p := scratches.Get().(*[]byte)
	defer scratches.Put(p)
	n := int32(0)
	err := walk(b, use, func(rec []byte) error {
		c := cursor{buf: rec}
		attr, delta := c.byte(), c.varint()
		c.varint32() // the offset, taken anew
		if c.err != nil {
			return c.err
		}
		h := appendVarint((*p)[:0], int64(1+varintLen(delta)+varintLen(int64(n))+len(c.buf)))
		h = appendVarint(appendVarint(append(h, attr), delta), int64(n))
		*p = h
		n++
		if _, err := e.Write(h); err != nil {
			return err
		}
		_, err := e.Write(c.buf)
		return err
	})
	if err != nil {
		return nil, err
	}
	return sealed(b, e)
}

var scratches = sync.Pool{New: func() any { return new([]byte) }}

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
