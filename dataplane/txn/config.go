package txn

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Config holds the coordinator's settings and its world. The zero value of a setting means
// its default, except where said otherwise.
type Config struct {
	// MaxTimeout is the longest transaction timeout that a producer may ask for
	// (transaction.max.timeout.ms, default 15 min).
	MaxTimeout time.Duration

	// AbortInterval is how often transactions are looked through for those whose time is
	// up (transaction.abort.timed.out.transaction.cleanup.interval.ms, default 10 s).
	AbortInterval time.Duration

	// IDExpiration is how long a transactional id outlives its last use
	// (transactional.id.expiration.ms, default 7 days), ExpiryInterval how often they are
	// looked through (transaction.remove.expired.transaction.cleanup.interval.ms, default 1 h).
	IDExpiration, ExpiryInterval time.Duration

	// Patience is how long a request waits for the end of what is pending of its
	// transaction before it is answered CONCURRENT_TRANSACTIONS. Zero: not at all.
	Patience time.Duration

	// Version is the finalized transaction.version of the cluster (KIP-890, KIP-1022): 0 has
	// records written that Kafka 3.9 can take over, and transactions that the coordinator
	// itself aborts ended by the first protocol. Required.
	Version func() int16

	// NextProducerID hands out a producer id that no broker ever gave before. Required.
	NextProducerID func(context.Context) (int64, error)

	// Peers leads to the leaders of partitions. Required.
	Peers Peers

	// Settle is coordinator.Config.Settle for the log. Required.
	Settle func(partition int32, lost <-chan struct{}) error

	// Logger may be nil: nothing is logged.
	Logger *slog.Logger
}

// Peers is the cluster as the sender of markers needs it.
type Peers interface {
	// Leader is the broker that leads the partition, negative while nobody is known to.
	// known is false when the partition is not among those that the controller has told of.
	Leader(tp protocol.TopicPartition) (broker int32, known bool)

	// WriteMarkers sends the request to the broker, this one included, at a version that
	// it has, and waits for the answer. Only one call a broker is made at a time.
	WriteMarkers(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error)
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&c.MaxTimeout, 15*time.Minute)
	def(&c.AbortInterval, 10*time.Second)
	def(&c.IDExpiration, 7*24*time.Hour)
	def(&c.ExpiryInterval, time.Hour)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
