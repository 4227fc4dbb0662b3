package commitlog

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"penstock/dataplane/vfs"
	"penstock/dataplane/vfs/crashtest"
)

// TestPowerCutsFindPlantedFaults shows that the runs bite: each classical fault,
// planted between a right log and the disk, is found.
func TestPowerCutsFindPlantedFaults(t *testing.T) {
	has := func(name string, suffixes ...string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(name, s) {
				return true
			}
		}
		return false
	}
	for name, skip := range map[string]func(op vfs.Op, name string) bool{
		"names are never synced": func(op vfs.Op, _ string) bool { return op == vfs.OpSyncDir },
		"the recovery point is ahead of the sync": func(op vfs.Op, name string) bool {
			return op == vfs.OpSync && has(name, logSuffix)
		},
		"an index is not cut with its log": func(op vfs.Op, name string) bool {
			return op == vfs.OpTruncate && has(name, indexSuffix, timeSuffix)
		},
		"indexes are not synced": func(op vfs.Op, name string) bool {
			return op == vfs.OpSync && has(name, indexSuffix, timeSuffix)
		},
		"a torn tail is not cut": func(op vfs.Op, name string) bool {
			return op == vfs.OpTruncate && has(name, logSuffix)
		},
		"deleted segments stay under their names": func(op vfs.Op, name string) bool {
			return op == vfs.OpRename && has(name, logSuffix)
		},
		"producers' batches are not synced": func(op vfs.Op, name string) bool {
			return op == vfs.OpSync && has(name, batchesSuffix)
		},
		"bad snapshots are not removed": func(op vfs.Op, name string) bool {
			return op == vfs.OpRemove && has(name, snapshotSuffix)
		},
	} {
		t.Run(name, func(t *testing.T) {
			crashtest.Finds(t, 3000, func(t *crashtest.T) {
				crashRun(t, func(m *vfs.Mem) vfs.FS { return crashtest.Lying(m, skip) })
			})
		})
	}
	t.Run("leader epochs are written after the data", func(t *testing.T) {
		crashtest.Finds(t, 3000, func(t *crashtest.T) {
			crashRun(t, func(m *vfs.Mem) vfs.FS { return &lateEpochs{FS: m} })
		})
	})
}

// lateEpochs replaces the epoch file only after some further syncs of folders.
type lateEpochs struct {
	vfs.FS
	mu      sync.Mutex
	waiting string
	syncs   int
}

func (l *lateEpochs) Rename(o, n string) error {
	if filepath.Base(n) != epochsFile {
		return l.FS.Rename(o, n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting, l.syncs = n, 0
	return nil
}

func (l *lateEpochs) SyncDir(n string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.syncs++; l.waiting != "" && l.syncs > 4 {
		if err := l.FS.Rename(l.waiting+".tmp", l.waiting); err != nil {
			return err
		}
		l.waiting = ""
	}
	return l.FS.SyncDir(n)
}
