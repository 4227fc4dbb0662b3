package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
)

// loading is the start of a Manager. A folder that cannot be read is taken offline
// with all that is in it.
type loading struct {
	m        *Manager
	listings map[*commitlog.Dir]commitlog.Listing
	points   map[*commitlog.Dir]checkpointed
	progress recovering

	mu      sync.Mutex
	doubles []*Partition // lie in a second folder as well
}

// checkpointed is what a folder's checkpoints say.
type checkpointed struct{ hw, recovery, start, cleaned map[TopicPartition]int64 }

// load opens the logs of all folders; an error if none of these can be used.
func (m *Manager) load(ctx context.Context) error {
	l := &loading{m: m, listings: map[*commitlog.Dir]commitlog.Listing{}, points: map[*commitlog.Dir]checkpointed{}}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, d := range m.cfg.Dirs {
		if err := l.read(d); err != nil {
			m.failDir(d, err)
		}
	}
	if m.cfg.PrefetchTopics != nil {
		m.cfg.PrefetchTopics(l.topics())
	}
	failed := make([]error, len(m.cfg.Dirs))
	all := 0
	for _, listing := range l.listings {
		all += len(listing.Current)
	}
	l.progress.watch(m, all)
	var wg sync.WaitGroup
	for i, d := range m.cfg.Dirs {
		if !m.offline(d) {
			wg.Go(func() { failed[i] = l.open(ctx, d) })
		}
	}
	wg.Wait()
	l.progress.done(m)
	if ctx.Err() != nil {
		for i, d := range m.cfg.Dirs {
			if failed[i] == nil && !m.offline(d) && !m.hasDamaged(d) {
				failed[i] = l.giveBack(d)
			}
		}
		return errors.Join(append(failed, ctx.Err())...)
	}
	for i, err := range failed {
		if err != nil {
			m.failDir(m.cfg.Dirs[i], err)
		}
	}
	for _, p := range l.doubles {
		l.settle(p)
	}
	for _, d := range m.cfg.Dirs {
		if !m.offline(d) {
			l.futures(d)
		}
	}
	for _, d := range m.cfg.Dirs {
		if !m.offline(d) {
			l.tidy(d)
		}
		if !m.offline(d) && !d.CleanShutdown() {
			// A recovery point above what is left would let the next crash's damage pass for
			// that of a disk which had it safely.
			if err := m.writeRecoveryPoints(d); err != nil {
				m.failDir(d, err)
			}
		}
	}
	for _, p := range m.all() {
		if p.gone() {
			continue
		}
		if f := m.cfg.Hooks.OnTruncate; f != nil && !p.dir().CleanShutdown() {
			f(p.tp, p.end)
		}
		if f := m.cfg.Hooks.OnCommit; f != nil {
			f(p.tp, p.hw)
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.offIn) == len(m.cfg.Dirs) {
		return fmt.Errorf("none of log.dirs can be used: %w", m.offIn[m.cfg.Dirs[0]])
	}
	return nil
}

// giveBack closes the logs of a folder when the start is called off. If it was clean,
// so it is again: the logs that were opened have got nothing, and what the checkpoints
// say, of those that were not, too, still holds.
func (l *loading) giveBack(d *commitlog.Dir) error {
	if !d.CleanShutdown() {
		return nil
	}
	for _, p := range append(l.m.all(), l.doubles...) {
		if p.dir() != d {
			continue
		}
		if err := p.log().Close(); err != nil {
			return fmt.Errorf("closing %s: %w", p.tp, err)
		}
	}
	d.GiveBack()
	return nil
}

// topics are those of all replicas that are here.
func (l *loading) topics() []string {
	topics := map[string]bool{}
	for _, listing := range l.listings {
		for _, f := range listing.Current {
			topics[f.TP.Topic] = true
		}
	}
	return slices.Collect(maps.Keys(topics))
}

// read looks at a folder without opening a log.
func (l *loading) read(d *commitlog.Dir) error {
	listing, err := d.List()
	if err != nil {
		return err
	}
	hw, err1 := l.checkpoint(d, commitlog.HighWatermarkCheckpoint)
	rp, err2 := l.checkpoint(d, commitlog.RecoveryPointCheckpoint)
	ls, err3 := l.checkpoint(d, commitlog.LogStartCheckpoint)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	for _, path := range listing.Stray {
		l.m.logger.Warn("folder belongs to no replica and is left alone", "path", path)
	}
	l.listings[d], l.points[d] = listing, checkpointed{hw, rp, ls, l.m.readCleaned(d)}
	return d.Claim()
}

// checkpoint reads one of a folder's checkpoints. A damaged one counts as empty, as in
// Kafka: then more is scanned than needed, watermarks are found anew with the leader,
// and logs start where their first segments do.
func (l *loading) checkpoint(d *commitlog.Dir, name string) (map[TopicPartition]int64, error) {
	offsets, err := d.ReadCheckpoint(name)
	if err != nil && !errors.Is(err, kerr.KafkaStorageError) {
		l.m.logger.Warn("checkpoint is damaged and counts as empty", "err", err)
		return map[TopicPartition]int64{}, nil
	}
	return offsets, err
}

// open opens the logs of one folder, RecoveryThreads at a time.
func (l *loading) open(ctx context.Context, d *commitlog.Dir) error {
	all := l.listings[d].Current
	errs := make([]error, len(all))
	inParallel(l.m.cfg.RecoveryThreads, len(all), func(i int) {
		if ctx.Err() == nil {
			if err := l.openOne(ctx, d, all[i]); err != nil {
				errs[i] = fmt.Errorf("%s: %w", all[i].TP, err)
			}
		}
	})
	return errors.Join(errs...)
}

// inParallel calls do for 0 to n-1, so many at a time.
func inParallel(threads, n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(threads, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

func (l *loading) openOne(ctx context.Context, d *commitlog.Dir, f commitlog.Folder) error {
	m := l.m
	tc := m.cfg.Topic(f.TP.Topic)
	log, err := l.openLog(ctx, d, f, tc)
	var id protocol.UUID
	if err == nil {
		if id, _, err = commitlog.ReadTopicID(m.cfg.FS, f.Path); err != nil {
			_ = log.Abandon()
		}
	}
	if err != nil && ctx.Err() == nil && structural(err) {
		l.damage(d, f.TP, err)
		return nil
	}
	if err != nil {
		return err
	}
	l.progress.opened(log.Recovery())
	p := newPartition(m, f.TP, d, log, l.points[d].hw[f.TP])
	p.topicID = id
	p.config.Store(&tc)
	if at, ok := l.points[d].cleaned[f.TP]; ok && at <= log.EndOffset() {
		p.cleaned = at
	} else if ok { // before more comes, which would pass for clean
		m.logger.Warn("log was clean up to an offset that it does not have", "partition", f.TP.String(), "clean_up_to", at, "end", log.EndOffset())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[f.TP] == nil {
		m.parts[f.TP] = p
		return nil
	}
	l.mu.Lock()
	l.doubles = append(l.doubles, p)
	l.mu.Unlock()
	return nil
}

func (l *loading) openLog(ctx context.Context, d *commitlog.Dir, f commitlog.Folder, tc TopicConfig) (*commitlog.Log, error) {
	at := l.points[d]
	return l.m.openLog(d, f.Path, tc, commitlog.OpenOptions{
		Context: ctx, CleanShutdown: d.CleanShutdown(), RecoveryPoint: at.recovery[f.TP], LogStartOffset: at.start[f.TP], CleanedUpTo: at.cleaned[f.TP],
	})
}

func (m *Manager) openLog(d *commitlog.Dir, path string, tc TopicConfig, o commitlog.OpenOptions) (*commitlog.Log, error) {
	o.Now, o.Logger, o.Background, o.OnFailure = m.cfg.Now, m.logger, m.cfg.Background, func(err error) { m.failLater(d, err) }
	return commitlog.Open(m.cfg.FS, path, tc.Log, o)
}

// settle decides between two folders of one replica. They come from a broker that
// was killed, or whose folder failed, in the moment when a copy took the replica's
// place, and then either is good; or from a folder that was away for a while, and
// then it is the other one that went on. (Kafka does not start with such.)
func (l *loading) settle(b *Partition) {
	m := l.m
	a := m.Partition(b.tp)
	keep, lose := a, b
	if m.offline(a.dir()) || !m.offline(b.dir()) && l.better(b, a) {
		keep, lose = b, a
	}
	m.mu.Lock()
	m.parts[b.tp] = keep
	m.mu.Unlock()
	_ = lose.log().Abandon()
	if m.offline(lose.dir()) {
		return
	}
	f := commitlog.Folder{TP: b.tp, Path: lose.log().Dir()}
	var err error
	if to := ""; keep.topicID == lose.topicID {
		m.logger.Warn("replica lies in two folders; the copy that is behind goes", "partition", b.tp.String(), "kept", keep.log().Dir(), "end", keep.end, "dropped", f.Path, "its_end", lose.end)
		err = lose.dir().MarkFolderDeleted(f)
	} else {
		to, err = lose.dir().SetAside(f)
		m.logger.Warn("folder is of an earlier topic of the same name and is put aside", "partition", b.tp.String(), "kept", keep.log().Dir(), "aside", to)
	}
	if err != nil {
		m.failDir(lose.dir(), err)
	}
}

// better orders two copies of a replica: the one that has the topic's id, then
// the one with the newer leader epoch, then the longer one, then the one in the folder
// that log.dirs names first.
func (l *loading) better(b, a *Partition) bool {
	if b.topicID != a.topicID && l.m.cfg.TopicID != nil {
		if id := l.m.cfg.TopicID(b.tp.Topic); id != (protocol.UUID{}) && (id == a.topicID || id == b.topicID) {
			return id == b.topicID
		}
	}
	ea, _ := a.log().LatestEpoch()
	eb, _ := b.log().LatestEpoch()
	if ea != eb {
		return eb > ea
	}
	if b.end != a.end {
		return b.end > a.end
	}
	return slices.Index(l.m.cfg.Dirs, b.dir()) < slices.Index(l.m.cfg.Dirs, a.dir())
}

// futures takes up the copies that were under way. They go on when the controller
// has given the replica its role.
func (l *loading) futures(d *commitlog.Dir) {
	m := l.m
	for _, folder := range l.listings[d].Future {
		p := m.Partition(folder.TP)
		if p == nil && m.anyOffline() || p != nil && p.gone() {
			continue // the replica itself may be where we cannot look
		}
		var err error
		switch {
		case p == nil:
			var to string
			to, err = d.SetAside(folder)
			m.logger.Warn("copy of a replica that is not here is put aside", "partition", folder.TP.String(), "aside", to)
		case p.dir() == d || p.copying() != nil:
			err = d.MarkFolderDeleted(folder)
		default:
			err = l.future(p, d, folder)
		}
		if err != nil {
			m.failDir(d, err)
			return
		}
	}
}

func (l *loading) future(p *Partition, d *commitlog.Dir, folder commitlog.Folder) error {
	id, ok, err := commitlog.ReadTopicID(l.m.cfg.FS, folder.Path)
	if err == nil && ok && id != p.topicID {
		return d.MarkFolderDeleted(folder)
	}
	var log *commitlog.Log
	if err == nil {
		log, err = l.openLog(context.Background(), d, folder, *p.config.Load())
	}
	if err != nil && structural(err) {
		l.m.logger.Warn("copy of a replica is damaged and goes", "partition", p.tp.String(), "path", folder.Path, "err", err)
		return d.MarkFolderDeleted(folder)
	}
	if err != nil {
		return err
	}
	p.state.Lock()
	p.future = &future{dir: d, path: folder.Path, log: log}
	p.state.Unlock()
	return nil
}

// tidy takes what a folder does not hold any more out of its checkpoints: deleted,
// and killed before these could say so.
func (l *loading) tidy(d *commitlog.Dir) {
	at := l.points[d]
	for _, offsets := range []map[TopicPartition]int64{at.hw, at.recovery, at.start, at.cleaned} {
		for tp := range offsets {
			p := l.m.Partition(tp)
			if r, ok := l.m.damagedAt(tp); p == nil && ok && r.dir == d {
				continue
			}
			if p == nil {
				l.m.forgetDeleted(d)
				return
			}
			if f := p.copying(); p.dir() != d && (f == nil || f.dir != d) {
				l.m.forgetDeleted(d)
				return
			}
		}
	}
}
