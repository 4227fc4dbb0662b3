package partition

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/planted"
)

// Fetch reads each part and calls done exactly once: before it returns, or
// later on the goroutine that brought the data or the end of the wait. done may
// not block.
//
// Parts are served in order. The first batch of the first part that has data
// comes whole, whatever the limits (KIP-74); after it they are hard. One of them is the
// number of files that may be open: a result keeps its segment's file open until its
// Slice is closed.
func (m *Manager) Fetch(req FetchRequest, done func([]FetchResult)) {
	results := slices.Grow(req.Results[:0], len(req.Parts))[:len(req.Parts)]
	bytes, now, wake := m.read(&req, results, arriving)
	if now || bytes >= req.MinBytes || req.MaxWait <= 0 || len(req.Parts) == 0 {
		done(results)
		return
	}
	op := &delayedFetch{m: m, req: req, done: done, results: results}
	var few [8]*Partition
	keys := few[:0]
	op.seen = make([]fetchSeen, len(results))
	for i := range results {
		results[i].Slice.Close()
		op.seen[i] = fetchSeen{p: m.Partition(req.Parts[i].TP), bound: -1, start: results[i].LogStartOffset}
		if op.seen[i].p == nil {
			// It went away since it was read.
			op.Complete(false)
			return
		}
		keys = append(keys, op.seen[i].p)
	}
	if wake.p != nil && wake.after < req.MaxWait {
		m.cfg.Wheel.AfterFunc(wake.after, func() { m.fetches.Check(wake.p) })
	}
	m.fetches.Watch(op, req.MaxWait, keys...)
}

// withheld is a partition whose data a throttled follower does not get yet.
type withheld struct {
	p     *Partition
	after time.Duration
}

// delayedFetch is a fetch that waits for MinBytes.
type delayedFetch struct {
	m    *Manager
	req  FetchRequest
	done func([]FetchResult)
	seen []fetchSeen

	results []FetchResult
}

// fetchSeen keeps what was there at the last try, so that a change of one
// partition does not look all others up again.
type fetchSeen struct {
	p     *Partition
	bound int64
	start int64
	bytes int
}

// TryComplete looks at offsets only, unless more than one byte is asked for
// and some but not surely enough is there.
func (d *delayedFetch) TryComplete() bool {
	total := 0
	for i := range d.seen {
		s, part := &d.seen[i], &d.req.Parts[i]
		v := s.p.view(&d.req, part, waiting)
		if v.err != nil || v.divergingEpoch >= 0 || v.news {
			return true
		}
		if d.req.ReplicaID >= 0 && v.start > s.start {
			return true // a DeleteRecords waits for the follower to hear of it
		}
		if v.withheld > 0 {
			continue // and looked at again, even if nothing is appended
		}
		if v.bound != s.bound {
			s.bound, s.bytes = v.bound, 0
			if v.bound > part.Offset {
				if d.req.MinBytes <= 1 {
					return true
				}
				sl, err := s.p.Read(part.Offset, part.MaxBytes, v.bound, true)
				if err != nil {
					return true
				}
				s.bytes = sl.Len
				cut := endsEarly(&sl, part.MaxBytes, v.bound)
				sl.Close()
				if cut {
					return true
				}
			}
		}
		total += s.bytes
	}
	return total >= d.req.MinBytes
}

// endsEarly: the slice ends with its segment, not with the limits. More will
// never be in one read, so waiting for it is pointless.
func endsEarly(s *commitlog.Slice, maxBytes int, bound int64) bool {
	return s.Len > 0 && s.Len < maxBytes && s.LastOffset+1 < bound
}

// Complete reads and answers.
func (d *delayedFetch) Complete(bool) {
	d.m.read(&d.req, d.results, leaving)
	d.done(d.results)
}

// stage is where a fetch stands when a partition is looked at for it.
type stage uint8

const (
	arriving stage = iota // has just come: a follower's position is noted
	waiting               // nothing is noted, and nothing told
	leaving               // has waited, and is answered
)

// read fills results. now says that there is no use in waiting; wake, what may be read later
// without anything being appended.
func (m *Manager) read(req *FetchRequest, results []FetchResult, at stage) (bytes int, now bool, wake withheld) {
	left, minOne := req.MaxBytes, true
	for i := range req.Parts {
		part, r := &req.Parts[i], &results[i]
		*r = FetchResult{
			TP: part.TP, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, DivergingEpoch: -1, DivergingEndOffset: -1,
			Leader: -1, LeaderEpoch: -1, Preferred: -1,
		}
		p := m.Partition(part.TP)
		if p == nil {
			r.Err = m.absent(part.TP)
			now = true
			continue
		}
		v := p.view(req, part, at)
		if at == arriving {
			m.submit(v.proposal)
			if v.committed {
				p.changed(true)
			}
			if v.started {
				m.deletes.Check(p)
			}
		}
		v.fill(r)
		now = now || v.news
		if v.err != nil || v.divergingEpoch >= 0 || v.preferred >= 0 {
			now = true
			continue
		}
		if v.withheld > 0 {
			wake = withheld{p, v.withheld}
			continue
		}
		limit := max(min(part.MaxBytes, left), 0)
		if v.bound <= part.Offset || (limit == 0 && !minOne) {
			continue
		}
		if !minOne && commitlog.FilesShort() {
			now = true // what is left out comes with the next fetch
			continue
		}
		var s commitlog.Slice
		var err error
		if v.committedOnly {
			s, r.Aborted, err = p.ReadCommitted(part.Offset, limit, v.bound, minOne)
			if planted.Bug == planted.AbortedUnlisted {
				r.Aborted = r.Aborted[:0]
			}
		} else {
			s, err = p.Read(part.Offset, limit, v.bound, minOne)
		}
		if err == nil && p.version.Load() != v.version {
			s.Close()
			r.Aborted, err = nil, kerr.NotLeaderForPartition
		}
		if err != nil {
			if errors.Is(err, commitlog.ErrClosed) {
				err = m.absent(part.TP)
			}
			r.Err = p.broken(err)
			now = true
			continue
		}
		if s.Len > 0 {
			now = now || endsEarly(&s, limit, v.bound)
			minOne = false
			left -= s.Len
			bytes += s.Len
			if req.ReplicaID >= 0 && p.throttledLeader() {
				m.leaderRate.count(s.Len, m.now())
			}
		}
		r.Slice = s
	}
	return bytes, now, wake
}

// view is what one fetch may see of a partition at one moment.
type view struct {
	err                error
	leader, epoch      int32 // a hint, with err
	hw, start, bound   int64
	stable             int64 // last stable offset
	committedOnly      bool  // the reader sees up to there, and not what was aborted
	divergingEpoch     int32
	divergingEndOffset int64
	version            uint64
	committed          bool          // the fetch itself moved the high watermark
	started            bool          // the fetch told of another log start
	preferred          int32         // the replica to read from instead; -1 if none
	withheld           time.Duration // for so long a throttled follower gets nothing
	news               bool          // a follower is to hear of the high watermark at once
	proposal           *ISRChange    // to be submitted
}

func (v *view) fill(r *FetchResult) {
	r.Err, r.Leader, r.LeaderEpoch = v.err, v.leader, v.epoch
	r.HighWatermark, r.LastStableOffset, r.LogStartOffset = v.hw, v.stable, v.start
	r.DivergingEpoch, r.DivergingEndOffset = v.divergingEpoch, v.divergingEndOffset
	r.Preferred = v.preferred
}

// view checks a fetch against the role, the epochs and the offsets, and notes the
// progress of a follower that has just come.
//
// The follower's position counts before the watermark is taken for the answer:
// so a follower learns one round trip sooner what has been committed.
func (p *Partition) view(req *FetchRequest, part *FetchPart, at stage) view {
	p.state.Lock()
	defer p.state.Unlock()
	v := view{leader: -1, epoch: -1, hw: -1, stable: -1, start: -1, divergingEpoch: -1, divergingEndOffset: -1, preferred: -1, version: p.version.Load()}
	var r *remote
	if v.err = p.mayFetch(req, part, &r); v.err != nil {
		if is(v.err, kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch) {
			v.leader, v.epoch = p.leaderID, p.leaderEpoch
		}
		return v
	}
	v.hw, v.stable, v.start = p.hw, p.lastStable(), p.log().StartOffset()
	if part.LastFetchedEpoch >= 0 {
		epoch, end := p.log().EndOffsetForEpoch(part.LastFetchedEpoch)
		if epoch < 0 || end < 0 {
			v.err, v.hw, v.stable, v.start = kerr.OffsetOutOfRange, -1, -1, -1
			return v
		}
		if epoch < part.LastFetchedEpoch || end < part.Offset {
			v.divergingEpoch, v.divergingEndOffset = epoch, end
			return v
		}
	}
	if part.Offset < v.start || part.Offset > p.end {
		v.err, v.hw, v.stable, v.start = kerr.OffsetOutOfRange, -1, -1, -1 // Kafka tells no offsets with an error
		return v
	}
	if r == nil {
		if req.Near != nil && p.role == leader {
			v.preferred = p.nearest(req.Near, part.Offset)
		}
		if v.bound = p.hw; req.ReadCommitted {
			v.bound, v.committedOnly = v.stable, true
		}
		return v
	}
	v.bound = p.end
	if at == arriving {
		v.started = r.start != part.LogStartOffset
		r.start = part.LogStartOffset
		v.committed, v.proposal = p.noteFetch(r, req.ReplicaEpoch, part.Offset, p.m.now())
		v.hw, v.stable = p.hw, p.lastStable()
	}
	if p.throttledLeader() && !slices.Contains(p.isr, r.id) {
		v.withheld = p.m.leaderRate.pause(p.m.now()) // one in sync would fall out
	}
	v.news = p.m.cfg.PromptWatermark && v.hw > r.toldHW
	if at != waiting {
		r.toldHW = v.hw
	}
	return v
}

// nearest is the replica in the consumer's rack that it should read from instead of this leader
// (KIP-392), -1 if it has come to the right one: one in sync that holds the offset, and of several
// the one that has most, was level last, and has the highest id, as Kafka chooses. One out of sync
// is never named: its reader might fall behind for good. With state held.
func (p *Partition) nearest(near func(int32) bool, offset int64) int32 {
	if near(p.m.cfg.BrokerID) {
		return -1
	}
	var best *remote
	for i := range p.remotes {
		r := &p.remotes[i]
		if r.end < offset || r.start > offset || !slices.Contains(p.isr, r.id) || !near(r.id) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(r.end, best.end), r.lastCaughtUp.Compare(best.lastCaughtUp), cmp.Compare(r.id, best.id)) > 0 {
			best = r
		}
	}
	if best == nil {
		return -1
	}
	return best.id
}

// mayFetch finds the follower's entry, too. With state held.
func (p *Partition) mayFetch(req *FetchRequest, part *FetchPart, r **remote) error {
	if err := p.serves(part.TopicID); err != nil {
		return err
	}
	if err := p.checkEpoch(part.CurrentLeaderEpoch); err != nil {
		return err
	}
	isFollower := req.ReplicaID >= 0
	if p.role != leader && (isFollower || !req.AllowFollower) {
		return kerr.NotLeaderForPartition
	}
	if !isFollower {
		return nil
	}
	i := indexRemote(p.remotes, req.ReplicaID)
	if i < 0 {
		if part.CurrentLeaderEpoch == p.leaderEpoch {
			// The controller may have told it of an assignment that we have yet to hear of.
			return kerr.UnknownLeaderEpoch
		}
		return kerr.NotLeaderForPartition
	}
	*r = &p.remotes[i]
	if req.ReplicaEpoch >= 0 && req.ReplicaEpoch < (*r).epoch {
		return kerr.NotLeaderForPartition // late, from a life that is over
	}
	return nil
}
