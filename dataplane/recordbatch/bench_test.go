package recordbatch

import (
	"fmt"
	"testing"
)

// BenchmarkPrepare is the whole check of a produced batch of 100 records of 1 KiB, and
// how many bytes are unfolded for it.
func BenchmarkPrepare(bm *testing.B) {
	for _, c := range codecs {
		bm.Run(c.String(), func(bm *testing.B) {
			b := build(bm, withCodec(c), sample(100, 1024))
			bm.SetBytes(int64(len(b)))
			prepare(bm, b, ValidateOptions{})
		})
	}
}

// BenchmarkRecompress is that for a topic of another codec.
func BenchmarkRecompress(bm *testing.B) {
	for _, pair := range [][2]Codec{{CodecNone, CodecLZ4}, {CodecNone, CodecZstd}, {CodecGzip, CodecZstd}, {CodecZstd, CodecNone}, {CodecSnappy, CodecLZ4}} {
		bm.Run(fmt.Sprintf("%s to %s", pair[0], pair[1]), func(bm *testing.B) {
			b := build(bm, withCodec(pair[0]), sample(100, 1024))
			prepare(bm, b, ValidateOptions{Recompress: true, Codec: pair[1], Level: pair[1].DefaultLevel()})
		})
	}
}

func prepare(bm *testing.B, b Batch, o ValidateOptions) {
	o.ProduceVersion, o.MaxMessageBytes, o.NowMs, o.BoundTimes, o.BeforeMaxMs, o.AfterMaxMs = 9, 1<<20, 1000, true, 1<<40, 3_600_000
	bm.ReportAllocs()
	var unfolded int64
	for bm.Loop() {
		_, info, err := Prepare(b, o)
		if err != nil {
			bm.Fatal(err)
		}
		unfolded = info.Unfolded
		info.Recycle()
	}
	bm.ReportMetric(float64(unfolded), "unfolded-B/op")
	bm.ReportMetric(float64(len(b)), "batch-B/op")
}

// BenchmarkRecords reads all records of such a batch.
func BenchmarkRecords(bm *testing.B) {
	for _, c := range codecs {
		bm.Run(c.String(), func(bm *testing.B) {
			b := build(bm, withCodec(c), bare(100, 1024))
			bm.ReportAllocs()
			for bm.Loop() {
				if err := Records(b, func(Record) error { return nil }); err != nil {
					bm.Fatal(err)
				}
			}
		})
	}
}
