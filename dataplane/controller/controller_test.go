package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/metadata"
)

func part(topic string, p int32) topicPart { return topicPart{Topic: topic, Partition: p} }

func TestTopicIsServedByAllBrokersBeforeAwaitReturns(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(4).control().ctl
	c.awaitController(4)
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = "t", 8, 3
	made := c.createTopic(ctl, rt)
	must(t, ctl.AwaitPropagated(c.ctx, "t"))
	c.locked(func() {
		hosted := 0
		for id, f := range c.brokers {
			im := f.cache.Image()
			topic := im.Topic("t")
			if topic == nil || topic.Len() != 8 || topic.ID != made.TopicID || im.ControllerID != 4 || len(im.Brokers) != 4 {
				t.Fatalf("broker %d knows %+v", id, topic)
			}
			for _, p := range topic.Sorted() {
				i := p.Index
				if p.Leader < 0 || p.LeaderEpoch != 0 || len(p.ISR) != 3 || p.Leader != p.Replicas[0] {
					t.Errorf("broker %d, partition %d: %+v", id, i, p)
				}
				if slices.Contains(p.Replicas, id) {
					hosted++
					if l, ok := f.leads[part("t", i)]; !ok || !l.IsNew || l.Leader != p.Leader {
						t.Errorf("broker %d was not told to host %d: %+v", id, i, l)
					}
				}
			}
			if e, ok := im.Brokers[2].Endpoint("internal"); !ok || e.Port != 10002 || e.SecurityProtocol != 2 {
				t.Errorf("endpoint %+v", e)
			}
		}
		if hosted != 24 {
			t.Errorf("%d replicas", hosted)
		}
	})
}

func TestBrokerLossElectsFromISRInAssignmentOrder(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2, 3}, []int32{1, 3, 2}, []int32{2, 1, 3})
	c.create(ctl, "alone", []int32{1})
	c.brokers[1].kill()
	c.await("leaders moved", func() bool {
		im := c.brokers[2].cache.Image()
		p0, p1, p2, p3 := im.Partition("t", 0), im.Partition("t", 1), im.Partition("t", 2), im.Partition("alone", 0)
		return !im.Alive(1) && p0.Leader == 2 && p1.Leader == 3 && p2.Leader == 2 && len(p2.ISR) == 2 && p3.Leader == metadata.NoLeader
	})
	for p, want := range map[topicPart]coordination.PartitionState{
		part("t", 0):     {Leader: 2, LeaderEpoch: 1, ISR: []int32{2, 3}},
		part("t", 1):     {Leader: 3, LeaderEpoch: 1, ISR: []int32{3, 2}},
		part("t", 2):     {Leader: 2, LeaderEpoch: 1, ISR: []int32{2, 3}},
		part("alone", 0): {Leader: -1, LeaderEpoch: 1, ISR: []int32{1}},
	} {
		got := c.state(p.Topic, p.Partition)
		slices.Sort(got.ISR)
		slices.Sort(want.ISR)
		if got.Leader != want.Leader || got.LeaderEpoch != want.LeaderEpoch || !slices.Equal(got.ISR, want.ISR) {
			t.Errorf("%s: %+v, want %+v", p, got, want)
		}
	}
	c.await("remaining replicas follow", func() bool {
		return c.brokers[3].leads[part("t", 0)].Leader == 2 && c.brokers[3].leads[part("t", 0)].LeaderEpoch == 1
	})
	// It comes back: the partition that only it had is led again, and it is told
	// of everything.
	back := c.start(1)
	c.await("back", func() bool {
		return back.leads[part("alone", 0)].Leader == 1 && back.leads[part("t", 0)].Leader == 2 &&
			back.cache.Image().Partition("t", 2) != nil && c.brokers[2].cache.Image().Alive(1)
	})
}

func TestBounceIsALossAndAStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	// Another life under the same address, in the same instant.
	c.brokers[1].proxy.Cut()
	again := c.start(1)
	c.await("other leader", func() bool {
		return again.leads[part("t", 0)].Leader == 2 && again.leads[part("t", 0)].LeaderEpoch >= 1 && again.cache.Image().Alive(1)
	})
	if s := c.state("t", 0); slices.Contains(s.ISR, 1) {
		t.Fatalf("a broker that has lost its memory is still in sync: %+v", s)
	}
}

func TestFailoverCarriesOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.brokers[1].control()
	first := c.awaitController(1)
	c.brokers[2].control()
	c.create(first, "t", []int32{1, 2})
	epoch := first.Epoch()
	c.brokers[1].kill()
	second := c.awaitController(2)
	c.await("leader", func() bool { return c.brokers[2].leads[part("t", 0)].Leader == 2 })
	if second.Epoch() != epoch+1 || c.state("t", 0).ControllerEpoch != epoch+1 {
		t.Fatalf("epoch %d after %d", second.Epoch(), epoch)
	}
	c.create(second, "u", []int32{2})
	// A clean stop hands over at once.
	three := c.start(3).control()
	c.await("3 looks on", func() bool { return three.ctl.ID() == 2 })
	second.Stop()
	c.awaitController(3)
	if resp := second.AlterPartition(c.ctx, kmsg.NewPtrAlterPartitionRequest()); resp.ErrorCode != kerr.NotController.Code {
		t.Fatalf("a stopped controller answers %d", resp.ErrorCode)
	}
}

func TestZombieControllerWritesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	c.brokers[1].control()
	zombie := c.awaitController(1)
	c.create(zombie, "t", []int32{3, 2})
	fence := zombie.term.Load().fence
	c.brokers[2].control()
	// Its session ends and it does not notice, being cut off.
	c.brokers[1].proxy.Cut()
	c.brokers[1].proxy.Expire(t)
	c.awaitController(2)
	before := c.state("t", 0)
	tm := zombie.term.Load()
	if tm == nil {
		t.Fatal("it should not have noticed yet")
	}
	// What it decided before goes out when the network is back.
	done := make(chan error, 1)
	zombie.queue.post("", func() error {
		_, err := tm.update(tm.st.partitionsOn(3), func(p *partition) (coordination.PartitionState, bool) {
			return coordination.PartitionState{Leader: 2, ISR: []int32{2}}, true
		}, false)
		done <- err
		return err
	})
	c.brokers[1].proxy.Heal()
	if err := <-done; err == nil {
		t.Fatal("a zombie wrote")
	}
	// Nor under its new session, whatever it believes.
	ws := []coordination.StateWrite{{TP: part("t", 0), State: coordination.PartitionState{Leader: 2, Version: before.Version}}}
	for {
		_, err := c.brokers[1].zk.UpdateStates(c.ctx, fence, ws)
		if errors.Is(err, coordination.ErrExpired) {
			continue // told once that its session is over
		}
		if !errors.Is(err, coordination.ErrControllerMoved) {
			t.Fatalf("zombie's write: %v", err)
		}
		break
	}
	c.await("resigned", func() bool { return !zombie.Active() && zombie.ID() == 2 })
	if after := c.state("t", 0); after.Leader != before.Leader {
		t.Fatalf("%+v became %+v", before, after)
	}
}

func TestBrokersRefuseAStaleController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.locked(func() { c.brokers[1].ctlEp = 100 })
	// The refusal makes it look; the znode says that it is controller, so it
	// stays and does not spin.
	c.create2(ctl, "t", []int32{1})
	if !ctl.Active() {
		t.Fatal("resigned without another controller")
	}
}

// create2 creates without waiting for brokers.
func (c *cluster) create2(ctl *Controller, name string, replicas []int32) {
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, -1, -1
	ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	ra.Replicas = replicas
	rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	c.createTopic(ctl, rt)
}

func TestDeletionWaitsForDeadBrokersAndSurvivesFailover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.start(8).control()
	ctl := c.awaitController(8)
	c.create(ctl, "t", []int32{1, 2}, []int32{2, 1})
	c.brokers[2].kill()
	c.await("2 is gone", func() bool { return !c.brokers[1].cache.Image().Alive(2) })
	name := "t"
	req := kmsg.NewPtrDeleteTopicsRequest()
	rt := kmsg.NewDeleteTopicsRequestTopic()
	rt.Topic = &name
	req.Version, req.Topics = 6, []kmsg.DeleteTopicsRequestTopic{rt}
	if r := ctl.DeleteTopics(c.ctx, req).Topics[0]; r.ErrorCode != 0 {
		t.Fatalf("%s", text(r.ErrorCode, r.ErrorMessage))
	}
	must(t, ctl.AwaitDeleted(c.ctx, "t")) // the dead broker is not waited for
	c.await("live replicas deleted, topic unknown", func() bool {
		return c.brokers[1].deleted[part("t", 0)] > 0 && c.brokers[1].deleted[part("t", 1)] > 0 && c.brokers[1].cache.Image().Topic("t") == nil
	})
	if _, err := c.zk.Topic(c.ctx, "t"); err != nil {
		t.Fatalf("the topic went before its dead replica: %v", err)
	}
	// Meanwhile it can not be created.
	again := kmsg.NewPtrCreateTopicsRequest()
	nt := kmsg.NewCreateTopicsRequestTopic()
	nt.Topic, nt.NumPartitions, nt.ReplicationFactor = "t", 1, 1
	again.Version, again.Topics = 7, []kmsg.CreateTopicsRequestTopic{nt}
	if r := ctl.CreateTopics(c.ctx, again).Topics[0]; r.ErrorCode != kerr.TopicAlreadyExists.Code {
		t.Fatalf("%s", text(r.ErrorCode, r.ErrorMessage))
	}
	// Another controller takes over, and then the broker comes back.
	c.start(9).control()
	ctl.Stop()
	next := c.awaitController(9)
	back := c.start(2)
	c.await("the rest deleted", func() bool { return back.deleted[part("t", 0)] > 0 && back.deleted[part("t", 1)] > 0 })
	must(t, next.AwaitDeleted(c.ctx, "t"))
	for _, p := range []string{coordination.TopicPath("t"), "/config/topics/t", coordination.DeleteTopicsPath + "/t"} {
		if st, err := c.zk.Exists(c.ctx, p); err != nil || st != nil {
			t.Errorf("%s is still there", p)
		}
	}
	c.locked(func() {
		if back.leads[part("t", 0)].LeaderEpoch != 0 || len(back.leads) != 0 {
			t.Errorf("a broker was told to host what is being deleted: %+v", back.leads)
		}
	})
	c.create(next, "t", []int32{2})
}

func TestCreationSurvivesFailover(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	// A controller that died after the topic's znode and before its states.
	f, _, won, err := c.zk.ElectController(c.ctx, 99)
	if err != nil || !won {
		t.Fatal(err)
	}
	must(t, c.zk.CreateTopic(c.ctx, f, "t", coordination.TopicAssignment{ID: coordination.NewTopicID(), Partitions: map[int32][]int32{0: {1}, 1: {2}}}, nil))
	must(t, c.zk.ResignController(c.ctx, f))
	c.brokers[1].control()
	c.awaitController(1)
	c.await("led", func() bool { return c.brokers[1].leads[part("t", 0)].Leader == 1 })
	// Partition 1 has no live replica: it is led as soon as there is one.
	late := c.start(2)
	c.await("led later", func() bool {
		p := c.brokers[1].cache.Image().Partition("t", 1)
		return p != nil && p.Leader == 2 && late.leads[part("t", 1)].IsNew
	})
}

func TestPreferredLeadersComeBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control(func(cfg *Config) {
		cfg.AutoRebalance, cfg.RebalanceDelay, cfg.RebalanceInterval = true, time.Millisecond, 20*time.Millisecond
	}).ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.brokers[1].kill()
	c.await("moved", func() bool { return c.brokers[2].leads[part("t", 0)].Leader == 2 })
	c.start(1)
	c.await("alive", func() bool { return c.brokers[2].cache.Image().Alive(1) })
	if r := ctl.AlterPartition(c.ctx, c.alter(2, "t", 0, []int32{2, 1})); r.ErrorCode != 0 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("%+v", r)
	}
	c.await("back", func() bool { return c.brokers[2].leads[part("t", 0)].Leader == 1 })
	if s := c.state("t", 0); s.Leader != 1 || len(s.ISR) != 2 {
		t.Fatalf("%+v", s)
	}
}

func TestUncleanElectionOnlyWhereAllowed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "safe", []int32{1, 2})
	c.create(ctl, "loose", []int32{1, 2})
	must(t, c.zk.ChangeConfig(c.ctx, "topics/loose", func(map[string]string) (map[string]string, error) {
		return map[string]string{"unclean.leader.election.enable": "true"}, nil
	}))
	for _, topic := range []string{"safe", "loose"} {
		if r := ctl.AlterPartition(c.ctx, c.alter(1, topic, 0, []int32{1})); r.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
	}
	c.brokers[1].kill()
	c.await("known", func() bool { return !c.brokers[2].cache.Image().Alive(1) })
	c.await("elections", func() bool {
		im := c.brokers[2].cache.Image()
		return im.Partition("loose", 0).Leader == 2 && im.Partition("safe", 0).Leader == metadata.NoLeader
	})
	if s := c.state("loose", 0); !s.Recovering || !slices.Equal(s.ISR, []int32{2}) {
		t.Errorf("%+v", s)
	}
	if s := c.state("safe", 0); s.Leader != -1 || !slices.Equal(s.ISR, []int32{1}) {
		t.Errorf("%+v", s)
	}
}

func TestUnreachableBrokerGetsEverythingLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.locked(func() { c.brokers[2].down = true })
	c.create2(ctl, "t", []int32{2, 1})
	c.await("1 knows", func() bool { return c.brokers[1].cache.Image().Topic("t") != nil })
	// Registered, but silent: nothing must be forgotten, and order must be kept.
	var want []string
	for i := range 3 {
		name := fmt.Sprint("t", i)
		c.create2(ctl, name, []int32{2})
		want = append(want, name)
	}
	// Nobody waits for a broker that no client can reach either.
	must(t, ctl.AwaitPropagated(c.ctx, append(want, "t")...))
	c.locked(func() {
		if len(c.brokers[2].leads) != 0 {
			t.Error("it answered after all")
		}
		c.brokers[2].down = false
	})
	c.await("told of all", func() bool {
		for _, name := range append(want, "t") {
			if c.brokers[2].cache.Image().Topic(name) == nil || c.brokers[2].leads[part(name, 0)].Leader != 2 {
				return false
			}
		}
		return true
	})
	// Each topic's LeaderAndIsr came before its metadata.
	c.locked(func() {
		log := c.brokers[2].log
		for i, kind := range log {
			if kind == "LeaderAndISR" && (i+1 == len(log) || log[i+1] != "UpdateMetadata") {
				t.Errorf("order %v", log)
			}
		}
	})
}

func TestOverflowedQueueIsResynced(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	c.locked(func() { c.brokers[2].down = true })
	must(t, ctl.call(c.ctx, func(tm *term) error {
		for range maxQueued + 10 {
			tm.sendMetadata([]int32{2}, nil)
		}
		return nil
	}))
	c.create2(ctl, "u", []int32{2})
	c.locked(func() { c.brokers[2].down = false })
	c.await("told after the overflow", func() bool {
		return c.brokers[2].leads[part("u", 0)].Leader == 2 && c.brokers[2].cache.Image().Topic("u") != nil
	})
}

func TestSessionLossReelectsAndReregisters(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	c.brokers[1].control()
	ctl := c.awaitController(1)
	c.create(ctl, "t", []int32{1})
	epoch := ctl.Epoch()
	var old int64
	c.locked(func() { old = c.brokers[1].epoch })
	c.brokers[1].proxy.Expire(t)
	c.await("again", func() bool { return ctl.Active() && ctl.Epoch() > epoch && c.brokers[1].epoch > old })
	c.create(ctl, "u", []int32{1})
}

func TestControllersNextLifeTakesOfficeWhileItsOldSessionLives(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.brokers[1].control()
	old := c.awaitController(1)
	c.create(old, "t", []int32{2})
	c.brokers[1].proxy.Cut() // as if killed: the session has another minute
	next := c.start(1).control().ctl
	c.awaitController(1)
	if next.Epoch() != 2 || !old.Active() {
		t.Fatalf("epoch %d; old one active %v", next.Epoch(), old.Active())
	}
	c.create(next, "u", []int32{1, 2})
}

// TestControllerThatIsBackFirstDoesNotLeadOn kills the controller, which leads
// and follows, and has its next life take office before anybody else: nobody has
// seen the registration go. What it led goes to others, under a new epoch, and it
// is in sync nowhere; where it was alone it leads again, under a new epoch, too.
func TestControllerThatIsBackFirstDoesNotLeadOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	c.brokers[1].control()
	old := c.awaitController(1)
	c.create(old, "leads", []int32{1, 2, 3})
	c.create(old, "follows", []int32{2, 1, 3})
	c.create(old, "alone", []int32{1})
	c.create(old, "others", []int32{2, 3})
	c.brokers[1].proxy.Cut()
	again := c.start(1)
	again.control()
	c.await("the next life is told of all", func() bool { return len(again.leads) == 3 })
	c.locked(func() {
		if again.first != 4 {
			t.Errorf("the controller's first word to a new broker is of %d topics", again.first)
		}
	})
	for _, want := range []struct {
		topic  string
		leader int32
		epoch  int32
		isr    []int32
	}{{"leads", 2, 1, []int32{2, 3}}, {"follows", 2, 1, []int32{2, 3}}, {"alone", 1, 0, []int32{1}}, {"others", 2, 0, []int32{2, 3}}} {
		s := c.state(want.topic, 0)
		if s.Leader != want.leader || s.LeaderEpoch != want.epoch || !slices.Equal(s.ISR, want.isr) {
			t.Errorf("%s: %+v, want %+v", want.topic, s, want)
		}
		c.locked(func() {
			if told, ok := again.leads[part(want.topic, 0)]; ok && told.LeaderEpoch != want.epoch {
				t.Errorf("%s: it was told of epoch %d", want.topic, told.LeaderEpoch)
			}
		})
	}
	// A term that begins with nothing changed changes nothing.
	epoch := again.ctl.Epoch()
	again.proxy.Drop()
	again.ctl.Stop()
	c.brokers[2].control()
	c.awaitController(2)
	if e := c.brokers[2].ctl.Epoch(); e != epoch+1 {
		t.Fatalf("epoch %d after %d", e, epoch)
	}
	c.await("2 is told of all", func() bool { return c.brokers[2].ctlEp == epoch+1 && len(c.brokers[2].leads) == 3 })
	if s := c.state("leads", 0); s.LeaderEpoch != 1 {
		t.Errorf("a term without news has changed %+v", s)
	}
}
