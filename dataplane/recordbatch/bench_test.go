package recordbatch

import "testing"

// BenchmarkPrepare is the whole check of a produced batch of 100 records of 1 KiB.
func BenchmarkPrepare(bm *testing.B) {
	for _, c := range codecs {
		bm.Run(c.String(), func(bm *testing.B) {
			b := build(bm, withCodec(c), sample(100, 1024))
			o := ValidateOptions{ProduceVersion: 9, MaxMessageBytes: 1 << 20, NowMs: 1000, AfterMaxMs: 3_600_000}
			bm.SetBytes(int64(len(b)))
			bm.ReportAllocs()
			for bm.Loop() {
				if _, _, err := Prepare(b, o); err != nil {
					bm.Fatal(err)
				}
			}
		})
	}
}
