package commitlog

import (
	"context"
	"errors"
	"fmt"
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

// FindHorizons reads the segments below o.FirstDirty if there are some that nobody has
// looked at since the log was opened: Kafka's format keeps horizons in the batches only,
// and what a marker ends may lie in any segment before it. It can be stopped as a clean
// can.
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
	if _, known := l.NextHorizon(o.FirstDirty); known {
		return nil
	}
	c.txns = newCleanTxns()
	segs := l.segments()
	for _, s := range segs[:len(segs)-1] {
		if s.base >= o.FirstDirty {
			break
		}
		if err := c.firstDue(s); errors.Is(err, errGone) {
			return fmt.Errorf("%w: a segment went away", ErrCleanAborted)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// firstDue notes the first horizon that something in the segment waits for, and which
// markers have one though their transactions are not empty: a clean of ours leaves no
// such (see settleMarker), but Kafka's does.
func (c *clean) firstDue(s *segment) error {
	due := int64(dueNever)
	var held []int64
	r, err := c.read(s, s.base)
	if err != nil {
		return err
	}
	defer r.close()
	if err := c.follow(s, r.v.next); err != nil {
		return err
	}
	for {
		b, err := r.next()
		if err != nil {
			return err
		}
		if b == nil {
			break
		}
		waits := false
		if b.IsControl() {
			empty, err := c.txns.marker(b)
			if err != nil {
				return err
			}
			if waits = empty; !empty && b.HasDeleteHorizon() {
				held = append(held, b.BaseOffset())
			}
		} else {
			c.txns.data(b)
			c.txns.kept(b)
		}
		if !b.HasDeleteHorizon() || b.FirstTimestamp() >= due || b.LastOffset() >= c.o.FirstDirty {
			continue
		}
		if !b.IsControl() {
			err = recordbatch.Entries(b, func(e *recordbatch.Entry) error {
				waits = waits || e.Tombstone
				return nil
			})
			if err != nil {
				return err
			}
		}
		if waits {
			due = b.FirstTimestamp()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due, s.held = due, held
	return nil
}
