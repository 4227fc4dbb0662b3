package protocol

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minClassBits = 10 // 1 KiB
	maxClassBits = 22 // 4 MiB
)

// Pool hands out buffers in size classes, powers of two from 1 KiB to 4 MiB;
// larger ones are made and left to the garbage collector, since keeping them
// costs more than zeroing them. What lies unused in the pool is freed by the
// second garbage collection after its last use, so an idle broker shrinks.
type Pool struct {
	classes [maxClassBits - minClassBits + 1]sync.Pool
	inUse   atomic.Int64
}

// NewPool makes an empty pool.
func NewPool() *Pool { return &Pool{} }

// Buffer is a slice of a Pool. B may be cut or extended within its capacity.
type Buffer struct {
	B     []byte
	whole []byte
	class int8 // -1: not pooled
	live  bool
	pool  *Pool
}

// Get returns a buffer of n bytes, whose contents are undefined.
func (p *Pool) Get(n int) *Buffer {
	p.inUse.Add(1)
	class := max(bits.Len(uint(max(n, 1)-1)), minClassBits) - minClassBits
	if class >= len(p.classes) {
		return &Buffer{B: make([]byte, n), class: -1, live: true, pool: p}
	}
	b, _ := p.classes[class].Get().(*Buffer)
	if b == nil {
		b = &Buffer{whole: make([]byte, 1<<(class+minClassBits)), class: int8(class), pool: p}
	}
	b.B, b.live = b.whole[:n], true
	return b
}

// Release gives the buffer back; neither it nor its bytes may be used again.
// A nil Buffer is allowed.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	if !b.live {
		panic("BUG: buffer released twice")
	}
	b.live, b.B = false, nil
	b.pool.inUse.Add(-1)
	if b.class >= 0 {
		b.pool.classes[b.class].Put(b)
	}
}

// Drop ends the buffer's use without reusing its memory: for a buffer that
// somebody may still hold.
func (b *Buffer) Drop() {
	if b != nil && b.live {
		b.live = false
		b.pool.inUse.Add(-1)
	}
}

// InUse is the number of buffers handed out and not yet given back.
func (p *Pool) InUse() int64 { return p.inUse.Load() }
