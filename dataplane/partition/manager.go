package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
)

// Manager holds every replica of this broker.
type Manager struct {
	cfg    Config
	lag    time.Duration
	logger *slog.Logger

	produces *purgatory.Purgatory[*Partition]
	fetches  *purgatory.Purgatory[*Partition]

	ctl             sync.Mutex
	controllerEpoch int32

	// configs is held from the reading of a topic's configuration until it holds
	// for all replicas there are: a change finds a new replica, or the new replica
	// finds the change.
	configs sync.Mutex

	mu     sync.RWMutex
	parts  map[TopicPartition]*Partition
	offIn  map[*commitlog.Dir]error // folders that have failed
	closed bool

	checkpoints checkpoints

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
	def(&c.RetentionCheck, 5*time.Minute)
	def(&c.ProducerCheck, 10*time.Minute)
	def(&c.DeleteDelay, time.Minute)
	c.RecoveryThreads = max(c.RecoveryThreads, 1)
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
		controllerEpoch: -1,
		parts:           map[TopicPartition]*Partition{},
		offIn:           map[*commitlog.Dir]error{},
		stop:            make(chan struct{}),
	}
	m.checkpoints.init()
	for _, d := range cfg.Dirs {
		if err := m.load(ctx, d); err != nil {
			if ctx.Err() != nil {
				m.abandon()
				return nil, err
			}
			m.failDir(d, err)
		}
	}
	if len(m.offIn) == len(cfg.Dirs) {
		m.abandon()
		return nil, fmt.Errorf("none of log.dirs can be used: %w", m.offIn[cfg.Dirs[0]])
	}
	m.every(cfg.HighWatermarkCheckpoint, m.writeHighWatermarks)
	m.every(cfg.RecoveryCheckpoint, m.writeAllRecoveryPoints)
	m.every(m.lag/2, m.shrinkAll)
	m.every(cfg.RetentionCheck, m.retain)
	m.every(cfg.ProducerCheck, m.expireProducers)
	m.every(min(time.Minute, cfg.DeleteDelay), m.sweep)
	return m, nil
}

// load opens the logs of one folder, RecoveryThreads at a time.
func (m *Manager) load(ctx context.Context, d *commitlog.Dir) error {
	tps, err := d.Partitions()
	if err != nil {
		return err
	}
	hw, err1 := d.ReadCheckpoint(commitlog.HighWatermarkCheckpoint)
	rp, err2 := d.ReadCheckpoint(commitlog.RecoveryPointCheckpoint)
	ls, err3 := d.ReadCheckpoint(commitlog.LogStartCheckpoint)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, m.cfg.RecoveryThreads)
		errMu sync.Mutex
		errs  []error
	)
	for _, tp := range tps {
		if ctx.Err() != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := m.loadOne(d, tp, hw[tp], rp[tp], ls[tp]); err != nil {
				errMu.Lock()
				errs = append(errs, fmt.Errorf("%s: %w", tp, err))
				errMu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	for _, offsets := range []map[TopicPartition]int64{hw, rp, ls} {
		for tp := range offsets {
			if p := m.Partition(tp); p == nil || p.dir != d {
				// Deleted, and killed before the checkpoints could say so.
				m.forgetDeleted(d)
				return nil
			}
		}
	}
	return nil
}

func (m *Manager) loadOne(d *commitlog.Dir, tp TopicPartition, hw, rp, ls int64) error {
	tc := m.cfg.Topic(tp.Topic)
	log, err := commitlog.Open(m.cfg.FS, d.PartitionPath(tp), tc.Log, commitlog.OpenOptions{
		CleanShutdown: d.CleanShutdown(), RecoveryPoint: rp, LogStartOffset: ls, Now: m.cfg.Now, Logger: m.logger,
	})
	if err != nil {
		return err
	}
	id, _, err := commitlog.ReadTopicID(m.cfg.FS, d.PartitionPath(tp))
	if err != nil {
		return errors.Join(err, log.Close())
	}
	p := newPartition(m, tp, d, log, hw)
	p.topicID = id
	p.config.Store(&tc)
	m.mu.Lock()
	other := m.parts[tp]
	if other == nil {
		m.parts[tp] = p
	}
	m.mu.Unlock()
	if other != nil {
		m.logger.Error("partition lies in two folders; the second is left alone", "partition", tp.String(), "used", other.dir.Path(), "ignored", d.Path())
		return log.Close()
	}
	if f := m.cfg.Hooks.OnTruncate; f != nil && !d.CleanShutdown() {
		f(tp, p.end)
	}
	if f := m.cfg.Hooks.OnCommit; f != nil {
		f(tp, p.hw)
	}
	return nil
}

// create makes the log of a replica that is new here, in the folder that holds
// the fewest. With ctl held.
func (m *Manager) create(tp TopicPartition, id protocol.UUID) (*Partition, error) {
	d := m.leastUsed()
	if d == nil {
		return nil, kerr.KafkaStorageError
	}
	m.configs.Lock()
	defer m.configs.Unlock()
	path, tc := d.PartitionPath(tp), m.cfg.Topic(tp.Topic)
	err := m.cfg.FS.MkdirAll(path)
	if err == nil && id != (protocol.UUID{}) {
		err = commitlog.WriteTopicID(m.cfg.FS, path, id)
	}
	var log *commitlog.Log
	if err == nil {
		log, err = commitlog.Open(m.cfg.FS, path, tc.Log, commitlog.OpenOptions{CleanShutdown: true, Now: m.cfg.Now, Logger: m.logger})
	}
	if err != nil {
		m.failDir(d, err)
		return nil, fmt.Errorf("creating %s: %w (%w)", path, err, kerr.KafkaStorageError)
	}
	p := newPartition(m, tp, d, log, 0)
	p.topicID = id
	p.config.Store(&tc)
	m.mu.Lock()
	m.parts[tp] = p
	m.mu.Unlock()
	return p, nil
}

func (m *Manager) leastUsed() *commitlog.Dir {
	m.mu.RLock()
	defer m.mu.RUnlock()
	count := map[*commitlog.Dir]int{}
	for _, p := range m.parts {
		count[p.dir]++
	}
	var best *commitlog.Dir
	for _, d := range m.cfg.Dirs {
		if m.offIn[d] == nil && (best == nil || count[d] < count[best]) {
			best = d
		}
	}
	return best
}

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
	for _, p := range m.configure(topic) {
		p.changed(true)
	}
}

// configure gives the partitions whose high watermark the change has moved: a
// lower min.insync.replicas may commit what waits.
func (m *Manager) configure(topic string) (committed []*Partition) {
	m.configs.Lock()
	defer m.configs.Unlock()
	tc := m.cfg.Topic(topic)
	for _, p := range m.all() {
		if p.tp.Topic != topic {
			continue
		}
		p.config.Store(&tc)
		p.log.SetConfig(tc.Log)
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

// failDir takes a folder and all its replicas offline. It may be called with a
// partition's append lock held; the waiters are therefore woken from elsewhere.
func (m *Manager) failDir(d *commitlog.Dir, err error) {
	m.mu.Lock()
	if m.offIn[d] != nil || m.closed {
		m.mu.Unlock()
		return
	}
	m.offIn[d] = err
	var lost []*Partition
	for _, p := range m.parts {
		if p.dir == d {
			lost = append(lost, p)
		}
	}
	m.wg.Add(1)
	m.mu.Unlock()
	m.logger.Error("log folder failed; its partitions are offline until a restart", "dir", d.Path(), "partitions", len(lost), "err", err)
	tps := make([]TopicPartition, len(lost))
	for i, p := range lost {
		p.fail(err)
		tps[i] = p.tp
	}
	go func() {
		defer m.wg.Done()
		if m.cfg.Fetchers != nil {
			m.cfg.Fetchers.Remove(tps)
		}
		for _, p := range lost {
			m.produces.Check(p)
			m.fetches.Check(p)
		}
		if f := m.cfg.Hooks.OnDirFailure; f != nil {
			f(d.Path(), err)
		}
	}()
}

func (m *Manager) offline(d *commitlog.Dir) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.offIn[d] != nil
}

// Close stops the periodic work, ends the waiting operations, flushes and closes
// all logs and writes the checkpoints. Requests and fetchers that still run are
// refused. An error means that the shutdown was not clean: then the dirs must
// not be closed as clean ones.
func (m *Manager) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	close(m.stop)
	m.wg.Wait()
	m.produces.Close()
	m.fetches.Close()

	m.ctl.Lock()
	defer m.ctl.Unlock()
	var errs []error
	for _, p := range m.all() {
		p.append.Lock()
		p.state.Lock()
		p.version.Add(1)
		p.role = idle
		failed := p.failed
		p.state.Unlock()
		if failed == nil {
			// Close flushes, so that the recovery point written below is the end.
			if err := p.log.Close(); err != nil {
				errs = append(errs, fmt.Errorf("closing %s: %w", p.tp, err))
			}
		}
		p.append.Unlock()
	}
	for _, d := range m.cfg.Dirs {
		if m.offline(d) {
			errs = append(errs, fmt.Errorf("%s: %w", d.Path(), m.offIn[d]))
			continue
		}
		errs = append(errs, m.writeRecoveryPoints(d), m.writeHighWatermark(d))
	}
	return errors.Join(errs...)
}

// abandon closes what a failed start has opened.
func (m *Manager) abandon() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	close(m.stop)
	m.wg.Wait()
	m.produces.Close()
	m.fetches.Close()
	for _, p := range m.all() {
		_ = p.log.Close()
	}
}
