package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"
	"sync"

	"penstock/dataplane/vfs"
)

var be = binary.BigEndian

const (
	offsetEntrySize = 8  // relative offset, position
	timeEntrySize   = 12 // timestamp, relative offset
	// indexPending is how many bytes of new entries wait in memory: one write then
	// stands for a few hundred appends. Entries lost in a crash are found again by the
	// scan that an unclean start makes anyway.
	indexPending = 3072
	scratchSize  = 4096
)

// scratch are buffers for small reads; a stack array would escape through File.
var scratch = sync.Pool{New: func() any { return new([scratchSize]byte) }}

// index is an append-only file of fixed-size sorted entries, read by pread: no
// memory map, so that ten thousand partitions need neither maps nor memory. It is
// guarded by its segment's lock.
type index struct {
	file    *fileRef
	entry   int    // bytes an entry
	max     int    // entries
	stored  int    // entries in the file
	pending []byte // entries not yet in the file
	dirty   bool   // the file has entries that are not yet synced
	last    [timeEntrySize]byte
}

func (x *index) count() int { return x.stored + len(x.pending)/x.entry }

// full tells that a segment with this index must roll; one place is kept free for
// the entry that a time index gets when its segment is finished.
func (x *index) full() bool { return x.count() >= x.max-1 }

// load takes the entries that a file of size bytes has; false if it is damaged.
func (x *index) load(size int64) (bool, error) {
	if size%int64(x.entry) != 0 || size/int64(x.entry) > math.MaxInt32 {
		return false, nil
	}
	x.stored = int(size / int64(x.entry))
	if x.stored == 0 {
		return true, nil
	}
	if err := x.read(x.last[:x.entry], x.stored-1); err != nil {
		return false, err
	}
	return true, x.file.idle()
}

func (x *index) append(e []byte) error {
	if x.count() >= x.max {
		return nil // a sparser index is still right
	}
	x.pending = append(x.pending, e...)
	copy(x.last[:], e)
	if len(x.pending) >= indexPending {
		return x.write()
	}
	return nil
}

// write puts the waiting entries into the file.
func (x *index) write() error {
	if len(x.pending) == 0 {
		return nil
	}
	if _, err := x.file.WriteAt(x.pending, int64(x.stored*x.entry)); err != nil {
		return storageErr("write", x.file.path(), err)
	}
	x.dirty = true
	x.stored += len(x.pending) / x.entry
	x.pending = x.pending[:0]
	return nil
}

// finish writes what waits and drops the memory and descriptor of a segment that
// gets no more appends.
func (x *index) finish() error {
	err := x.write()
	x.pending = nil
	return errors.Join(err, x.file.idle())
}

// at reads entry i; the bytes are valid until the next append.
func (x *index) at(i int) ([]byte, error) {
	if i >= x.stored {
		o := (i - x.stored) * x.entry
		return x.pending[o : o+x.entry], nil
	}
	e := make([]byte, x.entry)
	return e, x.read(e, i)
}

func (x *index) read(p []byte, i int) error {
	if n, err := x.file.ReadAt(p, int64(i*x.entry)); n < len(p) {
		return readErr(x.file, err)
	}
	return nil
}

// floor finds the last entry whose key is at most want, and copies it to e; ok is
// false if there is none. Keys ascend with the entries. Where the entry is, is guessed
// from the keys on both sides, as offsets, positions and times mostly grow evenly: one
// or two reads, instead of one for each halving of a quarter of a million entries. Each
// second step halves, so that uneven keys cost twice that at most.
func (x *index) floor(e *[timeEntrySize]byte, want int64, key func(e []byte) int64) (ok bool, err error) {
	for i := len(x.pending) - x.entry; i >= 0; i -= x.entry { // the tail is what is asked for most
		if p := x.pending[i : i+x.entry]; key(p) <= want {
			copy(e[:], p)
			return true, nil
		}
	}
	buf := scratch.Get().(*[scratchSize]byte)
	defer scratch.Put(buf)
	lo, hi := 0, x.stored // keys are at most want below lo, above it from hi on
	var loKey, hiKey int64
	if hiKey = key(x.last[:]); len(x.pending) > 0 {
		hiKey = key(x.pending)
	}
	block := scratchSize / x.entry
	for step := 0; lo < hi; step++ {
		mid := lo + (hi-lo)/2
		if step == 0 && x.entry == timeEntrySize {
			mid = 0 // where time begins nobody knows
		} else if step%2 == 0 || step == 1 {
			mid = lo + int(float64(hi-lo)*min(max(float64(want-loKey)/float64(max(hiKey-loKey, 1)), 0), 1))
		}
		from := max(lo, min(mid-block/2, hi-block))
		p := buf[:min(block, hi-from)*x.entry]
		if err := x.read(p, from); err != nil {
			return false, err
		}
		last := p[len(p)-x.entry:]
		switch {
		case key(last) <= want:
			copy(e[:], last)
			lo, loKey, ok = from+len(p)/x.entry, key(last), true
		case key(p) > want:
			hi, hiKey = from, key(p)
		default:
			i := sort.Search(len(p)/x.entry, func(i int) bool { return key(p[i*x.entry:]) > want })
			copy(e[:], p[(i-1)*x.entry:i*x.entry])
			return true, nil
		}
	}
	return ok, nil
}

// truncate keeps the entries for which keep holds, a first part of all.
func (x *index) truncate(keep func(e []byte) bool) error {
	if err := x.write(); err != nil {
		return err
	}
	var err error
	n := sort.Search(x.stored, func(i int) bool {
		var e []byte
		if err == nil {
			e, err = x.at(i)
		}
		return err != nil || !keep(e)
	})
	x.last = [timeEntrySize]byte{}
	if err == nil && n > 0 {
		err = x.read(x.last[:x.entry], n-1)
	}
	if err != nil {
		return err
	}
	return x.cut(n)
}

// cut keeps the first n entries, which must all be in the file, and makes that durable.
func (x *index) cut(n int) error {
	x.stored, x.pending = n, x.pending[:0]
	if n == 0 {
		x.last = [timeEntrySize]byte{}
	}
	return x.file.use(func(f vfs.File) error {
		if err := f.Truncate(int64(n * x.entry)); err != nil {
			return storageErr("truncate", x.file.path(), err)
		}
		return storageErr("sync", x.file.path(), f.Sync())
	})
}

// sync makes the file durable if it has changed since it was last synced.
func (x *index) sync() error {
	if err := x.write(); err != nil || !x.dirty {
		return err
	}
	x.dirty = false
	return storageErr("sync", x.file.path(), x.file.Sync())
}

// Entries of the offset index: last offset of a batch relative to the segment's
// base, and the batch's position.
func offsetEntry(rel uint32, pos int64) (e [offsetEntrySize]byte) {
	be.PutUint32(e[:], rel)
	be.PutUint32(e[4:], uint32(pos))
	return e
}

func entryOffset(e []byte) int64 { return int64(be.Uint32(e)) }
func entryPos(e []byte) int64    { return int64(be.Uint32(e[4:])) }

// Entries of the time index: the largest timestamp so far and the last offset of
// the batch that has it, relative to the base.
func timeEntry(ts int64, rel uint32) (e [timeEntrySize]byte) {
	be.PutUint64(e[:], uint64(ts))
	be.PutUint32(e[8:], rel)
	return e
}

func entryTime(e []byte) int64       { return int64(be.Uint64(e)) }
func entryTimeOffset(e []byte) int64 { return int64(be.Uint32(e[8:])) }

// checkIndexes verifies that loaded indexes can belong to a segment of size bytes
// whose offsets are below limit (relative); a reason means they must be rebuilt.
func checkIndexes(offsets, times *index, size, limit int64) error {
	if n := offsets.count(); n > 0 {
		if o, p := entryOffset(offsets.last[:]), entryPos(offsets.last[:]); p >= size || o >= limit || n > 1 && (o == 0 || p == 0) {
			return fmt.Errorf("last offset index entry is (%d, %d)", o, p)
		}
	}
	if n := times.count(); n > 0 {
		if t, o := entryTime(times.last[:]), entryTimeOffset(times.last[:]); t < 0 || o >= limit || n > 1 && t == 0 {
			return fmt.Errorf("last time index entry is (%d, %d)", t, o)
		}
	}
	return nil
}
