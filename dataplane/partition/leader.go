package partition

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// lead makes this replica the leader under the given state. It reports whether
// it was not before.
func (p *Partition) lead(s *kmsg.LeaderAndISRRequestTopicPartition) (isNew bool, err error) {
	isNew, committed, err := p.takeLead(s)
	if err == nil {
		p.endHandover()
		p.changed(committed)
	}
	return isNew, err
}

func (p *Partition) takeLead(s *kmsg.LeaderAndISRRequestTopicPartition) (isNew, committed bool, err error) {
	p.append.Lock()
	defer p.append.Unlock()
	end := p.log().EndOffset()
	if err := p.log().AssignEpochStart(s.LeaderEpoch, end); err != nil {
		return false, false, p.broken(err)
	}
	now := p.m.now()

	p.state.Lock()
	defer p.state.Unlock()
	p.version.Add(1)
	isNew = p.role != leader
	if isNew {
		p.term++
	}
	p.role = leader
	p.leaderID = p.m.cfg.BrokerID
	p.assign(s)
	p.isr = slices.Clone(s.ISR)
	p.epochStart, p.end = end, end
	old := p.remotes
	p.remotes = make([]remote, 0, len(p.replicas))
	for _, id := range p.replicas {
		if id == p.m.cfg.BrokerID {
			continue
		}
		r := unseen(id, -1)
		if i := indexRemote(old, id); i >= 0 && !isNew {
			r.epoch, r.end, r.start, r.endAtLastSeen = old[i].epoch, old[i].end, old[i].start, end
			if slices.Contains(p.isr, id) {
				r.lastFetch = now
			}
		}
		if slices.Contains(p.isr, id) {
			// An in-sync replica gets the whole lag time to turn to its new leader.
			r.lastCaughtUp = now
		}
		p.remotes = append(p.remotes, r)
	}
	return isNew, p.advance(now), nil
}

// assign takes over what leader and follower share. With state held.
func (p *Partition) assign(s *kmsg.LeaderAndISRRequestTopicPartition) {
	p.leaderEpoch = s.LeaderEpoch
	p.partitionEpoch = s.ZKVersion
	p.replicas = slices.Clone(s.Replicas)
	p.change = nil
}

func indexRemote(rs []remote, id int32) int {
	return slices.IndexFunc(rs, func(r remote) bool { return r.id == id })
}

// appended is what a leader's append leaves behind for its waiters.
type appended struct {
	required  int64 // offset that the high watermark must reach
	term      uint64
	committed bool // the high watermark has moved
	wrote     bool
}

// appendLeader validates and appends one entry. All checks that read the
// records come before the lock.
func (p *Partition) appendLeader(req *AppendRequest, e *AppendEntry, res *AppendResult) appended {
	p.state.Lock()
	err := p.mayAppend(req, e, res)
	p.state.Unlock()
	if err != nil {
		res.Err = err
		return appended{}
	}
	opts := p.config.Load().Validate
	opts.ProduceVersion = req.ProduceVersion
	opts.NowMs = p.m.now().UnixMilli()
	opts.Coordinator = e.Internal
	batch, vi, err := recordbatch.Prepare(e.Records, opts)
	if err != nil {
		res.Err = err
		return appended{}
	}
	defer vi.Recycle()

	p.append.Lock()
	defer p.append.Unlock()
	p.state.Lock()
	if err = p.mayAppend(req, e, res); err != nil {
		p.state.Unlock()
		res.Err = err
		return appended{}
	}
	epoch, term := p.leaderEpoch, p.term
	p.state.Unlock()

	// Told before the write: what a killed process has written it has also
	// journalled. What then is not written is taken back.
	base := p.log().EndOffset()
	if f := p.m.cfg.Hooks.OnAppend; f != nil {
		f(AppendEvent{
			TP: p.tp, Principal: req.Principal, BaseOffset: base, LastOffset: base + int64(vi.Records) - 1,
			LeaderEpoch: epoch, Bytes: len(batch), Records: vi.Records, Internal: e.Internal,
		})
	}
	info, err := p.log().AppendLeaderMarker(batch, epoch, e.TransactionVersion)
	if err != nil || info.Duplicate {
		if f := p.m.cfg.Hooks.OnTruncate; f != nil {
			f(p.tp, base)
		}
	}
	if err != nil {
		res.Err = p.broken(err)
		return appended{}
	}
	res.BaseOffset, res.LastOffset = info.FirstOffset, info.LastOffset
	res.LogStartOffset = info.LogStartOffset
	res.LogAppendTime = info.LogAppendTime
	if batch.IsLogAppendTime() && !info.Duplicate {
		res.LogAppendTime = batch.MaxTimestamp()
	}
	res.Duplicate = info.Duplicate
	out := appended{required: info.LastOffset + 1, term: term}
	if info.Duplicate {
		return out
	}
	res.Bytes = info.Bytes
	out.wrote = true
	now := p.m.now()
	p.state.Lock()
	p.end = info.LastOffset + 1
	out.committed = p.advance(now)
	p.state.Unlock()
	return out
}

// mayAppend checks the role and, for acks=-1, the committed in-sync set. With
// state held.
func (p *Partition) mayAppend(req *AppendRequest, e *AppendEntry, res *AppendResult) error {
	if err := p.serves(e.TopicID); err != nil {
		return err
	}
	if p.role != leader {
		res.Leader, res.LeaderEpoch = p.leaderID, p.leaderEpoch
		return kerr.NotLeaderForPartition
	}
	if req.Acks == -1 && len(p.isr) < p.minISR() {
		return kerr.NotEnoughReplicas
	}
	return nil
}

// noteFetch records how far a follower has come, and may propose it for the
// in-sync set. With state held; the returned proposal is to be submitted
// without it. A new life of the broker starts from nothing: an earlier one's log
// may have had more than a crash has left.
func (p *Partition) noteFetch(r *remote, epoch, offset int64, now time.Time) (committed bool, proposal *ISRChange) {
	if r.epoch >= 0 && epoch > r.epoch {
		start := r.start
		*r = unseen(r.id, epoch)
		r.start = start
	}
	r.epoch = epoch
	switch {
	case offset >= p.end:
		r.lastCaughtUp = now
	case offset >= r.endAtLastSeen && r.endAtLastSeen >= 0:
		if r.lastFetch.After(r.lastCaughtUp) {
			r.lastCaughtUp = r.lastFetch
		}
	}
	r.lastFetch, r.endAtLastSeen, r.end = now, p.end, offset
	proposal = p.maybeExpand(r, now)
	return p.advance(now), proposal
}
