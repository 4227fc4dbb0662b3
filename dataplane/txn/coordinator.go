package txn

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
)

// Coordinator is the broker's part of all transactional ids.
type Coordinator struct {
	cfg    Config
	shards *coordinator.Partitions[*transaction]
	sender *sender

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
}

type shard = coordinator.Shard[*transaction]

// New returns a coordinator that owns no partition yet. log is __transaction_state. Close
// must be called.
func New(cfg Config, log coordinator.Log) *Coordinator {
	c := &Coordinator{cfg: cfg.withDefaults()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.sender = newSender(c)
	c.shards = coordinator.New(coordinator.Config[*transaction]{
		What:      "transactions",
		Log:       log,
		Logger:    c.cfg.Logger,
		NewLoader: func(sh *shard) coordinator.Loader[*transaction] { return newLoader(c, sh) },
		Settle:    c.cfg.Settle,
		Resume:    func(t *transaction) { t.do(t.resume) },
		Lose:      func(t *transaction) { t.do(t.lose) },
	})
	c.shards.Spawn(func() { c.every(c.cfg.AbortInterval, c.abortTimedOut) })
	c.shards.Spawn(func() { c.every(c.cfg.ExpiryInterval, c.expireIDs) })
	return c
}

// Close gives every transaction up, answers whoever waits with NOT_COORDINATOR and
// returns when no goroutine of the coordinator runs any more. It may be called more than
// once.
func (c *Coordinator) Close() {
	c.cancel()
	c.shards.Close()
}

// LoadStats says how the loading of partitions has gone, see coordinator.Partitions.Stats.
func (c *Coordinator) LoadStats() coordinator.LoadStats { return c.shards.Stats() }

// PartitionOf is the partition of __transaction_state that keeps the transactional id; -1
// while the topic does not exist.
func (c *Coordinator) PartitionOf(id string) int32 { return c.shards.Of(id) }

// OnLeader says that this broker leads the partition since the epoch, and OnResign that
// it does not, see coordinator.Partitions.
func (c *Coordinator) OnLeader(partition, epoch int32) { c.shards.OnLeader(partition, epoch) }

// OnResign is the other half of OnLeader. When it returns, no transaction of the partition
// is served, and who waited has been answered NOT_COORDINATOR.
func (c *Coordinator) OnResign(partition, epoch int32) { c.shards.OnResign(partition, epoch) }

// with runs f on the transaction with its mutex held. An error says why it was not run.
func (c *Coordinator) with(id string, f func(*transaction, *effects)) *kerr.Error {
	for {
		t, err := c.shards.Find(id, nil)
		switch {
		case err != nil:
			return err
		case t == nil:
			return kerr.InvalidProducerIDMapping
		}
		if again, err := t.run(f); !again {
			return err
		}
	}
}

// run is f with the mutex held, unless the transaction is gone: lost, or (again) only
// this one, in whose place there may be another.
func (t *transaction) run(f func(*transaction, *effects)) (again bool, err *kerr.Error) {
	var gone presence
	t.do(func(fx *effects) {
		if gone = t.gone; gone == alive {
			f(t, fx)
		}
	})
	switch gone {
	case lost:
		return false, kerr.NotCoordinator
	case forgotten:
		t.sh.Forget(t.id, t)
		return true, nil
	}
	return false, nil
}

// allocateTimeout bounds the wait for a producer id.
const allocateTimeout = 10 * time.Second

// allocate gets a new producer id, on a goroutine of its own: it may take a trip to
// ZooKeeper.
func (c *Coordinator) allocate(use func(int64, *kerr.Error)) {
	started := c.shards.Spawn(func() {
		ctx, cancel := context.WithTimeout(c.ctx, allocateTimeout)
		defer cancel()
		id, err := c.cfg.NextProducerID(ctx)
		if err != nil {
			c.cfg.Logger.Warn("no producer id could be had", "err", err)
			use(noProducerID, kerr.CoordinatorLoadInProgress) // retried by every client
			return
		}
		use(id, nil)
	})
	if !started {
		use(noProducerID, kerr.NotCoordinator)
	}
}

// every runs f at intervals until Close.
func (c *Coordinator) every(d time.Duration, f func(now time.Time)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-c.shards.Stopping():
			return
		case now := <-t.C:
			f(now)
		}
	}
}

// nowMillis is the time as records have it.
func nowMillis() int64 { return time.Now().UnixMilli() }
