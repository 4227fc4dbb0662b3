package partition

import (
	"errors"
	"maps"
	"sync"
	"time"

	"penstock/dataplane/commitlog"
)

// checkpoints serialises the checkpoint files and remembers what they hold, so
// that an idle broker writes nothing.
type checkpoints struct {
	mu      sync.Mutex
	written map[checkpointFile]map[TopicPartition]int64
}

type checkpointFile struct {
	dir  *commitlog.Dir
	name string
}

func (c *checkpoints) init() { c.written = map[checkpointFile]map[TopicPartition]int64{} }

// write collects under the lock: of two writers the later one has the later offsets.
func (c *checkpoints) write(d *commitlog.Dir, name string, collect func() map[TopicPartition]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	offsets, key := collect(), checkpointFile{d, name}
	if old, ok := c.written[key]; ok && maps.Equal(old, offsets) {
		return nil
	}
	if err := d.WriteCheckpoint(name, offsets); err != nil {
		return err
	}
	c.written[key] = offsets
	return nil
}

// every runs f at the interval until Close.
func (m *Manager) every(d time.Duration, f func()) {
	m.wg.Go(func() {
		t := time.NewTicker(d)
		defer t.Stop()
		for {
			select {
			case <-m.stop:
				return
			case <-t.C:
				f()
			}
		}
	})
}

// offsetsOf collects an offset of every log in a folder, also of copies on their
// way into it: when one takes its replica's place it must find its own there.
func (m *Manager) offsetsOf(d *commitlog.Dir, of func(*Partition, *commitlog.Log) int64, ofDamaged func(damagedReplica) int64) func() map[TopicPartition]int64 {
	return func() map[TopicPartition]int64 {
		offsets := map[TopicPartition]int64{}
		for _, p := range m.all() {
			if p.dir() == d {
				offsets[p.tp] = of(p, p.log())
			} else if f := p.copying(); f != nil && f.dir == d {
				offsets[p.tp] = of(p, f.log)
			}
		}
		m.keepDamaged(d, offsets, ofDamaged)
		return offsets
	}
}

func (m *Manager) writeHighWatermark(d *commitlog.Dir) error {
	return m.checkpoints.write(d, commitlog.HighWatermarkCheckpoint, m.offsetsOf(d, func(p *Partition, l *commitlog.Log) int64 {
		return min(p.HighWatermark(), l.EndOffset())
	}, func(r damagedReplica) int64 { return r.hw }))
}

// writeRecoveryPoints writes how far the logs of a folder are on disk, and
// where they start.
func (m *Manager) writeRecoveryPoints(d *commitlog.Dir) error {
	err := m.checkpoints.write(d, commitlog.RecoveryPointCheckpoint, m.offsetsOf(d,
		func(_ *Partition, l *commitlog.Log) int64 { return l.RecoveryPoint() }, func(r damagedReplica) int64 { return r.recovery }))
	if err != nil {
		return err
	}
	return m.writeStarts(d)
}

// writeStarts writes where the logs of a folder start.
func (m *Manager) writeStarts(d *commitlog.Dir) error {
	var written map[TopicPartition]int64
	collect := m.offsetsOf(d, func(_ *Partition, l *commitlog.Log) int64 { return l.StartOffset() }, func(r damagedReplica) int64 { return r.start })
	err := m.checkpoints.write(d, commitlog.LogStartCheckpoint, func() map[TopicPartition]int64 {
		written = collect()
		return written
	})
	if err != nil {
		return err
	}
	for tp, start := range written {
		if p := m.Partition(tp); p != nil && p.dir() == d {
			p.state.Lock()
			p.savedStart = max(p.savedStart, start)
			p.state.Unlock()
		}
	}
	return nil
}

// forgetDeleted takes deleted partitions out of a folder's checkpoints, before
// one of the same name can be made there: to its log, found again after a kill,
// the offsets of the old one would be a start above its end (so all of it would
// go), a watermark above what is committed, a recovery point above what is on disk.
func (m *Manager) forgetDeleted(d *commitlog.Dir) {
	if m.offline(d) {
		return
	}
	if err := errors.Join(m.writeRecoveryPoints(d), m.writeHighWatermark(d), m.writeCleaned(d)); err != nil {
		m.failDir(d, err)
	}
}

func (m *Manager) writeHighWatermarks()    { m.eachDir(m.writeHighWatermark) }
func (m *Manager) writeAllRecoveryPoints() { m.eachDir(m.writeRecoveryPoints) }
func (m *Manager) writeAllStarts()         { m.eachDir(m.writeStarts) }

// maxFlushCheck is how often logs are looked at for flush.ms at least. Kafka looks
// every log.flush.scheduler.interval.ms only, which is never unless it is set: then a
// topic's flush.ms does nothing.
const maxFlushCheck = time.Second

// flushDue syncs the logs whose flush.ms is over.
func (m *Manager) flushDue() {
	now := m.now()
	for _, p := range m.all() {
		if p.gone() {
			continue
		}
		if err := p.log().FlushIfDue(now); err != nil {
			_ = p.broken(err)
		}
	}
}

func (m *Manager) eachDir(write func(*commitlog.Dir) error) {
	for _, d := range m.cfg.Dirs {
		if m.offline(d) {
			continue
		}
		if err := write(d); err != nil {
			m.failDir(d, err)
		}
	}
}

func (m *Manager) shrinkAll() {
	now := m.now()
	for _, p := range m.all() {
		p.shrink(now)
	}
}

// expireProducers forgets idle idempotent producers, on followers too.
func (m *Manager) expireProducers() {
	now := m.now()
	for _, p := range m.all() {
		if !p.gone() {
			p.log().ExpireProducers(now)
		}
	}
}

// retain deletes old segments, on followers too.
func (m *Manager) retain() {
	now := m.now()
	for _, p := range m.all() {
		if p.gone() {
			continue
		}
		if _, err := p.log().DeleteOldSegments(now, p.HighWatermark()); err != nil {
			_ = p.broken(err)
		}
	}
}

// sweepDue sweeps as often as the delay is long, and each minute at least.
func (m *Manager) sweepDue() func() {
	last := m.now()
	return func() {
		if now := m.now(); now.Sub(last) >= min(time.Minute, time.Duration(m.deleteDelay.Load())) {
			last = now
			m.sweep()
		}
	}
}

// sweep removes files and folders whose delay is over.
func (m *Manager) sweep() {
	now := m.now()
	for _, p := range m.all() {
		if p.gone() {
			continue
		}
		if _, err := p.log().RemoveDeleted(now); err != nil {
			_ = p.broken(err)
		}
	}
	for _, d := range m.cfg.Dirs {
		if m.offline(d) {
			continue
		}
		if _, err := d.SweepDeleted(now, time.Duration(m.deleteDelay.Load())); err != nil {
			m.failDir(d, err)
		}
	}
}

func (p *Partition) gone() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.failed != nil
}
