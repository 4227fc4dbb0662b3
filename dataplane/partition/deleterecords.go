package partition

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
)

// DeletePart asks to delete what lies below an offset; -1 is the high watermark.
type DeletePart struct {
	TP     TopicPartition
	Offset int64
}

// DeleteResult answers one DeletePart, at the same index.
type DeleteResult struct {
	TP TopicPartition
	// LowWatermark is the least log start of the live replicas, -1 with an error
	// other than REQUEST_TIMED_OUT.
	LowWatermark int64
	Err          error
}

// DeleteRecords raises the log start of the partitions (KIP-107) and calls done
// exactly once: when every live replica has told of a log start as high, or the time
// is up. done may not block.
//
// Kafka checkpoints the new start up to a minute later, so that the records come back
// if all replicas are killed meanwhile. Here each replica has written it down before
// it counts.
//
// Errors: INVALID_TOPIC_EXCEPTION for an internal topic, UNKNOWN_TOPIC_OR_PARTITION,
// NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION unless cleanup.policy has delete,
// OFFSET_OUT_OF_RANGE above the high watermark or below -1, KAFKA_STORAGE_ERROR.
func (m *Manager) DeleteRecords(timeout time.Duration, parts []DeletePart, done func([]DeleteResult)) {
	op := &delayedDelete{results: make([]DeleteResult, len(parts)), waits: make([]deleteWait, len(parts)), done: done}
	unsaved := map[*commitlog.Dir]bool{}
	for i, part := range parts {
		r, w := &op.results[i], &op.waits[i]
		*r = DeleteResult{TP: part.TP, LowWatermark: -1}
		if protocol.InternalTopic(part.TP.Topic) {
			r.Err = kerr.InvalidTopicException
			continue
		}
		p := m.Partition(part.TP)
		if p == nil {
			r.Err = m.absent(part.TP)
			continue
		}
		upTo, err := p.deleteUpTo(part.Offset)
		if err != nil {
			r.Err = err
			continue
		}
		w.p, w.upTo = p, upTo
		unsaved[p.dir()] = true
	}
	for d := range unsaved {
		if err := m.writeStarts(d); err != nil {
			m.failDir(d, err)
		}
	}
	var keys []*Partition
	for i := range op.waits {
		w := &op.waits[i]
		if w.p == nil {
			continue
		}
		m.fetches.Check(w.p) // readers below the start, and followers, who are to hear of it
		r := &op.results[i]
		if r.LowWatermark, r.Err = w.p.lowWatermark(); r.Err == nil && r.LowWatermark < w.upTo {
			keys = append(keys, w.p)
		} else {
			w.p = nil
		}
	}
	if len(keys) == 0 {
		done(op.results)
		return
	}
	m.deletes.Watch(op, timeout, keys...)
}

// deleteUpTo raises the log start and gives the offset that was meant.
func (p *Partition) deleteUpTo(offset int64) (int64, error) {
	p.append.Lock()
	defer p.append.Unlock()
	p.state.Lock()
	err := p.serves(protocol.UUID{})
	switch {
	case err != nil:
	case p.role != leader:
		err = kerr.NotLeaderForPartition
	case p.config.Load().Log.KeepForever:
		err = kerr.PolicyViolation
	case offset == -1:
		offset = p.hw
	case offset < 0 || offset > p.hw:
		err = kerr.OffsetOutOfRange
	}
	p.state.Unlock()
	if err != nil {
		return 0, err
	}
	if raised, err := p.log().IncrementStartOffset(offset); err != nil {
		return 0, p.broken(err)
	} else if raised {
		p.m.logger.Info("records deleted on request", "partition", p.tp.String(), "start", offset)
	}
	return offset, nil
}

// lowWatermark is the least log start of the live replicas, a copy of this one in
// another folder among them. A follower that has not fetched yet has -1.
func (p *Partition) lowWatermark() (int64, error) {
	p.state.Lock()
	defer p.state.Unlock()
	if err := p.serves(protocol.UUID{}); err != nil {
		return -1, err
	}
	if p.role != leader {
		return -1, kerr.NotLeaderForPartition
	}
	low := p.log().StartOffset()
	for i := range p.remotes {
		if r := &p.remotes[i]; r.start < low && p.m.alive(r.id) {
			low = r.start
		}
	}
	if p.future != nil {
		low = min(low, p.future.log.StartOffset())
	}
	return low, nil
}

// BrokersChanged looks again at the deletions that wait: one whose last missing
// replica has died is done.
func (m *Manager) BrokersChanged() {
	if m.deletes.Len() == 0 {
		return
	}
	for _, p := range m.all() {
		m.deletes.Check(p)
	}
}

// delayedDelete waits until the low watermarks have been raised.
type delayedDelete struct {
	waits   []deleteWait
	results []DeleteResult
	done    func([]DeleteResult)
}

type deleteWait struct {
	p    *Partition // nil once settled
	upTo int64
}

// TryComplete asks each partition that is still open.
func (d *delayedDelete) TryComplete() bool {
	open := false
	for i := range d.waits {
		w, r := &d.waits[i], &d.results[i]
		if w.p == nil {
			continue
		}
		low, err := w.p.lowWatermark()
		if err == nil && low < w.upTo {
			open = true
			continue
		}
		w.p, r.LowWatermark, r.Err = nil, low, err
	}
	return !open
}

// Complete answers. What is open by then has been deleted here, and goes on to be on
// the others.
func (d *delayedDelete) Complete(bool) {
	for i := range d.waits {
		if d.waits[i].p != nil {
			d.results[i].Err = kerr.RequestTimedOut
		}
	}
	d.done(d.results)
}
