package recordbatch

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"
)

// What unfolding and folding may take of memory in the whole process is bounded, however
// many connections ask for it at once: each holds a place in a lane while its codec's
// state is in use, and there are as many places as CPUs to do the work. A place needs at
// most some 16 MiB (a zstd window of 8 MiB and its buffers, or an lz4 block of
// 4 MiB); what needs more is charged to the lane's budget of large ones besides.
//
// Producers and readers have a lane each: a reader's place is held while its callback
// runs, which may wait for a disk.
type lane struct {
	places chan struct{}
	large  *semaphore.Weighted
}

const (
	// largeBudget is what all users of one lane that are large have together, in bytes.
	largeBudget = 128 << 20
	// smallUse is what a place covers without being charged to the budget.
	smallUse = 8 << 20
)

var (
	produceLane = newLane()
	readLane    = newLane()
	// recordBudget bounds the single records that readers hold in memory, above
	// smallRecord, in bytes. It is taken after the lane and never with it wanted still.
	recordBudget = semaphore.NewWeighted(largeBudget)
)

func newLane() *lane {
	return &lane{places: make(chan struct{}, runtime.GOMAXPROCS(0)), large: semaphore.NewWeighted(largeBudget)}
}

// enter waits for a place for a use of n bytes, at most largeBudget. The budget
// comes first, so that those that wait for it hold no place.
func (l *lane) enter(n int64) {
	if n > smallUse {
		acquire(l.large, n)
	}
	l.places <- struct{}{}
}

func (l *lane) leave(n int64) {
	<-l.places
	if n > smallUse {
		l.large.Release(n)
	}
}

func acquire(s *semaphore.Weighted, n int64) {
	if err := s.Acquire(context.Background(), n); err != nil {
		panic("BUG: " + err.Error()) // the context cannot end
	}
}
