package commitlog

import (
	"errors"
	"slices"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// rebuildProducers builds the producer state as of end from the newest good snapshot
// not above it, and the batches after that. Snapshots above end and bad ones go.
// REQUIRES: mu held, or the log not yet shared.
func (l *Log) rebuildProducers(end int64) error {
	if err := l.removeSnapshots(func(o int64) bool { return o > end }); err != nil {
		return err
	}
	_, err := l.reload(end)
	return err
}

// producersAt brings the state to the beginning of a segment that is about to be
// scanned, and keeps it as a snapshot: a truncation into the segment then need not
// look at those before it. Up to offset safe a good one is trusted, and not put at risk.
// The log is not yet shared.
func (l *Log) producersAt(base, safe int64) error {
	if l.replayed == base && (base > safe || l.listedSize(segmentName(base, snapshotSuffix)) < 0) {
		if len(l.producers.byID) == 0 {
			return nil
		}
		l.listed.stale = true
		return l.writeSnapshot(base, false)
	}
	from, err := l.reload(base)
	if err != nil || from == base || len(l.producers.byID) == 0 {
		return err
	}
	// The next start, too, begins here: it must not find the snapshot without the file
	// beside it.
	l.listed.stale = true
	b := l.producers.encode()
	if _, err = l.writeBatches(base, b, true); err == nil {
		err = storageErr("sync", l.dir, l.fs.SyncDir(l.dir))
	}
	if err == nil {
		err = writeFile(l.fs, segmentPath(l.dir, base, snapshotSuffix), b, true)
	}
	return err
}

// reload reads the producer state as of offset, and tells up to where a snapshot said it.
func (l *Log) reload(offset int64) (from int64, err error) {
	if from, err = l.readSnapshot(offset); err != nil {
		return 0, err
	}
	if from < offset {
		l.logger.Debug("replaying batches for the producer state", "dir", l.dir, "from", from, "to", offset)
	}
	now := l.now().UnixMilli()
	err = l.walk(from, offset, func(s *segment, h recordbatch.Batch, pos, n int64) error {
		return l.replay(nil, s, h, pos, n, now)
	})
	l.replayed = offset
	l.undecided.opened(l.producers.firstOpen())
	return from, err
}

// readSnapshot takes the newest good snapshot not above offset, removing bad ones,
// and tells up to where it goes.
func (l *Log) readSnapshot(offset int64) (from int64, err error) {
	l.producers = producers{}
	offsets, err := l.snapshotOffsets()
	if err != nil {
		return 0, err
	}
	first := l.segments()[0].base
	remove := func(offset int64) error {
		if l.listed != nil {
			l.listed.stale = true
		}
		return removeSnapshot(l.fs, l.dir, offset)
	}
	for i := len(offsets) - 1; i >= 0; i-- {
		if offsets[i] > offset {
			continue
		}
		path := segmentPath(l.dir, offsets[i], snapshotSuffix)
		if offsets[i] < first {
			// Of batches since then some are deleted: a producer that wrote them would be
			// refused for its sequence. One that is not known may go on.
			l.logger.Warn("removing a producer snapshot older than the log", "file", path)
			if err := remove(offsets[i]); err != nil {
				return 0, err
			}
			continue
		}
		b, err := vfs.ReadFile(l.fs, path, maxSnapshotSize)
		var ps *producers
		if err == nil {
			ps, err = decodeSnapshot(b)
		}
		if err == nil {
			l.producers = *ps
			return offsets[i], errors.Join(l.recall(offsets[i], b), l.forgetEnded(offsets[i]))
		}
		if !errors.Is(err, errSnapshot) {
			return 0, storageErr("read", path, err)
		}
		l.logger.Warn("removing a bad producer snapshot", "file", path, "error", err)
		if err := remove(offsets[i]); err != nil {
			return 0, err
		}
	}
	return first, nil
}

// forgetEnded closes the transactions that a snapshot as of offset calls open though they
// are over: compaction may have removed all of a transaction that ended after the snapshot,
// its marker, too. Replaying what is left would leave it open for ever, and readers of
// committed data would wait for it. What is not decided is never compacted, and a marker
// stays for as long as there is data, so that a transaction is over if nothing of it is
// there, and begins with what is left of it. One that may have gone with the start of the
// log is left open.
func (l *Log) forgetEnded(offset int64) error {
	for _, t := range slices.Clone(l.producers.open) {
		if t.first < l.segments()[0].base {
			continue
		}
		left := int64(-1)
		err := l.walk(t.first, offset, func(_ *segment, h recordbatch.Batch, _, _ int64) error {
			if h.ProducerID() != t.producerID || !h.IsTransactional() || h.IsControl() {
				return nil
			}
			left = h.BaseOffset()
			return errFound
		})
		if err != nil && !errors.Is(err, errFound) {
			return err
		}
		if left == t.first {
			continue
		}
		l.producers.forget(t)
		if left >= 0 {
			l.producers.begin(l.producers.byID[t.producerID], t.producerID, left)
		}
	}
	return nil
}

// maxMarkerSize bounds what is read of a control batch: a marker has less than a
// hundred bytes.
const maxMarkerSize = 64 << 10

// replay takes over a batch of segment s that is in the log, of which h is the
// header and n the length: of data the header says all, a marker is read. An abort
// goes into the index of segment into, unless that is nil.
func (l *Log) replay(into, s *segment, h recordbatch.Batch, pos, n, now int64) error {
	switch {
	case !h.HasProducerID():
		return nil
	case !h.IsControl():
		l.producers.add(h, now)
		return nil
	case n > maxMarkerSize:
		l.logger.Warn("control batch is too large to be one", "dir", l.dir, "offset", h.BaseOffset(), "bytes", n)
		return nil
	}
	b, err := readBatch(s.file, pos, n)
	if err != nil {
		return err
	}
	return l.applyMarker(into, b)
}
