package peer

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"time"

	"penstock/dataplane/protocol"
)

// readBeyond is how many bytes are read beyond those that are needed next, if they are
// there: short fields then cost no system call of their own.
const readBeyond = 16 << 10

// errBody is the error of a response whose fields do not fit its length.
var errBody = errors.New("response does not fit its length")

// Body is a response's body that is read while it arrives. It holds what has been taken
// since the last Drop, and takes no memory for a length that the response cannot have.
// After an error all methods return zero values; Err is the first one.
type Body struct {
	src   io.Reader
	conn  *Conn // its timeout is for what is needed next, not for the whole; nil: none
	pool  *protocol.Pool
	mem   *protocol.Buffer // from, at and end are places in its whole capacity
	from  int              // of the last Drop
	at    int              // of the next field
	end   int              // of what has arrived
	later int              // bytes that have not arrived
	err   error
}

// NewBody is a body of size bytes, which come from src. Close gives back what it has from pool.
func NewBody(src io.Reader, size int, pool *protocol.Pool) *Body {
	return &Body{src: src, pool: pool, later: size}
}

// Close gives the memory back.
func (b *Body) Close() {
	b.mem.Release()
	*b = Body{err: ErrClosed}
}

// Err is the first error.
func (b *Body) Err() error { return b.err }

// Left is the number of bytes that have not been taken.
func (b *Body) Left() int { return b.end - b.at + b.later }

// Drop lets go of what has been taken.
func (b *Body) Drop() { b.from = b.at }

// Taken is the number of bytes taken since the last Drop.
func (b *Body) Taken() int { return b.at - b.from }

func (b *Body) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Since are the bytes taken since Taken was n. They are good until the next call of
// another method.
func (b *Body) Since(n int) []byte {
	if b.err != nil {
		return nil
	}
	return b.mem.B[b.from+n : b.at : b.at]
}

// Take takes n bytes when they have arrived. They are good as those of Since.
func (b *Body) Take(n int) []byte {
	switch {
	case b.err != nil:
	case n < 0 || n > b.Left():
		b.err = errBody
	case n > b.end-b.at:
		b.fill(b.Taken() + n)
	}
	if b.err != nil {
		return nil
	}
	b.at += n
	return b.mem.B[b.at-n : b.at : b.at]
}

// fill reads until n bytes are here from the last Drop on.
func (b *Body) fill(n int) {
	has := b.end - b.from
	want := min(n+readBeyond, has+b.later)
	if b.mem == nil || b.from+want > cap(b.mem.B) {
		to := b.mem
		if to == nil || want > cap(to.B) {
			to = b.pool.Get(want)
		}
		to.B = to.B[:cap(to.B)]
		if b.mem != nil {
			copy(to.B, b.mem.B[b.from:b.end])
		}
		if to != b.mem {
			b.mem.Release()
			b.mem = to
		}
		b.from, b.at, b.end = 0, b.at-b.from, has
	}
	if b.conn != nil {
		_ = b.conn.nc.SetReadDeadline(time.Now().Add(b.conn.d.Timeout))
	}
	read, err := io.ReadAtLeast(b.src, b.mem.B[b.end:b.from+want], n-has)
	b.end += read
	b.later -= read
	b.err = err
}

// Int16 takes a number.
func (b *Body) Int16() int16 {
	if f := b.Take(2); f != nil {
		return int16(binary.BigEndian.Uint16(f))
	}
	return 0
}

// Int32 takes a number.
func (b *Body) Int32() int32 {
	if f := b.Take(4); f != nil {
		return int32(binary.BigEndian.Uint32(f))
	}
	return 0
}

// Int64 takes a number.
func (b *Body) Int64() int64 {
	if f := b.Take(8); f != nil {
		return int64(binary.BigEndian.Uint64(f))
	}
	return 0
}

// Uvarint takes a number of up to five bytes.
func (b *Body) Uvarint() uint32 {
	n := uint64(0)
	for shift := 0; shift < 35; shift += 7 {
		f := b.Take(1)
		if f == nil {
			return 0
		}
		if n |= uint64(f[0]&0x7f) << shift; f[0] < 0x80 {
			if n > math.MaxUint32 {
				break
			}
			return uint32(n)
		}
	}
	b.fail(errBody)
	return 0
}

// Len takes the length of a compact array, string or bytes; -1 is null.
func (b *Body) Len() int { return int(b.Uvarint()) - 1 }

// Tags takes tagged fields. tag, if not nil, is called to take what it wants of each.
func (b *Body) Tags(tag func(key uint32)) {
	for n := b.Uvarint(); n > 0 && b.err == nil; n-- {
		key, size := b.Uvarint(), int(b.Uvarint())
		end := b.Left() - size
		if end < 0 {
			b.fail(errBody)
			return
		}
		if tag != nil {
			tag(key)
		}
		b.Take(b.Left() - end)
	}
}
