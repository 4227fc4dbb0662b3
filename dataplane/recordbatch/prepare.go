package recordbatch

import (
	"errors"
	"math"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Prepare takes the records field of a produce request (version 3 or later) for one
// partition: exactly one batch, validated, rewritten where Validate says so. The
// result aliases records unless it had to be rewritten; then Info.Recycle gives its
// memory back. An incomplete batch behind the first is ignored, as Kafka does.
func Prepare(records []byte, o ValidateOptions) (Batch, Info, error) {
	b, err := only(records)
	if err != nil {
		return nil, Info{}, err
	}
	if err := checkHeader(b, &o); err != nil {
		return nil, Info{}, err
	}
	if b.Codec() == CodecNone && !o.recodes(b) {
		info, err := checkRecords(b, &o, nil, 0, nil)
		if err != nil || !info.Rewrite {
			return b, info, err
		}
	}
	use, err := b.decoderUse()
	if err != nil {
		return nil, Info{}, unreadable(b, err)
	}
	var out Batch
	var info Info
	err = inProduceLane(use, func(limit int64) error {
		out, info, err = convert(b, use, limit, &o)
		return err
	})
	return out, info, err
}

// convert checks the records, and brings the batch into the form that can be stored.
// Everything is unfolded once, and folded anew as it comes. The caller holds a
// place for use. errLong means that it unfolds to more than limit.
func convert(b Batch, use, limit int64, o *ValidateOptions) (_ Batch, info Info, err error) {
	codec, level := b.Codec(), b.Codec().DefaultLevel()
	var e *encoder
	var buf *[]byte
	begin := func() error {
		size := math.MaxInt32
		if o.MaxMessageBytes > 0 {
			size = o.MaxMessageBytes
		}
		buf = outputs.Get().(*[]byte)
		e, err = newEncoder(codec, level, (*buf)[:HeaderSize], size)
		return err
	}
	defer func() {
		if e == nil {
			return
		}
		if err != nil {
			*buf = e.out
			(&Info{buf: buf}).Recycle()
		}
		e.release()
	}()
	if o.recodes(b) {
		codec, level = o.Codec, o.Level
		if err := begin(); err != nil {
			return nil, Info{}, unreadable(b, err)
		}
	}
	if info, err = unfold(b, o, use, limit, e); err != nil || !info.Rewrite {
		return b, info, err
	}
	var out Batch
	switch {
	case !info.gaps:
		out, err = copied(b, e)
	case e == nil:
		if err = begin(); err != nil {
			break
		}
		out, err = renumber(b, use, e)
	default:
		// The copy has the gaps. Kafka's own clients never make such batches.
		e.restart((*buf)[:HeaderSize])
		out, err = renumber(b, use, e)
	}
	if err != nil {
		return nil, Info{}, unreadable(b, err)
	}
	*buf, info.buf = out, buf
	return out, info, nil
}

// copied ends a copy of all records of b in e.
func copied(b Batch, e *encoder) (Batch, error) {
	if b.Codec() == CodecNone {
		_, _ = e.Write(b.Payload()) // the error sticks
	}
	return sealed(b, e)
}

// maxOutput is the largest buffer that is kept for the next batch; the pool forgets it
// when it has not been used for two collections.
const maxOutput = 32 << 20

// outputs are buffers of rewritten batches.
var outputs = sync.Pool{New: func() any { b := make([]byte, HeaderSize, 64<<10); return &b }}

// Recycle gives back the memory of the batch that Prepare returned with this, if
// it had to be made: the batch must not be used afterwards.
func (i *Info) Recycle() {
	if i.buf != nil && cap(*i.buf) <= maxOutput {
		outputs.Put(i.buf)
	}
	i.buf = nil
}

// only demands exactly one batch.
func only(records []byte) (Batch, error) {
	b, rest, err := Next(records)
	switch {
	case errors.Is(err, ErrMagic):
		return nil, refuse(kerr.InvalidRecord, "only batches of format version 2 are taken")
	case errors.Is(err, ErrCorrupt):
		return nil, refuse(kerr.CorruptMessage, "%v", err)
	case err != nil || b == nil:
		return nil, refuse(kerr.InvalidRecord, "a produce request must have exactly one batch a partition")
	}
	if len(rest) == 0 {
		return b, nil
	}
	switch _, _, err := Next(rest); {
	case errors.Is(err, ErrShort):
		if len(rest) >= LogOverhead && int32(be.Uint32(rest[offLength:])) < minLength {
			return nil, refuse(kerr.CorruptMessage, "behind the batch: length %d", int32(be.Uint32(rest[offLength:])))
		}
		return b, nil
	case errors.Is(err, ErrCorrupt):
		return nil, refuse(kerr.CorruptMessage, "behind the batch: %v", err)
	}
	return nil, refuse(kerr.InvalidRecord, "a produce request must have exactly one batch a partition")
}
