package commitlog

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"testing"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// TestCrashAtAnyOperationOfACleanLosesNothing takes the disk as a power cut would leave
// it before each operation of a clean and after the last, and the files as kill -9 would:
// what is found then is the log before or after, segment by segment, of each key the
// newest value, every time the same, and indexes that fit.
func TestCrashAtAnyOperationOfACleanLosesNothing(t *testing.T) {
	runs := 4
	if n, err := strconv.Atoi(os.Getenv("CLEAN_CRASH_RUNS")); err == nil {
		runs = n
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { cleanCrashRun(t, rand.New(rand.NewSource(int64(seed)))) })
	}
}

func cleanCrashRun(t *testing.T, r *rand.Rand) {
	mem := vfs.NewMem()
	must(t, mem.MkdirAll("/data"))
	must(t, mem.SyncDir("/"))
	var images []*vfs.Mem
	watching := false
	fsys := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op, _ string) error {
		if watching && op != vfs.OpRead && op != vfs.OpList {
			images = append(images, mem.Crash(r))
		}
		return nil
	}}
	cfg := compacted
	cfg.SegmentBytes = int32(300 + r.Intn(1500))
	l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
	l.bg = func(func()) {} // Flush is called below
	codecs := []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecLZ4}
	for range 40 {
		var ws []string
		for range 1 + r.Intn(3) {
			w := fmt.Sprintf("k%d=%d", r.Intn(12), r.Intn(1000))
			if r.Intn(5) == 0 {
				w = fmt.Sprintf("k%d=-", r.Intn(12))
			}
			ws = append(ws, w)
		}
		o := recordbatch.NoProducer()
		o.Codec = codecs[r.Intn(2)]
		appendTo(t, l, keyed(o, 1000, ws...), 0)
		if r.Intn(6) == 0 {
			must(t, rollNow(l))
		}
	}
	must(t, l.Flush())
	firstDirty := int64(0)
	for i := range 3 {
		now := at(0)
		if i == 2 {
			now = at(2 * hour) // tombstones go
		}
		before := all(t, l)
		watching = true
		st, err := l.Clean(context.Background(), CleanOptions{FirstDirty: firstDirty, UpTo: l.EndOffset(), Now: now, Map: newMap(t, 4+r.Intn(20))})
		watching = false
		must(t, err)
		firstDirty = st.End
		images = append(images, mem.Crash(r))
		after := all(t, l)
		for n, image := range images {
			checkCleanImage(t, image, cfg, r, before, after, fmt.Sprintf("clean %d, image %d of %d", i, n, len(images)))
		}
		images = nil
		put(t, l, "x=1")
		must(t, rollNow(l))
		must(t, l.Flush())
	}
	must(t, l.Close())
}

func checkCleanImage(t *testing.T, image *vfs.Mem, cfg Config, r *rand.Rand, before, after []kv, what string) {
	t.Helper()
	open := OpenOptions{RecoveryPoint: int64(r.Intn(60))} // the checkpoint may be old
	l, err := Open(image, dir, cfg, open)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := all(t, l)
	between(t, what, before, after, got)
	if l.EndOffset() != before[len(before)-1].offset+1 {
		t.Fatalf("%s: log ends at %d, not %d", what, l.EndOffset(), before[len(before)-1].offset+1)
	}
	must(t, l.abandon())
	names(t, image, func(n string) {
		if len(tempFiles([]vfs.Info{{Name: n}}, cleanedSuffix))+len(tempFiles([]vfs.Info{{Name: n}}, swapSuffix)) > 0 {
			t.Fatalf("%s: %s is left", what, n)
		}
	})
	l = openTest(t, image, cfg, open)
	if again := all(t, l); words(again) != words(got) {
		t.Fatalf("%s: the second start finds %s\nthe first found %s", what, words(again), words(got))
	}
	for _, x := range got {
		if rs := recordsFrom(t, l, x.offset); words(rs[:1]) != x.String() {
			t.Fatalf("%s: at offset %d is %v", what, x.offset, rs[0])
		}
	}
	must(t, l.abandon())
}

// between checks that the log holds all that stays, nothing that was not there, and of
// every key the newest value: a tombstone that went must have taken all before it along.
func between(t *testing.T, what string, before, after, got []kv) {
	t.Helper()
	was := map[int64]kv{}
	for _, x := range before {
		was[x.offset] = x
	}
	have := map[int64]bool{}
	for _, x := range got {
		if was[x.offset] != x {
			t.Fatalf("%s: holds %v, which was not there", what, x)
		}
		have[x.offset] = true
	}
	for _, x := range after {
		if !have[x.offset] {
			t.Fatalf("%s: %v is lost", what, x)
		}
	}
	if a, b := newest(before), newest(got); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Fatalf("%s: newest values are %v, want %v", what, b, a)
	}
}

// newest is the last value of each key that has one.
func newest(rs []kv) map[string]string {
	m := map[string]string{}
	for _, x := range rs {
		if m[x.key] = x.value; x.value == "-" {
			delete(m, x.key)
		}
	}
	return m
}
