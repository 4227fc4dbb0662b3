package controller

import (
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/metadata"
)

// ask asks for elections and gives the code of each partition that is answered.
func (c *cluster) ask(ctl *Controller, kind int8, tps ...topicPart) map[topicPart]*kerr.Error {
	c.t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 2, kind
	for _, tp := range tps {
		rt := kmsg.NewElectLeadersRequestTopic()
		rt.Topic, rt.Partitions = tp.Topic, []int32{tp.Partition}
		req.Topics = append(req.Topics, rt)
	}
	resp := ctl.ElectLeaders(c.ctx, req)
	if resp.ErrorCode != 0 {
		c.t.Fatalf("%s", text(resp.ErrorCode, nil))
	}
	got := map[topicPart]*kerr.Error{}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			got[part(rt.Topic, p.Partition)] = kerr.TypedErrorForCode(p.ErrorCode)
			if (p.ErrorCode == 0) != (p.ErrorMessage == nil) {
				c.t.Errorf("%s-%d: %s", rt.Topic, p.Partition, text(p.ErrorCode, p.ErrorMessage))
			}
		}
	}
	return got
}

// shrink leaves only the leader in sync.
func (c *cluster) shrink(ctl *Controller, topic string, leader int32) {
	c.t.Helper()
	if r := ctl.AlterPartition(c.ctx, c.alter(leader, topic, 0, []int32{leader})); r.ErrorCode != 0 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		c.t.Fatalf("%+v", r)
	}
}

func TestPreferredElectionOnDemand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.create(ctl, "out", []int32{1, 2})
	c.create(ctl, "right", []int32{2, 1})
	c.create(ctl, "dead", []int32{3, 2})
	c.create(ctl, "going", []int32{2})
	c.brokers[1].kill()
	c.brokers[3].kill()
	c.await("2 leads", func() bool {
		im := c.brokers[2].cache.Image()
		return im.Partition("t", 0).Leader == 2 && im.Partition("out", 0).Leader == 2 && im.Partition("dead", 0).Leader == 2
	})
	c.start(1)
	c.await("1 lives", func() bool { return c.brokers[2].cache.Image().Alive(1) })
	c.join(ctl, part("t", 0), 1)
	c.locked(func() { c.brokers[2].refuse[5] = kerr.UnknownServerError.Code })
	must(t, c.zk.Create(c.ctx, coordination.DeleteTopicsPath+"/going", nil))
	c.await("known as going", func() bool { return c.brokers[2].cache.Image().Topic("going") == nil })

	got := c.ask(ctl, preferredElection, part("t", 0), part("out", 0), part("right", 0), part("dead", 0), part("t", 7), part("nope", 0), part("going", 0))
	for tp, want := range map[topicPart]*kerr.Error{
		part("t", 0): nil, part("out", 0): kerr.PreferredLeaderNotAvailable, part("right", 0): kerr.ElectionNotNeeded,
		part("dead", 0): kerr.PreferredLeaderNotAvailable, part("t", 7): kerr.UnknownTopicOrPartition, part("nope", 0): kerr.UnknownTopicOrPartition,
		part("going", 0): kerr.InvalidTopicException,
	} {
		if have, ok := got[tp]; !ok || have != want {
			t.Errorf("%s: %v, want %v", tp, have, want)
		}
	}
	c.locked(func() { // told before the answer
		if l := c.brokers[2].leads[part("t", 0)]; l.Leader != 1 || c.brokers[2].cache.Image().Partition("t", 0).Leader != 1 {
			t.Errorf("%+v", l)
		}
	})
	// All: those that need none are left out.
	c.join(ctl, part("out", 0), 1)
	got = c.ask(ctl, preferredElection)
	if err, ok := got[part("out", 0)]; len(got) != 2 || !ok || err != nil || got[part("dead", 0)] != kerr.PreferredLeaderNotAvailable {
		t.Errorf("%v", got)
	}
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = 2, 7
	if r := ctl.ElectLeaders(c.ctx, req); r.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("%+v", r)
	}
	ctl.Stop()
	req.ElectionType = 0
	rt := kmsg.NewElectLeadersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0}
	req.Topics = append(req.Topics, rt)
	if r := ctl.ElectLeaders(c.ctx, req); r.ErrorCode != kerr.NotController.Code || r.Topics[0].Partitions[0].ErrorCode != kerr.NotController.Code {
		t.Errorf("%+v", r)
	}
}

func TestUncleanElectionOnDemand(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.create(ctl, "alone", []int32{1})
	c.create(ctl, "led", []int32{2})
	c.shrink(ctl, "t", 1)
	if got := c.ask(ctl, uncleanElection, part("t", 0)); got[part("t", 0)] != kerr.ElectionNotNeeded {
		t.Errorf("%v", got)
	}
	c.brokers[1].kill()
	c.await("1 is gone", func() bool { return !c.brokers[2].cache.Image().Alive(1) })
	if got := c.ask(ctl, preferredElection, part("t", 0)); got[part("t", 0)] != kerr.PreferredLeaderNotAvailable {
		t.Errorf("%v", got)
	}
	got := c.ask(ctl, uncleanElection)
	if err, ok := got[part("t", 0)]; len(got) != 2 || !ok || err != nil || got[part("alone", 0)] != kerr.EligibleLeadersNotAvailable {
		t.Errorf("%v", got)
	}
	if s := c.state("t", 0); s.Leader != 2 || !s.Recovering || !slices.Equal(s.ISR, []int32{2}) {
		t.Errorf("%+v", s)
	}
}

// Switched on while partitions are offline, for a topic or for all, unclean election happens at once.
func TestUncleanElectionIsSwitchedOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	var byDefault atomic.Bool
	ctl := c.start(9).control(func(cfg *Config) { cfg.UncleanLeaderElection = byDefault.Load }).ctl
	c.awaitController(9)
	for _, topic := range []string{"a", "b", "never"} {
		c.create(ctl, topic, []int32{1, 2})
		c.shrink(ctl, topic, 1)
	}
	set := func(topic, value string) {
		must(t, c.zk.ChangeConfig(c.ctx, "topics/"+topic, func(map[string]string) (map[string]string, error) {
			return map[string]string{"unclean.leader.election.enable": value}, nil
		}))
	}
	set("never", "false")
	c.brokers[1].kill()
	leader := func(topic string) int32 { return c.brokers[2].cache.Image().Partition(topic, 0).Leader }
	c.await("no leaders", func() bool {
		return leader("a") == metadata.NoLeader && leader("b") == metadata.NoLeader && leader("never") == metadata.NoLeader
	})
	ctl.ElectAgain("") // nothing has changed
	set("a", "true")
	ctl.ElectAgain("a")
	c.await("a is led", func() bool { return leader("a") == 2 })
	if s := c.state("b", 0); s.Leader != -1 {
		t.Fatalf("%+v", s)
	}
	byDefault.Store(true)
	ctl.ElectAgain("")
	c.await("b is led", func() bool { return leader("b") == 2 })
	if s := c.state("never", 0); s.Leader != -1 {
		t.Fatalf("%+v", s)
	}
}
