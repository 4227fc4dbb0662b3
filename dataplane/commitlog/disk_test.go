package commitlog

import (
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// TestRealFilesRoundTrip writes a log with many segments to the real file system. With
// PENSTOCK_KEEP_LOG=folder the log stays there, for Kafka's own dump tool to judge.
func TestRealFilesRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t-0")
	if keep := os.Getenv("PENSTOCK_KEEP_LOG"); keep != "" {
		path = filepath.Join(keep, "t-0")
	}
	cfg := Config{SegmentBytes: 200_000, IndexIntervalBytes: 4096}
	l, err := Open(vfs.OS, path, cfg, OpenOptions{CleanShutdown: true})
	must(t, err)
	must(t, WriteTopicID(vfs.OS, path, [16]byte{1, 2, 3}))
	r := rand.New(rand.NewSource(1))
	now := time.Now().UnixMilli()
	seq := int32(0)
	var want []byte
	for i := range 400 {
		o := recordbatch.NoProducer()
		o.Codec = recordbatch.Codec(i % 5)
		if i%3 == 0 {
			o.ProducerID, o.ProducerEpoch, o.BaseSequence = 1000, 1, seq
		}
		recs := make([]recordbatch.Record, 1+r.Intn(20))
		for j := range recs {
			v := make([]byte, r.Intn(400))
			r.Read(v)
			recs[j] = recordbatch.Record{Timestamp: now + r.Int63n(1000) + int64(i)*100, Key: []byte("k"), Value: v, Headers: []recordbatch.Header{{Key: "h", Value: v[:len(v)/2]}}}
		}
		b, err := recordbatch.Build(o, recs)
		must(t, err)
		if i%3 == 0 {
			seq = recordbatch.AddSequence(b.LastSequence(), 1)
		}
		appendTo(t, l, b, int32(i/100))
		want = append(want, b...)
	}
	end := l.EndOffset()
	s, err := l.Read(end-1, 1, end, true)
	must(t, err)
	if _, ok := s.File.Fd(); !ok {
		t.Fatal("no descriptor for sendfile")
	}
	s.Close()
	must(t, l.Close())
	l, err = Open(vfs.OS, path, cfg, OpenOptions{CleanShutdown: true})
	must(t, err)
	wantBytes(t, readAll(t, l, 0, end, 50_000), want)
	must(t, l.abandon())
	l, err = Open(vfs.OS, path, cfg, OpenOptions{})
	must(t, err)
	wantBytes(t, readAll(t, l, 0, end, 50_000), want)
	must(t, l.Close())
}
