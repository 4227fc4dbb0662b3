package commitlog

import (
	"errors"
	"fmt"
	"io"
	"math/rand"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// countingFS knows how many files are open, and how many were at most.
type countingFS struct {
	vfs.FS
	now, most atomic.Int64
	fail      atomic.Pointer[error] // what Open answers once
}

type countedFile struct {
	vfs.File
	fs   *countingFS
	shut atomic.Bool
}

func (c *countingFS) Open(name string, create bool) (vfs.File, error) {
	if err := c.fail.Swap(nil); err != nil {
		return nil, *err
	}
	f, err := c.FS.Open(name, create)
	if err != nil {
		return nil, err
	}
	n := c.now.Add(1)
	for m := c.most.Load(); n > m && !c.most.CompareAndSwap(m, n); m = c.most.Load() {
	}
	return &countedFile{File: f, fs: c}, nil
}

func (f *countedFile) Close() error {
	if f.shut.Swap(true) {
		return errors.New("closed twice")
	}
	f.fs.now.Add(-1)
	return f.File.Close()
}

func (f *countedFile) ReadAt(p []byte, off int64) (int, error) {
	if f.shut.Load() {
		return 0, errors.New("read after close")
	}
	return f.File.ReadAt(p, off)
}

// limitOpenFiles starts a test with no file of another one in the count.
func limitOpenFiles(t *testing.T, n int) {
	opened.mu.Lock()
	was := opened.limit
	opened.shrink(0, 2*len(opened.files))
	opened.mu.Unlock()
	LimitOpenFiles(n)
	t.Cleanup(func() { LimitOpenFiles(was) })
}

func TestOpenFilesStayBoundedOverManyLogs(t *testing.T) {
	limitOpenFiles(t, 8)
	c := &countingFS{FS: vfs.NewMem()}
	var logs []*Log
	for i := range 40 {
		l, err := Open(c, fmt.Sprintf("/data/t-%d", i), small, OpenOptions{CleanShutdown: true})
		must(t, err)
		logs = append(logs, l)
	}
	var want [40][]byte
	var waiting []func()
	for _, l := range logs {
		l.bg = func(f func()) { waiting = append(waiting, f) }
	}
	r := rand.New(rand.NewSource(1))
	for range 2000 {
		i := r.Intn(len(logs))
		b := plain(time.Now().UnixMilli(), 1)
		appendTo(t, logs[i], b, 0)
		want[i] = append(want[i], b...)
		for ; len(waiting) > 0; waiting = waiting[1:] {
			waiting[0]()
		}
		if r.Intn(10) == 0 {
			must(t, logs[i].Flush())
		}
	}
	for i, l := range logs {
		wantBytes(t, readAll(t, l, 0, l.EndOffset(), 700), want[i])
		_, _, _, found, err := l.OffsetForTimestamp(5, l.EndOffset())
		must(t, err)
		if !found && l.EndOffset() > 0 {
			t.Fatal("no record found by its time")
		}
	}
	// A flush pins three, and checkpoints and snapshots are opened by themselves.
	if m := c.most.Load(); m > 8+4 {
		t.Errorf("%d files were open at once", m)
	}
	if n := c.now.Load(); n > 8 {
		t.Errorf("%d files stay open, the limit is 8", n)
	}
	for _, l := range logs {
		must(t, l.Close())
	}
	if n := c.now.Load(); n != 0 {
		t.Errorf("%d files are open after all logs were closed", n)
	}
}

// Where more files are busy than may be open, a few more are for a moment. That must not cut
// the replies of readers short: only files that they keep in use may.
func TestFilesAreNotShortWhileTheyAreUsedInTurn(t *testing.T) {
	const limit = 1024
	limitOpenFiles(t, limit)
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll(dir))
	var files []*fileRef
	use := func(r *fileRef) {
		_, err := r.pin()
		must(t, err)
		must(t, r.release())
	}
	more := false
	for base := range int64(2 * limit) {
		files = append(files, newFileRef(fsys, dir, base, logSuffix, true))
		_, err := files[base].pin()
		must(t, err)
		more = more || opened.over.Load()
		if FilesShort() {
			t.Fatalf("short of files with %d open of %d", len(opened.files), limit)
		}
		must(t, files[base].release())
		for _, r := range files[max(0, base-limit/2):] {
			use(r)
		}
	}
	if !more {
		t.Error("there were never more open than allowed: nothing is shown")
	}
	for _, r := range files[:limit+limit/32] {
		_, err := r.pin()
		must(t, err)
	}
	if !FilesShort() {
		t.Errorf("not short of files with %d in use of %d", limit+limit/32, limit)
	}
	for _, r := range files[:limit+limit/32] {
		must(t, r.release())
	}
	if FilesShort() {
		t.Errorf("short of files when they are in use no more: %d open of %d", len(opened.files), limit)
	}
	for _, r := range files {
		must(t, r.retire())
	}
}

func TestASliceKeepsItsFileOpenWhateverElseIsOpened(t *testing.T) {
	limitOpenFiles(t, 2)
	c := &countingFS{FS: vfs.NewMem()}
	l, err := Open(c, dir, small, OpenOptions{CleanShutdown: true})
	must(t, err)
	var want []byte
	for i := range 200 {
		b := plain(int64(i))
		appendTo(t, l, b, 0)
		want = append(want, b...)
	}
	var slices []Slice
	for from := int64(0); from < l.EndOffset(); {
		s, err := l.Read(from, 300, l.EndOffset(), true)
		must(t, err)
		slices = append(slices, s)
		from = s.LastOffset + 1
	}
	must(t, l.TruncateFullyAndStartAt(5)) // renames every file under its readers
	var got []byte
	for i := range slices {
		p := make([]byte, slices[i].Len)
		_, err := slices[i].ReadInto(p)
		must(t, err)
		got = append(got, p...)
		slices[i].Close()
		slices[i].Close()
	}
	wantBytes(t, got, want)
	must(t, l.Close())
	if n := c.now.Load(); n != 0 {
		t.Errorf("%d files are open after all", n)
	}
}

func TestFilesAboveTheBoundGoWhenTheyAreReleased(t *testing.T) {
	limitOpenFiles(t, 5)
	c := &countingFS{FS: vfs.NewMem()}
	var logs []*Log
	var slices []Slice
	for i := range 300 { // one fetch of many partitions
		l, err := Open(c, fmt.Sprintf("/data/t-%d", i), Config{}, OpenOptions{CleanShutdown: true})
		must(t, err)
		appendTo(t, l, plain(1), 0)
		s, err := l.Read(0, 1000, 1, true)
		must(t, err)
		logs, slices = append(logs, l), append(slices, s)
	}
	if n := c.now.Load(); n < 300 {
		t.Fatalf("only %d files are open", n)
	}
	for i := range slices {
		slices[i].Close()
	}
	if n := c.now.Load(); n > 5 {
		t.Errorf("%d files stay open, the limit is 5", n)
	}
	for _, l := range logs {
		must(t, l.Close())
	}
}

func TestWithoutADescriptorLeftUnusedFilesGiveTheirs(t *testing.T) {
	limitOpenFiles(t, 100)
	c := &countingFS{FS: vfs.NewMem()}
	var logs []*Log
	for i := range 10 {
		l, err := Open(c, fmt.Sprintf("/data/t-%d", i), small, OpenOptions{CleanShutdown: true})
		must(t, err)
		appendTo(t, l, plain(1), 0)
		logs = append(logs, l)
	}
	before := c.now.Load()
	must(t, logs[0].active().file.idle())
	err := fmt.Errorf("open: %w", error(syscall.EMFILE))
	c.fail.Store(&err)
	appendTo(t, logs[0], plain(1), 0)
	if n := c.now.Load(); n >= before {
		t.Errorf("%d files open, before %d", n, before)
	}
	for _, l := range logs {
		must(t, l.Close())
	}
}

// Readers, appends, truncations, retention and flushes of several logs share two
// descriptors, so that files are opened and closed under all of them.
func TestFilesAreClosedAndOpenedUnderConcurrentUse(t *testing.T) {
	limitOpenFiles(t, 2)
	c := &countingFS{FS: vfs.NewMem()}
	var wg sync.WaitGroup
	for i := range 3 {
		cfg := small
		cfg.RetentionBytes, cfg.DeleteDelay = 8000, -1
		l, err := Open(c, fmt.Sprintf("/data/t-%d", i), cfg, OpenOptions{CleanShutdown: true})
		must(t, err)
		var work, readers sync.WaitGroup
		stop := make(chan struct{})
		for range 2 {
			readers.Go(func() {
				r := rand.New(rand.NewSource(int64(i)))
				for {
					select {
					case <-stop:
						return
					default:
					}
					start, end := l.StartOffset(), l.EndOffset()
					if end <= start {
						continue
					}
					s, err := l.Read(start+r.Int63n(end-start), 1500, end, true)
					if err == nil && s.Len > 0 {
						p := make([]byte, s.Len)
						if _, err = s.ReadInto(p); err == nil {
							for b, berr := range recordbatch.Split(p) {
								if berr != nil || b.CRC() != b.ComputeCRC() {
									t.Errorf("slice at %d is damaged: %v", s.FirstOffset, berr)
								}
							}
						}
					}
					s.Close()
					_, _, _, _, terr := l.OffsetForTimestamp(r.Int63n(300), end)
					// A truncation or retention may be faster; what is read is judged all the same.
					if err := errors.Join(err, terr); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !isOutOfRange(err) {
						t.Error(err)
						return
					}
				}
			})
		}
		work.Go(func() {
			r := rand.New(rand.NewSource(int64(100 + i)))
			for n := range 400 {
				appendTo(t, l, plain(int64(n), int64(n)), 0)
				var err error
				switch r.Intn(20) {
				case 0:
					_, err = l.TruncateTo(max(l.StartOffset(), l.EndOffset()-int64(r.Intn(30))))
				case 1:
					_, err = l.DeleteOldSegments(time.Now(), l.EndOffset())
				case 2:
					err = l.Flush()
				case 3:
					_, err = l.RemoveDeleted(time.Now())
				}
				if err != nil {
					t.Error(err)
				}
			}
			close(stop)
		})
		wg.Go(func() {
			work.Wait()
			readers.Wait()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := c.now.Load(); n != 0 {
		t.Errorf("%d files are open after all logs were closed", n)
	}
}

func isOutOfRange(err error) bool { return strings.Contains(err.Error(), "OFFSET_OUT_OF_RANGE") }

// readsOfLogs opens the log again and tells how many reads of .log files that made,
// by file, and how many bytes of the last one.
func readsOfLogs(t *testing.T, fsys vfs.FS, path string, cfg Config, o OpenOptions) (l *Log, reads map[string]int) {
	t.Helper()
	reads = map[string]int{}
	var mu sync.Mutex
	f := &vfs.Faulty{FS: fsys, Hook: func(op vfs.Op, name string) error {
		if op == vfs.OpRead && strings.HasSuffix(name, logSuffix) {
			mu.Lock()
			defer mu.Unlock()
			reads[filepath.Base(name)]++
		}
		return nil
	}}
	l, err := Open(f, path, cfg, o)
	must(t, err)
	return l, reads
}

func TestACleanStartReadsNoLogDataButTheTailOfTheLastSegment(t *testing.T) {
	fsys := vfs.NewMem()
	cfg := small
	cfg.IndexIntervalBytes = 1000
	l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
	var want []byte
	for i := range 300 {
		ts := int64(1000 - i) // the largest timestamp is the first: nobody may go looking for it
		b := plain(ts)
		if i%2 == 0 {
			b = plain(ts, ts-1)
		}
		appendTo(t, l, b, int32(i/100))
		want = append(want, b...)
	}
	end, segs := l.EndOffset(), len(l.segments())
	type state struct{ size, next, maxTs, maxTsLast int64 }
	stateOf := func(l *Log) (all []state) {
		for _, s := range l.segments() {
			all = append(all, state{s.size, s.next, s.maxTs, s.maxTsLast})
		}
		return all
	}
	before := stateOf(l)
	must(t, l.Close())
	if segs < 5 {
		t.Fatalf("only %d segments", segs)
	}
	l, reads := readsOfLogs(t, fsys, dir, cfg, OpenOptions{CleanShutdown: true, RecoveryPoint: end})
	last := filepath.Base(l.active().path(logSuffix))
	if len(reads) > 1 || reads[last] > 1 {
		t.Errorf("reads of log files at a clean start: %v; only one of %s may be", reads, last)
	}
	if l.EndOffset() != end {
		t.Fatalf("end is %d, was %d", l.EndOffset(), end)
	}
	if got := stateOf(l); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("segments are now\n%v, were\n%v", got, before)
	}
	wantBytes(t, readAll(t, l, 0, end, 3000), want)
	must(t, l.Close())

	// After a crash what lies below the recovery point is not read either.
	point := l.segments()[2].base
	l, reads = readsOfLogs(t, fsys, dir, cfg, OpenOptions{RecoveryPoint: point})
	for _, s := range l.segments()[:2] {
		if n := reads[filepath.Base(s.path(logSuffix))]; n > 0 {
			t.Errorf("%d reads of segment %d below the recovery point %d", n, s.base, point)
		}
	}
	wantBytes(t, readAll(t, l, 0, end, 3000), want)
	must(t, l.abandon())
}
