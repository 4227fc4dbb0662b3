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
// and the end offset atomically and pin each segment's file by reference count.
//
// Lock order: Log.flushMu (one flush at a time, not held by appends), Log.mu,
// segment.mu, index.openMu. The locks of the epoch cache and of what is undecided
// are leaves. No lock that a
// reader needs is held over an fsync, but for truncations.
//
// # What survives what
//
// After kill -9 the page cache still has all that was written: the next start scans
// from the recovery point and finds everything. After a power cut everything below
// the recovery point is there; above it the log ends at the first batch that is not
// whole. The caller keeps the recovery point in its checkpoint file: now and then,
// and at once after a truncation.
//
// # Not here yet
//
// Compaction. Segments that a compaction of Apache Kafka left half swapped (.swap)
// are refused.
package commitlog
