package recordbatch

import (
	"fmt"
	"math"
)

// Entry is what compaction asks about one record; it is valid only during the call
// that it is given to.
type Entry struct {
	Offset    int64
	Key       []byte
	HasKey    bool // false: the key is null
	Tombstone bool // the value is null

	body    []byte // the record behind its length
	attr    byte
	tsDelta int64
	rest    []byte // from the offset delta on
}

// Entries calls fn for each record in order with its key. An error of fn ends the walk
// and is returned. It unfolds a compressed batch as Records does, and what is said
// there of fn holds here.
func Entries(b Batch, fn func(*Entry) error) error {
	use, leave, err := enterLane(b)
	if err != nil {
		return err
	}
	defer leave()
	return entries(b, use, fn)
}

// enterLane takes a place for the unfolding of b; leave must be called.
func enterLane(b Batch) (use int64, leave func(), err error) {
	if b.Codec() == CodecNone {
		return 0, func() {}, nil
	}
	if use, err = b.decoderUse(); err != nil {
		return 0, nil, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	readLane.enter(use)
	return use, func() { readLane.leave(use) }, nil
}

func entries(b Batch, use int64, fn func(*Entry) error) error {
	var e Entry
	var stop error
	err := walk(b, use, func(rec []byte) error {
		if err := e.parse(b, rec); err != nil {
			return err
		}
		stop = fn(&e)
		return stop
	})
	if err != nil && stop == nil {
		err = fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	return err
}

func (e *Entry) parse(b Batch, body []byte) error {
	c := cursor{buf: body}
	end := int64(len(body))
	e.body = body
	e.attr = c.byte()
	e.tsDelta = c.varint()
	e.rest = c.buf
	delta := c.varint32()
	if delta < 0 || delta > b.LastOffsetDelta() {
		c.fail(errRecord)
	}
	e.Offset = b.BaseOffset() + int64(delta)
	var null bool
	e.Key, null = c.field(end, true)
	e.HasKey = !null
	_, e.Tombstone = c.field(end, false)
	return c.err
}

// FilterOptions say what Filter does with a batch.
type FilterOptions struct {
	// Keep is called once a record, in order.
	Keep func(*Entry) bool
	// Horizon is the delete horizon (KIP-534) to put into a batch that has none and
	// keeps a tombstone, ms since 1970; negative: none.
	Horizon int64
	// Marker: the batch gets the horizon without a tombstone, too.
	Marker bool
}

// Filtered is what Filter did.
type Filtered struct {
	Records    int  // in the batch
	Kept       int  // of them
	Tombstones int  // of those kept
	Rewritten  bool // what was appended is not the batch as it was
}

// Filter appends to dst the batch without the records that Keep refuses. A batch of
// which all stays, and that needs no new delete horizon, is appended as it is. Else it
// is built anew with its codec: offsets, producer fields and the last offset stay;
// with a new horizon that takes the place of the base timestamp, and the records'
// deltas are counted from it. Nothing is appended if no record stays (see AppendEmpty).
// The CRC of b must have been checked: the new batch gets one of its own.
func Filter(dst []byte, b Batch, o FilterOptions) ([]byte, Filtered, error) {
	var f Filtered
	use, leave, err := enterLane(b)
	if err != nil {
		return dst, f, err
	}
	defer leave()
	var kept bitmap
	maxTs := NoTimestamp
	err = entries(b, use, func(e *Entry) error {
		f.Records++
		if !o.Keep(e) {
			return nil
		}
		kept.set(f.Records - 1)
		f.Kept++
		if e.Tombstone {
			f.Tombstones++
		}
		maxTs = max(maxTs, b.timestamp(e.tsDelta))
		return nil
	})
	if err != nil || f.Kept == 0 {
		return dst, f, err
	}
	stamp := o.Horizon >= 0 && !b.HasDeleteHorizon() && (f.Tombstones > 0 || o.Marker)
	if f.Kept == f.Records && !stamp {
		return append(dst, b...), f, nil
	}
	f.Rewritten = true
	base := b.FirstTimestamp()
	if stamp {
		base = o.Horizon
	}
	start := len(dst)
	out, err := rebuild(append(dst, b[:HeaderSize]...), b, use, kept, base)
	if err != nil {
		return dst, f, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), err)
	}
	finishFiltered(out[start:], f.Kept, base, maxTs, stamp)
	return out, f, nil
}

// bitmap grows with the records that are really there, not with what a header claims.
type bitmap []uint64

func (m *bitmap) set(i int) {
	for len(*m) <= i/64 {
		*m = append(*m, 0)
	}
	(*m)[i/64] |= 1 << (i % 64)
}

func (m bitmap) has(i int) bool { return i/64 < len(m) && m[i/64]>>(i%64)&1 != 0 }

// rebuild appends the records that stay, folded with the batch's codec at its default level,
// their times counted from base.
func rebuild(dst []byte, b Batch, use int64, kept bitmap, base int64) ([]byte, error) {
	e, err := newEncoder(b.Codec(), b.Codec().DefaultLevel(), dst, len(dst)-HeaderSize+math.MaxInt32)
	if err != nil {
		return nil, err
	}
	defer e.release()
	p := scratches.Get().(*[]byte)
	defer scratches.Put(p)
	i := -1
	err = entries(b, use, func(r *Entry) error {
		if i++; !kept.has(i) {
			return nil
		}
		if base == b.FirstTimestamp() {
			*p = appendVarint((*p)[:0], int64(len(r.body)))
			if _, err := e.Write(*p); err != nil {
				return err
			}
			_, err := e.Write(r.body)
			return err
		}
		delta := b.timestamp(r.tsDelta) - base
		*p = appendVarint((*p)[:0], int64(1+varintLen(delta)+len(r.rest)))
		*p = appendVarint(append(*p, r.attr), delta)
		if _, err := e.Write(*p); err != nil {
			return err
		}
		_, err := e.Write(r.rest)
		return err
	})
	if err != nil {
		return nil, err
	}
	return e.finish()
}

func finishFiltered(b Batch, count int, base, maxTs int64, stamped bool) {
	attr := b.Attributes()
	if stamped {
		attr |= attrDeleteHorizon
	}
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	be.PutUint16(b[offAttributes:], uint16(attr))
	be.PutUint64(b[offFirstTimestamp:], uint64(base))
	if !b.IsLogAppendTime() {
		be.PutUint64(b[offMaxTimestamp:], uint64(maxTs))
	}
	be.PutUint32(b[offCount:], uint32(count))
	b.resetCRC()
}

// AppendEmpty appends what is left of a batch without its records: a header, as Kafka
// writes it, that keeps the offsets, the producer's last sequence and the epoch.
func AppendEmpty(dst []byte, b Batch) []byte {
	start := len(dst)
	dst = append(dst, b[:HeaderSize]...)
	h := Batch(dst[start:])
	be.PutUint32(h[offLength:], HeaderSize-LogOverhead)
	be.PutUint16(h[offAttributes:], uint16(b.Attributes()&(attrLogAppendTime|attrTransactional|attrControl)))
	noTime := NoTimestamp
	be.PutUint64(h[offFirstTimestamp:], uint64(noTime))
	be.PutUint32(h[offCount:], 0)
	h.resetCRC()
	return dst
}
