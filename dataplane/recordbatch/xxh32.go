package recordbatch

import (
	"encoding/binary"
	"math/bits"
)

// xxh32 is the 32-bit xxHash with seed 0, which lz4 frames are checked with.
// The zero value is not useful: call reset.
type xxh32 struct {
	lanes [4]uint32
	tail  [16]byte
	n     uint64 // bytes taken in
}

const (
	xxPrime1 uint32 = 2654435761
	xxPrime2 uint32 = 2246822519
	xxPrime3 uint32 = 3266489917
	xxPrime4 uint32 = 668265263
	xxPrime5 uint32 = 374761393
)

func (x *xxh32) reset() {
	p1, p2 := xxPrime1, xxPrime2
	x.lanes = [4]uint32{p1 + p2, p2, 0, -p1}
	x.n = 0
}

func (x *xxh32) write(p []byte) {
	have := int(x.n % 16)
	x.n += uint64(len(p))
	if have > 0 {
		k := copy(x.tail[have:], p)
		if have+k < 16 {
			return
		}
		x.stripe(x.tail[:])
		p = p[k:]
	}
	for ; len(p) >= 16; p = p[16:] {
		x.stripe(p[:16])
	}
	copy(x.tail[:], p)
}

func (x *xxh32) stripe(p []byte) {
	for i := range x.lanes {
		x.lanes[i] = bits.RotateLeft32(x.lanes[i]+binary.LittleEndian.Uint32(p[4*i:])*xxPrime2, 13) * xxPrime1
	}
}

func (x *xxh32) sum() uint32 {
	h := xxPrime5
	if x.n >= 16 {
		h = bits.RotateLeft32(x.lanes[0], 1) + bits.RotateLeft32(x.lanes[1], 7) + bits.RotateLeft32(x.lanes[2], 12) + bits.RotateLeft32(x.lanes[3], 18)
	}
	h += uint32(x.n)
	p := x.tail[:x.n%16]
	for ; len(p) >= 4; p = p[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(p)*xxPrime3, 17) * xxPrime4
	}
	for _, b := range p {
		h = bits.RotateLeft32(h+uint32(b)*xxPrime5, 11) * xxPrime1
	}
	h = (h ^ h>>15) * xxPrime2
	h = (h ^ h>>13) * xxPrime3
	return h ^ h>>16
}

func xxh32Of(p []byte) uint32 {
	var x xxh32
	x.reset()
	x.write(p)
	return x.sum()
}
