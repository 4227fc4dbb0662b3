package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/purgatory"
)

// Manager holds every replica of this broker.
type Manager struct {
	cfg    Config
	lag    time.Duration
	logger *slog.Logger

	produces *purgatory.Purgatory[*Partition]
	fetches  *purgatory.Purgatory[*Partition]
	deletes  *purgatory.Purgatory[*Partition]

	handovers *purgatory.Purgatory[*Partition]
	handing   atomic.Int64 // partitions whose successors are awaited

	leaderRate   throttle // of what leaders send to throttled replicas
	followerRate throttle // of what throttled followers fetch

	ctl             sync.Mutex
	controllerEpoch int32
	preferred       map[TopicPartition]*commitlog.Dir // where a replica that is not there yet is to be made
	made            map[*commitlog.Dir]bool           // folders with new replicas whose names are not yet synced
	ready           map[TopicPartition]*commitlog.Dir // where the folders of replicas lie whose logs are about to be made

	// configs is held from the reading of a topic's configuration until it holds
	// for all replicas there are: a change finds a new replica, or the new replica
	// finds the change.
	configs sync.Mutex

	mu      sync.RWMutex
	parts   map[TopicPartition]*Partition
	offIn   map[*commitlog.Dir]error // folders that have failed
	damaged map[TopicPartition]damagedReplica
	closed  bool
	clean   map[*commitlog.Dir]bool // after Close: everything in it was closed in order

	recoveryThreads atomic.Int32
	deleteDelay     atomic.Int64 // Config.DeleteDelay

	checkpoints checkpoints
	movers      movers
	cleaner     cleaner

	stop chan struct{}
	wg   sync.WaitGroup
}

func (c Config) withDefaults() Config {
	def := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	def(&c.ReplicaLagTimeMax, 30*time.Second)
	def(&c.HighWatermarkCheckpoint, 5*time.Second)
	def(&c.RecoveryCheckpoint, time.Minute)
	def(&c.LogStartCheckpoint, time.Minute)
	def(&c.FlushCheck, maxFlushCheck)
	c.FlushCheck = min(c.FlushCheck, maxFlushCheck)
	def(&c.RetentionCheck, 5*time.Minute)
	def(&c.ProducerCheck, 10*time.Minute)
	def(&c.DeleteDelay, time.Minute)
	c.RecoveryThreads = max(c.RecoveryThreads, 1)
	if c.MoveThreads <= 0 {
		c.MoveThreads = len(c.Dirs)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.BrokerEpoch == nil {
		c.BrokerEpoch = func() int64 { return -1 }
	}
	return c
}

// NewManager opens all logs in the dirs and starts the periodic work. A folder
// that cannot be read is taken offline; only if all are it is an error. The
// replicas that it finds serve nothing until the controller's first LeaderAndIsr.
func NewManager(ctx context.Context, cfg Config) (*Manager, error) {
	cfg = cfg.withDefaults()
	if cfg.Topic == nil || cfg.Wheel == nil || cfg.FS == nil || len(cfg.Dirs) == 0 {
		return nil, errors.New("partition: Topic, Wheel, FS and at least one of Dirs must be set")
	}
	m := &Manager{
		cfg: cfg, lag: cfg.ReplicaLagTimeMax, logger: cfg.Logger,
		produces:        purgatory.New[*Partition](cfg.Wheel),
		fetches:         purgatory.New[*Partition](cfg.Wheel),
		deletes:         purgatory.New[*Partition](cfg.Wheel),
		controllerEpoch: -1,
		handovers:       purgatory.New[*Partition](cfg.Wheel),
		preferred:       map[TopicPartition]*commitlog.Dir{},
		made:            map[*commitlog.Dir]bool{},
		ready:           map[TopicPartition]*commitlog.Dir{},
		parts:           map[TopicPartition]*Partition{},
		offIn:           map[*commitlog.Dir]error{},
		damaged:         map[TopicPartition]damagedReplica{},
		clean:           map[*commitlog.Dir]bool{},
		stop:            make(chan struct{}),
	}
	m.recoveryThreads.Store(int32(cfg.RecoveryThreads))
	m.deleteDelay.Store(int64(cfg.DeleteDelay))
	m.checkpoints.init()
	m.movers.init(m)
	m.cleaner.init(m)
	if err := m.load(ctx); err != nil {
		m.abandon()
		return nil, err
	}
	if err := m.cleaner.start(cfg.Cleaner); err != nil {
		m.abandon()
		return nil, err
	}
	m.every(cfg.HighWatermarkCheckpoint, m.writeHighWatermarks)
	m.every(cfg.RecoveryCheckpoint, m.writeAllRecoveryPoints)
	m.every(cfg.LogStartCheckpoint, m.writeAllStarts)
	m.every(cfg.FlushCheck, m.flushDue)
	m.every(m.lag/2, m.shrinkAll)
	m.every(cfg.RetentionCheck, m.retain)
	m.every(cfg.ProducerCheck, m.expireProducers)
	m.every(time.Second, m.sweepDue())
	return m, nil
}

// SetRecoveryThreads changes Config.RecoveryThreads, which the stop goes by, too.
func (m *Manager) SetRecoveryThreads(n int) { m.recoveryThreads.Store(int32(max(n, 1))) }

// SetDeleteDelay changes Config.DeleteDelay.
func (m *Manager) SetDeleteDelay(d time.Duration) { m.deleteDelay.Store(int64(max(d, 0))) }

// Partition is the replica of tp, nil if there is none.
func (m *Manager) Partition(tp TopicPartition) *Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.parts[tp]
}

// Partitions lists all replicas, ordered by topic and number.
func (m *Manager) Partitions() []*Partition {
	ps := m.all()
	slices.SortFunc(ps, func(a, b *Partition) int {
		return cmp.Or(cmp.Compare(a.tp.Topic, b.tp.Topic), cmp.Compare(a.tp.Partition, b.tp.Partition))
	})
	return ps
}

func (m *Manager) all() []*Partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ps := make([]*Partition, 0, len(m.parts))
	for _, p := range m.parts {
		ps = append(ps, p)
	}
	return ps
}

// UpdateTopicConfig applies a topic's changed configuration.
func (m *Manager) UpdateTopicConfig(topic string) {
	m.configure(func(tp TopicPartition) bool { return tp.Topic == topic })
}

// UpdateTopicConfigs applies the changed configuration of all topics.
func (m *Manager) UpdateTopicConfigs() {
	m.configure(func(TopicPartition) bool { return true })
}

func (m *Manager) configure(which func(TopicPartition) bool) {
	for _, p := range m.reconfigured(which) {
		p.changed(true)
	}
}

// reconfigured gives the partitions whose high watermark the change has moved: a
// lower min.insync.replicas may commit what waits.
func (m *Manager) reconfigured(which func(TopicPartition) bool) (committed []*Partition) {
	m.configs.Lock()
	defer m.configs.Unlock()
	read := map[string]*TopicConfig{}
	for _, p := range m.all() {
		if !which(p.tp) {
			continue
		}
		tc := read[p.tp.Topic]
		if tc == nil {
			c := m.cfg.Topic(p.tp.Topic)
			tc = &c
			read[p.tp.Topic] = tc
		}
		p.config.Store(tc)
		p.log().SetConfig(tc.Log)
		if f := p.copying(); f != nil {
			f.log.SetConfig(tc.Log)
		}
		p.state.Lock()
		if p.advance(m.now()) {
			committed = append(committed, p)
		}
		p.state.Unlock()
	}
	return committed
}

// absent is the error for a partition that is not served here.
func (m *Manager) absent(tp TopicPartition) error {
	if _, ok := m.damagedAt(tp); ok {
		return kerr.KafkaStorageError
	}
	if m.cfg.Known != nil && m.cfg.Known(tp) {
		return kerr.NotLeaderForPartition
	}
	return kerr.UnknownTopicOrPartition
}

func (m *Manager) alive(broker int32) bool { return m.cfg.Alive == nil || m.cfg.Alive(broker) }

func (m *Manager) now() time.Time { return m.cfg.Now() }

func (m *Manager) submit(c *ISRChange) {
	if c != nil {
		m.cfg.ISR.Submit(*c)
	}
}

// Close stops the periodic work, ends the waiting operations, flushes and closes
// all logs and writes the checkpoints. Requests and fetchers that still run are
// refused. An error means that something in a folder that has not failed could
// not be closed in order; ClosedClean tells of which folders that is not so.
func (m *Manager) Close() error {
	if !m.end() {
		return nil
	}
	m.ctl.Lock()
	defer m.ctl.Unlock()
	var mu sync.Mutex
	var errs []error
	bad := map[*commitlog.Dir]bool{}
	closing := func(d *commitlog.Dir, what string, err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			bad[d] = true
			errs = append(errs, fmt.Errorf("closing %s: %w", what, err))
		}
	}
	all := m.all()
	inParallel(int(m.recoveryThreads.Load())*len(m.cfg.Dirs), len(all), func(i int) {
		p := all[i]
		p.append.Lock()
		defer p.append.Unlock()
		p.state.Lock()
		p.version.Add(1)
		p.role = idle
		failed, f := p.failed, p.future
		p.state.Unlock()
		if failed == nil {
			// Close flushes, so that the recovery point written below is the end.
			closing(p.dir(), p.tp.String(), p.log().Close())
		}
		if f != nil {
			closing(f.dir, f.path, f.log.Close())
		}
	})
	for _, d := range m.cfg.Dirs {
		if m.offline(d) {
			continue
		}
		closing(d, "the checkpoints of "+d.Path(), errors.Join(m.writeRecoveryPoints(d), m.writeHighWatermark(d)))
		m.clean[d] = !bad[d] && !m.hasDamaged(d) // what was not opened is to be looked at again
	}
	return errors.Join(errs...)
}

// ClosedClean tells, after Close, that all logs of a folder were closed in order:
// only then may it get its clean shutdown marker.
func (m *Manager) ClosedClean(d *commitlog.Dir) bool {
	m.ctl.Lock()
	defer m.ctl.Unlock()
	return m.clean[d]
}

// end stops what runs by itself; false if that has been done before.
func (m *Manager) end() bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.closed = true
	m.mu.Unlock()
	close(m.stop)
	m.cleaner.stop()
	m.wg.Wait()
	m.produces.Close()
	m.fetches.Close()
	m.deletes.Close()
	m.handovers.Close()
	return true
}

// abandon closes what a failed start has opened.
func (m *Manager) abandon() {
	m.end()
	for _, p := range m.all() {
		_ = p.log().Abandon()
		if f := p.copying(); f != nil {
			_ = f.log.Abandon()
		}
	}
}
