package brokertest

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

func offsetsOf(version int16, topic string, partition int32, timestamps ...int64) *kmsg.ListOffsetsRequest {
	req := at(kmsg.NewPtrListOffsetsRequest(), version)
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	for _, ts := range timestamps {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, ts, -1
		rt.Partitions = append(rt.Partitions, p)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

var offsetCases = []blackBoxCase{
	{"ListOffsets/by time is the first record in log order not before it", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		next := int64(0)
		stored := func(codec recordbatch.Codec, times ...int64) {
			o := recordbatch.NoProducer()
			o.Codec = codec
			var recs []recordbatch.Record
			for _, ts := range times {
				recs = append(recs, recordbatch.Record{Timestamp: ts, Value: []byte("v")})
			}
			mustProduce(w, topic.name, build(t, o, recs), next)
			next += int64(len(times))
		}
		stored(recordbatch.CodecNone, 10)         // 0
		stored(recordbatch.CodecGzip, 30, 20)     // 1 2
		stored(recordbatch.CodecNone, 5, 40, 7)   // 3 4 5
		stored(recordbatch.CodecLZ4, 12, 35, 100) // 6 7 8
		for v := int16(1); v < 11; v++ {
			for _, c := range [][3]int64{
				{0, 0, 10}, {10, 0, 10}, {11, 1, 30}, {15, 1, 30}, {25, 1, 30}, {30, 1, 30}, {31, 4, 40}, {40, 4, 40}, {41, 8, 100}, {100, 8, 100}, {101, -1, -1},
				{-1, 9, -1}, {-2, 0, -1},
			} {
				p := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(v, topic.name, 0, c[0])).Topics[0].Partitions[0]
				wantCode(t, fmt.Sprint("time ", c[0]), p.ErrorCode, nil)
				if p.Offset != c[1] || p.Timestamp != c[2] {
					t.Errorf("v%d time %d: offset %d, time %d, want %d and %d", v, c[0], p.Offset, p.Timestamp, c[1], c[2])
				}
				if v >= 4 && p.LeaderEpoch != 0 && c[1] >= 0 {
					t.Errorf("v%d time %d: epoch %d", v, c[0], p.LeaderEpoch)
				}
			}
		}
	}},
	{"ListOffsets/the largest time", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		p := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(7, topic.name, 0, -3)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.Offset != -1 || p.Timestamp != -1 {
			t.Errorf("an empty log: %+v", p)
		}
		for i, ts := range []int64{10, 50, 30, 50} {
			mustProduce(w, topic.name, build(t, recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: ts, Value: []byte("v")}}), int64(i))
		}
		p = ask[*kmsg.ListOffsetsResponse](w, offsetsOf(7, topic.name, 0, -3)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 || p.Offset != 1 || p.Timestamp != 50 {
			t.Errorf("%+v, want offset 1 and time 50", p)
		}
	}},
	{"ListOffsets/special times of later versions", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		mustProduce(w, topic.name, batch(t, "a"), 0)
		for _, c := range []struct {
			version int16
			ts      int64
			want    *kerr.Error
			offset  int64
		}{
			{8, -4, nil, 0}, {9, -5, nil, -1}, {6, -3, kerr.UnsupportedVersion, -1}, {7, -4, kerr.UnsupportedVersion, -1}, {8, -5, kerr.UnsupportedVersion, -1},
			{10, -6, kerr.UnsupportedVersion, -1}, {10, -100, kerr.UnsupportedVersion, -1},
		} {
			p := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(c.version, topic.name, 0, c.ts)).Topics[0].Partitions[0]
			wantCode(t, fmt.Sprintf("v%d time %d", c.version, c.ts), p.ErrorCode, c.want)
			if p.Offset != c.offset {
				t.Errorf("v%d time %d: offset %d, want %d", c.version, c.ts, p.Offset, c.offset)
			}
		}
	}},
	{"ListOffsets/an empty partition", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for ts, want := range map[int64]int64{-1: 0, -2: 0, 0: -1, 5: -1} {
			p := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, topic.name, 0, ts)).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.Offset != want || p.Timestamp != -1 {
				t.Errorf("time %d: %+v, want offset %d", ts, p, want)
			}
		}
	}},
	{"ListOffsets/unknown, repeated and fenced partitions", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		wantCode(t, "topic", ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, b.name("absent"), 0, -1)).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
		wantCode(t, "partition", ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, topic.name, 3, -1)).Topics[0].Partitions[0].ErrorCode, kerr.UnknownTopicOrPartition)
		for _, p := range ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, topic.name, 0, -1, -2)).Topics[0].Partitions {
			wantCode(t, "named twice", p.ErrorCode, kerr.InvalidRequest)
		}
		req := offsetsOf(6, topic.name, 0, -1)
		req.Topics[0].Partitions[0].CurrentLeaderEpoch = 7
		wantCode(t, "epoch of the future", ask[*kmsg.ListOffsetsResponse](w, req).Topics[0].Partitions[0].ErrorCode, kerr.UnknownLeaderEpoch)
	}},
	{"OffsetForLeaderEpoch/ends of epochs", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		ask0 := func(version int16, topic string, partition, current, epoch int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
			req := at(kmsg.NewPtrOffsetForLeaderEpochRequest(), version)
			req.ReplicaID = -1
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = topic
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
			rt.Partitions = append(rt.Partitions, p)
			req.Topics = append(req.Topics, rt)
			return ask[*kmsg.OffsetForLeaderEpochResponse](w, req).Topics[0].Partitions[0]
		}
		if p := ask0(4, topic.name, 0, -1, 0); p.ErrorCode != 0 || p.LeaderEpoch != 0 || p.EndOffset != 0 {
			t.Errorf("an empty log: %+v", p)
		}
		mustProduce(w, topic.name, batch(t, "a", "b"), 0)
		for v := int16(2); v < 5; v++ {
			if p := ask0(v, topic.name, 0, -1, 0); p.ErrorCode != 0 || p.LeaderEpoch != 0 || p.EndOffset != 2 {
				t.Errorf("v%d the current epoch: %+v", v, p)
			}
			if p := ask0(v, topic.name, 0, -1, 5); p.ErrorCode != 0 || p.LeaderEpoch != -1 || p.EndOffset != -1 {
				t.Errorf("v%d an epoch of the future: %+v", v, p)
			}
			if p := ask0(v, topic.name, 0, -1, -1); p.ErrorCode != 0 || p.LeaderEpoch != -1 || p.EndOffset != -1 {
				t.Errorf("v%d epoch -1: %+v", v, p)
			}
			wantCode(t, "current epoch 3", ask0(v, topic.name, 0, 3, 0).ErrorCode, kerr.UnknownLeaderEpoch)
			wantCode(t, "unknown partition", ask0(v, topic.name, 3, -1, 0).ErrorCode, kerr.UnknownTopicOrPartition)
			wantCode(t, "unknown topic", ask0(v, "absent", 0, -1, 0).ErrorCode, kerr.UnknownTopicOrPartition)
		}
	}},
}
