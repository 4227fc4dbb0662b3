package commitlog

import (
	"errors"
	"math"
	"time"
)

// Cleanable is what the choice of the log to clean next needs to know.
type Cleanable struct {
	FirstDirty int64 // as asked, or the log's start if that is not in the log
	UpTo       int64 // end of what may be cleaned now, >= FirstDirty
	Reset      bool  // the offset asked for was not in the log
	CleanBytes int64 // in segments that end below FirstDirty
	DirtyBytes int64 // in the segments from there up to UpTo
	// Overdue is how long ago max.compaction.lag.ms was over for the oldest dirty
	// segment; 0 if it is not.
	Overdue time.Duration
	// DirtySince is the age of the oldest dirty record that is not in the active
	// segment, 0 if there is none.
	DirtySince time.Duration
}

// Ratio is the dirty share of what a clean would read, 0 for an empty log.
func (c Cleanable) Ratio() float64 {
	if c.DirtyBytes == 0 {
		return 0
	}
	return float64(c.DirtyBytes) / float64(c.CleanBytes+c.DirtyBytes)
}

// Cleanable looks at the log as the cleaner chooses: firstDirty is where the last clean
// ended (negative: never cleaned), bound the last stable offset. What is younger than
// min.compaction.lag.ms, by the largest timestamp of its segment, and the active segment
// stay as they are.
func (l *Log) Cleanable(firstDirty, bound int64, now time.Time) (Cleanable, error) {
	l.mu.Lock()
	cfg := l.cfg
	l.mu.Unlock()
	start, end := l.start.Load(), l.end.Load()
	c := Cleanable{FirstDirty: firstDirty}
	if firstDirty < start || firstDirty > end {
		c.FirstDirty, c.Reset = start, firstDirty >= 0
	}
	segs := l.segments()
	// A segment is cleaned whole, or not at all.
	c.UpTo = min(bound, segs[find(segs, bound)].base)
	oldest := int64(0)
	for i, s := range segs[:len(segs)-1] {
		if segs[i+1].base <= c.FirstDirty || s.base >= c.UpTo {
			continue
		}
		if cfg.MinCompactionLag > 0 && s.largestTime(now.UnixMilli()) > now.Add(-cfg.MinCompactionLag).UnixMilli() {
			c.UpTo = min(c.UpTo, s.base)
			break
		}
		first, err := s.firstTime()
		if err != nil {
			return c, err
		}
		if first > 0 && (oldest == 0 || first < oldest) {
			oldest = first
		}
	}
	c.UpTo = max(c.UpTo, c.FirstDirty)
	for i, s := range segs[:len(segs)-1] {
		switch {
		case segs[i+1].base <= c.FirstDirty:
			c.CleanBytes += s.bytes()
		case s.base < c.UpTo: // one that is half clean has to be read again, too
			c.DirtyBytes += s.bytes()
		}
	}
	if oldest > 0 {
		age := now.Sub(time.UnixMilli(oldest))
		c.DirtySince = max(0, age)
		if cfg.MaxCompactionLag > 0 {
			c.Overdue = max(0, age-cfg.MaxCompactionLag)
		}
	}
	return c, nil
}

// firstTime is the largest timestamp of the first batch, -1 for none.
func (s *segment) firstTime() (int64, error) {
	v, err := s.pin(s.base, 0, math.MaxInt64)
	if errors.Is(err, errGone) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	defer v.ref.release()
	if v.size == 0 {
		return -1, nil
	}
	sc := newScanner(v.file, v.size)
	defer sc.close()
	h, _, err := sc.header(0)
	if err != nil {
		return -1, err
	}
	return h.MaxTimestamp(), nil
}
