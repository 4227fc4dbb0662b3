package recordbatch

import (
	"context"
	"errors"
	"math"
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
// runs, which may wait for a disk. A producer's batch that unfolds to much gives its place
// up and begins again in the lane of such ones, so that however many of these come at
// once, all others wait for a few milliseconds of each.
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
	produceLane = newLane(runtime.GOMAXPROCS(0))
	longLane    = newLane(max(1, runtime.GOMAXPROCS(0)/2))
	readLane    = newLane(runtime.GOMAXPROCS(0))
	// recordBudget bounds the single records that readers hold in memory, above
	// smallRecord, in bytes. It is taken after the lane and never with it wanted still.
	recordBudget = semaphore.NewWeighted(largeBudget)
)

// longUnfold is what a batch may unfold to in produceLane, in bytes.
const longUnfold = 4 << 20

// errLong means that a batch belongs into longLane.
var errLong = errors.New("records unfold to too much for the lane")

// inProduceLane calls fn with a place for use held: in produceLane with the limit of that,
// and where it comes to errLong once more in longLane.
func inProduceLane(use int64, fn func(limit int64) error) error {
	enter := func(l *lane, limit int64) error {
		l.enter(use)
		defer l.leave(use)
		return fn(limit)
	}
	if use <= smallUse {
		if err := enter(produceLane, longUnfold); !errors.Is(err, errLong) {
			return err
		}
	}
	return enter(longLane, math.MaxInt64)
}

func newLane(places int) *lane {
	return &lane{places: make(chan struct{}, places), large: semaphore.NewWeighted(largeBudget)}
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
