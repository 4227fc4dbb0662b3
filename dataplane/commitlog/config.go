package commitlog

import (
	"context"
	"log/slog"
	"math"
	"time"
)

// Config is what the log needs of a topic's settings. Zero fields mean Kafka's
// default unless said otherwise.
type Config struct {
	SegmentBytes       int32         // segment.bytes; 0 = 1 GiB
	SegmentAge         time.Duration // segment.ms; 0 = 7 days
	SegmentJitter      time.Duration // segment.jitter.ms; 0 = none
	SegmentIndexBytes  int32         // segment.index.bytes, the largest index file; 0 = 10 MiB
	IndexIntervalBytes int32         // index.interval.bytes; 0 = 4096, negative = every batch
	RetentionAge       time.Duration // retention.ms; 0 = 7 days, negative = for ever
	RetentionBytes     int64         // retention.bytes; 0 or negative = no limit
	// KeepForever: cleanup.policy does not contain delete, so age and size delete nothing.
	KeepForever bool
	// Compact: cleanup.policy contains compact. The log does not clean itself: Clean does.
	Compact bool
	// DeleteRetention is delete.retention.ms: how long a clean keeps tombstones and
	// markers from when it first meets them; 0 = not at all.
	DeleteRetention time.Duration
	// MinCompactionLag is min.compaction.lag.ms; 0 = none.
	MinCompactionLag time.Duration
	// MaxCompactionLag is max.compaction.lag.ms; 0 = no limit.
	MaxCompactionLag time.Duration
	// FlushMessages is flush.messages: fsync when so many records are unflushed; 0 = never by count.
	FlushMessages int64
	// FlushAge is flush.ms: FlushIfDue syncs what has been unflushed for so long; 0 = never by time.
	FlushAge time.Duration
	// Preallocate is preallocate: the file of a new segment gets its disk space at once.
	Preallocate bool
	// DeleteDelay is file.delete.delay.ms: how long .deleted files stay; 0 = 60 s, negative = none.
	DeleteDelay time.Duration
	// ProducerExpiry is producer.id.expiration.ms; 0 = 24 h.
	ProducerExpiry time.Duration
	// VerifyTransactions is transaction.partition.verification.enable: a leader appends no batch
	// that begins a transaction unless its coordinator has been asked; see BeginVerification.
	VerifyTransactions bool
}

func (c Config) withDefaults() Config {
	def := func(p *time.Duration, d time.Duration) {
		if *p == 0 {
			*p = d
		}
	}
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = 1 << 30
	}
	if c.SegmentIndexBytes <= 0 {
		c.SegmentIndexBytes = 10 << 20
	}
	if c.IndexIntervalBytes == 0 {
		c.IndexIntervalBytes = 4096
	}
	if c.RetentionBytes <= 0 {
		c.RetentionBytes = -1
	}
	if c.FlushMessages <= 0 {
		c.FlushMessages = math.MaxInt64
	}
	def(&c.FlushAge, math.MaxInt64)
	def(&c.SegmentAge, 7*24*time.Hour)
	def(&c.RetentionAge, 7*24*time.Hour)
	def(&c.DeleteDelay, time.Minute)
	def(&c.ProducerExpiry, 24*time.Hour)
	return c
}

// OpenOptions are what the log dir knows about a log before it is opened.
type OpenOptions struct {
	// CleanShutdown: the dir's marker was there, so nothing is scanned.
	CleanShutdown bool
	// RecoveryPoint is the checkpointed offset below which all is on disk.
	RecoveryPoint int64
	// CleanedUpTo is where the last clean ended by the cleaner's checkpoint. Below it
	// there may be holes between segments.
	CleanedUpTo int64
	// LogStartOffset is the checkpointed start; the log's own start may be higher.
	LogStartOffset int64
	Now            func() time.Time // nil = time.Now
	Logger         *slog.Logger     // nil = discard
	// Context ends a recovery early, with its error: to the next start that is a crash.
	// Nil: it runs to its end.
	Context context.Context
	// Background runs work that no caller waits for, the flush after a roll: nil = a
	// goroutine, which Close waits for. Tests choose the moment, but not at once: a lock
	// is held.
	Background func(func())
	// OnFailure is told that the log refuses all changes from now on, also when nobody
	// waits for what failed, as a flush in the background. It must neither block nor
	// call the log.
	OnFailure func(error)
}
