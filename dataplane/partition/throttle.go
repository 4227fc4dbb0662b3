package partition

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// SetReplicationThrottle bounds what is copied of throttled replicas, in bytes a second,
// all together: what this broker's leaders send to followers that are out of sync, and
// what its followers fetch that lag. 0 stops it; less, or the largest number, is no bound.
func (m *Manager) SetReplicationThrottle(leaderRate, followerRate int64) {
	m.leaderRate.set(leaderRate)
	m.followerRate.set(followerRate)
}

const (
	// throttleSlack is how far ahead of its rate copying may be before it pauses: all
	// that a quiet moment leaves unused, and no more.
	throttleSlack = time.Second
	// longestThrottle bounds a pause, so that another rate soon holds.
	longestThrottle = time.Second
	// mostOwed bounds what copying may be behind with. Replicas in sync are counted and not held
	// up, so it would else grow for as long as they take more than the rate, and those that are
	// held up would pay for it. Kafka looks back as far (replication.quota.window.num).
	mostOwed = 11 * time.Second
)

// throttle is a rate of bytes that many share. The zero value is no bound.
type throttle struct {
	bounded atomic.Bool // looked at first: most brokers have none

	mu   sync.Mutex
	rate int64
	paid time.Time // when all that was counted has been paid for
}

func (t *throttle) set(rate int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bounded := rate >= 0 && rate < math.MaxInt64
	if bounded != t.bounded.Load() || rate != t.rate {
		t.paid = time.Time{} // what was owed at another rate is forgiven
	}
	t.rate = rate
	t.bounded.Store(bounded)
}

// count accounts for n bytes that have been copied.
func (t *throttle) count(n int, now time.Time) {
	if !t.bounded.Load() || n <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate <= 0 {
		return
	}
	if t.paid.Before(now) {
		t.paid = now
	}
	t.paid = t.paid.Add(time.Duration(min(float64(n)/float64(t.rate), mostOwed.Seconds()) * float64(time.Second)))
	if most := now.Add(mostOwed); t.paid.After(most) {
		t.paid = most
	}
}

// pause is how long nothing more may be copied, at most longestThrottle; 0: go on.
func (t *throttle) pause(now time.Time) time.Duration {
	if !t.bounded.Load() {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rate <= 0 {
		return longestThrottle
	}
	owed := t.paid.Sub(now)
	if owed <= throttleSlack {
		return 0
	}
	return min(owed-throttleSlack, longestThrottle)
}

// throttledLeader says whether what this leader sends to followers counts.
func (p *Partition) throttledLeader() bool {
	return p.m.leaderRate.bounded.Load() && p.config.Load().LeaderThrottled.Has(p.tp.Partition, p.m.cfg.BrokerID)
}

func (p *Partition) throttledFollower() bool {
	return p.m.followerRate.bounded.Load() && p.config.Load().FollowerThrottled.Has(p.tp.Partition, p.m.cfg.BrokerID)
}

// ThrottledFor is how long a follower may not fetch, since followers here have had their
// share; 0: it may. One that has reached its leader's high watermark is not held up, nor
// is the first fetch from a leader, which finds out: a replica in sync would fall out.
func (p *Partition) ThrottledFor() time.Duration {
	if !p.throttledFollower() {
		return 0
	}
	p.state.Lock()
	lags := p.leaderHW > p.end
	p.state.Unlock()
	if !lags {
		return 0
	}
	return p.m.followerRate.pause(p.m.now())
}
