package commitlog

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// A backlog of batches of one record, each with an entry in both indexes, offset by
// offset a millisecond later. Only runs of backlogRun batches are in the file, one run
// in backlogEvery batches and at the end; between them are holes, where nobody reads.
const (
	backlogBatch = 4096
	backlogRun   = 16
	backlogEvery = 4096
	backlogEpoch = int64(1_700_000_000_000) // time of offset 0, ms
)

// BenchmarkBacklog shows that what an append, a read and a lookup cost does not depend
// on how much is in the log:
//
//	go test -run - -bench Backlog -benchtime 20000x ./dataplane/commitlog
func BenchmarkBacklog(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int64
	}{{"1MB", 1 << 20}, {"100MB", 100 << 20}, {"1GB", 1 << 30}, {"10GB", 10 << 30}, {"50GB", 50 << 30}} {
		b.Run(size.name, func(b *testing.B) { benchBacklog(b, size.bytes) })
	}
}

func benchBacklog(b *testing.B, bytes int64) {
	path := filepath.Join(b.TempDir(), "t-0")
	end := makeBacklog(b, path, bytes)
	cfg := Config{RetentionAge: -1, IndexIntervalBytes: -1, DeleteDelay: -1}
	began := time.Now()
	l, err := Open(vfs.OS, path, cfg, OpenOptions{CleanShutdown: true, RecoveryPoint: end})
	if err != nil {
		b.Fatal(err)
	}
	opened := time.Since(began)
	defer func() {
		if err := l.Delete(); err != nil {
			b.Fatal(err)
		}
	}()
	if l.EndOffset() != end {
		b.Fatalf("log ends at %d, not %d", l.EndOffset(), end)
	}
	spots := max(end/backlogEvery, 1)
	next := int64(0)
	spot := func() int64 { // steps that meet every run in a scattered order
		next = (next + 7919) % spots
		return next * backlogEvery
	}
	cpu := func(b *testing.B, f func()) { // other work on the machine counts in ns/op, not in this
		var before, after unix.Rusage
		_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
		for b.Loop() {
			f()
		}
		_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
		used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op")
	}
	read := func(b *testing.B, from, upTo int64) {
		s, err := l.Read(from, 8*backlogBatch, upTo, true)
		if err != nil || s.Len == 0 {
			b.Fatalf("read at %d: %d bytes, %v", from, s.Len, err)
		}
		s.Close()
	}
	b.Run("open", func(b *testing.B) { b.ReportMetric(float64(opened.Microseconds()), "µs") })
	b.Run("read-random", func(b *testing.B) { cpu(b, func() { read(b, spot()+3, end) }) })
	b.Run("read-tail", func(b *testing.B) { cpu(b, func() { read(b, end-2, end) }) })
	b.Run("by-time", func(b *testing.B) {
		cpu(b, func() {
			want := spot() + 5
			got, _, _, found, err := l.OffsetForTimestamp(backlogEpoch+want, end)
			if err != nil || !found || got != want {
				b.Fatalf("time of offset %d: %d, %v, %v", want, got, found, err)
			}
		})
	})
	batch := backlogRecord(b, backlogEpoch+end)
	appendOne := func(b *testing.B) {
		if _, err := l.AppendLeader(batch, 0); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("append", func(b *testing.B) { cpu(b, func() { appendOne(b) }) })
	b.Run("append-and-read", func(b *testing.B) {
		cpu(b, func() {
			appendOne(b)
			read(b, l.EndOffset()-1, l.EndOffset())
		})
	})
}

// backlogRecord is a batch of one record that is backlogBatch long.
func backlogRecord(b *testing.B, ts int64) recordbatch.Batch {
	n := backlogBatch - recordbatch.HeaderSize - 9 // what a record of that length needs beside its value
	batch, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: ts, Value: make([]byte, n)}})
	if err != nil || len(batch) != backlogBatch {
		b.Fatalf("batch has %d bytes, %v", len(batch), err)
	}
	return batch
}

// makeBacklog writes the files of a log that was closed in order.
func makeBacklog(b *testing.B, path string, bytes int64) (end int64) {
	check := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	check(os.MkdirAll(path, 0o755))
	for bytes > 0 {
		size := min(bytes, 1<<30)
		bytes -= size
		base, n := end, size/backlogBatch
		f, err := os.Create(segmentPath(path, base, logSuffix))
		check(err)
		check(f.Truncate(size))
		var offsets, times []byte
		for i := range n {
			o, t := offsetEntry(uint32(i), i*backlogBatch), timeEntry(backlogEpoch+base+i, uint32(i))
			offsets, times = append(offsets, o[:]...), append(times, t[:]...)
			if i%backlogEvery < backlogRun || i >= n-backlogRun {
				batch := backlogRecord(b, backlogEpoch+base+i)
				batch.SetBaseOffset(base + i)
				batch.SetLeaderEpoch(0)
				_, err := f.WriteAt(batch, i*backlogBatch)
				check(err)
			}
		}
		check(f.Close())
		check(os.WriteFile(segmentPath(path, base, indexSuffix), offsets, 0o644))
		check(os.WriteFile(segmentPath(path, base, timeSuffix), times, 0o644))
		end += n
	}
	check(os.WriteFile(filepath.Join(path, epochsFile), fmt.Append(nil, "0\n1\n0 0\n"), 0o644))
	check(writeFile(vfs.OS, segmentPath(path, end, snapshotSuffix), (&producers{}).encode(), false))
	return end
}
