package commitlog

import (
	"bytes"
	"math"
	"reflect"
	"testing"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func FuzzSnapshot(f *testing.F) {
	ps := &producers{}
	ps.add(idempotent(1, 2, 3, 4), 5)
	f.Add(ps.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if ps, err := decodeSnapshot(b); err == nil {
			again, err := decodeSnapshot(ps.encode())
			if err != nil || !reflect.DeepEqual(again, ps) {
				t.Fatalf("%+v became %+v, %v", ps, again, err)
			}
		}
	})
}

func FuzzBatchesFile(f *testing.F) {
	ps := &producers{}
	ps.add(idempotent(1, 2, 3, 4), 5)
	b := idempotent(1, 2, 7, 4)
	b.SetBaseOffset(9)
	ps.add(b, 6)
	f.Add(ps.encodeBatches(1, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		batches, sum, epoch, err := decodeBatches(b)
		if err != nil {
			return
		}
		ps := &producers{}
		for id, ms := range batches {
			p := ps.get(id)
			p.n = copy(p.batches[:], ms)
		}
		again := ps.encodeBatches(sum, epoch)
		if len(batches) == 0 {
			return
		}
		if got, s, e, err := decodeBatches(again); err != nil || s != sum || e != epoch || !reflect.DeepEqual(got, batches) {
			t.Fatalf("%+v became %+v, %v", batches, got, err)
		}
	})
}

func FuzzCheckpoints(f *testing.F) {
	f.Add([]byte("0\n1\ntopic 3 77\n"))
	f.Add([]byte("0\n2\n1 0\n4 77\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseOffsets(b)
		es, err := parseEpochs(b)
		for i := 1; err == nil && i < len(es); i++ {
			if es[i].epoch <= es[i-1].epoch || es[i].start < es[i-1].start {
				t.Fatalf("not ascending: %v", es)
			}
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte("version=0\ncluster.id=a\\:b\nbroker.id=1\nx=y\n"))
	f.Add([]byte("version: 0\ntopic_id: AQIDAAAAAAAAAAAAAAAAAA\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := parseMeta(b); err == nil {
			if again, err := parseMeta(formatMeta(m)); err != nil || again.BrokerID != m.BrokerID || again.ClusterID != m.ClusterID {
				t.Fatalf("%+v became %+v, %v", m, again, err)
			}
		}
		if id, err := parseTopicID(b); err == nil {
			if again, err := parseTopicID(formatTopicID(id)); err != nil || again != id {
				t.Fatalf("%v became %v, %v", id, again, err)
			}
		}
	})
}

// FuzzOpen opens a log whose files hold anything, cleanly and uncleanly, and reads
// all of it: errors are fine, wild reads are not.
func FuzzOpen(f *testing.F) {
	fsys := vfs.NewMem()
	l, err := Open(fsys, dir, small, OpenOptions{CleanShutdown: true})
	if err != nil {
		f.Fatal(err)
	}
	for i := range 8 {
		if _, err := l.AppendLeader(plain(int64(i), int64(i)), 0); err != nil {
			f.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		f.Fatal(err)
	}
	read := func(suffix string) []byte {
		b, err := vfs.ReadFile(fsys, segmentPath(dir, 0, suffix), 1<<20)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(read(logSuffix), read(indexSuffix), read(timeSuffix), true)
	f.Add(read(logSuffix), read(indexSuffix)[:8], []byte{}, false)
	f.Fuzz(func(t *testing.T, log, index, times []byte, clean bool) {
		fsys := vfs.NewMem()
		must(t, fsys.MkdirAll(dir))
		for suffix, b := range map[string][]byte{logSuffix: log, indexSuffix: index, timeSuffix: times} {
			must(t, vfs.WriteFileAtomic(fsys, segmentPath(dir, 0, suffix), b))
		}
		l, err := Open(fsys, dir, small, OpenOptions{CleanShutdown: clean})
		if err != nil {
			return
		}
		defer l.abandon()
		for from := l.StartOffset(); from < l.EndOffset(); {
			s, err := l.Read(from, 500, math.MaxInt64, true)
			if err != nil || s.Len == 0 {
				break
			}
			p := make([]byte, s.Len)
			if _, err := s.ReadInto(p); err != nil {
				t.Fatal(err)
			}
			from = max(from, s.LastOffset) + 1
			s.Close()
		}
		_, _, _, _, _ = l.OffsetForTimestamp(3, math.MaxInt64)
		if !clean {
			end := l.EndOffset()
			b := plain(1)
			info, err := l.AppendLeader(bytes.Clone(b), math.MaxInt32)
			if err == nil && info.FirstOffset != end {
				t.Fatalf("appended at %d, not %d", info.FirstOffset, end)
			}
			_, _ = l.AppendFollower(recordbatch.Batch(log))
		}
	})
}
