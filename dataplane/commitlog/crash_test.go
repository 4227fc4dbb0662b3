package commitlog

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
	"penstock/dataplane/vfs/crashtest"
)

// TestPowerCutLosesOnlyWhatWasNotFlushed runs random operations and lets the power
// fail at a random change of the disk, then again while the log is being recovered,
// and opens what is left: see survivor.check for what must hold. Then it goes on with
// the next life on that disk.
func TestPowerCutLosesOnlyWhatWasNotFlushed(t *testing.T) {
	crashtest.Run(t, 300, func(t *crashtest.T) { crashRun(t, nil) })
}

// survivor is a log, the disk under it, and what must be found there after a crash.
type survivor struct {
	t    *crashtest.T
	r    *rand.Rand
	disk *vfs.Mem
	wrap func(*vfs.Mem) vfs.FS // plants a fault between log and disk
	fs   vfs.FS
	cfg  Config
	l    *Log
	now  time.Time
	bg   []func() // flushes after rolls, not yet done

	m     model
	epoch int32
	safe  int64 // below it all was acknowledged as flushed

	// The checkpoint files as the folder would have them.
	recovery, start, cleaned int64

	firstDirty int64
	cleaning   bool // a clean may have changed the batches
	ended      []endedTxn

	// What the operation under way may leave, should the power fail in it.
	adds     []recordbatch.Batch // may be there
	floor    int64               // the flushed part may be cut down to here
	empties  bool                // any contiguous part may be left, or nothing
	mayStart int64               // the log may start as far up as this
}

func crashRun(t *crashtest.T, wrap func(*vfs.Mem) vfs.FS) {
	if wrap == nil {
		wrap = func(m *vfs.Mem) vfs.FS { return m }
	}
	s := &survivor{t: t, r: t.Rand, disk: vfs.NewMem(), wrap: wrap, now: time.UnixMilli(1_700_000_000_000)}
	must(t, errors.Join(s.disk.MkdirAll("/data"), s.disk.SyncDir("/")))
	s.cfg = small
	s.cfg.SegmentBytes = int32(500 + s.r.Intn(3000))
	s.cfg.DeleteDelay = time.Duration(-s.r.Intn(2)) // at once or later
	s.cfg.FlushMessages = []int64{0, 0, 1, 7}[s.r.Intn(4)]
	s.cfg.SegmentAge = time.Duration(1+s.r.Intn(20)) * time.Second
	s.cfg.Compact = s.r.Intn(3) == 0
	s.cfg.DeleteRetention = 20 * time.Second
	s.m.sent = map[int64]recordbatch.Batch{}
	s.fs = s.wrap(s.disk)
	l, err := s.open(OpenOptions{CleanShutdown: true})
	must(t, err)
	s.l = l
	for range 1 + s.r.Intn(4) {
		s.disk.CutAt(1+s.r.Intn(200), s.r)
		if err := s.live(); err != nil && !errors.Is(err, vfs.ErrPowerCut) {
			t.Fatalf("%v", err)
		}
		s.crash()
	}
	must(t, s.l.Close())
	s.reopen(OpenOptions{CleanShutdown: true, LogStartOffset: s.start})
	s.check(true)
	must(t, s.l.Close())
}

func (s *survivor) open(o OpenOptions) (*Log, error) {
	o.Now, o.CleanedUpTo = func() time.Time { return s.now }, s.cleaned
	o.Background = func(f func()) { s.bg = append(s.bg, f) }
	return Open(s.fs, dir, s.cfg, o)
}

func (s *survivor) reopen(o OpenOptions) {
	s.t.Helper()
	l, err := s.open(o)
	must(s.t, err)
	s.l = l
}

// live runs operations until the power fails or there were enough.
func (s *survivor) live() error {
	for range s.r.Intn(80) {
		s.now = s.now.Add(time.Duration(s.r.Intn(1500)) * time.Millisecond)
		if len(s.bg) > 0 && s.r.Intn(3) == 0 {
			f := s.bg[0]
			s.bg = s.bg[1:]
			f()
		}
		s.adds, s.floor, s.empties, s.mayStart = nil, s.safe, false, s.m.start
		if err := s.step(); err != nil {
			s.t.Logf("  %v", err)
			return err
		}
		s.adds = nil
	}
	return nil
}

func (s *survivor) step() error {
	switch s.r.Intn(20) {
	default:
		return s.append()
	case 0:
		end := s.m.end
		s.t.Logf("flush %d", end)
		if err := s.l.Flush(); err != nil {
			return err
		}
		s.safe = end
	case 1: // the files may be older than the truth
		s.recovery, s.start = s.l.RecoveryPoint(), s.l.StartOffset()
		s.t.Logf("checkpoint: recovery point %d, start %d", s.recovery, s.start)
	case 2:
		return s.truncate()
	case 3:
		return s.retain()
	case 4:
		to := s.m.start + s.r.Int63n(s.m.end-s.m.start+1)
		s.mayStart = max(s.mayStart, to)
		s.t.Logf("raise the start to %d", to)
		if _, err := s.l.IncrementStartOffset(to); err != nil {
			return err
		}
		s.m.start = max(s.m.start, to)
		if s.r.Intn(2) == 0 {
			s.start = s.m.start
		}
	case 5:
		s.epoch += int32(s.r.Intn(3))
		return s.l.AssignEpochStart(s.epoch, s.m.end)
	case 6:
		if s.r.Intn(4) > 0 {
			return nil
		}
		return s.restart()
	case 8:
		return s.clean()
	case 7:
		if s.r.Intn(3) > 0 {
			return nil
		}
		s.empties = true
		at := max(0, s.m.end+int64(s.r.Intn(9)-4))
		s.mayStart = max(at, s.m.end)
		s.t.Logf("start anew at %d", at)
		if err := s.l.LowerRecoveryPoint(0); err != nil {
			return err
		}
		s.recovery = s.l.RecoveryPoint()
		if err := s.l.TruncateFullyAndStartAt(at); err != nil {
			return err
		}
		s.m = model{start: at, end: at, sent: map[int64]recordbatch.Batch{}}
		s.firstDirty, s.cleaned = 0, 0
		s.safe, s.start = at, at
	}
	return nil
}

func (s *survivor) append() error {
	if s.r.Intn(8) == 0 {
		s.epoch++
	}
	b := s.batch()
	if s.r.Intn(4) == 0 {
		b = s.transaction()
	}
	s.t.Logf("append %d records of producer %d at %d, epoch %d", b.Count(), b.ProducerID(), s.m.end, s.epoch)
	var err error
	if s.r.Intn(4) > 0 {
		want := bytes.Clone(b)
		recordbatch.Batch(want).SetBaseOffset(s.m.end)
		recordbatch.Batch(want).SetLeaderEpoch(s.epoch)
		s.adds = []recordbatch.Batch{want}
		_, err = s.l.AppendLeader(b, s.epoch)
	} else {
		b.SetBaseOffset(s.m.end + int64(s.r.Intn(2)*s.r.Intn(5))) // with the gaps of a compacted log
		b.SetLeaderEpoch(s.epoch)
		s.adds = []recordbatch.Batch{b}
		_, err = s.l.AppendFollower(b)
	}
	if err != nil {
		return err
	}
	s.m.add(s.adds...)
	if s.cfg.FlushMessages == 1 {
		s.safe = s.m.end
	}
	return nil
}

// batch is the next one of a producer that knows what it has sent.
func (s *survivor) batch() recordbatch.Batch {
	o := recordbatch.NoProducer()
	o.Codec = []recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecNone, recordbatch.CodecLZ4}[s.r.Intn(3)]
	if id := int64(s.r.Intn(4)); id > 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = id, 0, s.nextSequence(id)
	}
	return keyedBatch(s.r, o, s.times())
}

func (s *survivor) times() []int64 {
	ts := make([]int64, 1+s.r.Intn(5))
	for i := range ts {
		ts[i] = s.now.UnixMilli() - int64(s.r.Intn(4000))
	}
	return ts
}

func (s *survivor) truncate() error {
	i := s.r.Intn(len(s.m.batches) + 1)
	if s.r.Intn(2) > 0 || i == len(s.m.batches) || s.m.batches[i].BaseOffset() < s.m.start {
		return nil
	}
	to := s.m.batches[i].BaseOffset()
	s.floor = min(s.safe, to)
	if err := s.l.LowerRecoveryPoint(to); err != nil {
		return err
	}
	s.recovery = s.l.RecoveryPoint() // the caller's duty
	s.t.Logf("truncate to %d", to)
	if _, err := s.l.TruncateTo(to); err != nil {
		return err
	}
	s.m.truncate(to)
	s.firstDirty, s.cleaned = min(s.firstDirty, to), min(s.cleaned, to)
	s.safe = min(s.safe, s.m.end)
	s.start = s.l.StartOffset()
	return nil
}

func (s *survivor) retain() error {
	c := s.cfg
	c.RetentionBytes = int64(1 + s.r.Intn(8000))
	if s.r.Intn(2) == 0 {
		c.RetentionBytes, c.RetentionAge = -1, time.Duration(s.r.Intn(20_000))*time.Millisecond
	}
	s.l.SetConfig(c)
	s.mayStart = s.m.end
	s.t.Logf("retention %d bytes, %v", c.RetentionBytes, c.RetentionAge)
	_, err := s.l.DeleteOldSegments(s.now, s.m.end)
	if err == nil {
		_, err = s.l.RemoveDeleted(s.now)
	}
	s.l.SetConfig(s.cfg)
	if err == nil {
		s.m.start = s.l.StartOffset()
	}
	return err
}

// restart closes the log in order, perhaps cuts the power, and opens it: then
// everything must be there.
func (s *survivor) restart() error {
	s.t.Logf("clean restart")
	if err := s.l.Close(); err != nil {
		return err
	}
	s.bg = nil
	s.safe, s.recovery, s.start = s.m.end, s.l.RecoveryPoint(), s.m.start
	if s.r.Intn(2) == 0 {
		s.disk = s.disk.Crash(s.r)
		s.fs = s.wrap(s.disk)
		s.disk.CutAt(1+s.r.Intn(200), s.r)
	}
	l, err := s.open(OpenOptions{CleanShutdown: true, RecoveryPoint: s.recovery, LogStartOffset: s.start})
	if err != nil {
		return err
	}
	s.l = l
	s.m.closeGap(l)
	s.safe = min(s.safe, s.m.end)
	if l.EndOffset() != s.m.end || l.StartOffset() != s.m.start {
		s.t.Fatalf("after a clean end the log is %d..%d, not %d..%d", l.StartOffset(), l.EndOffset(), s.m.start, s.m.end)
	}
	return nil
}
