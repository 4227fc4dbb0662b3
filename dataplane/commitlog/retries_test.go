package commitlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// inFlight are the batches of producers 1 and 2 that their clients may send again, as
// they were sent, with the offsets that they got.
type inFlight struct {
	sent  []recordbatch.Batch
	first []int64
}

// produce appends seven batches of each of two producers, of which the last five may
// come again.
func produce(t *testing.T, l *Log) (f inFlight) {
	t.Helper()
	for i := range 7 {
		for id := int64(1); id <= 2; id++ {
			b := idempotent(id, 0, int32(2*i), 2)
			again := bytes.Clone(b)
			info := appendTo(t, l, b, 3)
			if i >= 2 {
				f.sent, f.first = append(f.sent, again), append(f.first, info.FirstOffset)
			}
		}
	}
	return f
}

// below are those that end below offset.
func (f inFlight) below(offset int64) (out inFlight) {
	for i, b := range f.sent {
		if f.first[i]+int64(b.LastOffsetDelta()) < offset {
			out.sent, out.first = append(out.sent, b), append(out.first, f.first[i])
		}
	}
	return out
}

func (f inFlight) retry(t *testing.T, l *Log) {
	t.Helper()
	end := l.EndOffset()
	for i, b := range f.sent {
		info, err := l.AppendLeader(bytes.Clone(b), 3)
		if err != nil || !info.Duplicate || info.FirstOffset != f.first[i] || info.MaxTimestamp != b.MaxTimestamp() {
			t.Errorf("retry of producer %d's batch at %d: %+v, %v", b.ProducerID(), f.first[i], info, err)
		}
	}
	if l.EndOffset() != end {
		t.Errorf("retries moved the end from %d to %d", end, l.EndOffset())
	}
}

// What a producer may have in flight is known whatever has happened to the log since.
func TestRetriesAreKnownAfter(t *testing.T) {
	kill := func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
		must(t, l.abandon())
		return openTest(t, fsys, cfg, OpenOptions{RecoveryPoint: l.RecoveryPoint(), LogStartOffset: l.StartOffset()})
	}
	restart := func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
		must(t, l.Close())
		return openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true, RecoveryPoint: l.RecoveryPoint(), LogStartOffset: l.StartOffset()})
	}
	roll := func(t *testing.T, l *Log) {
		l.mu.Lock()
		must(t, l.roll(l.EndOffset()))
		l.mu.Unlock()
		l.wg.Wait()
	}
	others := func(t *testing.T, l *Log, n int) {
		for i := range n {
			appendTo(t, l, plain(int64(i)), 3)
		}
	}
	for name, f := range map[string]func(*testing.T, *Log, vfs.FS, Config) *Log{
		"a clean restart": restart,
		"clean restarts": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			l = restart(t, l, fsys, cfg)
			others(t, l, 1)
			return restart(t, restart(t, l, fsys, cfg), fsys, cfg)
		},
		"a kill": kill,
		"a kill after a clean restart": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			l = restart(t, l, fsys, cfg)
			others(t, l, 1)
			return kill(t, l, fsys, cfg)
		},
		"kills after a roll": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			roll(t, l)
			others(t, l, 30)
			must(t, l.Flush())
			for range 3 {
				if l = kill(t, l, fsys, cfg); l.recovered.Segments > 1 { // only the last is read through
					t.Fatalf("%+v", l.recovered)
				}
			}
			return l
		},
		"a truncation after a roll": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			roll(t, l)
			end := l.EndOffset()
			others(t, l, 30)
			_, err := l.TruncateTo(end + 7)
			must(t, err)
			return l
		},
		"a truncation after a clean restart": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			l = restart(t, l, fsys, cfg)
			end := l.EndOffset()
			others(t, l, 3)
			_, err := l.TruncateTo(end + 1)
			must(t, err)
			return restart(t, l, fsys, cfg)
		},
		"all of it is deleted": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			_, err := l.IncrementStartOffset(l.EndOffset())
			must(t, err)
			_, err = l.DeleteOldSegments(time.Now(), l.EndOffset())
			must(t, err)
			if l.StartOffset() != l.EndOffset() {
				t.Fatalf("%d..%d is left", l.StartOffset(), l.EndOffset())
			}
			return restart(t, l, fsys, cfg)
		},
		"a compaction and a kill": func(t *testing.T, l *Log, fsys vfs.FS, cfg Config) *Log {
			roll(t, l)
			m, err := NewOffsetMap(100*SlotSize, 1)
			must(t, err)
			st, err := l.Clean(context.Background(), CleanOptions{UpTo: l.EndOffset(), Now: time.Now(), Map: m})
			must(t, err)
			if st.End != l.EndOffset() || l.Size() > 700 {
				t.Fatalf("the clean ends at %d of %d and leaves %d bytes", st.End, l.EndOffset(), l.Size())
			}
			l = restart(t, l, fsys, cfg)
			others(t, l, 1)
			return kill(t, l, fsys, cfg)
		},
		"another replica becomes the leader": func(t *testing.T, l *Log, _ vfs.FS, cfg Config) *Log {
			copied := readAll(t, l, 0, l.EndOffset(), 700)
			must(t, l.Close())
			fsys := vfs.NewMem()
			l = openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
			_, err := l.AppendFollower(copied)
			must(t, err)
			return restart(t, l, fsys, cfg)
		},
	} {
		for _, cfg := range []Config{{RetentionAge: -1}, small} {
			t.Run(fmt.Sprintf("%s, segments of %d bytes", name, cfg.SegmentBytes), func(t *testing.T) {
				l, fsys := newLog(t, cfg)
				sent := produce(t, l)
				l.wg.Wait()
				l = f(t, l, fsys, cfg)
				defer l.abandon()
				sent.retry(t, l)
			})
		}
	}
}

func TestRetriesOfWhatIsLeftAreKnownAfterATruncation(t *testing.T) {
	for at := int64(15); at < 28; at += 2 {
		l, fsys := newLog(t, small)
		sent := produce(t, l)
		l.wg.Wait()
		_, err := l.TruncateTo(at)
		must(t, err)
		sent.below(at).retry(t, l)
		must(t, l.Close())
		l = openTest(t, fsys, small, OpenOptions{CleanShutdown: true})
		sent.below(at).retry(t, l)
		must(t, l.Close())
	}
}

// Another broker may have had the folder since: it knows nothing of our file, and what
// that says may be of batches that are gone.
func TestEarlierBatchesAreThoseOfTheirSnapshot(t *testing.T) {
	l, fsys := newLog(t, Config{})
	sent := produce(t, l)
	end := l.EndOffset()
	must(t, l.Close())
	snapshot, batches := segmentPath(dir, end, snapshotSuffix), segmentPath(dir, end, batchesSuffix)
	read := func(name string) []byte {
		b, err := vfs.ReadFile(fsys, name, 1<<20)
		must(t, err)
		return b
	}
	s, b, epochs := read(snapshot), read(batches), read(dir+"/"+epochsFile)
	write := func(name string, b []byte) { must(t, vfs.WriteFileAtomic(fsys, name, b)) }
	unknown := func(why string) {
		t.Helper()
		l := openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
		defer l.abandon()
		for i, b := range sent.sent {
			info, err := l.AppendLeader(bytes.Clone(b), 3)
			if last := i >= len(sent.sent)-2; last && !info.Duplicate || !last && !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
				t.Errorf("%s: retry of batch %d: %+v, %v", why, i, info, err)
			}
		}
	}
	must(t, fsys.Remove(batches))
	unknown("without the file")
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		write(batches, bad)
		unknown(fmt.Sprintf("byte %d flipped", i))
	}
	write(batches, b[:len(b)-1])
	unknown("cut")
	write(batches, b)
	write(dir+"/"+epochsFile, []byte("0\n1\n4 0\n"))
	unknown("the same end and producers, by another leader")
	write(dir+"/"+epochsFile, epochs)
	write(snapshot, append(bytes.Clone(s), 0)) // and then it is made from the batches
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	sent.retry(t, l)
	must(t, l.abandon())
	write(snapshot, s)
	write(batches, b)
	l = openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true})
	sent.retry(t, l)
	appendTo(t, l, plain(1), 3)
	must(t, l.Close())
	if _, err := fsys.Stat(batches); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of the stop before: %v", err)
	}
}

// Where no batch is left to tell the leaders by, the snapshot itself must be the one.
func TestEarlierBatchesWithoutABatchInTheLog(t *testing.T) {
	l, fsys := newLog(t, Config{})
	sent := produce(t, l)
	end := l.EndOffset()
	_, err := l.IncrementStartOffset(end)
	must(t, err)
	_, err = l.DeleteOldSegments(time.Now(), end)
	must(t, err)
	must(t, l.Close())
	open := func() *Log {
		return openTest(t, fsys, Config{}, OpenOptions{CleanShutdown: true, RecoveryPoint: end, LogStartOffset: end})
	}
	l = open()
	sent.retry(t, l)
	must(t, l.abandon())
	snapshot := segmentPath(dir, end, snapshotSuffix)
	b, err := vfs.ReadFile(fsys, snapshot, 1<<20)
	must(t, err)
	ps, err := decodeSnapshot(b)
	must(t, err)
	ps.byID[1].lastTimestamp++
	must(t, vfs.WriteFileAtomic(fsys, snapshot, ps.encode()))
	l = open()
	if n := l.producers.byID[1].n; n != 1 {
		t.Errorf("%d batches of another log are taken", n)
	}
}
