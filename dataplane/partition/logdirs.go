package partition

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
)

// OfflineDir is a folder of log.dirs that could not even be opened.
type OfflineDir struct {
	Path string
	Err  error
}

// create makes the log of a replica that is not here, in the folder that was asked
// for or in the one that holds the fewest. With ctl held.
//
// A replica that the controller does not call new may lie in a folder that is out of
// reach: it is not made anew, empty, while there is one.
func (m *Manager) create(tp TopicPartition, id protocol.UUID, isNew bool) (*Partition, error) {
	if !isNew && m.anyOffline() {
		return nil, fmt.Errorf("%s is not new and may lie in a folder that is offline: %w", tp, kerr.KafkaStorageError)
	}
	m.configs.Lock()
	defer m.configs.Unlock()
	tc := m.cfg.Topic(tp.Topic)
	for {
		d := m.preferred[tp]
		asked := d != nil
		if !asked {
			d = m.leastUsed()
		}
		if d == nil || m.offline(d) {
			return nil, fmt.Errorf("no folder for %s: %w", tp, kerr.KafkaStorageError)
		}
		log, err := m.createLog(d, d.PartitionPath(tp), id, tc)
		if err != nil {
			m.failDir(d, err)
			if asked {
				return nil, fmt.Errorf("creating %s: %w (%w)", d.PartitionPath(tp), err, kerr.KafkaStorageError)
			}
			continue // the next one
		}
		m.made[d] = true
		delete(m.preferred, tp)
		p := newPartition(m, tp, d, log, 0)
		p.topicID = id
		p.config.Store(&tc)
		m.mu.Lock()
		m.parts[tp] = p
		failed := m.offIn[d]
		m.mu.Unlock()
		if failed != nil { // since leastUsed looked
			p.fail(failed)
			return nil, kerr.KafkaStorageError
		}
		return p, nil
	}
}

// createLog makes an empty log; the topic's id comes before any data.
func (m *Manager) createLog(d *commitlog.Dir, path string, id protocol.UUID, tc TopicConfig) (*commitlog.Log, error) {
	if err := commitlog.MakeFolder(m.cfg.FS, path, id); err != nil {
		return nil, err
	}
	return m.openLog(d, path, tc, commitlog.OpenOptions{CleanShutdown: true})
}

func (m *Manager) leastUsed() *commitlog.Dir {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.cfg.Dirs) == 1 { // asked for each of ten thousand
		if d := m.cfg.Dirs[0]; m.offIn[d] == nil {
			return d
		}
		return nil
	}
	count := map[*commitlog.Dir]int{}
	for _, p := range m.parts {
		count[p.dir()]++
		if f := p.copying(); f != nil {
			count[f.dir]++
		}
	}
	var best *commitlog.Dir
	for _, d := range m.cfg.Dirs {
		if m.offIn[d] == nil && (best == nil || count[d] < count[best]) {
			best = d
		}
	}
	return best
}

// failLater is failDir for callers that hold locks of a log.
func (m *Manager) failLater(d *commitlog.Dir, err error) {
	m.background(func() { m.failDir(d, err) })
}

// background runs f beside the caller, unless the Manager is being closed: then it says false.
func (m *Manager) background(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.wg.Go(f)
	}
	return !m.closed
}

// failDir takes a folder and all its replicas offline, and drops the copies that
// were on their way into it. It may be called with a partition's append lock held;
// the waiters are therefore woken from elsewhere.
func (m *Manager) failDir(d *commitlog.Dir, err error) {
	m.mu.Lock()
	if m.offIn[d] != nil || m.closed {
		m.mu.Unlock()
		return
	}
	m.offIn[d] = err
	last := len(m.offIn) == len(m.cfg.Dirs)
	var lost []*Partition
	var copies []*future
	for _, p := range m.parts {
		at, f := p.where()
		if at == d {
			lost = append(lost, p)
		}
		if f != nil && f.dir == d {
			p.detach(f)
			copies = append(copies, f)
		}
	}
	m.wg.Add(1)
	m.mu.Unlock()
	m.logger.Error("log folder failed; its partitions are offline until a restart", "dir", d.Path(), "partitions", len(lost), "err", err)
	tps := make([]TopicPartition, len(lost))
	for i, p := range lost {
		p.fail(err)
		tps[i] = p.tp
	}
	go func() {
		defer m.wg.Done()
		m.lose(lost, tps, copies)
		if f := m.cfg.Hooks.OnDirFailure; f != nil {
			f(d.Path(), last, err)
		}
	}()
}

// lose ends what goes on with failed replicas. Their files are closed, so that the
// folder can be unmounted and repaired.
func (m *Manager) lose(lost []*Partition, tps []TopicPartition, copies []*future) {
	if m.cfg.Fetchers != nil {
		m.cfg.Fetchers.Remove(tps)
	}
	for _, p := range lost {
		m.produces.Check(p)
		m.fetches.Check(p)
		m.deletes.Check(p)
		_ = p.log().Abandon()
		if f := p.copying(); f != nil {
			// The copy stays on disk and is taken up when both folders are there again.
			p.detach(f)
			copies = append(copies, f)
		}
	}
	for _, f := range copies {
		f.mu.Lock()
		_ = f.log.Abandon()
		f.mu.Unlock()
	}
	if f := m.cfg.Hooks.OnLeadership; f != nil {
		m.ctl.Lock() // in order with what the controller says
		defer m.ctl.Unlock()
		for _, tp := range tps {
			f(tp, false, noEpoch)
		}
	}
}

func (m *Manager) offline(d *commitlog.Dir) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.offIn[d] != nil
}

func (m *Manager) anyOffline() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.offIn) > 0 || len(m.cfg.Offline) > 0
}

// DirInfo describes one folder of log.dirs.
type DirInfo struct {
	Path string
	Err  error // KAFKA_STORAGE_ERROR: it is offline, and nothing else is known
	// Total and Usable are the room on its file system in bytes, -1 if unknown.
	Total, Usable int64
	Replicas      []ReplicaInfo // by topic and number
}

// ReplicaInfo is one replica, or a copy that is to take its place.
type ReplicaInfo struct {
	TP     TopicPartition
	Size   int64 // bytes of its segments
	Lag    int64 // how far the end of the log lies below what it should reach
	Future bool
}

// DescribeDirs tells of every folder and of the replicas in it that are wanted
// (KIP-113, KIP-827).
func (m *Manager) DescribeDirs(want func(TopicPartition) bool) []DirInfo {
	var out []DirInfo
	for _, o := range m.cfg.Offline {
		out = append(out, DirInfo{Path: o.Path, Err: kerr.KafkaStorageError, Total: -1, Usable: -1})
	}
	in := map[*commitlog.Dir][]ReplicaInfo{}
	for _, p := range m.Partitions() {
		m.handovers.Check(p)
		if !want(p.tp) || p.gone() {
			continue
		}
		log := p.log()
		in[p.dir()] = append(in[p.dir()], ReplicaInfo{TP: p.tp, Size: log.Size(), Lag: max(p.HighWatermark()-log.EndOffset(), 0)})
		if f := p.copying(); f != nil {
			in[f.dir] = append(in[f.dir], ReplicaInfo{TP: p.tp, Size: f.log.Size(), Lag: log.EndOffset() - f.log.EndOffset(), Future: true})
		}
	}
	for _, d := range m.cfg.Dirs {
		i := DirInfo{Path: d.Path(), Total: -1, Usable: -1}
		if m.offline(d) {
			i.Err = kerr.KafkaStorageError
		} else if total, usable, err := d.Space(); err != nil {
			m.failDir(d, err)
			i.Err = kerr.KafkaStorageError
		} else {
			i.Total, i.Usable, i.Replicas = total, usable, in[d]
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b DirInfo) int { return slices.Compare([]byte(a.Path), []byte(b.Path)) })
	return out
}
