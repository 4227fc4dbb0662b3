package partition

import (
	"log/slog"
	"time"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// TopicPartition is short for the type that the whole data plane shares.
type TopicPartition = protocol.TopicPartition

// TopicConfig is what a topic's effective configuration means here.
type TopicConfig struct {
	// Log is handed to the commit log: segments, indexes, retention.
	Log commitlog.Config
	// MinISR is min.insync.replicas, at least 1.
	MinISR int
	// MinCleanableRatio is min.cleanable.dirty.ratio, 0 to 1: how dirty a compacted log
	// gets before it is cleaned.
	MinCleanableRatio float64
	// LeaderThrottled and FollowerThrottled are leader. and
	// follower.replication.throttled.replicas; see SetReplicationThrottle.
	LeaderThrottled, FollowerThrottled config.Throttled
	// Validate has the topic's produce checks; NowMs, ProduceVersion and
	// Coordinator are set per append.
	Validate recordbatch.ValidateOptions
}

// Config is the Manager's world. Times of zero take the default named.
type Config struct {
	BrokerID int32
	// BrokerEpoch is the czxid of this broker's registration, -1 if unknown.
	BrokerEpoch func() int64

	FS vfs.FS
	// Dirs are the opened log.dirs; the Manager does not close them.
	Dirs []*commitlog.Dir
	// Offline are those of log.dirs that could not be opened.
	Offline []OfflineDir

	// Topic gives the effective configuration of a topic. It is called when a
	// log is opened and by UpdateTopicConfig, not per request.
	Topic func(topic string) TopicConfig
	// PrefetchTopics, if not nil, is told at the start for which topics Topic is about
	// to be called, so that it can read many at once.
	PrefetchTopics func(topics []string)
	// Known reports whether the cluster's metadata has the partition; it decides
	// between NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION. Nil: never.
	Known func(tp TopicPartition) bool
	// TopicID is the id that the cluster has for a topic, zero if it has none. It is
	// asked at start for replicas that lie in two folders under different ids. Nil: never.
	TopicID func(topic string) protocol.UUID
	// Alive reports whether the cluster's metadata has the broker alive; only such
	// a replica may join the ISR. Nil: always.
	Alive func(broker int32) bool

	// PromptWatermark tells followers of a new high watermark at once, instead of with their
	// next data or the end of their long poll: for consumers who read from them.
	PromptWatermark bool

	ISR      ISRChanger
	Fetchers FetcherManager

	// Wheel carries the timeouts; the Manager does not close it.
	Wheel *purgatory.Wheel

	Hooks Hooks

	// ReplicaLagTimeMax is replica.lag.time.max.ms, default 30 s.
	ReplicaLagTimeMax time.Duration
	// HighWatermarkCheckpoint is replica.high.watermark.checkpoint.interval.ms, default 5 s.
	HighWatermarkCheckpoint time.Duration
	// RecoveryCheckpoint is log.flush.offset.checkpoint.interval.ms, default 60 s.
	RecoveryCheckpoint time.Duration
	// LogStartCheckpoint is log.flush.start.offset.checkpoint.interval.ms, default 60 s.
	LogStartCheckpoint time.Duration
	// FlushCheck is log.flush.scheduler.interval.ms: how often logs are looked at for
	// flush.ms, at least each second.
	FlushCheck time.Duration
	// RetentionCheck is log.retention.check.interval.ms, default 5 min.
	RetentionCheck time.Duration
	// ProducerCheck is producer.id.expiration.check.interval.ms, default 10 min.
	ProducerCheck time.Duration
	// DeleteDelay is file.delete.delay.ms for the folders of deleted partitions, default 60 s.
	DeleteDelay time.Duration
	// RecoveryThreads is num.recovery.threads.per.data.dir, default 1.
	RecoveryThreads int

	// MoveThreads is num.replica.alter.log.dirs.threads, default one a folder.
	MoveThreads int
	// MoveRate is replica.alter.log.dirs.io.max.bytes.per.second, all moves of a
	// replica to another folder together; 0 or less: no limit.
	MoveRate int64

	// Cleaner has the settings of compaction.
	Cleaner CleanerConfig

	// Background is commitlog.OpenOptions.Background of every log.
	Background func(func())
	// Now is the wall clock, default time.Now.
	Now func() time.Time
	// Logger defaults to none.
	Logger *slog.Logger
}

// Hooks are called synchronously and must be quick; nil ones are skipped.
type Hooks struct {
	// OnLeadership is called after a change of role, once per controller order and
	// partition, with no lock held but the one that orders controller requests.
	// leader is false when the replica became a follower or was stopped.
	OnLeadership func(tp TopicPartition, leader bool, epoch int32)
	// OnAppend is called before a leader writes a batch, in offset order per
	// partition. A batch that is then not written, as a duplicate or for an error,
	// is taken back by OnTruncate with its base offset.
	OnAppend func(AppendEvent)
	// OnTruncate says that all at and above offset is gone. A restart of an
	// unclean log is reported the same way: with its end.
	OnTruncate func(tp TopicPartition, offset int64)
	// OnCommit says that all below the high watermark is committed. Calls for one
	// partition may come out of order: the largest counts, until an OnTruncate.
	OnCommit func(tp TopicPartition, highWatermark int64)
	// OnDelete says that this broker has no replica of tp any more.
	OnDelete func(tp TopicPartition)
	// OnDirFailure says that a log folder cannot be used any more; last, that none can.
	OnDirFailure func(dir string, last bool, err error)
}

// AppendEvent describes one batch that a leader is about to write.
type AppendEvent struct {
	TP          TopicPartition
	Principal   string
	BaseOffset  int64
	LastOffset  int64
	LeaderEpoch int32
	Bytes       int // as stored
	Records     int32
	Internal    bool
}

// ISRChange is a leader's wish for another in-sync set.
type ISRChange struct {
	TP             TopicPartition
	TopicID        protocol.UUID
	LeaderEpoch    int32
	PartitionEpoch int32
	ISR            []int32
	// Epochs are the broker epochs of the members of ISR, of the lives in which they were
	// judged; -1 where one is not known.
	Epochs []int64
	// Done is called once, with the state as the controller has it or its error.
	Done func(ISRResult, error)
}

// ISRResult is the controller's answer for one partition.
type ISRResult struct {
	Leader         int32
	LeaderEpoch    int32
	ISR            []int32
	PartitionEpoch int32
}

// ISRChanger brings in-sync sets to the controller (AlterPartition). Submit
// does not block and may be called with the same partition again only after
// Done; Done may be called from any goroutine, but not from within Submit.
type ISRChanger interface {
	Submit(ISRChange)
}

// FetchTarget says from whom a follower is to copy.
type FetchTarget struct {
	Partition   *Partition
	Leader      int32
	LeaderEpoch int32
	// Addr is host:port as the controller named it, or empty.
	Addr string
}

// FetcherManager runs the followers' copying. Neither call blocks on the
// network. After Remove a late append of the removed fetcher is refused by the
// partition's epoch.
type FetcherManager interface {
	// Set starts or moves the copying of the partitions.
	Set(targets []FetchTarget)
	// Remove ends it.
	Remove(tps []TopicPartition)
}

// AppendRequest is a produce request, or a coordinator's append.
type AppendRequest struct {
	// Acks is 0, 1 or -1.
	Acks int16
	// Timeout bounds the wait for acks=-1.
	Timeout time.Duration
	Entries []AppendEntry
	// Principal and ProduceVersion are the client's; empty and 0 for internal.
	Principal      string
	ProduceVersion int16
	// Results is memory for the answers, if there is enough of it; may be nil.
	Results []AppendResult
}

// AppendEntry is one batch for one partition. Records is stamped in place, and
// not used any more when Append returns, even if done is still to be called.
type AppendEntry struct {
	TP      TopicPartition
	TopicID protocol.UUID // zero: not checked
	Records []byte
	// Internal allows control batches and internal topics.
	Internal bool
	// TransactionVersion is, of a marker, the version of its transaction: 2 and later
	// bump the producer's epoch with each (KIP-890). 0 stands for both before.
	TransactionVersion int8
	// Refused answers the entry instead of an append, if the caller has found a reason.
	Refused error
}

// AppendResult answers one entry.
type AppendResult struct {
	TP  TopicPartition
	Err error
	// BaseOffset is -1 with an error; of a duplicate it is the first write's.
	BaseOffset     int64
	LastOffset     int64
	LogAppendTime  int64 // ms since 1970; -1 unless the topic stamps it
	LogStartOffset int64
	// Leader and LeaderEpoch hint at the current leader with NOT_LEADER_OR_FOLLOWER
	// where it is known; else -1.
	Leader      int32
	LeaderEpoch int32
	Duplicate   bool
	Bytes       int // as stored; 0 for a duplicate or error
}

// FetchRequest is a consumer's or a follower's fetch.
type FetchRequest struct {
	// ReplicaID is the follower's broker id, -1 for a consumer, and ReplicaEpoch its broker
	// epoch, -1 if it does not tell (Fetch before v15).
	ReplicaID    int32
	ReplicaEpoch int64
	MaxWait      time.Duration
	MinBytes     int
	MaxBytes     int
	// ReadCommitted bounds a consumer at the last stable offset and has it told which
	// transactions were aborted. It means nothing for a follower.
	ReadCommitted bool
	// AllowFollower lets a consumer read from a follower (Fetch v11+, KIP-392).
	AllowFollower bool
	// Near says whether a broker is in the consumer's rack and within its reach. Nil: the
	// leader serves all who ask it.
	Near  func(broker int32) bool
	Parts []FetchPart
	// Results is memory for the answers, if there is enough of it; may be nil.
	Results []FetchResult
}

// FetchPart asks for one partition.
type FetchPart struct {
	TP                 TopicPartition
	TopicID            protocol.UUID // zero: not checked
	Offset             int64
	LogStartOffset     int64 // the follower's; -1 for consumers
	CurrentLeaderEpoch int32 // -1: not checked
	LastFetchedEpoch   int32 // -1: not checked
	MaxBytes           int
}

// FetchResult answers one FetchPart, at the same index. Whoever gets it closes
// the slice.
type FetchResult struct {
	TP               TopicPartition
	Err              error
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	// DivergingEpoch and its end offset; -1, -1 if none.
	DivergingEpoch     int32
	DivergingEndOffset int64
	// Leader and LeaderEpoch as in AppendResult.
	Leader      int32
	LeaderEpoch int32
	// Preferred is the replica to read from instead of this leader, which then gives no
	// records; -1 if none.
	Preferred int32
	// Aborted lists the aborted transactions with records in Slice, for ReadCommitted.
	Aborted []commitlog.AbortedTransaction
	// Slice has a Len of 0 when there is no data.
	Slice commitlog.Slice
}

// Timestamps of ListOffsets with a meaning of their own.
const (
	LatestTimestamp   = -1
	EarliestTimestamp = -2
	MaxTimestamp      = -3
	EarliestLocal     = -4
	LatestTiered      = -5
)

// OffsetResult answers ListOffsets; offset, timestamp and epoch are -1 if
// nothing matches.
type OffsetResult struct {
	Offset      int64
	Timestamp   int64
	LeaderEpoch int32
}
