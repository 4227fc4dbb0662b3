package recordbatch

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

func TestProduceChecksAndTheirOrder(t *testing.T) {
	now := int64(1_000_000)
	base := ValidateOptions{NowMs: now, ProduceVersion: 9, MaxMessageBytes: 1000}
	good := build(t, NoProducer(), []Record{{Timestamp: now, Key: []byte("k")}, {Timestamp: now - 5, Key: []byte("k")}})
	f := func(name string, want *kerr.Error, o ValidateOptions, change func(b Batch) Batch) {
		t.Helper()
		b := Batch(bytes.Clone(good))
		if change != nil {
			b = change(b)
		}
		_, err := Validate(b, o)
		if want == nil && err != nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
	recrc := func(change func(b Batch)) func(Batch) Batch {
		return func(b Batch) Batch { change(b); b.resetCRC(); return b }
	}
	f("good", nil, base, nil)
	f("wrong length", kerr.CorruptMessage, base, func(b Batch) Batch { return b[:len(b)-1] })
	f("base offset before size and checksum", kerr.InvalidRecord, base, func(b Batch) Batch { b.SetBaseOffset(1); b[offCRC]++; return b })
	f("base offset of the coordinator", nil, ValidateOptions{Coordinator: true}, func(b Batch) Batch { b.SetBaseOffset(1); return b })
	small := base
	small.MaxMessageBytes = len(good) - 1
	f("size before checksum", kerr.MessageTooLarge, small, func(b Batch) Batch { b[offCRC]++; return b })
	small.MaxMessageBytes++
	f("size at the limit", nil, small, nil)
	f("checksum before count", kerr.CorruptMessage, base, func(b Batch) Batch { b[offCount+3]++; return b })
	f("count", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offCount+3]++ }))
	f("count 0", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offCount+3] = 0; be.PutUint32(b[offLastOffsetDelta:], math.MaxUint32) }))
	f("more claimed than there", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offCount+3]++; b[offLastOffsetDelta+3]++ }))
	f("fewer claimed than there", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offCount+3]--; b[offLastOffsetDelta+3]-- }))
	f("control", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offAttributes+1] |= attrControl }))
	f("producer without sequence", kerr.InvalidRecord, base, recrc(func(b Batch) { be.PutUint64(b[offProducerID:], 1) }))
	f("client-set append time", kerr.InvalidTimestamp, base, recrc(func(b Batch) { b[offAttributes+1] |= attrLogAppendTime }))
	f("codec 5", kerr.UnsupportedCompressionType, base, recrc(func(b Batch) { b[offAttributes+1] |= 5 }))
	f("garbage as gzip", kerr.InvalidRecord, base, recrc(func(b Batch) { b[offAttributes+1] |= byte(CodecGzip) }))
	old := base
	old.ProduceVersion = 6
	f("zstd before v7", kerr.UnsupportedCompressionType, old, func(Batch) Batch { return build(t, withCodec(CodecZstd), sample(1, 1)) })
	late := base
	late.BoundTimes, late.AfterMaxMs, late.BeforeMaxMs = true, 10, 3
	f("too old", kerr.InvalidTimestamp, late, nil)
	late.BeforeMaxMs = 5
	f("just old enough", nil, late, nil)
	late.NowMs = now - 11
	f("too new", kerr.InvalidTimestamp, late, nil)
	late.LogAppendTime = true
	f("bounds do not apply to append time", nil, late, nil)
}

func TestKeylessRecordsOfACompactedTopicAreNamed(t *testing.T) {
	for _, c := range codecs {
		b := build(t, withCodec(c), []Record{{Key: []byte("k")}, {}, {Key: []byte{}}, {}})
		_, err := Validate(b, ValidateOptions{Compacted: true})
		var e *InvalidError
		if !errors.As(err, &e) || e.Kerr != kerr.InvalidRecord || len(e.Records) != 2 || e.Records[0].Index != 1 || e.Records[1].Index != 3 {
			t.Fatalf("%s: %v", c, err)
		}
	}
}

func TestTimestampsAreStampedInPlace(t *testing.T) {
	for _, c := range codecs {
		b := build(t, withCodec(c), []Record{{Timestamp: 10}, {Timestamp: 30}, {Timestamp: 20}})
		b.SetMaxTimestamp(7, false) // a lying header
		info, err := Validate(b, ValidateOptions{})
		if err != nil || info.MaxTimestamp != 30 || b.MaxTimestamp() != 30 || b.CRC() != b.ComputeCRC() || info.Records != 3 {
			t.Fatalf("%s: %+v, %v", c, info, err)
		}
		if info, err = Validate(b, ValidateOptions{LogAppendTime: true, NowMs: 99}); err != nil || info.MaxTimestamp != 99 || b.CRC() != b.ComputeCRC() {
			t.Fatalf("%s: %+v, %v", c, info, err)
		}
		got, _ := collect(b)
		if got[0].Timestamp != 99 || got[2].Timestamp != 99 {
			t.Fatalf("%s: records carry %d, not the append time", c, got[0].Timestamp)
		}
	}
}

func TestPrepareTakesExactlyOneBatch(t *testing.T) {
	a := build(t, NoProducer(), sample(2, 10))
	if _, _, err := Prepare(nil, ValidateOptions{}); !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("none: %v", err)
	}
	if _, _, err := Prepare(append(bytes.Clone(a), a...), ValidateOptions{}); !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("two: %v", err)
	}
	old := bytes.Clone(a)
	old[offMagic] = 1
	if _, _, err := Prepare(old, ValidateOptions{}); !errors.Is(err, kerr.InvalidRecord) {
		t.Errorf("old format: %v", err)
	}
	in := append(bytes.Clone(a), a[:20]...)
	b, _, err := Prepare(in, ValidateOptions{})
	if err != nil || len(b) != len(a) || &b[0] != &in[0] {
		t.Errorf("one and a torn one: %d bytes, %v; must alias the input", len(b), err)
	}
}

func TestPrepareRewritesGapsAndCodec(t *testing.T) {
	var body []byte
	for _, d := range []int32{0, 5, 2} {
		body = appendRecord(body, &Record{Key: []byte("k")}, int64(d), d)
	}
	b, err := assemble(NoProducer(), 3, 100, 105, body)
	if err != nil {
		t.Fatal(err)
	}
	out, info, err := Prepare(b, ValidateOptions{Recompress: true, Codec: CodecLZ4})
	if err != nil || !info.Rewrite || out.Codec() != CodecLZ4 {
		t.Fatalf("%+v, %v", info, err)
	}
	got, err := collect(out)
	if err != nil || got[1].Offset != 1 || got[2].Offset != 2 || got[1].Timestamp != 105 || out.MaxTimestamp() != 105 {
		t.Fatalf("%v, %v", got, err)
	}
}

func asInvalid(err error, e **InvalidError) bool { return errors.As(err, e) }

func TestChecksAndReadingDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	for _, c := range codecs {
		b := build(t, withCodec(c), bare(100, 200))
		o := ValidateOptions{ProduceVersion: 9, MaxMessageBytes: 1 << 20, NowMs: 1000, BoundTimes: true, BeforeMaxMs: math.MaxInt64, AfterMaxMs: 3_600_000}
		n := 0
		for what, f := range map[string]func() error{
			"Validate": func() error { _, err := Validate(b, o); return err },
			"Prepare":  func() error { _, _, err := Prepare(b, o); return err },
			"Records":  func() error { return Records(b, func(Record) error { n++; return nil }) },
			"Prepare of a recompressed batch": func() error {
				o := o
				o.Recompress, o.Codec = true, (c+1)%5
				o.Level = o.Codec.DefaultLevel()
				_, info, err := Prepare(b, o)
				info.Recycle()
				return err
			},
		} {
			if err := f(); err != nil {
				t.Fatal(err)
			}
			limit := 0.0
			switch {
			case what == "Records":
				limit = 2 // what the callback closes over
			case what[0] == 'P' && len(what) > 7:
				limit = 4 // the copy's bookkeeping, whatever the number of records
			}
			if got := testing.AllocsPerRun(50, func() { _ = f() }); got > limit {
				t.Errorf("%s, %s: %v allocations", c, what, got)
			}
		}
	}
}

// bare records have no headers, whose keys are strings of their own.
func bare(n, size int) []Record {
	recs := sample(n, size)
	for i := range recs {
		recs[i].Headers = nil
	}
	return recs
}
