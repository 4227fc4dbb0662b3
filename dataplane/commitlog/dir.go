package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"penstock/dataplane/protocol"
	"penstock/dataplane/vfs"
)

// Names of the checkpoint files in a log dir.
const (
	RecoveryPointCheckpoint = "recovery-point-offset-checkpoint"
	HighWatermarkCheckpoint = "replication-offset-checkpoint"
	LogStartCheckpoint      = "log-start-offset-checkpoint"
	CleanerCheckpoint       = "cleaner-offset-checkpoint"
)

const (
	lockFile          = ".lock"
	cleanShutdownFile = ".kafka_cleanshutdown"
	metaFile          = "meta.properties"
)

// Dir is one folder of log.dirs. Its methods may be called concurrently.
type Dir struct {
	fs    vfs.FS
	path  string
	clean bool
	lock  io.Closer

	mu     sync.Mutex           // also keeps two writers of one checkpoint apart
	marked map[string]time.Time // -delete folders of this life, by path
	back   bool                 // the marker that was found is to be put back
	closed bool
}

// OpenDir makes the folder if missing, takes its lock file, reads the clean shutdown
// marker, and removes half-written temporary files. The marker stays until Claim: what
// ends a start before that has changed nothing.
func OpenDir(fsys vfs.FS, path string) (*Dir, error) {
	if err := vfs.MkdirAllDurable(fsys, path); err != nil {
		return nil, storageErr("mkdir", path, err)
	}
	lock, err := fsys.Lock(filepath.Join(path, lockFile))
	if err != nil {
		return nil, err
	}
	d := &Dir{fs: fsys, path: path, lock: lock, marked: map[string]time.Time{}}
	if err := d.prepare(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

func (d *Dir) prepare() error {
	es, err := d.fs.ReadDir(d.path)
	if err != nil {
		return storageErr("list", d.path, err)
	}
	for _, e := range es {
		if e.Name == cleanShutdownFile {
			d.clean = true
		}
		if e.Dir || !strings.HasSuffix(e.Name, ".tmp") {
			continue
		}
		if err := removeIfThere(d.fs, filepath.Join(d.path, e.Name)); err != nil {
			return err
		}
	}
	return nil
}

// Claim removes the clean shutdown marker, before the first log is opened.
func (d *Dir) Claim() error {
	if !d.clean {
		return nil
	}
	if err := removeIfThere(d.fs, filepath.Join(d.path, cleanShutdownFile)); err != nil {
		return err
	}
	// The marker must not come back when this life ends in a power cut.
	return storageErr("sync", d.path, d.fs.SyncDir(d.path))
}

// GiveBack says that since Claim nothing has come to a log, and that those which were
// opened have been closed without error: Close puts a marker back that Claim has removed.
func (d *Dir) GiveBack() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.back = d.clean
}

// Path is the folder.
func (d *Dir) Path() string { return d.path }

// Sync makes the names of new partition folders survive a power cut.
func (d *Dir) Sync() error { return storageErr("sync", d.path, d.fs.SyncDir(d.path)) }

// CleanShutdown tells that the last owner closed everything in order.
func (d *Dir) CleanShutdown() bool { return d.clean }

// ReadCheckpoint reads one of the checkpoint files; a missing one is empty.
func (d *Dir) ReadCheckpoint(name string) (map[protocol.TopicPartition]int64, error) {
	path := filepath.Join(d.path, name)
	b, err := vfs.ReadFile(d.fs, path, maxCheckpointSize)
	if errors.Is(err, fs.ErrNotExist) {
		return map[protocol.TopicPartition]int64{}, nil
	}
	if err != nil {
		return nil, storageErr("read", path, err)
	}
	m, err := parseOffsets(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// WriteCheckpoint replaces a checkpoint file durably.
func (d *Dir) WriteCheckpoint(name string, offsets map[protocol.TopicPartition]int64) error {
	lines := make([]string, 0, len(offsets))
	for tp, o := range offsets {
		lines = append(lines, fmt.Sprintf("%s %d %d", tp.Topic, tp.Partition, o))
	}
	sort.Strings(lines)
	return d.write(name, formatCheckpoint(lines))
}

func (d *Dir) write(name string, b []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	path := filepath.Join(d.path, name)
	return storageErr("write", path, vfs.WriteFileAtomic(d.fs, path, b))
}

// MarkDeleted renames a partition's folder to its -delete name, to be removed by
// SweepDeleted. The partition's Log must be closed. A missing folder is no error.
func (d *Dir) MarkDeleted(tp protocol.TopicPartition) error {
	return d.MarkFolderDeleted(Folder{tp, d.PartitionPath(tp)})
}

// MarkFolderDeleted is MarkDeleted for any folder of the Dir.
func (d *Dir) MarkFolderDeleted(f Folder) error {
	to, err := d.renameAway(f, deleteDirSuffix)
	if to != "" {
		d.mu.Lock()
		d.marked[to] = time.Now()
		d.mu.Unlock()
	}
	return err
}

// SetAside renames a folder that belongs to no replica to its -stray name, under
// which it stays until an operator looks at it, and gives the new path.
func (d *Dir) SetAside(f Folder) (string, error) { return d.renameAway(f, strayDirSuffix) }

func (d *Dir) renameAway(f Folder, suffix string) (to string, err error) {
	to = filepath.Join(d.path, cappedName(f.TP, suffix))
	if err := d.fs.Rename(f.Path, to); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", storageErr("rename", f.Path, err)
	}
	return to, storageErr("sync", d.path, d.fs.SyncDir(d.path))
}

// Promote renames a future folder, whose Log must be closed, to that of the replica
// itself, durably.
func (d *Dir) Promote(f Folder) error {
	if err := d.fs.Rename(f.Path, d.PartitionPath(f.TP)); err != nil {
		return storageErr("rename", f.Path, err)
	}
	return storageErr("sync", d.path, d.fs.SyncDir(d.path))
}

// Space is the room on the file system that holds the Dir, in bytes: all of it, and
// what the broker can still use; -1 where the file system does not say.
func (d *Dir) Space() (total, usable int64, err error) {
	total, usable, err = vfs.Space(d.fs, d.path)
	return total, usable, storageErr("size of", d.path, err)
}

// SweepDeleted removes the -delete folders that were marked at least delay ago
// (those of an earlier life at once) and tells how many are left.
func (d *Dir) SweepDeleted(now time.Time, delay time.Duration) (left int, err error) {
	es, err := d.fs.ReadDir(d.path)
	if err != nil {
		return 0, storageErr("list", d.path, err)
	}
	for _, e := range es {
		if !e.Dir || !strings.HasSuffix(e.Name, deleteDirSuffix) || !strings.Contains(e.Name, ".") {
			continue
		}
		path := filepath.Join(d.path, e.Name)
		d.mu.Lock()
		at, ours := d.marked[path]
		d.mu.Unlock()
		if ours && now.Sub(at) < delay {
			left++
			continue
		}
		if rerr := d.fs.RemoveAll(path); rerr != nil {
			err = errors.Join(err, storageErr("remove", path, rerr))
			left++
			continue
		}
		d.mu.Lock()
		delete(d.marked, path)
		d.mu.Unlock()
	}
	return left, err
}

// Close releases the lock; with clean it writes the clean shutdown marker first,
// which promises that every log was closed without error and that the checkpoints
// were written.
func (d *Dir) Close(clean bool) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	clean = clean || d.back
	d.mu.Unlock()
	var err error
	if clean {
		err = d.write(cleanShutdownFile, []byte(`{"version":0,"brokerEpoch":-1}`))
	}
	return errors.Join(err, d.lock.Close())
}
