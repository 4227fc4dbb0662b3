package partition

import (
	"time"

	"penstock/dataplane/commitlog"
)

// neverCleaned is the clean offset of a log that no clean has finished with.
const neverCleaned = -1

// cleanable is where the dirty part of the log begins and where it must end now, and
// a mark that a truncation moves.
func (p *Partition) cleanable() (firstDirty, upTo int64, cuts uint64) {
	p.state.Lock()
	defer p.state.Unlock()
	return p.cleaned, p.lastStable(), p.cuts
}

// setCleaned takes the end of a clean over, unless the log was truncated since.
func (p *Partition) setCleaned(offset int64, cuts uint64) bool {
	p.state.Lock()
	defer p.state.Unlock()
	if p.cuts != cuts {
		return false
	}
	p.cleaned = offset
	return true
}

// dirtyFrom says that the log is about to be cut at offset: what is appended there
// later has not been cleaned. It is on disk before the cut, or the checkpoint could
// call records clean that a clean has never seen. With the append lock held.
func (p *Partition) dirtyFrom(offset int64) error {
	p.state.Lock()
	p.cuts++
	back := p.cleaned > offset
	if back {
		p.cleaned = offset
	}
	p.state.Unlock()
	if !back {
		return nil
	}
	return p.m.writeCleaned(p.dir())
}

// writeCleaned writes up to where the logs of a folder are clean.
func (m *Manager) writeCleaned(d *commitlog.Dir) error {
	return m.checkpoints.write(d, commitlog.CleanerCheckpoint, func() map[TopicPartition]int64 {
		offsets := map[TopicPartition]int64{}
		for _, p := range m.all() {
			p.state.Lock()
			if p.cleaned >= 0 && (p.dir() == d || p.future != nil && p.future.dir == d) {
				offsets[p.tp] = p.cleaned
			}
			p.state.Unlock()
		}
		return offsets
	})
}

// readCleaned reads a folder's checkpoint of the cleaner. A damaged one costs a clean
// of everything, and no data.
func (m *Manager) readCleaned(d *commitlog.Dir) map[TopicPartition]int64 {
	at, err := d.ReadCheckpoint(commitlog.CleanerCheckpoint)
	if err != nil {
		m.logger.Warn("the cleaner's checkpoint cannot be read: all is taken for dirty", "dir", d.Path(), "err", err)
	}
	return at
}

// CleanerStats is the state of log compaction, for whoever publishes it.
type CleanerStats struct {
	Dirs map[string]CleanerDir // by path

	Cleans            int64 // that ended well
	Aborted           int64 // by a truncation, a move, a deletion or the stop
	Failures          int64 // logs that became uncleanable
	BytesRead         int64 // of all cleans
	BytesWritten      int64
	RecordsWithoutKey int64 // that were dropped

	Last          commitlog.CleanStats
	LastPartition TopicPartition
	LastAt        time.Time
}

// CleanerDir is the state of the compacted logs of one folder.
type CleanerDir struct {
	MaxDirtyRatio float64       // largest dirty share of a log, 0 to 1
	MaxDirtyAge   time.Duration // age of the oldest record that could be clean
	MaxOverdue    time.Duration // beyond max.compaction.lag.ms
	// Uncleanable are the partitions that a failed clean has taken out, and why.
	Uncleanable      map[TopicPartition]string
	UncleanableBytes int64 // of their logs that are not clean
}

// CleanerStats looks at all compacted logs; it is not free.
func (m *Manager) CleanerStats() CleanerStats {
	c := &m.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.stats
	st.Dirs = map[string]CleanerDir{}
	for _, p := range m.all() {
		if p.gone() || !p.config.Load().Log.Compact {
			continue
		}
		d := st.Dirs[p.dir().Path()]
		from, upTo, _ := p.cleanable()
		state, err := p.log().Cleanable(from, upTo, m.now())
		if err == nil {
			d.MaxDirtyRatio = max(d.MaxDirtyRatio, state.Ratio())
			d.MaxDirtyAge = max(d.MaxDirtyAge, state.DirtySince)
			d.MaxOverdue = max(d.MaxOverdue, state.Overdue)
		}
		if bad := c.bad[p]; bad != nil {
			if d.Uncleanable == nil {
				d.Uncleanable = map[TopicPartition]string{}
			}
			d.Uncleanable[p.tp] = bad.Error()
			d.UncleanableBytes += state.DirtyBytes
		}
		st.Dirs[p.dir().Path()] = d
	}
	return st
}
