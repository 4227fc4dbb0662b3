package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
)

// CleanerConfig are the settings of log compaction. Zero fields take Kafka's default.
type CleanerConfig struct {
	// Disabled: log.cleaner.enable is false.
	Disabled bool
	// Threads is log.cleaner.threads: how many logs are cleaned at one time; 0 = 1.
	Threads int
	// Backoff is log.cleaner.backoff.ms: the pause when there is nothing to clean; 0 = 15 s.
	Backoff time.Duration
	// DedupeBytes is log.cleaner.dedupe.buffer.size, for all threads together; 0 = 128 MiB.
	DedupeBytes int64
	// LoadFactor is log.cleaner.io.buffer.load.factor; 0 = 0.9.
	LoadFactor float64
	// BufferBytes is log.cleaner.io.buffer.size, for all threads together; 0 = 512 KiB.
	BufferBytes int
	// BytesPerSecond is log.cleaner.io.max.bytes.per.second, read and written, of all
	// threads together; 0 = no limit.
	BytesPerSecond int64
}

func (c CleanerConfig) withDefaults() CleanerConfig {
	c.Threads = max(c.Threads, 1)
	if c.Backoff <= 0 {
		c.Backoff = 15 * time.Second
	}
	if c.DedupeBytes <= 0 {
		c.DedupeBytes = 128 << 20
	}
	if c.LoadFactor == 0 {
		c.LoadFactor = 0.9
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = 512 << 10
	}
	return c
}

// cleaner compacts the logs of this broker whose policy says so, leaders' and
// followers' alike, the dirtiest first. A log whose clean fails is left alone until a
// restart; nothing that happens to one keeps the others from being cleaned.
type cleaner struct {
	m    *Manager
	pace pace // of all threads together

	setting sync.Mutex // held while the threads are being replaced
	threads *cleanerThreads

	mu    sync.Mutex // taken before Partition.state
	busy  map[*Partition]bool
	bad   map[*Partition]error
	whole map[*Partition]bool // to be cleaned once more, dirty or not
	stats CleanerStats        // what is counted, not what is asked for anew
}

// cleanerThreads are the cleaner's threads under one set of settings.
type cleanerThreads struct {
	cfg  CleanerConfig
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

func (c *cleaner) init(m *Manager) {
	c.m = m
	c.busy, c.bad, c.whole = map[*Partition]bool{}, map[*Partition]error{}, map[*Partition]bool{}
}

// start begins cleaning; it ends with the Manager.
func (c *cleaner) start(cfg CleanerConfig) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	t := &cleanerThreads{cfg: cfg.withDefaults()}
	t.ctx, t.stop = context.WithCancel(context.Background())
	var maps []*commitlog.OffsetMap
	if !cfg.Disabled {
		for range t.cfg.Threads {
			offsets, err := commitlog.NewOffsetMap(t.cfg.DedupeBytes/int64(t.cfg.Threads), t.cfg.LoadFactor)
			if err != nil {
				return err
			}
			maps = append(maps, offsets)
		}
	}
	c.end()
	c.pace.set(t.cfg.BytesPerSecond)
	c.threads = t
	for _, offsets := range maps {
		t.wg.Add(1)
		if !c.m.background(func() { defer t.wg.Done(); c.run(t, offsets) }) {
			t.wg.Done()
		}
	}
	return nil
}

// SetCleaner changes Config.Cleaner. Cleans that are under way under other settings
// end with nothing changed, and begin anew.
func (m *Manager) SetCleaner(cfg CleanerConfig) error {
	c := &m.cleaner
	c.setting.Lock()
	same := c.threads.cfg == cfg.withDefaults()
	c.setting.Unlock()
	if same {
		return nil
	}
	return c.start(cfg)
}

// end stops the threads there are and waits for them. With setting held.
func (c *cleaner) end() {
	if c.threads != nil {
		c.threads.stop()
		c.threads.wg.Wait()
	}
}

func (c *cleaner) stop() {
	c.setting.Lock()
	defer c.setting.Unlock()
	c.end()
}

func (c *cleaner) run(t *cleanerThreads, offsets *commitlog.OffsetMap) {
	for t.ctx.Err() == nil {
		if job := c.pick(t.ctx); job != nil {
			c.do(t, job, offsets)
			continue
		}
		offsets.Release()
		wait(t.ctx.Done(), t.cfg.Backoff)
	}
}

// cleanKind is what is to be done with a log.
type cleanKind int

const (
	cleanDirty    cleanKind = iota // compact what is dirty
	cleanHorizons                  // drop tombstones and markers whose time is over
	findHorizons                   // find out when that will be
)

type cleanJob struct {
	p     *Partition
	log   *commitlog.Log
	kind  cleanKind
	from  int64 // first dirty offset
	upTo  int64
	ratio float64
	cuts  uint64
}

// pick chooses the log with the largest dirty share of those above their
// min.cleanable.dirty.ratio or beyond their max.compaction.lag.ms; failing that, one
// with tombstones to drop, and then one of which that has to be found out. The log is
// nobody else's until release.
func (c *cleaner) pick(ctx context.Context) *cleanJob {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.bad, func(p *Partition, _ error) bool { return c.deleted(p) })
	maps.DeleteFunc(c.whole, func(p *Partition, _ bool) bool { return c.deleted(p) })
	var best *cleanJob
	for _, p := range c.m.all() {
		if c.busy[p] || c.bad[p] != nil || !p.compacts() {
			continue
		}
		job := c.look(ctx, p)
		if job != nil && (best == nil || job.kind < best.kind || job.kind == best.kind && job.ratio > best.ratio) {
			best = job
		}
	}
	if best != nil {
		c.busy[best.p] = true
	}
	return best
}

func (c *cleaner) deleted(p *Partition) bool { return c.m.Partition(p.tp) != p }

// compacts tells whether the replica's log is for the cleaner. While it is copied to
// another folder it rests, or the copy could miss a tombstone that the record before
// it, already copied, needs.
func (p *Partition) compacts() bool {
	return p.config.Load().Log.Compact && !p.gone() && p.copying() == nil
}

// look tells what there is to do for a log, nil for nothing. With mu held.
func (c *cleaner) look(ctx context.Context, p *Partition) *cleanJob {
	job := &cleanJob{p: p, log: p.log()}
	job.from, job.upTo, job.cuts = p.cleanable()
	now := c.m.now()
	state, err := job.log.Cleanable(job.from, job.upTo, now)
	if err != nil {
		c.fail(ctx, job, err)
		return nil
	}
	if state.Reset {
		if !p.config.Load().Log.KeepForever {
			c.m.logger.Debug("log's start has passed what was clean", "partition", p.tp.String(), "clean_up_to", job.from, "start", state.FirstDirty)
		} else {
			c.m.logger.Warn("log was clean up to an offset that it does not have", "partition", p.tp.String(), "clean_up_to", job.from, "from", state.FirstDirty)
		}
		p.setCleaned(state.FirstDirty, job.cuts)
	}
	job.from, job.upTo, job.ratio = state.FirstDirty, state.UpTo, state.Ratio()
	if c.whole[p] || state.DirtyBytes > 0 && (state.Overdue > 0 || job.ratio > p.config.Load().MinCleanableRatio) {
		return job
	}
	due, known := job.log.NextHorizon(job.from)
	switch {
	case due <= now.UnixMilli():
		job.kind = cleanHorizons
	case !known:
		job.kind = findHorizons
	default:
		return nil
	}
	return job
}

// do carries a job out. Whatever comes of it concerns this log only.
func (c *cleaner) do(t *cleanerThreads, job *cleanJob, offsets *commitlog.OffsetMap) {
	defer func() {
		r := recover()
		c.mu.Lock()
		defer c.mu.Unlock()
		if r != nil {
			c.m.logger.Error("BUG: panic in a clean", "partition", job.p.tp.String(), "panic", r, "stack", string(debug.Stack()))
			c.spoil(job.p, fmt.Errorf("panic: %v", r))
		}
		delete(c.busy, job.p)
	}()
	o := commitlog.CleanOptions{
		FirstDirty: job.from, UpTo: job.upTo, Now: c.m.now(), Map: offsets,
		Buffer: max(t.cfg.BufferBytes/t.cfg.Threads/2, 4<<10), HorizonsOnly: job.kind == cleanHorizons,
		Throttle: func(ctx context.Context, n int) error { return c.throttle(ctx, job.p, n) },
	}
	var st commitlog.CleanStats
	var err error
	if job.kind == findHorizons {
		err = job.log.FindHorizons(t.ctx, o)
	} else {
		st, err = job.log.Clean(t.ctx, o)
	}
	if err != nil {
		c.mu.Lock()
		c.fail(t.ctx, job, err)
		c.mu.Unlock()
		return
	}
	switch {
	case job.kind == findHorizons:
	case job.kind == cleanDirty && st.End <= job.from && job.upTo > job.from:
		c.mu.Lock()
		c.spoil(job.p, fmt.Errorf("BUG: clean of %d..%d got no further than %d", job.from, job.upTo, st.End))
		c.mu.Unlock()
	default:
		c.cleaned(job, st)
	}
}

// throttle is where a clean waits, and ends when the log is not for the cleaner any more.
func (c *cleaner) throttle(ctx context.Context, p *Partition, n int) error {
	if !p.compacts() {
		return commitlog.ErrCleanAborted
	}
	c.pace.wait(n, c.m.now(), ctx.Done())
	return ctx.Err()
}

func (c *cleaner) cleaned(job *cleanJob, st commitlog.CleanStats) {
	p := job.p
	if job.kind == cleanDirty && p.setCleaned(st.End, job.cuts) {
		d := p.dir()
		if err := c.m.writeCleaned(d); err != nil {
			c.m.failDir(d, err)
		}
	}
	c.m.logger.Info("compacted a log", "partition", p.tp.String(), "from", st.FirstDirty, "to", st.End, "horizons_only", job.kind == cleanHorizons,
		"segments", st.SegmentsRead, "segments_left", st.SegmentsNow, "records", st.RecordsRead, "records_left", st.RecordsKept,
		"bytes", st.BytesRead, "bytes_left", st.BytesWritten, "without_key", st.WithoutKey, "tombstones", st.Tombstones,
		"keys", st.MapKeys, "map_full", st.MapFull, "map_used", st.MapUtilization, "took", st.Elapsed)
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.whole, p); st.EmptiedTxns {
		c.whole[p] = true
	}
	c.stats.Cleans++
	c.stats.BytesRead += st.BytesRead
	c.stats.BytesWritten += st.BytesWritten
	c.stats.RecordsWithoutKey += st.WithoutKey
	c.stats.Last, c.stats.LastPartition, c.stats.LastAt = st, p.tp, c.m.now()
}

// fail judges the error of a job, which threads with this ctx had in hand. With mu held.
func (c *cleaner) fail(ctx context.Context, job *cleanJob, err error) {
	var ke *kerr.Error
	switch {
	case ctx.Err() != nil, errors.Is(err, commitlog.ErrCleanAborted), errors.Is(err, commitlog.ErrClosed):
		c.stats.Aborted++
		c.m.logger.Debug("clean was aborted", "partition", job.p.tp.String(), "err", err)
	case job.p.log() != job.log: // the replica has moved; what happens to the old log is nothing to us
		c.stats.Aborted++
	case errors.As(err, &ke) && ke.Code == kerr.KafkaStorageError.Code:
		_ = job.p.broken(err)
	default:
		c.spoil(job.p, err)
	}
}

// spoil leaves a log alone from now on. With mu held.
func (c *cleaner) spoil(p *Partition, err error) {
	c.bad[p] = err
	c.stats.Failures++
	c.m.logger.Error("log cannot be compacted and is left as it is until a restart", "partition", p.tp.String(), "err", err)
}
