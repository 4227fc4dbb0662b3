package recordbatch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var codecs = []Codec{CodecNone, CodecGzip, CodecSnappy, CodecLZ4, CodecZstd}

func sample(n, size int) []Record {
	r := rand.New(rand.NewSource(int64(n)))
	recs := make([]Record, n)
	for i := range recs {
		v := make([]byte, size)
		for j := range v {
			v[j] = byte('a' + r.Intn(8))
		}
		recs[i] = Record{Timestamp: int64(1000 + i), Key: []byte(fmt.Sprint("k", i)), Value: v,
			Headers: []Header{{Key: "h", Value: []byte("v")}, {Key: "null"}}}
	}
	return recs
}

func build(t testing.TB, o BuildOptions, recs []Record) Batch {
	t.Helper()
	b, err := Build(o, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func withCodec(c Codec) BuildOptions { o := NoProducer(); o.Codec = c; return o }

func collect(b Batch) ([]Record, error) {
	var out []Record
	err := Records(b, func(r Record) error {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		hs := append([]Header(nil), r.Headers...)
		for i := range hs {
			hs[i].Value = bytes.Clone(hs[i].Value)
		}
		r.Headers = hs
		out = append(out, r)
		return nil
	})
	return out, err
}

func TestEveryCodecGivesTheRecordsBack(t *testing.T) {
	for _, c := range codecs {
		want := sample(500, 300)
		o := withCodec(c)
		o.BaseOffset, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.LeaderEpoch = 77, 5, 2, math.MaxInt32, 9
		b := build(t, o, want)
		if b.CRC() != b.ComputeCRC() || b.Length() != len(b) || b.Codec() != c || b.Count() != 500 ||
			b.LastOffset() != 576 || b.LastSequence() != 498 || b.LeaderEpoch() != 9 || b.MaxTimestamp() != 1499 {
			t.Fatalf("%s: header wrong", c)
		}
		got, err := collect(b)
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		for i := range want {
			want[i].Offset = int64(77 + i)
			if fmt.Sprint(want[i]) != fmt.Sprint(got[i]) {
				t.Fatalf("%s: record %d is %v, want %v", c, i, got[i], want[i])
			}
		}
	}
}

func TestHeaderReadsAsTheReferenceDecoderReadsIt(t *testing.T) {
	o := withCodec(CodecNone)
	o.BaseOffset, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.LeaderEpoch, o.Transactional = 1<<40, 1<<50, 3, 4, 5, true
	b := build(t, o, sample(3, 10))
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	if k.FirstOffset != b.BaseOffset() || k.PartitionLeaderEpoch != b.LeaderEpoch() || k.Magic != b.Magic() || uint32(k.CRC) != b.CRC() ||
		k.Attributes != b.Attributes() || k.LastOffsetDelta != b.LastOffsetDelta() || k.FirstTimestamp != b.FirstTimestamp() ||
		k.MaxTimestamp != b.MaxTimestamp() || k.ProducerID != b.ProducerID() || k.ProducerEpoch != b.ProducerEpoch() ||
		k.FirstSequence != b.BaseSequence() || k.NumRecords != b.Count() || !b.IsTransactional() || b.IsControl() {
		t.Fatalf("got %+v", k)
	}
	var r kmsg.Record
	if err := r.ReadFrom(k.Records); err != nil || string(r.Key) != "k0" || len(r.Headers) != 2 || r.Headers[1].Value != nil {
		t.Fatalf("record %+v, %v", r, err)
	}
}

func TestNullKeyAndValueStayNull(t *testing.T) {
	got, err := collect(build(t, NoProducer(), []Record{{Key: nil, Value: []byte{}}, {Key: []byte{}, Value: nil}}))
	if err != nil || got[0].Key != nil || got[0].Value == nil || got[1].Key == nil || got[1].Value != nil {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestRawSnappyOfOtherClientsIsRead(t *testing.T) {
	plain := build(t, NoProducer(), sample(50, 100))
	body := snappy.Encode(nil, plain.Payload())
	b := Batch(append(bytes.Clone(plain[:HeaderSize]), body...))
	be.PutUint32(b[offLength:], uint32(len(b)-LogOverhead))
	b[offAttributes+1] = byte(CodecSnappy)
	b.resetCRC()
	if got, err := collect(b); err != nil || len(got) != 50 {
		t.Fatalf("%d records, %v", len(got), err)
	}
	if _, err := Validate(b, ValidateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestSplitStopsAtACutBatch(t *testing.T) {
	a, b := build(t, NoProducer(), sample(2, 10)), build(t, NoProducer(), sample(3, 10))
	all := append(bytes.Clone(a), b...)
	for cut := 0; cut <= len(all); cut++ {
		var n int
		var last error
		for x, err := range Split(all[:cut]) {
			if last = err; err == nil {
				n += len(x)
			}
		}
		whole, short := 0, cut > 0 && cut != len(a) && cut != len(all)
		if cut >= len(a) {
			whole = len(a)
		}
		if cut == len(all) {
			whole = len(all)
		}
		if n != whole || errors.Is(last, ErrShort) != short {
			t.Fatalf("cut at %d: %d bytes of whole batches, %v", cut, n, last)
		}
	}
}

func TestNextRefusesForgedHeaders(t *testing.T) {
	good := build(t, NoProducer(), sample(1, 1))
	f := func(want error, change func(b []byte)) {
		t.Helper()
		b := bytes.Clone(good)
		change(b)
		if _, _, err := Next(b); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	f(ErrCorrupt, func(b []byte) { be.PutUint32(b[offLength:], 0xffffffff) })
	f(ErrCorrupt, func(b []byte) { be.PutUint32(b[offLength:], 10) })
	f(ErrShort, func(b []byte) { be.PutUint32(b[offLength:], math.MaxInt32) })
	f(ErrMagic, func(b []byte) { b[offMagic] = 1 })
	f(ErrCorrupt, func(b []byte) { b[offMagic] = 3 })
}
