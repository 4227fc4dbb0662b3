package group

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"penstock/dataplane/coordinator"
)

// bytesPerOffset loads offsets in the order of a log that was compacted, which is that of
// the last commits, and says what each costs in memory.
func bytesPerOffset(groups, topics, partitions int, metadata string) (float64, int) {
	var recs []coordinator.Record
	now := time.Now().UnixMilli()
	for g := range groups {
		for t := range topics {
			for p := range partitions {
				recs = append(recs, offsetRecord(fmt.Sprintf("application-%04d", g), fmt.Sprintf("some-topic-%03d", t),
					committedOffset(int32(p), int64(p), 3, metadata, now, noExpiry)))
			}
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
	before := heap()
	l := newLoader(nil, nil)
	for _, r := range recs {
		l.Add(coordinator.Logged{Record: r, Producer: coordinator.NoTransaction})
	}
	loaded, _ := l.Entities()
	l = nil
	n := 0
	after := heap()
	for _, g := range loaded {
		n += g.offsets.len()
	}
	runtime.KeepAlive(recs)
	return float64(after-before) / float64(n), n
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// What a committed offset costs is what a broker's memory has to be planned with.
func TestBytesOfACommittedOffset(t *testing.T) {
	for _, c := range []struct {
		what                       string
		groups, topics, partitions int
		metadata                   string
		limit                      float64
	}{
		{"wide topics", 2, 10, 1000, "", 60},
		{"usual topics", 20, 20, 50, "", 75},
		{"topics of one partition", 20, 1000, 1, "", 220},
		{"with a text", 2, 10, 1000, "AgAAAZIq0Lk9", 125},
	} {
		per, n := bytesPerOffset(c.groups, c.topics, c.partitions, c.metadata)
		t.Logf("%s: %.0f bytes an offset, of %d", c.what, per, n)
		if n != c.groups*c.topics*c.partitions || per > c.limit {
			t.Errorf("%s: %.0f bytes an offset, of %d; at most %.0f", c.what, per, n, c.limit)
		}
	}
}

// BenchmarkLoadOffsets is what the coordinator itself needs for a record, without the
// reading of the log.
func BenchmarkLoadOffsets(b *testing.B) {
	var recs []coordinator.Record
	for i := range 200_000 {
		recs = append(recs, offsetRecord(fmt.Sprintf("application-%04d", i/1000%100), fmt.Sprintf("some-topic-%03d", i/100_000),
			committedOffset(int32(i%1000), int64(i), 3, "", 1, noExpiry)))
	}
	b.ReportAllocs()
	l := newLoader(nil, nil)
	i := 0
	for b.Loop() {
		l.Add(coordinator.Logged{Record: recs[i%len(recs)], Producer: coordinator.NoTransaction})
		i++
	}
}
