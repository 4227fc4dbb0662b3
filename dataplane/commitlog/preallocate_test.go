package commitlog

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// blocks is the disk space of a file in bytes, beside its length.
func blocks(t *testing.T, path string) (space, length int64) {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return st.Blocks * 512, st.Size
}

func TestPreallocatedSpaceIsBehindTheEndAndGoesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t-0")
	cfg := Config{SegmentBytes: 1 << 20, Preallocate: true}
	l, err := Open(vfs.OS, path, cfg, OpenOptions{CleanShutdown: true})
	must(t, err)
	first := segmentPath(path, 0, logSuffix)
	if space, length := blocks(t, first); space < 1<<20 || length != 0 {
		t.Skipf("this file system does not reserve space: %d bytes for a file of %d", space, length)
	}
	big := mkBatch(recordbatch.NoProducer(), make([]int64, 4000)...)
	for len(l.segments()) == 1 {
		appendTo(t, l, big, 0)
	}
	if space, length := blocks(t, first); length != l.segments()[0].size || space > length+64<<10 {
		t.Errorf("finished segment: %d bytes for a file of %d", space, length)
	}
	second := l.active().path(logSuffix)
	end := l.EndOffset()
	must(t, l.abandon()) // kill -9
	if space, length := blocks(t, second); space < 1<<20 || length > 1<<19 {
		t.Fatalf("active segment: %d bytes for a file of %d", space, length)
	}
	l, err = Open(vfs.OS, path, cfg, OpenOptions{})
	must(t, err)
	if l.EndOffset() != end {
		t.Fatalf("log ends at %d, not %d", l.EndOffset(), end)
	}
	must(t, l.Close())
	if space, length := blocks(t, second); space > length+64<<10 {
		t.Errorf("closed segment: %d bytes for a file of %d", space, length)
	}
}

func TestNoRoomToPreallocateIsAStorageError(t *testing.T) {
	fail := false
	fsys := &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, _ string) error {
		if fail && op == vfs.OpAllocate {
			return syscall.ENOSPC
		}
		return nil
	}}
	cfg := small
	cfg.Preallocate = true
	l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
	defer l.abandon()
	fail = true
	acknowledged := int64(0)
	for {
		info, err := l.AppendLeader(plain(1), 0)
		if err != nil {
			if !errors.Is(err, kerr.KafkaStorageError) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%v", err)
			}
			break
		}
		acknowledged = info.LastOffset + 1
	}
	if l.EndOffset() != acknowledged || acknowledged == 0 {
		t.Fatalf("log ends at %d, %d were acknowledged", l.EndOffset(), acknowledged)
	}
}
