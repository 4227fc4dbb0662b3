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
		d, ready := m.ready[tp], true
		delete(m.ready, tp)
		if d == nil {
			d, ready = m.preferred[tp], false
		}
		asked := d != nil && d == m.preferred[tp]
		if d == nil {
			d = least(m.cfg.Dirs, m.used())
		}
		if d == nil || m.offline(d) {
			return nil, fmt.Errorf("no folder for %s: %w", tp, kerr.KafkaStorageError)
		}
		var log *commitlog.Log
		var err error
		if ready {
			log, err = m.openLog(d, d.PartitionPath(tp), tc, commitlog.OpenOptions{CleanShutdown: true})
		} else {
			log, err = m.createLog(d, d.PartitionPath(tp), id, tc)
		}
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
		if failed != nil { // since used looked
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

// makeFolders makes the folders of all replicas that a request brings, side by side; create
// opens their logs. What fails is left to create as well, which looks for another folder.
// With ctl held.
func (m *Manager) makeFolders(orders []order) {
	var tps []TopicPartition
	var dirs []*commitlog.Dir
	var paths []string
	var ids []protocol.UUID
	count, named := m.used(), map[TopicPartition]bool{}
	for i := range orders {
		o := &orders[i]
		if named[o.tp] {
			continue
		}
		named[o.tp] = true
		if _, damaged := m.damagedAt(o.tp); damaged || m.Partition(o.tp) != nil || !slices.Contains(o.state.Replicas, m.cfg.BrokerID) || !o.state.IsNew && m.anyOffline() {
			continue
		}
		d := m.preferred[o.tp]
		if d == nil {
			d = least(m.cfg.Dirs, count)
		}
		if d == nil || m.offline(d) {
			continue
		}
		count[d]++
		tps, dirs, paths, ids = append(tps, o.tp), append(dirs, d), append(paths, d.PartitionPath(o.tp)), append(ids, o.topicID)
	}
	for i, err := range commitlog.MakeFolders(m.cfg.FS, paths, ids) {
		if err != nil {
			m.failDir(dirs[i], err)
			continue
		}
		m.ready[tps[i]] = dirs[i]
	}
}

// used counts the replicas in each folder that works, and the copies on their way there.
func (m *Manager) used() map[*commitlog.Dir]int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	count := map[*commitlog.Dir]int{}
	for _, d := range m.cfg.Dirs {
		if m.offIn[d] == nil {
			count[d] = 0
		}
	}
	if len(count) < 2 { // asked for each of ten thousand
		return count
	}
	add := func(d *commitlog.Dir) {
		if _, ok := count[d]; ok {
			count[d]++
		}
	}
	for _, p := range m.parts {
		add(p.dir())
		if f := p.copying(); f != nil {
			add(f.dir)
		}
	}
	return count
}

// least is the first of the folders with the least in it; nil if none is counted.
func least(dirs []*commitlog.Dir, count map[*commitlog.Dir]int) (best *commitlog.Dir) {
	for _, d := range dirs {
		if n, ok := count[d]; ok && (best == nil || n < count[best]) {
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
		m.handovers.Check(p)
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
