package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// Open loads the log in dir, making the folder if it is missing. Without a clean
// shutdown every segment from the recovery point on is read through: the first bad
// batch ends the log there, indexes and epochs are built anew. The recovery point is
// not advanced by that: what was read may still only be in memory.
func Open(fsys vfs.FS, dir string, cfg Config, o OpenOptions) (*Log, error) {
	l := &Log{fs: fsys, dir: dir, cfg: cfg.withDefaults(), now: o.Now, logger: o.Logger, bg: o.Background, broke: o.OnFailure}
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
	l.flushed.Store(l.now().UnixMilli())
	l.setSegments(nil)
	began := time.Now()
	l.undecided.init()
	l.lastAbort.Store(-1)
	if err := l.load(o); err != nil {
		return errors.Join(fmt.Errorf("open log %s: %w", l.dir, err), l.closeSegments())
	}
	if l.recovered.Segments > 0 {
		l.recovered.Took = time.Since(began)
		l.logger.Info("recovered a log", "dir", l.dir, "start", l.StartOffset(), "end", l.EndOffset(), "segments", l.recovered.Segments,
			"scanned_bytes", l.recovered.Scanned, "cut_bytes", l.recovered.Cut, "dropped_segments", l.recovered.Dropped, "took", l.recovered.Took.Round(time.Microsecond))
	}
	return nil
}

func (l *Log) load(o OpenOptions) error {
	files, bases, err := l.listSegments()
	if err != nil {
		return err
	}
	l.listed, l.opening = &listing{files: files}, o.Context
	if l.opening == nil {
		l.opening = context.Background()
	}
	defer func() { l.listed, l.opening = nil, nil }()
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
	if end < o.RecoveryPoint {
		return damaged(l.dir, end, fmt.Errorf("the log was on disk up to %d: %w", o.RecoveryPoint, recordbatch.ErrShort))
	}
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
	if start < end {
		if err := l.fillEpochs(start); err != nil {
			return err
		}
	}
	l.epochs.truncateStart(start)
	l.epochs.truncateEnd(end)
	if l.replayed != end { // a scan may have brought them there
		if err := l.rebuildProducers(end); err != nil {
			return err
		}
	} else if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return err
	}
	l.producers.expire(l.now(), l.cfg.ProducerExpiry)
	if o.CleanShutdown && !l.listed.stale {
		snapshot, empty := l.listedSize(segmentName(end, snapshotSuffix)) >= 0, l.listedSize(segmentName(end, logSuffix)) == 0
		if snapshot || empty && len(l.producers.byID) == 0 {
			l.cleanSegs, l.cleanEnd = l.segs.Load(), end
		}
	}
	if !o.CleanShutdown {
		// A stop that the power has cut may have left a snapshot within a segment, without
		// the file beside it.
		return errors.Join(l.keepSnapshots(segs[len(segs)-1].base), storageErr("sync", l.dir, l.fs.SyncDir(l.dir)))
	}
	return nil
}

// listSegments lists the folder, made if it is missing, removes leftovers and gives
// the base offsets, ascending. The one listing tells the sizes of all files: with ten
// thousand partitions each call for one of them shows.
func (l *Log) listSegments() (files []vfs.Info, bases []int64, err error) {
	files, err = l.fs.ReadDir(l.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, storageErr("mkdir", l.dir, vfs.MkdirAllDurable(l.fs, l.dir))
	}
	if err != nil {
		return nil, nil, storageErr("list", l.dir, err)
	}
	if changed, err := l.finishSwaps(files); err != nil {
		return nil, nil, err
	} else if changed {
		if files, err = l.fs.ReadDir(l.dir); err != nil {
			return nil, nil, storageErr("list", l.dir, err)
		}
	}
	logs := map[int64]bool{}
	for _, f := range files {
		if f.Dir {
			return nil, nil, &fs.PathError{Op: "open", Path: filepath.Join(l.dir, f.Name), Err: syscall.EISDIR}
		}
		if f.Special { // a pipe has no length, and would pass for a file that has lost all
			return nil, nil, fmt.Errorf("%s is not a regular file", filepath.Join(l.dir, f.Name))
		}
		if cleanName(f.Name) {
			if err := removeIfThere(l.fs, filepath.Join(l.dir, f.Name)); err != nil {
				return nil, nil, err
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
					return nil, nil, err
				}
			}
		}
	}
	return files, bases, nil
}

// listing is a log's folder as Open found it, sorted.
type listing struct {
	files []vfs.Info
	stale bool // snapshots were made or removed since
}

// listedSize is the length of a file of the listing; -1 if it is not there.
func (l *Log) listedSize(name string) int64 {
	i, ok := slices.BinarySearchFunc(l.listed.files, name, func(f vfs.Info, name string) int { return strings.Compare(f.Name, name) })
	if !ok {
		return -1
	}
	return l.listed.files[i].Size
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
	safe := o.RecoveryPoint // below it a crash has damaged nothing
	if o.CleanShutdown {
		safe = math.MaxInt64
	}
	for i, base := range bases {
		s := newSegment(l.fs, l.dir, base, &l.cfg, l.now())
		s.openLog()
		segs = append(segs, s)
		l.setSegments(segs)
		size := l.listedSize(segmentName(base, logSuffix))
		later := bases[i+1:]
		rebuild := i >= scanFrom
		var err error
		if !rebuild {
			if err = l.loadSegment(s, size, later); errors.Is(err, errRebuild) {
				l.logger.Warn("rebuilding a segment", "file", s.path(logSuffix), "reason", err)
				rebuild = true
			} else if err != nil {
				return err
			}
		}
		torn := false
		if rebuild {
			if torn, err = l.recoverSegment(s, size, later, safe, i < scanFrom); err != nil {
				return err
			}
		}
		// A power cut may have taken the end of a segment and left the next one.
		if !torn && len(later) > 0 && (s.next > later[0] || rebuild && s.next < later[0] && !l.holeBefore(s, later[0], safe, o)) {
			torn = true
			if s.next < safe {
				return damaged(s.path(logSuffix), s.next, fmt.Errorf("the next segment begins at %d: %w", later[0], recordbatch.ErrCorrupt))
			}
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

// holeBefore tells whether the offsets between the end of a segment and the next one
// are missing for a good reason: Kafka's compaction may remove the last batches of a
// segment (ours leaves their header), which lies below its checkpoint then, but for a
// clean that was killed before it could write that. Such a one is known by what is
// missing below offset safe: that was on disk, and no crash has taken it; and what
// compaction puts in its place was on disk, all of it, before it got its name.
// Above that a hole is taken for the end of a segment that a power cut has taken: to
// keep what follows would be to lose records between others, which no leader ever sends
// again. A jump that no segment could hold was made by a follower.
func (l *Log) holeBefore(s *segment, next, safe int64, o OpenOptions) bool {
	return next <= o.CleanedUpTo || next-s.next > math.MaxInt32/2 || l.cfg.Compact && s.next < safe
}

// dropBases removes segments behind a torn one.
func (l *Log) dropBases(bases []int64) error {
	if len(bases) == 0 {
		return nil
	}
	l.logger.Warn("removing segments behind a torn batch", "dir", l.dir, "from", bases[0], "segments", len(bases))
	for i := len(bases) - 1; i >= 0; i-- { // last first, so that a crash leaves no gap
		if st, err := l.fs.Stat(segmentPath(l.dir, bases[i], logSuffix)); err == nil {
			l.recovered.Cut += st.Size
		}
		l.recovered.Dropped++
		for _, suffix := range []string{logSuffix, indexSuffix, timeSuffix, txnSuffix} {
			if err := removeIfThere(l.fs, segmentPath(l.dir, bases[i], suffix)); err != nil {
				return err
			}
		}
	}
	return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}

var errRebuild = errors.New("indexes must be rebuilt")

// loadSegment takes the indexes as they are. A segment with later ones behind it ends
// where the next begins and its largest timestamp is the last one in the time index,
// which rolling puts there; nothing of its batches is read. Of the last segment only
// those behind its last index entry are. errRebuild means that indexes or end do not fit.
func (l *Log) loadSegment(s *segment, size int64, later []int64) error {
	limit := int64(1) << 32
	if len(later) > 0 {
		limit = min(limit, later[0]-s.base)
	}
	for _, x := range []*index{&s.offsets, &s.times} {
		bytes := l.listedSize(segmentName(s.base, x.file.suffix))
		if bytes < 0 {
			return fmt.Errorf("%w: %s is missing", errRebuild, x.file.path())
		}
		if ok, err := x.load(bytes); err != nil {
			return err
		} else if !ok {
			return fmt.Errorf("%w: %s has a broken entry", errRebuild, x.file.path())
		}
	}
	s.size = size
	if err := l.checkEmptyIndexes(s, len(later) > 0); err != nil {
		return err
	}
	if err := checkIndexes(&s.offsets, &s.times, size, limit); err != nil {
		return fmt.Errorf("%w: %w", errRebuild, err)
	}
	s.indexedTime()
	if l.listedSize(segmentName(s.base, txnSuffix)) >= 0 {
		if err := s.txns.load(s.base); errors.Is(err, errTxnIndex) {
			return fmt.Errorf("%w: %w", errRebuild, err)
		} else if err != nil {
			return err
		}
		l.lastAbort.Store(max(l.lastAbort.Load(), s.txns.last))
	}
	if len(later) > 0 {
		s.next = later[0]
		return nil
	}
	if err := s.tail(func(h recordbatch.Batch) { s.next = h.NextOffset(); s.noteTime(h) }); err != nil {
		return fmt.Errorf("%w: %w", errRebuild, err)
	}
	return s.file.idle()
}

// recoverSegment reads the segment through, checks every batch, builds the indexes
// anew and cuts what is not whole; torn tells that something was cut. The later
// segments go before the cut: a crash between must not leave a gap that looks whole.
// Below offset safe nothing is cut; it is an error then. below tells that the next
// start will not read this segment through: a half-written index must not be left.
// The producer state comes along, since the transaction index is made from it.
func (l *Log) recoverSegment(s *segment, size int64, later []int64, safe int64, below bool) (torn bool, err error) {
	if below {
		if err := l.hideTimes(s); err != nil {
			return false, err
		}
	}
	if err := l.producersAt(s.base, safe); err != nil {
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
		if !below && l.listedSize(segmentName(s.base, x.file.suffix)) == 0 {
			continue // nothing to cut, nor to sync
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
		if err := l.opening.Err(); err != nil {
			return false, err
		}
		h, n, err := sc.header(s.size)
		if err == nil {
			err = checkBatch(s, &sc, h, n, chunk)
		}
		if isIO(err) { // to cut what only cannot be read now would be to lose it
			return false, err
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
	l.recovered.note(size, s.size)
	if bad != nil && s.next < safe {
		return false, damaged(s.path(logSuffix), s.next, bad)
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
	if err == nil && below {
		err = l.showTimes(s)
	}
	return bad != nil, err
}

func checkBatch(s *segment, sc *scanner, h recordbatch.Batch, n int64, chunk []byte) error {
	if h.BaseOffset() < s.next || h.LastOffsetDelta() < 0 || h.LastOffset()-s.base > 1<<32-1 || h.LastOffset() < 0 {
		return fmt.Errorf("batch %d..%d after offset %d: %w", h.BaseOffset(), h.LastOffset(), s.next-1, recordbatch.ErrCorrupt)
	}
	return sc.checkCRC(s.size, n, h.CRC(), chunk)
}

// fillEpochs reads the epochs from the batches below the first that is known: of all
// if the file is missing or bad, of some where the log's start has gone back, as it
// was raised and the power cut came before its checkpoint.
func (l *Log) fillEpochs(start int64) error {
	first, ok := l.epochs.first()
	if ok && first <= start {
		return nil
	}
	var missing []epochEntry
	err := l.walk(start, l.end.Load(), func(_ *segment, h recordbatch.Batch, _, _ int64) error {
		if ok && h.BaseOffset() >= first {
			return errFound
		}
		if n := len(missing); h.LeaderEpoch() >= 0 && (n == 0 || h.LeaderEpoch() > missing[n-1].epoch) {
			missing = append(missing, epochEntry{h.LeaderEpoch(), h.BaseOffset()})
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFound) {
		return err
	}
	return l.epochs.prepend(missing)
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
