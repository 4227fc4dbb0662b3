// Package commitlog is one partition's log on disk in the format of Apache Kafka
// 3.9: segments with offset and time index, producer snapshots, leader epochs;
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
// Lock order: Log.mu, then segment.mu. The epoch cache and the producer state
// have locks of their own that are leaves; nothing is called under them.
package commitlog
