package replication

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"penstock/dataplane/partition"
)

// With unclean elections records may be lost, but however logs part (leaders that are elected
// with less than others have, epochs in which nothing is written, power cuts of all replicas at once,
// followers restarted in the middle of a truncation), they end the same, and no leader's high watermark
// goes back within its epoch.
func TestLogsEndTheSameAfterUncleanElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs, unclean, lost, epochs, bounces int
		rapid.Check(bubble{t}, func(rt *rapid.T) {
			c := newCluster(rt, int64(rapid.IntRange(0, 1<<30).Draw(rt, "seed")), partition.TopicConfig{MinISR: 1})
			defer c.close()
			h := newHistory()
			c.elect(1)
			c.deliverAll()
			node := func() int32 { return int32(rapid.IntRange(1, 3).Draw(rt, "node")) }
			for range rapid.IntRange(5, 60).Draw(rt, "steps") {
				switch a := rapid.IntRange(0, 13).Draw(rt, "action"); {
				case a <= 4:
					n := c.node(node())
					if a <= 2 && c.leader > 0 {
						n = c.node(c.leader)
					}
					if n.up {
						h.produce(n, int16(1-2*(a&1)), rapid.IntRange(1, 3).Draw(rt, "records"))
					}
				case a <= 6: // often with nothing written in between
					c.electUnclean(node())
					unclean++
				case a == 7:
					c.elect(node())
				case a <= 9:
					c.deliver(node())
				case a == 10:
					c.deliverAll()
				case a == 11:
					k := [2]int32{node(), node()}
					c.mu.Lock()
					c.cut[k] = !c.cut[k]
					c.mu.Unlock()
				case a == 12:
					n := c.node(node())
					if n.up {
						n.down(rapid.Bool().Draw(rt, "clean"))
					} else {
						n.start()
					}
					c.elect(c.leader)
				default:
					for _, n := range c.nodes {
						if n.up {
							h.watermark(rt, n)
						}
					}
				}
				time.Sleep(time.Duration(rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 300), rapid.IntRange(0, 4000)).Draw(rt, "ms")) * time.Millisecond)
			}
			if c.leader < 0 {
				for _, n := range c.nodes {
					if !n.up {
						n.start()
					}
				}
				c.electUnclean(node())
			}
			c.settle()
			lost += c.checkSame(h)
			runs, epochs, bounces = runs+1, epochs+int(c.epoch), bounces+int(c.epochSeq)-3
		})
		t.Logf("%d runs: %d unclean elections, %d acknowledged records lost by them, %d leader epochs, %d restarts", runs, unclean, lost, epochs, bounces)
		if unclean < runs || bounces < runs/2 || lost == 0 {
			t.Error("the simulation has become too quiet to show anything")
		}
	})
}

// watermark notes a leader's high watermark, which must not go back within its epoch.
func (h *history) watermark(t failer, n *node) {
	p := n.m.Partition(tp0)
	if p == nil {
		return
	}
	if _, hw, epoch, ok := committed(t, n); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		// A leader that was started anew leads in another epoch, or not at all.
		key := [2]int64{int64(n.id), int64(epoch)}
		if hw < h.hw[key] {
			t.Errorf("high watermark of leader %d in epoch %d went back from %d to %d", n.id, epoch, h.hw[key], hw)
		}
		h.hw[key] = hw
	}
}

// checkSame holds the logs against each other and counts acknowledged records that are gone.
func (c *cluster) checkSame(h *history) (lost int) {
	c.mu.Lock()
	leader, isr := c.leader, slices.Clone(c.isr)
	c.mu.Unlock()
	if len(isr) != 3 {
		c.t.Errorf("in-sync set %v after everything healed", isr)
		return 0
	}
	want := dump(c.t, c.node(leader))
	for _, o := range c.nodes {
		if !bytes.Equal(dump(c.t, o), want) {
			c.t.Errorf("log of %d differs from that of leader %d", o.id, leader)
		}
	}
	got, _, _, _ := committed(c.t, c.node(leader))
	h.mu.Lock()
	defer h.mu.Unlock()
	for o, v := range h.acked {
		if got[o] != v {
			lost++
		}
	}
	return lost
}
