package recordbatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits of the decoders. A batch that needs a zstd window above smallZstdWindow
// (levels 20 and up on large input) is decoded one at a time in the whole process, so
// that forged headers cost at most one large window; beyond largeZstdWindow, the
// largest that zstd itself makes, it is refused.
const (
	smallZstdWindow = 8 << 20
	largeZstdWindow = 128 << 20
	chunkSize       = 32 << 10
	// maxSnappyRatio is above what a snappy block can reach (64 bytes from a 3-byte
	// copy), so that a forged length cannot allocate.
	maxSnappyRatio = 32
)

var (
	errTooLarge = errors.New("records unfold to more than the limit")
	errCodec    = errors.New("unknown compression codec")
)

// decoder is a reusable decompressing reader for one codec.
type decoder struct {
	codec Codec
	src   bytes.Reader
	gz    *gzip.Reader
	lz    *lz4.Reader
	zs    *zstd.Decoder
	sn    snappyReader
	large bool
	chunk []byte
}

var (
	decoders  [5]sync.Pool // by codec
	largeZstd sync.Mutex
	buffers   = sync.Pool{New: func() any { return new([]byte) }}
)

// newDecoder prepares to decompress payload. The caller must call release.
func newDecoder(c Codec, payload []byte) (*decoder, error) {
	if c < CodecGzip || c > CodecZstd {
		return nil, errCodec
	}
	large, err := needsLargeWindow(c, payload)
	if err != nil {
		return nil, err
	}
	var d *decoder
	if large {
		largeZstd.Lock()
		d = &decoder{codec: c, large: true, chunk: make([]byte, chunkSize)}
	} else if d, _ = decoders[c].Get().(*decoder); d == nil {
		d = &decoder{codec: c, chunk: make([]byte, chunkSize)}
	}
	if err := d.reset(payload); err != nil {
		d.release()
		return nil, err
	}
	return d, nil
}

func needsLargeWindow(c Codec, payload []byte) (bool, error) {
	if c != CodecZstd {
		return false, nil
	}
	var h zstd.Header
	if err := h.Decode(payload); err != nil {
		return false, err
	}
	w := h.WindowSize
	if h.SingleSegment {
		w = h.FrameContentSize
	}
	if w > largeZstdWindow {
		return false, errTooLarge
	}
	return w > smallZstdWindow, nil
}

func (d *decoder) reset(payload []byte) (err error) {
	d.src.Reset(payload)
	switch d.codec {
	case CodecGzip:
		if d.gz == nil {
			d.gz, err = gzip.NewReader(&d.src)
			return err
		}
		return d.gz.Reset(&d.src)
	case CodecSnappy:
		return d.sn.reset(payload)
	case CodecLZ4:
		if d.lz == nil {
			d.lz = lz4.NewReader(&d.src)
			return nil
		}
		d.lz.Reset(&d.src)
		return nil
	default:
		if d.zs == nil {
			window := uint64(smallZstdWindow)
			if d.large {
				window = largeZstdWindow
			}
			d.zs, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
			if err != nil {
				return err
			}
		}
		return d.zs.Reset(&d.src)
	}
}

// Read implements io.Reader.
func (d *decoder) Read(p []byte) (int, error) {
	switch d.codec {
	case CodecGzip:
		return d.gz.Read(p)
	case CodecSnappy:
		return d.sn.Read(p)
	case CodecLZ4:
		return d.lz.Read(p)
	default:
		return d.zs.Read(p)
	}
}

func (d *decoder) release() {
	if d.large {
		if d.zs != nil {
			d.zs.Close()
		}
		largeZstd.Unlock()
		return
	}
	d.src.Reset(nil)
	d.sn.src = nil
	decoders[d.codec].Put(d)
}

// snappyReader decodes one raw snappy block, or the block stream of xerial's
// snappy-java, which is what Kafka's Java client writes.
type snappyReader struct {
	src    []byte
	framed bool
	out    []byte // decoded block
	pos    int
}

var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeader = 16 // magic, version, compatible version

func (s *snappyReader) reset(src []byte) error {
	s.out, s.pos = s.out[:0], 0
	s.framed = bytes.HasPrefix(src, xerialMagic)
	if s.framed {
		if len(src) < xerialHeader {
			return io.ErrUnexpectedEOF
		}
		src = src[xerialHeader:]
	}
	s.src = src
	return nil
}

func (s *snappyReader) Read(p []byte) (int, error) {
	for s.pos == len(s.out) {
		if len(s.src) == 0 {
			return 0, io.EOF
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.out[s.pos:])
	s.pos += n
	return n, nil
}

func (s *snappyReader) next() error {
	block := s.src
	if s.framed {
		if bytes.HasPrefix(s.src, xerialMagic) && len(s.src) >= xerialHeader {
			s.src = s.src[xerialHeader:] // concatenated streams
			return nil
		}
		if len(s.src) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := int64(be.Uint32(s.src))
		if n > int64(len(s.src)-4) {
			return io.ErrUnexpectedEOF
		}
		block = s.src[4 : 4+n]
		s.src = s.src[4+n:]
	} else {
		s.src = nil
	}
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if n > maxSnappyRatio*len(block)+64 {
		return fmt.Errorf("snappy block claims %d bytes: %w", n, errTooLarge)
	}
	if n > cap(s.out) {
		s.out = make([]byte, n)
	}
	s.pos = 0
	s.out, err = snappy.Decode(s.out[:cap(s.out)], block)
	return err
}

// decompress unfolds the batch's payload into a pooled buffer; done gives it back.
func decompress(b Batch, limit int64) (out []byte, done func(), err error) {
	d, err := newDecoder(b.Codec(), b.Payload())
	if err != nil {
		return nil, nil, err
	}
	defer d.release()
	p := buffers.Get().(*[]byte)
	buf := (*p)[:0]
	done = func() {
		if cap(buf) <= 1<<20 {
			*p = buf
			buffers.Put(p)
		}
	}
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, make([]byte, max(4<<10, min(len(buf), 8<<20)))...)[:len(buf)]
		}
		n, err := d.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			done()
			return nil, nil, errTooLarge
		}
		if err == io.EOF {
			return buf, done, nil
		}
		if err != nil {
			done()
			return nil, nil, err
		}
	}
}
