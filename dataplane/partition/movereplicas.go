package partition

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// maxPreferred bounds the wishes for replicas that are not there.
const maxPreferred = 100_000

// MoveReplica lets a replica move to another folder of log.dirs while it serves
// (KIP-113). One that is in that folder, or on its way there, is left as it is; a move
// to elsewhere that is under way is given up. A replica that is not here yet will be
// made in that folder.
//
// Errors: INVALID_TOPIC_EXCEPTION where a copy's folder would have too long a name,
// LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR if the folder or the replica is offline, or
// any folder where a copy would have to be made; REPLICA_NOT_AVAILABLE for a replica
// that is not here, UNKNOWN_TOPIC_OR_PARTITION if the cluster has no such partition.
func (m *Manager) MoveReplica(tp TopicPartition, dir string) error {
	m.ctl.Lock()
	defer m.ctl.Unlock()
	if _, err := m.cfg.Dirs[0].NewFuturePath(tp); err != nil {
		return err
	}
	d, err := m.dirAt(dir)
	if err != nil {
		return err
	}
	path, err := d.NewFuturePath(tp)
	if err != nil {
		return err
	}
	if m.offline(d) {
		return fmt.Errorf("%s is offline: %w", dir, kerr.KafkaStorageError)
	}
	p := m.Partition(tp)
	if p == nil {
		if len(m.preferred) < maxPreferred {
			m.preferred[tp] = d
		}
		return m.notHere(tp)
	}
	p.state.Lock()
	failed, r, f := p.failed, p.role, p.future
	p.state.Unlock()
	switch {
	case failed != nil:
		return fmt.Errorf("%s is offline: %w", tp, kerr.KafkaStorageError)
	case r == idle:
		return m.notHere(tp)
	}
	if f != nil && f.dir != d {
		m.discard(p, f)
		m.deletes.Check(p)
		f = nil
	}
	if f != nil || p.dir() == d {
		return nil
	}
	if m.anyOffline() {
		return fmt.Errorf("no copy is made while a folder is offline: %w", kerr.KafkaStorageError)
	}
	return m.startCopy(p, d, path)
}

// dirAt finds a folder by its absolute path.
func (m *Manager) dirAt(path string) (*commitlog.Dir, error) {
	for _, d := range m.cfg.Dirs {
		if d.Path() == filepath.Clean(path) {
			return d, nil
		}
	}
	for _, o := range m.cfg.Offline {
		if o.Path == filepath.Clean(path) {
			return nil, fmt.Errorf("%s is offline: %w", path, kerr.KafkaStorageError)
		}
	}
	return nil, fmt.Errorf("%q is not one of log.dirs: %w", path, kerr.LogDirNotFound)
}

func (m *Manager) notHere(tp TopicPartition) error {
	err := m.absent(tp)
	if errors.Is(err, kerr.NotLeaderForPartition) {
		return kerr.ReplicaNotAvailable
	}
	return err
}

func (m *Manager) startCopy(p *Partition, d *commitlog.Dir, path string) error {
	m.configs.Lock() // so that a change of configuration finds the copy
	log, err := m.createLog(d, path, p.TopicID(), *p.config.Load())
	if err != nil {
		m.configs.Unlock()
		m.failDir(d, err)
		return fmt.Errorf("creating %s: %w (%w)", path, err, kerr.KafkaStorageError)
	}
	f := &future{dir: d, path: path, log: log, matched: true}
	m.mu.Lock()
	failed := m.offIn[d]
	if failed == nil {
		p.state.Lock()
		p.future = f
		p.state.Unlock()
	}
	m.mu.Unlock()
	m.configs.Unlock()
	if failed != nil {
		_ = log.Abandon()
		return fmt.Errorf("%s is offline: %w", d.Path(), kerr.KafkaStorageError)
	}
	m.logger.Info("replica begins to move", "partition", p.tp.String(), "from", p.dir().Path(), "to", d.Path())
	m.movers.add(p)
	return nil
}
