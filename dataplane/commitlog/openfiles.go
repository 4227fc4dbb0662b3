package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"

	"penstock/dataplane/vfs"
)

// maxOpenFiles is the default bound of what the logs of a process keep open: ten
// thousand busy partitions, and memory for them of a few MB.
const maxOpenFiles = 16384

// LimitOpenFiles sets how many segment and index files all logs of the process may
// keep open; those in use come on top, see FilesShort. 0 is the default: a fifth of RLIMIT_NOFILE,
// as connections and what they keep in use may take most of the rest, but at most 16,384. Files
// above the bound are closed as others are opened.
func LimitOpenFiles(n int) {
	if n <= 0 {
		n = maxOpenFiles
		var r unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err == nil && r.Cur/5 < uint64(n) {
			n = int(r.Cur / 5)
		}
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	opened.limit = max(n, 1)
	opened.counted()
}

// FilesShort says that so many files are pinned that all logs together have more open than they
// should: a reader that has one Slice already had better not take the next from another file.
func FilesShort() bool { return opened.short.Load() }

func init() { LimitOpenFiles(0) }

// opened are the open files of all logs of this process.
var opened openFiles

// openFiles keeps the number of open files bounded. Which file goes is found by a
// hand that turns (the "clock"): a file that was used since the hand last passed
// stays. That is nearly the least recently used one, and costs a user no lock.
type openFiles struct {
	mu    sync.Mutex
	limit int
	files []*fileRef
	hand  int
	over  atomic.Bool // there are more than limit
	short atomic.Bool // and not only because the hand has yet to find what to close
}

// counted notes how many files are open. Where all were used since the hand last passed, it
// goes round once before it closes any, and some more are open by then. REQUIRES: mu held.
func (o *openFiles) counted() {
	n := len(o.files)
	o.over.Store(n > o.limit)
	o.short.Store(n > o.limit+o.limit/64)
}

// add takes in a file that has been opened, and closes others in its place.
func (o *openFiles) add(r *fileRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shrink(o.limit-1, handSteps)
	r.slot = len(o.files)
	o.files = append(o.files, r)
	o.counted()
}

// trim closes what is above the limit and in use no more.
func (o *openFiles) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shrink(o.limit, handSteps)
}

// handSteps bounds the work of one opening where many files are in use; what stays
// above the limit goes with the next ones.
const handSteps = 128

// shrink closes files that nobody uses until n are left or the hand has made its
// steps. REQUIRES: mu held.
func (o *openFiles) shrink(n, steps int) {
	for ; len(o.files) > n && steps > 0; steps-- {
		if o.hand >= len(o.files) {
			o.hand = 0
		}
		if r := o.files[o.hand]; r.evict() {
			o.take(r)
		} else {
			o.hand++
		}
	}
}

// halve makes room when the process cannot open another file.
func (o *openFiles) halve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shrink(len(o.files)/2, 2*len(o.files))
}

func (o *openFiles) remove(r *fileRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.slot < len(o.files) && o.files[r.slot] == r {
		o.take(r)
	}
}

func (o *openFiles) take(r *fileRef) {
	last := o.files[len(o.files)-1]
	o.files[r.slot], last.slot = last, r.slot
	o.files[len(o.files)-1] = nil
	o.files = o.files[:len(o.files)-1]
	o.counted()
}

// fileRef is a file of a segment. It is opened when it is first used, and may be
// closed whenever nobody has it pinned; readers that send from it later keep it
// pinned. Its methods of vfs.File pin it for the call.
type fileRef struct {
	fs     vfs.FS
	dir    string
	base   int64
	suffix string
	create bool // a missing file is made

	state atomic.Uint32 // the number of pins, and the flags below
	mu    sync.Mutex    // held to open and to close
	file  vfs.File      // valid while pinned
	slot  int           // place in openFiles, guarded by its lock
}

const (
	fileShut    = 1 << 31 // not open
	fileRetired = 1 << 30 // the segment has given it up: no new pins, closed with the last
	fileUsed    = 1 << 29 // since the hand of openFiles passed
	filePins    = fileUsed - 1
)

func newFileRef(fsys vfs.FS, dir string, base int64, suffix string, create bool) *fileRef {
	r := &fileRef{fs: fsys, dir: dir, base: base, suffix: suffix, create: create}
	r.state.Store(fileShut)
	return r
}

func (r *fileRef) path() string { return segmentPath(r.dir, r.base, r.suffix) }

// pin keeps the file open until release. errGone if the segment has given it up.
func (r *fileRef) pin() (vfs.File, error) {
	for {
		n := r.state.Load()
		switch {
		case n&fileRetired != 0:
			return nil, errGone
		case n&fileShut != 0:
			if err := r.open(r.create); err != nil {
				return nil, err
			}
		case r.state.CompareAndSwap(n, (n+1)|fileUsed):
			return r.file, nil
		}
	}
}

// release undoes a pin.
func (r *fileRef) release() error {
	n := r.state.Add(^uint32(0))
	if n&filePins == 0 {
		if n&fileRetired != 0 {
			return r.shut()
		}
		if opened.over.Load() {
			opened.trim()
		}
	}
	return nil
}

// pinned tells how many users the file has. It is exact where no new ones can come.
func (r *fileRef) pinned() int { return int(r.state.Load() & filePins) }

// open opens the file if nobody else has; create makes a missing one.
func (r *fileRef) open(create bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Load()&fileShut == 0 {
		return nil
	}
	f, err := r.fs.Open(r.path(), create)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		opened.halve()
		f, err = r.fs.Open(r.path(), create)
	}
	if r.state.Load()&fileRetired != 0 { // what is there now may be another file of that name
		if err == nil {
			_ = f.Close()
		}
		return errGone
	}
	if errors.Is(err, fs.ErrNotExist) { // somebody has removed it: damage, and no sign of a failing disk
		return fmt.Errorf("%w (%w)", err, kerr.CorruptMessage)
	}
	if err != nil {
		return storageErr("open", r.path(), err)
	}
	return r.adopt(f)
}

// adopt makes f the open file. REQUIRES: shut, and mu held or not yet shared.
func (r *fileRef) adopt(f vfs.File) error {
	r.file = f
	opened.add(r)
	if r.state.And(^uint32(fileShut))&fileRetired != 0 {
		// Retired since: nobody has seen it open, so nobody else closes it.
		opened.remove(r)
		r.file = nil
		_ = f.Close()
		return errGone
	}
	return nil
}

// evict closes the file unless it is in use or was since the last time.
func (r *fileRef) evict() bool {
	if !r.mu.TryLock() {
		return false
	}
	defer r.mu.Unlock()
	if !r.state.CompareAndSwap(0, fileShut) {
		r.state.And(^uint32(fileUsed))
		return false
	}
	_ = r.file.Close() // what was written is in the page cache; the next sync tells its fate
	r.file = nil
	return true
}

// idle closes the file unless it is in use; the next use opens it again.
func (r *fileRef) idle() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		n := r.state.Load()
		if n&^uint32(fileUsed) != 0 {
			return nil
		}
		if r.state.CompareAndSwap(n, fileShut) {
			return r.shut()
		}
	}
}

// retire refuses further pins and closes the file with the last one.
func (r *fileRef) retire() error {
	if n := r.state.Or(fileRetired); n&(fileRetired|fileShut|filePins) != 0 {
		return nil
	}
	return r.shut()
}

// shut closes the file. REQUIRES: the state lets nobody else pin, open or close it.
func (r *fileRef) shut() error {
	opened.remove(r)
	f := r.file
	r.file = nil
	return storageErr("close", r.path(), f.Close())
}

// use calls fn with the open file.
func (r *fileRef) use(fn func(f vfs.File) error) error {
	f, err := r.pin()
	if err != nil {
		return err
	}
	err = fn(f)
	return errors.Join(err, r.release())
}

// ReadAt implements vfs.File.
func (r *fileRef) ReadAt(p []byte, off int64) (int, error) {
	f, err := r.pin()
	if err != nil {
		return 0, err
	}
	n, err := f.ReadAt(p, off)
	_ = r.release()
	return n, err
}

// WriteAt implements vfs.File.
func (r *fileRef) WriteAt(p []byte, off int64) (int, error) {
	f, err := r.pin()
	if err != nil {
		return 0, err
	}
	n, err := f.WriteAt(p, off)
	_ = r.release()
	return n, err
}

// Truncate implements vfs.File.
func (r *fileRef) Truncate(size int64) error {
	return r.use(func(f vfs.File) error { return f.Truncate(size) })
}

// Allocate implements vfs.File.
func (r *fileRef) Allocate(size int64) error {
	return r.use(func(f vfs.File) error { return f.Allocate(size) })
}

// Sync implements vfs.File.
func (r *fileRef) Sync() error { return r.use(vfs.File.Sync) }

// Size implements vfs.File.
func (r *fileRef) Size() (size int64, err error) {
	err = r.use(func(f vfs.File) (err error) { size, err = f.Size(); return err })
	return size, err
}

// Name implements vfs.File.
func (r *fileRef) Name() string { return r.path() }

// Fd implements vfs.File: a descriptor could be closed at any time; whoever needs
// one pins the file.
func (r *fileRef) Fd() (uintptr, bool) { return 0, false }

// Close implements vfs.File.
func (r *fileRef) Close() error { return r.retire() }
