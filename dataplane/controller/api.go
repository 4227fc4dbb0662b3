package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// Peer is an authenticated connection to another broker, as the controller
// needs it. An error of Do makes the controller close it and dial again.
type Peer interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Close() error
}

// Config is what a controller is made of. ZK, BrokerID and Dial are required.
type Config struct {
	BrokerID int32
	ZK       *coordination.Client

	// Dial connects to a broker on the inter-broker listener. The controller
	// dials itself like any other broker.
	Dial func(ctx context.Context, b coordination.Broker) (Peer, error)

	// Listener is the name of the inter-broker listener, whose addresses
	// LeaderAndIsr announces for leaders. Default: the first of a broker.
	Listener string

	// UncleanLeaderElection is unclean.leader.election.enable of the broker as it is
	// now; a topic's own setting wins. Default: false.
	UncleanLeaderElection func() bool

	// AutoRebalance is auto.leader.rebalance.enable: preferred leaders are put
	// back 5 s after a failover and then every RebalanceInterval
	// (leader.imbalance.check.interval.seconds, default 300 s) on brokers where
	// more than ImbalancePercent (leader.imbalance.per.broker.percentage,
	// default 10) of the partitions that prefer it are led elsewhere.
	AutoRebalance     bool
	RebalanceInterval time.Duration
	ImbalancePercent  int
	// RebalanceDelay is the wait after a failover, default 5 s.
	RebalanceDelay time.Duration

	// NumPartitions and ReplicationFactor stand in for -1 in CreateTopics
	// (num.partitions, default.replication.factor). Default 1 each.
	NumPartitions     int32
	ReplicationFactor int16

	// MaxPartitionsPerRequest bounds the partitions of one topic creation or
	// growth. Default 10,000 (Kafka's own bound for one request).
	MaxPartitionsPerRequest int

	// ValidateConfig checks a new topic's overrides. An error of it refuses the
	// topic with INVALID_CONFIG and the error's text. Default: anything goes.
	ValidateConfig func(overrides map[string]string) error

	// DescribeConfig fills CreateTopicsResponse v5's list of effective configs.
	// Default: the list is null.
	DescribeConfig func(topic string, overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig

	Logger *slog.Logger // nil discards
}
