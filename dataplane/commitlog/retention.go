package commitlog

import (
	"errors"
	"time"
)

// IncrementStartOffset moves the start up (DeleteRecords); a lower one is ignored.
// OFFSET_OUT_OF_RANGE above the end. That offset <= high watermark is the caller's check.
func (l *Log) IncrementStartOffset(offset int64) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return false, err
	}
	if end := l.end.Load(); offset > end {
		return false, outOfRange(offset, l.start.Load(), end)
	}
	if offset <= l.start.Load() {
		return false, nil
	}
	l.start.Store(offset)
	l.epochs.truncateStart(offset)
	return true, nil
}

// DeleteOldSegments applies retention by start offset, size and time to segments
// that end at or below hw, and tells how many went. Files are renamed to .deleted.
func (l *Log) DeleteOldSegments(now time.Time, hw int64) (int, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	n, err := l.rollIfAllDue(now, hw)
	if n == 0 || err != nil {
		return 0, err
	}
	// The batches may go only when what is known of their producers is on disk. What is
	// not yet is left to the flush that it waits for.
	l.mu.Lock()
	unsynced, names := l.unsynced, l.dirDirty
	l.mu.Unlock()
	err = l.syncBeside(unsynced, names)
	l.mu.Lock()
	defer l.mu.Unlock()
	if uerr := l.usable(); uerr != nil { // its folder may be gone, too
		return 0, uerr
	}
	if err != nil {
		return 0, l.fail(err)
	}
	return n, l.deleteFirst(n, now)
}

// rollIfAllDue tells how many segments are due, and makes a new last one if all are.
// REQUIRES: shape held.
func (l *Log) rollIfAllDue(now time.Time, hw int64) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	n := l.due(now, hw)
	if n < len(l.segments()) {
		return n, nil
	}
	return n, l.roll(l.end.Load())
}

// due counts the segments, from the first on, that retention lets go. An empty last one
// stays. REQUIRES: mu held.
func (l *Log) due(now time.Time, hw int64) (n int) {
	segs, start := l.segments(), l.start.Load()
	bySize, byAge := l.cfg.RetentionBytes >= 0 && !l.cfg.KeepForever, l.cfg.RetentionAge >= 0 && !l.cfg.KeepForever
	surplus := l.Size() - l.cfg.RetentionBytes
	oldest := now.Add(-l.cfg.RetentionAge).UnixMilli()
	for i, s := range segs {
		next := l.end.Load()
		if i+1 < len(segs) {
			next = segs[i+1].base
		} else if s.bytes() == 0 {
			break
		}
		surplus -= s.bytes()
		if next > hw || next > start && !(bySize && surplus >= 0) && !(byAge && s.largestTime(now.UnixMilli()) < oldest) {
			break
		}
		n++
	}
	return n
}

// deleteFirst deletes the first n segments. REQUIRES: shape and mu held, what is known of
// their producers on disk.
func (l *Log) deleteFirst(n int, now time.Time) error {
	segs := l.segments()
	// Readers leave the segments before the files go.
	l.setSegments(append([]*segment(nil), segs[n:]...))
	l.start.Store(max(l.start.Load(), segs[n].base))
	err := l.drop(segs[:n], now)
	for _, s := range segs[:n] {
		err = errors.Join(err, removeSnapshot(l.fs, l.dir, s.base))
	}
	if err != nil {
		return l.fail(err)
	}
	l.epochs.truncateStart(l.start.Load())
	l.logger.Info("retention deleted segments", "dir", l.dir, "segments", n, "start", l.start.Load())
	return nil
}
