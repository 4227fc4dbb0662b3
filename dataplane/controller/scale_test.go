package controller

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestManyPartitionsTakeFewRequests: what a broker's loss, its return and a
// failover have to say about hundreds of partitions goes to each broker in a few
// requests, not in one for each partition or topic. How fast that is with real
// brokers is for brokertest to say.
func TestManyPartitionsTakeFewRequests(t *testing.T) {
	t.Parallel()
	const topics, each = 10, 30
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(8).control().ctl
	c.awaitController(8)
	c.start(9).control()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	var names []string
	for i := range topics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = fmt.Sprintf("topic-%03d", i), -1, -1
		for p := range each {
			ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			n := int32(i*each + p)
			ra.Partition, ra.Replicas = int32(p), []int32{1 + n%3, 1 + (n+1)%3, 1 + (n+2)%3}
			rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
		}
		req.Topics = append(req.Topics, rt)
		names = append(names, rt.Topic)
	}
	for _, rt := range ctl.CreateTopics(c.ctx, req).Topics {
		if rt.ErrorCode != 0 {
			t.Fatal(text(rt.ErrorCode, rt.ErrorMessage))
		}
	}
	must(t, ctl.AwaitPropagated(c.ctx, names...))

	told := func(what string, id int32, cond func(f *fake) bool) {
		t.Helper()
		c.await(what, func() bool { return cond(c.brokers[id]) })
		c.locked(func() {
			f := c.brokers[id]
			if len(f.log) > 6 {
				t.Errorf("%s took %d requests to broker %d: %v", what, len(f.log), id, f.log)
			}
			f.log = nil
		})
	}
	// ledBy counts the partitions that the broker was told that leader of.
	ledBy := func(f *fake, leader int32) (n int) {
		for _, l := range f.leads {
			if l.Leader == leader {
				n++
			}
		}
		return n
	}
	c.locked(func() {
		for _, f := range c.brokers {
			f.log = nil
		}
	})
	c.brokers[1].kill()
	told("the loss", 2, func(f *fake) bool {
		im := f.cache.Image()
		for tc := range im.Topics() {
			for _, p := range tc.Sorted() {
				if p.Leader == 1 || len(p.ISR) != 2 {
					return false
				}
			}
		}
		return ledBy(f, 1) == 0
	})
	back := c.start(1)
	told("the return", 1, func(f *fake) bool {
		return len(f.leads) == topics*each && f.cache.Image().Topic(names[topics-1]) != nil
	})
	must(t, ctl.AwaitPropagated(c.ctx, names...))
	c.locked(func() { back.log, c.brokers[2].log = nil, nil })
	ctl.Stop()
	next := c.awaitController(9)
	must(t, next.AwaitPropagated(c.ctx, names...))
	told("the failover", 2, func(f *fake) bool { return f.cache.Image().ControllerID == 9 })
}
