package partition

import (
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// future is a copy of a replica in another folder of this broker, which takes the
// replica's place when it has caught up (KIP-113). It follows the replica's own log
// as a follower follows its leader.
type future struct {
	dir  *commitlog.Dir
	path string
	log  *commitlog.Log

	// mu is held over each step of the copying, and by a truncation of the replica
	// while it cuts the copy, too: what a step has read is never appended after.
	mu      sync.Mutex
	matched bool // what lies in the copy is known to be what lies in the replica
}

// copying is the copy that is to take the replica's place, nil if there is none.
func (p *Partition) copying() *future {
	p.state.Lock()
	defer p.state.Unlock()
	return p.future
}

// where tells the replica's folder and its copy, as of one moment.
func (p *Partition) where() (*commitlog.Dir, *future) {
	p.state.Lock()
	defer p.state.Unlock()
	return p.dir(), p.future
}

// detach forgets the copy; false if it is not the replica's any more.
func (p *Partition) detach(f *future) bool {
	p.state.Lock()
	defer p.state.Unlock()
	if p.future != f {
		return false
	}
	p.future = nil
	return true
}

// wants tells whether the copying of f should go on.
func (p *Partition) wants(f *future) bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.future == f && p.failed == nil
}

// discard ends a copying and removes what was copied. A copy that is just taking the
// replica's place is left to do so: forgotten in the middle of it, its folder would keep
// the replica's name.
func (m *Manager) discard(p *Partition, f *future) {
	f.mu.Lock()
	if !p.detach(f) {
		f.mu.Unlock()
		return
	}
	_ = f.log.Abandon()
	err := f.dir.MarkFolderDeleted(commitlog.Folder{TP: p.tp, Path: f.path})
	f.mu.Unlock()
	if err != nil {
		m.failDir(f.dir, err)
	}
}

// truncateCopy does to the copy what was done to the replica. With the append lock
// held.
func (p *Partition) truncateCopy(cut func(*commitlog.Log) error) {
	f := p.copying()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !p.wants(f) {
		return
	}
	if err := cut(f.log); err != nil {
		p.m.failDir(f.dir, err)
	}
}

// progress is the outcome of a step of copying.
type progress int

const (
	moved  progress = iota // goes on
	level                  // the copy ends where the replica does
	paused                 // not now: the replica is being changed
	ended                  // there is nothing more to do
)

// copyStep copies at most the length of buf, but at least one batch.
func (p *Partition) copyStep(f *future, buf *[]byte) (int, progress) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, next, err := p.copySome(f, buf)
	if err != nil && p.wants(f) {
		next = p.copyFailed(f, err)
	}
	return n, next
}

// errSource marks a failure to read the replica, errSpoilt what it has read.
var (
	errSource = errors.New("reading the replica")
	errSpoilt = errors.New("the replica's log cannot be copied")
)

// copyFailed says how to go on. With f.mu held.
func (p *Partition) copyFailed(f *future, err error) progress {
	switch {
	case errors.Is(err, errSpoilt):
		// Kafka gives up here as well. The replica may be served for as long as
		// nobody reads that place.
		p.m.logger.Error("replica cannot be moved", "partition", p.tp.String(), "to", f.dir.Path(), "err", err)
		p.m.background(func() {
			p.m.discard(p, f)
			p.m.deletes.Check(p)
		})
	case errors.Is(err, errSource):
		_ = p.broken(err)
	default:
		p.m.failDir(f.dir, err)
	}
	return ended
}

// copySome is copyStep with f.mu held.
func (p *Partition) copySome(f *future, buf *[]byte) (n int, next progress, err error) {
	if !p.wants(f) {
		return 0, ended, nil
	}
	cur := p.log()
	if !f.matched {
		if err := matchCopy(f.log, cur); err != nil {
			return 0, ended, err
		}
		f.matched = true
	}
	if err := p.raiseCopyStart(f, cur.StartOffset()); err != nil {
		return 0, ended, err
	}
	from, end := f.log.EndOffset(), cur.EndOffset()
	switch {
	case from > end:
		return 0, paused, nil // the replica is being truncated, and next the copy
	case from == end:
		return 0, level, nil
	}
	s, err := cur.Read(from, len(*buf), end, true)
	if err != nil {
		return p.readFailed(cur, from, err)
	}
	defer s.Close()
	if s.Len == 0 { // the replica was cut, or ends in a gap that compaction left
		if cur.EndOffset() < end {
			return 0, paused, nil
		}
		return 0, moved, f.log.RaiseEnd(end)
	}
	if s.Len > len(*buf) {
		*buf = make([]byte, s.Len) // one batch, no larger than it was when it was taken in
	}
	b := (*buf)[:s.Len]
	if _, err := s.ReadInto(b); err != nil {
		return p.readFailed(cur, from, err)
	}
	n, err = appendCopied(f.log, b)
	f.log.SetHighWatermark(min(p.HighWatermark(), f.log.EndOffset()))
	if errors.Is(err, kerr.CorruptMessage) || errors.Is(err, commitlog.ErrOffsetMismatch) {
		return 0, ended, fmt.Errorf("%w at %d: %w", errSpoilt, from, err)
	}
	return n, moved, err
}

// readFailed looks whether the log was cut or closed under the reader.
func (p *Partition) readFailed(cur *commitlog.Log, from int64, err error) (int, progress, error) {
	if errors.Is(err, kerr.OffsetOutOfRange) || cur.EndOffset() <= from || cur.Closed() {
		return 0, paused, nil
	}
	return 0, ended, fmt.Errorf("%w: %w", errSource, err)
}

// raiseCopyStart lets the copy begin where the replica does, also if nothing is left
// of what was copied.
func (p *Partition) raiseCopyStart(f *future, start int64) error {
	if f.log.StartOffset() >= start {
		return nil
	}
	var err error
	if f.log.EndOffset() < start {
		err = f.log.TruncateFullyAndStartAt(start)
	} else {
		_, err = f.log.IncrementStartOffset(start)
	}
	if err == nil {
		p.m.background(func() { p.m.deletes.Check(p) })
	}
	return err
}

// matchCopy cuts what a copy of an earlier life has and the replica has not, epoch by
// epoch as between a follower and its leader: after a crash the replica may have lost
// an end that had been copied already, and may have been led on from before it.
func matchCopy(copied, cur *commitlog.Log) error {
	for {
		end := max(min(commonEnd(copied, cur), cur.EndOffset()), copied.StartOffset())
		if end >= copied.EndOffset() {
			return nil
		}
		if _, err := copied.TruncateTo(end); err != nil {
			return err
		}
	}
}

// commonEnd is where the copy may at most agree with the replica, judged by the
// copy's last epoch.
func commonEnd(copied, cur *commitlog.Log) int64 {
	last, ok := copied.LatestEpoch()
	if !ok {
		return copied.EndOffset()
	}
	newest, ok := cur.LatestEpoch()
	if !ok {
		return copied.StartOffset()
	}
	if last > newest { // all of a later epoch is unknown to the replica
		if epoch, end := copied.EndOffsetForEpoch(newest); epoch >= 0 {
			return end
		}
		return copied.StartOffset()
	}
	epoch, end := cur.EndOffsetForEpoch(last)
	if epoch == last {
		return end
	}
	if own, ownEnd := copied.EndOffsetForEpoch(epoch); epoch >= 0 && own >= 0 {
		return min(end, ownEnd)
	}
	return copied.StartOffset()
}

// takeFuture puts the copy in the replica's place if it can be brought level. What is
// left to copy should be little, since nothing is appended meanwhile.
//
// Of the two folders one is the replica at every moment: first the copy, flushed and
// with its checkpoints written, gets the replica's name, then the old folder loses
// it. A kill in between leaves two of that name, of which load keeps the better one.
func (p *Partition) takeFuture(f *future, buf *[]byte) progress {
	m := p.m
	if err := f.log.Flush(); err != nil && p.wants(f) {
		return p.copyFailed(f, err)
	}
	m.configs.Lock() // a change of configuration must not fall between two logs
	defer m.configs.Unlock()
	p.append.Lock()
	defer p.append.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		_, next, err := p.copySome(f, buf)
		if err != nil && p.wants(f) {
			return p.copyFailed(f, err)
		}
		if next == level {
			break
		}
		if next != moved {
			return next
		}
	}
	old := p.at.Load()
	log, err := p.promote(f, old.log)
	if err != nil {
		if p.wants(f) {
			m.failDir(f.dir, err)
		}
		return ended
	}
	p.state.Lock()
	current := p.future == f && p.failed == nil
	if current {
		p.at.Store(&place{f.dir, log})
		p.future = nil
		p.savedStart = log.StartOffset()
		p.setHighWatermark(p.hw) // the new log has yet to hear of it
	}
	p.state.Unlock()
	if !current { // a folder has failed in this very moment
		_ = log.Abandon()
		return ended
	}
	m.logger.Info("replica has moved", "partition", p.tp.String(), "from", old.dir.Path(), "to", f.dir.Path(), "end", log.EndOffset())
	_ = old.log.Abandon()
	if err := old.dir.MarkDeleted(p.tp); err != nil {
		m.failDir(old.dir, err)
	} else {
		m.forgetDeleted(old.dir)
	}
	return ended
}

// promote closes the copy in order, gives its folder the replica's name and opens it
// as the replica's log. With all locks held.
func (p *Partition) promote(f *future, cur *commitlog.Log) (*commitlog.Log, error) {
	m := p.m
	if epoch, ok := cur.LatestEpoch(); ok {
		// An epoch in which nothing was written is in no batch that was copied.
		if start, ok := cur.EpochStart(epoch); ok {
			if err := f.log.AssignEpochStart(epoch, start); err != nil {
				return nil, err
			}
		}
	}
	f.log.LearnProducers(cur)
	start, end, written := cur.StartOffset(), cur.EndOffset(), f.log.BatchesEnd()
	if err := f.log.Close(); err != nil {
		return nil, err
	}
	if err := errors.Join(m.writeRecoveryPoints(f.dir), m.writeHighWatermark(f.dir)); err != nil {
		return nil, err
	}
	if err := f.dir.Promote(commitlog.Folder{TP: p.tp, Path: f.path}); err != nil {
		return nil, err
	}
	log, err := m.openLog(f.dir, f.dir.PartitionPath(p.tp), *p.config.Load(), commitlog.OpenOptions{
		CleanShutdown: true, RecoveryPoint: written, LogStartOffset: start,
	})
	if err != nil {
		return nil, err
	}
	if log.EndOffset() == max(written, start) { // what is missing is a gap
		err = log.RaiseEnd(end)
	}
	if err != nil || log.EndOffset() != end || log.StartOffset() != start {
		return nil, errors.Join(err, fmt.Errorf("copy of %s has %d..%d instead of %d..%d", p.tp, log.StartOffset(), log.EndOffset(), start, end), log.Abandon())
	}
	return log, nil
}
