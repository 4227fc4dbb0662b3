package commitlog

import (
	"errors"

	"penstock/dataplane/recordbatch"
)

// OffsetForTimestamp finds the first record in log order whose timestamp is at
// least ts (ms) and whose offset is below upTo, with its own timestamp and the
// leader epoch of its batch (-1 if none).
func (l *Log) OffsetForTimestamp(ts, upTo int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	return l.lookup(func(start int64) (hit, error) { return l.firstAtOrAfter(ts, start) }, upTo)
}

// MaxTimestampOffset finds the first record that has the log's largest timestamp;
// found is false for a log without timestamps.
func (l *Log) MaxTimestampOffset() (offset, timestamp int64, epoch int32, found bool, err error) {
	return l.lookup(func(start int64) (hit, error) {
		largest := int64(-1)
		for _, s := range l.segments() {
			s.mu.RLock()
			largest = max(largest, s.maxTs)
			s.mu.RUnlock()
		}
		if largest < 0 {
			return hit{}, nil
		}
		return l.firstAtOrAfter(largest, start)
	}, l.end.Load())
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
