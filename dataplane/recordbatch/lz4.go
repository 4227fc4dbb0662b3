package recordbatch

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/pierrec/lz4/v4"
)

// The lz4 frame format, as far as every Kafka client reads it: one frame of
// independent blocks, without a dictionary. What else the format allows (linked
// blocks, several or skippable frames, dictionaries) Kafka's own consumer cannot read, so
// a batch of it would stand in the way of every consumer of the partition.
const (
	lz4Magic      = 0x184D2204
	lz4Version    = 1 << 6
	lz4BlockIndep = 1 << 5
	lz4BlockSum   = 1 << 4
	lz4Size       = 1 << 3
	lz4ContentSum = 1 << 2
	lz4Plain      = 1 << 31 // of a block's length: not compressed
)

var (
	errLZ4Header  = errors.New("lz4: not a frame that Kafka's clients read")
	errLZ4Linked  = errors.New("lz4: blocks depend on one another, which Kafka's consumer cannot read")
	errLZ4Sum     = errors.New("lz4: checksum does not match")
	errLZ4Block   = errors.New("lz4: malformed block")
	errLZ4Size    = errors.New("lz4: content is not as long as the frame says")
	errLZ4Trailer = errors.New("lz4: bytes behind the frame")
)

// lz4Reader reads one frame block by block.
type lz4Reader struct {
	src   []byte
	flags byte
	size  uint64 // as the frame says
	out   []byte // one block
	n     uint64 // bytes given
	sum   xxh32
	ended bool
}

func (r *lz4Reader) reset(src []byte) error {
	r.n, r.ended = 0, false
	r.sum.reset()
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return errLZ4Header
	}
	r.flags = src[4]
	code := src[5] >> 4
	end := 6
	switch {
	case r.flags&(3<<6) != lz4Version, r.flags&3 != 0, src[5]&0x8f != 0, code < 4:
		return errLZ4Header
	case r.flags&lz4BlockIndep == 0:
		return errLZ4Linked
	}
	if r.flags&lz4Size != 0 {
		if end += 8; len(src) < end+1 {
			return io.ErrUnexpectedEOF
		}
		r.size = binary.LittleEndian.Uint64(src[6:])
	}
	if src[end] != byte(xxh32Of(src[4:end])>>8) {
		return errLZ4Sum
	}
	r.src = src[end+1:]
	if n := 1 << (8 + 2*code); cap(r.out) < n {
		r.out = make([]byte, n)
	} else {
		r.out = r.out[:n]
	}
	return nil
}

// next gives the next block; it is good until the next call.
func (r *lz4Reader) next() ([]byte, error) {
	if r.ended {
		return nil, io.EOF
	}
	head, err := r.take(4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head)
	if n == 0 {
		return nil, r.end()
	}
	plain := n&lz4Plain != 0
	if n &^= lz4Plain; n == 0 || n > uint32(len(r.out)) {
		return nil, errLZ4Block
	}
	block, err := r.take(int(n))
	if err != nil {
		return nil, err
	}
	if r.flags&lz4BlockSum != 0 {
		want, err := r.take(4)
		if err != nil {
			return nil, err
		}
		if xxh32Of(block) != binary.LittleEndian.Uint32(want) {
			return nil, errLZ4Sum
		}
	}
	if !plain {
		k, err := lz4.UncompressBlock(block, r.out)
		if err != nil || k < 0 {
			return nil, errLZ4Block
		}
		block = r.out[:k]
	}
	r.n += uint64(len(block))
	if r.flags&lz4ContentSum != 0 {
		r.sum.write(block)
	}
	return block, nil
}

func (r *lz4Reader) end() error {
	r.ended = true
	if r.flags&lz4ContentSum != 0 {
		want, err := r.take(4)
		if err != nil {
			return err
		}
		if r.sum.sum() != binary.LittleEndian.Uint32(want) {
			return errLZ4Sum
		}
	}
	switch {
	case r.flags&lz4Size != 0 && r.size != r.n:
		return errLZ4Size
	case len(r.src) > 0:
		return errLZ4Trailer
	}
	return io.EOF
}

func (r *lz4Reader) take(n int) ([]byte, error) {
	if n > len(r.src) {
		return nil, io.ErrUnexpectedEOF
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b, nil
}

// lz4BlockSize is that of Kafka's own producer.
const lz4BlockSize = 64 << 10

// lz4Writer makes frames as Kafka's own producer does: independent blocks of
// 64 KiB, no checksums but the header's, no content size.
type lz4Writer struct {
	fast  lz4.Compressor
	high  lz4.CompressorHC
	useHC bool
	block []byte // compressed
}

var lz4Head = func() []byte {
	h := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	h = append(h, lz4Version|lz4BlockIndep, 4<<4)
	return append(h, byte(xxh32Of(h[4:])>>8))
}()

// level takes compression.lz4.level: 9, the default, means the fast compressor, as
// in Kafka; any other the slow one, which looks at up to 2^(level-1) earlier places.
func (w *lz4Writer) level(n int) {
	w.useHC = n != CodecLZ4.DefaultLevel()
	w.high.Level = lz4.CompressionLevel(1 << (min(max(n, 1), 17) - 1))
}

// append adds one block of at most lz4BlockSize bytes.
func (w *lz4Writer) append(dst, p []byte) ([]byte, error) {
	if w.block == nil {
		w.block = make([]byte, lz4.CompressBlockBound(lz4BlockSize))
	}
	var n int
	var err error
	if w.useHC {
		n, err = w.high.CompressBlock(p, w.block)
	} else {
		n, err = w.fast.CompressBlock(p, w.block)
	}
	if err != nil {
		return nil, err
	}
	if n == 0 || n >= len(p) {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(p))|lz4Plain)
		return append(dst, p...), nil
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	return append(dst, w.block[:n]...), nil
}
