package recordbatch

import (
	"errors"
	"fmt"
	"iter"
)

// Errors of Next and Split.
var (
	// ErrShort means that the bytes end before the batch does.
	ErrShort = errors.New("record batch cut short")
	// ErrCorrupt means that the header cannot be that of a version 2 batch.
	ErrCorrupt = errors.New("record batch header is corrupt")
	// ErrMagic means a batch of an older format.
	ErrMagic = errors.New("record batch is not of format version 2")
)

// minLength is the least length field of any format.
const minLength = 14

// Next takes the first batch off b. It checks lengths and magic only. With
// ErrShort the rest of b is an incomplete batch; an empty b gives (nil, nil, nil).
func Next(b []byte) (Batch, []byte, error) {
	if len(b) == 0 {
		return nil, nil, nil
	}
	n, err := PeekLength(b)
	if err != nil {
		return nil, b, err
	}
	if len(b) < n {
		return nil, b, ErrShort
	}
	return Batch(b[:n:n]), b[n:], nil
}

// PeekLength is the total length in bytes of the batch that starts at b, of which
// at least 17 bytes must be there (else ErrShort). It is at least HeaderSize.
func PeekLength(b []byte) (int, error) {
	if len(b) < offMagic+1 {
		return 0, ErrShort
	}
	n := int64(int32(be.Uint32(b[offLength:]))) + LogOverhead
	if m := int8(b[offMagic]); m != Magic {
		if m < 0 || m > Magic || n < minLength+LogOverhead {
			return 0, fmt.Errorf("%w: magic %d, length %d", ErrCorrupt, m, n)
		}
		return 0, ErrMagic
	}
	if n < HeaderSize {
		return 0, fmt.Errorf("%w: length %d", ErrCorrupt, n)
	}
	return int(n), nil
}

// Split walks the consecutive batches in b; an error ends the walk.
func Split(b []byte) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for len(b) > 0 {
			x, rest, err := Next(b)
			if !yield(x, err) || err != nil {
				return
			}
			b = rest
		}
	}
}
