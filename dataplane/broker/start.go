package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/admission"
	"penstock/dataplane/auth"
	"penstock/dataplane/config"
	"penstock/dataplane/controller"
	"penstock/dataplane/coordination"
	"penstock/dataplane/coordination/zksession"
	"penstock/dataplane/fetchsession"
	"penstock/dataplane/group"
	"penstock/dataplane/handler"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/meter"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/replication"
	"penstock/dataplane/vfs"
)

// ErrStopped is the error of a start that was called off and went back in order.
var ErrStopped = errors.New("the start was called off")

// Process is what a broker has of the process that it runs in; all of it may be nil.
type Process struct {
	Log *slog.Logger
	// Level is that of the log, which an administrator may change.
	Level *slog.LevelVar
	// Session is where the parent process finds the ZooKeeper session, to end it should
	// this process die.
	Session *zksession.Box
}

// Start brings a broker up and returns when it serves. ctx bounds the start
// only. On an error everything started is stopped again; once ctx has ended and
// that went well the error is ErrStopped.
func Start(ctx context.Context, cfg *config.Broker, p Process) (_ *Broker, err error) {
	log := p.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg, log: log.With("broker", cfg.ID), logLevel: p.Level, session: p.Session, failed: make(chan error, 1)}
	b.epoch.Store(-1)
	b.settings.inForce.Store(cfg)
	b.registered = make(chan struct{})
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.onStop("background work", func(context.Context) error {
		b.cancel()
		b.notifying.Wait()
		return nil
	})
	defer func() {
		if err == nil {
			return
		}
		if serr := b.Stop(); serr != nil {
			err = errors.Join(err, serr)
		} else if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrStopped, err)
		}
	}()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"opening log.dirs", b.openDirs},
		{"binding the listeners", b.bind},
		{"connecting to ZooKeeper", b.connect},
		{"reading the dynamic settings", b.loadSettings},
		{"reading the cluster's identity", b.identify},
		{"reading quotas and ACLs", b.startAdmission},
		{"opening the usage meter", b.openMeter},
		{"opening the logs", b.openLogs},
		{"starting the group coordinator", b.startGroups},
		{"starting the transaction coordinator", b.startTransactions},
		{"starting metrics", b.startMetrics},
		{"preparing the controller", b.prepareController},
		{"serving", b.serve},
		{"registering", b.register},
		{"watching for changes", b.watch},
		{"joining the election", b.join},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		b.log.Debug("start", "step", step.what, "took", time.Since(began))
	}
	// Last to be added is first to run: leaders go before anything stops.
	b.onStop("leadership", b.shutDown)
	return b, nil
}

// bind takes the ports before anything says that this broker is there.
func (b *Broker) bind(context.Context) error {
	memory := admission.NewLanes(requestMemory(b.cfg))
	b.connections = admission.NewConnections(connectionLimits(b.cfg, openFiles()))
	b.buffers = protocol.NewPool()
	b.logins = map[string]*auth.Server{}
	for _, e := range b.cfg.Listeners {
		if strings.HasSuffix(e.Protocol, "SSL") {
			return fmt.Errorf("listener %s: TLS is not served yet", e.Name)
		}
		lc := listener.Config{
			Name: e.Name, Addr: e.Addr(), SASL: e.SASL(), Limits: b.connections, Buffers: b.buffers,
			Handler:     func(r *listener.Request) { b.handler.Serve(r) },
			OnLocalDone: b.chargeRequest, OnSent: b.chargeNetwork,
			SendBuffer: b.cfg.SocketSendBufferBytes, ReceiveBuffer: b.cfg.SocketReceiveBufferBytes,
			MaxFrame: b.cfg.SocketRequestMaxBytes, MaxFrameBeforeAuth: b.cfg.SASLMaxReceiveBytes, IdleTimeout: b.cfg.ConnectionsMaxIdle, Logger: b.log,
		}
		lc.ClientsOnly = len(b.cfg.Listeners) > 1 && e.Name != b.cfg.InterBrokerListener
		if lc.IdleTimeout == 0 {
			lc.IdleTimeout = -1
		}
		// Between brokers nothing waits for memory: a follower's fetch must never
		// queue behind producers that wait for that very follower.
		if len(b.cfg.Listeners) == 1 || e.Name != b.cfg.InterBrokerListener {
			lc.Budget = memory
		}
		l, err := listener.Listen(lc)
		if err != nil {
			return err
		}
		b.listeners = append(b.listeners, l)
		b.onStop("listener "+e.Name, func(context.Context) error { return l.Close() })
	}
	return nil
}

// requestMemory is queued.max.request.bytes, by default 256 MiB: one of the
// largest requests (100 MiB) and more, and a quarter for small ones.
func requestMemory(cfg *config.Broker) int64 {
	if cfg.QueuedMaxRequestBytes > 0 {
		return cfg.QueuedMaxRequestBytes
	}
	return max(256<<20, 2*int64(cfg.SocketRequestMaxBytes)+56<<20)
}

func (b *Broker) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ZooKeeperConnectionTimeout)
	defer cancel()
	zk, err := coordination.Connect(ctx, coordination.Config{
		Connect: b.cfg.ZooKeeperConnect, SessionTimeout: b.cfg.ZooKeeperSessionTimeout,
		Digest: b.cfg.ZooKeeperDigest, SetACL: b.cfg.ZooKeeperSetACL, Box: b.session, Logger: b.log,
	})
	if err != nil {
		return err
	}
	b.zk = zk
	b.onStop("ZooKeeper session", func(context.Context) error { zk.Close(); return nil })
	return zk.EnsureLayout(ctx)
}

func (b *Broker) identify(ctx context.Context) error {
	id, err := b.zk.ClusterID(ctx)
	if err != nil {
		return err
	}
	if err := b.identifyDirs(id); err != nil {
		return err
	}
	b.metadata = metadata.NewCache(id)
	b.topics = &topicConfigs{ctx: b.ctx, broker: b.now, zk: b.zk, log: b.log, known: map[string]knownTopic{}}
	user, password, _, err := auth.InterBrokerCredentials(b.cfg)
	if err != nil {
		return err
	}
	b.dialer = &dialer{
		listener: b.cfg.InterBrokerListener, user: user, password: password,
		timeout: b.cfg.ReplicaSocketTimeout, clientID: "broker-" + strconv.Itoa(int(b.cfg.ID)), buffers: b.buffers,
	}
	b.controllers = &controllerLink{link: link{dialer: b.dialer}, zk: b.zk}
	b.onStop("controller link", func(context.Context) error { b.controllers.close(); return nil })
	return nil
}

func (b *Broker) openMeter(context.Context) error {
	if !b.cfg.UsageEnable {
		return nil
	}
	b.usage = &usageLink{link: link{dialer: b.dialer}, b: b}
	m, err := meter.Open(meter.Config{
		Dir: b.meterDir(), Broker: b.cfg.ID, Cluster: b.metadata.Image().ClusterID,
		Interval: b.cfg.UsageInterval, Publish: b.usage.publish, Logger: b.log,
	})
	b.meter = m
	return err
}

func (b *Broker) openLogs(ctx context.Context) error {
	b.wheel = purgatory.NewWheel()
	b.onStop("timing wheel", func(context.Context) error { b.wheel.Close(); return nil })
	b.isr = replication.NewISRSender(replication.ISRConfig{
		BrokerID: b.cfg.ID, BrokerEpoch: b.epoch.Load, Send: b.sendAlterPartition, Logger: b.log,
	})
	b.onStop("ISR changes", func(context.Context) error { b.isr.Close(); return nil })
	b.fetchers = replication.NewFetchers(replication.Config{
		BrokerID: b.cfg.ID, BrokerEpoch: b.epoch.Load, Dial: b.dialLeader,
		Threads: b.cfg.ReplicaFetchers, WaitMax: b.cfg.ReplicaFetchWaitMax, MinBytes: b.cfg.ReplicaFetchMinBytes,
		PartitionBytes: b.cfg.ReplicaFetchMaxBytes, ResponseBytes: b.cfg.ReplicaFetchResponseMaxBytes,
		Backoff: b.cfg.ReplicaFetchBackoff, RequestTimeout: b.cfg.ReplicaSocketTimeout, Logger: b.log,
	})
	b.onStop("replica fetchers", func(context.Context) error { b.fetchers.Close(); return nil })
	m, err := partition.NewManager(ctx, partition.Config{
		BrokerID: b.cfg.ID, BrokerEpoch: b.epoch.Load, FS: vfs.OS, Dirs: b.dirs, Offline: b.offlineDirs,
		Topic: b.topics.get, PrefetchTopics: b.topics.prefetch,
		// Before the controller's first word nothing is known not to be there.
		Known: func(tp partition.TopicPartition) bool {
			im := b.metadata.Image()
			return im.ControllerEpoch == 0 || im.Partition(tp.Topic, tp.Partition) != nil
		},
		TopicID:         b.topicID,
		Alive:           func(id int32) bool { return b.metadata.Image().Alive(id) },
		PromptWatermark: b.cfg.RackAwareReads,
		ISR:             b.isr, Fetchers: b.fetchers, Wheel: b.wheel, Hooks: b.hooks(),
		ReplicaLagTimeMax: b.cfg.ReplicaLagTimeMax, HighWatermarkCheckpoint: b.cfg.HighWatermarkCheckpointInterval,
		RecoveryCheckpoint: b.cfg.RecoveryPointInterval, LogStartCheckpoint: b.cfg.LogStartInterval,
		FlushCheck: b.cfg.FlushSchedulerInterval, RetentionCheck: b.cfg.RetentionCheckInterval,
		ProducerCheck:   b.cfg.ProducerIDExpirationCheck,
		DeleteDelay:     deleteDelay(b.cfg),
		RecoveryThreads: b.cfg.RecoveryThreadsPerDir, MoveThreads: b.cfg.MoveThreads, MoveRate: moveRate(b.cfg), Cleaner: cleanerConfig(b.cfg), Logger: b.log,
	})
	if err != nil {
		return err
	}
	m.SetReplicationThrottle(b.cfg.LeaderThrottle, b.cfg.FollowerThrottle)
	b.partitions = m
	b.onStop("logs", func(context.Context) error { return m.Close() })
	return nil
}

func cleanerConfig(cfg *config.Broker) partition.CleanerConfig {
	return partition.CleanerConfig{
		Disabled: !cfg.CleanerEnabled || cfg.CleanerThreads == 0, Threads: cfg.CleanerThreads,
		Backoff:     max(cfg.CleanerBackoff, time.Millisecond),
		DedupeBytes: cfg.CleanerDedupeBytes, LoadFactor: cfg.CleanerLoadFactor, BufferBytes: cfg.CleanerBufferBytes,
		BytesPerSecond: cfg.CleanerBytesPerSecond,
	}
}

// coordinates is what a coordinator is told of the partitions of its topic.
type coordinates interface {
	OnLeader(partition, epoch int32)
	OnResign(partition, epoch int32)
}

// hooks tell the coordinators and the meter what happens to partitions.
func (b *Broker) hooks() partition.Hooks {
	h := partition.Hooks{
		OnLeadership: func(tp partition.TopicPartition, leader bool, epoch int32) {
			var c coordinates
			switch tp.Topic {
			case protocol.OffsetsTopic:
				c = b.groups
			case protocol.TransactionsTopic:
				c = b.txns
			default:
				return
			}
			if leader {
				c.OnLeader(tp.Partition, epoch)
			} else {
				c.OnResign(tp.Partition, epoch)
			}
		},
		OnDirFailure: b.dirFailed,
	}
	if b.meter != nil {
		h.OnAppend = func(e partition.AppendEvent) {
			if !e.Internal {
				b.meter.Appended(e.Principal, e.TP, e.BaseOffset, e.LastOffset, int64(e.Bytes), int64(e.Records))
			}
		}
		h.OnCommit = b.meter.Committed
		h.OnTruncate = b.meter.Truncated
		h.OnDelete = b.meter.Removed
	}
	return h
}

// dialLeader connects to a partition's leader: where the controller said it is,
// or where the cluster's metadata has it.
func (b *Broker) dialLeader(ctx context.Context, id int32, addr string) (replication.Conn, error) {
	if br := b.metadata.Image().Brokers[id]; br != nil {
		if e, ok := br.Endpoint(b.cfg.InterBrokerListener); ok {
			addr = hostPort(e.Host, e.Port)
		}
	}
	if addr == "" {
		return nil, fmt.Errorf("the address of broker %d is not known", id)
	}
	return b.dialer.dial(ctx, addr)
}

func (b *Broker) startGroups(context.Context) error {
	b.groups = group.New(group.Config{
		MinSessionTimeout: b.cfg.GroupMinSession, MaxSessionTimeout: b.cfg.GroupMaxSession,
		InitialRebalanceDelay: b.cfg.GroupInitialRebalanceDelay, MaxSize: b.cfg.GroupMaxSize,
		MaxOffsetMetadataSize: b.cfg.OffsetMetadataMaxBytes, Memory: b.cfg.GroupMemory,
		OffsetsRetention: b.cfg.OffsetsRetention, OffsetsCheckInterval: b.cfg.OffsetsRetentionCheck, Logger: b.log,
		Topics: b.groupTopics, ConsumerProtocol: b.cfg.ConsumerGroups,
		Settings:               b.ofGroups.get,
		ConsumerSessionTimeout: b.cfg.ConsumerGroupSession, ConsumerHeartbeatInterval: b.cfg.ConsumerGroupHeartbeat,
		ConsumerMaxSize: b.cfg.ConsumerGroupMaxSize, ConsumerAssignors: b.cfg.ConsumerGroupAssignors,
		ConsumerAssignmentInterval: b.cfg.ConsumerGroupAssignment, ConsumerRegexRefresh: b.cfg.ConsumerGroupRegexRefresh,
		Migration: migrationPolicies[b.cfg.ConsumerGroupMigration],
	}, &internalLog{topic: protocol.OffsetsTopic, partitions: b.partitions, metadata: b.metadata, timeout: b.cfg.OffsetsCommitTimeout}, wheelTimers{b.wheel})
	b.onStop("group coordinator", func(context.Context) error { b.groups.Close(); return nil })
	return nil
}

// wheelTimers gives the coordinator the broker's timing wheel.
type wheelTimers struct{ wheel *purgatory.Wheel }

func (t wheelTimers) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return t.wheel.AfterFunc(d, f).Stop
}

func (b *Broker) prepareController(context.Context) error {
	c, err := controller.New(controller.Config{
		BrokerID: b.cfg.ID, ZK: b.zk, Listener: b.cfg.InterBrokerListener,
		Dial: func(ctx context.Context, to coordination.Broker) (controller.Peer, error) {
			e, ok := to.Endpoint(b.cfg.InterBrokerListener)
			if !ok {
				return nil, fmt.Errorf("broker %d has no listener %s", to.ID, b.cfg.InterBrokerListener)
			}
			return b.dialer.dial(ctx, hostPort(e.Host, e.Port))
		},
		UncleanLeaderElection: b.uncleanByDefault, AutoRebalance: b.cfg.AutoLeaderRebalance,
		RebalanceInterval: b.cfg.LeaderImbalanceCheckInterval, ImbalancePercent: b.cfg.LeaderImbalancePercentage,
		NumPartitions: b.cfg.NumPartitions, ReplicationFactor: b.cfg.DefaultReplicationFactor,
		ValidateConfig: func(o map[string]string) error { return b.now().ValidateTopic(o) }, DescribeConfig: b.describeNewTopic, Logger: b.log,
	})
	b.controller = c
	return err
}

func (b *Broker) uncleanByDefault() bool {
	t, err := b.now().Topic(nil)
	return err == nil && t.UncleanElection
}

func (b *Broker) describeNewTopic(_ string, overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	var out []kmsg.CreateTopicsResponseTopicConfig
	for _, e := range b.now().DescribeTopic(overrides, nil) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.ReadOnly, c.Source, c.IsSensitive = e.Name, e.Value, e.ReadOnly, int8(e.Source), e.Sensitive
		out = append(out, c)
	}
	return out
}

func (b *Broker) serve(context.Context) error {
	d := handler.Deps{
		BrokerID: b.cfg.ID, Broker: b.now, Partitions: b.partitions, Metadata: b.metadata, Groups: b.groups, Transactions: b.txns,
		Sessions:   fetchsession.New(fetchsession.Config{Slots: b.cfg.MaxIncrementalFetchSessions}),
		Controller: b.controller, Quotas: b.quotas, Store: store{b.zk}, ACLs: b.acls,
		SASL:        func(l string) *auth.Server { return b.logins[l] },
		EnsureTopic: b.ensureTopic, NextProducerID: b.producerIDs.take, BrokerEpoch: b.epoch.Load, Registered: b.registered,
		Logger: b.log, LogLevel: b.logLevel, Parting: b.parting, SendAway: b.sendAway,
		Features: b.finalized, VerifyTransaction: b.verifier.Verify, VerifyBatches: b.verifier.VerifyBatches,
		VerifyingMax: requestMemory(b.cfg) / 8, // half of what there is for small requests
	}
	if b.meter != nil {
		d.Fetched = b.meter.Fetched
	}
	b.handler = handler.New(b.ctx, d)
	for _, l := range b.listeners {
		l.Serve()
	}
	// The ports were bound first; connections must end before the logs close.
	b.onStop("connections", func(context.Context) error {
		var errs []error
		for _, l := range b.listeners {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	})
	// First what connections wait for.
	b.onStop("verification of transactions", func(context.Context) error { b.stopVerifier(); return nil })
	return nil
}

// register makes this broker known, under this session and every later one.
func (b *Broker) register(ctx context.Context) error {
	me := coordination.Broker{ID: b.cfg.ID, Rack: b.cfg.Rack, JMXPort: -1, Features: map[string]coordination.FeatureRange{}}
	for _, f := range protocol.Features() {
		me.Features[f.Name] = coordination.FeatureRange{Min: f.Min, Max: f.Max}
	}
	for _, e := range b.cfg.Advertised {
		port := e.Port
		if port == 0 {
			addr, ok := b.boundTo(e.Name)
			if !ok {
				return fmt.Errorf("listener %s has no bound port", e.Name)
			}
			port = addr
		}
		me.Endpoints = append(me.Endpoints, coordination.Endpoint{Listener: e.Name, SecurityProtocol: e.Protocol, Host: e.Host, Port: port})
	}
	var once sync.Once
	register := func(ctx context.Context) error {
		epoch, err := b.zk.RegisterBroker(ctx, me)
		if err != nil {
			return err
		}
		b.epoch.Store(epoch)
		once.Do(func() { close(b.registered) })
		b.log.Info("registered", "epoch", epoch, "endpoints", me.Endpoints)
		return nil
	}
	b.zk.OnSession(register)
	b.onStop("registration", func(ctx context.Context) error { return b.zk.UnregisterBroker(ctx, b.cfg.ID, b.epoch.Load()) })
	err := register(ctx)
	if !errors.Is(err, coordination.ErrExpired) {
		return err
	}
	// The session has ended meanwhile, and with the next one it is done.
	select {
	case <-b.registered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *Broker) boundTo(name string) (int32, bool) {
	_, port, err := net.SplitHostPort(b.Addr(name))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(port, 10, 32)
	return int32(n), err == nil
}

// watch follows what others change: configurations of topics, groups and brokers, and quotas.
// ACLs are followed since startAdmission.
func (b *Broker) watch(ctx context.Context) error {
	l, err := b.zk.ListenConfigChanges(ctx, b.configChanged)
	if err != nil {
		return err
	}
	b.onStop("config changes", func(context.Context) error { l.Close(); return nil })
	// What was changed between the first reading and the listening has no
	// notification that is sure to be seen.
	return errors.Join(b.settingsChanged(ctx), b.loadQuotas(ctx), b.loadGroupSettings(ctx), b.followFeatures(ctx))
}

func (b *Broker) configChanged(entity string) error {
	topic, isTopic := strings.CutPrefix(entity, "topics/")
	groupName, isGroup := strings.CutPrefix(entity, groupEntities)
	switch {
	case entity == "": // anything
		b.topics.forgetAll()
		b.partitions.UpdateTopicConfigs()
		b.controller.ElectAgain("")
		return errors.Join(b.settingsChanged(b.ctx), b.loadQuotas(b.ctx), b.loadGroupSettings(b.ctx))
	case isTopic:
		b.topics.forget(topic)
		b.partitions.UpdateTopicConfig(topic)
		b.controller.ElectAgain(topic)
	case entity == "brokers/"+strconv.Itoa(int(b.cfg.ID)), entity == "brokers/"+coordination.DefaultEntity:
		return b.settingsChanged(b.ctx)
	case isGroup:
		return b.groupSettingsChanged(groupName)
	case strings.HasPrefix(entity, "users/"), strings.HasPrefix(entity, "clients/"), strings.HasPrefix(entity, "ips/"):
		values, err := b.zk.Config(b.ctx, entity)
		if err == nil {
			err = b.quotaChanged(entity, values)
		}
		if err != nil && b.ctx.Err() == nil {
			return fmt.Errorf("a changed quota cannot be applied: %s: %w", entity, err)
		}
	}
	return nil
}

func (b *Broker) join(ctx context.Context) error {
	if err := b.controller.Start(ctx); err != nil {
		return err
	}
	b.onStop("controller", func(context.Context) error { b.controller.Stop(); return nil })
	if b.meter != nil {
		b.meter.Start()
		b.onStop("usage meter", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, usageTimeout)
			defer cancel()
			err := b.meter.Close(ctx)
			b.usage.close()
			if errors.Is(err, meter.ErrLeft) {
				b.log.Warn("the usage topic is out of reach", "error", err)
				return nil
			}
			return err
		})
	}
	return nil
}
