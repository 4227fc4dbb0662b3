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
	return true, l.epochs.truncateStart(offset)
}

// DeleteOldSegments applies retention by start offset, size and time to segments
// that end at or below hw, and tells how many went. Files are renamed to .deleted.
func (l *Log) DeleteOldSegments(now time.Time, hw int64) (int, error) {
	l.shape.Lock()
	defer l.shape.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	start := l.start.Load()
	total, err := l.deleteWhile(now, hw, func(_ *segment, next int64) bool { return next <= start })
	if err != nil || l.cfg.KeepForever {
		return total, err
	}
	if l.cfg.RetentionBytes >= 0 {
		surplus := l.Size() - l.cfg.RetentionBytes
		n, err := l.deleteWhile(now, hw, func(s *segment, _ int64) bool {
			surplus -= s.bytes()
			return surplus >= 0
		})
		if total += n; err != nil {
			return total, err
		}
	}
	if l.cfg.RetentionAge >= 0 {
		oldest := now.Add(-l.cfg.RetentionAge).UnixMilli()
		n, err := l.deleteWhile(now, hw, func(s *segment, _ int64) bool { return s.largestTime(now.UnixMilli()) < oldest })
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}

// deleteWhile deletes segments from the first on, as long as they are due and end at
// or below hw; next is where the following segment begins. An empty last segment
// stays; a last one with data gives way to a new empty one.
func (l *Log) deleteWhile(now time.Time, hw int64, due func(s *segment, next int64) bool) (int, error) {
	segs := l.segments()
	n := 0
	for i, s := range segs {
		next := l.end.Load()
		if i+1 < len(segs) {
			next = segs[i+1].base
		} else if s.bytes() == 0 {
			break
		}
		if next > hw || !due(s, next) {
			break
		}
		n++
	}
	if n == 0 {
		return 0, nil
	}
	if n == len(segs) {
		if err := l.roll(l.end.Load()); err != nil {
			return 0, err
		}
		segs = l.segments()
	}
	// The batches may go only when what is known of their producers is on disk.
	if err := l.syncBeside(l.unsynced, l.dirDirty); err != nil {
		return 0, l.fail(err)
	}
	l.unsynced, l.dirDirty = nil, false
	// Readers leave the segments before the files go.
	l.setSegments(append([]*segment(nil), segs[n:]...))
	l.start.Store(max(l.start.Load(), segs[n].base))
	err := l.drop(segs[:n], now)
	for _, s := range segs[:n] {
		err = errors.Join(err, removeIfThere(l.fs, segmentPath(l.dir, s.base, snapshotSuffix)))
	}
	if err = errors.Join(err, l.epochs.truncateStart(l.start.Load())); err != nil {
		return n, l.fail(err)
	}
	l.logger.Info("retention deleted segments", "dir", l.dir, "segments", n, "start", l.start.Load())
	return n, nil
}
