package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// wish asks for other replicas; none takes a reassignment back.
func (c *cluster) wish(ctx context.Context, ctl *Controller, tp topicPart, replicas ...int32) *kerr.Error {
	c.t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Partition, rp.Replicas = tp.Partition, replicas
	rt.Topic, rt.Partitions = tp.Topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp := ctl.AlterPartitionAssignments(ctx, req)
	if resp.ErrorCode != 0 {
		return kerr.TypedErrorForCode(resp.ErrorCode)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != tp.Partition {
		c.t.Fatalf("%+v", resp)
	}
	return kerr.TypedErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}

func (c *cluster) move(ctl *Controller, tp topicPart, replicas ...int32) {
	c.t.Helper()
	if err := c.wish(c.ctx, ctl, tp, replicas...); err != nil {
		c.t.Fatalf("moving %s to %v: %v", tp, replicas, err)
	}
}

func (c *cluster) listed(ctl *Controller, tps ...topicPart) []string {
	c.t.Helper()
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	for _, tp := range tps {
		rt := kmsg.NewListPartitionReassignmentsRequestTopic()
		rt.Topic, rt.Partitions = tp.Topic, []int32{tp.Partition}
		req.Topics = append(req.Topics, rt)
	}
	resp := ctl.ListPartitionReassignments(c.ctx, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("listing: %s", text(resp.ErrorCode, resp.ErrorMessage))
	}
	var out []string
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			out = append(out, fmt.Sprintf("%s-%d %v +%v -%v", rt.Topic, p.Partition, p.Replicas, p.AddingReplicas, p.RemovingReplicas))
		}
	}
	return out
}

// free is await for conditions that ask the controller, whose answer has to pass
// the brokers.
func (c *cluster) free(what string, cond func() bool) {
	c.t.Helper()
	c.await(what, func() bool {
		c.mu.Unlock()
		defer c.mu.Lock()
		return cond()
	})
}

// join lets the partition's leader, as it was told, add replicas to its in-sync
// set, as often as it takes.
func (c *cluster) join(ctl *Controller, tp topicPart, ids ...int32) {
	c.t.Helper()
	c.free(fmt.Sprintf("%v in sync", ids), func() bool { return c.tryJoin(c.ctx, ctl, tp, ids) })
}

func (c *cluster) tryJoin(ctx context.Context, ctl *Controller, tp topicPart, ids []int32) (done bool) {
	s, err := c.zk.PartitionState(c.ctx, tp)
	if err != nil || s.Leader < 0 {
		return false
	}
	if len(without(ids, s.ISR)) == 0 {
		return true
	}
	a, err := c.zk.Topic(c.ctx, tp.Topic)
	if err != nil || ctl == nil {
		return false
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	rt := kmsg.NewAlterPartitionRequestTopic()
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rt.TopicID, rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = a.ID, tp.Partition, s.LeaderEpoch, s.Version
	told := false
	c.locked(func() {
		f := c.brokers[s.Leader]
		l, ok := f.leads[tp]
		told = ok && l.LeaderEpoch == s.LeaderEpoch && len(without(ids, l.Replicas)) == 0
		req.Version, req.BrokerID, req.BrokerEpoch = 3, s.Leader, f.epoch
		for _, id := range union(s.ISR, ids) {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID, m.BrokerEpoch = id, c.brokers[id].epoch
			rp.NewEpochISR = append(rp.NewEpochISR, m)
		}
	})
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	if told {
		r := ctl.AlterPartition(ctx, req)
		return r.ErrorCode == 0 && r.Topics[0].Partitions[0].ErrorCode == 0
	}
	return false
}

func (c *cluster) assignment(topic string, p int32) coordination.Assignment {
	c.t.Helper()
	a, err := c.zk.Topic(c.ctx, topic)
	must(c.t, err)
	return a.Of(p)
}

func (c *cluster) awaitAssignment(topic string, p int32, replicas ...int32) {
	c.t.Helper()
	c.await(fmt.Sprintf("%s-%d on %v", topic, p, replicas), func() bool {
		a, err := c.zk.Topic(c.ctx, topic)
		now := a.Of(p)
		return err == nil && slices.Equal(now.Replicas, replicas) && len(now.Adding)+len(now.Removing) == 0
	})
}

func TestReassignmentMovesAPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3, 4)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2}, []int32{1, 2})
	tp := part("t", 0)
	epoch := c.state("t", 0).LeaderEpoch

	c.move(ctl, tp, 3, 4)
	if got := c.listed(ctl); !slices.Equal(got, []string{"t-0 [3 4 1 2] +[3 4] -[1 2]"}) {
		t.Fatalf("listed %q", got)
	}
	if got := c.listed(ctl, part("t", 1), part("u", 0)); len(got) != 0 {
		t.Fatalf("listed %q", got)
	}
	a := c.assignment("t", 0)
	if !slices.Equal(a.Replicas, []int32{3, 4, 1, 2}) || !slices.Equal(a.Adding, []int32{3, 4}) || !slices.Equal(a.Removing, []int32{1, 2}) {
		t.Fatalf("znode: %+v", a)
	}
	c.await("all are told", func() bool {
		for id := int32(1); id <= 4; id++ {
			l := c.brokers[id].leads[tp]
			if l.LeaderEpoch != epoch+1 || l.Leader != 1 || !slices.Equal(l.Replicas, []int32{3, 4, 1, 2}) ||
				!slices.Equal(l.AddingReplicas, []int32{3, 4}) || !slices.Equal(l.RemovingReplicas, []int32{1, 2}) || l.IsNew != (id > 2) {
				return false
			}
			if p := c.brokers[id].cache.Image().Partition("t", 0); len(p.Replicas) != 4 {
				return false
			}
		}
		return true
	})

	// One of the two is not enough.
	c.join(ctl, tp, 3)
	if got := c.listed(ctl); len(got) != 1 || len(c.state("t", 0).ISR) != 3 {
		t.Fatalf("listed %q, state %+v", got, c.state("t", 0))
	}
	c.join(ctl, tp, 3, 4)
	c.awaitAssignment("t", 0, 3, 4)
	s := c.state("t", 0)
	if s.Leader != 3 || !slices.Equal(s.ISR, []int32{3, 4}) || s.LeaderEpoch != epoch+2 {
		t.Fatalf("%+v", s)
	}
	c.await("told", func() bool {
		for _, id := range []int32{1, 2} {
			if f := c.brokers[id]; f.deleted[tp] != 1 || f.deleted[part("t", 1)] != 0 {
				return false
			}
		}
		for _, f := range c.brokers {
			if p := f.cache.Image().Partition("t", 0); p.Leader != 3 || !slices.Equal(p.Replicas, []int32{3, 4}) {
				return false
			}
		}
		l := c.brokers[4].leads[tp]
		return l.Leader == 3 && l.LeaderEpoch == epoch+2 && len(l.AddingReplicas)+len(l.RemovingReplicas) == 0
	})
	if got := c.listed(ctl); len(got) != 0 {
		t.Fatalf("listed %q", got)
	}
	if a := c.assignment("t", 1); !slices.Equal(a.Replicas, []int32{1, 2}) {
		t.Fatalf("the other partition: %+v", a)
	}
	// Another order is a reassignment that is done at once; it moves no leader.
	c.move(ctl, tp, 4, 3)
	if s := c.state("t", 0); s.Leader != 3 || s.LeaderEpoch != epoch+3 {
		t.Fatalf("%+v", s)
	}
	c.awaitAssignment("t", 0, 4, 3)
	// Fewer, without the leader.
	c.move(ctl, tp, 4)
	c.awaitAssignment("t", 0, 4)
	if s := c.state("t", 0); s.Leader != 4 || !slices.Equal(s.ISR, []int32{4}) {
		t.Fatalf("%+v", s)
	}
	// More, and none that goes.
	c.move(ctl, tp, 2, 4, 3)
	c.join(ctl, tp, 2, 3)
	c.awaitAssignment("t", 0, 2, 4, 3)
	c.free("nothing is listed", func() bool { return len(c.listed(ctl)) == 0 })
	if s := c.state("t", 0); s.Leader != 4 || len(s.ISR) != 3 {
		t.Fatalf("%+v", s)
	}
}

func TestReassignmentErrors(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.create(ctl, "going", []int32{3})
	must(t, c.zk.Create(c.ctx, coordination.DeleteTopicsPath+"/going", nil))
	c.locked(func() { c.brokers[3].refuse[5] = kerr.UnknownServerError.Code }) // so that it stays a while
	c.await("known as going", func() bool { return c.brokers[1].cache.Image().Topic("going") == nil })
	tp := part("t", 0)
	for _, tc := range []struct {
		name string
		tp   topicPart
		to   []int32
		want *kerr.Error
	}{
		{"nothing to cancel", tp, nil, kerr.NoReassignmentInProgress},
		{"nothing to cancel, unknown topic", part("nope", 0), nil, kerr.NoReassignmentInProgress},
		{"no replica", tp, []int32{}, kerr.InvalidReplicaAssignment},
		{"one twice", tp, []int32{3, 3}, kerr.InvalidReplicaAssignment},
		{"below 0", tp, []int32{-1, 2}, kerr.InvalidReplicaAssignment},
		{"not alive", tp, []int32{1, 7}, kerr.InvalidReplicaAssignment},
		{"unknown topic", part("nope", 0), []int32{1}, kerr.UnknownTopicOrPartition},
		{"unknown partition", part("t", 4), []int32{1}, kerr.UnknownTopicOrPartition},
		{"unknown topic, not alive", part("nope", 0), []int32{7}, kerr.InvalidReplicaAssignment},
		{"being deleted", part("going", 0), []int32{1}, kerr.UnknownTopicOrPartition},
	} {
		if got := c.wish(c.ctx, ctl, tc.tp, tc.to...); tc.to != nil && got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		} else if tc.to == nil && got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
	if s := c.state("t", 0); s.LeaderEpoch != 0 {
		t.Errorf("a refused wish was carried out: %+v", s)
	}
	// KIP-1120: the caller does not want another number of replicas.
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	rp.Replicas = []int32{1, 2, 3}
	rt.Topic, rt.Partitions = "t", append(rt.Partitions, rp)
	req.Version, req.AllowReplicationFactorChange, req.Topics = 1, false, append(req.Topics, rt)
	if r := ctl.AlterPartitionAssignments(c.ctx, req); r.Topics[0].Partitions[0].ErrorCode != kerr.InvalidReplicationFactor.Code {
		t.Errorf("%+v", r)
	}
	// Growth and reassignment do not mix.
	c.move(ctl, tp, 3, 1)
	grow := kmsg.NewPtrCreatePartitionsRequest()
	gt := kmsg.NewCreatePartitionsRequestTopic()
	gt.Topic, gt.Count = "t", 2
	grow.Topics = append(grow.Topics, gt)
	if r := ctl.CreatePartitions(c.ctx, grow); r.Topics[0].ErrorCode != kerr.ReassignmentInProgress.Code {
		t.Errorf("%+v", r)
	}
	ctl.Stop()
	if got := c.wish(c.ctx, ctl, tp, 1, 2); got != kerr.NotController {
		t.Errorf("%v from a stopped controller", got)
	}
}

func TestReassignmentIsCancelled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3, 4)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	tp := part("t", 0)
	c.move(ctl, tp, 3, 4)
	c.join(ctl, tp, 3) // in sync already, and yet it goes
	c.move(ctl, tp)
	c.awaitAssignment("t", 0, 1, 2)
	if s := c.state("t", 0); s.Leader != 1 || !slices.Equal(s.ISR, []int32{1, 2}) {
		t.Fatalf("%+v", s)
	}
	c.await("deleted", func() bool { return c.brokers[3].deleted[tp] == 1 && c.brokers[4].deleted[tp] == 1 })
	if c.brokers[1].deleted[tp]+c.brokers[2].deleted[tp] != 0 {
		t.Fatal("a replica that was to stay was deleted")
	}
	if got := c.wish(c.ctx, ctl, tp); got != kerr.NoReassignmentInProgress {
		t.Fatalf("cancelled twice: %v", got)
	}
}

func TestReassignmentIsReplaced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3, 4)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	tp := part("t", 0)
	c.move(ctl, tp, 3, 4)
	c.join(ctl, tp, 3)
	c.move(ctl, tp, 4, 1)
	c.await("3 is gone", func() bool { return c.brokers[3].deleted[tp] == 1 })
	c.free("znode says so", func() bool { return slices.Equal(c.listed(ctl), []string{"t-0 [4 1 2] +[4] -[2]"}) })
	if a := c.assignment("t", 0); !slices.Equal(a.Replicas, []int32{4, 1, 2}) {
		t.Fatalf("%+v", a)
	}
	// What was told to go comes back.
	c.move(ctl, tp, 3, 1)
	c.await("4 is gone", func() bool { return c.brokers[4].deleted[tp] == 1 })
	c.join(ctl, tp, 3)
	c.awaitAssignment("t", 0, 3, 1)
	if s := c.state("t", 0); s.Leader != 1 || !slices.Equal(s.ISR, []int32{1, 3}) {
		t.Fatalf("%+v", s)
	}
	c.await("2 is gone", func() bool { return c.brokers[2].deleted[tp] == 1 && c.brokers[3].deleted[tp] == 1 })
}

// The last replica that has what was acknowledged must not be deleted by a cancellation.
func TestCancellingKeepsTheOnlyReplicaInSync(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1})
	tp := part("t", 0)
	c.start(4)
	c.await("4 lives", func() bool { return c.brokers[3].cache.Image().Alive(4) })
	c.move(ctl, tp, 3, 4)
	c.join(ctl, tp, 3)
	c.brokers[1].kill()
	c.await("3 leads", func() bool { return c.brokers[3].leads[tp].Leader == 3 })
	c.move(ctl, tp) // back to 1, which is dead
	if s := c.state("t", 0); s.Leader != 3 || !slices.Equal(s.ISR, []int32{3}) {
		t.Fatalf("%+v", s)
	}
	if got := c.listed(ctl); !slices.Equal(got, []string{"t-0 [1 3 4] +[] -[3 4]"}) {
		t.Fatalf("listed %q", got)
	}
	c.start(1)
	c.await("1 follows", func() bool { return c.brokers[1].leads[tp].Leader == 3 })
	c.locked(func() {
		if c.brokers[3].deleted[tp] != 0 {
			t.Error("the only replica in sync was deleted")
		}
	})
	c.join(ctl, tp, 1)
	c.awaitAssignment("t", 0, 1)
	if s := c.state("t", 0); s.Leader != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestReassignmentAwayFromADeadBroker(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	tp := part("t", 0)
	c.brokers[1].kill()
	c.await("2 leads", func() bool { return c.brokers[2].leads[tp].Leader == 2 })
	c.move(ctl, tp, 2, 3)
	c.join(ctl, tp, 3)
	c.awaitAssignment("t", 0, 2, 3)
	back := c.start(1)
	c.await("what it had is deleted when it returns", func() bool { return back.deleted[tp] == 1 })
	back.kill()
	c.await("1 is gone again", func() bool { return !c.brokers[3].cache.Image().Alive(1) })
	// The target dies and comes back: the reassignment waits for it.
	c.move(ctl, tp, 3)
	c.awaitAssignment("t", 0, 3)
	c.start(1)
	c.await("1 lives", func() bool { return c.brokers[3].cache.Image().Alive(1) })
	c.move(ctl, tp, 1)
	c.brokers[1].kill()
	c.await("1 is gone", func() bool { return !c.brokers[3].cache.Image().Alive(1) })
	if got := c.listed(ctl); !slices.Equal(got, []string{"t-0 [1 3] +[1] -[3]"}) {
		t.Fatalf("listed %q", got)
	}
	if s := c.state("t", 0); s.Leader != 3 {
		t.Fatalf("%+v", s)
	}
	c.start(1)
	c.await("1 follows", func() bool { return c.brokers[1].leads[tp].Leader == 3 && c.brokers[1].leads[tp].IsNew })
	c.join(ctl, tp, 1)
	c.awaitAssignment("t", 0, 1)
}

// A broker that is told to delete a replica and restarts instead is told again.
func TestLeavingReplicaThatRestartsIsToldAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1})
	tp := part("t", 0)
	c.move(ctl, tp, 2)
	c.locked(func() { c.brokers[1].down = true })
	old := c.brokers[1]
	// 1 leads, and answers nothing more: its wish is already on the way.
	c.locked(func() { old.down = false })
	c.await("1 was told", func() bool { return len(old.leads[tp].Replicas) == 2 })
	req := c.alter(1, "t", 0, []int32{1, 2})
	c.locked(func() { old.down = true })
	if r := ctl.AlterPartition(c.ctx, req); r.ErrorCode != 0 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	c.await("2 leads", func() bool { return c.brokers[2].leads[tp].Leader == 2 })
	if got := c.listed(ctl); !slices.Equal(got, []string{"t-0 [2 1] +[] -[1]"}) {
		t.Fatalf("listed %q", got)
	}
	old.proxy.Cut()
	again := c.start(1)
	c.await("told again", func() bool { return again.deleted[tp] == 1 })
	c.awaitAssignment("t", 0, 2)
	c.locked(func() {
		if _, ok := again.leads[tp]; ok {
			t.Error("it was told to host what it had to delete")
		}
	})
	// One that dies for good does not hold anything up.
	c.move(ctl, tp, 1)
	c.await("told", func() bool { return len(c.brokers[2].leads[tp].Replicas) == 2 })
	req = c.alter(2, "t", 0, []int32{1, 2})
	c.locked(func() { c.brokers[2].down = true })
	ctl.AlterPartition(c.ctx, req)
	c.await("1 leads", func() bool { return again.leads[tp].Leader == 1 })
	c.brokers[2].kill()
	c.awaitAssignment("t", 0, 1)
}

func TestReassignmentEndsWithItsTopic(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.move(ctl, part("t", 0), 3, 1)
	must(t, c.zk.Create(c.ctx, coordination.DeleteTopicsPath+"/t", nil))
	must(t, ctl.AwaitDeleted(c.ctx, "t"))
	c.await("all deleted", func() bool {
		for id := int32(1); id <= 3; id++ {
			if c.brokers[id].deleted[part("t", 0)] == 0 {
				return false
			}
		}
		return true
	})
	if got := c.listed(ctl); len(got) != 0 {
		t.Fatalf("listed %q", got)
	}
	c.create(ctl, "t", []int32{3, 2})
}

func TestReassignmentsAskedInZooKeeper(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1}, []int32{1}, []int32{1})
	ask := func(text string) { must(t, c.zk.Create(c.ctx, coordination.ReassignPath, []byte(text))) }
	answered := func() {
		c.await("the znode is gone", func() bool {
			st, err := c.zk.Exists(c.ctx, coordination.ReassignPath)
			return err == nil && st == nil
		})
	}
	ask(`{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[2]},{"topic":"t","partition":1,"replicas":[3]},
		{"topic":"nope","partition":0,"replicas":[3]},{"topic":"t","partition":2,"replicas":[3,3]}]}`)
	c.await("senseless ones are gone", func() bool {
		asked, _, err := c.zk.AskedReassignments(c.ctx)
		return err == nil && len(asked) == 2
	})
	c.join(ctl, part("t", 0), 2)
	c.await("one is done", func() bool {
		asked, _, err := c.zk.AskedReassignments(c.ctx)
		return err == nil && len(asked) == 1 && len(asked[part("t", 1)]) == 1
	})
	c.awaitAssignment("t", 0, 2)
	c.move(ctl, part("t", 1), 2) // a newer wish, by the protocol
	answered()
	c.join(ctl, part("t", 1), 2)
	c.awaitAssignment("t", 1, 2)
	ask(`no json`)
	answered()
	// Again, and another controller finds it.
	c.start(8).control()
	ask(`{"version":1,"partitions":[{"topic":"t","partition":2,"replicas":[3,2]}]}`)
	c.free("begun", func() bool { return len(c.listed(ctl)) == 1 })
	ctl.Stop()
	next := c.awaitController(8)
	c.join(next, part("t", 2), 3, 2)
	answered()
	c.awaitAssignment("t", 2, 3, 2)
}

// A log folder fails while replicas come and go: what comes waits for another
// place, what goes is gone.
func TestReassignmentWhileLogFoldersFail(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	tp := part("t", 0)
	c.locked(func() { c.brokers[3].lost = map[topicPart]bool{tp: true} })
	c.move(ctl, tp, 3, 1)
	c.await("3 is known to have lost it", func() bool {
		p := c.brokers[1].cache.Image().Partition("t", 0)
		return slices.Contains(p.Offline, 3)
	})
	if r := ctl.AlterPartition(c.ctx, c.alter(1, "t", 0, []int32{1, 2, 3})); r.Topics[0].Partitions[0].ErrorCode != kerr.IneligibleReplica.Code {
		t.Fatalf("%+v", r.Topics[0])
	}
	if got := c.listed(ctl); !slices.Equal(got, []string{"t-0 [3 1 2] +[3] -[2]"}) {
		t.Fatalf("listed %q", got)
	}
	// The folder is repaired, as a broker's next start does it.
	c.start(3)
	c.join(ctl, tp, 3)
	c.awaitAssignment("t", 0, 3, 1)
	// Now the one that goes can not delete what it has.
	c.locked(func() { c.brokers[1].refuse[5] = kerr.KafkaStorageError.Code })
	c.move(ctl, tp, 3)
	c.awaitAssignment("t", 0, 3)
	if s := c.state("t", 0); s.Leader != 3 || !slices.Equal(s.ISR, []int32{3}) {
		t.Fatalf("%+v", s)
	}
}

// Leadership that was moved for a reassignment stays where it is until that is over.
func TestRebalanceLeavesReassignmentsAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	tp := part("t", 0)
	c.move(ctl, tp, 2, 3)
	rebalance := func() {
		must(t, ctl.call(c.ctx, func(tm *term) error { return tm.rebalance() }))
	}
	rebalance()
	if s := c.state("t", 0); s.Leader != 1 {
		t.Fatalf("%+v", s)
	}
	c.move(ctl, tp)
	c.awaitAssignment("t", 0, 2, 1) // as with Kafka the order is not taken back
	rebalance()
	if s := c.state("t", 0); s.Leader != 2 {
		t.Fatalf("%+v", s)
	}
}

// What one znode can not hold is refused before anything is written; it would
// take the connection to ZooKeeper down again and again.
func TestReassignmentOfTooWideATopicIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	const n = 30_000
	wide := coordination.TopicAssignment{ID: coordination.NewTopicID(), Partitions: map[int32][]int32{}}
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "wide"
	for i := range int32(n) {
		wide.Partitions[i] = []int32{1}
		rp := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		rp.Partition, rp.Replicas = i, []int32{2}
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	var fence coordination.Fence
	must(t, ctl.call(c.ctx, func(tm *term) error {
		fence = tm.fence
		tm.st.addTopic("wide", wide) // known, but without 30,000 states in ZooKeeper
		return nil
	}))
	must(t, c.zk.CreateTopic(c.ctx, fence, "wide", wide, nil))
	if r := ctl.AlterPartitionAssignments(c.ctx, req); r.ErrorCode != kerr.InvalidPartitions.Code {
		t.Fatalf("%s", text(r.ErrorCode, r.ErrorMessage))
	}
	if a, err := c.zk.Topic(c.ctx, "wide"); err != nil || a.Version != 0 || !ctl.Active() {
		t.Fatalf("version %d, %v", a.Version, err)
	}
}
