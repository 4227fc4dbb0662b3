package controller

import (
	"context"
	"slices"
	"testing"
	"time"

	"penstock/dataplane/metadata"
)

// loseDir makes replicas unreadable and tells the controller as a broker does.
func (f *fake) loseDir(parts ...topicPart) {
	f.c.t.Helper()
	f.c.locked(func() {
		f.lost = map[topicPart]bool{}
		for _, tp := range parts {
			f.lost[tp] = true
		}
	})
	must(f.c.t, f.zk.NotifyLogDirFailure(f.c.ctx, f.id))
}

func TestFailedLogFolderTakesItsReplicasOutAndNoOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2, 3}, []int32{1, 3, 2}, []int32{2, 1, 3}, []int32{1, 2, 3})
	c.create(ctl, "alone", []int32{1})
	before := c.state("t", 3)
	c.brokers[1].loseDir(part("t", 0), part("t", 1), part("t", 2), part("alone", 0))
	image := func() *metadata.Image { return c.brokers[2].cache.Image() }
	c.await("leaders moved", func() bool {
		im := image()
		p0, p1, p2, p3 := im.Partition("t", 0), im.Partition("t", 1), im.Partition("t", 2), im.Partition("alone", 0)
		return p0.Leader == 2 && p1.Leader == 3 && p2.Leader == 2 && len(p2.ISR) == 2 && p3.Leader == metadata.NoLeader && slices.Equal(p0.Offline, []int32{1})
	})
	im := image()
	if !im.Alive(1) {
		t.Error("the broker counts as dead")
	}
	for p := range int32(3) {
		if s := c.state("t", p); slices.Contains(s.ISR, 1) || !slices.Equal(im.Partition("t", p).Offline, []int32{1}) {
			t.Errorf("t-%d: in sync %v, offline %v", p, s.ISR, im.Partition("t", p).Offline)
		}
	}
	if s := c.state("alone", 0); s.Leader != -1 || !slices.Equal(s.ISR, []int32{1}) {
		t.Errorf("the only replica: %+v", s)
	}
	if after := c.state("t", 3); !sameState(before, after) || len(im.Partition("t", 3).Offline) != 0 {
		t.Errorf("a partition in another folder was touched: %+v, then %+v", before, after)
	}
	names, err := c.zk.Children(c.ctx, "/log_dir_event_notification")
	if must(t, err); len(names) != 0 {
		t.Errorf("notifications stay: %v", names)
	}
	// It is not let into an ISR while the folder is away, and not elected.
	if code := ctl.AlterPartition(c.ctx, c.alter(2, "t", 0, []int32{2, 3, 1})).Topics[0].Partitions[0].ErrorCode; code == 0 {
		t.Error("a replica in a failed folder was let into the in-sync set")
	}
	c.brokers[2].kill()
	c.await("the third leads", func() bool { return c.brokers[3].cache.Image().Partition("t", 0).Leader == 3 })

	// A controller that takes over learns of it by the answers to its first orders.
	ctl.Stop()
	next := c.start(8).control()
	c.awaitController(8)
	c.await("known to the next controller", func() bool {
		p := next.cache.Image().Partition("t", 0)
		return p != nil && slices.Contains(p.Offline, 1)
	})
	// Repaired and started again it takes part as before.
	back := c.start(1)
	c.await("back", func() bool {
		im := next.cache.Image()
		return back.leads[part("alone", 0)].Leader == 1 && !slices.Contains(im.Partition("t", 0).Offline, 1) && im.Partition("alone", 0).Leader == 1
	})
}

func TestTopicWithAReplicaInAFailedFolderGoesWhenTheFolderIsBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.locked(func() { c.brokers[1].refuse[5] = 56 })
	c.brokers[1].loseDir(part("t", 0))
	c.await("lost", func() bool { return c.brokers[2].cache.Image().Partition("t", 0).Leader == 2 })
	must(t, c.zk.MarkForDeletion(c.ctx, ctl.term.Load().fence, "t"))
	c.await("deleted on the other", func() bool { return c.brokers[2].deleted[part("t", 0)] == 1 })
	short, cancel := context.WithTimeout(c.ctx, 200*time.Millisecond)
	defer cancel()
	if ctl.AwaitDeleted(short, "t") == nil {
		t.Fatal("the topic is gone although a replica could not be deleted")
	}
	c.start(1)
	must(t, ctl.AwaitDeleted(c.ctx, "t"))
}
