package partition

import (
	"errors"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// damagedReplica is one whose folder is there and cannot be opened. It is offline,
// alone: the controller is told KAFKA_STORAGE_ERROR and lets others lead. It stays as
// it is, with what the checkpoints say of it, until somebody has mended or removed its
// folder and started the broker anew, or until it is deleted.
type damagedReplica struct {
	dir                 *commitlog.Dir
	err                 error
	hw, recovery, start int64
}

// structural tells damage of one log from a failing disk, by the error of opening it:
// bytes that are wrong, files that are gone, a folder in the place of a file, rights
// that were taken away. A disk that fails to read or write, is full or has become
// read-only, takes its whole folder along.
func structural(err error) bool {
	for _, e := range []error{syscall.EISDIR, syscall.ENOTDIR, syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.ELOOP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return !errors.Is(err, kerr.KafkaStorageError)
}

func (l *loading) damage(d *commitlog.Dir, tp TopicPartition, err error) {
	l.m.logger.Error("replica is damaged; it is offline until its folder is mended or it is deleted", "partition", tp.String(),
		"path", d.PartitionPath(tp), "err", err)
	at := l.points[d]
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.damaged[tp] = damagedReplica{d, err, at.hw[tp], at.recovery[tp], at.start[tp]}
}

func (m *Manager) damagedAt(tp TopicPartition) (damagedReplica, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r, ok := m.damaged[tp]
	return r, ok
}

// keepDamaged adds what a folder's checkpoints said of its damaged replicas, and
// tells whether it has any.
func (m *Manager) keepDamaged(d *commitlog.Dir, offsets map[TopicPartition]int64, of func(damagedReplica) int64) (any bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for tp, r := range m.damaged {
		if r.dir == d {
			any = true
			if _, ok := offsets[tp]; !ok && offsets != nil {
				offsets[tp] = of(r)
			}
		}
	}
	return any
}

func (m *Manager) hasDamaged(d *commitlog.Dir) bool { return m.keepDamaged(d, nil, nil) }

// dropDamaged renames the folder of a damaged replica away. With ctl held.
func (m *Manager) dropDamaged(tp TopicPartition, r damagedReplica) error {
	if err := r.dir.MarkDeleted(tp); err != nil {
		m.failDir(r.dir, err)
		return kerr.KafkaStorageError
	}
	m.mu.Lock()
	delete(m.damaged, tp)
	m.mu.Unlock()
	return nil
}
