package commitlog

import (
	"crypto/sha256"
	"errors"
	"fmt"
)

// offsetSlot is what the map keeps of a key: 128 bits of its SHA-256, so that nobody
// can make two keys meet, and the offset of its newest record plus one; 0 is a free slot.
type offsetSlot struct {
	hi, lo uint64
	next   int64
}

// SlotSize is the memory of one key in an OffsetMap, in bytes.
const SlotSize = 24

// OffsetMap holds the newest offset of each key in the dirty part of a log, in memory
// that is bounded from the start. It is not safe for concurrent use; one serves one
// clean after the other.
type OffsetMap struct {
	slots []offsetSlot // capacity: as large as it ever was
	most  int          // slots that the buffer allows
	load  float64
	limit int // keys that may be stored in slots
	keys  int
}

// NewOffsetMap makes a map for at most bytes (log.cleaner.dedupe.buffer.size of one
// thread) that is filled up to the share load (log.cleaner.io.buffer.load.factor). No
// memory is taken before a clean needs it. A buffer too small for one key is an error.
func NewOffsetMap(bytes int64, load float64) (*OffsetMap, error) {
	if !(load > 0 && load <= 1) {
		return nil, fmt.Errorf("load factor %v of the cleaner's buffer is not above 0 and up to 1", load)
	}
	m := &OffsetMap{most: int(min(bytes/SlotSize, 1<<40)), load: load}
	if m.capacity(m.most) < 1 {
		return nil, fmt.Errorf("a cleaner's buffer of %d bytes with a load factor of %v holds no key: at least %d bytes are needed", bytes, load, int64(2*SlotSize/load))
	}
	return m, nil
}

// capacity leaves one slot free, which ends every search.
func (m *OffsetMap) capacity(slots int) int { return min(int(float64(slots)*m.load), slots-1) }

// reset empties the map and makes it large enough for so many keys, as far as its
// bound allows.
func (m *OffsetMap) reset(keys int64) {
	n := m.most
	if want := float64(keys)/m.load + 2; want < float64(n) {
		n = int(want)
	}
	if n <= cap(m.slots) {
		m.slots = m.slots[:n]
		clear(m.slots)
	} else {
		m.slots = make([]offsetSlot, n)
	}
	m.keys, m.limit = 0, m.capacity(n)
}

// Release gives the memory back until the next clean.
func (m *OffsetMap) Release() { m.slots = nil }

// errMapFull tells that a new key has no place.
var errMapFull = errors.New("offset map is full")

// put sets the offset of a key, which must not be below those put before.
func (m *OffsetMap) put(key []byte, offset int64) error {
	s := m.find(key)
	if s.next == 0 {
		if m.keys >= m.limit {
			s.hi, s.lo = 0, 0
			return errMapFull
		}
		m.keys++
	}
	s.next = offset + 1
	return nil
}

// get is the newest offset of a key; ok is false for one that is not in the map.
func (m *OffsetMap) get(key []byte) (offset int64, ok bool) {
	if m.keys == 0 {
		return 0, false
	}
	s := m.find(key)
	return s.next - 1, s.next > 0
}

// find is the key's slot, or the free one that it would get, with the hash in it.
func (m *OffsetMap) find(key []byte) *offsetSlot {
	sum := sha256.Sum256(key)
	hi, lo := be.Uint64(sum[:]), be.Uint64(sum[8:])
	for i := int(hi % uint64(len(m.slots))); ; i++ {
		if i == len(m.slots) {
			i = 0
		}
		s := &m.slots[i]
		if s.next == 0 {
			s.hi, s.lo = hi, lo
			return s
		}
		if s.hi == hi && s.lo == lo {
			return s
		}
	}
}

// Utilization is the share of the map's bound that the last clean has filled.
func (m *OffsetMap) Utilization() float64 { return float64(m.keys) / float64(m.most) }
