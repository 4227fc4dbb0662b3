package commitlog

import (
	"context"
	"math"

	"penstock/dataplane/recordbatch"
)

// When the first delete horizon in a segment passes, ms since 1970.
const (
	dueUnknown = -1 // nobody has looked yet
	dueNever   = math.MaxInt64
)

func (s *segment) setDue(ms int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = ms
}

// NextHorizon is when the first tombstone or marker below firstDirty may go, ms since
// 1970 (math.MaxInt64: there is none). known is false if segments have not been looked
// at since the log was opened: FindHorizons does.
func (l *Log) NextHorizon(firstDirty int64) (ms int64, known bool) {
	ms, known = dueNever, true
	segs := l.segments()
	for _, s := range segs[:len(segs)-1] {
		if s.base >= firstDirty {
			break
		}
		s.mu.RLock()
		due := s.due
		s.mu.RUnlock()
		if due == dueUnknown {
			known = false
		} else {
			ms = min(ms, due)
		}
	}
	return ms, known
}

// FindHorizons reads the segments below o.FirstDirty that nobody has looked at since
// the log was opened: Kafka's format keeps horizons in the batches only. It can be
// stopped as a clean can.
func (l *Log) FindHorizons(ctx context.Context, o CleanOptions) error {
	ctx, end, err := l.beginClean(ctx)
	if err != nil {
		return err
	}
	defer end()
	c, err := l.newClean(ctx, o)
	if err != nil {
		return err
	}
	segs := l.segments()
	for _, s := range segs[:len(segs)-1] {
		if s.base >= o.FirstDirty {
			break
		}
		s.mu.RLock()
		due := s.due
		s.mu.RUnlock()
		if due != dueUnknown {
			continue
		}
		if due, err = c.firstDue(s); err != nil {
			return err
		}
		s.setDue(due)
	}
	return nil
}

// firstDue is the first horizon that something in the segment waits for.
func (c *clean) firstDue(s *segment) (int64, error) {
	due := int64(dueNever)
	r, err := c.read(s, s.base)
	if err != nil {
		return 0, err
	}
	defer r.close()
	for {
		b, err := r.next()
		if err != nil || b == nil {
			return due, err
		}
		if !b.HasDeleteHorizon() || b.FirstTimestamp() >= due || b.LastOffset() >= c.o.FirstDirty {
			continue
		}
		waits := b.IsControl()
		if !waits {
			err = recordbatch.Entries(b, func(e *recordbatch.Entry) error {
				waits = waits || e.Tombstone
				return nil
			})
		}
		if err != nil {
			return 0, err
		}
		if waits {
			due = b.FirstTimestamp()
		}
	}
}
