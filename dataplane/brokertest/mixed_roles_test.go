//go:build compat

package brokertest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// mixedRoles has a partition for each make as leader with each as follower, on
// brokers 0 and 1 of ours and 2 and 3 of Apache Kafka.
var mixedRoles = [][]int32{{0, 1}, {0, 2}, {2, 0}, {2, 3}}

// mixedTriples are replica sets in which a follower of either make sees the other
// make's leader go, and may come to lead.
var mixedTriples = [][]int32{{0, 2, 1}, {2, 0, 3}, {1, 3, 2}, {3, 1, 0}}

// TestMixedRoles goes through every combination of controller, leader and
// follower. Under an idempotent acks=all producer one broker of each make is
// killed, stopped in order and frozen: in-sync sets shrink and grow again, leaders
// change make, logs are cut. Nothing acknowledged may be missing, doubled or out of
// order, and all replicas end with the same bytes and epochs.
func TestMixedRoles(t *testing.T) {
	c := startMixed(t, 2, 2)
	for _, controller := range []make_{penstock, kafka} {
		t.Run(fmt.Sprintf("%s controls", controller), func(t *testing.T) {
			c.t = t
			c.control(controller)
			pairs, triples := "pairs-"+strings.ToLower(controller.String()), "triples-"+strings.ToLower(controller.String())
			c.assign(pairs, mixedRoles)
			c.assign(triples, mixedTriples, "min.insync.replicas=2")
			loads := []*load{startLoad(c, pairs), startLoad(c, triples)}
			goOn := func() {
				t.Helper()
				for _, l := range loads {
					l.goesOn(1000, time.Minute)
				}
			}
			whole := func() {
				t.Helper()
				c.AwaitWhole(pairs, 2*time.Minute)
				c.AwaitWhole(triples, 2*time.Minute)
			}
			goOn()
			for _, id := range []int32{0, 2} {
				n := c.Brokers[id]
				what := fmt.Sprintf("broker %d (%s)", id, c.maker(id))
				n.Kill()
				t.Logf("%s is killed", what)
				c.control(controller)
				n.Start()
				whole()
				goOn()
				n.Stop()
				t.Logf("%s is stopped", what)
				c.control(controller)
				goOn()
				n.Start()
				whole()
				goOn()
			}
			for _, l := range loads {
				l.end(t)
			}
			c.understood()
		})
	}
}
