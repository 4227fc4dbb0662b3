package group

import (
	"log/slog"
	"time"

	"penstock/dataplane/group/assignor"
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

	// Memory bounds what all groups together hold in memory, by estimate, in bytes
	// (penstock.group.memory.max.bytes). Zero means no bound.
	Memory int64

	// MaxOffsetMetadataSize bounds the text beside a committed offset, in bytes
	// (offset.metadata.max.bytes, default 4096).
	MaxOffsetMetadataSize int

	// OffsetsRetention is how long committed offsets outlive their use
	// (offsets.retention.minutes, default 7 days), OffsetsCheckInterval how
	// often they are looked through (offsets.retention.check.interval.ms,
	// default 10 min).
	OffsetsRetention, OffsetsCheckInterval time.Duration

	// Topics gives the cluster's topics as they are now, nil while the broker does not
	// know them. Required for consumer groups (KIP-848); without it they see no topics.
	Topics func() Topics

	// ConsumerProtocol serves consumer groups at all (group.coordinator.rebalance.protocols).
	ConsumerProtocol bool

	// The session timeout and the heartbeat interval of members of consumer groups
	// (group.consumer.session.timeout.ms, default 45 s; group.consumer.heartbeat.interval.ms,
	// default 5 s).
	ConsumerSessionTimeout, ConsumerHeartbeatInterval time.Duration

	// Settings gives what a group has in place of ConsumerSessionTimeout,
	// ConsumerHeartbeatInterval and ConsumerAssignmentInterval; ok is false for a group that
	// has nothing of its own. It may be nil: no group has. It is called with the group's mutex
	// held, often, and must not wait.
	Settings func(group string) (s Settings, ok bool)

	// ConsumerMaxSize is the largest number of members (group.consumer.max.size, default
	// 2^31-1).
	ConsumerMaxSize int

	// ConsumerAssignors are the assignors that members may ask for; the first is for those
	// that do not (group.consumer.assignors, default uniform and range).
	ConsumerAssignors []string

	// ConsumerAssignmentInterval is the least time between two target assignments of a
	// group (group.consumer.assignment.interval.ms). Zero means no limit; Kafka's default
	// of 1 s is given by the broker's configuration.
	ConsumerAssignmentInterval time.Duration

	// ConsumerRegexRefresh is how often subscribed regular expressions are resolved again
	// whatever happens (group.consumer.regex.refresh.interval.ms, default 10 min).
	ConsumerRegexRefresh time.Duration

	// Migration says which way a group may go from one protocol to the other while it has
	// members (group.consumer.migration.policy). The zero value is both.
	Migration MigrationPolicy

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
	def(&c.ConsumerSessionTimeout, 45*time.Second)
	def(&c.ConsumerHeartbeatInterval, 5*time.Second)
	def(&c.ConsumerRegexRefresh, 10*time.Minute)
	num(&c.ConsumerMaxSize, 1<<31-1)
	if c.Topics == nil {
		c.Topics = func() Topics { return nil }
	}
	if len(c.ConsumerAssignors) == 0 {
		c.ConsumerAssignors = []string{assignor.NameUniform, assignor.NameRange}
	}
	num(&c.MaxSize, 1<<31-1)
	num(&c.MaxPendingMembers, 10_000)
	num(&c.MaxOffsetMetadataSize, 4096)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Settings are what each consumer group may have for itself.
type Settings struct {
	SessionTimeout, HeartbeatInterval, AssignmentInterval time.Duration
}

// settings are the group's own, or those of all groups.
func (g *group) settings() Settings {
	c := &g.c.cfg
	if c.Settings != nil {
		if s, ok := c.Settings(g.id); ok {
			return s
		}
	}
	return Settings{c.ConsumerSessionTimeout, c.ConsumerHeartbeatInterval, c.ConsumerAssignmentInterval}
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

// MigrationPolicy says which way a group with members may change its protocol.
type MigrationPolicy uint8

// The policies, as group.consumer.migration.policy names them.
const (
	MigrateBidirectional MigrationPolicy = iota
	MigrateUpgrade                       // from classic to consumer
	MigrateDowngrade                     // from consumer to classic
	MigrateDisabled
)

func (p MigrationPolicy) upgrade() bool   { return p == MigrateBidirectional || p == MigrateUpgrade }
func (p MigrationPolicy) downgrade() bool { return p == MigrateBidirectional || p == MigrateDowngrade }
