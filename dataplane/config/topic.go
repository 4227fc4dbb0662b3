package config

import (
	"errors"
	"fmt"
	"math"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Topic is what is in force for one topic, parsed. It is immutable.
type Topic struct {
	Compact, Delete    bool   // cleanup.policy
	CompressionType    string // uncompressed, zstd, lz4, snappy, gzip, producer
	GzipLevel          int    // -1: the codec's default
	LZ4Level           int
	ZstdLevel          int
	DeleteRetention    time.Duration
	FileDeleteDelay    time.Duration
	FlushMessages      int64
	FlushInterval      time.Duration // Forever: never by time
	IndexIntervalBytes int
	MinCompactionLag   time.Duration
	MaxCompactionLag   time.Duration
	MinCleanableRatio  float64
	// Replicas that may be copied slowly only: "*", or partition:broker each.
	LeaderThrottled, FollowerThrottled Throttled
	MaxMessageBytes                    int
	LogAppendTime                      bool // message.timestamp.type
	TimestampBeforeMax                 time.Duration
	TimestampAfterMax                  time.Duration
	MinISR                             int
	Preallocate                        bool
	RetentionBytes                     int64         // negative: no limit
	Retention                          time.Duration // negative: for ever
	SegmentBytes                       int
	SegmentIndexBytes                  int
	SegmentJitter                      time.Duration
	SegmentAge                         time.Duration // segment.ms
	UncleanElection                    bool
}

// TopicErrors are the faults of a topic's overrides, one a key, sorted by key.
type TopicErrors []*KeyError

func (e TopicErrors) Error() string {
	parts := make([]string, len(e))
	for i := range e {
		parts[i] = e[i].Error()
	}
	return strings.Join(parts, "; ")
}

// synonyms gives the text of a topic key as the broker has it: the first of
// its broker keys that is set in the strongest layer, else their default.
func (b *Broker) topicDefault(k *key) string {
	for _, m := range b.layers.strongestFirst() {
		for _, s := range k.syn {
			if v, ok := m[s]; ok {
				return fromSynonym(k, s, strings.TrimSpace(v))
			}
		}
	}
	return k.def
}

// fromSynonym brings a broker key's value into the unit of the topic key.
func fromSynonym(k *key, syn, v string) string {
	var unit int64
	switch {
	case strings.HasSuffix(syn, ".hours"):
		unit = int64(time.Hour / time.Millisecond)
	case strings.HasSuffix(syn, ".minutes"):
		unit = int64(time.Minute / time.Millisecond)
	default:
		return v
	}
	n := mustInt(v)
	if n < 0 {
		return "-1"
	}
	if n > math.MaxInt64/unit {
		return maxLong
	}
	return strconv.FormatInt(n*unit, 10)
}

// ValidateTopic checks a topic's overrides as CreateTopics and AlterConfigs
// must: unknown keys, bad values and values that do not go together. nil is
// good. The result is TopicErrors.
func (b *Broker) ValidateTopic(overrides map[string]string) error {
	if err := fits(overrides); err != nil {
		return TopicErrors{{Reason: err.Error()}}
	}
	_, err := b.Topic(overrides)
	return err
}

// Topic computes what is in force for a topic with these overrides. With an
// error (TopicErrors) the Topic is still usable: bad overrides are left out, so
// that one bad value written by another tool does not stop a partition.
func (b *Broker) Topic(overrides map[string]string) (Topic, error) {
	var errs TopicErrors
	good := make(map[string]string, len(overrides))
	for name, v := range overrides {
		k := topicIndex[name]
		if k == nil {
			errs = append(errs, &KeyError{Key: clip(name), Reason: "no such topic setting"})
			continue
		}
		t, err := k.parse(v)
		if err != nil {
			var ke *KeyError
			errors.As(err, &ke)
			errs = append(errs, ke)
			continue
		}
		good[name] = t
	}
	get := func(name string) string {
		if v, ok := good[name]; ok {
			return v
		}
		return b.topicDefault(topicIndex[name])
	}
	num := func(name string) int64 { return mustInt(get(name)) }
	ms := func(name string) time.Duration { return millis(num(name)) }
	flag := func(name string) bool { return strings.EqualFold(get(name), "true") }

	if lo, hi := num("min.compaction.lag.ms"), num("max.compaction.lag.ms"); lo > hi {
		errs = append(errs, &KeyError{Key: "max.compaction.lag.ms", Value: get("max.compaction.lag.ms"), Reason: fmt.Sprintf("must be at least min.compaction.lag.ms (%d)", lo)})
	}
	t := Topic{
		CompressionType: get("compression.type"), GzipLevel: int(num("compression.gzip.level")), LZ4Level: int(num("compression.lz4.level")), ZstdLevel: int(num("compression.zstd.level")),
		DeleteRetention: ms("delete.retention.ms"), FileDeleteDelay: ms("file.delete.delay.ms"),
		FlushMessages: num("flush.messages"), FlushInterval: ms("flush.ms"), IndexIntervalBytes: int(num("index.interval.bytes")),
		MinCompactionLag: ms("min.compaction.lag.ms"), MaxCompactionLag: ms("max.compaction.lag.ms"), MaxMessageBytes: int(num("max.message.bytes")),
		LogAppendTime: get("message.timestamp.type") == "LogAppendTime", TimestampBeforeMax: ms("message.timestamp.before.max.ms"), TimestampAfterMax: ms("message.timestamp.after.max.ms"),
		MinISR: int(num("min.insync.replicas")), Preallocate: flag("preallocate"), RetentionBytes: num("retention.bytes"), Retention: ms("retention.ms"),
		SegmentBytes: int(num("segment.bytes")), SegmentIndexBytes: int(num("segment.index.bytes")), SegmentJitter: ms("segment.jitter.ms"), SegmentAge: ms("segment.ms"),
		UncleanElection: flag("unclean.leader.election.enable"),
	}
	t.LeaderThrottled, _ = ParseThrottled(get("leader.replication.throttled.replicas"))
	t.FollowerThrottled, _ = ParseThrottled(get("follower.replication.throttled.replicas"))
	t.MinCleanableRatio, _ = strconv.ParseFloat(get("min.cleanable.dirty.ratio"), 64)
	for _, p := range splitList(get("cleanup.policy")) {
		t.Compact = t.Compact || p == "compact"
		t.Delete = t.Delete || p == "delete"
	}
	b.olderTimestampBound(good, &t)
	if len(errs) == 0 {
		return t, nil
	}
	sort.Slice(errs, func(i, j int) bool { return errs[i].Key < errs[j].Key })
	return t, errs
}

// olderTimestampBound applies message.timestamp.difference.max.ms, which Kafka 4
// has no more, in place of each of the two keys that followed it that is not set.
func (b *Broker) olderTimestampBound(overrides map[string]string, t *Topic) {
	set := func(name string) (string, bool) {
		if v, ok := overrides[name]; ok {
			return v, true
		}
		for _, m := range b.layers.strongestFirst() {
			if v, ok := m["log."+name]; ok {
				return v, true
			}
		}
		return "", false
	}
	v, ok := set("message.timestamp.difference.max.ms")
	if !ok {
		return
	}
	bound := millis(mustInt(strings.TrimSpace(v)))
	if _, ok := set("message.timestamp.before.max.ms"); !ok {
		t.TimestampBeforeMax = bound
	}
	if _, ok := set("message.timestamp.after.max.ms"); !ok {
		t.TimestampAfterMax = bound
	}
}
