package commitlog

import (
	"bytes"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const dir = "/data/t-0"

var small = Config{SegmentBytes: 2000, SegmentIndexBytes: 240, IndexIntervalBytes: 150, RetentionAge: -1}

// tb is what *testing.T and *rapid.T share.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func must(t tb, err error) {
	if err != nil {
		t.Helper() // costs a walk of the stack
		t.Fatalf("%v", err)
	}
}

// mkBatch makes a batch with records of the given timestamps.
func mkBatch(o recordbatch.BuildOptions, ts ...int64) recordbatch.Batch {
	recs := make([]recordbatch.Record, len(ts))
	for i := range ts {
		recs[i] = recordbatch.Record{Timestamp: ts[i], Key: []byte("key"), Value: []byte("some value")}
	}
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		panic(err)
	}
	return b
}

func plain(ts ...int64) recordbatch.Batch { return mkBatch(recordbatch.NoProducer(), ts...) }

func idempotent(pid int64, epoch int16, seq int32, n int) recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = pid, epoch, seq
	ts := make([]int64, n)
	for i := range ts {
		ts[i] = time.Now().UnixMilli()
	}
	return mkBatch(o, ts...)
}

// openTest opens a log whose background work runs in place.
func openTest(t tb, fsys vfs.FS, cfg Config, o OpenOptions) *Log {
	t.Helper()
	l, err := Open(fsys, dir, cfg, o)
	must(t, err)
	return l
}

func newLog(t *testing.T, cfg Config) (*Log, vfs.FS) {
	t.Helper()
	m := vfs.NewMem()
	l := openTest(t, m, cfg, OpenOptions{CleanShutdown: true})
	t.Cleanup(func() { _ = l.abandon() })
	return l, m
}

func appendTo(t tb, l *Log, b []byte, epoch int32) AppendInfo {
	t.Helper()
	info, err := l.AppendLeader(b, epoch)
	must(t, err)
	return info
}

// readAll reads [from, upTo) in pieces of at most max bytes and checks each slice.
func readAll(t tb, l *Log, from, upTo int64, max int) []byte {
	t.Helper()
	var out []byte
	for from < upTo {
		s, err := l.Read(from, max, upTo, true)
		must(t, err)
		if s.Len == 0 {
			break
		}
		p := make([]byte, s.Len)
		_, err = s.ReadInto(p)
		must(t, err)
		first, last := int64(-1), int64(-1)
		n := 0
		for b, err := range recordbatch.Split(p) {
			must(t, err)
			if b.CRC() != b.ComputeCRC() {
				t.Fatalf("batch at %d is damaged", b.BaseOffset())
			}
			if first < 0 {
				first = b.BaseOffset()
			}
			last = b.LastOffset()
			n++
		}
		// Between batches that compaction has thinned out a slice may end in the gap.
		if first != s.FirstOffset || last > s.LastOffset || last < from || last >= upTo || s.Len > max && n > 1 {
			t.Fatalf("read from %d, at most %d up to %d: got %d..%d in %d bytes, slice says %d..%d", from, max, upTo, first, last, s.Len, s.FirstOffset, s.LastOffset)
		}
		s.Close()
		out = append(out, p...)
		from = s.LastOffset + 1
	}
	return out
}

func wantBytes(t tb, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes, want %d (equal: %v)", len(got), len(want), bytes.Equal(got, want))
	}
}
