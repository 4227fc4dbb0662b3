package brokertest

import (
	"bytes"
	bin "encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// packed is a batch of count records with this payload, which need not be one.
func packed(t testing.TB, codec recordbatch.Codec, count int, payload []byte) []byte {
	b := append(batch(t, "a")[:recordbatch.HeaderSize:recordbatch.HeaderSize], payload...)
	bin.BigEndian.PutUint32(b[8:], uint32(len(b)-recordbatch.LogOverhead))
	return forged(b, func(b recordbatch.Batch) {
		b[22] = byte(codec)
		bin.BigEndian.PutUint32(b[23:], uint32(count-1))
		bin.BigEndian.PutUint32(b[57:], uint32(count))
	})
}

// body is the plain payload of n records.
func body(t testing.TB, n int) []byte {
	values := make([]string, n)
	for i := range values {
		values[i] = strings.Repeat("some value ", 20)
	}
	return batch(t, values...).Payload()
}

func gzipped(p []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

func lz4Frame(t testing.TB, p []byte, options ...lz4.Option) []byte {
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	if err := w.Apply(append([]lz4.Option{lz4.ChecksumOption(false)}, options...)...); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

func zstdFrame(t testing.TB, p []byte, options ...zstd.EOption) []byte {
	e, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(p, nil)
}

// varints encodes numbers as records have them.
func varints(ns ...int64) (out []byte) {
	for _, n := range ns {
		u := uint64(n<<1) ^ uint64(n>>63)
		for ; u >= 0x80; u >>= 7 {
			out = append(out, byte(u)|0x80)
		}
		out = append(out, byte(u))
	}
	return out
}

// withLength puts the length before a record's bytes.
func withLength(rec []byte) []byte { return append(varints(int64(len(rec))), rec...) }

// record is one with the given fields: attributes, times and offset, then these.
func record(fields ...int64) []byte { return append([]byte{0, 0, 0}, varints(fields...)...) }

type oddBatch struct {
	name  string
	bytes []byte
	ours  *kerr.Error
	kafka *kerr.Error
}

func same(name string, b []byte, want *kerr.Error) oddBatch { return oddBatch{name, b, want, want} }

func tryBatches(t *testing.T, b *target, list []oddBatch) {
	topic := b.topic(t, 1)
	w := b.dial(t)
	for _, c := range list {
		p := produce(w, topic.name, c.bytes)
		wantCode(t, c.name, p.ErrorCode, pick(b, c.ours, c.kafka))
		if p.ErrorCode != 0 && p.BaseOffset != -1 {
			t.Errorf("%s: offset %d", c.name, p.BaseOffset)
		}
	}
	// Whatever was taken, everything can be read to the end.
	end := produce(w, topic.name, batch(t, "last")).BaseOffset
	for at := int64(0); at <= end; {
		for _, got := range batchesOf(t, fetchOne(w, topic.name, at).RecordBatches) {
			if err := recordbatch.Records(got, func(recordbatch.Record) error { return nil }); err != nil && !b.kafka {
				t.Errorf("stored at %d: %v", got.BaseOffset(), err)
			}
			at = got.NextOffset()
		}
	}
}

var batchCases = []blackBoxCase{
	{"batch/attributes that no client may set", func(t *testing.T, b *target) {
		attr := func(v uint16) []byte {
			return forged(batch(t, "a"), func(b recordbatch.Batch) { bin.BigEndian.PutUint16(b[21:], v) })
		}
		list := []oddBatch{
			{"the cleaner's delete horizon", attr(1 << 6), kerr.InvalidRecord, nil},
			{"bit 7", attr(1 << 7), kerr.InvalidRecord, nil},
			{"bit 15", attr(1 << 15), kerr.InvalidRecord, nil},
			same("a marker", attr(1<<5), kerr.InvalidRecord),
			{"the broker's time", attr(1 << 3), kerr.InvalidTimestamp, nil},
		}
		for c := uint16(5); c < 8; c++ {
			list = append(list, oddBatch{fmt.Sprint("codec ", c), attr(c), kerr.UnsupportedCompressionType, kerr.UnknownServerError})
		}
		tryBatches(t, b, list)
	}},
	{"batch/what stands behind the batch", func(t *testing.T, b *target) {
		behind := func(more []byte) []byte { return append([]byte(batch(t, "a")), more...) }
		small := make([]byte, 13)
		bin.BigEndian.PutUint32(small[8:], 13)
		magic := make([]byte, 80)
		bin.BigEndian.PutUint32(magic[8:], 60)
		magic[16] = 3
		old := bytes.Clone(magic)
		old[16] = 1
		tryBatches(t, b, []oddBatch{
			same("a part of a length", behind(make([]byte, 11)), nil),
			same("a part of a batch", behind(batch(t, "b")[:30]), nil),
			same("all of a batch but a byte", behind(batch(t, "b")[:len(batch(t, "b"))-1]), nil),
			same("a length below any batch's", behind(small), kerr.CorruptMessage),
			same("an unknown format", behind(magic), kerr.CorruptMessage),
			same("an old format", behind(old), kerr.InvalidRecord),
			same("a whole batch", behind(batch(t, "b")), kerr.InvalidRecord),
			same("two whole batches", behind(append(batch(t, "b"), batch(t, "c")...)), kerr.InvalidRecord),
			same("a cut batch alone", batch(t, "a")[:40], kerr.InvalidRecord),
		})
	}},
	{"batch/records that are not", func(t *testing.T, b *target) {
		huge := []byte{0xff, 0xff, 0xff, 0xff, 0x0f} // -2^31
		wide := []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}
		long := append(bytes.Repeat([]byte{0x80}, 10), 0)
		list := []oddBatch{
			same("a good one", packed(t, 0, 1, withLength(record(-1, -1, 0))), nil),
			same("lengths below -1", packed(t, 0, 1, withLength(record(-2, -5, 0))), nil),
			same("a header without a value", packed(t, 0, 1, withLength(record(-1, -1, 1, 0, -1))), nil),
			same("a header without a key", packed(t, 0, 1, withLength(record(-1, -1, 1, -1, -1))), kerr.InvalidRecord),
			same("a negative header count", packed(t, 0, 1, withLength(record(-1, -1, -1))), kerr.InvalidRecord),
			same("too many headers", packed(t, 0, 1, withLength(record(-1, -1, math.MaxInt32))), kerr.InvalidRecord),
			same("one header too many", packed(t, 0, 1, withLength(record(-1, -1, 2, 0, -1))), kerr.InvalidRecord),
			same("bytes behind the headers", packed(t, 0, 1, withLength(append(record(-1, -1, 0), 0))), kerr.InvalidRecord),
			same("a key longer than the record", packed(t, 0, 1, withLength(record(100, -1, 0))), kerr.InvalidRecord),
			same("a length of 0", packed(t, 0, 1, []byte{0}), kerr.InvalidRecord),
			same("a negative length", packed(t, 0, 1, append(varints(-7), record(-1, -1, 0)...)), kerr.InvalidRecord),
			same("a length too long", packed(t, 0, 1, append(varints(7), record(-1, -1, 0)...)), kerr.InvalidRecord),
			same("a length too short", packed(t, 0, 1, append(varints(5), record(-1, -1, 0)...)), kerr.InvalidRecord),
			same("the longest length", packed(t, 0, 1, append(varints(math.MaxInt32), record(-1, -1, 0)...)), kerr.InvalidRecord),
			same("the least length", packed(t, 0, 1, append(huge, record(-1, -1, 0)...)), kerr.InvalidRecord),
			same("no records", packed(t, 0, 1, nil), kerr.InvalidRecord),
			same("bytes behind the records", packed(t, 0, 1, append(withLength(record(-1, -1, 0)), 0)), kerr.InvalidRecord),
			same("an offset in too many bytes", packed(t, 0, 1, withLength(append(append([]byte{0, 0}, wide...), 1, 1, 0))), kerr.InvalidRecord),
			same("a time in too many bytes", packed(t, 0, 1, withLength(append(append([]byte{0}, long...), 0, 1, 1, 0))), kerr.InvalidRecord),
			same("attributes of a record", packed(t, 0, 1, withLength([]byte{0x0f, 0, 0, 1, 1, 0})), nil),
		}
		for _, c := range list {
			at := recordbatch.Batch(c.bytes)
			z := oddBatch{c.name + ", gzipped", packed(t, recordbatch.CodecGzip, int(at.Count()), gzipped(at.Payload())), c.ours, c.kafka}
			if c.name == "a length too long" || c.name == "a length too short" {
				z.kafka = nil // it does not hold the length against what it reads
			}
			list = append(list, z)
		}
		tryBatches(t, b, list)
	}},
	{"batch/gzip of every kind", func(t *testing.T, b *target) {
		p := body(t, 4)
		z := gzipped(p)
		two := append(gzipped(p[:100]), gzipped(p[100:])...)
		tryBatches(t, b, []oddBatch{
			same("one member", packed(t, 1, 4, z), nil),
			same("two members", packed(t, 1, 4, two), nil),
			{"rubbish behind it", packed(t, 1, 4, append(bytes.Clone(z), "rubbish rubbish rubbish rubbish"...)), kerr.InvalidRecord, nil},
			{"cut", packed(t, 1, 4, z[:len(z)-9]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a wrong checksum", packed(t, 1, 4, append(bytes.Clone(z[:len(z)-8]), 0, 0, 0, 0, 0, 0, 0, 0)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"not gzip", packed(t, 1, 4, p), kerr.InvalidRecord, kerr.UnknownServerError},
			{"nothing", packed(t, 1, 4, nil), kerr.InvalidRecord, kerr.UnknownServerError},
		})
	}},
	{"batch/snappy of every kind", func(t *testing.T, b *target) {
		p := body(t, 40)
		o := recordbatch.NoProducer()
		o.Codec = recordbatch.CodecSnappy
		framed := build(t, o, records(strings.Repeat("x", 70_000))).Payload()
		raw := snappy.Encode(nil, p)
		tryBatches(t, b, []oddBatch{
			same("xerial's framing", packed(t, 2, 1, framed), nil),
			same("a raw block", packed(t, 2, 40, raw), nil),
			{"S2", packed(t, 2, 40, s2.EncodeBest(nil, p)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a frame cut in a block", packed(t, 2, 1, framed[:len(framed)-3]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a frame cut in a length", packed(t, 2, 1, append(bytes.Clone(framed), 0, 0)), kerr.InvalidRecord, nil},
			{"a header alone", packed(t, 2, 1, framed[:16]), kerr.InvalidRecord, kerr.InvalidRecord},
			{"a cut header", packed(t, 2, 1, framed[:11]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a raw block cut", packed(t, 2, 40, raw[:len(raw)-3]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a raw block that claims 2 GB", packed(t, 2, 40, []byte{0xff, 0xff, 0xff, 0xff, 7, 0, 0}), kerr.InvalidRecord, kerr.UnknownServerError},
			{"nothing", packed(t, 2, 1, nil), kerr.InvalidRecord, kerr.UnknownServerError},
		})
	}},
	{"batch/lz4 of every kind", func(t *testing.T, b *target) {
		p := body(t, 400)
		size := lz4.SizeOption(uint64(len(p)))
		full := lz4Frame(t, p, lz4.ChecksumOption(true), lz4.BlockChecksumOption(true), size, lz4.BlockSizeOption(lz4.Block4Mb))
		z := lz4Frame(t, p, lz4.BlockSizeOption(lz4.Block64Kb))
		change := func(src []byte, at int, x byte) []byte { c := bytes.Clone(src); c[at] ^= x; return c }
		tryBatches(t, b, []oddBatch{
			same("independent blocks", packed(t, 3, 400, z), nil),
			same("all checksums, the size, blocks of 4 MB", packed(t, 3, 400, full), nil),
			{"linked blocks", packed(t, 3, 400, linkedLZ4(p)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"two frames", packed(t, 3, 400, append(lz4Frame(t, p[:1000]), lz4Frame(t, p[1000:])...)), kerr.InvalidRecord, kerr.InvalidRecord},
			{"a frame and rubbish", packed(t, 3, 400, append(bytes.Clone(z), "rubbish"...)), kerr.InvalidRecord, nil},
			{"a skippable frame first", packed(t, 3, 400, append([]byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 7}, z...)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a wrong sum of the header", packed(t, 3, 400, change(z, 6, 1)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a wrong sum of the content", packed(t, 3, 400, change(full, len(full)-1, 1)), kerr.InvalidRecord, nil},
			{"a wrong sum of a block", packed(t, 3, 400, change(full, len(full)-9, 1)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"no end mark", packed(t, 3, 400, z[:len(z)-4]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"cut in a block", packed(t, 3, 400, z[:len(z)-9]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a dictionary", packed(t, 3, 400, change(z, 4, 1)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"not lz4", packed(t, 3, 400, p), kerr.InvalidRecord, kerr.UnknownServerError},
			{"nothing", packed(t, 3, 400, nil), kerr.InvalidRecord, kerr.UnknownServerError},
		})
	}},
	{"batch/zstd of every kind", func(t *testing.T, b *target) {
		p := body(t, 400)
		z := zstdFrame(t, p)
		skip := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
		sum := zstdFrame(t, p, zstd.WithEncoderCRC(true))
		sum[len(sum)-1] ^= 1
		dict := zstdFrame(t, p, zstd.WithEncoderDictRaw(77, bytes.Repeat([]byte("some value "), 20)))
		window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x01, 0x00, 0x00} // 2 TB
		tryBatches(t, b, []oddBatch{
			same("one frame", packed(t, 4, 400, z), nil),
			same("two frames", packed(t, 4, 400, append(zstdFrame(t, p[:999]), zstdFrame(t, p[999:])...)), nil),
			same("a skippable frame first", packed(t, 4, 400, append(bytes.Clone(skip), z...)), nil),
			same("a skippable frame last", packed(t, 4, 400, append(bytes.Clone(z), skip...)), nil),
			{"a skippable frame alone", packed(t, 4, 400, skip), kerr.InvalidRecord, kerr.InvalidRecord},
			{"a frame and rubbish", packed(t, 4, 400, append(bytes.Clone(z), "rubbish"...)), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a dictionary", packed(t, 4, 400, dict), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a wrong checksum", packed(t, 4, 400, sum), kerr.InvalidRecord, kerr.UnknownServerError},
			{"cut", packed(t, 4, 400, z[:len(z)-9]), kerr.InvalidRecord, kerr.UnknownServerError},
			{"a window of 2 TB", packed(t, 4, 400, window), kerr.InvalidRecord, kerr.UnknownServerError},
			{"not zstd", packed(t, 4, 400, p), kerr.InvalidRecord, kerr.UnknownServerError},
			{"nothing", packed(t, 4, 400, nil), kerr.InvalidRecord, kerr.InvalidRecord},
		})
	}},
	{"batch/bad records are named from v8 on", func(t *testing.T, b *target) {
		compacted := b.topic(t, 1, "cleanup.policy=compact,delete")
		bounded := b.topic(t, 1, "message.timestamp.before.max.ms=60000", "message.timestamp.after.max.ms=60000")
		both := b.topic(t, 1, "cleanup.policy=compact", "message.timestamp.before.max.ms=60000")
		w := b.dial(t)
		now := time.Now().UnixMilli()
		for _, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip, recordbatch.CodecZstd} {
			o := recordbatch.NoProducer()
			o.Codec = codec
			recs := records("a", "b", "c", "d")
			recs[1].Key, recs[3].Key = nil, nil
			late := records("a", "b", "c", "d")
			late[0].Timestamp, late[2].Timestamp = now-120_000, now+120_000
			mixed := records("a", "b", "c", "d")
			mixed[0].Key, mixed[3].Timestamp = nil, now-120_000
			for _, c := range []struct {
				topic string
				recs  []recordbatch.Record
				want  *kerr.Error
				bad   []int32
			}{
				{compacted.name, recs, kerr.InvalidRecord, []int32{1, 3}},
				{bounded.name, late, kerr.InvalidTimestamp, []int32{0, 2}},
				{both.name, mixed, kerr.InvalidTimestamp, []int32{0, 3}},
			} {
				for _, v := range []int16{7, 8, 9, 11} {
					p := ask[*kmsg.ProduceResponse](w, at(produceOf(c.topic, -1, build(t, o, c.recs)), v)).Topics[0].Partitions[0]
					wantCode(t, codec.String(), p.ErrorCode, c.want)
					if v == 7 {
						continue
					}
					if p.ErrorMessage == nil || *p.ErrorMessage == "" {
						t.Errorf("v%d: no message for the batch", v)
					}
					var bad []int32
					for _, e := range p.ErrorRecords {
						bad = append(bad, e.RelativeOffset)
						if e.ErrorMessage == nil || *e.ErrorMessage == "" {
							t.Errorf("v%d: no message for record %d", v, e.RelativeOffset)
						}
					}
					if fmt.Sprint(bad) != fmt.Sprint(c.bad) {
						t.Errorf("v%d, %s: records %v are bad, want %v", v, codec, bad, c.bad)
					}
				}
			}
		}
		mustProduce(w, compacted.name, batch(t, "a"), 0)
	}},
	{"batch/times at the bounds", func(t *testing.T, b *target) {
		w := b.dial(t)
		zero := b.topic(t, 1, "message.timestamp.after.max.ms=0", "message.timestamp.before.max.ms=3600000")
		at := func(topic madeTopic, what string, ms int64, want *kerr.Error) {
			t.Helper()
			recs := records("a")
			recs[0].Timestamp = ms
			wantCode(t, what, produce(w, topic.name, build(t, recordbatch.NoProducer(), recs)).ErrorCode, want)
		}
		now := time.Now().UnixMilli()
		at(zero, "a minute ahead where nothing may be", now+60_000, kerr.InvalidTimestamp)
		at(zero, "a minute ago", now-60_000, nil)
		at(zero, "two hours ago", now-7_200_000, kerr.InvalidTimestamp)
		at(zero, "no time", -1, nil)
		old := b.topic(t, 1, "message.timestamp.before.max.ms=0")
		at(old, "a minute ago where nothing may be", now-60_000, kerr.InvalidTimestamp)
		free := b.topic(t, 1)
		at(free, "1970", 0, nil)
		at(free, "before 1970", -86_400_000, nil)
		at(free, "the end of time", math.MaxInt64, kerr.InvalidTimestamp)
		broker := b.topic(t, 1, "message.timestamp.type=LogAppendTime", "message.timestamp.before.max.ms=1000")
		at(broker, "1970, where the broker's time counts", 0, nil)
		lied := forged(batch(t, "a"), func(b recordbatch.Batch) { b[22] |= 1 << 3 })
		wantCode(t, "the broker's time from a client, where it counts", produce(w, broker.name, lied).ErrorCode, kerr.InvalidTimestamp)
	}},
	{"batch/the largest time of the records is stored, whatever the header says", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		now := time.Now().UnixMilli()
		for i, codec := range []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecGzip, recordbatch.CodecLZ4} {
			o := recordbatch.NoProducer()
			o.Codec = codec
			recs := records("a", "b", "c")
			recs[1].Timestamp = now + 5_000
			lying := forged(build(t, o, recs), func(b recordbatch.Batch) { bin.BigEndian.PutUint64(b[35:], uint64(now+40_000)) })
			mustProduce(w, topic.name, lying, int64(3*i))
		}
		for _, got := range batchesOf(t, fetchOne(w, topic.name, 0).RecordBatches) {
			if got.MaxTimestamp() != now+5_000 || got.CRC() != got.ComputeCRC() {
				t.Errorf("%s: %d, want %d", got.Codec(), got.MaxTimestamp(), now+5_000)
			}
		}
	}},
	{"batch/the kind of time changes under a producer", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		next := int64(0)
		for _, kind := range []string{"CreateTime", "LogAppendTime", "CreateTime"} {
			alter(t, w, topic.name, "message.timestamp.type", kind)
			Await(t, 10*time.Second, kind, func() error {
				recs := records("a", "b")
				recs[0].Timestamp, recs[1].Timestamp = 1000, 2000
				p := produce(w, topic.name, build(t, recordbatch.NoProducer(), recs))
				if p.ErrorCode != 0 {
					t.Fatal(kerr.ErrorForCode(p.ErrorCode))
				}
				next = p.BaseOffset + 2
				got := batchesOf(t, fetchOne(w, topic.name, p.BaseOffset).RecordBatches)[0]
				if (p.LogAppendTime != -1) != got.IsLogAppendTime() {
					t.Errorf("answered %d, stored %v", p.LogAppendTime, got.IsLogAppendTime())
				}
				if got.IsLogAppendTime() != (kind == "LogAppendTime") {
					return fmt.Errorf("the batch has the other kind")
				}
				if !got.IsLogAppendTime() && got.MaxTimestamp() != 2000 {
					t.Errorf("the largest time is %d", got.MaxTimestamp())
				}
				return nil
			})
		}
		mustProduce(w, topic.name, batch(t, "a"), next)
	}},
	{"batch/offsets within a batch", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		w := b.dial(t)
		gaps := append(withLength([]byte{0, 0, 0, 1, 1, 0}), withLength(append([]byte{0, 0}, append(varints(9), 1, 1, 0)...))...)
		mustProduce(w, topic.name, packed(t, 0, 2, gaps), 0)
		if p := produce(w, topic.name, packed(t, recordbatch.CodecGzip, 2, gzipped(gaps))); p.ErrorCode != pick(b, 0, kerr.UnknownServerError.Code) {
			t.Errorf("compressed: %v", kerr.ErrorForCode(p.ErrorCode))
		}
		var offsets []int64
		for _, got := range batchesOf(t, fetchOne(w, topic.name, 0).RecordBatches) {
			if err := recordbatch.Records(got, func(r recordbatch.Record) error { offsets = append(offsets, r.Offset); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		// Kafka leaves uncompressed records the offsets they claim, and fails on compressed ones.
		if want := pick(b, "[0 1 2 3]", "[0 9]"); fmt.Sprint(offsets) != want {
			t.Errorf("%v, want %s", offsets, want)
		}
	}},
	{"batch/recompression: codecs, sizes, segments", func(t *testing.T, b *target) {
		w := b.dial(t)
		for _, target := range []string{"uncompressed", "gzip", "snappy", "lz4", "zstd"} {
			topic := b.topic(t, 1, "compression.type="+target, "compression.gzip.level=9", "compression.lz4.level=12", "compression.zstd.level=-5")
			for i, codec := range []recordbatch.Codec{0, 1, 2, 3, 4} {
				o := recordbatch.NoProducer()
				o.Codec = codec
				mustProduce(w, topic.name, build(t, o, records(strings.Repeat("abc", 20_000), "b")), int64(2*i))
			}
			n := 0
			for at := int64(0); at < 10; {
				for _, got := range batchesOf(t, fetchOne(w, topic.name, at).RecordBatches) {
					if name := strings.Replace(got.Codec().String(), "none", "uncompressed", 1); name != target {
						t.Errorf("%s stored as %s", target, name)
					}
					if err := recordbatch.Records(got, func(r recordbatch.Record) error { n += len(r.Value); return nil }); err != nil {
						t.Errorf("%s: %v", target, err)
					}
					at = got.NextOffset()
				}
			}
			if n != 5*60_001 {
				t.Errorf("%s: %d bytes of values", target, n)
			}
		}
		o := recordbatch.NoProducer()
		o.Codec = recordbatch.CodecZstd
		plain := b.topic(t, 1, "compression.type=uncompressed", "max.message.bytes=2500000", "segment.bytes=1048576")
		small := func(n int) []byte { return build(t, o, records(strings.Repeat("a", n))) }
		wantCode(t, "too large once unfolded", produce(w, plain.name, small(3_000_000)).ErrorCode, kerr.MessageTooLarge)
		wantCode(t, "larger than a segment once unfolded", produce(w, plain.name, small(1_500_000)).ErrorCode, kerr.RecordListTooLarge)
		wantCode(t, "larger than a segment", produce(w, plain.name, batch(t, strings.Repeat("a", 1_500_000))).ErrorCode, kerr.RecordListTooLarge)
		mustProduce(w, plain.name, small(1_000_000), 0)
	}},
}

// linkedLZ4 is a frame that says that its blocks depend on one another.
func linkedLZ4(p []byte) []byte {
	out := []byte{0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0}
	half := len(p) / 2
	for _, part := range [][]byte{p[:half], p[half:]} {
		block := make([]byte, lz4.CompressBlockBound(len(part)))
		n, _ := lz4.CompressBlock(part, block, nil)
		out = bin.LittleEndian.AppendUint32(out, uint32(n))
		out = append(out, block[:n]...)
	}
	return append(out, 0, 0, 0, 0)
}

// alter sets one setting of a topic.
func alter(t *testing.T, w *wire, topic, key, value string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = key, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp := ask[*kmsg.IncrementalAlterConfigsResponse](w, at(req, 1))
	wantCode(t, key, resp.Resources[0].ErrorCode, nil)
}
