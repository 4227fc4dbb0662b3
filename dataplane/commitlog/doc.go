// Package commitlog is one partition's log on disk in the format of Apache Kafka
// 3.9: segments with offset, time and transaction index, producer snapshots, leader epochs;
// and the folder of log.dirs that holds many such logs. It knows no roles: who may
// append what is the partition's business.
//
// # Concurrency
//
// Appends, truncations, rolls, retention and Close are serialized by Log.mu (the
// caller's partition lock does so too; Log.mu makes it safe by itself). Read and
// the lookups run beside them without Log.mu: they load the immutable segment list
// and the end offset atomically and pin each segment's file. Files are opened when
// they are used, and closed again when other logs of the process need the place
// (LimitOpenFiles), but never while they are pinned.
//
// Lock order: Log.cleanMu (held over a clean), Log.shape (closed segments are removed or
// replaced; held over a sync of the folder), Log.flushMu (one flush at a time, not held by appends), Log.mu,
// segment.mu, fileRef.mu, openFiles.mu; under that one fileRef.mu is only tried. The
// locks of the epoch cache and of what is undecided are leaves. No lock that a
// reader needs is held over an fsync, but for truncations.
//
// # What survives what
//
// After kill -9 the page cache still has all that was written: the next start scans
// from the recovery point and finds everything. After a power cut everything below
// the recovery point is there; above it the log ends at the first batch that is not
// whole. The caller keeps the recovery point in its checkpoint file: now and then, and
// before a truncation (LowerRecoveryPoint). What is damaged below it, or after a clean
// shutdown, is not cut: Open fails then, with an error other than KAFKA_STORAGE_ERROR.
//
// # Compaction
//
// Clean keeps of each key the newest record and puts new segments in the place of
// the old ones, beside readers and appends. When, how fast and up to where is the
// caller's choice (Cleanable, CleanOptions). A crash at any moment leaves the log before
// or after it, segment by segment; the next Open finishes or undoes what was begun.
package commitlog
