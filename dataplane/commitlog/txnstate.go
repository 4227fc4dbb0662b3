package commitlog

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// txn is a transaction of one producer in this log.
type txn struct {
	producerID int64
	first      int64 // offset of its first record
	last       int64 // offset of its marker, -1 while it is open
}

// noOffset stands for "none" where the smallest offset counts.
const noOffset = math.MaxInt64

// undecided knows up to where every transaction is decided for good. A transaction
// holds that back while it is open, and then until its marker is below the high
// watermark: a marker that only this replica has may yet be lost.
type undecided struct {
	mu   sync.Mutex   // a leaf
	open atomic.Int64 // first offset of the oldest open transaction, noOffset if none
	over []txn        // ended, but not yet below the high watermark; by marker
	hw   int64        // high watermark as told, see Log.SetHighWatermark

	first  atomic.Int64 // smallest first offset of all these, noOffset if none
	marker atomic.Int64 // smallest marker in over: what the high watermark must pass
}

func (u *undecided) init() { u.reset(0) }

// reset forgets everything: the log is empty and begins at offset.
func (u *undecided) reset(offset int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over, u.hw = nil, offset
	u.publish(noOffset)
}

// opened tells the oldest open transaction.
func (u *undecided) opened(first int64) {
	if first == u.open.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.publish(first)
}

// ended takes a transaction that has just got its marker; open is the oldest one
// that is still open. Both become visible in one step.
func (u *undecided) ended(t txn, open int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if t.last >= u.hw {
		i, known := slices.BinarySearchFunc(u.over, t.last, func(o txn, last int64) int { return cmp.Compare(o.last, last) })
		if !known { // a replay may come by again
			u.over = slices.Insert(u.over, i, t)
		}
	}
	u.publish(open)
}

// committed takes a new high watermark.
func (u *undecided) committed(hw int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if hw <= u.hw {
		return
	}
	u.hw = hw
	n := 0
	for n < len(u.over) && u.over[n].last < hw {
		n++
	}
	if n > 0 {
		u.over = slices.Delete(u.over, 0, n)
		u.publish(u.open.Load())
	}
}

// cut forgets what ended at or above end, and has nothing decided until the open
// transactions are known again.
func (u *undecided) cut(end int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = slices.DeleteFunc(u.over, func(t txn) bool { return t.last >= end })
	u.hw = min(u.hw, end)
	u.publish(0)
}

func (u *undecided) publish(open int64) {
	first, marker := open, int64(noOffset)
	for i := range u.over {
		first = min(first, u.over[i].first)
	}
	if len(u.over) > 0 {
		marker = u.over[0].last
	}
	u.open.Store(open)
	u.marker.Store(marker)
	u.first.Store(first)
}

// FirstUnstableOffset is where the oldest transaction begins that is open or whose
// marker is not yet below the high watermark, math.MaxInt64 if there is none. The
// last stable offset is the lesser of it and the high watermark. It may lie below
// the log's start.
//
// An append has changed it when it returns, and it moves up for an ended transaction
// only by SetHighWatermark: whoever takes the high watermark first and this second
// never sees past a transaction that was undecided at that watermark.
func (l *Log) FirstUnstableOffset() int64 { return l.undecided.first.Load() }

// BeforeTruncation has nothing count as decided until a truncation is over. Whoever
// lowers a reader's other bounds for one calls it in the same step, or a reader could
// take an offset as stable by a marker that is gone when it looks for it. A call of
// TruncateTo that cuts something, or of TruncateFullyAndStartAt, must follow.
func (l *Log) BeforeTruncation() {
	l.undecided.mu.Lock()
	defer l.undecided.mu.Unlock()
	l.undecided.publish(0)
}

// SetHighWatermark tells how far the log is committed, so that transactions whose
// markers lie below become stable. A lower one than before is ignored; after a
// truncation it counts from the new end. Safe with any lock held but its own.
func (l *Log) SetHighWatermark(hw int64) {
	if hw > l.undecided.marker.Load() { // most moves pass no marker
		l.undecided.committed(hw)
	}
}
