package group

import (
	"sync"
	"time"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/protocol"
)

// loadRetryDelay is the pause after a partition could not be read.
const loadRetryDelay = time.Second

// Coordinator is the broker's part of all groups.
type Coordinator struct {
	cfg    Config
	st     Storage
	timers Timers
	stop   chan struct{}  // closed by Close
	wg     sync.WaitGroup // loads, sweeps, fired timers

	mu     sync.RWMutex
	shards map[int32]*shard
	epochs map[int32]int32  // highest leader epoch seen, of lost partitions too
	last   map[int32]*shard // the shard that a lost partition had, until the next is loaded
	closed bool
}

// New returns a coordinator that owns no partition yet. Close must be called.
func New(cfg Config, st Storage, timers Timers) *Coordinator {
	c := &Coordinator{
		cfg:    cfg.withDefaults(),
		st:     st,
		timers: timers,
		stop:   make(chan struct{}),
		shards: make(map[int32]*shard),
		epochs: make(map[int32]int32),
		last:   make(map[int32]*shard),
	}
	c.wg.Add(1)
	go c.sweepLoop()
	return c
}

// Close gives every group up, answers whoever waits with NOT_COORDINATOR and
// returns when no goroutine of the coordinator runs any more. It may be called
// more than once.
func (c *Coordinator) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		c.wg.Wait()
		return
	}
	c.closed = true
	close(c.stop)
	shards := c.shards
	c.shards = map[int32]*shard{}
	c.mu.Unlock()
	for _, sh := range shards {
		sh.abandon()
	}
	c.wg.Wait()
}

// spawn runs f on a goroutine that Close waits for; not at all after Close.
func (c *Coordinator) spawn(f func()) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		f()
	}()
}

// PartitionOf is the partition of __consumer_offsets that keeps the group; -1
// while the topic does not exist.
func (c *Coordinator) PartitionOf(group string) int32 {
	n := c.st.Partitions()
	if n <= 0 {
		return -1
	}
	return PartitionFor(group, n)
}

// PartitionFor is the partition of a group among n: the absolute value of
// Java's String.hashCode modulo n, where the smallest int32, which has no
// absolute value, counts as 0. Brokers of one cluster must agree on it.
func PartitionFor(group string, n int32) int32 {
	var h int32
	for _, r := range group {
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

// OnLeader says that this broker leads the partition since the epoch; its
// groups are loaded in the background. An epoch that is not newer than what is
// known is ignored. A newer epoch of a partition that was led all along changes
// nothing but the epoch: its log has not changed hands.
func (c *Coordinator) OnLeader(partition, epoch int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || epoch < c.epochOf(partition) {
		return
	}
	c.epochs[partition] = epoch
	if c.shards[partition] != nil {
		return
	}
	sh := newShard(c, partition, epoch)
	prev := c.last[partition]
	delete(c.last, partition)
	c.shards[partition] = sh
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.load(sh, prev)
	}()
}

// OnResign says that this broker does not lead the partition since the epoch.
// An older epoch than what is known is ignored; a negative one stands for any
// (the replica is being deleted) and lets epochs start over. When it returns,
// no group of the partition is served.
func (c *Coordinator) OnResign(partition, epoch int32) {
	c.mu.Lock()
	if epoch >= 0 && epoch < c.epochOf(partition) {
		c.mu.Unlock()
		return
	}
	if epoch >= 0 {
		c.epochs[partition] = epoch
	} else {
		delete(c.epochs, partition)
	}
	sh := c.shards[partition]
	if sh != nil {
		delete(c.shards, partition)
		c.last[partition] = sh
	}
	c.mu.Unlock()
	if sh != nil {
		sh.abandon()
	}
}

func (c *Coordinator) epochOf(partition int32) int32 {
	if e, ok := c.epochs[partition]; ok {
		return e
	}
	return -1
}

// OnPartitionsDeleted forgets, durably and in the background, the offsets
// committed for partitions of deleted topics, so that a topic of the same name
// starts afresh.
func (c *Coordinator) OnPartitionsDeleted(tps []protocol.TopicPartition) {
	gone := make(map[protocol.TopicPartition]bool, len(tps))
	for _, tp := range tps {
		gone[tp] = true
	}
	c.spawn(func() {
		for _, g := range c.groups() {
			g.do(func(fx *effects) {
				g.dropOffsets(fx, func(tp protocol.TopicPartition, _ offset) bool { return gone[tp] })
			})
		}
	})
}

// find returns the group, nil if there is none (and none is to be created).
func (c *Coordinator) find(id string, create bool) (*group, *kerr.Error) {
	p := c.PartitionOf(id)
	c.mu.RLock()
	sh := c.shards[p]
	c.mu.RUnlock()
	if sh == nil {
		return nil, kerr.NotCoordinator
	}
	return sh.find(id, create)
}

// with runs f on the group with its mutex held; f gets nil if there is none
// (and none is to be created). An error says why f was not run.
func (c *Coordinator) with(id string, create bool, f func(*group, *effects)) *kerr.Error {
	for {
		g, err := c.find(id, create)
		if err != nil {
			return err
		}
		if g == nil {
			f(nil, nil)
			return nil
		}
		var dead, lost bool
		g.do(func(fx *effects) {
			if dead, lost = g.state == stateDead, g.lost; !dead {
				f(g, fx)
			}
		})
		switch {
		case lost:
			return kerr.NotCoordinator
		case !dead:
			return nil
		}
		g.sh.forget(g) // deleted between find and do: look again
	}
}

// groups is a snapshot of all groups that are loaded.
func (c *Coordinator) groups() []*group {
	c.mu.RLock()
	shards := make([]*shard, 0, len(c.shards))
	for _, sh := range c.shards {
		shards = append(shards, sh)
	}
	c.mu.RUnlock()
	var all []*group
	for _, sh := range shards {
		gs, _ := sh.snapshot()
		all = append(all, gs...)
	}
	return all
}

// sweepLoop expires offsets and forgets groups that hold nothing.
func (c *Coordinator) sweepLoop() {
	defer c.wg.Done()
	t := time.NewTicker(c.cfg.OffsetsCheckInterval)
	defer t.Stop()
	for {
		select {
		case <-c.stop:
			return
		case now := <-t.C:
			for _, g := range c.groups() {
				g.do(func(fx *effects) { g.expireOffsets(fx, now) })
			}
		}
	}
}

// code is the wire code of an error that may be nil.
func code(err *kerr.Error) int16 {
	if err == nil {
		return 0
	}
	return err.Code
}
