package commitlog

import (
	"bytes"
	"fmt"
	"math/rand"
	"testing"
	"time"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// TestPowerCutLosesOnlyWhatWasNotFlushed runs random operations, cuts the power at a
// random moment, and opens what the disk shows: all that was flushed must be there,
// the rest must be a first part of what was appended, and the state rebuilt from it
// must fit. Then it goes on with the next life on that disk.
func TestPowerCutLosesOnlyWhatWasNotFlushed(t *testing.T) {
	runs := 400
	if testing.Short() {
		runs = 50
	}
	for seed := range runs {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { crashRun(t, int64(seed)) })
	}
}

func crashRun(t *testing.T, seed int64) {
	r := rand.New(rand.NewSource(seed))
	fsys := vfs.NewMem()
	must(t, fsys.MkdirAll("/data"))
	must(t, fsys.SyncDir("/"))
	cfg := small
	cfg.SegmentBytes = int32(500 + r.Intn(3000))
	cfg.DeleteDelay = time.Duration(-r.Intn(2)) // at once or later
	l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true})
	m := &model{}
	seq := int32(0)
	epoch := int32(0)
	var waiting []func()
	for life := range 4 {
		l.bg = func(f func()) { waiting = append(waiting, f) }
		checkpoint := l.RecoveryPoint()
		for range r.Intn(60) {
			if len(waiting) > 0 && r.Intn(3) == 0 {
				waiting[0]()
				waiting = waiting[1:]
			}
			switch r.Intn(12) {
			default:
				if r.Intn(8) == 0 {
					epoch++
				}
				b := idempotent(7, 0, seq, 1+r.Intn(5))
				appendTo(t, l, b, epoch)
				seq = recordbatch.AddSequence(b.LastSequence(), 1)
				m.batches = append(m.batches, bytes.Clone(b))
				m.end = b.NextOffset()
			case 0:
				must(t, l.Flush())
			case 1:
				checkpoint = l.RecoveryPoint() // the checkpoint file may be older than the truth
			case 2:
				if r.Intn(3) > 0 || len(m.batches) == 0 {
					continue
				}
				i := r.Intn(len(m.batches))
				if m.batches[i].BaseOffset() < l.StartOffset() {
					continue
				}
				_, err := l.TruncateTo(m.batches[i].BaseOffset())
				must(t, err)
				seq = m.batches[i].BaseSequence()
				m.truncate(m.batches[i].BaseOffset())
				checkpoint = l.RecoveryPoint()
			case 3:
				c := cfg
				c.RetentionBytes = int64(1 + r.Intn(8000))
				l.SetConfig(c)
				_, err := l.DeleteOldSegments(time.Now(), m.end)
				must(t, err)
				_, err = l.RemoveDeleted(time.Now())
				must(t, err)
				l.SetConfig(cfg)
				m.start = l.StartOffset()
			}
		}
		safe := l.RecoveryPoint()
		disk := fsys.Crash(r)
		must(t, l.abandon())
		waiting = nil
		fsys = disk
		l = openTest(t, fsys, cfg, OpenOptions{RecoveryPoint: checkpoint})
		end := l.EndOffset()
		if end < safe || end > m.end {
			t.Fatalf("life %d: log ends at %d; %d was flushed, %d appended", life, end, safe, m.end)
		}
		if l.StartOffset() > max(m.start, safe) {
			t.Fatalf("life %d: log starts at %d, not %d", life, l.StartOffset(), m.start)
		}
		m.truncate(end)
		if m.end != end {
			t.Fatalf("life %d: log ends inside a batch at %d", life, end)
		}
		m.start = min(max(m.start, l.StartOffset()), end)
		if n := len(m.batches); n > 0 { // the state is that of the last batch, or forgotten with it
			seq = recordbatch.AddSequence(m.batches[n-1].LastSequence(), 1)
		}
		if m.start < end {
			wantBytes(t, readAll(t, l, m.start, end, 700), m.bytes(m.start, end))
			last := m.batches[len(m.batches)-1]
			if e, _ := l.LatestEpoch(); e != last.LeaderEpoch() {
				t.Fatalf("life %d: latest epoch %d, want %d", life, e, last.LeaderEpoch())
			}
			epoch = max(epoch, last.LeaderEpoch())
			again := bytes.Clone(last)
			if info := appendTo(t, l, again, epoch); !info.Duplicate || info.LastOffset != last.LastOffset() {
				t.Fatalf("life %d: retry of the last batch gave %+v", life, info)
			}
		}
	}
	must(t, l.Close())
	l = openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true, LogStartOffset: m.start})
	wantBytes(t, readAll(t, l, m.start, m.end, 700), m.bytes(m.start, m.end))
	must(t, l.Close())
}
