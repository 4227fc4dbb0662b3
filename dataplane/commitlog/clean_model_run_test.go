package commitlog

import (
	"context"
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

// modelReplica is a log on a disk of its own, cleaned on its own.
type modelReplica struct {
	cfg     Config
	mem     *vfs.Mem
	l       *Log
	cleaned int64
	stable  int64 // what the last clean took for the high watermark
	later   []func()
}

func newModelReplica(t tb, cfg Config) *modelReplica {
	r := &modelReplica{cfg: cfg, mem: vfs.NewMem()}
	must(t, r.mem.MkdirAll("/data"))
	must(t, r.mem.SyncDir("/"))
	r.open(t, OpenOptions{CleanShutdown: true})
	return r
}

func (r *modelReplica) open(t tb, o OpenOptions) {
	t.Helper()
	o.CleanedUpTo = r.cleaned
	r.later = nil
	o.Background = func(f func()) { r.later = append(r.later, f) } // so that a failure can be had again
	r.l = openTest(t, r.mem, r.cfg, o)
	r.l.SetHighWatermark(r.l.EndOffset())
}

// clean cleans as the partition's cleaner does.
func (r *modelReplica) clean(t *rapid.T, m *cleanModel, horizonsOnly bool) {
	c, err := r.l.Cleanable(r.cleaned, min(r.l.EndOffset(), r.l.FirstUnstableOffset()), m.now)
	must(t, err)
	st, err := r.l.Clean(context.Background(), CleanOptions{
		FirstDirty: c.FirstDirty, UpTo: c.UpTo, Now: m.now, Map: newMap(t, rapid.IntRange(1, 6).Draw(t, "map")),
		Buffer: rapid.IntRange(1, 500).Draw(t, "buffer"), HorizonsOnly: horizonsOnly,
	})
	must(t, err)
	if horizonsOnly {
		return
	}
	if st.End <= c.FirstDirty && c.UpTo > c.FirstDirty {
		t.Fatalf("no progress: %+v", st)
	}
	r.cleaned, r.stable = st.End, r.l.EndOffset()
	m.met(st.End, r.l.EndOffset())
}

// letGo drops what is due; false if nothing is.
func (r *modelReplica) letGo(t *rapid.T, m *cleanModel) bool {
	must(t, r.l.FindHorizons(context.Background(), CleanOptions{FirstDirty: r.cleaned, UpTo: r.cleaned, Now: m.now}))
	if due, known := r.l.NextHorizon(r.cleaned); !known || due > m.now.UnixMilli() {
		return false
	}
	r.clean(t, m, true)
	if due, _ := r.l.NextHorizon(r.cleaned); due <= m.now.UnixMilli() {
		t.Fatalf("something is still due at %d of %d", due, m.now.UnixMilli())
	}
	return true
}

func (r *modelReplica) restart(t *rapid.T) {
	must(t, r.l.Close())
	r.open(t, OpenOptions{CleanShutdown: true})
}

func (r *modelReplica) kill(t *rapid.T) {
	point := r.l.RecoveryPoint()
	must(t, r.l.abandon())
	r.open(t, OpenOptions{RecoveryPoint: rapid.Int64Range(0, point).Draw(t, "recovery point")})
}

func (r *modelReplica) cutPower(t *rapid.T) {
	must(t, r.l.Flush())
	point := r.l.RecoveryPoint()
	image := r.mem.Crash(rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed"))))
	must(t, r.l.abandon())
	r.mem = image
	r.open(t, OpenOptions{RecoveryPoint: rapid.Int64Range(0, point).Draw(t, "recovery point")})
}

func (r *modelReplica) truncate(t *rapid.T, offset int64) {
	if offset >= r.l.EndOffset() {
		return
	}
	must(t, r.l.LowerRecoveryPoint(offset))
	_, err := r.l.TruncateTo(offset)
	must(t, err)
	r.l.SetHighWatermark(r.l.EndOffset())
}

// follow takes some batches over from the leader.
func (r *modelReplica) follow(t *rapid.T, leader *Log, most int) bool {
	from := r.l.EndOffset()
	if from == leader.EndOffset() {
		return false
	}
	left := most
	for b, err := range recordbatch.Split(readAll(t, leader, from, leader.EndOffset(), 1<<20)) {
		must(t, err)
		if left--; left < 0 {
			break
		}
		_, err = r.l.AppendFollower(slices.Clone(b))
		must(t, err)
	}
	r.l.SetHighWatermark(r.l.EndOffset())
	return true
}

// A leader's and a follower's log, each compacted, restarted and killed on its own, hold
// what they have to whatever the order. Producers, keys and sizes are few, so that
// transactions of one producer, those of one key and those that span segments are many.
func TestCompactionBehavesLikeAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := compacted
		cfg.SegmentBytes = int32(rapid.IntRange(150, 900).Draw(t, "segment bytes"))
		cfg.ProducerExpiry = math.MaxInt64
		m := newCleanModel()
		caughtUp := m.now // when the follower last had all
		replicas := []*modelReplica{newModelReplica(t, cfg), newModelReplica(t, cfg)}
		defer func() {
			for _, r := range replicas {
				_ = r.l.abandon()
			}
		}()
		leader := func() *Log { return replicas[0].l }
		any := func(t *rapid.T) *modelReplica {
			return replicas[max(0, rapid.IntRange(-1, 1).Draw(t, "replica"))]
		}
		add := func(t *rapid.T, o recordbatch.BuildOptions, x *modelTxn) {
			o.Codec = recordbatch.Codec(rapid.IntRange(0, 4).Draw(t, "codec"))
			var ws []string
			for range rapid.IntRange(1, 3).Draw(t, "records") {
				ws = append(ws, m.word(rapid.IntRange(0, 3).Draw(t, "key"), rapid.IntRange(0, 9).Draw(t, "kind")))
			}
			b := keyed(o, rapid.Int64Range(1, 1_000_000).Draw(t, "time"), ws...)
			m.took(t, b, appendTo(t, leader(), b, 0), x)
			leader().SetHighWatermark(m.end)
		}
		addToTxn := func(t *rapid.T) {
			pid := rapid.Int64Range(11, 12).Draw(t, "producer")
			x := m.open[pid]
			if x == nil {
				x = &modelTxn{pid: pid, marker: math.MaxInt64}
			}
			add(t, m.producerOptions(leader(), pid, true), x)
			m.open[pid] = x
		}
		endTxn := func(t *rapid.T) {
			if len(m.open) == 0 {
				t.Skip()
			}
			pid := rapid.SampledFrom(slices.Sorted(maps.Keys(m.open))).Draw(t, "producer")
			abort := rapid.Bool().Draw(t, "abort")
			epoch, _ := m.producer(pid)
			if abort && rapid.IntRange(0, 3).Draw(t, "fence") == 0 { // as the coordinator does after a timeout
				epoch++
			}
			info := appendTo(t, leader(), txnMarker(pid, epoch, abort, 0), 0)
			m.ended(pid, epoch, abort, info.LastOffset)
			leader().SetHighWatermark(m.end)
		}
		clean := func(t *rapid.T) { any(t).clean(t, m, false) }
		follow := func(t *rapid.T) {
			if !replicas[1].follow(t, leader(), rapid.IntRange(1, 8).Draw(t, "batches")) {
				t.Skip()
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { add(t, recordbatch.NoProducer(), nil) },
			"append of a producer": func(t *rapid.T) {
				add(t, m.producerOptions(leader(), 1, false), nil)
			},
			"append to a transaction":       addToTxn,
			"append to a transaction again": addToTxn,
			"end a transaction":             endTxn,
			"end a transaction again":       endTxn,
			"roll":                          func(t *rapid.T) { must(t, rollNow(any(t).l)) },
			"clean":                         clean,
			"clean again":                   clean,
			"time goes by": func(t *rapid.T) {
				// Neither a tombstone nor a marker reaches a follower that lags for longer than
				// they live, here as with Kafka.
				if next := m.now.Add(time.Duration(rapid.IntRange(20, 70).Draw(t, "minutes")) * time.Minute); next.Sub(caughtUp) < cfg.DeleteRetention {
					m.now = next
				} else {
					replicas[1].follow(t, leader(), math.MaxInt)
					m.now = m.now.Add(min(next.Sub(m.now), cfg.DeleteRetention-time.Millisecond))
				}
			},
			"drop what is due": func(t *rapid.T) {
				if !any(t).letGo(t, m) {
					t.Skip()
				}
			},
			"flush what was rolled": func(t *rapid.T) {
				r := any(t)
				for _, f := range r.later {
					f()
				}
				r.later = nil
			},
			"look for times": func(t *rapid.T) { m.checkLookups(t, any(t).l) },
			"read from everywhere": func(t *rapid.T) {
				m.checkReads(t, any(t).l, rapid.SampledFrom([]int{1, 150, 400, 1 << 20}).Draw(t, "most"))
			},
			"follow":       follow,
			"follow again": follow,
			"restart":      func(t *rapid.T) { any(t).restart(t) },
			"kill":         func(t *rapid.T) { any(t).kill(t) },
			"power cut":    func(t *rapid.T) { any(t).cutPower(t) },
			"truncate": func(t *rapid.T) {
				// Never below a high watermark, or at least not below one that a clean has
				// gone by: what went for the sake of what is cut would be lost.
				least := max(replicas[0].stable, replicas[1].stable)
				can := slices.DeleteFunc(slices.Clone(m.bases), func(o int64) bool { return o < least })
				if len(can) == 0 {
					t.Skip()
				}
				at := rapid.SampledFrom(can).Draw(t, "at")
				m.cut(at)
				for _, r := range replicas {
					r.truncate(t, at)
				}
			},
			"": func(t *rapid.T) {
				for i, r := range replicas {
					m.check(t, r.l, i == 0)
				}
				if replicas[1].l.EndOffset() == m.end {
					caughtUp = m.now
				}
			},
		})
	})
}
