package commitlog

import (
	"cmp"
	"errors"
	"slices"

	"penstock/dataplane/recordbatch"
)

// OffsetForTimestamp finds the first record in log order whose timestamp is at
// least ts (ms) and whose offset is below upTo, with its own timestamp and the
// leader epoch of its batch (-1 if none).
func (l *Log) OffsetForTimestamp(ts, upTo int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	return l.lookup(func(start int64) (hit, error) { return l.firstAtOrAfter(ts, start) }, upTo)
}

// MaxTimestampOffset finds the first record that has the largest timestamp of all from the
// log's start on; found is false for a log without timestamps.
func (l *Log) MaxTimestampOffset() (offset, timestamp int64, epoch int32, found bool, err error) {
	return l.lookup(l.latestFrom, l.end.Load())
}

// hit is a record found by its timestamp.
type hit struct {
	offset, timestamp int64
	epoch             int32
	ok                bool
}

func (l *Log) lookup(search func(start int64) (hit, error), upTo int64) (int64, int64, int32, bool, error) {
	for {
		h, err := search(l.start.Load())
		if errors.Is(err, errGone) && !l.closed.Load() {
			continue
		}
		if errors.Is(err, errGone) {
			err = ErrClosed
		}
		if err != nil || !h.ok || h.offset >= upTo {
			return -1, -1, -1, false, err
		}
		return h.offset, h.timestamp, h.epoch, true, nil
	}
}

func (l *Log) firstAtOrAfter(ts, start int64) (hit, error) {
	segs := l.segments()
	for _, s := range segs[find(segs, start):] {
		if h, err := s.firstAtOrAfter(ts, start); err != nil || h.ok {
			return h, err
		}
	}
	return hit{}, nil
}

// latestFrom finds the first record with the largest timestamp from offset start on. Nearly
// always it is where the segment with the largest one says.
func (l *Log) latestFrom(start int64) (best hit, err error) {
	type bound struct {
		s    *segment
		most int64
	}
	var bounds []bound
	segs := l.segments()
	for _, s := range segs[find(segs, start):] {
		s.mu.RLock()
		most := s.maxTs
		s.mu.RUnlock()
		if most >= 0 {
			bounds = append(bounds, bound{s, most})
		}
	}
	slices.SortStableFunc(bounds, func(a, b bound) int { return cmp.Compare(b.most, a.most) })
	for _, b := range bounds {
		if best.ok && b.most < best.timestamp {
			break
		}
		h, err := b.s.firstAtOrAfter(b.most, start)
		if err == nil && !h.ok { // that one lies below start, or compaction has removed it
			h, err = b.s.latestFrom(start)
		}
		if err != nil {
			return hit{}, err
		}
		if h.ok && (!best.ok || h.timestamp > best.timestamp || h.timestamp == best.timestamp && h.offset < best.offset) {
			best = h
		}
	}
	return best, nil
}

// latestFrom goes by the batches of one segment from offset start on.
func (s *segment) latestFrom(start int64) (best hit, err error) {
	v, err := s.pinForTime(0, start)
	if err != nil || v.file == nil {
		return hit{}, err
	}
	defer v.ref.release()
	sc := newScanner(v.file, v.size)
	defer sc.close()
	best.timestamp = recordbatch.NoTimestamp
	for pos := v.from; pos < v.size; {
		h, n, err := sc.header(pos)
		if err != nil {
			return hit{}, err
		}
		if h.LastOffset() >= start && h.MaxTimestamp() > best.timestamp {
			if err := latestInBatch(&v, pos, n, start, &best); err != nil {
				return hit{}, err
			}
		}
		pos += n
	}
	return best, nil
}

// firstAtOrAfter searches one segment from offset start on. An entry of the time
// index says that nothing up to its offset is later than its timestamp.
func (s *segment) firstAtOrAfter(ts, start int64) (hit, error) {
	v, err := s.pinForTime(ts, start)
	if err != nil || v.file == nil {
		return hit{}, err
	}
	defer v.ref.release()
	sc := newScanner(v.file, v.size)
	defer sc.close()
	for pos := v.from; pos < v.size; {
		h, n, err := sc.header(pos)
		if err != nil {
			return hit{}, err
		}
		if h.MaxTimestamp() >= ts && h.LastOffset() >= start {
			found, err := searchBatch(&v, pos, n, ts, start)
			if err != nil || found.ok {
				return found, err
			}
		}
		pos += n
	}
	return hit{}, nil
}

// pinForTime pins the file with v.from a batch boundary before the first record at
// or after ts; v.file is nil if the segment has none.
func (s *segment) pinForTime(ts, start int64) (v view, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.file == nil {
		return v, errGone
	}
	if s.maxTs < ts {
		return v, nil
	}
	var e [timeEntrySize]byte
	ok, err := s.times.floor(&e, ts-1, entryTime)
	if err != nil {
		return v, err
	}
	if ok {
		start = max(start, s.base+entryTimeOffset(e[:])+1)
	}
	if v.from, err = s.position(start); err != nil {
		return v, err
	}
	v.ref, v.size, v.next = s.file, s.size, s.next
	v.file, err = s.file.pin()
	return v, err
}

var errFound = errors.New("found")

// searchBatch looks into one batch; it is read whole, as its records may be compressed.
func searchBatch(v *view, pos, length, ts, start int64) (h hit, err error) {
	b, err := readBatch(v.file, pos, length)
	if err != nil {
		return hit{}, err
	}
	err = recordbatch.Records(b, func(r recordbatch.Record) error {
		if r.Timestamp >= ts && r.Offset >= start {
			h = hit{offset: r.Offset, timestamp: r.Timestamp, epoch: b.LeaderEpoch(), ok: true}
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return h, err
}

// latestInBatch looks for a record in one batch that is later than best.
func latestInBatch(v *view, pos, length, start int64, best *hit) error {
	b, err := readBatch(v.file, pos, length)
	if err != nil {
		return err
	}
	return recordbatch.Records(b, func(r recordbatch.Record) error {
		if r.Timestamp > best.timestamp && r.Offset >= start {
			*best = hit{offset: r.Offset, timestamp: r.Timestamp, epoch: b.LeaderEpoch(), ok: true}
		}
		return nil
	})
}
