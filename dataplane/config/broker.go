package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// Forever is what the largest value of an ms setting becomes as a duration.
const Forever = time.Duration(math.MaxInt64)

// Broker is what is in force on one broker, parsed. It is immutable.
type Broker struct {
	ID   int32
	Rack string
	// RackAwareReads sends consumers to replicas in their own rack (replica.selector.class).
	RackAwareReads bool
	LogDirs        []string
	GroupMemory    int64 // bytes of all groups together; 0 = no bound
	LogOpenFiles   int   // of all logs together; 0 = by RLIMIT_NOFILE

	Listeners           []Endpoint // in the order of the file
	Advertised          []Endpoint // as registered in ZooKeeper
	InterBrokerListener string

	ZooKeeperConnect           string // hosts with an optional chroot
	ZooKeeperSessionTimeout    time.Duration
	ZooKeeperConnectionTimeout time.Duration
	ZooKeeperSetACL            bool
	ZooKeeperDigest            string // user:password, empty: none

	// Network.
	SocketRequestMaxBytes     int
	SocketSendBufferBytes     int // -1: the system's
	SocketReceiveBufferBytes  int // -1: the system's
	SocketListenBacklog       int
	ConnectionsMaxIdle        time.Duration // 0: never
	MaxConnections            int
	MaxConnectionsPerIP       int
	MaxConnectionsPerIPFor    map[netip.Addr]int
	ListenerMaxConnections    map[string]int // by listener, where set
	MaxConnectionRate         int            // a second; math.MaxInt32: no limit
	ListenerMaxConnectionRate map[string]int // by listener, where set
	QueuedMaxRequestBytes     int64          // -1: the broker decides
	FailedAuthDelay           time.Duration
	SASLMaxReceiveBytes       int
	NetworkThreads, IOThreads int // capacity of request quotas: (sum) x 100 percent
	RequestTimeout            time.Duration

	// Topics and cluster.
	AutoCreateTopics                bool
	DeleteTopics                    bool
	NumPartitions                   int32
	DefaultReplicationFactor        int16
	AutoLeaderRebalance             bool
	LeaderImbalanceCheckInterval    time.Duration
	LeaderImbalancePercentage       int
	ControlledShutdown              bool
	ControlledShutdownRetries       int
	ControlledShutdownBackoff       time.Duration
	ControllerSocketTimeout         time.Duration
	MaxIncrementalFetchSessions     int
	MaxPartitionsDescribed          int
	FetchMaxBytes                   int
	ReplicaLagTimeMax               time.Duration
	ReplicaFetchMaxBytes            int
	ReplicaFetchResponseMaxBytes    int
	ReplicaFetchMinBytes            int
	ReplicaFetchWaitMax             time.Duration
	ReplicaFetchBackoff             time.Duration
	ReplicaSocketTimeout            time.Duration
	ReplicaFetchers                 int
	LeaderThrottle                  int64 // leader.replication.throttled.rate
	FollowerThrottle                int64 // follower.replication.throttled.rate
	HighWatermarkCheckpointInterval time.Duration

	// Logs.
	RetentionCheckInterval     time.Duration
	FlushSchedulerInterval     time.Duration
	RecoveryPointInterval      time.Duration // log.flush.offset.checkpoint.interval.ms
	LogStartInterval           time.Duration // log.flush.start.offset.checkpoint.interval.ms
	RecoveryThreadsPerDir      int
	CleanerEnabled             bool
	CleanerThreads             int
	CleanerBackoff             time.Duration
	CleanerDedupeBytes         int64
	CleanerLoadFactor          float64
	CleanerBufferBytes         int
	CleanerBytesPerSecond      int64 // 0: no limit
	MoveThreads                int   // num.replica.alter.log.dirs.threads, 0: one a folder
	MoveRate                   int64 // replica.alter.log.dirs.io.max.bytes.per.second
	ProducerIDExpiration       time.Duration
	ProducerIDExpirationCheck  time.Duration
	VerifyTransactions         bool          // transaction.partition.verification.enable
	AddPartitionsRetryBackoff  time.Duration // add.partitions.to.txn.retry.backoff.ms
	AddPartitionsRetryFor      time.Duration // add.partitions.to.txn.retry.backoff.max.ms
	TransactionMaxTimeout      time.Duration
	TransactionAbortInterval   time.Duration
	TransactionalIDExpiration  time.Duration
	TransactionalIDInterval    time.Duration
	TransactionsPartitions     int32
	TransactionsReplicas       int16
	TransactionsMinISR         int
	TransactionsSegmentBytes   int
	OffsetsPartitions          int32
	OffsetsReplicationFactor   int16
	OffsetsSegmentBytes        int
	OffsetsRetention           time.Duration
	OffsetsRetentionCheck      time.Duration
	OffsetsCommitTimeout       time.Duration
	OffsetMetadataMaxBytes     int
	GroupMinSession            time.Duration
	GroupMaxSession            time.Duration
	GroupMaxSize               int
	GroupInitialRebalanceDelay time.Duration

	// Consumer groups (KIP-848).
	ConsumerGroups            bool // are served
	ConsumerGroupSession      time.Duration
	ConsumerGroupHeartbeat    time.Duration
	ConsumerGroupMaxSize      int
	ConsumerGroupAssignors    []string // uniform, range
	ConsumerGroupAssignment   time.Duration
	ConsumerGroupRegexRefresh time.Duration
	ConsumerGroupMigration    string // BIDIRECTIONAL, UPGRADE, DOWNGRADE or DISABLED

	// Quotas.
	QuotaSamples int
	QuotaWindow  time.Duration

	// Security.
	ACLs                  bool // an authorizer is set
	SuperUsers            []string
	AllowEveryoneIfNoACL  bool
	InterBrokerMechanism  string
	OAuthJWKSCacheFile    string
	OAuthAlgorithms       []string
	OAuthMaxTokenLifetime time.Duration
	NotBefore             map[string]time.Time // see ParseNotBefore

	// Usage.
	UsageEnable            bool
	UsageInterval          time.Duration
	MetricsEndpoint        string // URL; empty sends none
	MetricsInterval        time.Duration
	UsageReplicationFactor int16

	layers   layers
	warnings []string
}

// layers is the text of the settings, strongest first. A Broker's methods only read it.
type layers struct {
	perBroker, cluster, static map[string]string

	// others are the names of what is kept in ZooKeeper for this broker or for all and
	// is no setting here: another program's, of whose value nothing is known.
	othersOwn, othersAll []string
}

// ErrConfig is in the chain of every error of Load and New.
var ErrConfig = errors.New("bad configuration")

// Load reads a server.properties file and puts overrides ("key=value", the
// last of a doubled key stands) over it. path "" is an empty file. The error
// joins all faults.
func Load(path string, overrides []string) (*Broker, error) {
	static := make(map[string]string)
	if path != "" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		defer f.Close()
		if static, err = ParseProperties(f); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
		}
	}
	for _, o := range overrides {
		k, v, ok := strings.Cut(o, "=")
		if k = strings.TrimSpace(k); !ok || k == "" {
			return nil, fmt.Errorf("%w: an override is key=value, not %q", ErrConfig, clip(o))
		}
		static[k] = v
	}
	return New(static)
}

// New builds a Broker from the static settings alone.
func New(static map[string]string) (*Broker, error) {
	return build(layers{static: static})
}

// Warnings are remarks on ignored settings, sorted, without any values.
func (b *Broker) Warnings() []string { return slices.Clone(b.warnings) }

func (l *layers) strongestFirst() [3]map[string]string {
	return [...]map[string]string{l.perBroker, l.cluster, l.static}
}

// raw is the value of a broker key after all layers; ok is false if it has none.
func (l *layers) raw(name string) (string, bool) {
	for _, m := range l.strongestFirst() {
		if v, ok := m[name]; ok {
			return v, true
		}
	}
	if k := brokerIndex[name]; k != nil && !k.null {
		return k.def, true
	}
	return "", false
}

func build(l layers) (*Broker, error) {
	b := &Broker{layers: l}
	r := &reader{l: &b.layers, bad: make(map[string]bool)}
	b.fill(r)
	b.fillListeners(r)
	b.checkTogether(r)
	b.checkPrefixed(r)
	// Every key of every layer is checked, also one that nothing above reads.
	for _, m := range l.strongestFirst() {
		for name, v := range m {
			if k := brokerIndex[name]; k != nil {
				r.parse(k, v)
			}
		}
	}
	if len(r.errs) == 0 {
		if _, err := b.Topic(nil); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	if len(r.errs) > 0 {
		sort.Slice(r.errs, func(i, j int) bool { return r.errs[i].Error() < r.errs[j].Error() })
		return nil, fmt.Errorf("%w: %w", ErrConfig, errors.Join(r.errs...))
	}
	sort.Strings(b.warnings)
	return b, nil
}

func (b *Broker) fill(r *reader) {
	b.ID = int32(r.num("broker.id"))
	b.Rack = r.text("broker.rack")
	b.RackAwareReads = r.text("replica.selector.class") == rackAwareSelector
	if b.LogDirs = r.list("log.dirs"); len(b.LogDirs) == 0 {
		b.LogDirs = r.list("log.dir")
	}
	b.ZooKeeperConnect = r.text("zookeeper.connect")
	b.ZooKeeperSessionTimeout = r.ms("zookeeper.session.timeout.ms")
	b.ZooKeeperConnectionTimeout = b.ZooKeeperSessionTimeout
	if r.text("zookeeper.connection.timeout.ms") != "" {
		b.ZooKeeperConnectionTimeout = r.ms("zookeeper.connection.timeout.ms")
	}
	b.ZooKeeperSetACL = r.bool("zookeeper.set.acl")
	b.ZooKeeperDigest = r.text("penstock.zookeeper.digest")

	b.SocketRequestMaxBytes = r.int("socket.request.max.bytes")
	b.SocketSendBufferBytes = r.int("socket.send.buffer.bytes")
	b.SocketReceiveBufferBytes = r.int("socket.receive.buffer.bytes")
	b.SocketListenBacklog = r.int("socket.listen.backlog.size")
	b.ConnectionsMaxIdle = max(0, r.ms("connections.max.idle.ms"))
	b.MaxConnections = r.int("max.connections")
	b.MaxConnectionRate = r.int("max.connection.creation.rate")
	b.MaxConnectionsPerIP = r.int("max.connections.per.ip")
	b.MaxConnectionsPerIPFor, _ = parseIPOverrides(r.text("max.connections.per.ip.overrides"))
	b.QueuedMaxRequestBytes = r.num("queued.max.request.bytes")
	b.FailedAuthDelay = r.ms("connection.failed.authentication.delay.ms")
	b.SASLMaxReceiveBytes = r.int("sasl.server.max.receive.size")
	b.NetworkThreads, b.IOThreads = r.int("num.network.threads"), r.int("num.io.threads")
	b.RequestTimeout = r.ms("request.timeout.ms")

	b.AutoCreateTopics = r.bool("auto.create.topics.enable")
	b.DeleteTopics = r.bool("delete.topic.enable")
	b.NumPartitions = int32(r.num("num.partitions"))
	if n := r.num("default.replication.factor"); n > math.MaxInt16 {
		r.fail("default.replication.factor", "must be at most %d", math.MaxInt16)
	} else {
		b.DefaultReplicationFactor = int16(n)
	}
	b.AutoLeaderRebalance = r.bool("auto.leader.rebalance.enable")
	b.LeaderImbalanceCheckInterval = r.unit("leader.imbalance.check.interval.seconds", time.Second)
	b.LeaderImbalancePercentage = r.int("leader.imbalance.per.broker.percentage")
	b.ControlledShutdown = r.bool("controlled.shutdown.enable")
	b.ControlledShutdownRetries = r.int("controlled.shutdown.max.retries")
	b.ControlledShutdownBackoff = r.ms("controlled.shutdown.retry.backoff.ms")
	b.ControllerSocketTimeout = r.ms("controller.socket.timeout.ms")
	b.MaxPartitionsDescribed = r.int("max.request.partition.size.limit")
	b.MaxIncrementalFetchSessions = r.int("max.incremental.fetch.session.cache.slots")
	b.FetchMaxBytes = r.int("fetch.max.bytes")
	b.ReplicaLagTimeMax = r.ms("replica.lag.time.max.ms")
	b.ReplicaFetchMaxBytes = r.int("replica.fetch.max.bytes")
	b.ReplicaFetchResponseMaxBytes = r.int("replica.fetch.response.max.bytes")
	b.ReplicaFetchMinBytes = r.int("replica.fetch.min.bytes")
	b.ReplicaFetchWaitMax = r.ms("replica.fetch.wait.max.ms")
	b.ReplicaFetchBackoff = r.ms("replica.fetch.backoff.ms")
	b.ReplicaSocketTimeout = r.ms("replica.socket.timeout.ms")
	b.ReplicaFetchers = r.int("num.replica.fetchers")
	b.LeaderThrottle = r.num("leader.replication.throttled.rate")
	b.FollowerThrottle = r.num("follower.replication.throttled.rate")
	b.HighWatermarkCheckpointInterval = r.ms("replica.high.watermark.checkpoint.interval.ms")

	b.RetentionCheckInterval = r.ms("log.retention.check.interval.ms")
	b.FlushSchedulerInterval = r.ms("log.flush.scheduler.interval.ms")
	b.RecoveryPointInterval = r.ms("log.flush.offset.checkpoint.interval.ms")
	b.LogStartInterval = r.ms("log.flush.start.offset.checkpoint.interval.ms")
	b.RecoveryThreadsPerDir = r.int("num.recovery.threads.per.data.dir")
	b.CleanerEnabled = r.bool("log.cleaner.enable")
	b.CleanerThreads = r.int("log.cleaner.threads")
	b.CleanerBackoff = r.ms("log.cleaner.backoff.ms")
	b.CleanerDedupeBytes = r.num("log.cleaner.dedupe.buffer.size")
	b.CleanerLoadFactor, _ = strconv.ParseFloat(r.text("log.cleaner.io.buffer.load.factor"), 64)
	b.CleanerBufferBytes = r.int("log.cleaner.io.buffer.size")
	b.CleanerBytesPerSecond = 0
	if rate, _ := strconv.ParseFloat(r.text("log.cleaner.io.max.bytes.per.second"), 64); rate < 1<<62 {
		b.CleanerBytesPerSecond = max(int64(rate), 1)
	}
	if least := int64(b.CleanerThreads) << 20; b.CleanerEnabled && b.CleanerDedupeBytes < least {
		r.fail("log.cleaner.dedupe.buffer.size", "must be at least 1 MiB for each of log.cleaner.threads (%d)", least)
	}
	if r.text("num.replica.alter.log.dirs.threads") != "" {
		b.MoveThreads = r.int("num.replica.alter.log.dirs.threads")
	}
	b.MoveRate = r.num("replica.alter.log.dirs.io.max.bytes.per.second")
	b.ProducerIDExpiration = r.ms("producer.id.expiration.ms")
	b.ProducerIDExpirationCheck = r.ms("producer.id.expiration.check.interval.ms")
	b.VerifyTransactions = r.bool("transaction.partition.verification.enable")
	b.AddPartitionsRetryBackoff = r.ms("add.partitions.to.txn.retry.backoff.ms")
	b.AddPartitionsRetryFor = r.ms("add.partitions.to.txn.retry.backoff.max.ms")
	b.TransactionMaxTimeout = r.ms("transaction.max.timeout.ms")
	b.TransactionAbortInterval = r.ms("transaction.abort.timed.out.transaction.cleanup.interval.ms")
	b.TransactionalIDExpiration = r.ms("transactional.id.expiration.ms")
	b.TransactionalIDInterval = r.ms("transaction.remove.expired.transaction.cleanup.interval.ms")
	b.TransactionsPartitions = int32(r.num("transaction.state.log.num.partitions"))
	b.TransactionsReplicas = int16(r.num("transaction.state.log.replication.factor"))
	b.TransactionsMinISR = r.int("transaction.state.log.min.isr")
	b.TransactionsSegmentBytes = r.int("transaction.state.log.segment.bytes")
	b.OffsetsPartitions = int32(r.num("offsets.topic.num.partitions"))
	b.OffsetsReplicationFactor = int16(r.num("offsets.topic.replication.factor"))
	b.OffsetsSegmentBytes = r.int("offsets.topic.segment.bytes")
	b.OffsetsRetention = r.unit("offsets.retention.minutes", time.Minute)
	b.OffsetsRetentionCheck = r.ms("offsets.retention.check.interval.ms")
	b.OffsetsCommitTimeout = r.ms("offsets.commit.timeout.ms")
	b.OffsetMetadataMaxBytes = r.int("offset.metadata.max.bytes")
	b.GroupMinSession = r.ms("group.min.session.timeout.ms")
	b.GroupMaxSession = r.ms("group.max.session.timeout.ms")
	b.GroupMaxSize = r.int("group.max.size")
	b.GroupInitialRebalanceDelay = r.ms("group.initial.rebalance.delay.ms")
	b.ConsumerGroups = slices.Contains(r.list("group.coordinator.rebalance.protocols"), "consumer")
	b.ConsumerGroupSession = r.ms("group.consumer.session.timeout.ms")
	b.ConsumerGroupHeartbeat = r.ms("group.consumer.heartbeat.interval.ms")
	b.ConsumerGroupMaxSize = r.int("group.consumer.max.size")
	for _, name := range r.list("group.consumer.assignors") {
		if name = assignorClasses[name]; !slices.Contains(b.ConsumerGroupAssignors, name) {
			b.ConsumerGroupAssignors = append(b.ConsumerGroupAssignors, name)
		}
	}
	b.ConsumerGroupAssignment = r.ms("group.consumer.assignment.interval.ms")
	b.ConsumerGroupRegexRefresh = r.ms("group.consumer.regex.refresh.interval.ms")
	b.ConsumerGroupMigration = strings.ToUpper(r.text("group.consumer.migration.policy"))

	b.QuotaSamples = r.int("quota.window.num")
	b.QuotaWindow = r.unit("quota.window.size.seconds", time.Second)

	b.ACLs = r.text("authorizer.class.name") != ""
	for _, u := range strings.Split(r.text("super.users"), ";") {
		if u = strings.TrimSpace(u); u == "" {
			continue
		}
		if kind, name, ok := strings.Cut(u, ":"); !ok || kind == "" || name == "" {
			r.fail("super.users", "%q is not Type:name", clip(u))
		}
		b.SuperUsers = append(b.SuperUsers, u)
	}
	b.AllowEveryoneIfNoACL = r.bool("allow.everyone.if.no.acl.found")
	b.InterBrokerMechanism = r.text("sasl.mechanism.inter.broker.protocol")
	b.OAuthJWKSCacheFile = r.text("penstock.oauth.jwks.cache.file")
	b.OAuthAlgorithms = r.list("penstock.oauth.algorithms")
	b.OAuthMaxTokenLifetime = r.unit("penstock.auth.token.max.lifetime.seconds", time.Second)
	b.NotBefore, _ = ParseNotBefore(r.text("penstock.auth.not.before")) // checked when it was read

	b.GroupMemory = r.num("penstock.group.memory.max.bytes")
	b.LogOpenFiles = r.int("penstock.log.open.files.max")
	b.MetricsEndpoint = r.text("penstock.telemetry.metrics.endpoint")
	b.MetricsInterval = r.ms("penstock.telemetry.metrics.interval.ms")
	b.UsageEnable = r.bool("penstock.usage.enable")
	b.UsageInterval = r.ms("penstock.usage.interval.ms")
	b.UsageReplicationFactor = int16(r.num("penstock.usage.topic.replication.factor"))
}

// checkTogether holds the rules that span settings.
func (b *Broker) checkTogether(r *reader) {
	if b.ID < 0 {
		r.fail("broker.id", "must be set, and at least 0")
	}
	// reserved.broker.max.id bounds ids only where ids are generated, which is
	// not done here; Kafka refuses larger ones all the same while generation is on.
	if int64(b.ID) > r.num("reserved.broker.max.id") {
		r.fail("broker.id", "must be at most reserved.broker.max.id (%d)", r.num("reserved.broker.max.id"))
	}
	if b.ZooKeeperConnect == "" {
		r.fail("zookeeper.connect", "must be set")
	}
	if len(b.LogDirs) == 0 || slices.Contains(b.LogDirs, "") {
		r.fail("log.dirs", "must name at least one folder, and no empty one")
	}
	seen := make(map[string]bool)
	for _, d := range b.LogDirs {
		if seen[d] {
			r.fail("log.dirs", "names a folder twice")
		}
		seen[d] = true
	}
	if b.ReplicaFetchWaitMax > b.ReplicaLagTimeMax {
		r.fail("replica.fetch.wait.max.ms", "must not exceed replica.lag.time.max.ms, or replicas fall out of sync while they wait")
	}
	if b.ReplicaSocketTimeout < b.ReplicaFetchWaitMax {
		r.fail("replica.socket.timeout.ms", "must be at least replica.fetch.wait.max.ms")
	}
	for _, what := range []string{"session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"} {
		low, is, high := "group.consumer.min."+what, "group.consumer."+what, "group.consumer.max."+what
		if r.num(is) < r.num(low) || r.num(is) > r.num(high) {
			r.fail(is, "must be between %s (%d) and %s (%d)", low, r.num(low), high, r.num(high))
		}
	}
	if b.ConsumerGroupHeartbeat >= b.ConsumerGroupSession {
		r.fail("group.consumer.heartbeat.interval.ms", "must be less than group.consumer.session.timeout.ms")
	}
	if b.GroupMinSession > b.GroupMaxSession {
		r.fail("group.min.session.timeout.ms", "must not exceed group.max.session.timeout.ms")
	}
	for _, name := range []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"} {
		if v := r.text(name); v != "" {
			if n := mustInt(v); n == 0 || n < -1 {
				r.fail(name, "must be -1 (for ever) or at least 1")
			}
		}
	}
}
