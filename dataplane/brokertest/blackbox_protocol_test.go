package brokertest

import (
	bin "encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var protocolCases = []blackBoxCase{
	{"ApiVersions/a version from the future is answered in the layout of v0", func(t *testing.T, b *target) {
		w := b.dial(t)
		// The body of a version that nobody knows is not to be read.
		frame := bin.BigEndian.AppendUint16(nil, 18)
		frame = bin.BigEndian.AppendUint16(frame, 99)
		frame = bin.BigEndian.AppendUint32(frame, 7)
		frame = append(frame, 0, 1, 'x', 0, 0xff, 0xff)
		if _, err := w.Write(append(bin.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			t.Fatal(err)
		}
		body, err := w.body()
		if err != nil {
			t.Fatal(err)
		}
		resp := at(kmsg.NewPtrApiVersionsRequest(), 0).ResponseKind().(*kmsg.ApiVersionsResponse)
		if err := resp.ReadFrom(body); err != nil {
			t.Fatal(err)
		}
		wantCode(t, "v99", resp.ErrorCode, kerr.UnsupportedVersion)
		if i := slices.IndexFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool { return k.ApiKey == 18 }); i < 0 || resp.ApiKeys[i].MaxVersion < 4 {
			t.Errorf("ApiVersions itself is not named: %v", resp.ApiKeys)
		}
		wantCode(t, "v0 on the same connection", ask[*kmsg.ApiVersionsResponse](w, at(kmsg.NewPtrApiVersionsRequest(), 0)).ErrorCode, nil)
	}},
	{"ApiVersions/v0 to v4 name every key with its versions", func(t *testing.T, b *target) {
		w := b.dial(t)
		for v := range int16(5) {
			req := at(kmsg.NewPtrApiVersionsRequest(), v)
			req.ClientSoftwareName, req.ClientSoftwareVersion = "black-box", "1.0"
			resp := ask[*kmsg.ApiVersionsResponse](w, req)
			wantCode(t, "answer", resp.ErrorCode, nil)
			got := map[int16][2]int16{}
			for _, k := range resp.ApiKeys {
				got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
			}
			for key, want := range map[int16][2]int16{0: {0, 11}, 1: {4, 17}, 2: {1, 10}, 3: {0, 12}, 10: {0, 6}, 11: {0, 9}, 18: {0, 4}, 19: {2, 7}, 32: {1, 4}} {
				if have := got[key]; have[0] != want[0] || have[1] < want[1] {
					t.Errorf("v%d: key %d is served from %d to %d, want %d to at least %d", v, key, have[0], have[1], want[0], want[1])
				}
			}
		}
	}},
	{"ApiVersions/a bad software name is refused and the connection lives", func(t *testing.T, b *target) {
		w := b.dial(t)
		for _, c := range [][2]string{{"", "1"}, {"a b", "1"}, {"-a", "1"}, {"a", ""}, {"a", "1 0"}, {"a.", "1"}} {
			req := at(kmsg.NewPtrApiVersionsRequest(), 3)
			req.ClientSoftwareName, req.ClientSoftwareVersion = c[0], c[1]
			wantCode(t, c[0]+" "+c[1], ask[*kmsg.ApiVersionsResponse](w, req).ErrorCode, kerr.InvalidRequest)
		}
		wantCode(t, "v2 afterwards", ask[*kmsg.ApiVersionsResponse](w, at(kmsg.NewPtrApiVersionsRequest(), 2)).ErrorCode, nil)
	}},
	{"unknown keys and versions end the connection", func(t *testing.T, b *target) {
		for _, kv := range [][2]uint16{{1000, 0}, {0xffff, 0}, {3, 99}, {1, 3}, {0, 99}, {0, 2}, {2, 0}} {
			w := b.dial(t)
			frame := bin.BigEndian.AppendUint16(nil, kv[0])
			frame = bin.BigEndian.AppendUint16(frame, kv[1])
			frame = append(frame, 0, 0, 0, 1, 0xff, 0xff, 0, 0)
			if _, err := w.Write(append(bin.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
				t.Fatal(err)
			}
			w.closed()
		}
	}},
	{"a body cut short ends the connection", func(t *testing.T, b *target) {
		w := b.dial(t)
		frame := w.frame(metadataFor(12, kmsg.StringPtr("some-topic")))
		frame = frame[:len(frame)-5]
		bin.BigEndian.PutUint32(frame, uint32(len(frame)-4))
		if _, err := w.Write(frame); err != nil {
			t.Fatal(err)
		}
		w.closed()
	}},
	{"replies come in the order of the requests", func(t *testing.T, b *target) {
		w := b.dial(t)
		slow := fetchOf(b.topic(t, 1).name, 0, 0)
		slow.MinBytes, slow.MaxWaitMillis = 1, 300
		began := time.Now()
		w.send(at(slow, 12))
		quick := at(kmsg.NewPtrApiVersionsRequest(), 0)
		w.send(quick)
		if _, err := w.receive(slow); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d < 250*time.Millisecond {
			t.Errorf("the long poll took %v", d)
		}
		if _, err := w.receive(quick); err != nil {
			t.Fatal(err)
		}
	}},
	{"DescribeCluster names brokers, controller and cluster", func(t *testing.T, b *target) {
		w := b.dial(t)
		for v := range int16(2) {
			resp := ask[*kmsg.DescribeClusterResponse](w, at(kmsg.NewPtrDescribeClusterRequest(), v))
			wantCode(t, "DescribeCluster", resp.ErrorCode, nil)
			if len(resp.Brokers) != 1 || resp.Brokers[0].Port == 0 || resp.ClusterID == "" || resp.ControllerID != resp.Brokers[0].NodeID {
				t.Errorf("v%d: %+v", v, resp)
			}
			if resp.ClusterAuthorizedOperations != math.MinInt32 {
				t.Errorf("v%d: rights %d that were not asked for", v, resp.ClusterAuthorizedOperations)
			}
		}
		for typ, want := range map[int8]*kerr.Error{2: kerr.MismatchedEndpointType, 3: kerr.UnsupportedEndpointType} {
			req := at(kmsg.NewPtrDescribeClusterRequest(), 1)
			req.EndpointType = typ
			wantCode(t, "endpoint type", ask[*kmsg.DescribeClusterResponse](w, req).ErrorCode, want)
		}
	}},
	{"InitProducerId gives each producer an id of its own at epoch 0", func(t *testing.T, b *target) {
		w := b.dial(t)
		seen := map[int64]bool{}
		for v := range int16(6) {
			resp := ask[*kmsg.InitProducerIDResponse](w, at(kmsg.NewPtrInitProducerIDRequest(), v))
			wantCode(t, "InitProducerId", resp.ErrorCode, nil)
			if resp.ProducerID < 0 || resp.ProducerEpoch != 0 || seen[resp.ProducerID] {
				t.Errorf("v%d: id %d, epoch %d", v, resp.ProducerID, resp.ProducerEpoch)
			}
			seen[resp.ProducerID] = true
		}
	}},
	{"InitProducerId with an id that was not given without a transaction", func(t *testing.T, b *target) {
		w := b.dial(t)
		for _, c := range []struct {
			id    int64
			epoch int16
			want  *kerr.Error
		}{{5, -1, kerr.InvalidRequest}, {-1, 3, kerr.InvalidRequest}, {5, 3, nil}} {
			req := at(kmsg.NewPtrInitProducerIDRequest(), 4)
			req.ProducerID, req.ProducerEpoch = c.id, c.epoch
			wantCode(t, "InitProducerId", ask[*kmsg.InitProducerIDResponse](w, req).ErrorCode, c.want)
		}
	}},
}

var metadataCases = []blackBoxCase{
	{"Metadata/v0 to v12 describe a topic by name", func(t *testing.T, b *target) {
		topic := b.topic(t, 3)
		w := b.dial(t)
		for v := range int16(13) {
			resp := ask[*kmsg.MetadataResponse](w, metadataFor(v, &topic.name))
			if len(resp.Brokers) != 1 || len(resp.Topics) != 1 {
				t.Fatalf("v%d: %d brokers, %d topics", v, len(resp.Brokers), len(resp.Topics))
			}
			rt := resp.Topics[0]
			wantCode(t, "topic", rt.ErrorCode, nil)
			if len(rt.Partitions) != 3 || rt.Topic == nil || *rt.Topic != topic.name || rt.IsInternal {
				t.Errorf("v%d: %+v", v, rt)
			}
			for i, p := range rt.Partitions {
				if p.Partition != int32(i) || p.Leader != resp.Brokers[0].NodeID || len(p.Replicas) != 1 || len(p.ISR) != 1 || (v >= 7 && p.LeaderEpoch != 0) {
					t.Errorf("v%d: %+v", v, p)
				}
			}
			if v >= 10 && rt.TopicID != topic.id {
				t.Errorf("v%d: topic id %x, want %x", v, rt.TopicID, topic.id)
			}
			if v >= 8 && (rt.AuthorizedOperations != math.MinInt32 || (v <= 10 && resp.AuthorizedOperations != math.MinInt32)) {
				t.Errorf("v%d: rights %d and %d that were not asked for", v, rt.AuthorizedOperations, resp.AuthorizedOperations)
			}
		}
	}},
	{"Metadata/by id", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		req := metadataFor(12, nil, nil)
		req.Topics[0].TopicID, req.Topics[1].TopicID = topic.id, [16]byte{1, 2, 3}
		resp := ask[*kmsg.MetadataResponse](w, req)
		if len(resp.Topics) != 2 {
			t.Fatalf("%d topics", len(resp.Topics))
		}
		for _, rt := range resp.Topics {
			if rt.TopicID == topic.id {
				wantCode(t, "known id", rt.ErrorCode, nil)
				if rt.Topic == nil || *rt.Topic != topic.name || len(rt.Partitions) != 1 {
					t.Errorf("%+v", rt)
				}
			} else {
				wantCode(t, "unknown id", rt.ErrorCode, kerr.UnknownTopicID)
				if rt.Topic != nil {
					t.Errorf("an unknown id has the name %q", *rt.Topic)
				}
			}
		}
	}},
	{"Metadata/ids are refused before v12", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for v := int16(10); v < 12; v++ {
			req := metadataFor(v, nil)
			req.Topics[0].TopicID = topic.id
			if v == 10 { // an id beside a name is refused too
				req.Topics[0].Topic = &topic.name
			}
			resp := ask[*kmsg.MetadataResponse](w, req)
			for _, rt := range resp.Topics {
				wantCode(t, "topic by id", rt.ErrorCode, kerr.InvalidRequest)
			}
		}
	}},
	{"Metadata/all topics and none", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for v := range int16(13) {
			all := metadataFor(v)
			if v > 0 {
				all.Topics = nil
			}
			resp := ask[*kmsg.MetadataResponse](w, all)
			if !slices.ContainsFunc(resp.Topics, func(rt kmsg.MetadataResponseTopic) bool { return *rt.Topic == topic.name }) {
				t.Errorf("v%d: the topic is missing among all", v)
			}
			if v > 0 {
				if n := len(ask[*kmsg.MetadataResponse](w, metadataFor(v)).Topics); n != 0 {
					t.Errorf("v%d: %d topics where none was asked for", v, n)
				}
			}
		}
	}},
	{"Metadata/unknown and invalid names", func(t *testing.T, b *target) {
		w := b.dial(t)
		long := string(make([]byte, 250))
		for name, want := range map[string]*kerr.Error{
			b.name("absent"): kerr.UnknownTopicOrPartition, "": kerr.InvalidTopicException, ".": kerr.InvalidTopicException, "..": kerr.InvalidTopicException,
			"a/b": kerr.InvalidTopicException, "ä": kerr.InvalidTopicException, "a b": kerr.InvalidTopicException, long: kerr.InvalidTopicException,
		} {
			for _, create := range []bool{false, true} {
				if create && want == kerr.UnknownTopicOrPartition {
					continue
				}
				req := metadataFor(9, &name)
				req.AllowAutoTopicCreation = create
				resp := ask[*kmsg.MetadataResponse](w, req)
				wantCode(t, "topic "+name, resp.Topics[0].ErrorCode, want)
				if len(resp.Topics[0].Partitions) != 0 {
					t.Errorf("topic %q has partitions", name)
				}
			}
		}
	}},
	{"Metadata/a missing topic is made where allowed", func(t *testing.T, b *target) {
		w := b.dial(t)
		name := b.name("auto")
		req := metadataFor(12, &name)
		req.AllowAutoTopicCreation = true
		resp := ask[*kmsg.MetadataResponse](w, req)
		wantCode(t, "the first answer", resp.Topics[0].ErrorCode, pick[*kerr.Error](b, nil, kerr.UnknownTopicOrPartition))
		b.awaitLeaders(w, name, pick(b, int32(4), int32(len(awaitTopic(w, name)))))
	}},
	{"Metadata/rights are told who asks", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		req := metadataFor(10, &topic.name)
		req.IncludeClusterAuthorizedOperations, req.IncludeTopicAuthorizedOperations = true, true
		resp := ask[*kmsg.MetadataResponse](w, req)
		bits := func(ops ...kmsg.ACLOperation) (n int32) {
			for _, op := range ops {
				n |= 1 << op
			}
			return n
		}
		if got, want := resp.Topics[0].AuthorizedOperations, bits(kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDelete,
			kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs); got != want {
			t.Errorf("rights on the topic: %b, want %b", got, want)
		}
		if got, want := resp.AuthorizedOperations, bits(kmsg.ACLOperationCreate, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe, kmsg.ACLOperationClusterAction,
			kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs, kmsg.ACLOperationIdempotentWrite); got != want {
			t.Errorf("rights on the cluster: %b, want %b", got, want)
		}
	}},
}

// awaitTopic asks until a topic is there and returns its partitions.
func awaitTopic(w *wire, name string) []kmsg.MetadataResponseTopicPartition {
	w.t.Helper()
	var parts []kmsg.MetadataResponseTopicPartition
	Await(w.t, 10*time.Second, "topic "+name, func() error {
		resp := ask[*kmsg.MetadataResponse](w, metadataFor(12, &name))
		parts = resp.Topics[0].Partitions
		return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	})
	return parts
}
