package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
)

// beginClean makes a clean known to whoever must stop it; end must be called.
func (l *Log) beginClean(ctx context.Context) (c context.Context, end func(), err error) {
	l.cleanMu.Lock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil || l.pauses > 0 {
		l.cleanMu.Unlock()
		if err == nil {
			err = fmt.Errorf("%w: cleaning is paused", ErrCleanAborted)
		}
		return nil, nil, err
	}
	c, cancel := context.WithCancelCause(ctx)
	l.stopClean = cancel
	return c, func() {
		cancel(nil)
		l.mu.Lock()
		l.stopClean = nil
		l.mu.Unlock()
		l.cleanMu.Unlock()
	}, nil
}

// PauseCleaning ends a clean that runs, waits for its end, and refuses cleans until
// resume is called.
func (l *Log) PauseCleaning() (resume func()) {
	l.mu.Lock()
	l.pauses++
	if l.stopClean != nil {
		l.stopClean(errCleanStopped)
	}
	l.mu.Unlock()
	l.cleanMu.Lock()
	defer l.cleanMu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.pauses--
	}
}

// swap puts a finished segment in the place of those that it was made from.
//
// Whatever the moment of a crash, the start after it finds all old segments, or can
// finish what was begun (finishSwaps): new files are durable before they are called
// .swap, all of them are called so before an old one goes, and all old ones are gone
// before the new ones get their names.
func (c *clean) swap(w *cleanWriter, old []*segment) (err error) {
	l := c.l
	l.shape.Lock()
	defer l.shape.Unlock()
	if err := c.stillThere(old); err != nil {
		return errors.Join(err, w.discard())
	}
	if err := w.seg.close(); err != nil {
		return errors.Join(err, w.discard())
	}
	for _, suffix := range segmentSuffixes {
		path := w.seg.path(suffix)
		if err := l.fs.Rename(path+cleanedSuffix, path+swapSuffix); err != nil && !(suffix == txnSuffix && errors.Is(err, fs.ErrNotExist)) {
			return l.failLocked(storageErr("rename", path+cleanedSuffix, err))
		}
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.failLocked(storageErr("sync", l.dir, err))
	}
	if err := l.replace(w, old); err != nil {
		return l.failLocked(err)
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return l.failLocked(storageErr("sync", l.dir, err))
	}
	for _, s := range old[1:] {
		// A snapshot that no segment begins at would stay until the log is closed.
		err = errors.Join(err, removeSnapshot(l.fs, l.dir, s.base))
	}
	return err
}

// stillThere tells whether the log is what it was when the clean began.
func (c *clean) stillThere(old []*segment) error {
	l := c.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	segs := l.segments()
	i := slices.Index(segs, old[0])
	if l.cuts != c.cuts || i < 0 || i+len(old) >= len(segs) || !slices.Equal(segs[i:i+len(old)], old) {
		return fmt.Errorf("%w: segments have changed", ErrCleanAborted)
	}
	return nil
}

// replace puts the segment made into the list and gives the files their names.
// Readers of the new segment wait for its lock; those of the old ones keep their
// files. REQUIRES: shape held.
func (l *Log) replace(w *cleanWriter, old []*segment) error {
	made := w.seg
	l.mu.Lock()
	defer l.mu.Unlock()
	n := newSegment(l.fs, l.dir, made.base, &l.cfg, l.now())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.size, n.next, n.maxTs, n.maxTsLast, n.due = made.size, made.next, made.maxTs, made.maxTsLast, made.due
	n.offsets.stored, n.offsets.last = made.offsets.stored, made.offsets.last
	n.times.stored, n.times.last = made.times.stored, made.times.last
	n.txns.count, n.txns.last = w.txns.count, w.txns.last
	segs := l.segments()
	i := slices.Index(segs, old[0])
	l.setSegments(slices.Concat(segs[:i], []*segment{n}, segs[i+len(old):]))
	if err := l.drop(old, l.now()); err != nil {
		return err
	}
	for _, suffix := range segmentSuffixes { // the log first, see finishSwaps
		path := n.path(suffix)
		if err := l.fs.Rename(path+swapSuffix, path); err != nil && !(suffix == txnSuffix && errors.Is(err, fs.ErrNotExist)) {
			return storageErr("rename", path+swapSuffix, err)
		}
	}
	n.openLog()
	return nil
}

func (l *Log) failLocked(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fail(err)
}
