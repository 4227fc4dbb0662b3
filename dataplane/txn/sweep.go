package txn

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordinator"
)

// abortTimedOut aborts, and fences the producers of, transactions that have been open for
// longer than their timeout.
func (c *Coordinator) abortTimedOut(now time.Time) {
	all, _ := c.shards.All()
	ms := now.UnixMilli()
	for _, t := range all {
		t.do(func(fx *effects) {
			if t.gone != alive || t.pending || t.state != stateOngoing || t.start+int64(t.timeout) >= ms {
				return
			}
			c.cfg.Logger.Info("a transaction's time is up", "id", t.id, "producer", t.producerID, "epoch", t.epoch, "timeout", t.timeout)
			t.fence(fx, func(_ *effects, err *kerr.Error) {
				if err != nil {
					c.cfg.Logger.Warn("a transaction whose time is up was not aborted", "id", t.id, "err", err)
				}
			})
		})
	}
}

// maxTombstones bounds the records of one batch.
const maxTombstones = 500

// expireIDs removes ids that nobody has used for long and that are in no transaction.
func (c *Coordinator) expireIDs(now time.Time) {
	all, _ := c.shards.All()
	before := now.Add(-c.cfg.IDExpiration).UnixMilli()
	expired := make(map[*shard][]*transaction)
	for _, t := range all {
		t.do(func(*effects) {
			if t.gone != alive || t.pending || t.state == stateOngoing || t.updated > before {
				return
			}
			// Nobody else writes a record of it until its tombstone is answered.
			t.pending = true
			expired[t.sh] = append(expired[t.sh], t)
		})
	}
	for sh, ts := range expired {
		for len(ts) > 0 {
			n := min(len(ts), maxTombstones)
			c.bury(sh, ts[:n], now)
			ts = ts[n:]
		}
	}
}

// bury writes the tombstones of ids that are held pending.
func (c *Coordinator) bury(sh *shard, ts []*transaction, now time.Time) {
	b := coordinator.Batch{Producer: coordinator.NoProducer}
	for _, t := range ts {
		b.Records = append(b.Records, coordinator.Record{Timestamp: now.UnixMilli(), Key: recordKey(t.id)})
	}
	sh.Enqueue(b, func(err error) {
		if err != nil {
			c.cfg.Logger.Warn("transactional ids were not removed", "number", len(ts), "err", err)
		}
		for _, t := range ts {
			t.do(func(fx *effects) {
				if t.gone != alive {
					return
				}
				t.pending = false
				if err != nil {
					t.wake(fx)
					return
				}
				t.gone = forgotten
				fx.call(func() { sh.Forget(t.id, t) })
				// Those who wait find the id gone, and ask for it again.
				t.dismiss(fx)
			})
		}
	})
	sh.Drain()
}
