package commitlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

// AppendLeader assigns offsets from the end of the log and the leader epoch to
// batches, in place, checks producer sequences and appends with one write. The
// batches must have passed recordbatch.Validate; of those with a producer id there
// may be one only. Errors: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
// INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE (more than segment.bytes), INVALID_RECORD,
// KAFKA_STORAGE_ERROR; of a marker TRANSACTION_COORDINATOR_FENCED. Then nothing was appended.
func (l *Log) AppendLeader(batches []byte, leaderEpoch int32) (AppendInfo, error) {
	return l.AppendLeaderMarker(batches, leaderEpoch, 0)
}

// AppendLeaderMarker is AppendLeader for a marker of that version of transactions: from 2 on
// each transaction has an epoch of its own, and its marker the next.
func (l *Log) AppendLeaderMarker(batches []byte, leaderEpoch int32, transactionVersion int8) (AppendInfo, error) {
	l.mu.Lock()
	info, flush, err := l.appendLeader(batches, leaderEpoch, transactionVersion)
	l.mu.Unlock()
	if err == nil && flush {
		err = l.Flush()
	}
	return info, err
}

func (l *Log) appendLeader(batches []byte, leaderEpoch int32, transactionVersion int8) (AppendInfo, bool, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, false, err
	}
	if int64(len(batches)) > int64(l.cfg.SegmentBytes) {
		return AppendInfo{}, false, fmt.Errorf("%d bytes do not fit a segment of %d: %w", len(batches), l.cfg.SegmentBytes, kerr.RecordListTooLarge)
	}
	info := l.newInfo()
	next := l.end.Load()
	withProducer := 0
	for rest := batches; len(rest) > 0; {
		var b recordbatch.Batch
		var err error
		if b, rest, err = recordbatch.Next(rest); err != nil {
			return AppendInfo{}, false, fmt.Errorf("%w: %w", err, kerr.CorruptMessage)
		}
		if b.LastOffsetDelta() < 0 {
			return AppendInfo{}, false, kerr.InvalidRecord
		}
		if b.HasProducerID() {
			if withProducer++; withProducer > 1 {
				return AppendInfo{}, false, fmt.Errorf("more than one batch with a producer id in one append: %w", kerr.InvalidRecord)
			}
		}
		switch {
		case !b.HasProducerID():
		case b.IsControl():
			if err := l.producers.checkMarker(b, transactionVersion); err != nil {
				return AppendInfo{}, false, err
			}
		default:
			if dup := l.producers.duplicate(b); dup != nil {
				info.Duplicate, info.FirstOffset, info.LastOffset, info.MaxTimestamp = true, dup.firstOffset(), dup.lastOffset, dup.timestamp
				if b.IsLogAppendTime() {
					info.LogAppendTime = dup.timestamp
				}
				return info, false, nil
			}
			if b.IsTransactional() {
				if err := l.checkVerified(b); err != nil {
					return AppendInfo{}, false, err
				}
			}
			if err := l.producers.check(b); err != nil {
				return AppendInfo{}, false, err
			}
		}
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(leaderEpoch)
		next = b.NextOffset()
		info.add(b)
	}
	flush, err := l.write(batches, &info)
	return info, flush, err
}

// AppendFollower appends batches as a leader sent them. The first batch must not
// begin before the end of the log, nor any before the end of the one ahead of it
// (ErrOffsetMismatch); a gap is allowed, as compaction leaves them. A cut last batch
// is ignored; a bad checksum is CORRUPT_MESSAGE. Leader epochs are learnt from the
// batches.
func (l *Log) AppendFollower(batches []byte) (AppendInfo, error) {
	l.mu.Lock()
	info, flush, err := l.appendFollower(batches)
	l.mu.Unlock()
	if err == nil && flush {
		err = l.Flush()
	}
	return info, err
}

func (l *Log) appendFollower(batches []byte) (AppendInfo, bool, error) {
	if err := l.usable(); err != nil {
		return AppendInfo{}, false, err
	}
	info := l.newInfo()
	next := l.end.Load()
	whole := 0
	for rest := batches; len(rest) > 0; {
		b, r, err := recordbatch.Next(rest)
		if errors.Is(err, recordbatch.ErrShort) {
			break
		}
		if err != nil {
			return AppendInfo{}, false, fmt.Errorf("%w: %w", err, kerr.CorruptMessage)
		}
		if b.LastOffsetDelta() < 0 || b.BaseOffset() < 0 || b.LastOffset() < 0 || b.CRC() != b.ComputeCRC() {
			return AppendInfo{}, false, fmt.Errorf("batch at offset %d: %w", b.BaseOffset(), kerr.CorruptMessage)
		}
		if b.BaseOffset() < next {
			return AppendInfo{}, false, &OffsetMismatchError{End: next, First: b.BaseOffset(), Last: b.LastOffset()}
		}
		next = b.NextOffset()
		info.add(b)
		whole += len(b)
		rest = r
	}
	flush, err := l.write(batches[:whole], &info)
	return info, flush, err
}

func (l *Log) newInfo() AppendInfo {
	return AppendInfo{FirstOffset: -1, LastOffset: -1, MaxTimestamp: -1, LogAppendTime: -1, LogStartOffset: l.start.Load()}
}

func (i *AppendInfo) add(b recordbatch.Batch) {
	if i.FirstOffset < 0 {
		i.FirstOffset = b.BaseOffset()
	}
	i.LastOffset = b.LastOffset()
	i.MaxTimestamp = max(i.MaxTimestamp, b.MaxTimestamp())
	if b.IsLogAppendTime() {
		i.LogAppendTime = b.MaxTimestamp()
	}
	i.Records += int(b.Count())
	i.Bytes += len(b)
}

// write appends checked and stamped batches; flush tells that flush.messages is
// reached. REQUIRES: mu held.
func (l *Log) write(batches []byte, info *AppendInfo) (flush bool, err error) {
	if len(batches) == 0 {
		return false, nil
	}
	if err := l.maybeRoll(info, len(batches)); err != nil {
		return false, err
	}
	// Epochs before data: an epoch that begins at the end of the log is harmless, one
	// that is missing would hide a divergence.
	if err := l.applyEpochs(batches); err != nil {
		return false, err
	}
	s := l.active()
	if _, err := s.file.WriteAt(batches, s.size); err != nil {
		err = storageErr("write", s.file.Name(), err)
		if terr := s.file.Truncate(s.size); terr != nil {
			l.fail(err) // half of the write stays behind the end
		}
		return false, err
	}
	if err := s.written(batches, int(l.cfg.IndexIntervalBytes)); err != nil {
		return false, l.fail(err)
	}
	// What the batches mean for transactions is in force before anybody can read them.
	if err := l.applyAll(s, batches); err != nil {
		return false, l.fail(err)
	}
	l.end.Store(info.LastOffset + 1)
	return info.LastOffset+1-l.recovery.Load() >= l.cfg.FlushMessages, nil
}

// applyEpochs notes the leader epochs that begin with the batches. REQUIRES: mu held.
func (l *Log) applyEpochs(batches []byte) error {
	for len(batches) > 0 {
		b, rest, err := recordbatch.Next(batches)
		if err != nil {
			return fmt.Errorf("BUG: unchecked batch is to be written: %w", err)
		}
		batches = rest
		if latest, ok := l.epochs.latest(); b.LeaderEpoch() >= 0 && (!ok || latest != b.LeaderEpoch()) {
			if err := l.epochs.begin(b.LeaderEpoch(), b.BaseOffset()); err != nil {
				return err
			}
		}
	}
	return l.epochs.persist()
}

// applyAll takes the batches that were appended to s over into the producer state.
// REQUIRES: mu held.
func (l *Log) applyAll(s *segment, batches []byte) error {
	now := l.now().UnixMilli()
	for len(batches) > 0 {
		b, rest, err := recordbatch.Next(batches)
		if err != nil {
			return fmt.Errorf("BUG: unchecked batch was written: %w", err)
		}
		batches = rest
		switch {
		case !b.HasProducerID():
		case b.IsControl():
			err = l.applyMarker(s, b)
		default:
			l.producers.add(b, now)
		}
		if err != nil {
			return err
		}
		l.endVerification(b)
	}
	l.undecided.opened(l.producers.firstOpen())
	return nil
}

// applyMarker takes over a control batch that is in the log; an abort goes into the
// transaction index of s, unless that is nil. One that cannot be read is left alone:
// its transaction then stays open, and nobody reads what might be wrong.
// REQUIRES: mu held.
func (l *Log) applyMarker(s *segment, b recordbatch.Batch) error {
	m, ok, err := parseMarker(b)
	if err != nil {
		l.logger.Warn("control batch is unreadable", "dir", l.dir, "offset", b.BaseOffset(), "error", err)
		return nil
	}
	if !ok {
		return nil
	}
	t, ok := l.producers.end(b, m)
	if !ok {
		return nil
	}
	open := l.producers.firstOpen()
	if m.abort && s != nil {
		if err := s.aborted(abortedTxn{t.producerID, t.first, t.last, min(open, t.last+1)}); err != nil {
			return err
		}
		l.lastAbort.Store(max(l.lastAbort.Load(), t.last))
	}
	l.undecided.ended(t, open)
	return nil
}

// maybeRoll starts a new segment if the batches do not belong into the active one.
func (l *Log) maybeRoll(info *AppendInfo, n int) error {
	s := l.active()
	s.mu.Lock() // a flush may be putting entries into the files
	full := s.offsets.full() || s.times.full()
	s.mu.Unlock()
	roll := full || s.size > int64(l.cfg.SegmentBytes)-int64(n)
	if !roll && s.size > 0 {
		first, err := s.firstTimestamp()
		if err != nil {
			return err
		}
		age := l.now().UnixMilli() - s.created.UnixMilli()
		if first >= 0 {
			age = info.MaxTimestamp - first
		}
		roll = age > (l.cfg.SegmentAge - s.jitter).Milliseconds()
	}
	if s.size == 0 {
		roll = false
	}
	if roll || info.LastOffset-s.base > math.MaxInt32 {
		// Segments join without a gap, though batches of a compacted log need not: after a
		// power cut a gap between segments tells that the end of the first is lost.
		base := s.next
		if info.LastOffset-base > math.MaxInt32 {
			base = info.FirstOffset
		}
		return l.roll(base)
	}
	return nil
}

// roll makes a new active segment at base and syncs the old one beside the appends.
// An empty old one is replaced. REQUIRES: mu held, base not below the last batch's end.
func (l *Log) roll(base int64) error {
	old := l.active()
	if old.size == 0 && old.base == base {
		return nil
	}
	if err := errors.Join(old.finish(), l.giveBack(old)); err != nil {
		return l.fail(err)
	}
	if err := l.writeSnapshot(base, false); err != nil {
		return err
	}
	// The indexes too: their last entries are newer than a flush that may already have
	// brought the recovery point here.
	l.unsynced = append(l.unsynced, old.offsets.file.path(), old.times.file.path())
	if l.recovery.Load() >= base {
		// The checkpoint may already say that all below base is on disk. The names, too: a
		// start from this snapshot must find the file beside it.
		if err := l.syncBeside(l.unsynced, true); err != nil {
			return l.fail(err)
		}
		l.unsynced = nil
	}
	s, err := l.newActive(base)
	if err != nil {
		return err
	}
	segs := append([]*segment(nil), l.segments()...)
	if old.size == 0 {
		if err := l.drop(segs[len(segs)-1:], l.now()); err != nil {
			return err
		}
		segs = segs[:len(segs)-1]
	}
	l.setSegments(append(segs, s))
	l.background(func() {
		if err := l.flushTo(base); err != nil && !errors.Is(err, ErrClosed) {
			l.logger.Error("flush after roll", "dir", l.dir, "error", err)
		}
	})
	return nil
}
