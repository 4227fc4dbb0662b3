package admission

import "context"

// maxSmall is the most bytes that count as small: an ordinary produce request
// (clients send 1 MB at most by default) and everything about groups.
const maxSmall = 2 << 20

// Lanes is a budget in two parts: a quarter for small requests, the rest for
// large ones, each served in order. Without it a few senders of large frames,
// honest or not, keep everyone else waiting: one order for all means that small
// requests stand behind the first large one that does not fit.
type Lanes struct {
	small, large *Memory
	most         int64 // of one that is small
}

// NewLanes makes a budget of limit bytes in all. limit <= 0 is no bound. Like
// Memory each lane gives more than its whole when nothing else of it is taken.
func NewLanes(limit int64) *Lanes {
	quarter := limit / 4
	return &Lanes{small: NewMemory(quarter), large: NewMemory(limit - quarter), most: min(maxSmall, quarter/8)}
}

func (l *Lanes) of(n int64) *Memory {
	if n <= l.most {
		return l.small
	}
	return l.large
}

// Acquire takes n bytes; see Memory. What is acquired in one call must be
// released in one.
func (l *Lanes) Acquire(ctx context.Context, n int64) error { return l.of(n).Acquire(ctx, n) }

// Release gives back what one Acquire took.
func (l *Lanes) Release(n int64) { l.of(n).Release(n) }

// Waiting is the number of waiters of both lanes.
func (l *Lanes) Waiting() int { return l.small.Waiting() + l.large.Waiting() }
