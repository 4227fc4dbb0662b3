package group

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// Coordinator is the broker's part of all groups.
type Coordinator struct {
	cfg    Config
	timers Timers
	shards *coordinator.Partitions[*group]

	memory budget

	openMu sync.Mutex // may be taken while a group's mutex is held
	open   map[int32]*openTransactions

	resolving chan struct{} // held by who matches a regular expression
}

type shard = coordinator.Shard[*group]

// New returns a coordinator that owns no partition yet. log is __consumer_offsets. Close
// must be called.
func New(cfg Config, log coordinator.Log, timers Timers) *Coordinator {
	c := &Coordinator{cfg: cfg.withDefaults(), timers: timers, open: make(map[int32]*openTransactions), resolving: make(chan struct{}, 1)}
	c.memory.limit = c.cfg.Memory
	c.shards = coordinator.New(coordinator.Config[*group]{
		What:      "groups",
		Log:       log,
		Logger:    c.cfg.Logger,
		NewLoader: func(sh *shard) coordinator.Loader[*group] { return newLoader(c, sh) },
		Resume:    func(g *group) { g.do(g.resume) },
		Lose:      func(g *group) { g.do(g.lose) },
	})
	c.shards.Spawn(c.sweepLoop)
	return c
}

// Close gives every group up, answers whoever waits with NOT_COORDINATOR and
// returns when no goroutine of the coordinator runs any more. It may be called
// more than once.
func (c *Coordinator) Close() { c.shards.Close() }

// LoadStats says how the loading of partitions has gone, see coordinator.Partitions.Stats.
func (c *Coordinator) LoadStats() coordinator.LoadStats { return c.shards.Stats() }

// PartitionOf is the partition of __consumer_offsets that keeps the group; -1
// while the topic does not exist.
func (c *Coordinator) PartitionOf(group string) int32 { return c.shards.Of(group) }

// OnLeader says that this broker leads the partition since the epoch, and OnResign that
// it does not, see coordinator.Partitions.
func (c *Coordinator) OnLeader(partition, epoch int32) { c.shards.OnLeader(partition, epoch) }

// OnResign is the other half of OnLeader. When it returns, no group of the partition is
// served, and who waited has been answered NOT_COORDINATOR.
func (c *Coordinator) OnResign(partition, epoch int32) { c.shards.OnResign(partition, epoch) }

// OnPartitionsDeleted forgets, durably and in the background, the offsets
// committed for partitions of deleted topics, so that a topic of the same name
// starts afresh.
func (c *Coordinator) OnPartitionsDeleted(tps []protocol.TopicPartition) {
	gone := make(map[protocol.TopicPartition]bool, len(tps))
	for _, tp := range tps {
		gone[tp] = true
	}
	c.shards.Spawn(func() {
		for _, g := range c.groups() {
			g.do(func(fx *effects) {
				g.dropDeleted(fx, gone)
			})
		}
	})
}

// Coordinates says whether this broker answers for the group: nil, NOT_COORDINATOR or
// COORDINATOR_LOAD_IN_PROGRESS.
func (c *Coordinator) Coordinates(group string) *kerr.Error {
	_, err := c.find(group, false)
	return err
}

// find returns the group, nil if there is none (and none is to be created).
func (c *Coordinator) find(id string, create bool) (*group, *kerr.Error) {
	if !create {
		return c.shards.Find(id, nil)
	}
	return c.shards.Find(id, func(sh *shard) (string, *group) {
		g := newGroup(c, sh, id)
		return g.id, g
	})
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
		g.sh.Forget(g.id, g) // deleted between find and do: look again
	}
}

// groups is a snapshot of all groups that are loaded.
func (c *Coordinator) groups() []*group {
	all, _ := c.shards.All()
	return all
}

// sweepLoop expires offsets and forgets groups that hold nothing.
func (c *Coordinator) sweepLoop() {
	t := time.NewTicker(c.cfg.OffsetsCheckInterval)
	defer t.Stop()
	for {
		select {
		case <-c.shards.Stopping():
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
