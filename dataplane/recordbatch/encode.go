package recordbatch

import (
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var errOutput = errors.New("the batch gets larger than the limit")

// encoder folds what is written to it, as Kafka's clients expect it, and
// appends it to out, which may get limit bytes long. It keeps no more of its input than a
// block, so a batch can go through it as it is unfolded.
type encoder struct {
	codec Codec
	level int
	out   []byte
	limit int
	err   error

	gz    *gzip.Writer
	zs    *zstd.Encoder
	lz    *lz4Writer
	block []byte // input of the block codecs that does not fill a block yet
	tmp   []byte
}

// encoders by codec and class; the states of one class serve any level of it.
var encoders [5][10]sync.Pool

func encoderClass(c Codec, level int) int {
	switch c {
	case CodecGzip:
		if level < 1 || level > 9 {
			return 6 // zlib's default; the library's own is another
		}
		return level
	case CodecZstd:
		return int(zstdClass(level))
	}
	return 0
}

// newEncoder takes an encoder that appends to out; release gives it back. level
// is Kafka's (KIP-390).
func newEncoder(c Codec, level int, out []byte, limit int) (*encoder, error) {
	if c < CodecNone || c > CodecZstd {
		return nil, errCodec
	}
	e, _ := encoders[c][encoderClass(c, level)].Get().(*encoder)
	if e == nil {
		e = &encoder{codec: c}
	}
	e.level, e.limit = level, limit
	e.restart(out)
	return e, nil
}

// restart begins anew behind out.
func (e *encoder) restart(out []byte) {
	e.out, e.err, e.block = out, nil, e.block[:0]
	switch e.codec {
	case CodecGzip:
		if e.gz == nil {
			w, err := gzip.NewWriterLevel(nil, encoderClass(CodecGzip, e.level))
			if err != nil {
				panic("BUG: gzip level: " + err.Error())
			}
			e.gz = w
		}
		e.gz.Reset((*sink)(e))
	case CodecSnappy:
		e.out = appendXerialHeader(e.out)
	case CodecLZ4:
		if e.lz == nil {
			e.lz = new(lz4Writer)
		}
		e.lz.level(e.level)
		e.out = append(e.out, lz4Head...)
	case CodecZstd:
		if e.zs == nil {
			e.zs = newZstdEncoder(zstdClass(e.level))
		}
		e.zs.Reset((*sink)(e))
	}
}

// sink is where an encoder's stream codecs write to.
type sink encoder

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if len(s.out)+len(p) > s.limit {
		return 0, errOutput
	}
	s.out = append(s.out, p...)
	return len(p), nil
}

// Write implements io.Writer. The first error sticks.
func (e *encoder) Write(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	switch e.codec {
	case CodecNone:
		_, e.err = (*sink)(e).Write(p)
	case CodecGzip:
		_, e.err = e.gz.Write(p)
	case CodecZstd:
		_, e.err = e.zs.Write(p)
	default:
		e.err = e.blocks(p)
	}
	if e.err != nil {
		return 0, e.err
	}
	return len(p), nil
}

func (e *encoder) blocks(p []byte) error {
	size := snappyBlock
	if e.codec == CodecLZ4 {
		size = lz4BlockSize
	}
	if len(e.block) > 0 {
		k := min(size-len(e.block), len(p))
		e.block = append(e.block, p[:k]...)
		p = p[k:]
		if len(e.block) < size {
			return nil
		}
		if err := e.flush(e.block); err != nil {
			return err
		}
		e.block = e.block[:0]
	}
	for ; len(p) >= size; p = p[size:] {
		if err := e.flush(p[:size]); err != nil {
			return err
		}
	}
	if cap(e.block) < size {
		e.block = make([]byte, 0, size)
	}
	e.block = append(e.block, p...)
	return nil
}

// flush adds one block.
func (e *encoder) flush(p []byte) (err error) {
	if len(p) == 0 {
		return nil
	}
	if e.codec == CodecSnappy {
		e.out = appendSnappyBlock(e.out, p, &e.tmp)
	} else if e.out, err = e.lz.append(e.out, p); err != nil {
		return err
	}
	if len(e.out) > e.limit {
		return errOutput
	}
	return nil
}

// finish ends the stream and gives all that came of it, out first.
func (e *encoder) finish() ([]byte, error) {
	if e.err != nil {
		return nil, e.err
	}
	switch e.codec {
	case CodecGzip:
		e.err = e.gz.Close()
	case CodecZstd:
		e.err = e.zs.Close()
	case CodecSnappy:
		e.err = e.flush(e.block)
	case CodecLZ4:
		if e.err = e.flush(e.block); e.err == nil {
			_, e.err = (*sink)(e).Write([]byte{0, 0, 0, 0})
		}
	}
	return e.out, e.err
}

// release gives the encoder back. What finish gave stays the caller's.
func (e *encoder) release() {
	e.out = nil
	switch e.codec {
	case CodecGzip:
		e.gz.Reset(io.Discard)
	case CodecZstd:
		e.zs.Reset(io.Discard)
	}
	encoders[e.codec][encoderClass(e.codec, e.level)].Put(e)
}
