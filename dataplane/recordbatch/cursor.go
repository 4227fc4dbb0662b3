package recordbatch

import (
	"errors"
	"io"
)

var (
	errRecordEOF = errors.New("records end early")
	errVarint    = errors.New("varint too long or out of range")
	errRecord    = errors.New("record is malformed")
	errRemaining = errors.New("bytes remain after the last record")
)

// cursor walks encoded records, either all in buf or coming through d in chunks, so
// that a check of a compressed batch needs one chunk of memory whatever it unfolds to.
// The first error sticks.
type cursor struct {
	buf  []byte
	d    *decoder // nil: buf is all there is
	copy *encoder // what comes through d also goes there, if not nil
	left int64    // how many bytes d may still give
	over error    // what it is if d gives more
	pos  int64    // bytes consumed
	err  error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.buf, c.d = nil, nil
}

// fill gets more bytes into the empty buf; false at the end or on error.
func (c *cursor) fill() bool {
	for c.d != nil {
		b, err := c.d.next()
		if err == io.EOF {
			c.d = nil
			return false
		}
		if err != nil {
			c.fail(err)
			return false
		}
		if c.left -= int64(len(b)); c.left < 0 {
			c.fail(c.over)
			return false
		}
		if c.copy != nil {
			if _, err := c.copy.Write(b); err != nil {
				c.fail(err)
				return false
			}
		}
		if len(b) > 0 {
			c.buf = b
			return true
		}
	}
	return false
}

func (c *cursor) more() bool { return len(c.buf) > 0 || c.fill() }

func (c *cursor) byte() byte {
	if !c.more() {
		c.fail(errRecordEOF)
		return 0
	}
	b := c.buf[0]
	c.buf = c.buf[1:]
	c.pos++
	return b
}

// varint reads a zigzag varint of 64 bits, up to 10 bytes.
func (c *cursor) varint() int64 { return c.zigzag(63, 1) }

// varint32 reads a zigzag varint of 32 bits, up to 5 bytes: Kafka's consumer takes no more.
func (c *cursor) varint32() int32 { return int32(c.zigzag(28, 15)) }

// zigzag reads a varint whose last byte, at the shift named, may be at most most.
func (c *cursor) zigzag(last uint, most byte) int64 {
	// Nearly all have one or two bytes, and lie whole in buf.
	if b := c.buf; len(b) >= 2 {
		switch {
		case b[0] < 0x80:
			c.buf = b[1:]
			c.pos++
			return int64(b[0]>>1) ^ -int64(b[0]&1)
		case b[1] < 0x80:
			c.buf = b[2:]
			c.pos += 2
			u := uint64(b[0]&0x7f) | uint64(b[1])<<7
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	var u uint64
	for shift := uint(0); shift <= last; shift += 7 {
		b := c.byte()
		if shift == last && b > most {
			break
		}
		u |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return int64(u>>1) ^ -int64(u&1)
		}
	}
	c.fail(errVarint)
	return 0
}

func (c *cursor) skip(n int64) {
	if n > 0 && n <= int64(len(c.buf)) {
		c.buf = c.buf[n:]
		c.pos += n
		return
	}
	for n > 0 {
		if !c.more() {
			c.fail(errRecordEOF)
			return
		}
		k := min(n, int64(len(c.buf)))
		c.buf = c.buf[k:]
		c.pos += k
		n -= k
	}
}

// take gives n bytes; only for a cursor that has all in buf.
func (c *cursor) take(n int64) []byte {
	if n > int64(len(c.buf)) {
		c.fail(errRecordEOF)
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	c.pos += n
	return b
}

// head is what a check needs of one record.
type head struct {
	timestampDelta int64
	offsetDelta    int32
	nullKey        bool
}

// length reads a record's length.
func (c *cursor) length() int64 {
	n := int64(c.varint32())
	if n < 0 {
		c.fail(errRecord)
	}
	return n
}

// record walks over one record.
func (c *cursor) record() head {
	n := c.length()
	if c.err != nil {
		return head{}
	}
	h := c.body(c.pos+n, nil)
	if n > MaxRecord && c.d != nil {
		c.fail(errTooLarge)
	}
	return h
}

// body reads a record that ends at end, into out if that is not nil (then buf must
// hold all of it). A negative length of key or value is null, whichever it is, as Kafka reads it.
// The record's own attributes mean nothing in format version 2: no record in a
// batch can be compressed by itself.
func (c *cursor) body(end int64, out *Record) head {
	c.byte()
	h := head{timestampDelta: c.varint(), offsetDelta: c.varint32()}
	key, null := c.field(end, out != nil)
	h.nullKey = null
	value, _ := c.field(end, out != nil)
	n := c.varint32()
	if n < 0 || int64(n) > end-c.pos {
		c.fail(errRecord)
		return h
	}
	if out != nil {
		out.Key, out.Value, out.Headers = key, value, out.Headers[:0]
	}
	for ; n > 0 && c.err == nil; n-- {
		k, null := c.field(end, out != nil)
		if null {
			c.fail(errRecord)
		}
		v, _ := c.field(end, out != nil)
		if out != nil {
			out.Headers = append(out.Headers, Header{Key: string(k), Value: v})
		}
	}
	if c.pos != end {
		c.fail(errRecord)
	}
	return h
}

// field reads one length-prefixed byte string that may be null.
func (c *cursor) field(end int64, keep bool) (b []byte, null bool) {
	n := int64(c.varint32())
	if n > end-c.pos {
		c.fail(errRecord)
		return nil, true
	}
	if n < 0 {
		return nil, true
	}
	if keep {
		return c.take(n), false
	}
	c.skip(n)
	return nil, false
}
