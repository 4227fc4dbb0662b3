package partition

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// isrRetry is the pause before a refused proposal that may yet succeed is made again.
const isrRetry = 50 * time.Millisecond

// isrChange is a proposal in flight. Until its outcome is known the leader
// counts every replica that may be in the set: the one to be added, and the
// ones to be dropped as well.
type isrChange struct {
	isr     []int32
	epochs  []int64 // of the brokers' lives that the proposal is about
	maximal []int32
}

// maybeExpand proposes to add a follower that has all that is committed and
// all from before this leader's epoch. With state held.
func (p *Partition) maybeExpand(r *remote, now time.Time) *ISRChange {
	if p.change != nil || r.end < p.hw || r.end < p.epochStart || slices.Contains(p.isr, r.id) || !p.m.alive(r.id) {
		return nil
	}
	if !r.refused.IsZero() && now.Sub(r.refused) < isrRetry {
		return nil
	}
	r.refused = time.Time{}
	isr := append(slices.Clone(p.isr), r.id)
	return p.propose(isr, isr)
}

// shrink proposes to drop the replicas that have not caught up for the lag
// time. It looks at the high watermark, too: one that a caught-up replica
// outside the set held back may move when that replica has died, and no fetch
// of its will tell.
func (p *Partition) shrink(now time.Time) {
	p.state.Lock()
	var proposal *ISRChange
	if p.role == leader && p.change == nil && p.failed == nil {
		keep := make([]int32, 0, len(p.isr))
		for _, id := range p.isr {
			i := indexRemote(p.remotes, id)
			if id == p.m.cfg.BrokerID || (i >= 0 && p.remotes[i].caughtUp(p.end, now, p.m.lag)) {
				keep = append(keep, id)
			}
		}
		if len(keep) < len(p.isr) {
			p.m.logger.Info("shrinking in-sync set", "partition", p.tp.String(), "from", p.isr, "to", keep, "hw", p.hw, "end", p.end)
			proposal = p.propose(keep, p.isr)
		}
	}
	committed := p.failed == nil && p.advance(now)
	p.state.Unlock()
	p.m.submit(proposal)
	if committed {
		p.changed(true)
	}
}

func (p *Partition) propose(isr, maximal []int32) *ISRChange {
	if p.m.cfg.ISR == nil {
		return nil
	}
	p.change = &isrChange{isr: isr, epochs: p.epochsOf(isr), maximal: maximal}
	return p.request(p.change)
}

// epochsOf lists the lives of brokers that this leader goes by: a replica that has been started
// anew since may have lost what it was judged by, and only the controller knows of that for sure
// (KIP-903). With state held.
func (p *Partition) epochsOf(isr []int32) []int64 {
	epochs := make([]int64, len(isr))
	for i, id := range isr {
		epochs[i] = -1
		if id == p.m.cfg.BrokerID {
			epochs[i] = p.m.cfg.BrokerEpoch()
		} else if j := indexRemote(p.remotes, id); j >= 0 {
			epochs[i] = p.remotes[j].epoch
		}
	}
	return epochs
}

func (p *Partition) request(c *isrChange) *ISRChange {
	return &ISRChange{
		TP: p.tp, TopicID: p.topicID, LeaderEpoch: p.leaderEpoch, PartitionEpoch: p.partitionEpoch, ISR: c.isr, Epochs: c.epochs,
		Done: func(r ISRResult, err error) { p.settle(c, r, err) },
	}
}

// settle takes the controller's answer to a proposal. One that newer state
// from the controller has overtaken is no longer p.change and is ignored.
func (p *Partition) settle(c *isrChange, r ISRResult, err error) {
	p.state.Lock()
	if p.change != c || p.role != leader {
		p.state.Unlock()
		return
	}
	committed := false
	switch {
	case err == nil && (r.LeaderEpoch != p.leaderEpoch || r.PartitionEpoch < p.partitionEpoch):
		// An answer from another epoch; the state that goes with it is under way.
	case err == nil:
		p.isr, p.partitionEpoch, p.change = slices.Clone(r.ISR), r.PartitionEpoch, nil
		committed = p.advance(p.m.now())
	case is(err, kerr.IneligibleReplica, kerr.OperationNotAttempted):
		p.change = nil
		for i := range p.remotes {
			if r := &p.remotes[i]; slices.Contains(c.isr, r.id) && !slices.Contains(p.isr, r.id) {
				r.refused = p.m.now()
			}
		}
		committed = p.advance(p.m.now())
	case is(err, kerr.FencedLeaderEpoch, kerr.InvalidUpdateVersion, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID,
		kerr.InvalidRequest, kerr.NewLeaderElected):
		// What we know is old; the proposal stays open, so that nothing is asked
		// again before LeaderAndIsr brings the news.
		p.m.logger.Info("in-sync set change refused", "partition", p.tp.String(), "isr", c.isr, "err", err)
	default:
		p.m.cfg.Wheel.AfterFunc(isrRetry, func() { p.retry(c) })
	}
	p.state.Unlock()
	if err == nil || committed {
		// A smaller set may settle a waiting produce even where the high watermark stays.
		p.m.produces.Check(p)
		p.changed(committed)
	}
}

func (p *Partition) retry(c *isrChange) {
	p.state.Lock()
	var again *ISRChange
	if p.change == c && p.role == leader {
		again = p.request(c)
	}
	p.state.Unlock()
	p.m.submit(again)
}

func is(err error, targets ...*kerr.Error) bool {
	return slices.ContainsFunc(targets, func(t *kerr.Error) bool { return errors.Is(err, t) })
}
