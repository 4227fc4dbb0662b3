package recordbatch

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// filterSeed is a batch of ten records, every third a tombstone, one without a key.
func filterSeed(t testing.TB, o BuildOptions) Batch {
	t.Helper()
	o.BaseOffset = 100
	var recs []Record
	for i := range 10 {
		r := Record{Timestamp: 1000 - int64(i), Key: fmt.Appendf(nil, "key %d", i), Value: bytes.Repeat([]byte("v"), i*100), Headers: []Header{{Key: "h", Value: []byte{byte(i)}}}}
		if i%3 == 2 {
			r.Value = nil
		}
		if i == 4 {
			r.Key = nil
		}
		recs = append(recs, r)
	}
	b, err := Build(o, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func contents(t testing.TB, b Batch) (out []string) {
	t.Helper()
	if b.CRC() != b.ComputeCRC() || b.Length() != len(b) {
		t.Fatalf("batch is not sealed")
	}
	if err := Records(b, func(r Record) error {
		out = append(out, fmt.Sprintf("%d %d %q %v %d %v", r.Offset, r.Timestamp, r.Key, r.Value == nil, len(r.Value), r.Headers))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFilteredBatchKeepsOffsetsTimesAndProducer(t *testing.T) {
	for _, codec := range []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd} {
		for _, appendTime := range []bool{false, true} {
			for _, horizon := range []int64{-1, 5_000_000_000_000, 0} {
				t.Run(fmt.Sprint(codec, appendTime, horizon), func(t *testing.T) {
					o := NoProducer()
					o.Codec, o.LogAppendTime, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.LeaderEpoch, o.Transactional = codec, appendTime, 7, 3, 41, 9, true
					b := filterSeed(t, o)
					all := contents(t, b)
					before := []byte("what was there")
					out, f, err := Filter(slices.Clone(before), b, FilterOptions{Keep: func(e *Entry) bool { return e.Offset%2 == 0 }, Horizon: horizon})
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.HasPrefix(out, before) {
						t.Fatal("what was in the buffer has changed")
					}
					got := Batch(out[len(before):])
					var want []string
					for i := 0; i < 10; i += 2 {
						want = append(want, all[i])
					}
					if c := contents(t, got); !slices.Equal(c, want) {
						t.Fatalf("holds %v\nwant %v", c, want)
					}
					if f != (Filtered{Records: 10, Kept: 5, Tombstones: 2, Rewritten: true}) {
						t.Fatalf("%+v", f)
					}
					if got.BaseOffset() != 100 || got.LastOffset() != 109 || got.LastSequence() != 50 || got.ProducerID() != 7 || got.ProducerEpoch() != 3 || got.LeaderEpoch() != 9 ||
						got.Codec() != codec || got.Count() != 5 || !got.IsTransactional() || got.MaxTimestamp() != 1000 || got.HasDeleteHorizon() != (horizon >= 0) {
						t.Fatalf("header is changed: %x", []byte(got[:HeaderSize]))
					}
					if horizon >= 0 && got.FirstTimestamp() != horizon {
						t.Fatalf("horizon is %d", got.FirstTimestamp())
					}
					// A horizon is never replaced, and a batch of which all stays never touched.
					again, f, err := Filter(nil, got, FilterOptions{Keep: func(*Entry) bool { return true }, Horizon: horizon + 1, Marker: horizon >= 0})
					if err != nil || f.Rewritten != (horizon < 0) || horizon >= 0 && !bytes.Equal(again, got) {
						t.Fatalf("%+v, %v", f, err)
					}
				})
			}
		}
	}
}

func TestBatchWithoutTombstonesGetsNoHorizonButAMarkerDoes(t *testing.T) {
	b := filterSeed(t, NoProducer())
	values := func(e *Entry) bool { return !e.Tombstone }
	if out, _, err := Filter(nil, b, FilterOptions{Keep: values, Horizon: 5}); err != nil || Batch(out).HasDeleteHorizon() {
		t.Fatal("batch of values has a horizon", err)
	}
	if out, f, err := Filter(nil, b, FilterOptions{Keep: values, Horizon: 5, Marker: true}); err != nil || !Batch(out).HasDeleteHorizon() || f.Tombstones != 0 {
		t.Fatal("marker has no horizon", err)
	}
}

func TestEmptiedBatchIsAHeader(t *testing.T) {
	o := NoProducer()
	o.Codec, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = CodecZstd, 7, 3, 41, true
	b := filterSeed(t, o)
	out, f, err := Filter(nil, b, FilterOptions{Keep: func(*Entry) bool { return false }, Horizon: 5})
	if err != nil || len(out) != 0 || f.Kept != 0 || f.Records != 10 {
		t.Fatalf("%d bytes, %+v, %v", len(out), f, err)
	}
	h := Batch(AppendEmpty(nil, b))
	if len(contents(t, h)) != 0 || len(h) != HeaderSize || h.LastOffset() != 109 || h.LastSequence() != 50 || h.Codec() != CodecNone || !h.IsTransactional() || h.HasDeleteHorizon() ||
		h.FirstTimestamp() != NoTimestamp || h.MaxTimestamp() != 1000 {
		t.Fatalf("header is %x", []byte(h))
	}
	if again := AppendEmpty(nil, h); !bytes.Equal(again, h) {
		t.Fatal("a header made empty is another one")
	}
}

// FuzzFilter: whatever the records are, what stays is read as it was, or the batch is
// refused as reading it refuses it.
func FuzzFilter(f *testing.F) {
	for _, codec := range []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd} {
		o := NoProducer()
		o.Codec = codec
		f.Add([]byte(filterSeed(f, o)), uint64(0x155), int64(77))
	}
	f.Fuzz(func(t *testing.T, raw []byte, mask uint64, horizon int64) {
		b, _, err := Next(raw)
		if err != nil || b == nil || b.LastOffsetDelta() < 0 || b.BaseOffset() < 0 {
			return
		}
		var want []string
		i := 0
		rerr := Records(b, func(r Record) error {
			if mask>>(i%64)&1 != 0 {
				want = append(want, fmt.Sprintf("%d %d %q %q %v", r.Offset, r.Timestamp, r.Key, r.Value, r.Headers))
			}
			i++
			return nil
		})
		i = -1
		out, got, err := Filter(nil, b, FilterOptions{Keep: func(*Entry) bool { i++; return mask>>(i%64)&1 != 0 }, Horizon: horizon})
		if err != nil || rerr != nil { // Filter asks for offsets in the batch, and does not look at headers
			return
		}
		if got.Kept != len(want) {
			t.Fatalf("kept %d of %d, want %d", got.Kept, got.Records, len(want))
		}
		if len(want) == 0 {
			return
		}
		j := 0
		if err := Records(Batch(out), func(r Record) error {
			if s := fmt.Sprintf("%d %d %q %q %v", r.Offset, r.Timestamp, r.Key, r.Value, r.Headers); s != want[j] {
				t.Fatalf("record %d is %s, was %s", j, s, want[j])
			}
			j++
			return nil
		}); err != nil || j != len(want) {
			t.Fatalf("%d of %d records can be read: %v", j, len(want), err)
		}
	})
}
