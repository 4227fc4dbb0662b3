package commitlog

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"
)

// LowerRecoveryPoint takes the recovery point back before a truncation to offset. The
// caller writes its checkpoint in between: a log that ends below the checkpointed point
// is taken for one that has lost what it had.
func (l *Log) LowerRecoveryPoint(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	segs := l.segments()
	s := segs[find(segs, offset)]
	_, _, next, err := s.boundary(offset)
	if err != nil {
		return err
	}
	l.cuts++                                               // a flush that is under way must not raise it again
	l.recovery.Store(min(l.recovery.Load(), offset, next)) // a cut inside a gap is not on disk
	return nil
}

// TruncateTo drops everything at and above offset; false if there was nothing to drop.
// A batch that holds offset in its middle goes whole, and the log then ends where it
// began; see LowerRecoveryPoint for what must come before.
func (l *Log) TruncateTo(offset int64) (bool, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	if offset >= l.end.Load() {
		l.epochs.truncateEnd(offset)
		return false, nil
	}
	segs := l.segments()
	if offset < segs[0].base {
		return true, l.restartAt(offset)
	}
	l.cuts++
	l.undecided.cut(offset)
	i := find(segs, offset)
	// Readers must not look above the cut any more.
	l.end.Store(offset)
	l.start.Store(min(l.start.Load(), offset))
	// The last segment goes first, and all for good before the cut: a crash between must
	// not leave a gap that looks whole.
	later := slices.Clone(segs[i+1:])
	slices.Reverse(later)
	if err := l.drop(later, l.now()); err != nil {
		return true, l.fail(err)
	}
	l.setSegments(append([]*segment(nil), segs[:i+1]...))
	if err := l.fs.SyncDir(l.dir); err != nil {
		return true, l.fail(storageErr("sync", l.dir, err))
	}
	end, err := segs[i].truncateTo(offset)
	if err != nil {
		return true, l.fail(err)
	}
	l.end.Store(end)
	l.start.Store(min(l.start.Load(), end))
	l.recovery.Store(min(l.recovery.Load(), segs[i].next)) // a cut inside a gap is not on disk
	l.epochs.truncateEnd(end)
	if err := l.epochs.persist(); err != nil {
		return true, l.fail(err)
	}
	l.undecided.cut(end)
	if err := l.rebuildProducers(end); err != nil {
		return true, l.fail(err)
	}
	// Without this a power cut could bring the dropped files back.
	return true, l.fail(storageErr("sync", l.dir, l.fs.SyncDir(l.dir)))
}

// TruncateFullyAndStartAt drops everything and starts anew at offset; see
// LowerRecoveryPoint, with 0, for what must come before.
func (l *Log) TruncateFullyAndStartAt(offset int64) error {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.restartAt(offset)
}

// restartAt: what is known of the batches goes before them, so that a crash between
// leaves no knowledge of batches that are gone; from the batches it is built anew.
func (l *Log) restartAt(offset int64) error {
	l.cuts++
	err := errors.Join(l.removeSnapshots(func(int64) bool { return true }), storageErr("sync", l.dir, l.fs.SyncDir(l.dir)), l.epochs.clear())
	if err == nil {
		err = l.drop(l.segments(), l.now())
	}
	if err != nil {
		return l.fail(err)
	}
	s, err := l.newActive(offset)
	if err != nil {
		return l.fail(err)
	}
	l.setSegments([]*segment{s})
	l.start.Store(offset)
	l.end.Store(offset)
	l.recovery.Store(offset)
	l.producers, l.replayed = producers{}, offset
	l.undecided.reset(offset)
	l.lastAbort.Store(-1)
	return l.fail(storageErr("sync", l.dir, l.fs.SyncDir(l.dir)))
}

// truncateTo cuts the segment before the batch that holds offset or the first one
// after it, and tells where the log ends then.
func (s *segment) truncateTo(offset int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pos, end, next, err := s.boundary(offset)
	if err != nil {
		return 0, err
	}
	return end, s.cutAt(pos, next)
}

// boundary finds where to cut the segment for a truncation to offset: the position,
// where the log ends then, and where its last batch does, which may be before that.
func (s *segment) boundary(offset int64) (pos, end, next int64, err error) {
	if pos, err = s.position(offset - 1); err != nil {
		return 0, 0, 0, err
	}
	sc := newScanner(s.file, s.size)
	defer sc.close()
	end, next = offset, min(s.base, offset)
	for pos < s.size {
		h, n, err := sc.header(pos)
		if err != nil {
			return 0, 0, 0, err
		}
		if h.LastOffset() >= offset {
			return pos, max(s.base, min(offset, h.BaseOffset())), next, nil
		}
		next = h.NextOffset()
		pos += n
	}
	return pos, end, next, nil
}

// cutAt shortens the file to size bytes that end before offset next. While slices
// use the file, it is replaced by a shorter copy instead, so that they stay as they
// are. REQUIRES: mu held.
func (s *segment) cutAt(size, next int64) error {
	if s.file.pinned() > 0 {
		if err := s.replaceBy(size); err != nil {
			return err
		}
	} else if err := s.file.Truncate(size); err != nil {
		return storageErr("truncate", s.file.Name(), err)
	}
	if err := s.file.Sync(); err != nil {
		return storageErr("sync", s.file.Name(), err)
	}
	s.size, s.next, s.unindexed, s.firstTs = size, next, 0, unknownTs
	// An entry names the last offset of the batch at its position.
	// Kafka's may name the last offset of several batches that were appended in one.
	if err := s.offsets.truncate(func(e []byte) bool { return entryPos(e) < size && s.base+entryOffset(e) < next }); err != nil {
		return err
	}
	if err := s.times.truncate(func(e []byte) bool { return s.base+entryTimeOffset(e) < next }); err != nil {
		return err
	}
	if err := s.txns.truncate(next); err != nil {
		return err
	}
	return s.findLargestTime()
}

// replaceBy puts a copy of the first size bytes in the place of the file.
func (s *segment) replaceBy(size int64) error {
	path := s.path(logSuffix)
	tmp := path + ".tmp"
	if err := removeIfThere(s.fs, tmp); err != nil {
		return err
	}
	f, err := s.fs.Open(tmp, true)
	if err != nil {
		return storageErr("open", tmp, err)
	}
	buf := make([]byte, 1<<20)
	for at := int64(0); at < size && err == nil; {
		var n int
		n, err = s.file.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if n > 0 {
			_, err = f.WriteAt(buf[:n], at)
		}
		at += int64(n)
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = s.fs.Rename(tmp, path)
	}
	if err != nil {
		_ = f.Close()
		return storageErr("copy", path, err)
	}
	old := s.file
	s.openLog()
	return errors.Join(s.file.adopt(f), old.retire())
}

// drop closes segments and renames their files, to be removed after a delay.
// REQUIRES: mu held, or the log not yet shared.
func (l *Log) drop(segs []*segment, now time.Time) error {
	for _, s := range segs {
		if err := s.close(); err != nil {
			return err
		}
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
			path := s.path(suffix)
			err := l.fs.Rename(path, path+deletedSuffix)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return storageErr("rename", path, err)
			}
			l.deleted = append(l.deleted, deletedFile{path + deletedSuffix, now})
		}
		l.dirDirty = true
	}
	return nil
}

// RemoveDeleted removes .deleted files whose delay is over and tells how many are left.
func (l *Log) RemoveDeleted(now time.Time) (left int, err error) {
	l.mu.Lock()
	delay := max(0, l.cfg.DeleteDelay)
	var due []deletedFile
	kept := l.deleted[:0]
	for _, d := range l.deleted {
		if now.Sub(d.at) >= delay {
			due = append(due, d)
		} else {
			kept = append(kept, d)
		}
	}
	l.deleted = kept
	left = len(kept)
	l.mu.Unlock()
	for _, d := range due { // a large file takes its time to go
		err = errors.Join(err, removeIfThere(l.fs, d.path))
	}
	return left, err
}

func (l *Log) removeSnapshots(which func(offset int64) bool) error {
	offsets, err := l.offsetsOf(snapshotSuffix, batchesSuffix) // Kafka removes only its own
	if err != nil {
		return err
	}
	for _, o := range offsets {
		if which(o) {
			err = errors.Join(err, removeSnapshot(l.fs, l.dir, o))
		}
	}
	return err
}

// keepSnapshots removes all snapshots but the one at offset and those at the
// beginning of a segment, from which the state can be rebuilt after a truncation.
func (l *Log) keepSnapshots(offset int64) error {
	bases := map[int64]bool{offset: true}
	for _, s := range l.segments() {
		bases[s.base] = true
	}
	return l.removeSnapshots(func(o int64) bool { return !bases[o] })
}

// cleanName tells whether a file is a leftover that the log removes when it opens.
func cleanName(name string) bool {
	switch filepath.Ext(name) {
	case deletedSuffix, ".tmp":
		return true
	}
	return false
}
