package commitlog

import (
	"time"

	"penstock/dataplane/protocol"
	"penstock/dataplane/vfs"
)

// Names of the checkpoint files in a log dir.
const (
	RecoveryPointCheckpoint = "recovery-point-offset-checkpoint"
	HighWatermarkCheckpoint = "replication-offset-checkpoint"
	LogStartCheckpoint      = "log-start-offset-checkpoint"
)

// MetaProperties is the file meta.properties of a log dir (version 0).
type MetaProperties struct {
	ClusterID string
	BrokerID  int32             // -1 if absent
	Other     map[string]string // keys we do not know, kept
}

// Dir is one folder of log.dirs.
type Dir struct{}

// OpenDir makes the folder if missing, takes its lock file, reads and removes the
// clean shutdown marker, and forgets half-written temporary files.
func OpenDir(fs vfs.FS, path string) (*Dir, error) { panic("unfinished") }

// Path is the folder.
func (d *Dir) Path() string { panic("unfinished") }

// CleanShutdown tells that the last owner closed everything in order.
func (d *Dir) CleanShutdown() bool { panic("unfinished") }

// Meta reads meta.properties; ok is false if there is none yet.
func (d *Dir) Meta() (m MetaProperties, ok bool, err error) { panic("unfinished") }

// WriteMeta writes meta.properties durably.
func (d *Dir) WriteMeta(m MetaProperties) error { panic("unfinished") }

// Partitions lists the partitions that have a folder here.
func (d *Dir) Partitions() ([]protocol.TopicPartition, error) { panic("unfinished") }

// PartitionPath is the folder of a partition.
func (d *Dir) PartitionPath(tp protocol.TopicPartition) string { panic("unfinished") }

// ReadCheckpoint reads one of the checkpoint files; a missing one is empty.
func (d *Dir) ReadCheckpoint(name string) (map[protocol.TopicPartition]int64, error) {
	panic("unfinished")
}

// WriteCheckpoint replaces a checkpoint file durably.
func (d *Dir) WriteCheckpoint(name string, offsets map[protocol.TopicPartition]int64) error {
	panic("unfinished")
}

// MarkDeleted renames a partition's folder to its -delete name, to be removed by
// SweepDeleted. The partition's Log must be closed.
func (d *Dir) MarkDeleted(tp protocol.TopicPartition) error { panic("unfinished") }

// SweepDeleted removes the -delete folders that were marked at least delay ago
// (those of an earlier life at once) and tells how many are left.
func (d *Dir) SweepDeleted(now time.Time, delay time.Duration) (left int, err error) {
	panic("unfinished")
}

// Close releases the lock; with clean it writes the clean shutdown marker first.
func (d *Dir) Close(clean bool) error { panic("unfinished") }

// ReadTopicID reads partition.metadata in a partition's folder; ok is false if there is none.
func ReadTopicID(fs vfs.FS, partitionDir string) (id protocol.UUID, ok bool, err error) {
	panic("unfinished")
}

// WriteTopicID writes partition.metadata durably; it must precede any data.
func WriteTopicID(fs vfs.FS, partitionDir string, id protocol.UUID) error { panic("unfinished") }
