package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"sort"

	"penstock/dataplane/vfs"
)

// txnEntrySize is the length of an entry of the transaction index: int16 version
// (0), then int64 producer id, first offset, last offset, last stable offset.
const (
	txnEntrySize    = 2 + 4*8
	txnEntryVersion = 0
)

// errTxnIndex marks a transaction index that must be built anew.
var errTxnIndex = errors.New("transaction index is malformed")

// abortedTxn is one aborted transaction of a producer.
type abortedTxn struct {
	producerID int64
	first      int64 // offset of its first record
	last       int64 // offset of its marker
	// lso is the last stable offset once this transaction was over: whoever reads
	// below it need not look at later entries.
	lso int64
}

// txnIndex is the file of the transactions whose abort markers lie in one segment,
// in the order of the markers. Few segments have one: it is made with its first
// entry. Entries go to the file at once, for aborts are rare. It is guarded by its
// segment's lock: shared for collect and each, else exclusive.
type txnIndex struct {
	fs    vfs.FS
	path  string
	file  vfs.File // open while the segment is appended to
	count int
	last  int64 // of the newest entry, -1 if none
}

// newTxnIndex is an index without entries; load takes those that are in the file.
func newTxnIndex(fsys vfs.FS, path string) txnIndex {
	return txnIndex{fs: fsys, path: path, last: -1}
}

// load looks at every entry of the file; a missing file has none. base is the
// segment's. What cannot have been written in good order is errTxnIndex.
func (x *txnIndex) load(base int64) error {
	x.count, x.last = 0, -1
	st, err := x.fs.Stat(x.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storageErr("stat", x.path, err)
	}
	if st.Size%txnEntrySize != 0 || st.Size/txnEntrySize > math.MaxInt32 {
		return fmt.Errorf("%w: %s has %d bytes", errTxnIndex, x.path, st.Size)
	}
	count, last := int(st.Size/txnEntrySize), base-1
	err = x.scan(0, count, func(t abortedTxn) (bool, error) {
		if t.producerID < 0 || t.first < 0 || t.first > t.last || t.last <= last || t.lso < 0 {
			return false, fmt.Errorf("%w: %s: entry %+v after offset %d", errTxnIndex, x.path, t, last)
		}
		last = t.last
		return true, nil
	})
	if err == nil && count > 0 {
		x.count, x.last = count, last
	}
	return err
}

// append adds a transaction, which must end above all others of the index.
func (x *txnIndex) append(t abortedTxn) error {
	if t.last <= x.last {
		return fmt.Errorf("%w: %s: transaction ends at %d, not above %d", errTxnIndex, x.path, t.last, x.last)
	}
	if err := x.open(); err != nil {
		return err
	}
	e := t.encode()
	if _, err := x.file.WriteAt(e[:], int64(x.count)*txnEntrySize); err != nil {
		// What stands behind the last entry would be taken for one.
		return errors.Join(storageErr("write", x.path, err), storageErr("truncate", x.path, x.file.Truncate(int64(x.count)*txnEntrySize)))
	}
	x.count++
	x.last = t.last
	return nil
}

// collect appends to dst the transactions that have records in [from, upTo).
// complete tells that no later segment's index can have more of them.
func (x *txnIndex) collect(dst []abortedTxn, from, upTo int64) (out []abortedTxn, complete bool, err error) {
	if x.last < from {
		return dst, false, nil
	}
	i, err := x.firstAt(from)
	if err != nil {
		return dst, false, err
	}
	err = x.scan(i, x.count, func(t abortedTxn) (bool, error) {
		if t.first < upTo {
			dst = append(dst, t)
		}
		complete = t.lso >= upTo
		return !complete, nil
	})
	return dst, complete, err
}

// each calls fn for every entry in order, until its error.
func (x *txnIndex) each(fn func(abortedTxn) error) error {
	return x.scan(0, x.count, func(t abortedTxn) (bool, error) { return true, fn(t) })
}

// truncate drops the transactions whose markers are at or above offset, durably.
func (x *txnIndex) truncate(offset int64) error {
	if x.last < offset {
		return nil
	}
	n, err := x.firstAt(offset)
	if err != nil {
		return err
	}
	last := int64(-1)
	if n > 0 {
		if err := x.scan(n-1, n, func(t abortedTxn) (bool, error) { last = t.last; return false, nil }); err != nil {
			return err
		}
	}
	if err := x.cut(n); err != nil {
		return err
	}
	x.last = last
	return nil
}

// reset drops whatever the file holds, durably, so that entries can be added anew.
func (x *txnIndex) reset() error {
	x.count, x.last = 0, -1
	if !vfs.Exists(x.fs, x.path) {
		return nil
	}
	return x.cut(0)
}

// remove closes and removes the file.
func (x *txnIndex) remove() error {
	x.count, x.last = 0, -1
	return errors.Join(x.closeFile(), removeIfThere(x.fs, x.path))
}

// finish makes the entries durable and drops the descriptor of a segment that gets
// no more for now.
func (x *txnIndex) finish() error {
	var err error
	if x.file != nil {
		err = storageErr("sync", x.path, x.file.Sync())
	}
	return errors.Join(err, x.closeFile())
}

func (x *txnIndex) closeFile() error {
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file = nil
	return storageErr("close", x.path, err)
}

func (x *txnIndex) open() error {
	if x.file != nil {
		return nil
	}
	f, err := x.fs.Open(x.path, true)
	if err != nil {
		return storageErr("open", x.path, err)
	}
	x.file = f
	return nil
}

// cut keeps the first n entries.
func (x *txnIndex) cut(n int) error {
	if err := x.open(); err != nil {
		return err
	}
	if err := x.file.Truncate(int64(n) * txnEntrySize); err != nil {
		return storageErr("truncate", x.path, err)
	}
	x.count = n
	return storageErr("sync", x.path, x.file.Sync())
}

// firstAt is the place of the first entry whose marker is at or above offset.
func (x *txnIndex) firstAt(offset int64) (int, error) {
	var err error
	i := sort.Search(x.count, func(i int) bool {
		if err != nil {
			return true
		}
		var last int64
		err = x.scan(i, i+1, func(t abortedTxn) (bool, error) { last = t.last; return false, nil })
		return last >= offset
	})
	return i, err
}

// scan reads the entries [i, n) a block at a time and gives them to fn until it
// says false. A reader opens the file for itself: descriptors of closed segments
// are not kept.
func (x *txnIndex) scan(i, n int, fn func(abortedTxn) (bool, error)) (err error) {
	if i >= n {
		return nil
	}
	f := x.file
	if f == nil {
		if f, err = x.fs.Open(x.path, false); err != nil {
			return storageErr("open", x.path, err)
		}
		defer f.Close()
	}
	buf := scratch.Get().(*[scratchSize]byte)
	defer scratch.Put(buf)
	for i < n {
		p := buf[:min(n-i, scratchSize/txnEntrySize)*txnEntrySize]
		if m, err := f.ReadAt(p, int64(i)*txnEntrySize); m < len(p) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return storageErr("read", x.path, err)
		}
		for ; len(p) > 0; p = p[txnEntrySize:] {
			t, err := decodeAbortedTxn(p)
			if err != nil {
				return fmt.Errorf("%w: %s: entry %d", err, x.path, i)
			}
			if more, err := fn(t); err != nil || !more {
				return err
			}
			i++
		}
	}
	return nil
}

func (t *abortedTxn) encode() (e [txnEntrySize]byte) {
	be.PutUint16(e[:], txnEntryVersion)
	be.PutUint64(e[2:], uint64(t.producerID))
	be.PutUint64(e[10:], uint64(t.first))
	be.PutUint64(e[18:], uint64(t.last))
	be.PutUint64(e[26:], uint64(t.lso))
	return e
}

// decodeAbortedTxn reads an entry; p has at least txnEntrySize bytes.
func decodeAbortedTxn(p []byte) (abortedTxn, error) {
	if v := be.Uint16(p); v != txnEntryVersion {
		return abortedTxn{}, fmt.Errorf("%w: version %d", errTxnIndex, v)
	}
	return abortedTxn{
		producerID: int64(be.Uint64(p[2:])), first: int64(be.Uint64(p[10:])),
		last: int64(be.Uint64(p[18:])), lso: int64(be.Uint64(p[26:])),
	}, nil
}
