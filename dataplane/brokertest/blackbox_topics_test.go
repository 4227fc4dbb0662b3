package brokertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// createOf asks for topics; change sees the first.
func createOf(topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := at(kmsg.NewPtrCreateTopicsRequest(), 7)
	req.TimeoutMillis, req.Topics = 10_000, topics
	return req
}

func newTopic(name string, partitions int32, rf int16) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, rf
	return t
}

func assigned(t kmsg.CreateTopicsRequestTopic, replicas ...[]int32) kmsg.CreateTopicsRequestTopic {
	for i, r := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(i), r
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	return t
}

func configured(t kmsg.CreateTopicsRequestTopic, k string, v *string) kmsg.CreateTopicsRequestTopic {
	t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: v})
	return t
}

// brokerID is the id of the one broker.
func (b *target) brokerID(w *wire) int32 {
	return ask[*kmsg.MetadataResponse](w, metadataFor(12)).Brokers[0].NodeID
}

var topicCases = []blackBoxCase{
	{"CreateTopics/refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := b.brokerID(w)
		there := b.topic(t, 1)
		dotted := b.name("a.b")
		wantCode(t, "dotted", ask[*kmsg.CreateTopicsResponse](w, createOf(newTopic(dotted, 1, 1))).Topics[0].ErrorCode, nil)
		name := func() string { return b.name("refused") }
		for _, c := range []struct {
			what  string
			topic kmsg.CreateTopicsRequestTopic
			want  *kerr.Error
		}{
			{"there already", newTopic(there.name, 1, 1), kerr.TopicAlreadyExists},
			{"no name", newTopic("", 1, 1), kerr.InvalidTopicException},
			{"a dot", newTopic(".", 1, 1), kerr.InvalidTopicException},
			{"two dots", newTopic("..", 1, 1), kerr.InvalidTopicException},
			{"a slash", newTopic("a/b", 1, 1), kerr.InvalidTopicException},
			{"too long", newTopic(strings.Repeat("a", 250), 1, 1), kerr.InvalidTopicException},
			{"a name that meets another's as a metric", newTopic(strings.Replace(dotted, ".", "_", 1), 1, 1), kerr.InvalidTopicException},
			{"no partitions", newTopic(name(), 0, 1), kerr.InvalidPartitions},
			{"-2 partitions", newTopic(name(), -2, 1), kerr.InvalidPartitions},
			{"no replicas", newTopic(name(), 1, 0), kerr.InvalidReplicationFactor},
			{"-2 replicas", newTopic(name(), 1, -2), kerr.InvalidReplicationFactor},
			{"more replicas than brokers", newTopic(name(), 1, 2), kerr.InvalidReplicationFactor},
			{"an unknown setting", configured(newTopic(name(), 1, 1), "no.such.key", kmsg.StringPtr("1")), kerr.InvalidConfig},
			{"a value that is none", configured(newTopic(name(), 1, 1), "retention.ms", kmsg.StringPtr("abc")), kerr.InvalidConfig},
			{"a value out of range", configured(newTopic(name(), 1, 1), "retention.ms", kmsg.StringPtr("-2")), kerr.InvalidConfig},
			{"a policy that is none", configured(newTopic(name(), 1, 1), "cleanup.policy", kmsg.StringPtr("delet")), kerr.InvalidConfig},
			{"a null value", configured(newTopic(name(), 1, 1), "retention.ms", nil), kerr.InvalidConfig},
			{"settings that contradict", configured(configured(newTopic(name(), 1, 1), "min.compaction.lag.ms", kmsg.StringPtr("10")), "max.compaction.lag.ms", kmsg.StringPtr("5")), kerr.InvalidConfig},
			{"assignment and partitions", assigned(newTopic(name(), 1, -1), []int32{id}), kerr.InvalidRequest},
			{"assignment and replicas", assigned(newTopic(name(), -1, 1), []int32{id}), kerr.InvalidRequest},
			{"an unknown broker", assigned(newTopic(name(), -1, -1), []int32{77}), kerr.InvalidReplicaAssignment},
			{"a negative broker", assigned(newTopic(name(), -1, -1), []int32{-3}), kerr.InvalidReplicaAssignment},
			{"a broker twice", assigned(newTopic(name(), -1, -1), []int32{id, id}), kerr.InvalidReplicaAssignment},
			{"an empty replica list", assigned(newTopic(name(), -1, -1), []int32{}), kerr.InvalidReplicaAssignment},
			{"replica lists of different length", assigned(newTopic(name(), -1, -1), []int32{id}, []int32{id, 77}), kerr.InvalidReplicaAssignment},
			{"partitions with a gap", func() kmsg.CreateTopicsRequestTopic {
				t := assigned(newTopic(name(), -1, -1), []int32{id}, []int32{id})
				t.ReplicaAssignment[1].Partition = 5
				return t
			}(), kerr.InvalidReplicaAssignment},
		} {
			good := newTopic(name(), 1, 1)
			resp := ask[*kmsg.CreateTopicsResponse](w, createOf(c.topic, good))
			if len(resp.Topics) != 2 {
				t.Fatalf("%s: %d topics in the reply", c.what, len(resp.Topics))
			}
			for _, rt := range resp.Topics {
				if rt.Topic == good.Topic {
					wantCode(t, c.what+": the other topic", rt.ErrorCode, nil)
					continue
				}
				wantCode(t, c.what, rt.ErrorCode, c.want)
				if rt.ErrorMessage == nil || *rt.ErrorMessage == "" {
					t.Errorf("%s: no message", c.what)
				}
				if rt.TopicID != ([16]byte{}) {
					t.Errorf("%s: topic id %x", c.what, rt.TopicID)
				}
			}
			if c.want != kerr.TopicAlreadyExists {
				wantCode(t, c.what+": metadata", ask[*kmsg.MetadataResponse](w, metadataFor(9, &c.topic.Topic)).Topics[0].ErrorCode,
					map[bool]*kerr.Error{true: kerr.InvalidTopicException, false: kerr.UnknownTopicOrPartition}[c.want == kerr.InvalidTopicException && !strings.Contains(c.topic.Topic, "a_b")])
			}
		}
	}},
	{"CreateTopics/a name twice is refused whole", func(t *testing.T, b *target) {
		w := b.dial(t)
		name := b.name("twice")
		resp := ask[*kmsg.CreateTopicsResponse](w, createOf(newTopic(name, 1, 1), newTopic(name, 2, 1)))
		for _, rt := range resp.Topics {
			wantCode(t, "twice", rt.ErrorCode, kerr.InvalidRequest)
		}
		if len(resp.Topics) != 1 {
			t.Errorf("%d answers, want one", len(resp.Topics))
		}
	}},
	{"CreateTopics/defaults, assignments and what is told of them", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := b.brokerID(w)
		byDefault, byHand := newTopic(b.name("default"), -1, -1), assigned(newTopic(b.name("hand"), -1, -1), []int32{id}, []int32{id})
		configured := configured(newTopic(b.name("configured"), 1, 1), "retention.ms", kmsg.StringPtr("12345"))
		resp := ask[*kmsg.CreateTopicsResponse](w, createOf(byDefault, byHand, configured))
		for _, rt := range resp.Topics {
			wantCode(t, rt.Topic, rt.ErrorCode, nil)
			if rt.TopicID == ([16]byte{}) || rt.ConfigErrorCode != 0 {
				t.Errorf("%s: %+v", rt.Topic, rt)
			}
			switch rt.Topic {
			case byHand.Topic:
				if rt.NumPartitions != 2 || rt.ReplicationFactor != 1 {
					t.Errorf("%+v", rt)
				}
			case configured.Topic:
				found := false
				for _, c := range rt.Configs {
					if c.Name == "retention.ms" {
						found = c.Value != nil && *c.Value == "12345" && c.Source == int8(kmsg.ConfigSourceDynamicTopicConfig)
					}
				}
				if !found || len(rt.Configs) < 20 {
					t.Errorf("retention.ms is not among the %d settings told", len(rt.Configs))
				}
			}
		}
	}},
	{"CreateTopics/v2 to v7 and dry runs", func(t *testing.T, b *target) {
		w := b.dial(t)
		for v := int16(2); v < 8; v++ {
			topic := newTopic(b.name("version"), 1, 1)
			req := at(createOf(topic), v)
			req.ValidateOnly = true
			dry := ask[*kmsg.CreateTopicsResponse](w, req).Topics[0]
			wantCode(t, "dry run", dry.ErrorCode, nil)
			wantCode(t, "metadata after a dry run", ask[*kmsg.MetadataResponse](w, metadataFor(9, &topic.Topic)).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
			req.ValidateOnly = false
			wantCode(t, "create", ask[*kmsg.CreateTopicsResponse](w, req).Topics[0].ErrorCode, nil)
		}
		old := ask[*kmsg.CreateTopicsResponse](w, at(createOf(newTopic(b.name("v3"), -1, -1)), 3)).Topics[0]
		wantCode(t, "defaults before v4", old.ErrorCode, nil)
	}},
	{"DeleteTopics/by name and id, and refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		for v := int16(1); v < 7; v++ {
			topic := b.topic(t, 2)
			req := at(kmsg.NewPtrDeleteTopicsRequest(), v)
			req.TimeoutMillis = 10_000
			names := []string{topic.name, b.name("absent")}
			if v < 6 {
				req.TopicNames = names
			} else {
				for i := range names {
					rt := kmsg.NewDeleteTopicsRequestTopic()
					rt.Topic = &names[i]
					req.Topics = append(req.Topics, rt)
				}
				rt := kmsg.NewDeleteTopicsRequestTopic()
				rt.TopicID = [16]byte{4, 5, 6}
				req.Topics = append(req.Topics, rt)
			}
			resp := ask[*kmsg.DeleteTopicsResponse](w, req)
			if want := len(names) + int(v/6); len(resp.Topics) != want {
				t.Errorf("v%d: %d answers, want %d", v, len(resp.Topics), want)
			}
			for _, rt := range resp.Topics {
				switch {
				case rt.Topic == nil:
					wantCode(t, "unknown id", rt.ErrorCode, kerr.UnknownTopicID)
				case *rt.Topic == topic.name:
					wantCode(t, "delete", rt.ErrorCode, nil)
					if v == 6 && rt.TopicID != topic.id {
						t.Errorf("id %x, want %x", rt.TopicID, topic.id)
					}
				default:
					wantCode(t, "unknown name", rt.ErrorCode, kerr.UnknownTopicOrPartition)
				}
			}
			b.awaitGone(w, topic.name)
		}
		topic := b.topic(t, 1)
		req := at(kmsg.NewPtrDeleteTopicsRequest(), 6)
		req.TimeoutMillis = 10_000
		rt := kmsg.NewDeleteTopicsRequestTopic()
		rt.TopicID = topic.id
		req.Topics = append(req.Topics, rt)
		got := ask[*kmsg.DeleteTopicsResponse](w, req).Topics[0]
		wantCode(t, "by id", got.ErrorCode, nil)
		if got.Topic == nil || *got.Topic != topic.name {
			t.Errorf("the name is not told: %+v", got)
		}
		b.awaitGone(w, topic.name)
	}},
	{"DeleteTopics/named twice, by name and id, or both at once", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		part := func(name *string, id [16]byte) kmsg.DeleteTopicsRequestTopic {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic, rt.TopicID = name, id
			return rt
		}
		for what, topics := range map[string][]kmsg.DeleteTopicsRequestTopic{
			"name twice":   {part(&topic.name, [16]byte{}), part(&topic.name, [16]byte{})},
			"id twice":     {part(nil, topic.id), part(nil, topic.id)},
			"name and id":  {part(&topic.name, [16]byte{}), part(nil, topic.id)},
			"both at once": {part(&topic.name, topic.id)},
			"neither":      {part(nil, [16]byte{})},
		} {
			req := at(kmsg.NewPtrDeleteTopicsRequest(), 6)
			req.TimeoutMillis, req.Topics = 10_000, topics
			resp := ask[*kmsg.DeleteTopicsResponse](w, req)
			if len(resp.Topics) == 0 {
				t.Errorf("%s: no answer", what)
			}
			for _, rt := range resp.Topics {
				wantCode(t, what, rt.ErrorCode, kerr.InvalidRequest)
			}
		}
		wantCode(t, "the topic lives", ask[*kmsg.MetadataResponse](w, metadataFor(9, &topic.name)).Topics[0].ErrorCode, nil)
	}},
	{"a topic made again under its name is another and empty", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		mustProduce(w, topic.name, batch(t, "old"), 0)
		del := at(kmsg.NewPtrDeleteTopicsRequest(), 5)
		del.TimeoutMillis, del.TopicNames = 10_000, []string{topic.name}
		wantCode(t, "delete", ask[*kmsg.DeleteTopicsResponse](w, del).Topics[0].ErrorCode, nil)
		b.awaitGone(w, topic.name)
		made := ask[*kmsg.CreateTopicsResponse](w, createOf(newTopic(topic.name, 1, 1))).Topics[0]
		wantCode(t, "create", made.ErrorCode, nil)
		b.awaitLeaders(w, topic.name, 1)
		if made.TopicID == topic.id {
			t.Error("it has the same id")
		}
		if p := fetchOne(w, topic.name, 0); p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != 0 {
			t.Errorf("%+v", p)
		}
		req := at(fetchOf(topic.name, 0, 0), 13)
		req.Topics[0].TopicID = topic.id
		wantCode(t, "fetch by the old id", ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicID)
	}},
	{"CreatePartitions/growth and refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := b.brokerID(w)
		topic := b.topic(t, 2)
		grow := func(name string, count int32, dry bool, replicas ...[]int32) kmsg.CreatePartitionsResponseTopic {
			t.Helper()
			req := at(kmsg.NewPtrCreatePartitionsRequest(), 2)
			req.TimeoutMillis, req.ValidateOnly = 10_000, dry
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = name, count
			for _, r := range replicas {
				a := kmsg.NewCreatePartitionsRequestTopicAssignment()
				a.Replicas = r
				rt.Assignment = append(rt.Assignment, a)
			}
			req.Topics = append(req.Topics, rt)
			return ask[*kmsg.CreatePartitionsResponse](w, req).Topics[0]
		}
		for _, c := range []struct {
			what     string
			name     string
			count    int32
			replicas [][]int32
			want     *kerr.Error
		}{
			{"fewer", topic.name, 1, nil, kerr.InvalidPartitions},
			{"as many", topic.name, 2, nil, kerr.InvalidPartitions},
			{"none", topic.name, 0, nil, kerr.InvalidPartitions},
			{"-1", topic.name, -1, nil, kerr.InvalidPartitions},
			{"an unknown topic", b.name("absent"), 3, nil, kerr.UnknownTopicOrPartition},
			{"too few assignments", topic.name, 4, [][]int32{{id}}, kerr.InvalidReplicaAssignment},
			{"too many assignments", topic.name, 3, [][]int32{{id}, {id}}, kerr.InvalidReplicaAssignment},
			{"an unknown broker", topic.name, 3, [][]int32{{77}}, kerr.InvalidReplicaAssignment},
			{"a broker twice", topic.name, 3, [][]int32{{id, id}}, kerr.InvalidReplicaAssignment},
			{"another number of replicas", topic.name, 3, [][]int32{{}}, kerr.InvalidReplicaAssignment},
		} {
			got := grow(c.name, c.count, false, c.replicas...)
			wantCode(t, c.what, got.ErrorCode, c.want)
			if deref(got.ErrorMessage) == "<null>" && c.want != kerr.UnknownTopicOrPartition {
				t.Errorf("%s: no message", c.what)
			}
		}
		wantCode(t, "dry run", grow(topic.name, 5, true).ErrorCode, nil)
		b.awaitLeaders(w, topic.name, 2)
		wantCode(t, "grow", grow(topic.name, 3, false).ErrorCode, nil)
		b.awaitLeaders(w, topic.name, 3)
		wantCode(t, "grow by hand", grow(topic.name, 4, false, []int32{id}).ErrorCode, nil)
		b.awaitLeaders(w, topic.name, 4)
		resp := ask[*kmsg.ProduceResponse](w, produceTo(-1, map[string]map[int32][]byte{topic.name: {3: batch(t, "a")}}))
		wantCode(t, "produce", resp.Topics[0].Partitions[0].ErrorCode, nil)
	}},
	{"CreatePartitions/a topic twice", func(t *testing.T, b *target) {
		w := b.dial(t)
		topic := b.topic(t, 1)
		req := at(kmsg.NewPtrCreatePartitionsRequest(), 2)
		req.TimeoutMillis = 10_000
		for n := range int32(2) {
			rt := kmsg.NewCreatePartitionsRequestTopic()
			rt.Topic, rt.Count = topic.name, 2+n
			req.Topics = append(req.Topics, rt)
		}
		resp := ask[*kmsg.CreatePartitionsResponse](w, req)
		if len(resp.Topics) != 1 {
			t.Errorf("%d answers", len(resp.Topics))
		}
		for _, rt := range resp.Topics {
			wantCode(t, "twice", rt.ErrorCode, kerr.InvalidRequest)
		}
	}},
}

// awaitGone waits until the broker knows the topic no more.
func (b *target) awaitGone(w *wire, topic string) {
	w.t.Helper()
	Await(w.t, 20*time.Second, "end of "+topic, func() error {
		if c := ask[*kmsg.MetadataResponse](w, metadataFor(9, &topic)).Topics[0].ErrorCode; c != kerr.UnknownTopicOrPartition.Code {
			return fmt.Errorf("it answers %d", c)
		}
		return nil
	})
}
