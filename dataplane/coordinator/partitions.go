package coordinator

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
)

// loadRetryDelay is the pause after a partition could not be read.
const loadRetryDelay = time.Second

var errAbandoned = errors.New("partition given up while it was read")

// Loader gathers what the records of a partition amount to.
type Loader[E comparable] interface {
	// Add takes what comes next in the log, and keeps nothing of key and value.
	Add(Logged)
	// Entities is called once, at the end: by name, and how many records could not be
	// read. Leaving those out is better than to refuse all others for their sake.
	Entities() (entities map[string]E, unreadable int)
}

// Config says what is kept in the partitions. All fields but Settle are required.
type Config[E comparable] struct {
	What   string // for the log: "groups"
	Log    Log
	Logger *slog.Logger

	// NewLoader begins the reading of a partition for the shard.
	NewLoader func(*Shard[E]) Loader[E]
	// Settle, if set, is called when the partition has been read, and returns when all
	// that was read is committed. A new leader's log may end above the high watermark, and
	// what stands there is lost if this leader fails as well: an entity whose acts cannot
	// be taken back must not act upon it before. An error has the partition read again; once
	// lost is closed the answer does not matter any more, and must come.
	Settle func(partition int32, lost <-chan struct{}) error
	// Resume is called with each entity that was loaded, once others can find it.
	Resume func(E)
	// Lose is called with each entity of a partition that is not led any more.
	Lose func(E)
}

// Partitions is what this broker leads of a coordinator's topic.
type Partitions[E comparable] struct {
	cfg  Config[E]
	stop chan struct{}  // closed by Close
	wg   sync.WaitGroup // loads, and what Spawn started

	statsMu sync.Mutex // a leaf
	stats   LoadStats

	mu     sync.RWMutex
	shards map[int32]*Shard[E]
	epochs map[int32]int32     // highest leader epoch seen, of lost partitions too
	last   map[int32]*Shard[E] // the shard that a lost partition had, until the next is loaded
	closed bool
}

// LoadStats says how the loading of partitions has gone since the start.
type LoadStats struct {
	Loaded   int64         // partitions
	Failures int64         // readings that failed, and were or will be tried again
	Records  int64         // read for those that were loaded
	Time     time.Duration // that their loading took, with what had failed before, all together
	Longest  time.Duration // of those since the last Stats
	Loading  int64         // partitions that are being loaded now
}

// Stats resets Longest.
func (ps *Partitions[E]) Stats() LoadStats {
	ps.statsMu.Lock()
	defer ps.statsMu.Unlock()
	s := ps.stats
	ps.stats.Longest = 0
	return s
}

func (ps *Partitions[E]) count(f func(*LoadStats)) {
	ps.statsMu.Lock()
	defer ps.statsMu.Unlock()
	f(&ps.stats)
}

// New returns a table without partitions. Close must be called.
func New[E comparable](cfg Config[E]) *Partitions[E] {
	return &Partitions[E]{
		cfg:    cfg,
		stop:   make(chan struct{}),
		shards: make(map[int32]*Shard[E]),
		epochs: make(map[int32]int32),
		last:   make(map[int32]*Shard[E]),
	}
}

// Close gives every entity up and returns when nothing that Spawn started runs any more.
// It may be called more than once.
func (ps *Partitions[E]) Close() {
	ps.mu.Lock()
	if ps.closed {
		ps.mu.Unlock()
		ps.wg.Wait()
		return
	}
	ps.closed = true
	close(ps.stop)
	shards := ps.shards
	ps.shards = map[int32]*Shard[E]{}
	ps.mu.Unlock()
	for _, sh := range shards {
		sh.abandon(ps.cfg.Lose)
	}
	ps.wg.Wait()
}

// Stopping is closed when Close begins.
func (ps *Partitions[E]) Stopping() <-chan struct{} { return ps.stop }

// Spawn runs f on a goroutine that Close waits for; not at all, and says so, after Close.
func (ps *Partitions[E]) Spawn(f func()) (started bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	if ps.closed {
		return false
	}
	ps.wg.Add(1)
	go func() {
		defer ps.wg.Done()
		f()
	}()
	return true
}

// Of is the partition that keeps the entity; -1 while the topic does not exist.
func (ps *Partitions[E]) Of(name string) int32 {
	n := ps.cfg.Log.Partitions()
	if n <= 0 {
		return -1
	}
	return PartitionFor(name, n)
}

// PartitionFor is the partition of a name among n: the absolute value of Java's
// String.hashCode modulo n, where the smallest int32, which has no absolute value,
// counts as 0. Brokers of one cluster must agree on it.
func PartitionFor(name string, n int32) int32 {
	var h int32
	for _, r := range name {
		if r >= 0x10000 {
			hi, lo := utf16.EncodeRune(r)
			h = 31*(31*h+hi) + lo
			continue
		}
		h = 31*h + r
	}
	switch {
	case h == -1<<31:
		h = 0
	case h < 0:
		h = -h
	}
	return h % n
}

// OnLeader says that this broker leads the partition since the epoch; its entities are
// loaded in the background. An epoch that is not newer than what is known is ignored. A
// newer epoch of a partition that was led all along changes nothing but the epoch: its
// log has not changed hands.
func (ps *Partitions[E]) OnLeader(partition, epoch int32) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed || epoch < ps.epochOf(partition) {
		return
	}
	ps.epochs[partition] = epoch
	if sh := ps.shards[partition]; sh != nil {
		sh.epoch.Store(epoch)
		return
	}
	sh := newShard[E](ps.cfg.Log, partition, epoch)
	prev := ps.last[partition]
	delete(ps.last, partition)
	ps.shards[partition] = sh
	ps.wg.Add(1)
	go func() {
		defer ps.wg.Done()
		ps.load(sh, prev)
	}()
}

// OnResign says that this broker does not lead the partition since the epoch. An older
// epoch than what is known is ignored; a negative one stands for any (the replica is
// being deleted) and lets epochs start over. When it returns, no entity of the partition
// is served.
func (ps *Partitions[E]) OnResign(partition, epoch int32) {
	ps.mu.Lock()
	if epoch >= 0 && epoch < ps.epochOf(partition) {
		ps.mu.Unlock()
		return
	}
	if epoch >= 0 {
		ps.epochs[partition] = epoch
	} else {
		delete(ps.epochs, partition)
	}
	sh := ps.shards[partition]
	if sh != nil {
		delete(ps.shards, partition)
		ps.last[partition] = sh
	}
	ps.mu.Unlock()
	if sh != nil {
		sh.abandon(ps.cfg.Lose)
	}
}

func (ps *Partitions[E]) epochOf(partition int32) int32 {
	if e, ok := ps.epochs[partition]; ok {
		return e
	}
	return -1
}

// Find returns the entity of that name, as Shard.Find does; create gets its shard.
func (ps *Partitions[E]) Find(name string, create func(*Shard[E]) (string, E)) (E, *kerr.Error) {
	p := ps.Of(name)
	ps.mu.RLock()
	sh := ps.shards[p]
	ps.mu.RUnlock()
	if sh == nil {
		var none E
		return none, kerr.NotCoordinator
	}
	if create == nil {
		return sh.Find(name, nil)
	}
	return sh.Find(name, func() (string, E) { return create(sh) })
}

// All is a snapshot of all entities that are loaded; loading says that some are not.
func (ps *Partitions[E]) All() (entities []E, loading bool) {
	ps.mu.RLock()
	shards := slices.Collect(maps.Values(ps.shards))
	ps.mu.RUnlock()
	for _, sh := range shards {
		es, l := sh.all()
		entities = append(entities, es...)
		loading = loading || l
	}
	return entities, loading
}

// load reads the shard's log and opens it; a failure is tried again for as long as the
// partition is ours. prev is the shard of an earlier leadership of this partition, which
// must have stopped writing.
func (ps *Partitions[E]) load(sh, prev *Shard[E]) {
	ps.count(func(s *LoadStats) { s.Loading++ })
	defer ps.count(func(s *LoadStats) { s.Loading-- })
	if prev != nil {
		prev.waitIdle()
	}
	log := ps.cfg.Logger.With("partition", sh.partition, "epoch", sh.Epoch())
	start := time.Now()
	for {
		l, records := ps.cfg.NewLoader(sh), int64(0)
		err := ps.cfg.Log.Read(sh.partition, func(x Logged) error {
			if sh.gone() {
				return errAbandoned
			}
			l.Add(x)
			records++
			return nil
		})
		if err == nil && ps.cfg.Settle != nil {
			err = ps.cfg.Settle(sh.partition, sh.lost)
		}
		if sh.gone() {
			return
		}
		if err == nil {
			entities, bad := l.Entities()
			all := slices.Collect(maps.Values(entities)) // once published, the map is the shard's
			if sh.publish(entities) {
				for _, e := range all {
					ps.cfg.Resume(e)
				}
			}
			took := time.Since(start)
			ps.count(func(s *LoadStats) {
				s.Loaded, s.Records, s.Time, s.Longest = s.Loaded+1, s.Records+records, s.Time+took, max(s.Longest, took)
			})
			log.Info(ps.cfg.What+" loaded", "number", len(all), "unreadable", bad, "took", took)
			return
		}
		ps.count(func(s *LoadStats) { s.Failures++ })
		log.Error(ps.cfg.What+" not loaded, will try again", "err", err)
		t := time.NewTimer(loadRetryDelay)
		select {
		case <-ps.stop:
			t.Stop()
			return
		case <-t.C:
		}
	}
}
