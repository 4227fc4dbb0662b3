package controller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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

// TestDeletionSurvivesABrokersDeathAtEachRequest kills a broker that leads one partition and
// follows in the other at the first request to it after the mark, at the second, and so on,
// each time once before it has carried it out and once before its answer. When it is back
// the topic goes, with what it had and all that the controller knew of it.
func TestDeletionSurvivesABrokersDeathAtEachRequest(t *testing.T) {
	t.Parallel()
	for k := int64(1); ; k++ {
		for _, carriedOut := range []bool{false, true} {
			if !deletionWithoutABroker(t, k, carriedOut) {
				if k < 3 {
					t.Fatalf("only %d requests", k-1)
				}
				return
			}
		}
	}
}

// deletionWithoutABroker says whether there was a kth request.
func deletionWithoutABroker(t *testing.T, k int64, carriedOut bool) bool {
	what := fmt.Sprintf("request %d, carried out: %v", k, carriedOut)
	c := newCluster(t, 1, 2)
	victim := c.brokers[2]
	var armed atomic.Bool
	var seen atomic.Int64
	hit := make(chan struct{})
	victim.gate = func(ctx context.Context, req kmsg.Request) error {
		if !armed.Load() || seen.Add(1) != k {
			return nil
		}
		if carriedOut {
			if _, err := victim.Do(ctx, req); err != nil {
				return err
			}
		}
		c.locked(func() { victim.down = true })
		close(hit)
		return errors.New("killed")
	}
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2}, []int32{2, 1})
	old, err := c.zk.Topic(c.ctx, "t")
	must(t, err)
	// One replica lies in a log folder that has failed, of which the controller keeps a note.
	must(t, ctl.call(c.ctx, func(tm *term) error {
		tm.st.offline[1] = map[topicPart]bool{part("t", 0): true}
		return nil
	}))
	armed.Store(true)
	must(t, c.zk.Create(c.ctx, coordination.DeleteTopicsPath+"/t", nil))
	listed := func() bool {
		st, err := c.zk.Exists(c.ctx, coordination.TopicPath("t"))
		return err != nil || st != nil
	}
	reached := false
	c.free(what+": killed, or through", func() bool {
		select {
		case <-hit:
			reached = true
		default:
		}
		return reached || !listed()
	})
	if reached {
		victim.kill()
		c.await(what+": the controller missing it", func() bool { return !c.brokers[1].cache.Image().Alive(2) })
		// Whoever asked for the deletion is not kept waiting, and the topic is not forgotten.
		must(t, ctl.AwaitDeleted(c.ctx, "t"))
		if !listed() {
			t.Fatalf("%s: the topic is forgotten while a broker may have it", what)
		}
		c.start(2)
		c.free(what+": gone when it is back", func() bool { return !listed() })
	}
	for _, p := range []string{coordination.TopicPath("t"), "/config/topics/t", coordination.DeleteTopicsPath + "/t"} {
		if st, err := c.zk.Exists(c.ctx, p); err != nil || st != nil {
			t.Fatalf("%s: %s is still there (%v)", what, p, err)
		}
	}
	for _, id := range []int32{1, 2} {
		c.await(fmt.Sprintf("%s: broker %d rid of it", what, id), func() bool {
			f := c.brokers[id]
			return f.deleted[part("t", 0)] > 0 && f.deleted[part("t", 1)] > 0 && f.cache.Image().Topic("t") == nil
		})
	}
	must(t, ctl.call(c.ctx, func(tm *term) error {
		if len(tm.st.topics) > 0 || len(tm.st.names) > 0 || len(tm.st.offline[1])+len(tm.st.offline[2]) > 0 || len(tm.st.strays[1])+len(tm.st.strays[2]) > 0 {
			t.Errorf("%s: the controller keeps %v, offline %v, strays %v", what, tm.st.topics, tm.st.offline, tm.st.strays)
		}
		return nil
	}))
	c.create(ctl, "t", []int32{2, 1})
	if a, err := c.zk.Topic(c.ctx, "t"); err != nil || a.ID == old.ID {
		t.Fatalf("%s: made anew it has the old id: %v", what, err)
	}
	return reached
}
