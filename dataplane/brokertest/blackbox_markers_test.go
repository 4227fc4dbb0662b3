package brokertest

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// marker is a request to end the producer's transaction in partitions 0 to n-1 of the topic.
func markerOf(pid int64, epoch int16, commit bool, coordinatorEpoch int32, topic string, partitions ...int32) kmsg.WriteTxnMarkersRequestMarker {
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed, m.CoordinatorEpoch = pid, epoch, commit, coordinatorEpoch
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = topic, partitions
	m.Topics = append(m.Topics, rt)
	return m
}

func writeMarkers(w *wire, version int16, markers ...kmsg.WriteTxnMarkersRequestMarker) *kmsg.WriteTxnMarkersResponse {
	w.t.Helper()
	req := at(kmsg.NewPtrWriteTxnMarkersRequest(), version)
	req.Markers = markers
	return ask[*kmsg.WriteTxnMarkersResponse](w, req)
}

// marked are the codes by producer, topic and partition: Kafka answers in any order.
func marked(resp *kmsg.WriteTxnMarkersResponse) map[int64]map[string]map[int32]int16 {
	out := map[int64]map[string]map[int32]int16{}
	for _, m := range resp.Markers {
		out[m.ProducerID] = map[string]map[int32]int16{}
		for _, t := range m.Topics {
			if out[m.ProducerID][t.Topic] == nil {
				out[m.ProducerID][t.Topic] = map[int32]int16{}
			}
			for _, p := range t.Partitions {
				out[m.ProducerID][t.Topic][p.Partition] = p.ErrorCode
			}
		}
	}
	return out
}

func mark(w *wire, what string, m kmsg.WriteTxnMarkersRequestMarker, want *kerr.Error) {
	w.t.Helper()
	codes := marked(writeMarkers(w, 1, m))[m.ProducerID][m.Topics[0].Topic]
	for _, p := range m.Topics[0].Partitions {
		code, ok := codes[p]
		if !ok {
			w.t.Errorf("%s: no answer for partition %d", what, p)
		}
		wantCode(w.t, what, code, want)
	}
}

func describeProducers(w *wire, topic string, partitions ...int32) map[int32]kmsg.DescribeProducersResponseTopicPartition {
	w.t.Helper()
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	out := map[int32]kmsg.DescribeProducersResponseTopicPartition{}
	for _, p := range ask[*kmsg.DescribeProducersResponse](w, req).Topics[0].Partitions {
		out[p.Partition] = p
	}
	return out
}

// active is what partition 0 knows of one producer.
func active(w *wire, topic string, pid int64) (kmsg.DescribeProducersResponseTopicPartitionActiveProducer, bool) {
	w.t.Helper()
	p := describeProducers(w, topic, 0)[0]
	wantCode(w.t, "DescribeProducers", p.ErrorCode, nil)
	for _, a := range p.ActiveProducers {
		if a.ProducerID == pid {
			return a, true
		}
	}
	return kmsg.DescribeProducersResponseTopicPartitionActiveProducer{}, false
}

var markerCases = []blackBoxCase{
	{"WriteTxnMarkers/each partition has its own answer", func(t *testing.T, b *target) {
		topic, other := b.topic(t, 2), b.topic(t, 1)
		w := b.dial(t)
		const one, two = 1 << 40, 1<<40 + 1
		resp := marked(writeMarkers(w, 1,
			markerOf(one, 0, true, 0, topic.name, 0, 7, 1), markerOf(two, 0, false, 0, "is-not-there", 0), markerOf(two, 0, false, 0, other.name, 0)))
		for _, c := range []struct {
			pid       int64
			topic     string
			partition int32
			want      *kerr.Error
		}{
			{one, topic.name, 0, nil}, {one, topic.name, 1, nil}, {one, topic.name, 7, kerr.UnknownTopicOrPartition},
			{two, "is-not-there", 0, kerr.UnknownTopicOrPartition}, {two, other.name, 0, nil},
		} {
			code, ok := resp[c.pid][c.topic][c.partition]
			if !ok {
				t.Errorf("no answer for producer %d, %s-%d", c.pid, c.topic, c.partition)
				continue
			}
			wantCode(t, c.topic, code, c.want)
		}
		for _, tp := range []madeTopic{topic, other} {
			end := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, tp.name, 0, -1)).Topics[0].Partitions[0]
			if end.Offset != 1 {
				t.Errorf("%s ends at %d, want the marker there", tp.name, end.Offset)
			}
		}
		if n := len(writeMarkers(w, 1).Markers); n != 0 {
			t.Errorf("%d answers to no markers", n)
		}
	}},
	{"WriteTxnMarkers/the same marker twice is fine, an older coordinator or producer epoch is not", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		const pid = 1<<40 + 10
		mark(w, "the first", markerOf(pid, 3, true, 5, topic.name, 0), nil)
		mark(w, "the same again", markerOf(pid, 3, true, 5, topic.name, 0), nil)
		mark(w, "of an older coordinator", markerOf(pid, 3, true, 4, topic.name, 0), kerr.TransactionCoordinatorFenced)
		mark(w, "of none", markerOf(pid, 3, true, -1, topic.name, 0), kerr.TransactionCoordinatorFenced)
		mark(w, "of an older producer epoch", markerOf(pid, 2, true, 6, topic.name, 0), kerr.InvalidProducerEpoch)
		mark(w, "of a newer coordinator and epoch", markerOf(pid, 4, false, 6, topic.name, 0), nil)
		if a, ok := active(w, topic.name, pid); !ok || a.ProducerEpoch != 4 || a.CoordinatorEpoch != 6 || a.CurrentTxnStartOffset != -1 || a.LastSequence != -1 {
			t.Errorf("%+v, %v", a, ok)
		}
		p := &idempotent{w, topic.name, pid, 3}
		p.try("data of the older epoch", 0, 1, kerr.InvalidProducerEpoch, -1)
		p.epoch = 4
		p.try("data of the marker's epoch, not from 0", 1, 1, kerr.OutOfOrderSequenceNumber, -1)
		p.try("data of the marker's epoch", 0, 1, nil, 3)
	}},
	{"WriteTxnMarkers/an administrator's marker has no coordinator epoch", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		p := newIdempotent(t, b, topic.name)
		p.try("data", 0, 1, nil, 0)
		mark(w, "without a coordinator epoch", markerOf(p.id, p.epoch, false, -1, topic.name, 0), nil)
		if a, ok := active(w, topic.name, p.id); !ok || a.CoordinatorEpoch != -1 || a.LastSequence != 0 {
			t.Errorf("%+v, %v", a, ok)
		}
		p.try("sequences go on", 1, 1, nil, 2)
	}},
	{"DescribeProducers/of producers that write, and of what is not there", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		p.try("data", 0, 3, nil, 0)
		p.try("data", 3, 2, nil, 3)
		a, ok := active(p.w, topic.name, p.id)
		if !ok || a.ProducerEpoch != int32(p.epoch) || a.LastSequence != 4 || a.LastTimestamp <= 0 || a.CoordinatorEpoch != -1 || a.CurrentTxnStartOffset != -1 {
			t.Errorf("%+v, %v", a, ok)
		}
		got := describeProducers(p.w, topic.name, 0, 9)
		wantCode(t, "a partition that is not there", got[9].ErrorCode, kerr.UnknownTopicOrPartition)
		wantCode(t, "one beside it", got[0].ErrorCode, nil)
		wantCode(t, "a topic that is not there", describeProducers(p.w, "is-not-there", 0)[0].ErrorCode, kerr.UnknownTopicOrPartition)
		wantCode(t, "a name that is none", describeProducers(p.w, "is/not", 0)[0].ErrorCode, kerr.InvalidTopicException)
	}},
	{"Produce/version 13 goes by topic ids", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		to := func(id [16]byte, partition int32) kmsg.ProduceResponseTopic {
			req := at(kmsg.NewPtrProduceRequest(), 13)
			req.Acks, req.TimeoutMillis = -1, 10_000
			rt := kmsg.NewProduceRequestTopic()
			rt.TopicID = id
			rt.Partitions = append(rt.Partitions, kmsg.ProduceRequestTopicPartition{Partition: partition, Records: batch(t, "by id")})
			req.Topics = append(req.Topics, rt)
			return ask[*kmsg.ProduceResponse](w, req).Topics[0]
		}
		got := to(topic.id, 0)
		if got.TopicID != topic.id || got.Partitions[0].ErrorCode != 0 || got.Partitions[0].BaseOffset != 0 {
			t.Errorf("%+v", got)
		}
		wantCode(t, "a partition that is not there", to(topic.id, 4).Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
		strange := [16]byte{1, 2, 3}
		if got = to(strange, 0); got.TopicID != strange {
			t.Errorf("answer for topic %x", got.TopicID)
		}
		wantCode(t, "an id that is not known", got.Partitions[0].ErrorCode, kerr.UnknownTopicID)
		if got := produce(w, topic.name, batch(t, "by name")); got.BaseOffset != 1 || got.ErrorCode != 0 {
			t.Errorf("by name after that: %+v", got)
		}
	}},
}
