package config

import "github.com/twmb/franz-go/pkg/kmsg"

const (
	tBool     = kmsg.ConfigTypeBoolean
	tString   = kmsg.ConfigTypeString
	tInt      = kmsg.ConfigTypeInt
	tShort    = kmsg.ConfigTypeShort
	tLong     = kmsg.ConfigTypeLong
	tDouble   = kmsg.ConfigTypeDouble
	tList     = kmsg.ConfigTypeList
	tPassword = kmsg.ConfigTypePassword
)

const (
	maxLong = "9223372036854775807"
	hour    = "3600000"
	day     = "86400000"
	week    = "604800000"
)

var codecs = oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

// topicKeys are all keys that Kafka takes as topic overrides. Those without
// effect here are taken too, since tools set them blindly; their doc says so.
var topicKeys = []key{
	{name: "cleanup.policy", typ: tList, def: "delete", check: listOf("delete", "compact"), syn: []string{"log.cleanup.policy"}, doc: "What becomes of old segments: delete them, compact them by key, or both."},
	{name: "compression.gzip.level", typ: tInt, def: "-1", check: or("-1 or between 1 and 9", between(-1, -1), between(1, 9)), syn: []string{"compression.gzip.level"}, doc: "Level of gzip where the broker compresses itself; -1 is the codec's default."},
	{name: "compression.lz4.level", typ: tInt, def: "9", check: between(1, 17), syn: []string{"compression.lz4.level"}, doc: "Level of lz4 where the broker compresses itself."},
	{name: "compression.type", typ: tString, def: "producer", check: codecs, syn: []string{"compression.type"}, doc: "Codec of stored batches; producer keeps the one that they came with."},
	{name: "compression.zstd.level", typ: tInt, def: "3", check: between(-131072, 22), syn: []string{"compression.zstd.level"}, doc: "Level of zstd where the broker compresses itself."},
	{name: "delete.retention.ms", typ: tLong, def: day, check: atLeast(0), syn: []string{"log.cleaner.delete.retention.ms"}, doc: "How long a compacted topic keeps tombstones, in ms."},
	{name: "file.delete.delay.ms", typ: tLong, def: "60000", check: atLeast(0), syn: []string{"log.segment.delete.delay.ms"}, doc: "Time between marking a file as deleted and removing it, in ms."},
	{name: "flush.messages", typ: tLong, def: maxLong, check: atLeast(1), syn: []string{"log.flush.interval.messages"}, doc: "Records after which the log is synced to disk."},
	{name: "flush.ms", typ: tLong, def: maxLong, check: atLeast(0), syn: []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}, doc: "Time after which the log is synced to disk, in ms."},
	{name: "follower.replication.throttled.replicas", typ: tList, def: "", check: throttledReplicas, doc: "Replicas that follow within follower.replication.throttled.rate of their broker while they lag: *, or partition:broker each."},
	{name: "index.interval.bytes", typ: tInt, def: "4096", check: atLeast(0), syn: []string{"log.index.interval.bytes"}, doc: "Log bytes between two entries of the offset index."},
	{name: "leader.replication.throttled.replicas", typ: tList, def: "", check: throttledReplicas, doc: "Replicas that send within leader.replication.throttled.rate of their broker to followers out of sync: *, or partition:broker each."},
	{name: "local.retention.bytes", typ: tLong, def: "-2", check: atLeast(-2), syn: []string{"log.local.retention.bytes"}, doc: "Local size of a tiered topic; accepted, without effect here."},
	{name: "local.retention.ms", typ: tLong, def: "-2", check: atLeast(-2), syn: []string{"log.local.retention.ms"}, doc: "Local time of a tiered topic; accepted, without effect here."},
	{name: "max.compaction.lag.ms", typ: tLong, def: maxLong, check: atLeast(1), syn: []string{"log.cleaner.max.compaction.lag.ms"}, doc: "Longest time that a record stays out of reach of compaction, in ms."},
	{name: "max.message.bytes", typ: tInt, def: "1048588", check: atLeast(0), syn: []string{"message.max.bytes"}, doc: "Largest record batch taken, in bytes."},
	{name: "message.downconversion.enable", typ: tBool, def: "true", syn: []string{"log.message.downconversion.enable"}, doc: "Accepted, without effect: only format v2 is served."},
	{name: "message.format.version", typ: tString, def: "3.0-IV1", syn: []string{"log.message.format.version"}, doc: "Accepted, without effect: records are always stored in format v2."},
	{name: "message.timestamp.after.max.ms", typ: tLong, def: hour, check: atLeast(0), syn: []string{"log.message.timestamp.after.max.ms"}, doc: "How far a record's time may lie in the future, in ms."},
	{name: "message.timestamp.before.max.ms", typ: tLong, def: maxLong, check: atLeast(0), syn: []string{"log.message.timestamp.before.max.ms"}, doc: "How far a record's time may lie in the past, in ms."},
	{name: "message.timestamp.difference.max.ms", typ: tLong, def: maxLong, check: atLeast(0), syn: []string{"log.message.timestamp.difference.max.ms"}, doc: "Older form that bounds past and future alike, in ms; the two newer keys win where set."},
	{name: "message.timestamp.type", typ: tString, def: "CreateTime", check: oneOf("CreateTime", "LogAppendTime"), syn: []string{"log.message.timestamp.type"}, doc: "Whether records keep the producer's time or get the broker's."},
	{name: "min.cleanable.dirty.ratio", typ: tDouble, def: "0.5", check: ratio, syn: []string{"log.cleaner.min.cleanable.ratio"}, doc: "Share of a log that must be dirty before it is compacted."},
	{name: "min.compaction.lag.ms", typ: tLong, def: "0", check: atLeast(0), syn: []string{"log.cleaner.min.compaction.lag.ms"}, doc: "Least time that a record stays as it is before compaction, in ms."},
	{name: "min.insync.replicas", typ: tInt, def: "1", check: atLeast(1), syn: []string{"min.insync.replicas"}, doc: "Replicas that must be in sync for acks=all to be taken."},
	{name: "preallocate", typ: tBool, def: "false", syn: []string{"log.preallocate"}, doc: "Whether a new segment's file gets its disk space at once."},
	{name: "remote.log.copy.disable", typ: tBool, def: "false", doc: "Tiered storage; accepted, without effect here."},
	{name: "remote.log.delete.on.disable", typ: tBool, def: "false", doc: "Tiered storage; accepted, without effect here."},
	{name: "remote.storage.enable", typ: tBool, def: "false", check: oneOf("false", "FALSE", "False"), doc: "Tiered storage; only false is taken here."},
	{name: "retention.bytes", typ: tLong, def: "-1", syn: []string{"log.retention.bytes"}, doc: "Size up to which a partition is kept, in bytes; -1 is no limit."},
	{name: "retention.ms", typ: tLong, def: week, check: atLeast(-1), syn: []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}, doc: "Time for which records are kept, in ms; -1 is for ever."},
	{name: "segment.bytes", typ: tInt, def: "1073741824", check: atLeast(14), syn: []string{"log.segment.bytes"}, doc: "Size at which a segment is closed, in bytes."},
	{name: "segment.index.bytes", typ: tInt, def: "10485760", check: atLeast(4), syn: []string{"log.index.size.max.bytes"}, doc: "Largest size of a segment's index, in bytes."},
	{name: "segment.jitter.ms", typ: tLong, def: "0", check: atLeast(0), syn: []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}, doc: "Random time taken off segment.ms, so that segments do not roll all at once, in ms."},
	{name: "segment.ms", typ: tLong, def: week, check: atLeast(1), syn: []string{"log.roll.ms", "log.roll.hours"}, doc: "Age at which a segment is closed, in ms."},
	{name: "unclean.leader.election.enable", typ: tBool, def: "false", syn: []string{"unclean.leader.election.enable"}, doc: "Whether a replica out of sync may lead when no other lives, at the price of lost records."},
}

var topicIndex = index(topicKeys)
