package commitlog

import (
	"errors"
	"testing"
	"time"

	"penstock/dataplane/vfs"
)

// syncs counts the syncs of each kind of file, by the ending of its name.
type syncs struct {
	*vfs.Faulty
	names []string
}

func countSyncs() *syncs {
	s := &syncs{}
	s.Faulty = &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, name string) error {
		if op == vfs.OpSync || op == vfs.OpSyncDir {
			s.names = append(s.names, name)
		}
		return nil
	}}
	return s
}

func (s *syncs) of(name string) (n int) {
	for _, x := range s.names {
		if x == name {
			n++
		}
	}
	return n
}

func TestLogIsFlushedByCountAndByTime(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	open := func(cfg Config) (*Log, *syncs) {
		s := countSyncs()
		l := openTest(t, s, cfg, OpenOptions{CleanShutdown: true, Now: func() time.Time { return now }})
		t.Cleanup(func() { _ = l.abandon() })
		return l, s
	}
	log := segmentPath(dir, 0, logSuffix)

	l, s := open(Config{})
	for range 50 {
		appendTo(t, l, plain(1), 0)
	}
	now = now.Add(1000 * time.Hour)
	must(t, l.FlushIfDue(now))
	if s.of(log) != 0 || l.RecoveryPoint() != 0 {
		t.Errorf("flushed %d times without being asked, recovery point %d", s.of(log), l.RecoveryPoint())
	}

	l, s = open(Config{FlushMessages: 3})
	for i := range 7 {
		appendTo(t, l, plain(1), 0)
		if want := int64((i + 1) / 3 * 3); l.RecoveryPoint() != want {
			t.Errorf("flush.messages=3, %d records: recovery point %d, want %d", i+1, l.RecoveryPoint(), want)
		}
	}
	if s.of(log) != 2 {
		t.Errorf("flush.messages=3: %d syncs for 7 records", s.of(log))
	}

	l, s = open(Config{FlushAge: time.Second})
	appendTo(t, l, plain(1), 0)
	must(t, l.FlushIfDue(now.Add(999*time.Millisecond)))
	if l.RecoveryPoint() != 0 {
		t.Error("flushed before flush.ms was over")
	}
	now = now.Add(time.Second)
	must(t, l.FlushIfDue(now))
	if l.RecoveryPoint() != 1 || s.of(log) != 1 {
		t.Errorf("flush.ms is over: recovery point %d, %d syncs", l.RecoveryPoint(), s.of(log))
	}
	must(t, l.FlushIfDue(now.Add(time.Hour))) // nothing new
	if s.of(log) != 1 {
		t.Error("flushed again without new records")
	}
	appendTo(t, l, plain(1), 0)
	must(t, l.FlushIfDue(now.Add(time.Second)))
	if l.RecoveryPoint() != 2 {
		t.Error("not flushed a second time")
	}
}

// What Kafka syncs, and when: a rolled segment with its indexes and snapshot, the
// epoch file before the data of a new epoch, all of it at the end; nothing per append.
func TestRollEpochAndCloseAreSynced(t *testing.T) {
	s := countSyncs()
	var waiting []func()
	l := openTest(t, s, small, OpenOptions{CleanShutdown: true, Background: func(f func()) { waiting = append(waiting, f) }})
	epochs := dir + "/" + epochsFile + ".tmp"
	appendTo(t, l, plain(1), 0)
	if s.of(epochs) != 1 {
		t.Errorf("epoch file synced %d times", s.of(epochs))
	}
	before := len(s.names)
	appendTo(t, l, plain(1), 0)
	if len(s.names) != before {
		t.Errorf("an append synced %v", s.names[before:])
	}
	for len(l.segments()) == 1 {
		appendTo(t, l, plain(1), 0)
	}
	for _, f := range waiting {
		f()
	}
	base := l.segments()[1].base
	for _, name := range []string{segmentPath(dir, 0, logSuffix), segmentPath(dir, 0, indexSuffix), segmentPath(dir, 0, timeSuffix), segmentPath(dir, base, snapshotSuffix), dir} {
		if s.of(name) == 0 {
			t.Errorf("after a roll %s is not synced", name)
		}
	}
	if l.RecoveryPoint() != base {
		t.Errorf("recovery point %d after a roll at %d", l.RecoveryPoint(), base)
	}
	s.names = nil
	must(t, l.Close())
	// The offset index has no entry yet, and so nothing to sync.
	for _, name := range []string{segmentPath(dir, base, logSuffix), segmentPath(dir, base, timeSuffix), segmentPath(dir, l.EndOffset(), snapshotSuffix), dir} {
		if s.of(name) == 0 {
			t.Errorf("after the end %s is not synced", name)
		}
	}
}

func TestDiskThatCannotBeReadAtRecoveryLosesNothing(t *testing.T) {
	broken := errors.New("medium error")
	fail := false
	mem := vfs.NewMem()
	fsys := &vfs.Faulty{FS: mem, Hook: func(op vfs.Op, _ string) error {
		if fail && op == vfs.OpRead {
			return broken
		}
		return nil
	}}
	l := openTest(t, fsys, small, OpenOptions{CleanShutdown: true})
	for range 30 {
		appendTo(t, l, plain(1), 0)
	}
	must(t, l.abandon())
	fail = true
	if _, err := Open(fsys, dir, small, OpenOptions{}); !errors.Is(err, broken) {
		t.Fatalf("opened with a disk that cannot be read: %v", err)
	}
	fail = false
	l = openTest(t, fsys, small, OpenOptions{})
	defer l.abandon()
	if l.EndOffset() != 30 {
		t.Fatalf("%d of 30 records are left", l.EndOffset())
	}
}

func TestRecordsFromTheFutureDoNotHoldTheLog(t *testing.T) {
	fsys := vfs.NewMem()
	now := time.Now()
	cfg := small
	cfg.RetentionAge = time.Hour
	l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
	defer l.abandon()
	future := now.Add(10_000 * time.Hour).UnixMilli()
	for range 40 {
		appendTo(t, l, plain(future), 0)
	}
	if n, err := l.DeleteOldSegments(now.Add(59*time.Minute), 40); n != 0 || err != nil {
		t.Fatalf("%d segments went before their time, %v", n, err)
	}
	if n, err := l.DeleteOldSegments(now.Add(61*time.Minute), 40); n == 0 || err != nil || l.StartOffset() != 40 {
		t.Fatalf("written an hour ago: %d segments went, start %d, %v", n, l.StartOffset(), err)
	}
	appendTo(t, l, plain(now.Add(90*time.Minute).UnixMilli()), 0) // when that time has come it is judged by it
	if n, err := l.DeleteOldSegments(now.Add(140*time.Minute), 41); n != 0 || err != nil {
		t.Fatalf("%d segments went, %v", n, err)
	}
	if n, err := l.DeleteOldSegments(now.Add(151*time.Minute), 41); n != 1 || err != nil {
		t.Fatalf("%d segments went, %v", n, err)
	}
}

// An append must not wait for the disk because another thread applies retention.
func TestRetentionSyncsBesideTheAppends(t *testing.T) {
	var l *Log
	var held []string
	hooked := vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, name string) error {
		if l != nil && (op == vfs.OpSync || op == vfs.OpSyncDir) {
			if !l.mu.TryLock() {
				held = append(held, name)
				return nil
			}
			l.mu.Unlock()
		}
		return nil
	}}
	log := openTest(t, &hooked, small, OpenOptions{CleanShutdown: true, Background: func(func()) {}})
	for i := range 100 {
		appendTo(t, log, idempotent(7, 0, int32(i), 1), int32(i/20))
	}
	if len(log.segments()) < 5 || len(log.unsynced) == 0 {
		t.Fatalf("%d segments, %d files to sync", len(log.segments()), len(log.unsynced))
	}
	l = log
	_, err := l.IncrementStartOffset(60)
	must(t, err)
	for range 2 { // also with files that the first one has renamed
		n, err := l.DeleteOldSegments(time.Now(), 100)
		if n == 0 || err != nil {
			t.Fatalf("%d segments deleted, %v", n, err)
		}
		_, err = l.IncrementStartOffset(90)
		must(t, err)
	}
	if len(held) > 0 {
		t.Errorf("synced with the log held: %v", held)
	}
	l = nil
	must(t, log.Close())
	again := openTest(t, &hooked, small, OpenOptions{CleanShutdown: true, LogStartOffset: 90})
	if start, ok := again.EpochStart(4); again.StartOffset() != 90 || start != 90 || !ok || len(again.epochs.entries) != 1 || again.epochs.lags() {
		t.Errorf("from %d, epochs %v", again.StartOffset(), again.epochs.entries)
	}
	must(t, again.Close())
}
