package commitlog

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

// Recovery is what opening a log had to do to it; all zero where it was read as it is.
type Recovery struct {
	Segments int           // read through, their indexes built anew
	Scanned  int64         // bytes read through
	Cut      int64         // bytes dropped: of torn ends, and of whole segments behind them
	Dropped  int           // whole segments dropped
	Took     time.Duration // opening the log in all
}

func (r *Recovery) note(before, after int64) {
	r.Segments++
	r.Scanned += before
	r.Cut += before - after
}

// Recovery tells what opening the log had to do.
func (l *Log) Recovery() Recovery { return l.recovered }

// isIO tells a disk that fails from bytes that are wrong.
func isIO(err error) bool { return errors.Is(err, kerr.KafkaStorageError) }

// damaged is the error of a log that lacks what was on disk for sure. It is not cut
// there: a replica that is in sync is trusted to have all that is committed, and one
// that has silently lost it could become the leader.
func damaged(path string, offset int64, err error) error {
	return fmt.Errorf("%s: what follows offset %d is damaged, and had been safely on disk: %w", path, offset, err)
}

// checkEmptyIndexes looks into the log where an index has no entry at all: one that
// should have some was emptied, and would be believed. A finished segment with
// nothing in any of its files is what Kafka's compaction leaves where no record is
// kept.
func (l *Log) checkEmptyIndexes(s *segment, finished bool) error {
	if s.size == 0 && s.times.count()+s.offsets.count() > 0 {
		// Not to be built anew: the indexes are what tells, also at the next start.
		return damaged(s.path(logSuffix), s.base, fmt.Errorf("the file is empty, and its indexes are not: %w", recordbatch.ErrShort))
	}
	if s.size == 0 || s.times.count() > 0 && (s.offsets.count() > 0 || s.size <= int64(l.cfg.IndexIntervalBytes)) {
		return nil
	}
	sc := newScanner(s.file, s.size)
	defer sc.close()
	for pos := int64(0); pos < s.size; {
		h, n, err := sc.header(pos)
		if err != nil {
			return fmt.Errorf("%w: %w", errRebuild, err)
		}
		if s.offsets.count() == 0 && pos > int64(max(l.cfg.IndexIntervalBytes, 0)) || finished && s.times.count() == 0 && h.MaxTimestamp() >= 0 {
			return fmt.Errorf("%w: an index is empty", errRebuild)
		}
		if pos += n; pos > int64(l.cfg.IndexIntervalBytes) && s.offsets.count() > 0 {
			return nil
		}
	}
	return nil
}

// hideTimes lets the time index be built anew under another name. Without it a segment
// counts as one whose indexes must be built: so it is when the power fails before all
// of them are on disk.
func (l *Log) hideTimes(s *segment) error {
	if err := removeIfThere(l.fs, s.path(timeSuffix)); err != nil {
		return err
	}
	s.times.file = newFileRef(l.fs, l.dir, s.base, timeSuffix+".tmp", true)
	return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}

// showTimes gives the time index, synced like the others, its name.
func (l *Log) showTimes(s *segment) error {
	hidden := s.times.file
	s.times.file = newFileRef(l.fs, l.dir, s.base, timeSuffix, true)
	if err := hidden.retire(); err != nil {
		return err
	}
	if err := l.fs.Rename(hidden.path(), s.path(timeSuffix)); err != nil {
		return storageErr("rename", hidden.path(), err)
	}
	return storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
}
