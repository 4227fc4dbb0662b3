package protocol

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// join is what the listener puts on the wire.
func join(t interface{ Fatal(...any) }, chunks []Chunk) []byte {
	var out []byte
	for _, c := range chunks {
		if c.File == nil {
			out = append(out, c.Bytes...)
			continue
		}
		b := make([]byte, c.Len)
		if _, err := c.File.ReadAt(b, c.Pos); err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

func genFetch(t *rapid.T) (*FetchResponse, *kmsg.FetchResponse) {
	i32 := func(l string) int32 { return rapid.Int32().Draw(t, l) }
	i64 := func(l string) int64 { return rapid.Int64().Draw(t, l) }
	ours, theirs := &FetchResponse{ThrottleMillis: i32("throttle"), ErrorCode: 3, SessionID: i32("session")}, kmsg.NewPtrFetchResponse()
	theirs.ThrottleMillis, theirs.ErrorCode, theirs.SessionID = ours.ThrottleMillis, ours.ErrorCode, ours.SessionID
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		ot, tt := FetchTopic{Topic: rapid.StringN(0, 200, 400).Draw(t, "topic")}, kmsg.NewFetchResponseTopic()
		copy(ot.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		tt.Topic, tt.TopicID = ot.Topic, ot.TopicID
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			op, tp := NewFetchPartition(i32("p")), kmsg.NewFetchResponseTopicPartition()
			op.ErrorCode = rapid.Int16().Draw(t, "err")
			op.HighWatermark, op.LastStableOffset, op.LogStartOffset = i64("hw"), i64("lso"), i64("start")
			tp.Partition, tp.ErrorCode = op.Partition, op.ErrorCode
			tp.HighWatermark, tp.LastStableOffset, tp.LogStartOffset = op.HighWatermark, op.LastStableOffset, op.LogStartOffset
			if rapid.Bool().Draw(t, "diverging") {
				op.DivergingEpoch, op.DivergingEndOffset = i32("de"), i64("do")
				tp.DivergingEpoch.Epoch, tp.DivergingEpoch.EndOffset = op.DivergingEpoch, op.DivergingEndOffset
			}
			if rapid.Bool().Draw(t, "leader") {
				op.LeaderID, op.LeaderEpoch = i32("li"), i32("le")
				tp.CurrentLeader.LeaderID, tp.CurrentLeader.LeaderEpoch = op.LeaderID, op.LeaderEpoch
			}
			if rapid.Bool().Draw(t, "committed") {
				op.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
				for range rapid.IntRange(0, 2).Draw(t, "aborted") {
					a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
					a.ProducerID, a.FirstOffset = i64("pid"), i64("first")
					op.AbortedTransactions = append(op.AbortedTransactions, a)
				}
				tp.AbortedTransactions = op.AbortedTransactions
			}
			op.PreferredReadReplica = i32("pref")
			tp.PreferredReadReplica = op.PreferredReadReplica
			rec := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "records")
			tp.RecordBatches = append([]byte{}, rec...)
			if rapid.Bool().Draw(t, "file") {
				op.Records = Chunk{File: bytes.NewReader(append([]byte("front"), rec...)), Pos: 5, Len: len(rec)}
			} else {
				op.Records = Chunk{Bytes: rec}
			}
			ot.Partitions, tt.Partitions = append(ot.Partitions, op), append(tt.Partitions, tp)
		}
		ours.Topics, theirs.Topics = append(ours.Topics, ot), append(theirs.Topics, tt)
	}
	for range rapid.IntRange(0, 2).Draw(t, "brokers") {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID, b.Host, b.Port = i32("node"), rapid.StringN(0, 40, 80).Draw(t, "host"), i32("port")
		if rapid.Bool().Draw(t, "rack") {
			b.Rack = kmsg.StringPtr("r1")
		}
		ours.Brokers = append(ours.Brokers, b)
	}
	return ours, theirs
}

func TestFetchResponseIsByteForByteWhatKmsgEncodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ours, theirs := genFetch(t)
		for v := int16(4); v <= 17; v++ {
			theirs.SetVersion(v)
			theirs.Brokers = nil
			if v >= 16 {
				theirs.Brokers = ours.Brokers
			}
			want := theirs.AppendTo([]byte("head"))
			chunks, _ := ours.AppendChunks(nil, []byte("head"), v)
			if got := join(t, chunks); !bytes.Equal(got, want) {
				t.Fatalf("v%d:\n got %x\nwant %x", v, got, want)
			}
			if n := ours.Size(v); n != len(want)-4 {
				t.Fatalf("v%d: Size says %d, is %d", v, n, len(want)-4)
			}
		}
	})
}

func TestFetchResponseEncodesIntoTheGivenBuffer(t *testing.T) {
	r := &FetchResponse{Topics: []FetchTopic{{Topic: "t", Partitions: []FetchPartition{NewFetchPartition(0)}}}}
	r.Topics[0].Partitions[0].Records = Chunk{File: bytes.NewReader(make([]byte, 100)), Len: 100}
	buf, chunks := make([]byte, 0, 1024), make([]Chunk, 0, 8)
	if n := testing.AllocsPerRun(100, func() { r.AppendChunks(chunks, buf, 12) }); n != 0 {
		t.Errorf("%v allocations an encoding, want 0", n)
	}
}
