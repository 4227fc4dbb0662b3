package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// Open loads the log in dir, making the folder if it is missing. Without a clean
// shutdown every segment from the recovery point on is read through: the first bad
// batch ends the log there, indexes and epochs are built anew. The recovery point is
// not advanced by that: what was read may still only be in memory.
func Open(fsys vfs.FS, dir string, cfg Config, o OpenOptions) (*Log, error) {
	l := &Log{fs: fsys, dir: dir, cfg: cfg.withDefaults(), now: o.Now, logger: o.Logger, broke: o.OnFailure}
	if err := l.open(o); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Log) open(o OpenOptions) error {
	if l.now == nil {
		l.now = time.Now
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	l.start.Store(max(0, o.LogStartOffset))
	l.setSegments(nil)
	l.undecided.init()
	l.lastAbort.Store(-1)
	if err := l.load(o); err != nil {
		return errors.Join(fmt.Errorf("open log %s: %w", l.dir, err), l.closeSegments())
	}
	return nil
}

func (l *Log) load(o OpenOptions) error {
	if !vfs.Exists(l.fs, l.dir) {
		if err := l.fs.MkdirAll(l.dir); err != nil {
			return storageErr("mkdir", l.dir, err)
		}
		if err := l.fs.SyncDir(filepath.Dir(l.dir)); err != nil {
			return storageErr("sync", filepath.Dir(l.dir), err)
		}
	}
	bases, err := l.listSegments()
	if err != nil {
		return err
	}
	var eerr error
	if l.epochs, eerr = loadEpochs(l.fs, l.dir); eerr != nil && !errors.Is(eerr, fs.ErrNotExist) {
		if !errors.Is(eerr, errCheckpoint) {
			return eerr
		}
		l.logger.Warn("leader epochs are unreadable, rebuilding them from the batches", "dir", l.dir, "error", eerr)
	}
	if err := l.loadSegments(bases, o); err != nil {
		return err
	}
	segs := l.segments()
	end := segs[len(segs)-1].next
	start := max(o.LogStartOffset, segs[0].base)
	if end < start { // everything below the checkpointed start is gone, above is nothing
		l.logger.Warn("log ends before its start, starting anew", "dir", l.dir, "end", end, "start", start)
		return l.restartAt(start)
	}
	l.start.Store(start)
	l.end.Store(end)
	l.recovery.Store(min(max(o.RecoveryPoint, 0), end))
	if o.CleanShutdown {
		l.recovery.Store(end)
	}
	if eerr != nil && start < end {
		if err := l.rebuildEpochs(); err != nil {
			return err
		}
	}
	if err := errors.Join(l.epochs.truncateEnd(end), l.epochs.truncateStart(start)); err != nil {
		return err
	}
	if l.replayed != end { // a scan may have brought them there
		if err := l.rebuildProducers(end); err != nil {
			return err
		}
	} else if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return err
	}
	l.producers.expire(l.now(), l.cfg.ProducerExpiry)
	if !o.CleanShutdown {
		return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
	}
	return nil
}

// listSegments removes leftovers and gives the base offsets, ascending.
func (l *Log) listSegments() ([]int64, error) {
	files, err := l.fs.ReadDir(l.dir)
	if err != nil {
		return nil, storageErr("list", l.dir, err)
	}
	var bases []int64
	logs := map[int64]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.Name, ".swap") {
			return nil, fmt.Errorf("%s: %s is from a compaction that did not finish", l.dir, f.Name)
		}
		if cleanName(f.Name) {
			if err := removeIfThere(l.fs, filepath.Join(l.dir, f.Name)); err != nil {
				return nil, err
			}
		} else if base, ok := baseOfName(f.Name, logSuffix); ok {
			bases = append(bases, base)
			logs[base] = true
		}
	}
	for _, f := range files { // an index without its log would be taken for that of a later one
		for _, suffix := range []string{indexSuffix, timeSuffix, txnSuffix} {
			if base, ok := baseOfName(f.Name, suffix); ok && !logs[base] {
				if err := removeIfThere(l.fs, filepath.Join(l.dir, f.Name)); err != nil {
					return nil, err
				}
			}
		}
	}
	return bases, nil
}

func (l *Log) loadSegments(bases []int64, o OpenOptions) error {
	var segs []*segment
	scanFrom := len(bases) // the first segment that must be read through
	if !o.CleanShutdown && len(bases) > 0 {
		scanFrom = 0
		for scanFrom+1 < len(bases) && bases[scanFrom+1] <= o.RecoveryPoint {
			scanFrom++
		}
	}
	for i, base := range bases {
		s := newSegment(l.fs, l.dir, base, &l.cfg, l.now())
		if err := s.openLog(); err != nil {
			return err
		}
		segs = append(segs, s)
		l.setSegments(segs)
		size, err := s.file.Size()
		if err != nil {
			return storageErr("size of", s.path(logSuffix), err)
		}
		limit := int64(1) << 32
		if i+1 < len(bases) {
			limit = min(limit, bases[i+1]-base)
		}
		later := bases[i+1:]
		rebuild := i >= scanFrom
		if !rebuild {
			if err = l.loadSegment(s, size, limit); errors.Is(err, errRebuild) {
				l.logger.Warn("rebuilding a segment", "file", s.path(logSuffix), "reason", err)
				rebuild = true
			} else if err != nil {
				return err
			}
		}
		torn := false
		if rebuild {
			if torn, err = l.recoverSegment(s, size, later); err != nil {
				return err
			}
		}
		// A power cut may have taken the end of a segment and left the next one. (Gaps
		// of compaction lie below the recovery point.)
		if !torn && len(later) > 0 && (s.next > later[0] || i >= scanFrom && s.next < later[0]) {
			torn = true
			if err := l.dropBases(later); err != nil {
				return err
			}
		}
		if torn {
			break
		}
	}
	if len(segs) == 0 {
		s, err := l.newActive(l.start.Load())
		if err != nil {
			return err
		}
		segs = append(segs, s)
	}
	l.setSegments(segs)
	return nil
}

// dropBases removes segments behind a torn one.
func (l *Log) dropBases(bases []int64) error {
	if len(bases) == 0 {
		return nil
	}
	l.logger.Warn("removing segments behind a torn batch", "dir", l.dir, "from", bases[0], "segments", len(bases))
	for i := len(bases) - 1; i >= 0; i-- { // last first, so that a crash leaves no gap
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
			if err := removeIfThere(l.fs, segmentPath(l.dir, bases[i], suffix)); err != nil {
				return err
			}
		}
	}
	return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}

var errRebuild = errors.New("indexes must be rebuilt")

// loadSegment takes the indexes as they are and finds the end behind the last entry.
// errRebuild means that they or the end do not fit.
func (l *Log) loadSegment(s *segment, size, limit int64) error {
	for _, x := range []*index{&s.offsets, &s.times} {
		ok, err := x.load()
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%w: %s is missing or has a broken entry", errRebuild, x.path)
		}
	}
	if err := checkIndexes(&s.offsets, &s.times, size, limit); err != nil {
		return fmt.Errorf("%w: %w", errRebuild, err)
	}
	s.size = size
	pos := int64(0)
	if s.offsets.count() > 0 {
		pos = entryPos(s.offsets.last[:])
	}
	sc := newScanner(s.file, size)
	defer sc.close()
	for pos < size {
		h, n, err := sc.header(pos)
		if err != nil {
			return fmt.Errorf("%w: %w", errRebuild, err)
		}
		s.next = h.NextOffset()
		pos += n
	}
	if err := s.findLargestTime(); err != nil {
		return fmt.Errorf("%w: %w", errRebuild, err)
	}
	if err := s.txns.load(s.base); errors.Is(err, errTxnIndex) {
		return fmt.Errorf("%w: %w", errRebuild, err)
	} else if err != nil {
		return err
	}
	l.lastAbort.Store(max(l.lastAbort.Load(), s.txns.last))
	return errors.Join(s.offsets.closeFile(), s.times.closeFile())
}

// recoverSegment reads the segment through, checks every batch, builds the indexes
// anew and cuts what is not whole; torn tells that something was cut. The later
// segments go before the cut: a crash between must not leave a gap that looks whole.
// The producer state comes along, since the transaction index is made from it.
func (l *Log) recoverSegment(s *segment, size int64, later []int64) (torn bool, err error) {
	if err := l.producersAt(s.base); err != nil {
		return false, err
	}
	if err := s.txns.reset(); err != nil {
		return false, err
	}
	now := l.now().UnixMilli()
	fresh := newSegment(l.fs, l.dir, s.base, &l.cfg, l.now())
	s.size, s.next, s.maxTs, s.maxTsLast, s.unindexed = 0, s.base, -1, s.base, 0
	for _, x := range []*index{&s.offsets, &s.times} {
		x.max = fresh.offsets.max
		if x.entry == timeEntrySize {
			x.max = fresh.times.max
		}
		if err := x.cut(0); err != nil {
			return false, err
		}
	}
	sc := newScanner(s.file, size)
	defer sc.close()
	chunk := make([]byte, 64<<10)
	var bad error
	for s.size < size && bad == nil {
		h, n, err := sc.header(s.size)
		if err == nil {
			err = checkBatch(s, &sc, h, n, chunk)
		}
		if err != nil {
			bad = err
			break
		}
		if latest, ok := l.epochs.latest(); h.LeaderEpoch() >= 0 && (!ok || h.LeaderEpoch() > latest) {
			if err := l.epochs.assign(h.LeaderEpoch(), h.BaseOffset()); err != nil {
				return false, err
			}
		}
		if err := l.replay(s, s, h, s.size, n, now); err != nil {
			return false, err
		}
		if err := s.account(h, n, int(l.cfg.IndexIntervalBytes)); err != nil {
			return false, err
		}
	}
	l.replayed = s.next
	l.undecided.opened(l.producers.firstOpen())
	if bad != nil {
		l.logger.Warn("cutting the log at a torn batch", "file", s.path(logSuffix), "position", s.size, "of", size, "next", s.next, "error", bad)
		if err := l.dropBases(later); err != nil {
			return true, err
		}
		if err := s.file.Truncate(s.size); err != nil {
			return true, storageErr("truncate", s.path(logSuffix), err)
		}
	}
	if err := s.indexTime(); err != nil {
		return bad != nil, err
	}
	// The cut and the indexes must not be undone by a power cut: the recovery point may
	// lie above the cut.
	err = errors.Join(s.offsets.sync(), s.times.sync(), s.offsets.finish(), s.times.finish(), s.txns.finish())
	if bad != nil {
		err = errors.Join(err, storageErr("sync", s.path(logSuffix), s.file.Sync()))
	}
	return bad != nil, err
}

func checkBatch(s *segment, sc *scanner, h recordbatch.Batch, n int64, chunk []byte) error {
	if h.BaseOffset() < s.next || h.LastOffsetDelta() < 0 || h.LastOffset()-s.base > 1<<32-1 || h.LastOffset() < 0 {
		return fmt.Errorf("batch %d..%d after offset %d: %w", h.BaseOffset(), h.LastOffset(), s.next-1, recordbatch.ErrCorrupt)
	}
	return sc.checkCRC(s.size, n, h.CRC(), chunk)
}

// rebuildEpochs reads the epochs from all batch headers.
func (l *Log) rebuildEpochs() error {
	return l.walk(l.start.Load(), l.end.Load(), func(s *segment, h recordbatch.Batch, _, _ int64) error {
		if latest, ok := l.epochs.latest(); h.LeaderEpoch() >= 0 && (!ok || h.LeaderEpoch() > latest) {
			return l.epochs.assign(h.LeaderEpoch(), h.BaseOffset())
		}
		return nil
	})
}

// walk calls fn with the header of every batch that ends above offset from and
// begins below upTo. REQUIRES: mu held, or the log not yet shared.
func (l *Log) walk(from, upTo int64, fn func(s *segment, h recordbatch.Batch, pos, n int64) error) error {
	segs := l.segments()
	for i := find(segs, from); from < upTo && i < len(segs) && segs[i].base < upTo; i++ {
		s := segs[i]
		pos, err := s.position(from)
		if err != nil {
			return err
		}
		sc := newScanner(s.file, s.size)
		for err == nil && pos < s.size {
			var h recordbatch.Batch
			var n int64
			if h, n, err = sc.header(pos); err == nil && h.BaseOffset() >= upTo {
				break
			}
			if err == nil && h.LastOffset() >= from {
				err = fn(s, h, pos, n)
			}
			pos += n
		}
		sc.close()
		if err != nil {
			return err
		}
	}
	return nil
}
