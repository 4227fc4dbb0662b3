package commitlog

import (
	"bytes"
	"testing"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// BenchmarkAppend is the broker's part of a produce below the protocol: check, stamp,
// one write. Batches of 100 records of 1 KiB.
func BenchmarkAppend(bm *testing.B) {
	l, err := Open(vfs.OS, bm.TempDir()+"/t-0", Config{SegmentBytes: 256 << 20, RetentionBytes: 1, DeleteDelay: -1}, OpenOptions{CleanShutdown: true})
	if err != nil {
		bm.Fatal(err)
	}
	defer l.Delete()
	recs := make([]recordbatch.Record, 100)
	for i := range recs {
		recs[i] = recordbatch.Record{Timestamp: int64(i), Value: bytes.Repeat([]byte{'x'}, 1024)}
	}
	b, _ := recordbatch.Build(recordbatch.NoProducer(), recs)
	bm.SetBytes(int64(len(b)))
	bm.ReportAllocs()
	for i := 0; bm.Loop(); i++ {
		b.SetBaseOffset(0)
		if _, err := recordbatch.Validate(b, recordbatch.ValidateOptions{ProduceVersion: 9}); err != nil {
			bm.Fatal(err)
		}
		if _, err := l.AppendLeader(b, 0); err != nil {
			bm.Fatal(err)
		}
		if i%2000 == 1999 {
			if _, err := l.DeleteOldSegments(l.now(), l.EndOffset()); err != nil {
				bm.Fatal(err)
			}
			if _, err := l.RemoveDeleted(l.now()); err != nil {
				bm.Fatal(err)
			}
		}
	}
}

// BenchmarkRead finds 1 MiB slices all over a log.
func BenchmarkRead(bm *testing.B) {
	l, err := Open(vfs.OS, bm.TempDir()+"/t-0", Config{}, OpenOptions{CleanShutdown: true})
	if err != nil {
		bm.Fatal(err)
	}
	defer l.Delete()
	b, _ := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Value: make([]byte, 16<<10)}})
	for range 5000 {
		if _, err := l.AppendLeader(b, 0); err != nil {
			bm.Fatal(err)
		}
	}
	bm.ReportAllocs()
	for i := int64(0); bm.Loop(); i++ {
		s, err := l.Read(i*61%4900, 1<<20, 4990, true)
		if err != nil || s.Len == 0 {
			bm.Fatal(err)
		}
		s.Close()
	}
}
