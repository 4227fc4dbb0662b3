package commitlog

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// cleanModel is what was ever written to a compacted log.
type cleanModel struct {
	records  map[int64]kv     // by offset
	state    map[int64]string // of the record's transaction: "" none or committed, "open", "aborted"
	open     map[int64][]int64
	seq      map[int64]int32
	horizon  map[int64]time.Time // of tombstones: when the first clean that met it lets it go
	end      int64
	cleaned  int64
	now      time.Time
	appended int
}

// newest is the newest committed record of each key, tombstones too.
func (m *cleanModel) newest() map[string]kv {
	out := map[string]kv{}
	for o, r := range m.records {
		if m.state[o] == "" && r.key != "" && (out[r.key].key == "" || o > out[r.key].offset) {
			out[r.key] = r
		}
	}
	return out
}

// check holds the log against the model.
func (m *cleanModel) check(t tb, l *Log) {
	t.Helper()
	if l.EndOffset() != m.end {
		t.Fatalf("log ends at %d, want %d", l.EndOffset(), m.end)
	}
	have := map[int64]bool{}
	last := int64(-1)
	for _, r := range all(t, l) {
		if m.records[r.offset] != r {
			t.Fatalf("log has %v at %d, written was %v", r, r.ts, m.records[r.offset])
		}
		if r.offset <= last {
			t.Fatalf("offset %d after %d", r.offset, last)
		}
		last = r.offset
		have[r.offset] = true
	}
	seen := map[string]int64{}
	for _, r := range committed(t, l) {
		if m.state[r.offset] == "aborted" {
			t.Fatalf("aborted record %v is read as committed", r)
		}
		if m.state[r.offset] == "" {
			seen[r.key] = r.offset
		}
	}
	for k, r := range m.newest() {
		if have[r.offset] {
			if seen[k] != r.offset {
				t.Fatalf("newest of %s is %d for readers of committed data, want %d", k, seen[k], r.offset)
			}
			continue
		}
		h, met := m.horizon[r.offset]
		if r.value != "-" || !met || m.now.Before(h) {
			t.Fatalf("newest record %v is gone at %v; horizon %v, %v", r, m.now, h, met)
		}
		if o, ok := seen[k]; ok {
			t.Fatalf("tombstone %v is gone, and %v is back", r, m.records[o])
		}
	}
	for o, r := range m.records {
		if m.state[o] == "open" && !have[o] {
			t.Fatalf("record %v of an open transaction is gone", r)
		}
	}
}

// met notes the tombstones that a clean has met.
func (m *cleanModel) met(end int64) {
	for o, r := range m.records {
		if _, ok := m.horizon[o]; !ok && r.value == "-" && o < end && m.state[o] == "" {
			m.horizon[o] = m.now.Add(compacted.DeleteRetention)
		}
	}
}

func TestCompactionBehavesLikeAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := vfs.NewMem()
		must(t, mem.MkdirAll("/data"))
		must(t, mem.SyncDir("/"))
		cfg := compacted
		cfg.SegmentBytes = int32(rapid.IntRange(250, 2500).Draw(t, "segment bytes"))
		cfg.ProducerExpiry = math.MaxInt64
		m := &cleanModel{records: map[int64]kv{}, state: map[int64]string{}, open: map[int64][]int64{}, seq: map[int64]int32{}, horizon: map[int64]time.Time{}, now: at(0)}
		l := openTest(t, mem, cfg, OpenOptions{CleanShutdown: true})
		defer func() { _ = l.abandon() }()
		reopen := func(fs *vfs.Mem, o OpenOptions) {
			mem = fs
			l = openTest(t, mem, cfg, o)
			l.SetHighWatermark(l.EndOffset())
		}
		add := func(o recordbatch.BuildOptions, state string) {
			o.Codec = recordbatch.Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
			ts := rapid.Int64Range(1, 1_000_000).Draw(t, "time")
			var ws []string
			for range rapid.IntRange(1, 4).Draw(t, "records") {
				m.appended++
				w := fmt.Sprintf("%c=%d", 'a'+rapid.IntRange(0, 5).Draw(t, "key"), m.appended)
				switch rapid.IntRange(0, 9).Draw(t, "kind") {
				case 0, 1:
					w = w[:2] + "-"
				case 2:
					w = w[1:]
				}
				ws = append(ws, w)
			}
			b := keyed(o, ts, ws...)
			info := appendTo(t, l, b, 0)
			must(t, recordbatch.Records(b, func(r recordbatch.Record) error {
				x := kv{offset: r.Offset, key: string(r.Key), value: string(r.Value), ts: r.Timestamp}
				if r.Value == nil {
					x.value = "-"
				}
				m.records[r.Offset], m.state[r.Offset] = x, state
				if state != "" {
					m.open[o.ProducerID] = append(m.open[o.ProducerID], r.Offset)
				}
				return nil
			}))
			m.end = info.LastOffset + 1
			l.SetHighWatermark(m.end)
		}
		clean := func(horizonsOnly bool) {
			c, err := l.Cleanable(m.cleaned, min(l.EndOffset(), l.FirstUnstableOffset()), m.now)
			must(t, err)
			st, err := l.Clean(context.Background(), CleanOptions{
				FirstDirty: c.FirstDirty, UpTo: c.UpTo, Now: m.now, Map: newMap(t, rapid.IntRange(1, 8).Draw(t, "map")),
				Buffer: rapid.IntRange(1, 500).Draw(t, "buffer"), HorizonsOnly: horizonsOnly,
			})
			must(t, err)
			if !horizonsOnly {
				if st.End <= c.FirstDirty && c.UpTo > c.FirstDirty {
					t.Fatalf("no progress: %+v", st)
				}
				m.cleaned = st.End
				m.met(st.End)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":       func(*rapid.T) { add(recordbatch.NoProducer(), "") },
			"append again": func(*rapid.T) { add(recordbatch.NoProducer(), "") },
			"append of a producer": func(t *rapid.T) {
				o := recordbatch.NoProducer()
				o.ProducerID, o.ProducerEpoch = rapid.Int64Range(1, 2).Draw(t, "producer"), 0
				o.BaseSequence = m.seq[o.ProducerID]
				add(o, "")
				m.seq[o.ProducerID] = l.lastSequence(o.ProducerID) + 1
			},
			"append to a transaction": func(t *rapid.T) {
				o := recordbatch.NoProducer()
				o.ProducerID, o.ProducerEpoch, o.Transactional = rapid.Int64Range(11, 13).Draw(t, "producer"), 0, true
				o.BaseSequence = m.seq[o.ProducerID]
				add(o, "open")
				m.seq[o.ProducerID] = l.lastSequence(o.ProducerID) + 1
			},
			"end a transaction": func(t *rapid.T) {
				if len(m.open) == 0 {
					t.Skip()
				}
				pid := rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(t, "producer")
				abort := rapid.Bool().Draw(t, "abort")
				info := appendTo(t, l, txnMarker(pid, 0, abort, 0), 0)
				for _, o := range m.open[pid] {
					if m.state[o] = ""; abort {
						m.state[o] = "aborted"
					}
				}
				delete(m.open, pid)
				m.end = info.LastOffset + 1
				l.SetHighWatermark(m.end)
			},
			"roll":        func(t *rapid.T) { must(t, rollNow(l)) },
			"clean":       func(*rapid.T) { clean(false) },
			"clean again": func(*rapid.T) { clean(false) },
			"time goes by": func(t *rapid.T) {
				m.now = m.now.Add(time.Duration(rapid.IntRange(1, 70).Draw(t, "minutes")) * time.Minute)
			},
			"drop what is due": func(t *rapid.T) {
				must(t, l.FindHorizons(context.Background(), CleanOptions{FirstDirty: m.cleaned, UpTo: m.cleaned, Now: m.now}))
				if due, known := l.NextHorizon(m.cleaned); !known || due > m.now.UnixMilli() {
					t.Skip()
				}
				clean(true)
				if due, _ := l.NextHorizon(m.cleaned); due <= m.now.UnixMilli() {
					t.Fatalf("something is still due at %d of %d", due, m.now.UnixMilli())
				}
			},
			"restart": func(t *rapid.T) {
				must(t, l.Close())
				reopen(mem, OpenOptions{CleanShutdown: true})
			},
			"kill": func(t *rapid.T) {
				point := l.RecoveryPoint()
				must(t, l.abandon())
				reopen(mem, OpenOptions{RecoveryPoint: rapid.Int64Range(0, point).Draw(t, "recovery point")})
			},
			"power cut": func(t *rapid.T) {
				must(t, l.Flush())
				point := l.RecoveryPoint()
				image := mem.Crash(rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))))
				must(t, l.abandon())
				reopen(image, OpenOptions{RecoveryPoint: rapid.Int64Range(0, point).Draw(t, "recovery point")})
			},
			"": func(t *rapid.T) { m.check(t, l) },
		})
	})
}

// lastSequence is the last sequence number of a producer.
func (l *Log) lastSequence(pid int64) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.byID[pid].lastSeq()
}
