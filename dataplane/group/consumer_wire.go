package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"penstock/dataplane/protocol"
)

var errRecordShort = errors.New("record ends early")

// wireReader reads the flexible encoding of a record's value; after the first error it
// gives zeros. Nothing that it gives aliases the record. A length is believed only as far
// as there are bytes for it.
type wireReader struct {
	b   []byte
	err error
}

func (r *wireReader) fail(err error) {
	if r.err == nil {
		r.err, r.b = err, nil
	}
}

func (r *wireReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.fail(errRecordShort)
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *wireReader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *wireReader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *wireReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *wireReader) int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

func (r *wireReader) uuid() (id protocol.UUID) {
	copy(id[:], r.take(16))
	return id
}

func (r *wireReader) uvarint() uint32 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<31-1 {
		r.fail(errors.New("bad length in a record"))
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// count is an array's length; each element takes at least that many bytes.
func (r *wireReader) count(atLeast int) int {
	n := int(r.uvarint()) - 1
	if n > len(r.b)/atLeast {
		r.fail(errRecordShort)
	}
	if r.err != nil || n < 0 {
		return 0
	}
	return n
}

func (r *wireReader) nullable() *string {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	s := string(r.take(int(n) - 1))
	return &s
}

func (r *wireReader) string() string {
	n := r.uvarint()
	if n == 0 {
		r.fail(errors.New("null where a record must have text"))
		return ""
	}
	return string(r.take(int(n) - 1))
}

func (r *wireReader) bytes() []byte {
	n := r.uvarint()
	if n == 0 || r.err != nil {
		return nil
	}
	return slices.Clone(r.take(int(n) - 1))
}

func (r *wireReader) int32s() []int32 {
	n := r.count(4)
	out := make([]int32, 0, n)
	for range n {
		out = append(out, r.int32())
	}
	return out
}

// tags calls known for each tagged field, with a reader of that field alone; what it
// does not read is left out.
func (r *wireReader) tags(known func(tag uint32, f *wireReader)) {
	for range r.uvarint() {
		tag := r.uvarint()
		f := &wireReader{b: r.take(int(r.uvarint()))}
		if r.err != nil {
			return
		}
		if known != nil {
			if known(tag, f); f.err != nil {
				r.fail(fmt.Errorf("tagged field %d: %w", tag, f.err))
				return
			}
		}
	}
}

// The writing half, in the manner of append.

func putString(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	return append(dst, s...)
}

func putNullable(dst []byte, s *string) []byte {
	if s == nil {
		return append(dst, 0)
	}
	return putString(dst, *s)
}

func putCount(dst []byte, n int) []byte { return binary.AppendUvarint(dst, uint64(n)+1) }

func putInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

func putInt64(dst []byte, v int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(v)) }

func putTags(dst []byte, fields map[uint32][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(fields)))
	for _, tag := range slices.Sorted(maps.Keys(fields)) {
		dst = binary.AppendUvarint(dst, uint64(tag))
		dst = binary.AppendUvarint(dst, uint64(len(fields[tag])))
		dst = append(dst, fields[tag]...)
	}
	return dst
}
