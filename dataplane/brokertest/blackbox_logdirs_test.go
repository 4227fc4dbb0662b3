package brokertest

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deletion is a DeleteRecords of partition 0 of topics.
func deletion(version int16, millis int32, topics map[string]int64) *kmsg.DeleteRecordsRequest {
	req := at(kmsg.NewPtrDeleteRecordsRequest(), version)
	req.TimeoutMillis = millis
	for topic, offset := range topics {
		rt := kmsg.NewDeleteRecordsRequestTopic()
		rp := kmsg.NewDeleteRecordsRequestTopicPartition()
		rp.Offset = offset
		rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

func deleteRecords(w *wire, version int16, topic string, offset int64) (low int64, code int16) {
	w.t.Helper()
	p := ask[*kmsg.DeleteRecordsResponse](w, deletion(version, 10_000, map[string]int64{topic: offset})).Topics[0].Partitions[0]
	return p.LowWatermark, p.ErrorCode
}

func logDirs(w *wire, version int16, topics ...string) *kmsg.DescribeLogDirsResponse {
	w.t.Helper()
	req := at(kmsg.NewPtrDescribeLogDirsRequest(), version)
	for _, topic := range topics {
		rt := kmsg.NewDescribeLogDirsRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, rt)
	}
	return ask[*kmsg.DescribeLogDirsResponse](w, req)
}

func moveTo(w *wire, version int16, dir, topic string) int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrAlterReplicaLogDirsRequest(), version)
	rd := kmsg.NewAlterReplicaLogDirsRequestDir()
	rt := kmsg.NewAlterReplicaLogDirsRequestDirTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	rd.Dir, rd.Topics = dir, append(rd.Topics, rt)
	req.Dirs = append(req.Dirs, rd)
	return ask[*kmsg.AlterReplicaLogDirsResponse](w, req).Topics[0].Partitions[0].ErrorCode
}

var logDirCases = []blackBoxCase{
	{"DeleteRecords/raises the log start, also into a batch", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for i := range int64(3) {
			mustProduce(w, topic.name, batch(t, "a", "b", "c", "d"), 4*i)
		}
		for _, c := range []struct {
			offset, low int64
			err         *kerr.Error
		}{
			{0, 0, nil}, {2, 2, nil}, {1, 2, nil}, {13, -1, kerr.OffsetOutOfRange}, {-2, -1, kerr.OffsetOutOfRange}, {6, 6, nil}, {-1, 12, nil}, {12, 12, nil},
		} {
			low, code := deleteRecords(w, int16(c.offset+2)%3, topic.name, c.offset)
			if wantCode(t, fmt.Sprint("to ", c.offset), code, c.err); low != c.low {
				t.Errorf("to %d: low watermark %d, want %d", c.offset, low, c.low)
			}
			if c.offset == 6 {
				wantCode(t, "fetch below the start", fetchOne(w, topic.name, 5).ErrorCode, kerr.OffsetOutOfRange)
				p := fetchOne(w, topic.name, 6)
				if p.ErrorCode != 0 || p.LogStartOffset != 6 || len(p.RecordBatches) == 0 {
					t.Errorf("fetch at the start: error %d, log start %d, %d bytes", p.ErrorCode, p.LogStartOffset, len(p.RecordBatches))
				}
			}
		}
		for ts, want := range map[int64]int64{-1: 12, -2: 12, -4: 12, -5: -1} {
			p := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(9, topic.name, 0, ts)).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.Offset != want {
				t.Errorf("ListOffsets %d: offset %d, error %d, want %d", ts, p.Offset, p.ErrorCode, want)
			}
		}
		mustProduce(w, topic.name, batch(t, "e"), 12)
	}},
	{"DeleteRecords/refusals", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		compacted := b.topic(t, 1, "cleanup.policy=compact")
		both := b.topic(t, 1, "cleanup.policy=compact,delete")
		w := b.dial(t)
		mustProduce(w, compacted.name, batch(t, "a"), 0)
		mustProduce(w, both.name, batch(t, "a"), 0)
		_, code := deleteRecords(w, 2, compacted.name, 1)
		wantCode(t, "compacted only", code, kerr.PolicyViolation)
		_, code = deleteRecords(w, 2, both.name, 1)
		wantCode(t, "compacted and deleted", code, nil)
		_, code = deleteRecords(w, 2, b.name("none"), 0)
		wantCode(t, "unknown topic", code, kerr.UnknownTopicOrPartition)
		resp := ask[*kmsg.DeleteRecordsResponse](w, deletion(2, 1000, map[string]int64{topic.name: 0, b.name("none"): 0, compacted.name: 0}))
		got := map[string]int16{}
		for _, rt := range resp.Topics {
			got[rt.Topic] = rt.Partitions[0].ErrorCode
		}
		if len(got) != 3 || got[topic.name] != 0 || got[compacted.name] != kerr.PolicyViolation.Code {
			t.Errorf("codes by topic: %v", got)
		}
	}},
	{"DescribeLogDirs/names the folder of each replica, its size and the room there is", func(t *testing.T, b *target) {
		topic, other := b.topic(t, 1), b.topic(t, 1)
		w := b.dial(t)
		bytes := batch(t, "a", "b")
		mustProduce(w, topic.name, bytes, 0)
		for v := int16(1); v <= 4; v++ {
			resp := logDirs(w, v, topic.name, b.name("none"))
			if resp.ErrorCode != 0 || len(resp.Dirs) != 1 || resp.Dirs[0].ErrorCode != 0 || len(resp.Dirs[0].Topics) != 1 {
				t.Fatalf("v%d: %+v", v, resp)
			}
			d := resp.Dirs[0]
			p := d.Topics[0].Partitions[0]
			if d.Topics[0].Topic != topic.name || p.Partition != 0 || p.Size != int64(len(bytes)) || p.OffsetLag != 0 || p.IsFuture {
				t.Errorf("v%d: %+v", v, d.Topics[0])
			}
			if room := d.UsableBytes > 0 && d.TotalBytes >= d.UsableBytes; room != (v >= 4) {
				t.Errorf("v%d: %d of %d bytes", v, d.UsableBytes, d.TotalBytes)
			}
		}
		found := map[string]bool{}
		for _, rt := range logDirs(w, 4).Dirs[0].Topics { // null: all
			found[rt.Topic] = true
		}
		if !found[topic.name] || !found[other.name] {
			t.Error("not all replicas are described")
		}
	}},
	{"AlterReplicaLogDirs/errors, and a move to where the replica is", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		dir := logDirs(w, 4, topic.name).Dirs[0].Dir
		for v := int16(1); v <= 2; v++ {
			wantCode(t, "where it is", moveTo(w, v, dir, topic.name), nil)
			wantCode(t, "no such folder", moveTo(w, v, dir+"-x", topic.name), kerr.LogDirNotFound)
			wantCode(t, "no such topic", moveTo(w, v, dir, b.name("none")), kerr.UnknownTopicOrPartition)
		}
		if d := logDirs(w, 4, topic.name).Dirs[0]; len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 1 || d.Topics[0].Partitions[0].IsFuture {
			t.Errorf("a copy is being made: %+v", d.Topics)
		}
	}},
}
