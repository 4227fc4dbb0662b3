package controller

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

const opMulti = 14 // ZooKeeper's; each of a controller's writes is one

// TestDeletionSurvivesTheControllersDeathAtEachStep kills the controller at its
// first write to ZooKeeper after the mark, its second, and so on until one
// controller gets through: the next finishes the deletion each time, and the
// topic can be made anew.
func TestDeletionSurvivesTheControllersDeathAtEachStep(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	steps := 0
	for done := false; !done; steps++ {
		name := fmt.Sprint("t", steps)
		id := int32(100 + steps)
		old := c.start(id).control()
		ctl := c.awaitController(id)
		c.create(ctl, name, []int32{1, 2}, []int32{2, 1})
		c.start(id + 1000).control()
		req := kmsg.NewPtrDeleteTopicsRequest()
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.Topic = &name
		req.Version, req.Topics = 6, []kmsg.DeleteTopicsRequestTopic{rt}
		held := old.proxy.Hold(opMulti, 1+steps) // the mark itself gets through
		if r := ctl.DeleteTopics(c.ctx, req).Topics[0]; r.ErrorCode != 0 {
			t.Fatalf("%s", text(r.ErrorCode, r.ErrorMessage))
		}
		gone := make(chan error, 1)
		go func() { gone <- ctl.AwaitDeleted(c.ctx, name) }()
		select {
		case <-held:
			old.kill()
			go ctl.Stop() // takes a while with ZooKeeper out of reach; the cleanup waits for it
		case err := <-gone:
			must(t, err)
			done = true
			old.proxy.Drop() // and is no longer held
			ctl.Stop()
		}
		next := c.awaitController(id + 1000)
		must(t, next.AwaitDeleted(c.ctx, name))
		for _, p := range []string{coordination.TopicPath(name), "/config/topics/" + name, coordination.DeleteTopicsPath + "/" + name} {
			if st, err := c.zk.Exists(c.ctx, p); err != nil || st != nil {
				t.Fatalf("step %d: %s is still there (%v)", steps, p, err)
			}
		}
		for _, b := range []int32{1, 2} {
			c.await(fmt.Sprintf("step %d: broker %d rid of it", steps, b), func() bool {
				f := c.brokers[b]
				return f.deleted[part(name, 0)] > 0 && f.deleted[part(name, 1)] > 0 && f.cache.Image().Topic(name) == nil
			})
		}
		c.create(next, name, []int32{2})
		next.Stop()
	}
	// The folders of two partitions, their states and themselves, the folder of
	// partitions, the topic, its config, the mark.
	if steps < 8 {
		t.Errorf("only %d steps", steps)
	}
}
