package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	deletedSuffix  = ".deleted"
)

// errGone means that the segment was closed under a reader, who tries again with
// the current list.
var errGone = errors.New("segment is closed")

// fileRef is an open log file with its users: the segment and every slice.
type fileRef struct {
	vfs.File
	refs atomic.Int32
}

func (r *fileRef) release() error {
	if r.refs.Add(-1) == 0 {
		return r.File.Close()
	}
	return nil
}

// segment is one log file with its indexes. What lies below size never changes
// while someone holds a reference to the file.
type segment struct {
	fs      vfs.FS
	dir     string
	base    int64
	created time.Time
	jitter  time.Duration // how much earlier than segment.ms it rolls

	mu        sync.RWMutex
	file      *fileRef // nil once closed
	size      int64    // bytes
	next      int64    // offset after the last record
	maxTs     int64    // largest timestamp, ms; -1 if none
	maxTsLast int64    // last offset of the first batch with maxTs
	firstTs   int64    // largest timestamp of the first batch; unknownTs before it is read
	unindexed int      // bytes since the last index entry
	offsets   index
	times     index
	txns      txnIndex
}

const unknownTs = -2

func segmentPath(dir string, base int64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, suffix))
}

// newSegment prepares a segment without opening anything.
func newSegment(fsys vfs.FS, dir string, base int64, cfg *Config, now time.Time) *segment {
	s := &segment{fs: fsys, dir: dir, base: base, created: now, next: base, maxTs: -1, maxTsLast: base, firstTs: unknownTs}
	s.offsets = index{fs: fsys, path: s.path(indexSuffix), entry: offsetEntrySize, max: int(cfg.SegmentIndexBytes) / offsetEntrySize}
	s.times = index{fs: fsys, path: s.path(timeSuffix), entry: timeEntrySize, max: int(cfg.SegmentIndexBytes) / timeEntrySize}
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
	for _, x := range []*index{&s.offsets, &s.times} {
		if err := x.open(); err != nil {
			return nil, err
		}
		if err := x.closeFile(); err != nil {
			return nil, err
		}
	}
	return s, s.openLog()
}

func (s *segment) openLog() error {
	f, err := s.fs.Open(s.path(logSuffix), true)
	if err != nil {
		return storageErr("open", s.path(logSuffix), err)
	}
	s.file = &fileRef{File: f}
	s.file.refs.Store(1)
	return nil
}

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
	if ts := h.MaxTimestamp(); ts > s.maxTs {
		s.maxTs, s.maxTsLast = ts, last
	}
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
	s.unindexed += int(length)
	s.size += length
	s.next = last + 1
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
// appends go on.
func (s *segment) sync() error {
	s.mu.Lock()
	f := s.file
	if f == nil {
		s.mu.Unlock()
		return nil // deleted meanwhile
	}
	f.refs.Add(1)
	err := errors.Join(s.offsets.write(), s.times.write())
	aborts := s.txns.count > 0
	s.mu.Unlock()
	defer f.release()
	err = errors.Join(err, storageErr("sync", f.Name(), f.Sync()), syncFile(s.fs, s.offsets.path), syncFile(s.fs, s.times.path))
	if aborts {
		err = errors.Join(err, syncFile(s.fs, s.txns.path))
	}
	return err
}

// close drops the segment's own reference; slices keep the file open.
func (s *segment) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return errors.Join(s.offsets.closeFile(), s.times.closeFile(), s.txns.closeFile(), storageErr("close", f.Name(), f.release()))
}

// view is what a reader needs of a segment, taken in one moment.
type view struct {
	file *fileRef
	size int64
	next int64
	from int64 // position at or before the batch asked for
	mark int64 // a batch boundary near the end of what may be read, or 0
}

// pin takes a reference to the file and looks up positions: from for the offset
// from, mark for the end given by maxBytes after that and by upTo.
func (s *segment) pin(from, maxBytes, upTo int64) (v view, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return v, errGone
	}
	v = view{file: s.file, size: s.size, next: s.next}
	if v.from, err = s.position(from); err != nil {
		return v, err
	}
	limit := v.from + maxBytes
	if upTo < s.next || limit < s.size {
		var e [timeEntrySize]byte
		ok, err := s.offsets.floor(&e, func(e []byte) bool { return entryOffset(e)+s.base < upTo && entryPos(e) <= limit })
		if err != nil {
			return v, err
		}
		if ok {
			v.mark = entryPos(e[:])
		}
	}
	s.file.refs.Add(1)
	return v, nil
}

// position is a batch boundary at or before the batch that holds offset.
func (s *segment) position(offset int64) (int64, error) {
	var e [timeEntrySize]byte
	ok, err := s.offsets.floor(&e, func(e []byte) bool { return entryOffset(e)+s.base <= offset })
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

// largestTime is what retention by age judges, ms: the largest timestamp, or the
// file's modification time for a segment whose records have none.
func (s *segment) largestTime() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.maxTs >= 0 {
		return s.maxTs
	}
	if st, err := s.fs.Stat(s.path(logSuffix)); err == nil {
		return st.ModTime.UnixMilli()
	}
	return s.created.UnixMilli()
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
