package brokertest

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// moveOf asks for other replicas of one partition; nil takes that back.
func moveOf(topic string, partition int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := at(kmsg.NewPtrAlterPartitionAssignmentsRequest(), 0)
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Partition, p.Replicas = partition, replicas
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func electionOf(version int16, kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	req := at(kmsg.NewPtrElectLeadersRequest(), version)
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	req.ElectionType, req.Topics = kind, append(req.Topics, t)
	return req
}

var reassignCases = []blackBoxCase{
	{"AlterPartitionReassignments/refusals", func(t *testing.T, b *target) {
		w := b.dial(t)
		id := b.brokerID(w)
		there, nope := b.topic(t, 1).name, b.name("nope")
		for _, c := range []struct {
			what      string
			topic     string
			partition int32
			replicas  []int32
			want      *kerr.Error
		}{
			{"nothing to cancel", there, 0, nil, kerr.NoReassignmentInProgress},
			{"no replica", there, 0, []int32{}, kerr.InvalidReplicaAssignment},
			{"one twice", there, 0, []int32{id, id}, kerr.InvalidReplicaAssignment},
			{"one below 0", there, 0, []int32{-1}, kerr.InvalidReplicaAssignment},
			{"one that does not live", there, 0, []int32{id, 7777}, kerr.InvalidReplicaAssignment},
			{"unknown topic", nope, 0, []int32{id}, kerr.UnknownTopicOrPartition},
			{"unknown partition", there, 9, []int32{id}, kerr.UnknownTopicOrPartition},
			{"what it has", there, 0, []int32{id}, nil},
		} {
			resp := ask[*kmsg.AlterPartitionAssignmentsResponse](w, moveOf(c.topic, c.partition, c.replicas))
			wantCode(t, c.what+", the whole", resp.ErrorCode, nil)
			if len(resp.Topics) != 1 || resp.Topics[0].Topic != c.topic || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != c.partition {
				t.Errorf("%s: %+v", c.what, resp)
				continue
			}
			p := resp.Topics[0].Partitions[0]
			wantCode(t, c.what, p.ErrorCode, c.want)
			if p.ErrorCode == 0 && p.ErrorMessage != nil {
				t.Errorf("%s: message %q", c.what, *p.ErrorMessage)
			}
		}
		empty := at(kmsg.NewPtrAlterPartitionAssignmentsRequest(), 0)
		if resp := ask[*kmsg.AlterPartitionAssignmentsResponse](w, empty); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
			t.Errorf("nothing asked: %+v", resp)
		}
	}},
	{"ListPartitionReassignments/none", func(t *testing.T, b *target) {
		w := b.dial(t)
		there := b.topic(t, 1).name
		all := at(kmsg.NewPtrListPartitionReassignmentsRequest(), 0)
		all.Topics = nil
		some := at(kmsg.NewPtrListPartitionReassignmentsRequest(), 0)
		for _, name := range []string{there, b.name("nope")} {
			rt := kmsg.NewListPartitionReassignmentsRequestTopic()
			rt.Topic, rt.Partitions = name, []int32{0, 5}
			some.Topics = append(some.Topics, rt)
		}
		for _, req := range []*kmsg.ListPartitionReassignmentsRequest{all, some} {
			if resp := ask[*kmsg.ListPartitionReassignmentsResponse](w, req); resp.ErrorCode != 0 || len(resp.Topics) != 0 {
				t.Errorf("%+v", resp)
			}
		}
	}},
	{"ElectLeaders/answers", func(t *testing.T, b *target) {
		w := b.dial(t)
		there, nope := b.topic(t, 2).name, b.name("nope")
		for version := int16(0); version <= 2; version++ {
			for kind := int8(0); kind <= min(int8(version), 1); kind++ {
				resp := ask[*kmsg.ElectLeadersResponse](w, electionOf(version, kind, there, 0, 1, 5))
				wantCode(t, "the whole", resp.ErrorCode, nil)
				if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 3 {
					t.Fatalf("version %d: %+v", version, resp)
				}
				for _, p := range resp.Topics[0].Partitions {
					want := kerr.ElectionNotNeeded
					if p.Partition == 5 {
						want = kerr.UnknownTopicOrPartition
					}
					wantCode(t, there, p.ErrorCode, want)
				}
				resp = ask[*kmsg.ElectLeadersResponse](w, electionOf(version, kind, nope, 0))
				wantCode(t, nope, resp.Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
			}
			all := at(kmsg.NewPtrElectLeadersRequest(), version)
			all.Topics = nil
			resp := ask[*kmsg.ElectLeadersResponse](w, all)
			wantCode(t, "all", resp.ErrorCode, nil)
			for _, rt := range resp.Topics { // Kafka 4 names topics of which it has nothing to say
				if len(rt.Partitions) > 0 {
					t.Errorf("version %d: all: %+v", version, resp)
				}
			}
		}
	}},
	{"DescribeTopicPartitions/pages", func(t *testing.T, b *target) {
		w := b.dial(t)
		if !b.serves(w, 75) {
			t.Skip("Kafka with ZooKeeper does not serve it")
		}
		first, second := b.topic(t, 3).name, b.topic(t, 2).name
		if first > second {
			t.Fatal("names are in order of their making")
		}
		nope := b.name("unknown")                      // which comes after the others
		names := []string{second, nope, first, second} // in any order, one twice
		slices.Sort(names[:3])
		describe := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) *kmsg.DescribeTopicPartitionsResponse {
			req := at(kmsg.NewPtrDescribeTopicPartitionsRequest(), 0)
			req.ResponsePartitionLimit, req.Cursor = limit, cursor
			for _, n := range names {
				rt := kmsg.NewDescribeTopicPartitionsRequestTopic()
				rt.Topic = n
				req.Topics = append(req.Topics, rt)
			}
			return ask[*kmsg.DescribeTopicPartitionsResponse](w, req)
		}
		from := func(topic string, p int32) *kmsg.DescribeTopicPartitionsRequestCursor {
			return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: p}
		}
		shows := func(what string, resp *kmsg.DescribeTopicPartitionsResponse, next string, partition int32, want map[string]int) {
			t.Helper()
			got := map[string]int{}
			last := ""
			for _, rt := range resp.Topics {
				if *rt.Topic < last {
					t.Errorf("%s: %s after %s", what, *rt.Topic, last)
				}
				last = *rt.Topic
				got[last] = len(rt.Partitions)
				if last == nope {
					wantCode(t, nope, rt.ErrorCode, kerr.UnknownTopicOrPartition)
					continue
				}
				wantCode(t, last, rt.ErrorCode, nil)
				for _, p := range rt.Partitions {
					if p.LeaderID != p.Replicas[0] || len(p.ISR) != 1 || len(p.OfflineReplicas) != 0 || p.ErrorCode != 0 || p.LeaderEpoch < 0 ||
						p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil { // from null Java's client takes harm
						t.Errorf("%s: %+v", what, p)
					}
				}
			}
			if len(got) != len(want) {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
			for name, n := range want {
				if have, ok := got[name]; !ok || have != n {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			switch c := resp.NextCursor; {
			case next == "" && c != nil:
				t.Errorf("%s: goes on at %+v", what, c)
			case next != "" && (c == nil || c.Topic != next || c.Partition != partition):
				t.Errorf("%s: goes on at %+v, want %s-%d", what, c, next, partition)
			}
		}
		shows("all of two", describe(100, nil, names...), "", 0, map[string]int{first: 3, second: 2, nope: 0})
		shows("within a topic", describe(2, nil, first, second), first, 2, map[string]int{first: 2})
		shows("between topics", describe(3, nil, first, second), second, 0, map[string]int{first: 3})
		shows("from a cursor", describe(2, from(first, 2), first, second), second, 1, map[string]int{first: 1, second: 1})
		shows("the last page", describe(2, from(second, 1), first, second), "", 0, map[string]int{second: 1})
		shows("a limit of 0 is 1", describe(0, nil, first, second), first, 1, map[string]int{first: 1})
		shows("a cursor behind the partitions", describe(9, from(first, 7), first, second), "", 0, map[string]int{first: 0, second: 2})
		shows("what is not there takes no room", describe(3, from(second, 0), second, nope), "", 0, map[string]int{second: 2, nope: 0})
		for what, resp := range map[string]*kmsg.DescribeTopicPartitionsResponse{
			"a cursor elsewhere": describe(9, from(nope, 0), first), "a cursor below 0": describe(9, from(first, -1), first),
		} {
			if len(resp.Topics) != 1 {
				t.Errorf("%s: %+v", what, resp)
				continue
			}
			wantCode(t, what, resp.Topics[0].ErrorCode, kerr.InvalidRequest)
		}
		wantCode(t, "bad name", describe(9, nil, "a b").Topics[0].ErrorCode, kerr.InvalidTopicException)
	}},
}

// serves asks whether the broker tells of an API.
func (b *target) serves(w *wire, key int16) bool {
	resp := ask[*kmsg.ApiVersionsResponse](w, at(kmsg.NewPtrApiVersionsRequest(), 0))
	return slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == key })
}
