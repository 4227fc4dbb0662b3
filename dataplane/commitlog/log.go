package commitlog

import (
	"time"

	"penstock/dataplane/vfs"
)

// Log is one partition's log.
type Log struct{}

// AppendInfo is what an append did.
type AppendInfo struct {
	FirstOffset    int64 // of the first record; -1 if there was none
	LastOffset     int64
	MaxTimestamp   int64 // ms since 1970
	LogAppendTime  int64 // ms since 1970, -1 for a topic with CreateTime
	LogStartOffset int64
	Records        int  // number of records appended
	Bytes          int  // number of bytes appended
	Duplicate      bool // nothing was appended; the offsets are those of the first time
}

// Open loads the log in dir, making the folder if it is missing.
func Open(fs vfs.FS, dir string, cfg Config, o OpenOptions) (*Log, error) { panic("unfinished") }

// AppendLeader assigns offsets from the end of the log and the leader epoch to
// batches, in place, checks producer sequences and appends with one write. The
// batches must have passed recordbatch.Validate. Errors: OUT_OF_ORDER_SEQUENCE_NUMBER,
// INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE (more than
// segment.bytes), KAFKA_STORAGE_ERROR; then nothing was appended.
func (l *Log) AppendLeader(batches []byte, leaderEpoch int32) (AppendInfo, error) {
	panic("unfinished")
}

// AppendFollower appends batches as a leader sent them. The first batch must not
// begin before the end of the log (ErrOffsetMismatch); a gap is allowed, as
// compaction leaves them. A cut last batch is ignored. Leader epochs are learnt
// from the batches.
func (l *Log) AppendFollower(batches []byte) (AppendInfo, error) { panic("unfinished") }

// Slice is a run of whole batches in one segment file, pinned until Close.
type Slice struct {
	File        vfs.File
	Pos         int64 // byte position of the first batch
	Len         int   // bytes; 0 = nothing (File is nil then)
	FirstOffset int64 // base offset of the first batch; may be below the offset asked for
	LastOffset  int64 // of the last batch; -1 if empty
}

// Close unpins; the slice may not be read after. It may be called again.
func (s *Slice) Close() {}

// ReadInto reads the slice into p, at most Len bytes.
func (s *Slice) ReadInto(p []byte) (int, error) { panic("unfinished") }

// Read finds the batches from the one that holds offset from up to, not including,
// the one that holds upTo (also bounded by the log's end), at most maxBytes. With
// minOneBatch the first batch comes whole even if it is larger. A read ends with
// its segment. OFFSET_OUT_OF_RANGE if from is below the start or above the end.
func (l *Log) Read(from int64, maxBytes int, upTo int64, minOneBatch bool) (Slice, error) {
	panic("unfinished")
}

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() int64 { panic("unfinished") }

// EndOffset is the offset of the next record (LEO).
func (l *Log) EndOffset() int64 { panic("unfinished") }

// RecoveryPoint is the offset below which everything was synced to disk.
func (l *Log) RecoveryPoint() int64 { panic("unfinished") }

// Size is the length of all segments in bytes.
func (l *Log) Size() int64 { panic("unfinished") }

// Dir is the log's folder.
func (l *Log) Dir() string { panic("unfinished") }

// SetConfig replaces the settings; it takes effect from the next append on.
func (l *Log) SetConfig(c Config) {}

// OffsetForTimestamp finds the first record in log order whose timestamp is at
// least ts (ms) and whose offset is below upTo, with its own timestamp and leader epoch.
func (l *Log) OffsetForTimestamp(ts, upTo int64) (offset, timestamp int64, epoch int32, found bool, err error) {
	panic("unfinished")
}

// MaxTimestampOffset finds the first record that has the log's largest timestamp.
func (l *Log) MaxTimestampOffset() (offset, timestamp int64, epoch int32, found bool, err error) {
	panic("unfinished")
}

// LatestEpoch is the newest leader epoch in the log; ok is false for none.
func (l *Log) LatestEpoch() (epoch int32, ok bool) { panic("unfinished") }

// EpochStart is the offset at which an epoch that the log knows begins.
func (l *Log) EpochStart(epoch int32) (start int64, ok bool) { panic("unfinished") }

// EpochAt is the leader epoch of the record at offset; ok is false if unknown.
func (l *Log) EpochAt(offset int64) (epoch int32, ok bool) { panic("unfinished") }

// EndOffsetForEpoch is where the largest known epoch not above epoch ends (KIP-279).
// Undefined is (-1, -1).
func (l *Log) EndOffsetForEpoch(epoch int32) (foundEpoch int32, end int64) { panic("unfinished") }

// AssignEpochStart records that epoch begins at start; a no-op if not news.
func (l *Log) AssignEpochStart(epoch int32, start int64) error { panic("unfinished") }

// TruncateTo drops everything at and above offset; false if there was nothing to drop.
// A batch that holds offset in its middle goes whole. The caller must write the
// recovery-point checkpoint after it, since the recovery point may have moved back.
func (l *Log) TruncateTo(offset int64) (bool, error) { panic("unfinished") }

// TruncateFullyAndStartAt drops everything and starts anew at offset.
func (l *Log) TruncateFullyAndStartAt(offset int64) error { panic("unfinished") }

// IncrementStartOffset moves the start up (DeleteRecords); a lower one is ignored.
// OFFSET_OUT_OF_RANGE above the end. That offset <= high watermark is the caller's check.
func (l *Log) IncrementStartOffset(offset int64) (bool, error) { panic("unfinished") }

// DeleteOldSegments applies retention by start offset, size and time to segments
// that end at or below hw, and tells how many went. Files are renamed to .deleted.
func (l *Log) DeleteOldSegments(now time.Time, hw int64) (int, error) { panic("unfinished") }

// RemoveDeleted removes .deleted files whose delay is over and tells how many are left.
func (l *Log) RemoveDeleted(now time.Time) (left int, err error) { panic("unfinished") }

// ExpireProducers forgets idle idempotent producers.
func (l *Log) ExpireProducers(now time.Time) {}

// Flush syncs everything appended so far and moves the recovery point to the end.
func (l *Log) Flush() error { panic("unfinished") }

// Close flushes, writes the producer snapshot and closes the files. Slices in use
// stay readable.
func (l *Log) Close() error { panic("unfinished") }

// Delete closes without flushing and removes the folder.
func (l *Log) Delete() error { panic("unfinished") }
