package recordbatch

import (
	"fmt"
	"sync"
)

const (
	// MaxRecord bounds one record of a compressed batch, unfolded, in bytes.
	MaxRecord = 128 << 20
	// smallRecord is up to what size records are gathered without being charged
	// to recordBudget.
	smallRecord = 1 << 20
)

// gatherer holds records that came in more than one chunk.
type gatherer struct {
	buf  []byte
	held int64
}

var gatherers = sync.Pool{New: func() any { return new(gatherer) }}

// next gives the next record's bytes behind its length, whole; they are good until the
// next call. Nothing is copied that lies in one chunk.
func (g *gatherer) next(c *cursor) []byte {
	g.drop()
	n := c.length()
	if c.err != nil {
		return nil
	}
	if n <= int64(len(c.buf)) {
		return c.take(n)
	}
	if c.d == nil {
		c.fail(errRecordEOF)
		return nil
	}
	if n > MaxRecord {
		c.fail(errTooLarge)
		return nil
	}
	if n > smallRecord {
		acquire(recordBudget, n)
		g.held = n
	}
	// The buffer grows by what is there, not by what is claimed.
	for g.buf = g.buf[:0]; int64(len(g.buf)) < n; {
		if !c.more() {
			c.fail(errRecordEOF)
			return nil
		}
		g.buf = append(g.buf, c.take(min(n-int64(len(g.buf)), int64(len(c.buf))))...)
	}
	return g.buf
}

// drop gives a large record's memory back.
func (g *gatherer) drop() {
	if g.held > 0 {
		g.buf = nil
		recordBudget.Release(g.held)
		g.held = 0
	}
}

// walk calls fn with each record of b: its bytes behind the length. The caller
// holds a place of a lane for use, as decoderUse told, if b is compressed.
func walk(b Batch, use int64, fn func(rec []byte) error) error {
	c := cursor{buf: b.Payload()}
	if codec := b.Codec(); codec != CodecNone {
		d, err := newDecoder(codec, b.Payload(), use)
		if err != nil {
			return err
		}
		defer d.release()
		c = cursor{d: d, left: 1 << 62}
	}
	g := gatherers.Get().(*gatherer)
	defer gatherers.Put(g)
	defer g.drop()
	for i, n := int32(0), b.Count(); i < n; i++ {
		rec := g.next(&c)
		if c.err != nil {
			return fmt.Errorf("record %d of %d: %w", i, n, c.err)
		}
		if err := fn(rec); err != nil {
			return err
		}
	}
	if c.more() {
		return errRemaining
	}
	return c.err
}
