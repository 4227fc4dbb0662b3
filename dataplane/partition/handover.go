package partition

import "time"

// A leader that another one replaces while both live often knows of it first. A client that is
// sent to its successor before that one knows, is sent back with the news that it came from, and
// waits for its own back-off then (franz-go 250 ms and more, the Java client for its metadata). So
// the old leader keeps such answers until it has copied from its successor: who serves
// followers in the new epoch leads.

// handoverMax bounds how long answers are kept. A successor that takes longer has died itself, or is
// not told by anybody; clients then find out as they do after a death.
const handoverMax = 3 * time.Second

// setHanding notes that p was led here until now, or that the answers need not be kept any more:
// the caller then calls Check of Manager.handovers. With state held.
func (p *Partition) setHanding(on bool) (changed bool) {
	if p.handing == on {
		return false
	}
	p.handing = on
	if on {
		p.m.handing.Add(1)
	} else {
		p.m.handing.Add(-1)
	}
	return true
}

// endHandover is setHanding(false) with its Check, for callers that hold no lock but ctl.
func (p *Partition) endHandover() {
	p.state.Lock()
	ended := p.setHanding(false)
	p.state.Unlock()
	if ended {
		p.m.handovers.Check(p)
	}
}

// AwaitsLeader tells a fetcher that answers of this replica are kept until its leader serves it: it
// should find out soon, and call LeaderServes.
func (p *Partition) AwaitsLeader() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.handing
}

// LeaderServes says that the leader has answered a fetch of this follower in that epoch
// without an error.
func (p *Partition) LeaderServes(leaderEpoch int32) {
	p.state.Lock()
	ended := p.role == follower && p.leaderEpoch == leaderEpoch && p.setHanding(false)
	p.state.Unlock()
	if ended {
		p.m.handovers.Check(p)
	}
}

// HandingOver says whether partitions that were led here have successors that are not known to be
// in office.
func (m *Manager) HandingOver() bool { return m.handing.Load() > 0 }

// AwaitSuccessors calls done exactly once: when each of the partitions that was led here has
// a successor that is known to be in office, which is at once for all others, or after 3 s. It may
// do so before it returns, or on the goroutine that brought the news. done may not block.
func (m *Manager) AwaitSuccessors(of []TopicPartition, done func()) {
	op := &delayedAway{done: done}
	for _, tp := range of {
		if p := m.Partition(tp); p != nil && p.AwaitsLeader() {
			op.parts = append(op.parts, p)
		}
	}
	if len(op.parts) == 0 {
		done()
		return
	}
	m.handovers.Watch(op, handoverMax, op.parts...)
}

// delayedAway is an answer that waits for successors.
type delayedAway struct {
	parts []*Partition
	done  func()
}

func (d *delayedAway) TryComplete() bool {
	for _, p := range d.parts {
		if p.AwaitsLeader() {
			return false
		}
	}
	return true
}

func (d *delayedAway) Complete(bool) { d.done() }
