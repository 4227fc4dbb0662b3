package brokertest

import (
	bin "encoding/binary"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// produceOf asks for one batch to be appended to partition 0.
func produceOf(topic string, acks int16, records []byte) *kmsg.ProduceRequest {
	return produceTo(acks, map[string]map[int32][]byte{topic: {0: records}})
}

func produceTo(acks int16, batches map[string]map[int32][]byte) *kmsg.ProduceRequest {
	req := at(kmsg.NewPtrProduceRequest(), 9)
	req.Acks, req.TimeoutMillis = acks, 10_000
	for topic, parts := range batches {
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = topic
		for p, records := range parts {
			rt.Partitions = append(rt.Partitions, kmsg.ProduceRequestTopicPartition{Partition: p, Records: records})
		}
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// produce appends to partition 0 with acks=all and returns that partition's answer.
func produce(w *wire, topic string, records []byte) kmsg.ProduceResponseTopicPartition {
	w.t.Helper()
	return ask[*kmsg.ProduceResponse](w, produceOf(topic, -1, records)).Topics[0].Partitions[0]
}

// mustProduce demands that the batch goes to this offset.
func mustProduce(w *wire, topic string, records []byte, offset int64) {
	w.t.Helper()
	if p := produce(w, topic, records); p.ErrorCode != 0 || p.BaseOffset != offset {
		w.t.Fatalf("produced at %d with %v, want %d", p.BaseOffset, kerr.ErrorForCode(p.ErrorCode), offset)
	}
}

// forged changes a batch's bytes and sets its checksum right again.
func forged(b recordbatch.Batch, change func(recordbatch.Batch)) []byte {
	change(b)
	bin.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

var produceCases = []blackBoxCase{
	{"Produce/v3 to v11 with acks of the leader and of all", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		next := int64(0)
		for v := int16(3); v < 12; v++ {
			for _, acks := range []int16{1, -1} {
				resp := ask[*kmsg.ProduceResponse](w, at(produceOf(topic.name, acks, batch(t, "a", "b")), v))
				if len(resp.Topics) != 1 || resp.Topics[0].Topic != topic.name || len(resp.Topics[0].Partitions) != 1 {
					t.Fatalf("v%d: %+v", v, resp)
				}
				p := resp.Topics[0].Partitions[0]
				wantCode(t, "produce", p.ErrorCode, nil)
				if p.BaseOffset != next || p.LogAppendTime != -1 || (v >= 5 && p.LogStartOffset != 0) {
					t.Errorf("v%d: %+v, want offset %d", v, p, next)
				}
				next += 2
			}
		}
	}},
	{"Produce/acks=0 has no reply", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		w.send(produceOf(topic.name, 0, batch(t, "a")))
		mustProduce(w, topic.name, batch(t, "b"), 1) // the first thing heard is of the second request
	}},
	{"Produce/a failure with acks=0 ends the connection", func(t *testing.T, b *target) {
		w := b.dial(t)
		w.send(produceOf(b.name("absent"), 0, batch(t, "a")))
		w.closed()
	}},
	{"Produce/other acks are refused", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		for _, acks := range []int16{2, -2, 100} {
			p := ask[*kmsg.ProduceResponse](w, produceOf(topic.name, acks, batch(t, "a"))).Topics[0].Partitions[0]
			wantCode(t, "acks", p.ErrorCode, kerr.InvalidRequiredAcks)
			if p.BaseOffset != -1 {
				t.Errorf("acks %d: offset %d", acks, p.BaseOffset)
			}
		}
		mustProduce(w, topic.name, batch(t, "a"), 0)
	}},
	{"Produce/bad batches are refused and leave nothing", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		set16 := func(at int, v uint16) func(recordbatch.Batch) {
			return func(b recordbatch.Batch) { bin.BigEndian.PutUint16(b[at:], v) }
		}
		set32 := func(at int, v uint32) func(recordbatch.Batch) {
			return func(b recordbatch.Batch) { bin.BigEndian.PutUint32(b[at:], v) }
		}
		flipped := batch(t, "a")
		flipped[len(flipped)-2] ^= 1
		for _, c := range []struct {
			name  string
			bytes []byte
			want  *kerr.Error
		}{
			{"a flipped bit", flipped, kerr.CorruptMessage},
			{"a wrong checksum", func() []byte { b := batch(t, "a"); b[17] ^= 1; return b }(), kerr.CorruptMessage},
			{"magic 1", func() []byte { b := batch(t, "a"); b[16] = 1; return b }(), kerr.InvalidRecord},
			{"magic 0", func() []byte { b := batch(t, "a"); b[16] = 0; return b }(), kerr.InvalidRecord},
			{"no batch", nil, kerr.InvalidRecord},
			{"an empty batch", []byte{}, kerr.InvalidRecord},
			{"two batches", append(batch(t, "a"), batch(t, "b")...), kerr.InvalidRecord},
			{"a count too high", forged(batch(t, "a", "b"), set32(57, 3)), kerr.InvalidRecord},
			{"a count too low", forged(batch(t, "a", "b"), set32(57, 1)), kerr.InvalidRecord},
			{"a count of 0", forged(batch(t, "a", "b"), set32(57, 0)), kerr.InvalidRecord},
			{"a negative count", forged(batch(t, "a"), set32(57, math.MaxUint32)), kerr.InvalidRecord},
			{"a last offset too high", forged(batch(t, "a", "b"), set32(23, 7)), kerr.InvalidRecord},
			{"a negative last offset", forged(batch(t, "a", "b"), set32(23, math.MaxUint32)), kerr.InvalidRecord},
			{"count and last offset too high alike", forged(batch(t, "a", "b"), func(b recordbatch.Batch) { set32(57, 3)(b); set32(23, 2)(b) }), kerr.InvalidRecord},
			{"a control batch", forged(batch(t, "a"), set16(21, 0x20)), kerr.InvalidRecord},
			{"the broker's time in a producer's batch", forged(batch(t, "a"), set16(21, 0x08)), kerr.InvalidTimestamp},
			{"an unknown codec", forged(batch(t, "a"), set16(21, 0x07)), pick(b, kerr.UnsupportedCompressionType, kerr.UnknownServerError)},
			{"a base offset", func() []byte { b := batch(t, "a"); b.SetBaseOffset(5); return b }(), kerr.InvalidRecord},
			{"a producer without a sequence", forged(batch(t, "a"), func(b recordbatch.Batch) { bin.BigEndian.PutUint64(b[43:], 7) }), kerr.InvalidRecord},
		} {
			if b.kafka && (c.bytes == nil || c.want == kerr.InvalidTimestamp) {
				continue // Kafka never answers the one and takes the other
			}
			p := produce(w, topic.name, c.bytes)
			wantCode(t, c.name, p.ErrorCode, c.want)
			if p.BaseOffset != -1 {
				t.Errorf("%s: offset %d", c.name, p.BaseOffset)
			}
		}
		mustProduce(w, topic.name, batch(t, "a"), 0)
	}},
	{"Produce/batches above max.message.bytes", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "max.message.bytes=200")
		w := b.dial(t)
		wantCode(t, "301 bytes", produce(w, topic.name, batch(t, string(make([]byte, 240)))).ErrorCode, kerr.MessageTooLarge)
		exact := batch(t, string(make([]byte, 200)))
		exact = batch(t, string(make([]byte, 200-(len(exact)-200))))
		if len(exact) != 200 {
			t.Fatalf("%d bytes", len(exact))
		}
		mustProduce(w, topic.name, exact, 0)
	}},
	{"Produce/compacted topics take no record without a key", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "cleanup.policy=compact")
		w := b.dial(t)
		recs := records("a", "b", "c")
		recs[1].Key = nil
		p := ask[*kmsg.ProduceResponse](w, produceOf(topic.name, -1, build(t, recordbatch.NoProducer(), recs))).Topics[0].Partitions[0]
		wantCode(t, "a null key", p.ErrorCode, kerr.InvalidRecord)
		if len(p.ErrorRecords) != 1 || p.ErrorRecords[0].RelativeOffset != 1 {
			t.Errorf("the record at fault is not named: %+v", p.ErrorRecords)
		}
		o := recordbatch.NoProducer()
		o.Codec = recordbatch.CodecGzip
		wantCode(t, "a null key in a compressed batch", produce(w, topic.name, build(t, o, recs)).ErrorCode, kerr.InvalidRecord)
		recs[1].Key = []byte{}
		mustProduce(w, topic.name, build(t, o, recs), 0)
	}},
	{"Produce/times out of bounds", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "message.timestamp.before.max.ms=60000", "message.timestamp.after.max.ms=60000")
		w := b.dial(t)
		for _, c := range []struct {
			age  time.Duration
			want *kerr.Error
		}{{2 * time.Minute, kerr.InvalidTimestamp}, {-2 * time.Minute, kerr.InvalidTimestamp}, {30 * time.Second, nil}, {-30 * time.Second, nil}} {
			recs := records("a", "b")
			recs[1].Timestamp = time.Now().Add(-c.age).UnixMilli()
			wantCode(t, c.age.String(), produce(w, topic.name, build(t, recordbatch.NoProducer(), recs)).ErrorCode, c.want)
		}
		recs := records("a")
		recs[0].Timestamp = -1
		old := b.topic(t, 1)
		mustProduce(w, old.name, build(t, recordbatch.NoProducer(), recs), 0)
		recs[0].Timestamp = time.Now().Add(2 * time.Hour).UnixMilli()
		wantCode(t, "two hours ahead by default", produce(w, old.name, build(t, recordbatch.NoProducer(), recs)).ErrorCode, kerr.InvalidTimestamp)
	}},
	{"Produce/LogAppendTime stamps the batch", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "message.timestamp.type=LogAppendTime")
		w := b.dial(t)
		recs := records("a", "b")
		recs[0].Timestamp, recs[1].Timestamp = 1000, 2000
		before := time.Now().UnixMilli()
		p := produce(w, topic.name, build(t, recordbatch.NoProducer(), recs))
		wantCode(t, "produce", p.ErrorCode, nil)
		if p.LogAppendTime < before {
			t.Errorf("append time %d before %d", p.LogAppendTime, before)
		}
		got := batchesOf(t, fetchOne(w, topic.name, 0).RecordBatches)
		if len(got) != 1 || !got[0].IsLogAppendTime() || got[0].MaxTimestamp() != p.LogAppendTime || got[0].ComputeCRC() != got[0].CRC() {
			t.Errorf("stored %+v", got)
		}
		if got[0].FirstTimestamp() != 1000 {
			t.Errorf("the first time became %d", got[0].FirstTimestamp())
		}
	}},
	{"Produce/unknown topics and partitions fail alone", func(t *testing.T, b *target) {
		good, absent := b.topic(t, 2), b.name("absent")
		w := b.dial(t)
		bad := batch(t, "a")
		bad[len(bad)-1] ^= 1
		resp := ask[*kmsg.ProduceResponse](w, produceTo(-1, map[string]map[int32][]byte{
			good.name: {0: batch(t, "a"), 1: bad, 2: batch(t, "a"), -1: batch(t, "a")},
			absent:    {0: batch(t, "a")},
		}))
		for _, rt := range resp.Topics {
			for _, p := range rt.Partitions {
				var want *kerr.Error
				switch {
				case rt.Topic == absent || p.Partition == 2 || p.Partition == -1:
					want = kerr.UnknownTopicOrPartition
				case p.Partition == 1:
					want = kerr.CorruptMessage
				}
				wantCode(t, rt.Topic, p.ErrorCode, want)
				if (p.ErrorCode == 0) != (p.BaseOffset == 0) {
					t.Errorf("%s-%d: offset %d", rt.Topic, p.Partition, p.BaseOffset)
				}
			}
		}
	}},
	{"Produce/a recompressing topic stores its own codec", func(t *testing.T, b *target) {
		topic := b.topic(t, 1, "compression.type=lz4")
		w := b.dial(t)
		for i, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip, recordbatch.CodecZstd, recordbatch.CodecSnappy, recordbatch.CodecLZ4} {
			o := recordbatch.NoProducer()
			o.Codec = codec
			mustProduce(w, topic.name, build(t, o, records("a", "b")), int64(2*i))
		}
		for _, got := range batchesOf(t, fetchOne(w, topic.name, 0).RecordBatches) {
			if got.Codec() != recordbatch.CodecLZ4 || got.Count() != 2 {
				t.Errorf("codec %v with %d records", got.Codec(), got.Count())
			}
		}
	}},
	{"Produce/zstd needs v7", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		o := recordbatch.NoProducer()
		o.Codec = recordbatch.CodecZstd
		p := ask[*kmsg.ProduceResponse](w, at(produceOf(topic.name, -1, build(t, o, records("a"))), 6)).Topics[0].Partitions[0]
		wantCode(t, "v6", p.ErrorCode, kerr.UnsupportedCompressionType)
		mustProduce(w, topic.name, build(t, o, records("a")), 0)
	}},
}

// idempotent is a producer that sets its own numbers.
type idempotent struct {
	w     *wire
	topic string
	id    int64
	epoch int16
}

func newIdempotent(t *testing.T, b *target, topic string) *idempotent {
	w := b.dial(t)
	var resp *kmsg.InitProducerIDResponse
	Await(t, 10*time.Second, "a producer id", func() error { // Kafka says "loading" while it gets its next block of them
		resp = ask[*kmsg.InitProducerIDResponse](w, at(kmsg.NewPtrInitProducerIDRequest(), 4))
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	return &idempotent{w, topic, resp.ProducerID, resp.ProducerEpoch}
}

func (p *idempotent) batch(seq int32, values ...string) []byte {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = p.id, p.epoch, seq
	return build(p.w.t, o, records(values...))
}

// try produces and checks the answer: offset -1 means that want is an error.
func (p *idempotent) try(what string, seq int32, n int, want *kerr.Error, offset int64) {
	p.w.t.Helper()
	got := produce(p.w, p.topic, p.batch(seq, make([]string, n)...))
	wantCode(p.w.t, what, got.ErrorCode, want)
	if want == nil && got.BaseOffset != offset {
		p.w.t.Errorf("%s: offset %d, want %d", what, got.BaseOffset, offset)
	}
}

var idempotenceCases = []blackBoxCase{
	{"idempotence/a repeated batch is answered with its first offset", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		for i := range int32(7) {
			p.try("first time", 2*i, 2, nil, int64(2*i))
		}
		for i := int32(2); i < 7; i++ {
			p.try("again", 2*i, 2, nil, int64(2*i))
		}
		p.try("older than the last five", 0, 2, kerr.OutOfOrderSequenceNumber, -1)
		p.try("a part of a batch", 12, 1, kerr.OutOfOrderSequenceNumber, -1)
		p.try("more than the batch", 12, 3, kerr.OutOfOrderSequenceNumber, -1)
		p.try("the next", 14, 1, nil, 14)
	}},
	{"idempotence/five in flight on a connection that is cut are sent again", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		for i := range int32(5) {
			p.w.send(produceOf(topic.name, -1, p.batch(i, "x")))
		}
		if _, err := p.w.body(); err != nil { // the first is answered: the rest may be in the log or not
			t.Fatal(err)
		}
		p.w.Close()
		p.w = b.dial(t)
		for i := range int32(5) {
			p.w.send(produceOf(topic.name, -1, p.batch(i, "x")))
		}
		for i := range int64(5) {
			resp, err := p.w.receive(produceOf(topic.name, -1, nil))
			if err != nil {
				t.Fatal(err)
			}
			got := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 || got.BaseOffset != i {
				t.Errorf("batch %d: offset %d, %v", i, got.BaseOffset, kerr.ErrorForCode(got.ErrorCode))
			}
		}
	}},
	{"idempotence/gaps are out of order", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		p.try("first", 0, 2, nil, 0)
		p.try("gap", 3, 1, kerr.OutOfOrderSequenceNumber, -1)
		p.try("far behind", 1, 5, kerr.OutOfOrderSequenceNumber, -1)
		p.try("next", 2, 1, nil, 2)
	}},
	{"idempotence/epochs", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		p.epoch = 4
		p.try("epoch 4", 0, 1, nil, 0)
		p.epoch = 5
		p.try("a new epoch not from 0", 1, 1, kerr.OutOfOrderSequenceNumber, -1)
		p.try("a new epoch from 0", 0, 1, nil, 1)
		p.epoch = 4
		p.try("the old epoch", 1, 1, kerr.InvalidProducerEpoch, -1)
		p.try("a duplicate of the old epoch", 0, 1, kerr.InvalidProducerEpoch, -1)
		p.epoch = 5
		p.try("the new epoch goes on", 1, 1, nil, 2)
	}},
	{"idempotence/a producer unknown to the partition starts anywhere", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		p.try("from 17", 17, 1, nil, 0)
		p.try("18", 18, 1, nil, 1)
	}},
	{"idempotence/sequence numbers wrap", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newIdempotent(t, b, topic.name)
		p.try("to the end", math.MaxInt32-1, 2, nil, 0)
		p.try("from 0", 0, 2, nil, 2)
		p.try("the first again", math.MaxInt32-1, 2, nil, 0)
		q := newIdempotent(t, b, topic.name)
		q.try("across the end", math.MaxInt32-1, 4, nil, 4) // ends at 1
		q.try("goes on at 2", 2, 1, nil, 8)
		q.try("again", math.MaxInt32-1, 4, nil, 4)
	}},
}
