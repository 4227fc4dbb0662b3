package meter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/tenants/usage"
)

func TestOnlyCommittedBatchesCount(t *testing.T) {
	m := open(t, t.TempDir(), newTopic())
	defer m.Close(context.Background())
	a := tp("t", 0)
	m.Appended("User:a", a, 0, 9, 1000, 10)
	m.Appended("User:b", a, 10, 19, 2000, 10)
	wantUsage(t, m, "User:a", usage.In, 0, 0, 0)
	m.Committed(a, 9) // the last record of the first batch is not committed
	wantUsage(t, m, "User:a", usage.In, 0, 0, 0)
	m.Committed(a, 10)
	wantUsage(t, m, "User:a", usage.In, 1000, 10, 1)
	wantUsage(t, m, "User:b", usage.In, 0, 0, 0)
	m.Committed(a, 5) // late news
	m.Committed(a, 20)
	m.Committed(a, 20)
	wantUsage(t, m, "User:b", usage.In, 2000, 10, 1)
	if n := m.Pending(); n != 0 {
		t.Fatalf("%d batches pending", n)
	}
	m.Fetched("User:a", 500, 3)
	m.Fetched("User:a", 500, 0)
	wantUsage(t, m, "User:a", usage.Out, 1000, 3, 2)
}

func TestTruncatedBatchesDoNotCount(t *testing.T) {
	m := open(t, t.TempDir(), newTopic())
	defer m.Close(context.Background())
	a := tp("t", 0)
	for i := range int64(3) {
		m.Appended("User:a", a, 10*i, 10*i+9, 100, 10)
	}
	m.Truncated(a, 20)
	m.Appended("User:b", a, 20, 24, 7, 5) // other content at the same offset
	m.Truncated(tp("t", 1), 0)            // another partition
	m.Committed(a, 25)
	wantUsage(t, m, "User:a", usage.In, 200, 20, 2)
	wantUsage(t, m, "User:b", usage.In, 7, 5, 1)
}

func TestAppendOverOldOffsetsDropsWhatWasThere(t *testing.T) {
	m := open(t, t.TempDir(), newTopic())
	defer m.Close(context.Background())
	a := tp("t", 0)
	m.Appended("User:a", a, 1000, 1009, 100, 10)
	m.Appended("User:a", a, 0, 9, 5, 10) // the topic was made anew
	m.Committed(a, 5000)
	wantUsage(t, m, "User:a", usage.In, 5, 10, 1)
}

func TestBrokersOwnTrafficIsNotCounted(t *testing.T) {
	m := open(t, t.TempDir(), newTopic())
	defer m.Close(context.Background())
	m.Appended("", tp("__penstock_usage", 0), 0, 0, 100, 1)
	m.Fetched("", 100, 0)
	m.Committed(tp("__penstock_usage", 0), 1)
	if m.Pending() != 0 || len(m.names) != 1 {
		t.Fatal("an empty principal was counted")
	}
}

func TestPrincipalsBeyondTheLimitShareOneCounter(t *testing.T) {
	m := open(t, t.TempDir(), newTopic(), func(c *Config) { c.MaxPrincipals = 2 })
	defer m.Close(context.Background())
	for i := range 10 {
		m.Fetched(fmt.Sprintf("User:%d", i), 1, 0)
	}
	m.Fetched("User:"+strings.Repeat("x", 300), 1, 0)
	wantUsage(t, m, "User:0", usage.Out, 1, 0, 1)
	wantUsage(t, m, usage.Overflow, usage.Out, 9, 0, 9)
}

func TestFullJournalMergesThenCountsAtOnce(t *testing.T) {
	m := open(t, t.TempDir(), newTopic(), func(c *Config) { c.MaxJournal = 8; c.MaxPartitions = 2 })
	defer m.Close(context.Background())
	a := tp("t", 0)
	for i := range int64(100) { // one entry takes in what follows directly
		m.Appended("User:a", a, i, i, 10, 1)
	}
	if m.Pending() > 8 {
		t.Fatal("journal has grown")
	}
	wantUsage(t, m, "User:a", usage.In, 0, 0, 0)
	m.Truncated(a, 90) // inside of a merged entry
	m.Committed(a, 90)
	wantUsage(t, m, "User:a", usage.In, 900, 90, 90)
	for i := range int64(20) { // gaps: nothing to merge
		m.Appended("User:b", a, 1000+10*i, 1000+10*i, 1, 1)
	}
	bytes, _, _ := m.Usage("User:b", usage.In)
	if want := int64(20 - m.Pending()); bytes != want || want == 0 {
		t.Fatalf("%d counted at once, want %d", bytes, want)
	}
	m.Committed(a, 1<<40)
	wantUsage(t, m, "User:b", usage.In, 20, 20, 20)
	for i := range int32(5) { // more partitions than the table holds
		m.Appended("User:c", tp("u", i), 0, 0, 1, 1)
	}
	for i := range int32(5) {
		m.Committed(tp("u", i), 1)
	}
	wantUsage(t, m, "User:c", usage.In, 5, 5, 5)
}

func TestPublishedSumsFollowTheCounters(t *testing.T) {
	top := newTopic()
	m := open(t, t.TempDir(), top)
	m.Start()
	m.Appended("User:a", tp("t", 0), 0, 9, 100, 10)
	m.Committed(tp("t", 0), 10)
	top.await(t, "first record", func() bool { b, _, _ := top.sum("User:a", usage.In); return b == 100 })
	m.Fetched("User:a", 11, 0)
	top.await(t, "second record", func() bool { b, _, _ := top.sum("User:a", usage.Out); return b == 11 })
	m.Fetched("User:a", 1, 0)
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b, _, _ := top.sum("User:a", usage.Out); b != 12 {
		t.Fatalf("%d bytes after Close", b)
	}
	last := top.records[len(top.records)-1]
	if !last.Final || last.Broker != 3 || last.BootEpoch != m.Epoch() || last.Cluster != "clu" {
		t.Fatalf("last record %+v", last)
	}
	for i, r := range top.records {
		if r.Seq != int64(i+1) {
			t.Fatalf("record %d has number %d", i, r.Seq)
		}
	}
	m.Fetched("User:a", 1, 0) // after Close: nothing, and no fault
	m.Appended("User:a", tp("t", 0), 10, 11, 1, 1)
	m.Committed(tp("t", 0), 99)
	m.Truncated(tp("t", 0), 0)
}

func TestFailedPublishIsSentAgainUnchanged(t *testing.T) {
	top := newTopic()
	top.setFail(errors.New("no leader"))
	m := open(t, t.TempDir(), top)
	m.Fetched("User:a", 5, 0)
	m.collect(false)
	if m.flush(context.Background()) == nil {
		t.Fatal("no error")
	}
	m.Fetched("User:a", 5, 0)
	m.collect(false) // must not replace what may have been written
	top.setFail(nil)
	if err := m.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(top.records) != 1 || top.records[0].Seq != 1 || top.records[0].Entries[0].Bytes != 5 {
		t.Fatalf("%+v", top.records)
	}
	m.collect(false)
	if err := m.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(top.records) != 2 || top.records[1].Seq != 2 || top.records[1].Entries[0].Bytes != 10 {
		t.Fatalf("%+v", top.records)
	}
	m.Close(context.Background())
}

func TestManyPrincipalsTakeSeveralRecords(t *testing.T) {
	top := newTopic()
	dir := t.TempDir()
	m := open(t, dir, top)
	n := usage.MaxEntries + 5
	for i := range n {
		m.Fetched(fmt.Sprintf("User:%d", i), int64(i+1), 0)
	}
	kill(m) // the next boot's final records are several, too
	m = open(t, dir, top)
	m.Start()
	top.await(t, "final records", func() bool { b, _, _ := top.sum(fmt.Sprintf("User:%d", n-1), usage.Out); return b == int64(n) })
	m.Close(context.Background())
	if len(top.records) < 2 || top.records[0].Final || !top.records[1].Final || top.records[1].Seq != 2 {
		t.Fatal("final records out of order")
	}
	if len(finalFiles(t, dir)) != 0 {
		t.Fatal("published file not removed")
	}
}

func TestNextBootPublishesTheLastOneFirstAndSettlesItsJournal(t *testing.T) {
	top, dir := newTopic(), t.TempDir()
	m := open(t, dir, top)
	m.Start()
	a := tp("t", 0)
	m.Appended("User:a", a, 0, 9, 100, 10)
	m.Committed(a, 10)
	top.await(t, "record", func() bool { b, _, _ := top.sum("User:a", usage.In); return b == 100 })
	m.Appended("User:a", a, 10, 19, 100, 10)
	m.Committed(a, 20)                       // perhaps not published
	m.Appended("User:a", a, 20, 29, 1, 1)    // will be committed
	m.Appended("User:a", a, 30, 39, 1000, 1) // will be truncated
	m.Appended("User:b", tp("gone", 0), 0, 0, 5, 1)
	first := m.Epoch()
	kill(m)

	m = open(t, dir, top)
	if m.Epoch() <= first {
		t.Fatalf("epoch %d after %d", m.Epoch(), first)
	}
	if m.Pending() != 3 {
		t.Fatalf("%d batches carried over", m.Pending())
	}
	m.Truncated(a, 30) // the log's end after the restart
	m.Committed(a, 30)
	m.Removed(tp("gone", 0))
	m.Start()
	top.await(t, "second boot", func() bool { b, _, _ := top.sum("User:a", usage.In); return b == 201 })
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b, _, _ := top.sum("User:b", usage.In); b != 0 {
		t.Fatal("a removed partition's batch was counted")
	}
	seen := false // of the second boot
	for _, r := range top.records {
		if seen && r.BootEpoch == first {
			t.Fatal("the earlier boot was published after the later")
		}
		seen = seen || r.BootEpoch != first
	}
}

func TestUnpublishedFinalWaitsForTheNextBoot(t *testing.T) {
	top, dir := newTopic(), t.TempDir()
	m := open(t, dir, top)
	m.Start()
	m.Fetched("User:a", 10, 0)
	top.setFail(errors.New("no leader"))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if m.Close(ctx) == nil {
		top.await(t, "usage", func() bool { b, _, _ := top.sum("User:a", usage.Out); return b == 10 })
	}
	// Two boots come and go without a topic.
	for range 2 {
		m = open(t, dir, top)
		m.Fetched("User:a", 1, 0)
		m.Close(ctx)
	}
	top.setFail(nil)
	m = open(t, dir, top)
	m.Start()
	top.await(t, "usage", func() bool { b, _, _ := top.sum("User:a", usage.Out); return b == 12 })
	m.Close(context.Background())
}

func TestOldUnsettledBatchesAreDropped(t *testing.T) {
	top, dir := newTopic(), t.TempDir()
	now := time.Now()
	clock := func(c *Config) { c.Now = func() time.Time { return now } }
	m := open(t, dir, top, clock)
	m.Appended("User:a", tp("t", 0), 0, 9, 100, 10)
	kill(m)
	now = now.Add(unsettled + time.Hour)
	m = open(t, dir, top, clock)
	defer m.Close(context.Background())
	if m.Pending() != 0 {
		t.Fatal("still there")
	}
}

func TestEpochGrowsWhenTheClockStepsBack(t *testing.T) {
	top, dir := newTopic(), t.TempDir()
	now := time.Now()
	clock := func(c *Config) { c.Now = func() time.Time { return now } }
	m := open(t, dir, top, clock)
	first := m.Epoch()
	kill(m)
	now = now.Add(-time.Hour)
	m = open(t, dir, top, clock)
	defer m.Close(context.Background())
	if m.Epoch() != first+1 {
		t.Fatalf("epoch %d after %d", m.Epoch(), first)
	}
}

func TestUnusableFileIsPutAside(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"short": func(b []byte) []byte { return b[:len(b)-1] },
		"magic": func(b []byte) []byte { b[0] ^= 1; return b },
		"epoch": func(b []byte) []byte { b[offEpoch] ^= 1; return b },
	} {
		t.Run(name, func(t *testing.T) {
			top, dir := newTopic(), t.TempDir()
			kill(open(t, dir, top))
			path := filepath.Join(dir, currentName)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			m := open(t, dir, top)
			defer m.Close(context.Background())
			aside, _ := filepath.Glob(path + ".unusable-*")
			if len(aside) != 1 {
				t.Fatal("not put aside")
			}
			m.Fetched("User:a", 1, 0)
			wantUsage(t, m, "User:a", usage.Out, 1, 0, 1)
		})
	}
}

func TestMeterAgreesWithASimpleModel(t *testing.T) {
	top := newTopic()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "meter")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		small := func(c *Config) { c.MaxPrincipals, c.MaxPartitions, c.MaxJournal = 4, 4, 256 }
		open := func() *Meter {
			cfg := Config{Dir: dir, Broker: 1, Publish: top.publish}
			small(&cfg)
			m, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return m
		}
		m := open()
		type batch struct {
			p          string
			base, last int64
			bytes      int64
		}
		logs := map[int32][]batch{}
		end, hw := map[int32]int64{}, map[int32]int64{}
		want := map[string]int64{} // of this boot
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p := rapid.Int32Range(0, 2).Draw(t, "partition")
			part := tp("t", p)
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1, 2, 3:
				b := batch{p: rapid.SampledFrom([]string{"User:a", "User:b"}).Draw(t, "who"), base: end[p], bytes: rapid.Int64Range(1, 100).Draw(t, "bytes")}
				b.last = b.base + rapid.Int64Range(0, 4).Draw(t, "records")
				end[p] = b.last + 1
				logs[p] = append(logs[p], b)
				m.Appended(b.p, part, b.base, b.last, b.bytes, b.last-b.base+1)
			case 4, 5, 6:
				to := rapid.Int64Range(hw[p], end[p]).Draw(t, "hw")
				hw[p] = to
				for len(logs[p]) > 0 && logs[p][0].last < to {
					want[logs[p][0].p] += logs[p][0].bytes
					logs[p] = logs[p][1:]
				}
				m.Committed(part, to)
			case 7, 8:
				if n := len(logs[p]); n > 0 {
					b := logs[p][n-1]
					if b.base >= hw[p] {
						end[p], logs[p] = b.base, logs[p][:n-1]
						m.Truncated(part, b.base)
					}
				}
			case 9:
				kill(m)
				m = open()
				want = map[string]int64{}
			}
		}
		for _, who := range []string{"User:a", "User:b"} {
			if got, _, _ := m.Usage(who, usage.In); got != want[who] {
				t.Fatalf("%s: %d bytes, want %d", who, got, want[who])
			}
		}
		left := 0
		for _, l := range logs {
			left += len(l)
		}
		if m.Pending() != left {
			t.Fatalf("%d pending, want %d", m.Pending(), left)
		}
		kill(m)
	})
}

func TestHooksFromManyGoroutines(t *testing.T) {
	top := newTopic()
	m := open(t, t.TempDir(), top)
	m.Start()
	var wg sync.WaitGroup
	for p := range int32(4) {
		wg.Go(func() {
			for i := range int64(500) {
				m.Appended("User:a", tp("t", p), i, i, 10, 1)
				m.Committed(tp("t", p), i+1)
				m.Fetched("User:a", 10, 1)
			}
		})
	}
	wg.Wait()
	wantUsage(t, m, "User:a", usage.In, 20000, 2000, 2000)
	wantUsage(t, m, "User:a", usage.Out, 20000, 2000, 2000)
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if b, _, _ := top.sum("User:a", usage.In); b != 20000 {
		t.Fatalf("published %d", b)
	}
}

// The fuzzer writes over the op record and over all behind the header, whose
// checksum it would not get past otherwise.
func FuzzParse(f *testing.F) {
	m := open(f, f.TempDir(), newTopic(), func(c *Config) { c.MaxPrincipals, c.MaxPartitions, c.MaxJournal = 1, 1, 2 })
	m.Appended("User:a", tp("t", 0), 0, 9, 100, 10)
	m.Fetched("User:a", 1, 0)
	good := append([]byte(nil), m.l.data...)
	kill(m)
	op := good[offOp : offOp+56]
	f.Add(append([]byte(nil), op...), good[headerSize:])
	f.Add([]byte{1}, []byte(nil))
	f.Fuzz(func(t *testing.T, op, rest []byte) {
		if l, _, err := parse(aligned(rest)); err == nil || l != nil {
			t.Fatal("a file without a header was taken")
		}
		data := aligned(good)
		copy(data[offOp:offOp+56], op)
		copy(data[headerSize:], rest)
		l, _, err := parse(data)
		if err != nil {
			t.Fatal(err)
		}
		if l.get(opKind) != opNone {
			t.Fatal("an op is left under way")
		}
		for i := uint32(0); i < l.nj; i++ {
			if e, used := l.entry(i); used {
				if _, ok := l.tp(e.partition); !ok || l.name(e.principal) == "" || e.last < e.base {
					t.Fatal("an entry that makes no sense was kept")
				}
			}
		}
		for i := uint32(0); i < l.np; i++ {
			l.name(i)
			l.values(counterIndex(i, dirOut))
		}
	})
}

func BenchmarkAppendedCommitted(b *testing.B) {
	m := open(b, b.TempDir(), newTopic(), func(c *Config) { c.Now = time.Now })
	defer kill(m)
	a := tp("t", 0)
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		m.Appended("User:a", a, i, i, 100, 1)
		m.Committed(a, i+1)
	}
}
