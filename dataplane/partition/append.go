package partition

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/protocol"
)

// Append appends each entry to its partition and calls done exactly once:
// before it returns, or for acks=-1 later on the goroutine that brought the
// high watermark, the timeout or the end of the leadership.
//
// done may not be called with locks of this package held, so it may append or
// fetch in turn; it must not block.
func (m *Manager) Append(req AppendRequest, done func([]AppendResult)) {
	results := slices.Grow(req.Results[:0], len(req.Entries))[:len(req.Entries)]
	var waits []ackWait
	for i := range req.Entries {
		e, r := &req.Entries[i], &results[i]
		*r = AppendResult{TP: e.TP, BaseOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStartOffset: -1, Leader: -1, LeaderEpoch: -1}
		switch {
		case req.Acks < -1 || req.Acks > 1:
			r.Err = kerr.InvalidRequiredAcks
			continue
		case !e.Internal && protocol.InternalTopic(e.TP.Topic):
			r.Err = kerr.InvalidTopicException
			continue
		}
		p := m.Partition(e.TP)
		if e.Refused != nil {
			if r.Err = e.Refused; p != nil && errors.Is(r.Err, kerr.NotLeaderForPartition) {
				r.Leader, r.LeaderEpoch = p.Leader()
			}
			continue
		}
		if p == nil {
			r.Err = m.absent(e.TP)
			continue
		}
		a := p.appendLeader(&req, e, r)
		if a.wrote {
			p.changed(a.committed)
		}
		if req.Acks == -1 && r.Err == nil {
			if waits == nil {
				waits = make([]ackWait, 0, len(req.Entries))
			}
			waits = append(waits, ackWait{p: p, at: i, required: a.required, term: a.term})
		}
	}
	if len(waits) == 0 {
		done(results)
		return
	}
	op := &delayedProduce{waits: waits, results: results, done: done}
	var few [4]*Partition
	keys := few[:0]
	for i := range waits {
		keys = append(keys, waits[i].p)
	}
	m.produces.Watch(op, req.Timeout, keys...)
}

// AwaitCommitted calls done exactly once: with nil when all that the partition's log holds now is
// committed, with NOT_LEADER_OR_FOLLOWER if it is not led here (any more), with REQUEST_TIMED_OUT when
// the time is up. It may do so before it returns. done may not block.
func (m *Manager) AwaitCommitted(tp TopicPartition, timeout time.Duration, done func(error)) {
	p := m.Partition(tp)
	if p == nil {
		done(m.absent(tp))
		return
	}
	p.state.Lock()
	term := p.term
	p.state.Unlock()
	m.produces.Watch(&delayedCommit{p: p, upTo: p.EndOffset(), term: term, done: done, err: kerr.RequestTimedOut}, timeout, p)
}

// delayedCommit waits until what was there at its begin is committed.
type delayedCommit struct {
	p    *Partition
	upTo int64
	term uint64
	done func(error)
	err  error // that of a timeout, until the partition has said more
}

func (d *delayedCommit) TryComplete() bool {
	ok, err := d.p.acked(d.upTo, d.term)
	if !ok {
		return false
	}
	if d.err = err; errors.Is(err, kerr.NotEnoughReplicasAfterAppend) {
		d.err = nil // it is below the watermark all the same
	}
	return true
}

func (d *delayedCommit) Complete(bool) { d.done(d.err) }

// Waiting is the number of produces that wait for replicas, and of fetches that wait
// for data.
func (m *Manager) Waiting() (produces, fetches int) { return m.produces.Len(), m.fetches.Len() }

// delayedProduce waits until every appended entry is settled.
type delayedProduce struct {
	waits   []ackWait
	results []AppendResult
	done    func([]AppendResult)
}

type ackWait struct {
	p        *Partition
	at       int
	required int64
	term     uint64
	settled  bool
}

// TryComplete asks each partition that is still open.
func (d *delayedProduce) TryComplete() bool {
	open := false
	for i := range d.waits {
		w := &d.waits[i]
		if w.settled {
			continue
		}
		ok, err := w.p.acked(w.required, w.term)
		if !ok {
			open = true
			continue
		}
		w.settled = true
		res := &d.results[w.at]
		if res.Err = err; errors.Is(err, kerr.NotLeaderForPartition) {
			res.Leader, res.LeaderEpoch = w.p.Leader()
		}
	}
	return !open
}

// Complete answers; what is open by then has timed out and may yet be committed.
func (d *delayedProduce) Complete(bool) {
	for i := range d.waits {
		if w := &d.waits[i]; !w.settled {
			d.results[w.at].Err = kerr.RequestTimedOut
		}
	}
	d.done(d.results)
}
