package group

import (
	"log/slog"
	"time"
)

// Config holds the coordinator's settings. The zero value of a field means its
// default, except where said otherwise.
type Config struct {
	// MinSessionTimeout and MaxSessionTimeout bound the session timeout that a
	// member may ask for (group.min.session.timeout.ms, default 6 s;
	// group.max.session.timeout.ms, default 30 min).
	MinSessionTimeout, MaxSessionTimeout time.Duration

	// InitialRebalanceDelay is how long the first member of an empty group
	// waits for others (group.initial.rebalance.delay.ms). Zero means no delay;
	// Kafka's default of 3 s is given by the broker's configuration.
	InitialRebalanceDelay time.Duration

	// MaxSize is the largest number of members (group.max.size, default 2^31-1).
	MaxSize int

	// MaxPendingMembers bounds the member ids that a group has handed out by
	// MEMBER_ID_REQUIRED and not yet seen again. Default 10,000.
	MaxPendingMembers int

	// MaxOffsetMetadataSize bounds the text beside a committed offset, in bytes
	// (offset.metadata.max.bytes, default 4096).
	MaxOffsetMetadataSize int

	// OffsetsRetention is how long committed offsets outlive their use
	// (offsets.retention.minutes, default 7 days), OffsetsCheckInterval how
	// often they are looked through (offsets.retention.check.interval.ms,
	// default 10 min).
	OffsetsRetention, OffsetsCheckInterval time.Duration

	// Logger may be nil: nothing is logged.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	num := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	def(&c.MinSessionTimeout, 6*time.Second)
	def(&c.MaxSessionTimeout, 30*time.Minute)
	def(&c.OffsetsRetention, 7*24*time.Hour)
	def(&c.OffsetsCheckInterval, 10*time.Minute)
	num(&c.MaxSize, 1<<31-1)
	num(&c.MaxPendingMembers, 10_000)
	num(&c.MaxOffsetMetadataSize, 4096)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// ClientInfo is what the coordinator remembers of the client behind a member.
type ClientInfo struct {
	ClientID string // from the request header, may be empty
	Host     string // as Kafka shows it: "/" and the address
}

// Timers runs functions later: the broker's timing wheel, or the time package
// under testing/synctest. The functions given to it are quick: they start a
// goroutine for what is to be done.
type Timers interface {
	// AfterFunc runs f once after d; stop reports whether it prevented that.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// SystemTimers is Timers on the time package.
type SystemTimers struct{}

// AfterFunc implements Timers.
func (SystemTimers) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}
