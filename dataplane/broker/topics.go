package broker

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"time"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/coordination"
	"penstock/dataplane/partition"
	"penstock/dataplane/recordbatch"
)

// topicConfigs gives the effective configuration of topics: what ZooKeeper has
// of them over what the broker's settings say. Each topic is read once, at
// first use, and again when a change is notified.
type topicConfigs struct {
	ctx    context.Context
	broker func() *config.Broker // as it is now
	zk     *coordination.Client
	log    *slog.Logger

	mu      sync.Mutex
	known   map[string]knownTopic
	changes uint64 // counts the calls of forget and renew
}

type knownTopic struct {
	overrides map[string]string
	effective partition.TopicConfig
}

// get blocks until ZooKeeper has answered: a topic opened with the wrong
// min.insync.replicas or retention could lose what its owner was promised. Only
// the broker's end stops the waiting.
func (t *topicConfigs) get(topic string) partition.TopicConfig {
	for {
		t.mu.Lock()
		known, ok := t.known[topic]
		changes := t.changes
		t.mu.Unlock()
		if ok {
			return known.effective
		}
		overrides, err := t.zk.Config(t.ctx, "topics/"+topic)
		if err == nil {
			if tc := t.parse(topic, overrides); t.put(topic, overrides, tc, changes) {
				return tc
			}
			continue
		}
		t.log.Warn("a topic's configuration cannot be read yet", "topic", topic, "error", err)
		select {
		case <-t.ctx.Done():
			return t.parse(topic, nil)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// prefetch reads many topics at once; what cannot be read is left to get.
func (t *topicConfigs) prefetch(topics []string) {
	t.mu.Lock()
	changes := t.changes
	t.mu.Unlock()
	all, err := t.zk.TopicConfigs(t.ctx, topics)
	if err != nil {
		t.log.Warn("the topics' configurations cannot be read together", "topics", len(topics), "error", err)
		return
	}
	for topic, overrides := range all {
		t.put(topic, overrides, t.parse(topic, overrides), changes)
	}
}

// put keeps what was read after so many changes, unless there has been another.
func (t *topicConfigs) put(topic string, overrides map[string]string, tc partition.TopicConfig, changes uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changes != changes {
		return false
	}
	t.known[topic] = knownTopic{overrides, tc}
	return true
}

// forgetAll is forget for all topics.
func (t *topicConfigs) forgetAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.known)
	t.changes++
}

// forget makes the next get read ZooKeeper again.
func (t *topicConfigs) forget(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.known, topic)
	t.changes++
}

// renew works all configurations out anew, with what the broker's settings are now.
func (t *topicConfigs) renew() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for topic, k := range t.known {
		t.known[topic] = knownTopic{k.overrides, t.parse(topic, k.overrides)}
	}
	t.changes++
}

// parse never fails: a value that cannot be read, written by another program,
// is reported and its default taken.
func (t *topicConfigs) parse(topic string, overrides map[string]string) partition.TopicConfig {
	broker := t.broker()
	c, err := broker.Topic(overrides)
	for err != nil && len(overrides) > 0 {
		t.log.Error("a topic's configuration has bad values, which are ignored", "topic", topic, "error", err)
		good := map[string]string{}
		for k, v := range overrides {
			if broker.ValidateTopic(map[string]string{k: v}) == nil {
				good[k] = v
			}
		}
		if len(good) == len(overrides) {
			good = nil // each is right by itself, together they are not
		}
		overrides = good
		c, err = broker.Topic(overrides)
	}
	codec := codecs[c.CompressionType]
	return partition.TopicConfig{
		Log: commitlog.Config{
			SegmentBytes: int32(c.SegmentBytes), SegmentAge: segmentAge(&c), SegmentJitter: c.SegmentJitter,
			SegmentIndexBytes: int32(c.SegmentIndexBytes), IndexIntervalBytes: intervalOf(c.IndexIntervalBytes),
			RetentionAge: forever(c.Retention), RetentionBytes: c.RetentionBytes, KeepForever: !c.Delete,
			Compact: c.Compact, DeleteRetention: c.DeleteRetention, MinCompactionLag: c.MinCompactionLag, MaxCompactionLag: boundOf(c.MaxCompactionLag),
			FlushMessages: c.FlushMessages, FlushAge: flushAge(c.FlushInterval), Preallocate: c.Preallocate,
			DeleteDelay: atLeastTick(c.FileDeleteDelay), ProducerExpiry: broker.ProducerIDExpiration, VerifyTransactions: broker.VerifyTransactions,
		},
		MinISR: c.MinISR, MinCleanableRatio: c.MinCleanableRatio,
		LeaderThrottled: c.LeaderThrottled, FollowerThrottled: c.FollowerThrottled,
		Validate: recordbatch.ValidateOptions{
			MaxMessageBytes: c.MaxMessageBytes, LogAppendTime: c.LogAppendTime, Compacted: c.Compact,
			BoundTimes: true, BeforeMaxMs: boundMs(c.TimestampBeforeMax), AfterMaxMs: boundMs(c.TimestampAfterMax),
			Recompress: c.CompressionType != "producer", Codec: codec, Level: levelOf(codec, &c),
		},
	}
}

var codecs = map[string]recordbatch.Codec{
	"uncompressed": recordbatch.CodecNone, "gzip": recordbatch.CodecGzip, "snappy": recordbatch.CodecSnappy,
	"lz4": recordbatch.CodecLZ4, "zstd": recordbatch.CodecZstd,
}

// levelOf is the topic's level of the codec (KIP-390).
func levelOf(codec recordbatch.Codec, c *config.Topic) int {
	switch codec {
	case recordbatch.CodecGzip:
		return c.GzipLevel
	case recordbatch.CodecLZ4:
		return c.LZ4Level
	case recordbatch.CodecZstd:
		return c.ZstdLevel
	}
	return 0
}

// boundMs is a bound in ms; Forever bounds nothing.
func boundMs(d time.Duration) int64 {
	if d == config.Forever {
		return math.MaxInt64
	}
	return d.Milliseconds()
}

// In commitlog.Config zero means the default, so a real zero goes by the
// nearest value that means the same.
func intervalOf(n int) int32 {
	if n == 0 {
		return -1 // an entry for every batch
	}
	return int32(n)
}

// segmentAge is when a segment is closed: max.compaction.lag.ms counts for records in
// the active one, too, which is not compacted.
func segmentAge(c *config.Topic) time.Duration {
	if c.Compact {
		return min(c.SegmentAge, c.MaxCompactionLag)
	}
	return c.SegmentAge
}

// boundOf is 0 for a time without bound.
func boundOf(d time.Duration) time.Duration {
	if d == config.Forever {
		return 0
	}
	return d
}

func forever(d time.Duration) time.Duration {
	if d == 0 {
		return time.Nanosecond // retention.ms=0 keeps nothing that is closed
	}
	return d
}

func flushAge(d time.Duration) time.Duration {
	switch d {
	case config.Forever:
		return 0 // never
	case 0:
		return time.Nanosecond // whenever somebody looks
	}
	return d
}

func atLeastTick(d time.Duration) time.Duration {
	if d == 0 {
		return -1 // remove at once
	}
	return d
}
