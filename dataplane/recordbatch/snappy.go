package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
)

var (
	errSnappy = errors.New("snappy: malformed block")
	errS2     = errors.New("snappy: a block of the S2 dialect, which Kafka's consumer cannot read")
)

// xerialMagic begins what xerial's snappy-java writes, and so Kafka's Java client:
// a header of 16 bytes, then blocks, each with its length in four bytes.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const (
	xerialHeader = 16 // magic, version, oldest version that can read it
	// snappyBlock is the block size of snappy-java.
	snappyBlock = 32 << 10
	// maxSnappyRatio is above what a snappy block can reach (64 bytes from a 3-byte
	// copy), so that a forged length cannot allocate.
	maxSnappyRatio = 32
)

// snappyReader reads xerial's block stream, or one raw block as librdkafka and
// others write it. A block is decoded whole: the format lets it copy from anywhere.
type snappyReader struct {
	src    []byte
	framed bool
	out    []byte // decoded block
}

// snappyLargest checks the framing and tells how long the longest block gets.
func snappyLargest(src []byte) (largest int, err error) {
	s := snappyReader{}
	if err := s.reset(src); err != nil {
		return 0, err
	}
	for {
		block, err := s.block()
		if err == io.EOF {
			return largest, nil
		}
		if err != nil {
			return 0, err
		}
		n, err := snappy.DecodedLen(block)
		if err != nil {
			return 0, errSnappy
		}
		if n > maxSnappyRatio*len(block)+64 {
			return 0, fmt.Errorf("%w: %d bytes claim to hold %d", errSnappy, len(block), n)
		}
		largest = max(largest, n)
	}
}

func (s *snappyReader) reset(src []byte) error {
	s.framed = bytes.HasPrefix(src, xerialMagic)
	if s.framed {
		if len(src) < xerialHeader {
			return io.ErrUnexpectedEOF
		}
		if int32(be.Uint32(src[len(xerialMagic):])) < 1 {
			return errSnappy
		}
		src = src[xerialHeader:]
	}
	s.src = src
	return nil
}

// block takes the next block off, still compressed.
func (s *snappyReader) block() ([]byte, error) {
	block := s.src
	switch {
	case len(s.src) == 0:
		return nil, io.EOF
	case !s.framed:
		s.src = nil
		return block, nil
	case len(s.src) < 4:
		return nil, io.ErrUnexpectedEOF
	}
	n := int64(be.Uint32(block))
	if n > int64(len(block)-4) {
		return nil, io.ErrUnexpectedEOF
	}
	s.src = block[4+n:]
	return block[4 : 4+n], nil
}

// next gives the next block's content; it is good until the next call.
func (s *snappyReader) next() ([]byte, error) {
	block, err := s.block()
	if err != nil {
		return nil, err
	}
	n, err := snappy.DecodedLen(block)
	if err != nil || n > maxSnappyRatio*len(block)+64 {
		return nil, errSnappy
	}
	if err := plainSnappy(block); err != nil {
		return nil, err
	}
	if n > cap(s.out) {
		s.out = make([]byte, n)
	}
	out, err := snappy.Decode(s.out[:cap(s.out)], block)
	if err != nil {
		return nil, errSnappy
	}
	return out, nil
}

// snappyStep is how far the next tag is from one, but for literals whose length
// stands in one to four bytes of its own.
var snappyStep = func() (t [256]uint8) {
	for tag := range t {
		t[tag] = [4]uint8{uint8(tag>>2) + 2, 2, 3, 5}[tag&3]
	}
	return t
}()

// plainSnappy refuses what only the decoder in use here reads: S2 gives a meaning to
// a copy from no distance, snappy has none for it. What else may be wrong is the
// decoder's to find. It costs about half of what decoding does, and an own decoder
// in Go as much as both: a table, since a CPU cannot guess the next kind of tag.
func plainSnappy(block []byte) error {
	i := 0
	for i < len(block) && block[i] >= 0x80 { // the decoded length
		i++
	}
	for i++; i < len(block)-1; {
		two := binary.LittleEndian.Uint16(block[i:])
		if two&0xffe3 == 1 {
			return errS2
		}
		step := int(snappyStep[uint8(two)])
		if step > 61 && two&3 == 0 { // a long literal
			width := step - 61
			if i+1+width > len(block) {
				return errSnappy
			}
			step = width + 2
			for k := range width {
				step += int(block[i+1+k]) << (8 * k)
			}
		}
		i += step
	}
	return nil
}

// appendSnappyBlock adds one block in xerial's framing; tmp is its scratch space.
func appendSnappyBlock(dst, p []byte, tmp *[]byte) []byte {
	if *tmp == nil {
		*tmp = make([]byte, snappy.MaxEncodedLen(snappyBlock))
	}
	enc := snappy.Encode(*tmp, p)
	dst = be.AppendUint32(dst, uint32(len(enc)))
	return append(dst, enc...)
}

func appendXerialHeader(dst []byte) []byte {
	return append(append(dst, xerialMagic...), 0, 0, 0, 1, 0, 0, 0, 1)
}
