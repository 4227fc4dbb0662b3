package commitlog

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"penstock/dataplane/vfs"
)

// Log is one partition's log.
type Log struct {
	fs     vfs.FS
	dir    string
	now    func() time.Time
	logger *slog.Logger
	bg     func(func()) // see OpenOptions.Background
	broke  func(error)  // OpenOptions.OnFailure
	wg     sync.WaitGroup

	// Read without Log.mu. start <= end; segs is never empty and never changed in place.
	start, end atomic.Int64
	recovery   atomic.Int64
	flushed    atomic.Int64 // when the last flush up to the end was begun, ms
	segs       atomic.Pointer[[]*segment]
	epochs     *epochs
	undecided  undecided
	lastAbort  atomic.Int64 // no abort marker lies above it; -1 if there is none
	closed     atomic.Bool
	recovered  Recovery // set before the log is shared

	cleanMu sync.Mutex // held over a clean: one at a time
	// shape is held by what removes closed segments or puts others in their place
	// (truncation, retention, the end of a clean), so that the last two can sync without
	// mu; taken before flushMu and mu.
	shape   sync.Mutex
	flushMu sync.Mutex // one flush at a time; taken before mu

	mu        sync.Mutex
	cfg       Config
	producers producers
	verifying map[int64]*verification // by producer; see verification.go
	replayed  int64                   // while the log is opened: up to where producers goes
	failed    error                   // a failed write or sync that leaves the files in doubt
	cuts      int                     // number of truncations, so that a flush notices one
	dirDirty  bool                    // names were made that are not yet durable
	unsynced  []string                // files written beside the log files and not yet synced
	deleted   []deletedFile           // wait for removal
	stopClean func(error)             // ends the clean that runs, if one does
	pauses    int                     // while above 0 no clean begins
	listed    *listing                // while the log is being opened
	opening   context.Context         // the same; OpenOptions.Context
	// The segments and the end that a clean start found, with the snapshot for that end:
	// while they are the same there is nothing to write at Close.
	cleanSegs *[]*segment
	cleanEnd  int64
}

type deletedFile struct {
	path string
	at   time.Time
}

// AppendInfo is what an append did.
type AppendInfo struct {
	FirstOffset    int64 // of the first record; -1 if there was none
	LastOffset     int64
	MaxTimestamp   int64 // ms since 1970
	LogAppendTime  int64 // ms since 1970, -1 for a topic with CreateTime
	LogStartOffset int64
	Records        int  // number of records appended
	Bytes          int  // number of bytes appended
	Duplicate      bool // nothing was appended; the offsets are those of the first time
}

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() int64 { return l.start.Load() }

// EndOffset is the offset of the next record (LEO).
func (l *Log) EndOffset() int64 { return l.end.Load() }

// BatchesEnd is the offset after the last batch on disk. It lies below EndOffset where a
// truncation has cut inside a gap that compaction left, and is what a restart goes by.
func (l *Log) BatchesEnd() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.active()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.next
}

// RaiseEnd moves the end up over offsets that hold nothing, as in the log that this one
// is a copy of; a lower offset is ignored.
func (l *Log) RaiseEnd(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	l.end.Store(max(l.end.Load(), offset))
	return nil
}

// RecoveryPoint is the offset below which everything was synced to disk.
func (l *Log) RecoveryPoint() int64 { return l.recovery.Load() }

// Size is the length of all segments in bytes.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range l.segments() {
		n += s.bytes()
	}
	return n
}

// Dir is the log's folder.
func (l *Log) Dir() string { return l.dir }

// SetConfig replaces the settings; it takes effect from the next append on (the
// limit of index files from the next segment on).
func (l *Log) SetConfig(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg = c.withDefaults()
}

// LatestEpoch is the newest leader epoch in the log; ok is false for none.
func (l *Log) LatestEpoch() (epoch int32, ok bool) { return l.epochs.latest() }

// EpochStart is the offset at which an epoch that the log knows begins.
func (l *Log) EpochStart(epoch int32) (start int64, ok bool) { return l.epochs.start(epoch) }

// EpochAt is the leader epoch of the record at offset; ok is false if unknown.
func (l *Log) EpochAt(offset int64) (epoch int32, ok bool) { return l.epochs.at(offset) }

// EndOffsetForEpoch is where the largest known epoch not above epoch ends (KIP-279):
// the log's end for the latest epoch, undefined (-1, -1) for a newer one, the start of
// the first epoch for an older one than all.
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, end int64) {
	return l.epochs.endOffset(epoch, l.end.Load())
}

// AssignEpochStart records that epoch begins at start, the end of the log; a no-op if
// not news. On disk it is with the epoch's first batch, or after Close.
func (l *Log) AssignEpochStart(epoch int32, start int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.epochs.begin(epoch, start)
}

// ExpireProducers forgets idle idempotent producers.
func (l *Log) ExpireProducers(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.expire(now, l.cfg.ProducerExpiry)
	l.expireVerifications(now)
}

func (l *Log) segments() []*segment { return *l.segs.Load() }

// active is the last segment, the one that is appended to.
func (l *Log) active() *segment { s := l.segments(); return s[len(s)-1] }

func (l *Log) setSegments(s []*segment) { l.segs.Store(&s) }

// find is the place of the segment that may hold offset: the last whose base is not
// above it, or the first.
func find(segs []*segment, offset int64) int {
	return max(0, sort.Search(len(segs), func(i int) bool { return segs[i].base > offset })-1)
}

// usable tells whether the log may be changed. REQUIRES: mu held.
func (l *Log) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.failed
}

// fail makes the log refuse all changes from now on: after a failed sync nobody
// knows what is on disk, and trying again would only pretend. REQUIRES: mu held.
func (l *Log) fail(err error) error {
	if err != nil && l.failed == nil {
		l.failed = err
		l.logger.Error("log failed", "dir", l.dir, "error", err)
		if l.broke != nil {
			l.broke(err)
		}
	}
	return err
}

// newActive creates an empty segment at base. REQUIRES: mu held.
func (l *Log) newActive(base int64) (*segment, error) {
	s, err := createSegment(l.fs, l.dir, base, &l.cfg, l.now())
	if err != nil {
		return nil, err
	}
	if j := min(l.cfg.SegmentJitter, l.cfg.SegmentAge); j > 0 {
		s.jitter = time.Duration(rand.Int64N(int64(j)))
	}
	l.dirDirty = true
	if l.cfg.Preallocate {
		if err := s.reserve(int64(l.cfg.SegmentBytes)); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// Flush syncs everything appended so far and moves the recovery point to the end.
func (l *Log) Flush() error { return l.flushTo(-1) }

// FlushIfDue flushes a log that has something to flush and has not been flushed for
// flush.ms.
func (l *Log) FlushIfDue(now time.Time) error {
	if l.recovery.Load() >= l.end.Load() {
		return nil
	}
	l.mu.Lock()
	due := l.usable() == nil && now.UnixMilli()-l.flushed.Load() >= l.cfg.FlushAge.Milliseconds()
	l.mu.Unlock()
	if !due {
		return nil
	}
	return l.Flush()
}

// flushTo syncs what lies below offset (-1: all) without holding mu over the syncs.
func (l *Log) flushTo(offset int64) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	// A truncation may have been faster than a flush that was asked for. Where it cut
	// inside a gap between batches, the log ends on disk before that.
	if end := l.active().next; offset < 0 || offset > end {
		offset = end
		l.flushed.Store(l.now().UnixMilli())
	}
	point, cuts, dirDirty, unsynced := l.recovery.Load(), l.cuts, l.dirDirty, l.unsynced
	l.dirDirty = false
	segs := l.segments()
	l.mu.Unlock()

	var err error
	if offset > point {
		for _, s := range segs[find(segs, point):] {
			if s.base < offset && err == nil {
				err = s.sync()
			}
		}
	}
	if err == nil {
		err = l.syncBeside(unsynced, dirDirty)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return l.fail(err)
	}
	if cuts != l.cuts {
		return nil
	}
	l.unsynced = slices.DeleteFunc(slices.Clone(l.unsynced), func(path string) bool { return slices.Contains(unsynced, path) })
	// A segment that was finished meanwhile has new index entries, which the flush after
	// the roll is to sync: what ends at its end is not all on disk before that.
	if rolled := len(l.unsynced) > 0 && offset >= l.active().base; !rolled && offset > l.recovery.Load() {
		l.recovery.Store(offset)
	}
	return nil
}

// syncBeside syncs files other than logs, and the folder if its names have changed.
func (l *Log) syncBeside(files []string, names bool) error {
	for _, path := range files {
		if err := syncFile(l.fs, path); err != nil {
			return err
		}
	}
	if !names {
		return nil
	}
	return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}

// syncFile syncs a file that may have been deleted meanwhile.
func syncFile(fsys vfs.FS, path string) error {
	f, err := fsys.Open(path, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storageErr("open", path, err)
	}
	err = f.Sync()
	return storageErr("sync", path, errors.Join(err, f.Close()))
}

// Close flushes, writes the producer snapshot and closes the files. Slices in use
// stay readable. An error means that the next start must not count as clean.
func (l *Log) Close() error {
	if l.closed.Load() {
		return nil
	}
	l.PauseCleaning() // for good
	ferr := l.Flush()
	defer l.wg.Wait() // after the locks are free; what still waits finds the log closed
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Swap(true) {
		return nil
	}
	end := l.end.Load()
	if unchanged := l.segs.Load() == l.cleanSegs && end == l.cleanEnd && l.cuts == 0 && !l.epochs.lags(); ferr == nil && !unchanged {
		ferr = errors.Join(l.epochs.settle(), l.active().finish(), l.giveBack(l.active()), l.active().sync(), l.lastSnapshot(end),
			l.keepSnapshots(end), storageErr("sync", l.dir, l.fs.SyncDir(l.dir)))
	}
	return errors.Join(ferr, l.closeSegments())
}

// lastSnapshot writes the producers as of the end. A log that holds nothing gets
// none, as in Kafka.
func (l *Log) lastSnapshot(end int64) error {
	if end == l.segments()[0].base && len(l.producers.byID) == 0 {
		return nil
	}
	return l.writeSnapshot(end, true)
}

// Delete closes without flushing and removes the folder.
func (l *Log) Delete() error {
	err := l.abandon()
	if rerr := storageErr("remove", l.dir, l.fs.RemoveAll(l.dir)); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// Closed tells that Close, Delete or Abandon was called.
func (l *Log) Closed() bool { return l.closed.Load() }

// Abandon closes the files as they are, for a log whose folder has failed or is to go.
func (l *Log) Abandon() error { return l.abandon() }

func (l *Log) abandon() error {
	l.PauseCleaning() // for good
	defer l.wg.Wait()
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Swap(true) {
		return nil
	}
	return l.closeSegments()
}

func (l *Log) closeSegments() error {
	var errs []error
	for _, s := range l.segments() {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// background runs f beside the caller until Close waits for it. REQUIRES: mu held.
func (l *Log) background(f func()) {
	if l.bg != nil {
		l.bg(f)
		return
	}
	l.wg.Go(f)
}
