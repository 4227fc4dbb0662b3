package controller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

func TestControlledShutdownMovesLeaders(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2}, []int32{2, 1})
	c.create(ctl, "alone", []int32{1})
	c.create(ctl, "u", []int32{1, 3})
	ask := func(epoch int64) *kmsg.ControlledShutdownResponse {
		req := kmsg.NewPtrControlledShutdownRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = 3, 1, epoch
		return ctl.ControlledShutdown(c.ctx, req)
	}
	if r := ask(c.brokers[1].epoch - 1); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Fatalf("an earlier life's wish: %d", r.ErrorCode)
	}
	c.brokers[3].kill() // so that nobody can take u over
	c.await("3 is gone", func() bool { return !c.brokers[2].cache.Image().Alive(3) })
	r := ask(c.brokers[1].epoch)
	if r.ErrorCode != 0 || len(r.PartitionsRemaining) != 1 || r.PartitionsRemaining[0].Topic != "u" {
		t.Fatalf("%+v", r)
	}
	if s := c.state("t", 0); s.Leader != 2 || !slices.Equal(s.ISR, []int32{2}) || s.LeaderEpoch != 1 {
		t.Errorf("led: %+v", s)
	}
	if s := c.state("t", 1); s.Leader != 2 || !slices.Equal(s.ISR, []int32{2}) {
		t.Errorf("followed: %+v", s)
	}
	if s := c.state("u", 0); s.Leader != 1 || !slices.Equal(s.ISR, []int32{1}) {
		t.Errorf("kept: %+v", s)
	}
	c.await("told to stop following", func() bool {
		return c.brokers[1].stopped[part("t", 1)] == 1 && c.brokers[1].deleted[part("t", 1)] == 0
	})
	// It can not get back into an ISR while it is stopping.
	alter := c.alter(2, "t", 1, []int32{2, 1})
	if got := ctl.AlterPartition(c.ctx, alter).Topics[0].Partitions[0].ErrorCode; got != kerr.IneligibleReplica.Code {
		t.Errorf("stopping broker back in ISR: %d", got)
	}
}

// The broker that has asked stops when it is answered. By then the new leaders lead,
// but for one that does not answer, which is waited for a while only.
func TestControlledShutdownIsAnsweredWhenTheNewLeadersLead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	var shut atomic.Bool // the gate to broker 2
	arrived, open := make(chan struct{}, 10), make(chan struct{})
	c.brokers[2].gate = func(ctx context.Context, req kmsg.Request) error {
		if _, ok := req.(*kmsg.LeaderAndISRRequest); ok && shut.Load() {
			arrived <- struct{}{}
			select {
			case <-open:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	ask := func(id int32) <-chan *kmsg.ControlledShutdownResponse {
		req := kmsg.NewPtrControlledShutdownRequest()
		req.Version, req.BrokerID, req.BrokerEpoch = 3, id, c.brokers[id].epoch
		ch := make(chan *kmsg.ControlledShutdownResponse, 1)
		go func() { ch <- ctl.ControlledShutdown(c.ctx, req) }()
		return ch
	}
	shut.Store(true)
	answer := ask(1)
	<-arrived
	select {
	case <-answer:
		t.Fatal("answered before the new leader was told")
	case <-time.After(movedWithin / 5):
	}
	shut.Store(false)
	close(open)
	if r := <-answer; r.ErrorCode != 0 || len(r.PartitionsRemaining) != 0 {
		t.Fatalf("%+v", r)
	}
	c.locked(func() {
		if got := c.brokers[2].leads[part("t", 0)]; got.Leader != 2 {
			t.Errorf("broker 2 was told of leader %d", got.Leader)
		}
	})

	// A new leader that never answers.
	c.start(1)
	c.await("1 is back", func() bool { return c.brokers[1].leads[part("t", 0)].Leader == 2 })
	alter := c.alter(2, "t", 0, []int32{1, 2})
	if got := ctl.AlterPartition(c.ctx, alter).Topics[0].Partitions[0].ErrorCode; got != 0 {
		t.Fatalf("1 in sync again: %d", got)
	}
	open = make(chan struct{}) // and stays so
	shut.Store(true)
	if r := <-ask(1); r.ErrorCode != 0 {
		t.Errorf("with a broker that hangs: %+v", r)
	}
}

// alter is a leader's wish that is up to date.
func (c *cluster) alter(leader int32, topic string, p int32, isr []int32) *kmsg.AlterPartitionRequest {
	c.t.Helper()
	s := c.state(topic, p)
	a, err := c.zk.Topic(c.ctx, topic)
	must(c.t, err)
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = 3, leader, c.brokers[leader].epoch
	rt := kmsg.NewAlterPartitionRequestTopic()
	rt.Topic, rt.TopicID = topic, a.ID
	rp := kmsg.NewAlterPartitionRequestTopicPartition()
	rp.Partition, rp.LeaderEpoch, rp.PartitionEpoch = p, s.LeaderEpoch, s.Version
	for _, id := range isr {
		m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		m.BrokerID, m.BrokerEpoch = id, c.brokers[id].epoch
		rp.NewEpochISR = append(rp.NewEpochISR, m)
	}
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}

func TestAlterPartition(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})

	shrink := c.alter(1, "t", 0, []int32{1})
	out := ctl.AlterPartition(c.ctx, shrink).Topics[0].Partitions[0]
	if out.ErrorCode != 0 || !slices.Equal(out.ISR, []int32{1}) || out.LeaderEpoch != 0 || out.PartitionEpoch != 1 || out.LeaderID != 1 {
		t.Fatalf("%+v", out)
	}
	if s := c.state("t", 0); !slices.Equal(s.ISR, []int32{1}) || s.Version != 1 || s.LeaderEpoch != 0 {
		t.Fatalf("%+v", s)
	}
	c.await("metadata", func() bool { return len(c.brokers[2].cache.Image().Partition("t", 0).ISR) == 1 })
	// Asked again, the answer having been lost.
	if out := ctl.AlterPartition(c.ctx, shrink).Topics[0].Partitions[0]; out.ErrorCode != 0 || out.PartitionEpoch != 1 {
		t.Fatalf("repeated: %+v", out)
	}

	type edit = func(r *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition)
	for _, tc := range []struct {
		name string
		edit edit
		want *kerr.Error
	}{
		{"old broker epoch", func(r *kmsg.AlterPartitionRequest, _ *kmsg.AlterPartitionRequestTopicPartition) { r.BrokerEpoch-- }, kerr.StaleBrokerEpoch},
		{"unknown broker", func(r *kmsg.AlterPartitionRequest, _ *kmsg.AlterPartitionRequestTopicPartition) { r.BrokerID = 77 }, kerr.StaleBrokerEpoch},
		{"unknown id", func(r *kmsg.AlterPartitionRequest, _ *kmsg.AlterPartitionRequestTopicPartition) {
			r.Topics[0].TopicID[3]++
		}, kerr.UnknownTopicID},
		{"unknown partition", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.Partition = 5 }, kerr.UnknownTopicOrPartition},
		{"old leader epoch", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.LeaderEpoch-- }, kerr.FencedLeaderEpoch},
		{"newer leader epoch", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.LeaderEpoch++ }, kerr.NotController},
		{"old partition epoch", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.PartitionEpoch-- }, kerr.InvalidUpdateVersion},
		{"newer partition epoch", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.PartitionEpoch++ }, kerr.NotController},
		{"member of another life", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
			p.NewEpochISR[1].BrokerEpoch--
		}, kerr.IneligibleReplica},
		{"empty", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) { p.NewEpochISR = nil }, kerr.InvalidRequest},
		{"not a replica", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
			p.NewEpochISR[1].BrokerID = 9
			p.NewEpochISR[1].BrokerEpoch = -1
		}, kerr.InvalidRequest},
		{"recovering", func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
			p.LeaderRecoveryState = 1
		}, kerr.InvalidRequest},
		{"by name", func(r *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
			r.Version, r.Topics[0].TopicID, p.NewISR, p.NewEpochISR, p.PartitionEpoch = 1, [16]byte{}, []int32{1, 2}, nil, p.PartitionEpoch-1
		}, kerr.InvalidUpdateVersion},
	} {
		req := c.alter(1, "t", 0, []int32{1, 2})
		tc.edit(req, &req.Topics[0].Partitions[0])
		resp := ctl.AlterPartition(c.ctx, req)
		got := resp.ErrorCode
		if got == 0 {
			got = resp.Topics[0].Partitions[0].ErrorCode
		}
		if got != tc.want.Code {
			t.Errorf("%s: got %s, want %s", tc.name, text(got, nil), tc.want.Message)
		}
	}
	if s := c.state("t", 0); s.Version != 1 {
		t.Fatalf("a refused wish was written: %+v", s)
	}
	if out := ctl.AlterPartition(c.ctx, c.alter(1, "t", 0, []int32{1, 2})).Topics[0].Partitions[0]; out.ErrorCode != 0 || len(out.ISR) != 2 {
		t.Fatalf("expand: %+v", out)
	}
}

func TestProducerIDsAreAllocatedOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	ask := func(epoch int64) *kmsg.AllocateProducerIDsResponse {
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		req.BrokerID, req.BrokerEpoch = 1, epoch
		return ctl.AllocateProducerIDs(c.ctx, req)
	}
	a, b := ask(c.brokers[1].epoch), ask(c.brokers[1].epoch)
	if a.ErrorCode != 0 || b.ErrorCode != 0 || a.ProducerIDLen != 1000 || b.ProducerIDStart != a.ProducerIDStart+1000 {
		t.Fatalf("%+v, %+v", a, b)
	}
	if r := ask(c.brokers[1].epoch - 1); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Fatalf("an earlier life was given ids: %+v", r)
	}
}

func TestOwnWriteWithALostReplyCountsAsDone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	must(t, ctl.call(c.ctx, func(tm *term) error {
		p := tm.st.partition(part("t", 0))
		want := coordination.PartitionState{Leader: 2, ISR: []int32{1, 2}, LeaderEpoch: 1, ControllerEpoch: tm.fence.Epoch}
		// What the server did with the first attempt, whose reply never came.
		if _, err := c.zk.UpdateStates(c.ctx, tm.fence, []coordination.StateWrite{{TP: p.tp, State: want}}); err != nil {
			return err
		}
		changed, err := tm.update([]*partition{p}, func(p *partition) (coordination.PartitionState, bool) {
			return coordination.PartitionState{Leader: 2, ISR: []int32{1, 2}}, p.state.Leader != 2
		}, false)
		if len(changed) != 1 || p.state.Leader != 2 || p.state.LeaderEpoch != 1 || p.state.Version != 1 {
			t.Errorf("changed %v, state %+v", changed, p.state)
		}
		return err
	}))
}

func TestSomebodyElsesWriteIsReadAndDecidedAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2})
	// A broker from before AlterPartition shrinks its ISR by itself.
	s := c.state("t", 0)
	s.ISR = []int32{1}
	_, err := c.zk.Set(c.ctx, coordination.StatePath(part("t", 0)), coordination.EncodeState(s), s.Version)
	must(t, err)
	c.brokers[2].kill()
	c.await("known", func() bool { return !c.brokers[1].cache.Image().Alive(2) })
	_, err = c.zk.CreateSequential(c.ctx, coordination.ISRChangesPath+"/isr_change_", []byte(`{"version":1,"partitions":[{"topic":"t","partition":0}]}`))
	must(t, err)
	c.await("read", func() bool { return len(c.brokers[1].cache.Image().Partition("t", 0).ISR) == 1 })
	if got := c.state("t", 0); got.Leader != 1 || !slices.Equal(got.ISR, []int32{1}) || got.LeaderEpoch != 0 {
		t.Fatalf("%+v", got)
	}
	// An operator asks for the preferred leader, which it has already.
	must(t, c.zk.Create(c.ctx, coordination.PreferredPath, []byte(`{"version":1,"partitions":[{"topic":"t","partition":0}]}`)))
	c.await("carried out", func() bool { st, err := c.zk.Exists(c.ctx, coordination.PreferredPath); return err == nil && st == nil })
}

// Brokers with an inter.broker.protocol.version below 2.7 write the states of the partitions
// that they lead themselves, both ways, and tell so in znodes of this form.
func TestNotesOfOldBrokersAreReadAndRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2, 3)
	ctl := c.start(9).control().ctl
	c.awaitController(9)
	c.create(ctl, "t", []int32{1, 2, 3}, []int32{2, 3, 1}, []int32{3, 1, 2})
	term := ctl.Epoch()
	write := func(p int32, isr ...int32) {
		t.Helper()
		s := c.state("t", p)
		s.ISR = isr
		_, err := c.zk.Set(c.ctx, coordination.StatePath(part("t", p)), coordination.EncodeState(s), s.Version)
		must(t, err)
	}
	note := func(data string) {
		t.Helper()
		_, err := c.zk.CreateSequential(c.ctx, coordination.ISRChangesPath+"/isr_change_", []byte(data))
		must(t, err)
	}
	known := func(what string, p int32, isr ...int32) {
		t.Helper()
		for _, id := range []int32{1, 2, 3} {
			c.await(fmt.Sprintf("%s, broker %d", what, id), func() bool { return slices.Equal(c.brokers[id].cache.Image().Partition("t", p).ISR, isr) })
		}
		c.free(what+": the notes being removed", func() bool {
			left, err := c.zk.Children(c.ctx, coordination.ISRChangesPath)
			return err == nil && len(left) == 0
		})
	}
	write(0, 1)
	write(1, 2, 3)
	note(`{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}`)
	known("two shrunk, in one note", 0, 1)
	known("two shrunk, in one note", 1, 2, 3)
	write(0, 1, 3)
	note(`{"version":1,"partitions":[{"topic":"t","partition":0}]}`)
	known("grown", 0, 1, 3)

	// What makes no sense is removed and costs nobody anything.
	must(t, c.zk.Delete(c.ctx, coordination.StatePath(part("t", 2)), -1))
	write(1, 2)
	for _, data := range []string{"", "rubbish", `{"version":1}`, `{"version":1,"partitions":[{"topic":"no","partition":0},{"topic":"t","partition":7},{"topic":"t","partition":2},{"topic":"t","partition":1}]}`} {
		note(data)
	}
	known("beside what is not there", 1, 2)
	if ctl.Epoch() != term {
		t.Errorf("the controller of epoch %d began anew as %d", term, ctl.Epoch())
	}
	// The members that old brokers left out do not lead.
	c.brokers[1].kill()
	c.await("led by who was in sync", func() bool {
		p := c.brokers[2].cache.Image().Partition("t", 0)
		return p.Leader == 3
	})
}
