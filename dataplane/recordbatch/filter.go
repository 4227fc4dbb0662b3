package recordbatch

import (
	"fmt"
)

// Entry is what compaction asks about one record; it is valid only during the call
// that it is given to.
type Entry struct {
	Offset    int64
	Key       []byte
	HasKey    bool // false: the key is null
	Tombstone bool // the value is null

	whole   []byte // the record with its length
	attr    byte
	tsDelta int64
	rest    []byte // from the offset delta on
}

// Entries calls fn for each record in order with its key, decompressing if needed, at
// most DefaultMaxDecompressed bytes. An error of fn ends the walk and is returned.
func Entries(b Batch, fn func(*Entry) error) error {
	payload, done, err := unfold(b)
	if err != nil {
		return err
	}
	defer done()
	return entries(b, payload, fn)
}

// unfold gives the records part of a batch, decompressed; done must be called.
func unfold(b Batch) (payload []byte, done func(), err error) {
	if b.Codec() == CodecNone {
		return b.Payload(), func() {}, nil
	}
	if payload, done, err = decompress(b, DefaultMaxDecompressed); err != nil {
		return nil, nil, fmt.Errorf("decompress batch at offset %d: %w", b.BaseOffset(), err)
	}
	return payload, done, nil
}

func entries(b Batch, payload []byte, fn func(*Entry) error) error {
	c := cursor{buf: payload}
	var e Entry
	for n := b.Count(); n > 0; n-- {
		start := c.buf
		length := int64(c.varint32())
		if length < 0 {
			c.fail(errRecord)
		}
		body := c.take(length)
		if c.err != nil {
			return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), c.err)
		}
		e.whole = start[:len(start)-len(c.buf)]
		if err := e.parse(b, body); err != nil {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
	if len(c.buf) > 0 {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), errRemaining)
	}
	return nil
}

func (e *Entry) parse(b Batch, body []byte) error {
	c := cursor{buf: body}
	end := int64(len(body))
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
	if c.err != nil {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), c.err)
	}
	return nil
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
	payload, done, err := unfold(b)
	if err != nil {
		return dst, f, err
	}
	defer done()
	kept := make([]uint64, (max(0, min(int(b.Count()), len(payload)))+63)/64) // a record has more than a byte
	maxTs := NoTimestamp
	err = entries(b, payload, func(e *Entry) error {
		i := f.Records
		f.Records++
		if !o.Keep(e) {
			return nil
		}
		kept[i/64] |= 1 << (i % 64)
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
	p := buffers.Get().(*[]byte)
	body := (*p)[:0]
	i := 0
	err = entries(b, payload, func(e *Entry) error {
		if kept[i/64]>>(i%64)&1 != 0 {
			if stamp {
				body = e.appendWithDelta(body, b.timestamp(e.tsDelta)-base)
			} else {
				body = append(body, e.whole...)
			}
		}
		i++
		return nil
	})
	if err == nil {
		start := len(dst)
		dst = append(dst, b[:HeaderSize]...)
		if dst, err = compress(b.Codec(), dst, body); err == nil {
			err = finishFiltered(dst[start:], f.Kept, base, maxTs, stamp)
		}
	}
	if cap(body) <= 1<<20 {
		*p = body
		buffers.Put(p)
	}
	return dst, f, err
}

func finishFiltered(b Batch, count int, base, maxTs int64, stamped bool) error {
	if int64(len(b)-LogOverhead) > 1<<31-1 {
		return fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), errTooLarge)
	}
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
	return nil
}

// appendWithDelta encodes the record anew with another timestamp delta.
func (e *Entry) appendWithDelta(dst []byte, delta int64) []byte {
	dst = appendVarint(dst, int64(1+varintLen(delta)+len(e.rest)))
	dst = append(dst, e.attr)
	dst = appendVarint(dst, delta)
	return append(dst, e.rest...)
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
