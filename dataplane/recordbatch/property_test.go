package recordbatch

import (
	"bytes"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

func drawRecord(t *rapid.T) Record {
	r := Record{Timestamp: rapid.OneOf(rapid.Int64Range(-1, 1<<45), rapid.Int64()).Draw(t, "ts")}
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300), rapid.Map(rapid.IntRange(0, 40_000), func(n int) []byte { return bytes.Repeat([]byte{7}, n) }))
	r.Key, r.Value = field.Draw(t, "key"), field.Draw(t, "value")
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{Key: rapid.StringN(0, 20, 40).Draw(t, "hk"), Value: field.Draw(t, "hv")})
	}
	return r
}

func drawBatch(t *rapid.T) (Batch, []Record) {
	o := BuildOptions{
		Codec: rapid.SampledFrom(codecs).Draw(t, "codec"), LeaderEpoch: rapid.Int32().Draw(t, "epoch"),
		ProducerID: rapid.Int64Range(-1, 1<<60).Draw(t, "pid"), ProducerEpoch: rapid.Int16Range(0, math.MaxInt16).Draw(t, "pepoch"),
		BaseSequence: rapid.Int32Range(0, math.MaxInt32).Draw(t, "seq"), Transactional: rapid.Bool().Draw(t, "txn"),
	}
	recs := make([]Record, rapid.IntRange(1, 12).Draw(t, "n"))
	for i := range recs {
		recs[i] = drawRecord(t)
	}
	b, err := Build(o, recs)
	if err != nil {
		t.Fatal(err)
	}
	if b.Codec() != o.Codec || b.LeaderEpoch() != o.LeaderEpoch || b.ProducerID() != o.ProducerID || b.ProducerEpoch() != o.ProducerEpoch || b.BaseSequence() != o.BaseSequence || b.IsTransactional() != o.Transactional {
		t.Fatal("the header is not what was asked for")
	}
	return b, recs
}

func mustHold(t *rapid.T, b Batch, want []Record, what string) {
	t.Helper()
	got, err := readByUs(b)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%s: %d of %d records, %v", what, len(got), len(want), err)
	}
	for i := range want {
		if got[i] != show(want[i]) {
			t.Fatalf("%s: record %d is\n%s, want\n%s", what, i, got[i], show(want[i]))
		}
	}
	if b.CRC() != b.ComputeCRC() || b.Length() != len(b) || int(b.Count()) != len(want) {
		t.Fatalf("%s: header", what)
	}
}

func TestWhatIsBuiltIsReadBackWhateverIsDoneToIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, recs := drawBatch(t)
		base := rapid.Int64Range(0, 1<<50).Draw(t, "base")
		at := func(base int64) []Record {
			for i := range recs {
				recs[i].Offset = base + int64(i)
			}
			return recs
		}
		mustHold(t, b, at(0), "built")

		// Stamps outside of the checksum change nothing else.
		crc := b.CRC()
		b.SetBaseOffset(base)
		b.SetLeaderEpoch(5)
		if b.CRC() != crc || b.LastOffset() != base+int64(len(recs))-1 {
			t.Fatal("stamping the offset")
		}
		mustHold(t, b, at(base), "moved")

		// Another codec, and back.
		c := rapid.SampledFrom(codecs).Draw(t, "other")
		r, err := Rewrite(b, c, rapid.IntRange(-10, 22).Draw(t, "level"), 1<<30)
		if err != nil || r.Codec() != c || r.ProducerID() != b.ProducerID() || r.BaseSequence() != b.BaseSequence() || r.Attributes()&^attrCodecMask != b.Attributes()&^attrCodecMask {
			t.Fatal(err)
		}
		mustHold(t, r, at(base), "rewritten")

		// The broker's time is every record's, until it is taken off again.
		b.SetMaxTimestamp(77, true)
		stamped := append([]Record(nil), at(base)...)
		for i := range stamped {
			stamped[i].Timestamp = 77
		}
		mustHold(t, b, stamped, "stamped")
		b.SetMaxTimestamp(99, false)
		mustHold(t, b, at(base), "as the producer stamped it")
	})
}

func TestPrepareKeepsEveryRecordInAnyTopic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, recs := drawBatch(t)
		o := ValidateOptions{Compacted: rapid.Bool().Draw(t, "compacted"), NowMs: 1 << 41, LogAppendTime: rapid.Bool().Draw(t, "stamp")}
		if rapid.Bool().Draw(t, "recompress") {
			o.Recompress, o.Codec, o.Level = true, rapid.SampledFrom(codecs).Draw(t, "codec"), rapid.IntRange(-10, 22).Draw(t, "level")
		}
		want := NoTimestamp
		keyless := 0
		for i := range recs {
			recs[i].Offset = int64(i)
			want = max(want, recs[i].Timestamp)
			if recs[i].Key == nil {
				keyless++
			}
		}
		if o.LogAppendTime {
			want = o.NowMs
			for i := range recs {
				recs[i].Timestamp = o.NowMs
			}
		}
		out, info, err := Prepare(append([]byte(b), b[:rapid.IntRange(0, len(b)-1).Draw(t, "torn")]...)[:], o)
		if o.Compacted && keyless > 0 {
			var e *InvalidError
			if err == nil || !asInvalid(err, &e) || e.Kerr != kerr.InvalidRecord || len(e.Records) != keyless {
				t.Fatalf("%v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		defer info.Recycle()
		if info.MaxTimestamp != want || out.MaxTimestamp() != want {
			t.Fatalf("largest time %d, want %d", info.MaxTimestamp, want)
		}
		mustHold(t, out, recs, "prepared")
	})
}

func TestNextTakesBatchesOffOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []byte
		var sizes []int
		for range rapid.IntRange(0, 5).Draw(t, "batches") {
			b, _ := drawBatch(t)
			all = append(all, b...)
			sizes = append(sizes, len(b))
		}
		cut := rapid.IntRange(0, len(all)).Draw(t, "cut")
		rest := all[:cut]
		for _, n := range sizes {
			b, r, err := Next(rest)
			if len(rest) < n {
				if len(rest) > 0 && err != ErrShort || len(rest) == 0 && (b != nil || err != nil) {
					t.Fatalf("%d of %d bytes: %v", len(rest), n, err)
				}
				return
			}
			if err != nil || len(b) != n || cap(b) != n {
				t.Fatalf("%d bytes, want %d: %v", len(b), n, err)
			}
			rest = r
		}
	})
}
