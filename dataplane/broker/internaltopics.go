package broker

import (
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// usageRetention keeps usage records long enough that billing may be down for
// four weeks.
const usageRetention = 28 * 24 * 60 * 60 * 1000

// topicToMake is a topic made without an administrator's word: internal topics
// with their own settings, all others with the broker's defaults.
func (b *Broker) topicToMake(topic string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	set := func(name, value string) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		t.Configs = append(t.Configs, c)
	}
	switch topic {
	case protocol.OffsetsTopic:
		t.NumPartitions, t.ReplicationFactor = b.cfg.OffsetsPartitions, b.cfg.OffsetsReplicationFactor
		set("cleanup.policy", "compact")
		set("compression.type", "producer")
		set("segment.bytes", strconv.Itoa(b.cfg.OffsetsSegmentBytes))
	case protocol.TransactionsTopic:
		t.NumPartitions, t.ReplicationFactor = b.cfg.TransactionsPartitions, b.cfg.TransactionsReplicas
		set("cleanup.policy", "compact")
		set("compression.type", "uncompressed")
		set("unclean.leader.election.enable", "false")
		set("min.insync.replicas", strconv.Itoa(b.cfg.TransactionsMinISR))
		set("segment.bytes", strconv.Itoa(b.cfg.TransactionsSegmentBytes))
	case protocol.UsageTopic:
		t.NumPartitions, t.ReplicationFactor = 1, b.cfg.UsageReplicationFactor
		set("cleanup.policy", "delete")
		set("retention.ms", strconv.Itoa(usageRetention))
	}
	return t
}
