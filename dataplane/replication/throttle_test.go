package replication

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/dataplane/config"
	"penstock/dataplane/partition"
	"penstock/dataplane/recordbatch"
)

// A follower that is behind catches up at the rate of either side, in-sync ones and those that
// are level go on at once, and a rate that is lifted holds no longer than its last pause.
func TestThrottledFollowerCatchesUpAtTheRate(t *testing.T) {
	const mib = 1 << 20
	for _, side := range []string{"leader", "follower"} {
		synctest.Test(t, func(t *testing.T) {
			all, _ := config.ParseThrottled("*")
			topic := partition.TopicConfig{MinISR: 1, LeaderThrottled: all, FollowerThrottled: all}
			c := newCluster(t, 1, topic)
			defer c.close()
			c.isr = []int32{1}
			c.elect(1)
			c.deliver(1)
			put := func() {
				b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte(strings.Repeat("v", mib/8))}})
				if err != nil {
					t.Fatal(err)
				}
				c.node(1).m.Append(partition.AppendRequest{Acks: 1, Entries: []partition.AppendEntry{{TP: tp0, Records: b}}}, func(rs []partition.AppendResult) {
					if rs[0].Err != nil {
						t.Fatal(rs[0].Err)
					}
				})
			}
			limit := func(rate int64) {
				if side == "leader" {
					c.node(1).m.SetReplicationThrottle(rate, -1)
				} else {
					c.node(2).m.SetReplicationThrottle(-1, rate)
				}
			}
			reached := func(end int64) time.Duration {
				start := time.Now()
				for c.node(2).m.Partition(tp0).EndOffset() < end {
					time.Sleep(10 * time.Millisecond)
				}
				return time.Since(start)
			}
			for range 20 * 8 {
				put()
			}
			limit(2 * mib)
			c.deliver(2)
			if d := reached(20 * 8); d < 8*time.Second || d > 11*time.Second {
				t.Errorf("%s's side: 20 MiB at 2 MiB a second took %v", side, d)
			}
			time.Sleep(5 * time.Second)
			if isr := c.node(1).m.Partition(tp0).ISR(); len(isr) != 2 {
				t.Fatalf("%s's side: in-sync set %v", side, isr)
			}
			for range 10 { // far above the rate, but in sync
				for range 8 {
					put()
				}
				if d := reached(c.node(1).m.Partition(tp0).EndOffset()); d > 300*time.Millisecond {
					t.Fatalf("%s's side: a replica in sync is held up for %v", side, d)
				}
			}
		})
	}
}
