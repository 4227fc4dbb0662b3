package metadata

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// update is a request as a controller of that version would send it, read back
// from its bytes.
func update(t *testing.T, version int16, epoch int32, brokers []int32, topics ...kmsg.UpdateMetadataRequestTopicState) *kmsg.UpdateMetadataRequest {
	t.Helper()
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerID, req.ControllerEpoch = version, 7, epoch
	for _, id := range brokers {
		lb := kmsg.NewUpdateMetadataRequestLiveBroker()
		lb.ID = id
		if version == 0 {
			lb.Host, lb.Port = "h", 9000+id
		}
		e := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
		e.Host, e.Port, e.SecurityProtocol, e.ListenerName = "h", 9000+id, 2, "CLIENT"
		lb.Endpoints = append(lb.Endpoints, e)
		rack := "r"
		lb.Rack = &rack
		req.LiveBrokers = append(req.LiveBrokers, lb)
	}
	for _, ts := range topics {
		if version >= 5 {
			req.TopicStates = append(req.TopicStates, ts)
			continue
		}
		for _, p := range ts.PartitionStates {
			p.Topic = ts.Topic
			req.PartitionStates = append(req.PartitionStates, p)
		}
	}
	back := kmsg.NewPtrUpdateMetadataRequest()
	back.Version = version
	if err := back.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return back
}

func state(topic string, id byte, parts ...kmsg.UpdateMetadataRequestTopicPartition) kmsg.UpdateMetadataRequestTopicState {
	return kmsg.UpdateMetadataRequestTopicState{Topic: topic, TopicID: protocol.UUID{id}, PartitionStates: parts}
}

func part(index, leader, epoch int32) kmsg.UpdateMetadataRequestTopicPartition {
	return kmsg.UpdateMetadataRequestTopicPartition{Partition: index, Leader: leader, LeaderEpoch: epoch, ZKVersion: 3, ISR: []int32{leader}, Replicas: []int32{1, 2}}
}

func apply(t *testing.T, c *Cache, req *kmsg.UpdateMetadataRequest) Delta {
	t.Helper()
	d, err := c.Apply(req)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestApplyUnderstandsAllVersions(t *testing.T) {
	for v := int16(0); v <= 8; v++ {
		c := NewCache("cluster")
		apply(t, c, update(t, v, 3, []int32{1, 2}, state("a", 5, part(0, 1, 4), part(1, 2, 0))))
		im := c.Image()
		if im.ControllerID != 7 || im.ControllerEpoch != 3 || im.ClusterID != "cluster" || !im.Alive(1) || im.Alive(3) {
			t.Errorf("v%d: %+v", v, im)
		}
		p := im.Partition("a", 0)
		if p == nil || p.Leader != 1 || p.LeaderEpoch != 4 || p.PartitionEpoch != 3 || !slices.Equal(p.Replicas, []int32{1, 2}) {
			t.Fatalf("v%d: %+v", v, p)
		}
		listener := "CLIENT" // compared without regard to case
		switch {
		case v == 0:
			listener = "plaintext"
		case v < 3:
			listener = "sasl_plaintext"
		}
		e, id, ok := im.LeaderEndpoint("a", 0, listener)
		if !ok || id != 1 || e.Port != 9001 {
			t.Errorf("v%d: endpoint %+v %v", v, e, ok)
		}
		if _, _, ok := im.LeaderEndpoint("a", 0, "other"); ok {
			t.Errorf("v%d: a listener that is not there", v)
		}
		if rack := im.Brokers[1].Rack; (rack != nil) != (v >= 2) {
			t.Errorf("v%d: rack %v", v, rack)
		}
		if id, ok := im.TopicID("a"); ok != (v >= 7) || ok && id != (protocol.UUID{5}) {
			t.Errorf("v%d: id %v %v", v, id, ok)
		}
		if name, ok := im.TopicName(protocol.UUID{5}); ok != (v >= 7) || ok && name != "a" {
			t.Errorf("v%d: name %q", v, name)
		}
	}
}

func TestStaleControllerIsRefused(t *testing.T) {
	c := NewCache("")
	apply(t, c, update(t, 8, 5, []int32{1}, state("a", 1, part(0, 1, 0))))
	before := c.Image()
	if _, err := c.Apply(update(t, 8, 4, []int32{2}, state("a", 1, part(0, 2, 1)))); !errors.Is(err, kerr.StaleControllerEpoch) {
		t.Fatalf("got %v", err)
	}
	if c.Image() != before {
		t.Fatal("a refused update left a trace")
	}
	apply(t, c, update(t, 8, 5, []int32{1, 2}))
	if im := c.Image(); !im.Alive(2) || im.Topic("a") == nil {
		t.Fatal("an update of brokers alone must keep the topics")
	}
}

func TestUpdatesMergeAndOldImagesStay(t *testing.T) {
	c := NewCache("")
	apply(t, c, update(t, 8, 1, []int32{1, 2}, state("a", 1, part(0, 1, 0), part(1, 1, 0)), state("b", 2, part(0, 1, 0))))
	old := c.Image()
	d := apply(t, c, update(t, 8, 1, []int32{2}, state("a", 1, part(1, 2, 1))))
	if len(d.Changed) != 1 || d.Changed[0] != (protocol.TopicPartition{Topic: "a", Partition: 1}) || len(d.Deleted) != 0 {
		t.Errorf("delta %+v", d)
	}
	im := c.Image()
	if im.Partition("a", 1).Leader != 2 || im.Partition("a", 0).Leader != 1 || im.Topic("b") == nil {
		t.Errorf("%+v", im)
	}
	// The leader of a/0 is dead: that it leads is still the controller's word,
	// but nobody is sent there.
	if _, _, ok := im.LeaderEndpoint("a", 0, "CLIENT"); ok {
		t.Error("a dead leader's address was given")
	}
	if old.Partition("a", 1).Leader != 1 || !old.Alive(1) {
		t.Error("an image changed after it was published")
	}
}

func TestUnknownEpochIsMinusOne(t *testing.T) {
	c := NewCache("")
	apply(t, c, update(t, 8, 1, nil, state("a", 1, part(0, -1, -7))))
	if p := c.Image().Partition("a", 0); p.Leader != -1 || p.LeaderEpoch != -1 {
		t.Fatalf("%+v", p)
	}
}

func TestDeletedTopicsGo(t *testing.T) {
	c := NewCache("")
	apply(t, c, update(t, 8, 1, nil, state("a", 1, part(0, 1, 0), part(1, 1, 0))))
	d := apply(t, c, update(t, 8, 1, nil, state("a", 1, part(0, -2, 0))))
	if len(d.Deleted) != 1 || c.Image().Topic("a") == nil {
		t.Fatalf("one of two partitions: %+v", d)
	}
	apply(t, c, update(t, 8, 1, nil, state("a", 1, part(1, -2, 0))))
	if _, ok := c.Image().TopicName(protocol.UUID{1}); ok || c.Image().Topic("a") != nil {
		t.Fatal("still known")
	}
}

func TestTopicMadeAnewKeepsNothingOfTheOld(t *testing.T) {
	c := NewCache("")
	apply(t, c, update(t, 8, 1, nil, state("a", 1, part(0, 1, 9), part(1, 1, 9))))
	apply(t, c, update(t, 8, 1, nil, state("a", 2, part(0, 1, 0))))
	im := c.Image()
	if im.Partition("a", 1) != nil || im.Partition("a", 0).LeaderEpoch != 0 {
		t.Fatalf("%+v", im.Topic("a"))
	}
	if _, ok := im.TopicName(protocol.UUID{1}); ok {
		t.Fatal("the old id still has a name")
	}
	if name, _ := im.TopicName(protocol.UUID{2}); name != "a" {
		t.Fatal("the new id has none")
	}
}

func TestAwaitWakesWithTheUpdateAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCache("")
		got := make(chan error, 1)
		go func() { got <- c.AwaitTopic(t.Context(), "a", 2) }()
		synctest.Wait()
		apply(t, c, update(t, 8, 1, nil, state("a", 1, part(0, 1, 0))))
		apply(t, c, update(t, 8, 1, nil, state("a", 1, part(1, -1, 0))))
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("woken before every partition has a leader")
		}
		apply(t, c, update(t, 8, 1, nil, state("a", 1, part(1, 1, 1))))
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.AwaitTopic(ctx, "a", 3); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
	})
}

func FuzzApply(f *testing.F) {
	f.Add(int16(8), []byte{})
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 0 || version > 8 {
			return
		}
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version = version
		if req.ReadFrom(body) != nil {
			return
		}
		c := NewCache("")
		if _, err := c.Apply(req); err != nil {
			return
		}
		for topic := range c.Image().Topics() {
			if c.Image().Topic(topic.Name) != topic || topic.Len() == 0 {
				t.Fatalf("%+v", topic)
			}
			for _, p := range topic.Sorted() {
				if p.Leader < -1 || p.LeaderEpoch < -1 {
					t.Fatalf("%+v", p)
				}
			}
		}
	})
}
