package commitlog

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// model is a log as one would write it without files.
type model struct {
	batches    []recordbatch.Batch
	start, end int64
	sent       map[int64]recordbatch.Batch // the newest of a producer that a clean may have removed
}

func (m *model) bytes(from, upTo int64) (out []byte) {
	for _, b := range m.batches {
		if b.LastOffset() >= from {
			if b.LastOffset() >= upTo {
				break
			}
			out = append(out, b...)
		}
	}
	return out
}

func (m *model) truncate(offset int64) {
	if offset >= m.end {
		return
	}
	m.end = offset
	for i, b := range m.batches {
		if b.LastOffset() >= offset {
			m.end = min(offset, b.BaseOffset())
			m.batches = m.batches[:i]
			break
		}
	}
	m.start = min(m.start, m.end)
	for id, b := range m.sent {
		if b.LastOffset() >= m.end {
			delete(m.sent, id)
		}
	}
}

// forget drops the batches below offset.
func (m *model) forget(offset int64) {
	m.batches = slices.DeleteFunc(m.batches, func(b recordbatch.Batch) bool { return b.LastOffset() < offset })
}

func (m *model) gapAtStart() bool {
	for _, b := range m.batches {
		if b.LastOffset() >= m.start {
			return b.BaseOffset() > m.start
		}
	}
	return true
}

func (m *model) firstAtOrAfter(ts, upTo int64) (offset, timestamp int64) {
	for _, b := range m.batches {
		var o, at int64 = -1, -1
		err := recordbatch.Records(b, func(r recordbatch.Record) error {
			if o < 0 && r.Offset >= m.start && r.Offset < upTo && r.Timestamp >= ts {
				o, at = r.Offset, r.Timestamp
			}
			return nil
		})
		if err != nil || o >= 0 {
			return o, at
		}
	}
	return -1, -1
}

// endOffset follows the definition: the largest epoch not above e, ended by the next.
func (m *model) endOffset(e int32) (int32, int64) {
	found, end := int32(-1), int64(-1)
	var starts []epochEntry
	for _, b := range m.batches {
		if b.LastOffset() >= m.start && (len(starts) == 0 || b.LeaderEpoch() > starts[len(starts)-1].epoch) {
			starts = append(starts, epochEntry{b.LeaderEpoch(), max(b.BaseOffset(), m.start)})
		}
	}
	if len(starts) == 0 || e > starts[len(starts)-1].epoch {
		return -1, -1
	}
	if e < starts[0].epoch {
		return e, starts[0].start
	}
	for i, s := range starts {
		if s.epoch <= e {
			found, end = s.epoch, m.end
			if i+1 < len(starts) {
				end = starts[i+1].start
			}
		}
	}
	return found, end
}

func TestLogBehavesLikeAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := vfs.NewMem()
		cfg := small
		cfg.SegmentBytes = int32(rapid.IntRange(600, 4000).Draw(t, "segment bytes"))
		cfg.SegmentAge = time.Duration(rapid.IntRange(1, 100).Draw(t, "segment age")) * time.Millisecond * 50
		cfg.SegmentJitter = time.Duration(rapid.IntRange(0, 1).Draw(t, "jitter")) * cfg.SegmentAge
		cfg.SegmentIndexBytes = rapid.SampledFrom([]int32{48, 240, 4800}).Draw(t, "index bytes")
		cfg.DeleteDelay = -1
		var now atomic.Int64 // ms; a flush after a roll looks at it, too
		clock := func() time.Time { return time.UnixMilli(now.Load()) }
		l := openTest(t, fsys, cfg, OpenOptions{CleanShutdown: true, Now: clock})
		defer func() { _ = l.abandon() }()
		m := &model{}
		epoch := int32(0)
		reopen := func(clean bool) {
			o := OpenOptions{CleanShutdown: clean, RecoveryPoint: l.RecoveryPoint(), LogStartOffset: m.start, Now: clock}
			if clean {
				must(t, l.Close())
			} else {
				must(t, l.abandon()) // the process died; the page cache lives
			}
			l = openTest(t, fsys, cfg, o)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "new epoch") == 0 {
					epoch++
				}
				o := recordbatch.NoProducer()
				o.Codec = rapid.SampledFrom([]recordbatch.Codec{recordbatch.CodecNone, recordbatch.CodecLZ4}).Draw(t, "codec")
				var in []byte
				for range rapid.IntRange(1, 3).Draw(t, "batches") {
					in = append(in, mkBatch(o, rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 8).Draw(t, "times")...)...)
				}
				if len(in) > int(cfg.SegmentBytes) {
					t.Skip("too large")
				}
				info := appendTo(t, l, in, epoch)
				if info.FirstOffset != m.end {
					t.Fatalf("appended at %d, want %d", info.FirstOffset, m.end)
				}
				for b := range recordbatch.Split(in) {
					m.batches = append(m.batches, bytes.Clone(b))
					m.end = b.NextOffset()
				}
			},
			"copy from a compacted leader": func(t *rapid.T) {
				// Now and then further than a segment's relative offsets reach.
				gap := rapid.SampledFrom([]int64{0, 0, 1, 7, 1 << 20, math.MaxInt32 - 3, math.MaxInt32, 1 << 32}).Draw(t, "gap")
				b := mkBatch(recordbatch.NoProducer(), rapid.SliceOfN(rapid.Int64Range(1, 1000), 1, 4).Draw(t, "times")...)
				b.SetBaseOffset(m.end + gap)
				b.SetLeaderEpoch(epoch)
				info, err := l.AppendFollower(b)
				if must(t, err); info.FirstOffset != m.end+gap {
					t.Fatalf("appended at %d, want %d", info.FirstOffset, m.end+gap)
				}
				m.batches = append(m.batches, b)
				m.end = b.NextOffset()
			},
			"time passes": func(t *rapid.T) {
				now.Add(int64(rapid.IntRange(1, 3000).Draw(t, "ms")))
			},
			"truncate": func(t *rapid.T) {
				o := rapid.Int64Range(max(0, m.start-3), m.end+1).Draw(t, "to")
				if len(m.batches) == 0 || o < m.batches[0].BaseOffset() {
					t.Skip("below the first segment, perhaps")
				}
				_, err := l.TruncateTo(o)
				must(t, err)
				m.truncate(o)
			},
			"restart at": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "rare") > 0 {
					t.Skip()
				}
				o := m.end + rapid.Int64Range(-2, 5).Draw(t, "at")
				if o < 0 {
					t.Skip()
				}
				must(t, l.TruncateFullyAndStartAt(o))
				*m = model{start: o, end: o}
			},
			"raise start": func(t *rapid.T) {
				o := rapid.Int64Range(m.start, m.end).Draw(t, "start")
				_, err := l.IncrementStartOffset(o)
				must(t, err)
				m.start = max(m.start, o)
			},
			"retention": func(t *rapid.T) {
				hw := rapid.Int64Range(m.start, m.end).Draw(t, "hw")
				c := cfg
				c.RetentionBytes = int64(rapid.IntRange(1, 6000).Draw(t, "bytes"))
				l.SetConfig(c)
				before := l.StartOffset()
				_, err := l.DeleteOldSegments(time.Now(), hw)
				must(t, err)
				l.SetConfig(cfg)
				if s := l.StartOffset(); s < before || s > max(before, hw) {
					t.Fatalf("start went from %d to %d with high watermark %d", before, s, hw)
				}
				m.start = l.StartOffset()
				m.forget(l.segments()[0].base)
				_, err = l.RemoveDeleted(time.Now())
				must(t, err)
			},
			"flush": func(t *rapid.T) { must(t, l.Flush()) },
			"clean start": func(t *rapid.T) {
				reopen(true)
				m.closeGap(l)
				m.forget(l.segments()[0].base)
			},
			"kill": func(t *rapid.T) {
				reopen(false)
				m.closeGap(l)
				m.forget(l.segments()[0].base)
			},
			"": func(t *rapid.T) {
				checkAgainst(t, l, m)
				checkSegments(t, l)
			},
		})
	})
}

// checkSegments: segments join, and none is larger than its limits, by bytes (one append
// may exceed them), index entries, relative offsets, or time of the records.
func checkSegments(t *rapid.T, l *Log) {
	checkIndexFiles(t, l)
	segs := l.segments()
	for _, s := range segs {
		s.mu.RLock()
		defer s.mu.RUnlock()
	}
	for i, s := range segs {
		if s.size > int64(l.cfg.SegmentBytes) || s.offsets.count() > s.offsets.max || s.times.count() > s.times.max || i+1 == len(segs) && s.next-1-s.base > math.MaxInt32 {
			t.Fatalf("segment %d: %d bytes, %d and %d index entries of %d and %d, ends at %d", s.base, s.size, s.offsets.count(), s.times.count(), s.offsets.max, s.times.max, s.next)
		}
		if i > 0 && segs[i-1].next > s.base {
			t.Fatalf("segment %d begins below %d", s.base, segs[i-1].next)
		}
		if s.size == 0 && i+1 < len(segs) {
			t.Fatalf("segment %d is empty and not the last", s.base)
		}
	}
}

func checkAgainst(t *rapid.T, l *Log, m *model) {
	if l.StartOffset() != m.start || l.EndOffset() != m.end {
		t.Fatalf("log is %d..%d, want %d..%d", l.StartOffset(), l.EndOffset(), m.start, m.end)
	}
	from := rapid.Int64Range(m.start, m.end).Draw(t, "from")
	upTo := rapid.Int64Range(from, m.end).Draw(t, "up to")
	wantBytes(t, readAll(t, l, from, upTo, rapid.IntRange(1, 3000).Draw(t, "max")), m.bytes(from, upTo))
	if m.start > 0 {
		if _, err := l.Read(m.start-1, 1, m.end, true); !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Fatalf("below the start: %v", err)
		}
	}
	if _, err := l.Read(m.end+1, 1, m.end, true); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Fatalf("above the end: %v", err)
	}
	ts := rapid.Int64Range(0, 1001).Draw(t, "ts")
	o, at, _, found, err := l.OffsetForTimestamp(ts, upTo)
	must(t, err)
	if wo, wat := m.firstAtOrAfter(ts, upTo); wo != o || wat != at || found != (wo >= 0) {
		t.Fatalf("time %d below %d: offset %d at %d, want %d at %d", ts, upTo, o, at, wo, wat)
	}
	e := rapid.Int32Range(0, 12).Draw(t, "epoch")
	ge, gend := l.EndOffsetForEpoch(e)
	// In a gap at the start lies the end of an epoch of which the model has no batch.
	if we, wend := m.endOffset(e); !m.gapAtStart() && m.start < m.end && (ge != we || gend != wend) {
		t.Fatalf("epoch %d ends (%d, %d), want (%d, %d)", e, ge, gend, we, wend)
	}
}
