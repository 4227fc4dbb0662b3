package replication

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/partition"
	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
)

// Conn is what a fetcher needs of a connection to another broker; *peer.Conn is one. It has
// a timeout of its own for what DoStream waits for, Config.RequestTimeout.
type Conn interface {
	Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	DoStream(ctx context.Context, req kmsg.Request, read func(*peer.Body) error) error
	Newest(ctx context.Context, key, ours int16) (int16, error)
	Close() error
}

// Config is the fetchers' world. Zero numbers take the default named.
type Config struct {
	BrokerID int32
	// BrokerEpoch is the czxid of this broker's registration, -1 if unknown. Leaders are
	// told it, so that they forget what they knew of an earlier life. Nil: never known.
	BrokerEpoch func() int64
	// Dial connects to a broker on the inter-broker listener. addr is what the
	// controller named (may be empty; the cluster's metadata may know better).
	Dial func(ctx context.Context, broker int32, addr string) (Conn, error)

	Threads        int           // num.replica.fetchers, 1
	PartitionBytes int           // replica.fetch.max.bytes, 1 MiB
	ResponseBytes  int           // replica.fetch.response.max.bytes, 10 MiB
	MinBytes       int           // replica.fetch.min.bytes, 1
	WaitMax        time.Duration // replica.fetch.wait.max.ms, 500 ms
	Backoff        time.Duration // replica.fetch.backoff.ms, 1 s: the longest pause after errors in a row
	RequestTimeout time.Duration // replica.socket.timeout.ms, 30 s
	Logger         *slog.Logger  // nil: none
}

// firstBackoff is the pause after a first error; it doubles up to Backoff. Most
// first errors are a leader that has yet to hear of its election.
const firstBackoff = 20 * time.Millisecond

func (c Config) withDefaults() Config {
	num := func(p *int, d int) {
		if *p <= 0 {
			*p = d
		}
	}
	dur := func(p *time.Duration, d time.Duration) {
		if *p <= 0 {
			*p = d
		}
	}
	num(&c.Threads, 1)
	num(&c.PartitionBytes, 1<<20)
	num(&c.ResponseBytes, 10<<20)
	num(&c.MinBytes, 1)
	dur(&c.WaitMax, 500*time.Millisecond)
	dur(&c.Backoff, time.Second)
	dur(&c.RequestTimeout, 30*time.Second)
	if c.BrokerEpoch == nil {
		c.BrokerEpoch = func() int64 { return -1 }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Fetchers runs the copying of all followers on this broker. It implements
// partition.FetcherManager.
type Fetchers struct {
	cfg  Config
	seed maphash.Seed

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	count   int // Config.Threads, as SetThreads changes it
	threads map[threadKey]*thread
	where   map[protocol.TopicPartition]*thread
}

type threadKey struct {
	leader int32
	index  int
}

// NewFetchers makes fetchers with nothing to do. Close ends them.
func NewFetchers(cfg Config) *Fetchers {
	ctx, cancel := context.WithCancel(context.Background())
	cfg = cfg.withDefaults()
	return &Fetchers{
		cfg: cfg, count: cfg.Threads, seed: maphash.MakeSeed(), ctx: ctx, cancel: cancel,
		threads: map[threadKey]*thread{}, where: map[protocol.TopicPartition]*thread{},
	}
}

// Set starts copying, or moves it to another leader or epoch.
func (f *Fetchers) Set(targets []partition.FetchTarget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	for _, t := range targets {
		f.set(t)
	}
}

// set gives a partition to its thread. With mu held.
func (f *Fetchers) set(t partition.FetchTarget) {
	tp := t.Partition.TP()
	key := f.key(t.Leader, tp)
	th := f.threads[key]
	if th == nil {
		th = newThread(f, key)
		f.threads[key] = th
		f.wg.Go(th.run)
	}
	if old := f.where[tp]; old != nil && old != th {
		old.remove(tp)
	}
	f.where[tp] = th
	th.add(tp, t)
}

// key is the thread that a partition belongs to. With mu held.
func (f *Fetchers) key(leader int32, tp protocol.TopicPartition) threadKey {
	return threadKey{leader, int(maphash.Comparable(f.seed, tp) % uint64(f.count))}
}

// SetThreads changes Config.Threads: the partitions are shared out anew, and threads
// that are no longer wanted end. Each thread hands its own over between two fetches:
// an answer that came to the old one after the new one has gone on could cut what the
// leader already counts as copied.
func (f *Fetchers) SetThreads(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n = max(n, 1)
	if n == f.count {
		return
	}
	f.count = n
	for _, th := range f.threads {
		th.reshare()
	}
}

// handOver gives away what the thread should not have any more; true if the thread is
// not wanted any more. It is called by the thread.
func (f *Fetchers) handOver(t *thread) (end bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, target := range t.targets() {
		if tp := target.Partition.TP(); f.where[tp] == t && f.key(t.key.leader, tp) != t.key {
			f.set(target)
		}
	}
	if t.key.index < f.count {
		return false
	}
	delete(f.threads, t.key)
	return true
}

// Remove ends the copying of the partitions. A thread left without any gives up
// its connection.
func (f *Fetchers) Remove(tps []protocol.TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, tp := range tps {
		if th := f.where[tp]; th != nil {
			delete(f.where, tp)
			th.remove(tp)
		}
	}
}

// Len is the number of partitions that are being copied or wait to be.
func (f *Fetchers) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.where)
}

// Close ends all copying and waits for what is under way.
func (f *Fetchers) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}
