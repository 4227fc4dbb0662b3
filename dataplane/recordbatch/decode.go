package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

var be = binary.BigEndian

// chunkSize is how much gzip and zstd unfold at a time, in bytes.
const chunkSize = 32 << 10

var (
	errTooLarge = errors.New("records unfold to more than the limit")
	errCodec    = errors.New("unknown compression codec")
)

// decoder unfolds one payload, a chunk at a time.
type decoder struct {
	codec Codec
	use   int64 // see decoderUse
	gz    *gzip.Reader
	zs    *zstd.Decoder
	src   bytes.Reader // of gz and zs
	chunk []byte       // of gz and zs
	err   error        // of gz and zs, held back behind a chunk
	lz    lz4Reader
	sn    snappyReader
}

var (
	decoders  [5]sync.Pool // by codec
	largeZstd sync.Pool
)

// decoderUse is how many bytes of memory a decoder of b takes, as a lane counts
// it. A payload that breaks its format, or takes more than largeBudget, is an error.
func (b Batch) decoderUse() (int64, error) {
	switch b.Codec() {
	case CodecNone, CodecGzip, CodecLZ4:
		return 0, nil
	case CodecSnappy:
		n, err := snappyLargest(b.Payload())
		if n > largeBudget {
			return 0, errTooLarge
		}
		return int64(n), err
	case CodecZstd:
		n, err := zstdWindow(b.Payload())
		if n > smallUse {
			return largeBudget, err // one at a time, so that one decoder serves all
		}
		return int64(n), err
	}
	return 0, errCodec
}

// newDecoder takes a decoder for the payload; release gives it back. The caller
// holds a place of a lane for use, which decoderUse told.
func newDecoder(c Codec, payload []byte, use int64) (*decoder, error) {
	var d *decoder
	switch {
	case use <= smallUse:
		d, _ = decoders[c].Get().(*decoder)
	case c == CodecZstd:
		d, _ = largeZstd.Get().(*decoder)
	}
	if d == nil {
		d = &decoder{codec: c}
	}
	d.use = use
	if err := d.reset(payload); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func (d *decoder) reset(payload []byte) error {
	d.err = nil
	switch d.codec {
	case CodecSnappy:
		return d.sn.reset(payload)
	case CodecLZ4:
		return d.lz.reset(payload)
	}
	if d.chunk == nil {
		d.chunk = make([]byte, chunkSize)
	}
	d.src.Reset(payload)
	if d.codec == CodecGzip {
		if d.gz == nil {
			d.gz = new(gzip.Reader)
		}
		return d.gz.Reset(&d.src)
	}
	if d.zs == nil {
		window := uint64(smallZstdWindow)
		if d.use > smallUse {
			window = largeZstdWindow
		}
		d.zs = newZstdDecoder(window)
	}
	return d.zs.Reset(&d.src)
}

// next gives the next chunk, never an empty one without an error; it is good until
// the next call. The end is io.EOF.
func (d *decoder) next() ([]byte, error) {
	switch d.codec {
	case CodecSnappy:
		return d.sn.next()
	case CodecLZ4:
		return d.lz.next()
	}
	r := io.Reader(d.zs)
	if d.codec == CodecGzip {
		r = d.gz
	}
	for d.err == nil {
		var n int
		if n, d.err = r.Read(d.chunk); n > 0 {
			return d.chunk[:n], nil
		}
	}
	return nil, d.err
}

func (d *decoder) release() {
	d.src.Reset(nil)
	d.sn.src, d.lz.src = nil, nil
	switch {
	case d.use <= smallUse:
		decoders[d.codec].Put(d)
	case d.codec == CodecZstd:
		largeZstd.Put(d)
	}
}
