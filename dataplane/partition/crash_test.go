package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"testing"
	"time"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/vfs"
	"penstock/dataplane/vfs/crashtest"
)

// TestPowerCutLeavesAFolderThatCanBeTrusted makes, fills, deletes and makes anew the
// replicas of a folder, with its checkpoints, and lets the power fail at a random
// change of the disk; then again while the next start recovers. See folderRun.check.
func TestPowerCutLeavesAFolderThatCanBeTrusted(t *testing.T) {
	crashtest.Run(t, 200, func(t *crashtest.T) { folderCrashRun(t, nil) })
}

// The same runs find faults of the folder's own files.
func TestPowerCutsFindPlantedFaultsOfAFolder(t *testing.T) {
	for name, skip := range map[string]func(op vfs.Op, name string) bool{
		"the folder is never synced": func(op vfs.Op, name string) bool { return op == vfs.OpSyncDir && name == "/data" },
		"a checkpoint is renamed before it is written": func(op vfs.Op, name string) bool {
			return op == vfs.OpSync && bytes.HasSuffix([]byte(name), []byte("checkpoint.tmp"))
		},
		"the clean marker stays": func(op vfs.Op, name string) bool {
			return op == vfs.OpRemove && name == "/data/.kafka_cleanshutdown"
		},
	} {
		t.Run(name, func(t *testing.T) {
			crashtest.Finds(t, 3000, func(t *crashtest.T) {
				folderCrashRun(t, func(m *vfs.Mem) vfs.FS { return crashtest.Lying(m, skip) })
			})
		})
	}
}

// folderRun is a folder under a Manager, and what must be found there after a crash.
type folderRun struct {
	t     *crashtest.T
	r     *rand.Rand
	disk  *vfs.Mem
	wrap  func(*vfs.Mem) vfs.FS
	dir   *commitlog.Dir
	m     *Manager
	wheel *purgatory.Wheel
	bg    []func()
	epoch int32
	ids   byte

	parts map[TopicPartition]*folderPart
}

// folderPart is one replica as it was ordered and acknowledged.
type folderPart struct {
	id       protocol.UUID
	records  [][]byte // one a batch
	safe     int      // as many were flushed
	start    int64    // asked for by DeleteRecords
	saved    int64    // and checkpointed
	maybe    bool     // its making was under way
	deleting bool     // its deletion was under way
}

func folderCrashRun(t *crashtest.T, wrap func(*vfs.Mem) vfs.FS) {
	if wrap == nil {
		wrap = func(m *vfs.Mem) vfs.FS { return m }
	}
	f := &folderRun{t: t, r: t.Rand, disk: vfs.NewMem(), wrap: wrap, parts: map[TopicPartition]*folderPart{}}
	defer func() { f.abandon() }() // a run that fails leaves nothing behind
	if err := f.open(); err != nil {
		t.Fatalf("%v", err)
	}
	for range 1 + f.r.Intn(3) {
		f.disk.CutAt(1+f.r.Intn(150), f.r)
		for range 10 + f.r.Intn(40) {
			if len(f.bg) > 0 && f.r.Intn(2) == 0 {
				f.bg[0]()
				f.bg = f.bg[1:]
			}
			if f.disk.Disk() != nil || !f.step() {
				break
			}
		}
		f.crash()
	}
	f.end()
}

func (f *folderRun) open() error {
	fsys := f.wrap(f.disk)
	dir, err := commitlog.OpenDir(fsys, "/data")
	if err != nil {
		return err
	}
	if _, ok, err := dir.Meta(); err != nil {
		f.t.Fatalf("meta.properties: %v", err)
	} else if !ok {
		err = dir.WriteMeta(commitlog.MetaProperties{ClusterID: "c", BrokerID: 1})
		if err != nil {
			return errors.Join(err, dir.Close(false))
		}
	}
	f.dir, f.wheel = dir, purgatory.NewWheel()
	f.m, err = NewManager(context.Background(), Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: fsys, Dirs: []*commitlog.Dir{dir}, Wheel: f.wheel, ISR: &rig{},
		Topic: func(string) TopicConfig {
			return TopicConfig{MinISR: 1, Log: commitlog.Config{SegmentBytes: 700, IndexIntervalBytes: 150, RetentionAge: -1, DeleteDelay: -1}}
		},
		HighWatermarkCheckpoint: time.Hour, RecoveryCheckpoint: time.Hour, LogStartCheckpoint: time.Hour, RetentionCheck: time.Hour, ReplicaLagTimeMax: time.Hour,
		Background: func(g func()) { f.bg = append(f.bg, g) },
	})
	if err != nil {
		f.wheel.Close()
		return errors.Join(err, dir.Close(false))
	}
	return nil
}

// step does one thing; false if the power failed in it.
func (f *folderRun) step() bool {
	tp := TopicPartition{Topic: fmt.Sprint("topic", f.r.Intn(3)), Partition: 0}
	p := f.parts[tp]
	switch n := f.r.Intn(12); {
	case p == nil:
		f.ids++
		p = &folderPart{id: protocol.UUID{f.ids}, maybe: true}
		f.parts[tp] = p
		p.maybe = f.lead(tp, p.id) != nil
		return !p.maybe
	case n == 0:
		p.deleting = true
		if stopOne(f.t, f.m, tp, epochDuringDelete, true) != nil {
			return false
		}
		delete(f.parts, tp)
	case n == 1:
		l := f.m.Partition(tp).Log()
		end := len(p.records)
		if l.Flush() != nil {
			return false
		}
		p.safe = end
	case n == 2:
		starts := map[TopicPartition]int64{}
		for tp, p := range f.parts {
			starts[tp] = p.start
		}
		if f.m.writeRecoveryPoints(f.dir) != nil || f.m.writeHighWatermark(f.dir) != nil {
			return false
		}
		for tp, s := range starts {
			f.parts[tp].saved = s
		}
	case n == 3:
		if _, err := f.dir.SweepDeleted(time.Now().Add(time.Hour), time.Minute); err != nil {
			return false
		}
	case n == 4:
		to := p.start + f.r.Int63n(int64(len(p.records))-p.start+1)
		was := p.start
		p.start = to
		if _, err := f.m.Partition(tp).Log().IncrementStartOffset(to); err != nil {
			p.start = was
			return false
		}
		f.m.retain()
	case n == 5 && f.r.Intn(3) == 0:
		return f.restart()
	default:
		b := batch(1, fmt.Sprintf("%s %d %d", tp, p.id[0], len(p.records)))
		want := bytes.Clone(b)
		p.records = append(p.records, want)
		done := make(chan AppendResult, 1)
		f.m.Append(AppendRequest{Acks: 1, Timeout: time.Second, ProduceVersion: 9, Entries: []AppendEntry{{TP: tp, Records: b}}}, func(rs []AppendResult) { done <- rs[0] })
		return (<-done).Err == nil
	}
	return f.disk.Disk() == nil
}

func (f *folderRun) lead(tp TopicPartition, id protocol.UUID) error {
	f.epoch++
	return orderOne(f.t, f.m, tp, id, 1, f.epoch, []int32{1}, []int32{1})
}

// restart stops in order and starts again.
func (f *folderRun) restart() bool {
	if !f.close() {
		return false
	}
	for _, p := range f.parts {
		p.safe, p.saved = len(p.records), p.start
	}
	if f.open() != nil {
		return false
	}
	if !f.dir.CleanShutdown() {
		f.t.Fatalf("closed in order, and not clean")
	}
	return f.check(true)
}

func (f *folderRun) close() bool {
	for _, g := range f.bg {
		g()
	}
	f.bg = nil
	err := f.m.Close()
	f.wheel.Close()
	clean := f.m.ClosedClean(f.dir)
	f.m = nil
	return errors.Join(err, f.dir.Close(clean)) == nil && clean
}

// abandon ends the life of a broker that has lost its disk, or could not start on it.
func (f *folderRun) abandon() {
	if f.m != nil {
		f.m.abandon()
		f.wheel.Close()
		_ = f.dir.Close(false)
	}
	f.m, f.bg = nil, nil
}

func (f *folderRun) crash() {
	f.abandon()
	disk := f.disk.Disk()
	if disk == nil {
		disk = f.disk.Crash(f.r)
	}
	for range f.r.Intn(3) {
		disk.CutAt(1+f.r.Intn(60), f.r)
		f.disk = disk
		if err := f.open(); err == nil {
			f.abandon()
		}
		if cut := disk.Disk(); cut != nil {
			disk = cut
		} else {
			disk = disk.Crash(f.r)
		}
	}
	f.disk = disk
	if err := f.open(); err != nil {
		f.t.Fatalf("opening after the crash: %v", err)
	}
	f.check(false)
}

// check holds the folder against what was ordered and acknowledged: replicas that were
// made are there under their id, those that were deleted are not; what was flushed is
// there, and nothing but a first part of what was appended to this replica, not to one
// of the same name before it; the start is not below what was checkpointed; no replica
// and no folder has failed.
func (f *folderRun) check(clean bool) bool {
	t := f.t
	if f.m.offline(f.dir) || len(f.m.damaged) > 0 {
		t.Fatalf("folder failed (%v) or replicas are damaged: %+v", f.m.offIn[f.dir], f.m.damaged)
	}
	for _, p := range f.m.all() {
		if f.parts[p.tp] == nil {
			t.Fatalf("%s was deleted, and is back with %d records", p.tp, p.end)
		}
	}
	for tp, want := range f.parts {
		p := f.m.Partition(tp)
		if p == nil {
			if !want.maybe && !want.deleting {
				t.Fatalf("%s is gone", tp)
			}
			delete(f.parts, tp)
			continue
		}
		// Its id is on disk before its first record is.
		if id := p.TopicID(); id != want.id && !(p.EndOffset() == 0 && id == protocol.UUID{}) {
			t.Fatalf("%s has id %v, not %v", tp, id, want.id)
		}
		l := p.Log()
		start, end := l.StartOffset(), l.EndOffset()
		if clean && (end != int64(len(want.records)) || start != want.start) || end < int64(want.safe) || end > int64(len(want.records)) || start < want.saved || start > want.start {
			t.Fatalf("%s is %d..%d; %d of %d records were flushed, starts at %d, checkpointed %d", tp, start, end, want.safe, len(want.records), want.start, want.saved)
		}
		if hw := p.HighWatermark(); hw < start || hw > end {
			t.Fatalf("%s: high watermark %d in %d..%d", tp, hw, start, end)
		}
		for o := start; o < end; o++ {
			s, err := l.Read(o, 1, math.MaxInt64, true)
			if err != nil {
				t.Fatalf("%s at %d: %v", tp, o, err)
			}
			got := make([]byte, s.Len)
			_, err = s.ReadInto(got)
			s.Close()
			if err != nil || !bytes.Equal(got[61:], want.records[o][61:]) { // behind the header, which the broker stamps
				t.Fatalf("%s at %d: another record, %v", tp, o, err)
			}
		}
		want.records, want.safe = want.records[:end], min(want.safe, int(end))
		want.start, want.saved, want.maybe, want.deleting = start, start, false, false
		if want.safe = min(want.safe, int(l.RecoveryPoint())); f.lead(tp, want.id) != nil {
			if f.disk.Disk() == nil {
				t.Fatalf("%s cannot be led", tp)
			}
			return false
		}
	}
	return f.disk.Disk() == nil
}

func (f *folderRun) end() {
	if !f.close() {
		f.t.Fatalf("cannot be closed in order")
	}
	if err := f.open(); err != nil {
		f.t.Fatalf("%v", err)
	}
	f.check(true)
	if !f.close() {
		f.t.Fatalf("cannot be closed in order")
	}
}
