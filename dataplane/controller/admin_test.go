package controller

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestCreateTopicsRefuses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(3).control(func(cfg *Config) {
		cfg.NumPartitions, cfg.ReplicationFactor = 4, 2
		cfg.ValidateConfig = func(o map[string]string) error {
			if o["retention.ms"] == "abc" {
				return errors.New("Invalid value abc for configuration retention.ms")
			}
			return nil
		}
	}).ctl
	c.awaitController(3)
	c.create(ctl, "there.is", []int32{1})
	val := func(s string) *string { return &s }
	ra := func(p int32, rs ...int32) kmsg.CreateTopicsRequestTopicReplicaAssignment {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, rs
		return a
	}
	type topic = kmsg.CreateTopicsRequestTopic
	type assigns = []kmsg.CreateTopicsRequestTopicReplicaAssignment
	for _, tc := range []struct {
		want  *kerr.Error
		topic topic
	}{
		{kerr.TopicAlreadyExists, topic{Topic: "there.is", NumPartitions: 1, ReplicationFactor: 1}},
		{kerr.InvalidTopicException, topic{Topic: "there_is", NumPartitions: 1, ReplicationFactor: 1}},
		{kerr.InvalidTopicException, topic{Topic: "a/b", NumPartitions: 1, ReplicationFactor: 1}},
		{kerr.InvalidPartitions, topic{Topic: "x", NumPartitions: 0, ReplicationFactor: 1}},
		{kerr.InvalidPartitions, topic{Topic: "x", NumPartitions: 10_001, ReplicationFactor: 1}},
		{kerr.InvalidReplicationFactor, topic{Topic: "x", NumPartitions: 1, ReplicationFactor: 0}},
		{kerr.InvalidReplicationFactor, topic{Topic: "x", NumPartitions: 1, ReplicationFactor: 4}},
		{kerr.InvalidRequest, topic{Topic: "x", NumPartitions: 1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0, 1)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(1, 1)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0, 1), ra(0, 1)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0, 1, 1)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0, 1), ra(1, 1, 2)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0, 77)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "x", NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: assigns{ra(0)}}},
		{kerr.InvalidConfig, topic{Topic: "x", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: val("abc")}}}},
		{kerr.InvalidConfig, topic{Topic: "x", NumPartitions: 1, ReplicationFactor: 1, Configs: []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}}},
	} {
		req := kmsg.NewPtrCreateTopicsRequest()
		// The good one beside it must be made.
		req.Version, req.ValidateOnly, req.Topics = 7, true, []topic{tc.topic, {Topic: "good", NumPartitions: -1, ReplicationFactor: -1}}
		resp := ctl.CreateTopics(c.ctx, req)
		if got := resp.Topics[0]; got.ErrorCode != tc.want.Code || got.ErrorMessage == nil || *got.ErrorMessage == "" {
			t.Errorf("%+v: got %s, want %s", tc.topic, text(got.ErrorCode, got.ErrorMessage), tc.want.Message)
		}
		if got := resp.Topics[1]; got.ErrorCode != 0 || got.NumPartitions != 4 || got.ReplicationFactor != 2 {
			t.Errorf("the good one: %s, %+v", text(got.ErrorCode, got.ErrorMessage), got)
		}
	}
	names, err := c.zk.Topics(c.ctx)
	must(t, err)
	if len(names) != 1 {
		t.Fatalf("validation created %v", names)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.Topics = 7, []topic{{Topic: "x", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "x", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "y.z", NumPartitions: 1, ReplicationFactor: 1}, {Topic: "y_z", NumPartitions: 1, ReplicationFactor: 1}}
	resp := ctl.CreateTopics(c.ctx, req)
	if len(resp.Topics) != 3 || resp.Topics[0].ErrorCode != kerr.InvalidRequest.Code || resp.Topics[1].ErrorCode != 0 || resp.Topics[2].ErrorCode != kerr.InvalidTopicException.Code {
		t.Fatalf("%+v", resp.Topics)
	}
}

func TestDeleteTopicsByNameAndID(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ctl := c.start(3).control().ctl
	c.awaitController(3)
	c.create(ctl, "a", []int32{1})
	c.create(ctl, "b", []int32{1})
	b, err := c.zk.Topic(c.ctx, "b")
	must(t, err)
	a, none := "a", "none"
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version = 6
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &a}, {TopicID: b.ID}, {Topic: &none}, {TopicID: [16]byte{9}}, {}, {Topic: &a, TopicID: b.ID}}
	resp := ctl.DeleteTopics(c.ctx, req)
	for i, want := range []int16{kerr.InvalidRequest.Code, 0, kerr.UnknownTopicOrPartition.Code, kerr.UnknownTopicID.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code} {
		if got := resp.Topics[i]; got.ErrorCode != want {
			t.Errorf("%d: %s", i, text(got.ErrorCode, got.ErrorMessage))
		}
	}
	if got := resp.Topics[1].Topic; got == nil || *got != "b" {
		t.Errorf("the name of the id is missing")
	}
	old := kmsg.NewPtrDeleteTopicsRequest()
	old.Version, old.TopicNames = 5, []string{"a"}
	if got := ctl.DeleteTopics(c.ctx, old).Topics[0]; got.ErrorCode != 0 || got.TopicID == [16]byte{} {
		t.Errorf("by name: %+v", got)
	}
	must(t, ctl.AwaitDeleted(c.ctx, "a", "b"))
	c.locked(func() {
		if c.brokers[1].cache.Image().Topic("a") != nil || len(c.brokers[1].leads) != 0 {
			t.Error("deleted topics are still known")
		}
	})
}

func TestCreatePartitions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	ctl := c.start(3).control().ctl
	c.awaitController(3)
	c.create(ctl, "t", []int32{1, 2})
	as := func(rs ...int32) kmsg.CreatePartitionsRequestTopicAssignment {
		return kmsg.CreatePartitionsRequestTopicAssignment{Replicas: rs}
	}
	type topic = kmsg.CreatePartitionsRequestTopic
	type list = []kmsg.CreatePartitionsRequestTopicAssignment
	ask := func(rt topic, validate bool) int16 {
		req := kmsg.NewPtrCreatePartitionsRequest()
		req.Version, req.ValidateOnly, req.Topics = 3, validate, []topic{rt}
		return ctl.CreatePartitions(c.ctx, req).Topics[0].ErrorCode
	}
	for _, tc := range []struct {
		want  *kerr.Error
		topic topic
	}{
		{kerr.UnknownTopicOrPartition, topic{Topic: "none", Count: 3}},
		{kerr.InvalidPartitions, topic{Topic: "t", Count: 1}},
		{kerr.InvalidPartitions, topic{Topic: "t", Count: 0}},
		{kerr.InvalidPartitions, topic{Topic: "t", Count: 20_000}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "t", Count: 3, Assignment: list{as(1, 2)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "t", Count: 2, Assignment: list{as(1)}}},
		{kerr.InvalidReplicaAssignment, topic{Topic: "t", Count: 2, Assignment: list{as(1, 77)}}},
	} {
		if got := ask(tc.topic, false); got != tc.want.Code {
			t.Errorf("%+v: got %d, want %s", tc.topic, got, tc.want.Message)
		}
	}
	if got := ask(topic{Topic: "t", Count: 5}, true); got != 0 {
		t.Fatalf("validate: %d", got)
	}
	if a, err := c.zk.Topic(c.ctx, "t"); err != nil || len(a.Partitions) != 1 {
		t.Fatalf("validation grew the topic: %+v", a)
	}
	if got := ask(topic{Topic: "t", Count: 2, Assignment: list{as(2, 3)}}, false); got != 0 {
		t.Fatalf("grow: %d", got)
	}
	if got := ask(topic{Topic: "t", Count: 6}, false); got != 0 {
		t.Fatalf("grow: %d", got)
	}
	must(t, ctl.AwaitPartitions(c.ctx, map[string]int{"t": 6}, "t"))
	c.locked(func() {
		for id, f := range c.brokers {
			if got := f.cache.Image().Topic("t").Len(); got != 6 {
				t.Errorf("broker %d knows %d partitions", id, got)
			}
		}
		if l := c.brokers[3].leads[part("t", 1)]; l.Leader != 2 || !l.IsNew {
			t.Errorf("%+v", l)
		}
	})
	// The id stays.
	a, err := c.zk.Topic(c.ctx, "t")
	must(t, err)
	if id, ok := c.brokers[1].cache.Image().TopicID("t"); !ok || id != a.ID {
		t.Errorf("id %v", id)
	}
}

func TestAdminCallsNeedTheController(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 2)
	c.brokers[1].control()
	c.awaitController(1)
	other := c.brokers[2].control().ctl
	name := "t"
	cr := kmsg.NewPtrCreateTopicsRequest()
	cr.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: 1, ReplicationFactor: 1}}
	dr := kmsg.NewPtrDeleteTopicsRequest()
	dr.Version, dr.Topics = 6, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
	pr := kmsg.NewPtrCreatePartitionsRequest()
	pr.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: name, Count: 2}}
	for i, got := range []int16{
		other.CreateTopics(c.ctx, cr).Topics[0].ErrorCode, other.DeleteTopics(c.ctx, dr).Topics[0].ErrorCode,
		other.CreatePartitions(c.ctx, pr).Topics[0].ErrorCode, other.ControlledShutdown(c.ctx, kmsg.NewPtrControlledShutdownRequest()).ErrorCode,
		other.AlterPartition(c.ctx, kmsg.NewPtrAlterPartitionRequest()).ErrorCode,
	} {
		if got != kerr.NotController.Code {
			t.Errorf("call %d: %d", i, got)
		}
	}
	if err := other.AwaitPropagated(c.ctx, "t"); !errors.Is(err, kerr.NotController) {
		t.Errorf("await: %v", err)
	}
}
