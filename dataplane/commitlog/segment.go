package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// Suffixes of the files of a segment and of what becomes of them.
const (
	logSuffix      = ".log"
	indexSuffix    = ".index"
	timeSuffix     = ".timeindex"
	txnSuffix      = ".txnindex"
	snapshotSuffix = ".snapshot"
	batchesSuffix  = ".batches" // ours, beside a snapshot: see earlier.go
	deletedSuffix  = ".deleted"
)

// errGone means that the segment was closed under a reader, who tries again with
// the current list.
var errGone = errors.New("segment is closed")

// segment is one log file with its indexes. What lies below size never changes
// while someone holds a reference to the file.
type segment struct {
	fs      vfs.FS
	dir     string
	base    int64
	created time.Time
	jitter  time.Duration // how much earlier than segment.ms it rolls

	mu        sync.RWMutex
	file      *fileRef // the .log; nil once closed
	size      int64    // bytes
	next      int64    // offset after the last record
	maxTs     int64    // largest timestamp, ms; -1 if none
	maxTsLast int64    // last offset of the first batch with maxTs
	firstTs   int64    // largest timestamp of the first batch; unknownTs before it is read
	unindexed int      // bytes since the last index entry
	due       int64    // when the first delete horizon in it passes, ms; dueUnknown, dueNever
	held      []int64  // offsets of markers that must stay though they have a horizon, see firstDue
	dirty     bool     // there are batches that are not yet synced
	offsets   index
	times     index
	txns      txnIndex
}

const unknownTs = -2

func segmentName(base int64, suffix string) string { return fmt.Sprintf("%020d%s", base, suffix) }

func segmentPath(dir string, base int64, suffix string) string {
	return filepath.Join(dir, segmentName(base, suffix))
}

// newSegment prepares a segment without opening anything.
func newSegment(fsys vfs.FS, dir string, base int64, cfg *Config, now time.Time) *segment {
	s := &segment{fs: fsys, dir: dir, base: base, created: now, next: base, maxTs: -1, maxTsLast: base, firstTs: unknownTs, due: dueUnknown}
	s.offsets = index{file: newFileRef(fsys, dir, base, indexSuffix, true), entry: offsetEntrySize, max: int(cfg.SegmentIndexBytes) / offsetEntrySize}
	s.times = index{file: newFileRef(fsys, dir, base, timeSuffix, true), entry: timeEntrySize, max: int(cfg.SegmentIndexBytes) / timeEntrySize}
	s.txns = newTxnIndex(fsys, s.path(txnSuffix))
	return s
}

func (s *segment) path(suffix string) string { return segmentPath(s.dir, s.base, suffix) }

// createSegment makes the files of an empty segment; leftovers of the names go.
func createSegment(fsys vfs.FS, dir string, base int64, cfg *Config, now time.Time) (*segment, error) {
	s := newSegment(fsys, dir, base, cfg, now)
	for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
		if err := fsys.Remove(s.path(suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, storageErr("remove", s.path(suffix), err)
		}
	}
	s.openLog()
	for _, r := range []*fileRef{s.offsets.file, s.times.file, s.file} {
		if err := r.open(true); err != nil {
			return nil, err
		}
	}
	return s, errors.Join(s.offsets.file.idle(), s.times.file.idle())
}

// openLog lets the log file be used; it is opened when it is needed.
func (s *segment) openLog() { s.file = newFileRef(s.fs, s.dir, s.base, logSuffix, false) }

// written publishes batches that were written at the end of the file.
func (s *segment) written(batches []byte, interval int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(batches) > 0 {
		b, rest, err := recordbatch.Next(batches)
		if err != nil {
			return fmt.Errorf("BUG: unchecked batch was written: %w", err)
		}
		if err := s.account(b, int64(len(b)), interval); err != nil {
			return err
		}
		batches = rest
	}
	return nil
}

// account moves the end over one batch (only its header is looked at) and adds the
// index entries that are due. REQUIRES: mu held, or the segment not yet shared.
func (s *segment) account(h recordbatch.Batch, length int64, interval int) error {
	last := h.LastOffset()
	s.noteTime(h)
	if s.size == 0 {
		s.firstTs = h.MaxTimestamp()
	}
	if s.unindexed > interval {
		e := offsetEntry(uint32(last-s.base), s.size)
		if err := s.offsets.append(e[:]); err != nil {
			return err
		}
		if err := s.indexTime(); err != nil {
			return err
		}
		s.unindexed = 0
	}
	s.dirty = true
	s.unindexed += int(length)
	s.size += length
	s.next = last + 1
	return nil
}

func (s *segment) noteTime(h recordbatch.Batch) {
	if ts := h.MaxTimestamp(); ts > s.maxTs && h.Count() > 0 { // an emptied batch keeps the time of what is gone
		s.maxTs, s.maxTsLast = ts, h.LastOffset()
	}
}

// indexedTime takes the largest timestamp from the time index.
func (s *segment) indexedTime() {
	s.maxTs, s.maxTsLast = -1, s.base
	if s.times.count() > 0 {
		s.maxTs, s.maxTsLast = entryTime(s.times.last[:]), s.base+entryTimeOffset(s.times.last[:])
	}
}

// findLargestTime sets the largest timestamp anew. An offset index entry comes with
// one of the time index for all up to its batch, so that only what lies behind the
// last one has to be read. REQUIRES: mu held or the segment not yet shared.
func (s *segment) findLargestTime() error {
	s.indexedTime()
	return s.tail(s.noteTime)
}

// tail calls fn with the header of each batch from the last offset index entry on:
// some index.interval.bytes, whatever the size of the segment.
func (s *segment) tail(fn func(h recordbatch.Batch)) error {
	pos := int64(0)
	if s.offsets.count() > 0 {
		pos = entryPos(s.offsets.last[:])
	}
	if pos == s.size {
		return nil
	}
	sc := newScanner(s.file, s.size)
	defer sc.close()
	for pos < s.size {
		h, n, err := sc.header(pos)
		if err != nil {
			return err
		}
		fn(h)
		pos += n
	}
	return nil
}

// indexTime adds the largest timestamp so far to the time index if it is news.
func (s *segment) indexTime() error {
	if s.maxTs < 0 || s.times.count() > 0 && s.maxTs <= entryTime(s.times.last[:]) {
		return nil
	}
	e := timeEntry(s.maxTs, uint32(s.maxTsLast-s.base))
	return s.times.append(e[:])
}

// finish writes the last index entries; the segment gets no more appends.
func (s *segment) finish() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.indexTime(); err != nil {
		return err
	}
	return errors.Join(s.offsets.finish(), s.times.finish(), s.txns.closeFile())
}

// sync makes the segment durable. The lock is not held over the syncs, so that
// appends go on; the files are pinned, as the segment may be deleted meanwhile.
func (s *segment) sync() (err error) {
	s.mu.Lock()
	if s.file == nil {
		s.mu.Unlock()
		return nil
	}
	err = errors.Join(s.offsets.write(), s.times.write())
	var files []vfs.File
	for _, x := range []struct {
		file  *fileRef
		dirty *bool
	}{{s.file, &s.dirty}, {s.offsets.file, &s.offsets.dirty}, {s.times.file, &s.times.dirty}} {
		if !*x.dirty {
			continue
		}
		*x.dirty = false // if the sync fails so does the log
		r := x.file
		f, perr := r.pin()
		if perr != nil {
			err = errors.Join(err, perr)
			break
		}
		defer r.release()
		files = append(files, f)
	}
	aborts := s.txns.count > 0
	s.mu.Unlock()
	for _, f := range files {
		err = errors.Join(err, storageErr("sync", f.Name(), f.Sync()))
	}
	if aborts {
		err = errors.Join(err, syncFile(s.fs, s.txns.path))
	}
	return err
}

// close gives the files up; slices keep the log file open.
func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return errors.Join(s.offsets.file.retire(), s.times.file.retire(), s.txns.closeFile(), f.retire())
}

// view is what a reader needs of a segment, taken in one moment. Its file is pinned.
type view struct {
	ref  *fileRef
	file vfs.File
	size int64
	next int64
	from int64 // position at or before the batch asked for
	mark int64 // a batch boundary near the end of what may be read, or 0
}

// pin pins the file and looks up positions: from for the offset from, mark for the
// end given by maxBytes after that and by upTo.
func (s *segment) pin(from, maxBytes, upTo int64) (v view, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return v, errGone
	}
	v = view{ref: s.file, size: s.size, next: s.next}
	if v.from, err = s.position(from); err != nil {
		return v, err
	}
	limit := v.from + maxBytes
	if v.mark, err = s.mark(limit, upTo); err != nil {
		return v, err
	}
	v.file, err = s.file.pin()
	return v, err
}

// mark is the last indexed batch boundary that is neither above limit (a position) nor
// behind the batch that holds upTo; 0 if there is none or the whole segment may be read.
func (s *segment) mark(limit, upTo int64) (pos int64, err error) {
	if upTo >= s.next && limit >= s.size {
		return 0, nil
	}
	pos = limit
	if upTo < s.next {
		if pos, err = s.position(upTo - 1); err != nil {
			return 0, err
		}
	}
	if limit < s.size && pos >= limit {
		var e [timeEntrySize]byte
		ok, err := s.offsets.floor(&e, limit, entryPos)
		if err != nil || !ok {
			return 0, err
		}
		pos = entryPos(e[:])
	}
	return pos, nil
}

// position is a batch boundary at or before the batch that holds offset.
func (s *segment) position(offset int64) (int64, error) {
	var e [timeEntrySize]byte
	ok, err := s.offsets.floor(&e, offset-s.base, entryOffset)
	if err != nil || !ok {
		return 0, err
	}
	return entryPos(e[:]), nil
}

func (s *segment) bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size
}

// largestTime is what retention by age judges, ms: the largest timestamp; or when the
// file was last written, for a segment whose records have none, or one above now: it
// was not written in the future, and would else hold itself and all behind it.
func (s *segment) largestTime(now int64) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.maxTs >= 0 && s.maxTs <= now {
		return s.maxTs
	}
	written := s.created.UnixMilli()
	if st, err := s.fs.Stat(s.path(logSuffix)); err == nil {
		written = st.ModTime.UnixMilli()
	}
	return written
}

// firstTimestamp is the largest timestamp of the first batch, -1 for none.
func (s *segment) firstTimestamp() (int64, error) {
	if s.size == 0 {
		return -1, nil
	}
	if s.firstTs == unknownTs {
		sc := newScanner(s.file, s.size)
		defer sc.close()
		h, _, err := sc.header(0)
		if err != nil {
			return -1, err
		}
		s.firstTs = h.MaxTimestamp()
	}
	return s.firstTs, nil
}
