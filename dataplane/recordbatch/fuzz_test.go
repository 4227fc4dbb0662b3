package recordbatch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var kgoCodecs = map[Codec]kgo.CompressionCodec{
	CodecGzip: kgo.GzipCompression(), CodecSnappy: kgo.SnappyCompression(), CodecLZ4: kgo.Lz4Compression(), CodecZstd: kgo.ZstdCompression(),
}

// foreign is a batch whose payload franz-go has compressed.
func foreign(t testing.TB, c Codec, recs []Record) Batch {
	t.Helper()
	b := build(t, NoProducer(), recs)
	if c == CodecNone {
		return b
	}
	z, err := kgo.DefaultCompressor(kgoCodecs[c])
	if err != nil {
		t.Fatal(err)
	}
	p, _ := z.Compress(new(bytes.Buffer), b.Payload())
	return withPayload(b, c, p)
}

func withPayload(b Batch, c Codec, payload []byte) Batch {
	out := append(bytes.Clone(b[:HeaderSize]), payload...)
	Batch(out).seal(c)
	return out
}

// readByFranz is what a consumer of another make gets of a batch, as text.
func readByFranz(b Batch) ([]string, error) {
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: math.MinInt64},
		&kmsg.FetchResponseTopicPartition{RecordBatches: b, HighWatermark: math.MaxInt64}, kgo.DefaultDecompressor(), nil)
	var out []string
	for _, r := range fp.Records {
		hs := make([]Header, 0, len(r.Headers))
		for _, h := range r.Headers {
			hs = append(hs, Header{h.Key, h.Value})
		}
		out = append(out, show(Record{r.Offset, r.Timestamp.UnixNano(), r.Key, r.Value, hs}))
	}
	return out, fp.Err
}

func readByUs(b Batch) (out []string, err error) {
	err = Records(b, func(r Record) error { out = append(out, show(r)); return nil })
	return out, err
}

func show(r Record) string {
	s := fmt.Sprintf("%d %d %q/%v %q/%v", r.Offset, r.Timestamp, r.Key, r.Key == nil, r.Value, r.Value == nil)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %q=%q/%v", h.Key, h.Value, h.Value == nil)
	}
	return s
}

func sameLines(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func seedBatches(f *testing.F) {
	for _, c := range codecs {
		f.Add([]byte(build(f, withCodec(c), sample(20, 40))))
		f.Add([]byte(foreign(f, c, sample(20, 40))))
		f.Add([]byte(foreign(f, c, sample(3, 90_000))))
	}
	f.Add([]byte(gappy(f, 0, 5, 2)))
}

// gappy has records at these inner offsets.
func gappy(t testing.TB, deltas ...int32) Batch {
	var p []byte
	for _, d := range deltas {
		p = appendRecord(p, &Record{Key: []byte("k")}, int64(d), d)
	}
	b, err := assemble(NoProducer(), int32(len(deltas)), 100, 105, p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzSplit: what Next, PeekLength and Split say of any bytes agrees, and adds up.
func FuzzSplit(f *testing.F) {
	seedBatches(f)
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		var end error
		for b, err := range Split(in) {
			if end = err; err != nil {
				break
			}
			if k, err := PeekLength(in[n:]); err != nil || k != len(b) || k < HeaderSize || k != b.Length() {
				t.Fatalf("at %d: %d bytes, peeked %d, %v", n, len(b), k, err)
			}
			n += len(b)
		}
		if end == nil && n != len(in) || n > len(in) {
			t.Fatalf("%d of %d bytes, %v", n, len(in), end)
		}
		if end != nil && !errors.Is(end, ErrShort) && !errors.Is(end, ErrCorrupt) && !errors.Is(end, ErrMagic) {
			t.Fatal(end)
		}
	})
}

// FuzzPayload: records that are let in are those that everybody reads, in any codec.
func FuzzPayload(f *testing.F) {
	for _, c := range codecs {
		f.Add(byte(c), uint16(20), []byte(build(f, withCodec(c), sample(20, 40)).Payload()))
		f.Add(byte(c), uint16(3), []byte(foreign(f, c, sample(3, 9000)).Payload()))
	}
	header := build(f, NoProducer(), sample(1, 1))
	f.Fuzz(func(t *testing.T, codec byte, count uint16, payload []byte) {
		b := withPayload(header, Codec(codec&7), payload)
		be.PutUint32(b[offCount:], uint32(count))
		be.PutUint32(b[offLastOffsetDelta:], uint32(count)-1)
		b.resetCRC()
		accept(t, b, ValidateOptions{MaxDecompressed: 4 << 20})
	})
}

// FuzzPrepare: the whole of a produce request's records field, with any topic's settings.
func FuzzPrepare(f *testing.F) {
	for _, c := range codecs {
		b := build(f, withCodec(c), sample(20, 40))
		for target := byte(0); target < 6; target++ {
			f.Add([]byte(b), target, target, target%2 == 0)
		}
	}
	f.Add([]byte(gappy(f, 0, 5, 2)), byte(3), byte(0), false)
	f.Fuzz(func(t *testing.T, in []byte, target, level byte, stamp bool) {
		in = bytes.Clone(in)
		if b, _, err := Next(in); err == nil && b != nil {
			b.SetBaseOffset(0)
			b.resetCRC()
		}
		o := ValidateOptions{MaxDecompressed: 4 << 20, LogAppendTime: stamp, NowMs: 1 << 40}
		if target%6 < 5 {
			o.Recompress, o.Codec, o.Level = true, Codec(target%6), int(level%20)-2
		}
		accept(t, in, o)
	})
}

// accept prepares a batch and, where it is taken, holds what comes of it against what
// went in and against what franz-go reads.
func accept(t *testing.T, in []byte, o ValidateOptions) {
	t.Helper()
	before, _ := only(bytes.Clone(in))
	b, info, err := Prepare(in, o)
	if err != nil {
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Kerr == nil {
			t.Fatalf("an error without a code: %v", err)
		}
		return
	}
	defer info.Recycle()
	if b.CRC() != b.ComputeCRC() || b.Length() != len(b) || b.Count() != info.Records || b.LastOffsetDelta()+1 != info.Records || b.MaxTimestamp() != info.MaxTimestamp {
		t.Fatalf("header of what was taken: %+v", info)
	}
	if o.Recompress && b.Codec() != o.Codec && !b.IsControl() {
		t.Fatalf("codec %s", b.Codec())
	}
	ours, err := readByUs(b)
	if err != nil || len(ours) != int(info.Records) {
		t.Fatalf("taken, but %d of %d are read: %v", len(ours), info.Records, err)
	}
	// franz-go has times in nanoseconds, which wrap.
	var nano []string
	err = Records(b, func(r Record) error {
		r.Timestamp = time.Unix(0, r.Timestamp*int64(time.Millisecond)).UnixNano()
		nano = append(nano, show(r))
		return nil
	})
	if theirs, terr := readByFranz(b); err != nil || terr != nil || !sameLines(nano, theirs) {
		t.Fatalf("franz-go reads (%v)\n%q, we\n%q", terr, theirs, nano)
	}
	// What went in has the same records, but for offsets and a stamped time.
	if before.IsLogAppendTime() != o.LogAppendTime {
		before.SetMaxTimestamp(info.MaxTimestamp, o.LogAppendTime)
	} else if o.LogAppendTime {
		before.SetMaxTimestamp(o.NowMs, true)
	}
	i := 0
	err = Records(before, func(r Record) error {
		r.Offset = int64(i)
		if show(r) != ours[i] {
			return fmt.Errorf("record %d was %s, is %s", i, show(r), ours[i])
		}
		i++
		return nil
	})
	if err != nil || i != len(ours) {
		t.Fatalf("%d records, %v", i, err)
	}
}

// FuzzDecoder: what a codec's decoder gives is what the library's own reader gives;
// it takes less (see lz4.go, snappy.go), never more, and stays within its bound.
func FuzzDecoder(f *testing.F) {
	for _, c := range codecs[1:] {
		f.Add(byte(c), []byte(build(f, withCodec(c), sample(20, 40)).Payload()))
		f.Add(byte(c), []byte(foreign(f, c, sample(3, 50_000)).Payload()))
	}
	f.Add(byte(CodecLZ4), linkedLZ4(bytes.Repeat([]byte("0123456789"), 9000)))
	f.Add(byte(CodecSnappy), snappy.Encode(nil, bytes.Repeat([]byte("abc"), 900)))
	f.Fuzz(func(t *testing.T, codec byte, payload []byte) {
		const limit = 4 << 20
		b := withPayload(make(Batch, HeaderSize), Codec(codec&3)+1, payload)
		use, err := b.decoderUse()
		if err != nil || use > limit {
			return
		}
		d, err := newDecoder(b.Codec(), b.Payload(), use)
		if err != nil {
			return
		}
		defer d.release()
		var got []byte
		for {
			p, err := d.next()
			got = append(got, p...)
			if err == io.EOF {
				break
			}
			if err != nil || len(got) > limit {
				return
			}
		}
		if b.Codec() == CodecSnappy && len(got) == 0 {
			return // franz-go takes a header alone for a block; no batch has no records
		}
		want, err := reference(b.Codec(), payload)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, the library's reader has %d, %v", b.Codec(), len(got), len(want), err)
		}
	})
}

func reference(c Codec, payload []byte) ([]byte, error) {
	if len(payload) == 0 && c != CodecGzip && c != CodecLZ4 {
		return nil, nil
	}
	switch c {
	case CodecGzip:
		r, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case CodecLZ4:
		return io.ReadAll(lz4.NewReader(bytes.NewReader(payload)))
	case CodecZstd:
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(largeZstdWindow))
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(payload, nil)
	}
	return kgo.DefaultDecompressor().Decompress(payload, kgo.CodecSnappy)
}

// FuzzBuild: what Build makes of any record is let in and comes out again.
func FuzzBuild(f *testing.F) {
	f.Add(byte(0), int64(1000), int64(-5), []byte("k"), []byte("v"), "h", []byte(nil), uint8(3))
	f.Add(byte(4), int64(math.MinInt64), int64(math.MaxInt64), []byte(nil), []byte{}, "", []byte{1}, uint8(200))
	f.Fuzz(func(t *testing.T, codec byte, ts, step int64, key, value []byte, hk string, hv []byte, n uint8) {
		if len(key)+len(value)+len(hk)+len(hv) > 1<<16 {
			return
		}
		recs := make([]Record, int(n)+1)
		for i := range recs {
			recs[i] = Record{Timestamp: ts + int64(i)*step, Key: key, Value: value}
			if i%2 == 1 {
				recs[i].Headers = []Header{{hk, hv}, {hk, nil}}
			}
		}
		b, err := Build(withCodec(Codec(codec%5)), recs)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readByUs(b)
		if err != nil {
			t.Fatal(err)
		}
		for i := range recs {
			recs[i].Offset = int64(i)
			if len(got) != len(recs) || got[i] != show(recs[i]) {
				t.Fatalf("%d of %d; %s, want %s", len(got), len(recs), got[i], show(recs[i]))
			}
		}
		if _, err := Validate(b, ValidateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}
