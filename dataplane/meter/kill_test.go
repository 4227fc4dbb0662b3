package meter

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"penstock/tenants/usage"
)

func TestKillWhileOpeningLosesAndDoublesNothing(t *testing.T) {
	top, dir := newTopic(), t.TempDir()
	m := open(t, dir, top)
	m.Fetched("User:a", 10, 0)
	m.Appended("User:a", tp("t", 0), 0, 9, 100, 10)
	kill(m)
	current := filepath.Join(dir, currentName)
	before, err := os.ReadFile(current)
	if err != nil {
		t.Fatal(err)
	}
	kill(open(t, dir, top)) // boots, then dies
	// As if it had died before the rename: the old file is still the current one.
	if err := os.WriteFile(current, before, 0o600); err != nil {
		t.Fatal(err)
	}
	m = open(t, dir, top)
	m.Committed(tp("t", 0), 10)
	m.Start()
	top.await(t, "usage", func() bool {
		out, _, _ := top.sum("User:a", usage.Out)
		in, _, _ := top.sum("User:a", usage.In)
		return out == 10 && in == 100
	})
	m.Close(context.Background())
	// A last boot finds nothing more to tell.
	n := len(top.records)
	m = open(t, dir, top)
	m.Start()
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if in, _, _ := top.sum("User:a", usage.In); in != 100 || len(top.records) > n+1 {
		t.Fatalf("in %d, %d records after %d", in, len(top.records), n)
	}
}

// A process that is really killed, at any instant, leaves exactly what it had
// counted.
func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir()
	var in, out int64 // at least what earlier rounds had counted
	top := newTopic()
	for round := range 8 {
		cmd, lines := startChild(t, dir)
		var s step
		for n := 0; n < 50+37*round && lines.Scan(); n++ {
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
		}
		cmd.Process.Kill()
		for lines.Scan() { // what it had said before it died
			var last step
			if json.Unmarshal(lines.Bytes(), &last) == nil {
				s = last
			}
		}
		cmd.Wait()
		m := open(t, dir, top)
		m.Start()
		top.await(t, "final record", func() bool { return len(finalFiles(t, dir)) == 0 })
		gotIn, gotRecords, gotRequests := top.sum("User:a", usage.In)
		gotOut, _, _ := top.sum("User:a", usage.Out)
		// It may have got one step further than it could tell.
		if d := gotIn - in - s.Bytes; d < 0 || d > 300 {
			t.Fatalf("round %d: %d bytes in, told of %d", round, gotIn-in, s.Bytes)
		}
		if d := gotOut - out - s.OutBytes; d != 0 && d != 7 {
			t.Fatalf("round %d: %d bytes out, told of %d", round, gotOut-out, s.OutBytes)
		}
		if gotRecords != gotIn/10 || gotRequests != gotIn/100 {
			t.Fatalf("torn counter: %d bytes, %d records, %d requests", gotIn, gotRecords, gotRequests)
		}
		if n := m.Pending(); n > 3 {
			t.Fatalf("%d batches pending", n)
		}
		m.Truncated(tp("t", 0), 0)
		if err := m.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		in, out = gotIn, gotOut
	}
}

// Every prefix of the stores that an operation makes must give, when the file
// is opened, the state before or the state after.
func TestEveryInstantOfAChangeIsSafe(t *testing.T) {
	dir := t.TempDir()
	m := open(t, dir, newTopic(), func(c *Config) { c.MaxPrincipals, c.MaxPartitions, c.MaxJournal = 2, 2, 4 })
	defer kill(m)
	a := tp("t", 0)
	m.Appended("User:a", a, 0, 9, 100, 10)
	before := append([]byte(nil), m.l.data...)
	m.Committed(a, 10)
	after := append([]byte(nil), m.l.data...)
	// The stores in order: the op's fields, its kind, the counter, the slot, the kind.
	l := &layout{data: aligned(before), np: m.l.np, nt: m.l.nt, nj: m.l.nj}
	c, slot := l.counter(counterIndex(1, dirIn)), int64(m.l.nj)
	for i := uint32(0); i < l.nj; i++ {
		if _, used := l.entry(i); used {
			slot = int64(i)
		}
	}
	stores := []func(){
		func() { l.put(opIndex, int64(counterIndex(1, dirIn))) }, func() { l.put(opSlot, slot+1) },
		func() { l.put(opValues, 100) }, func() { l.put(opValues+8, 10) }, func() { l.put(opValues+16, 1) }, func() { l.put(opValues+24, 0) },
		func() { l.put(opKind, opCounter) },
		func() { l.put(c, 100) }, func() { l.put(c+8, 10) }, func() { l.put(c+16, 1) },
		func() { l.free(uint32(slot)) }, func() { l.put(opKind, opNone) },
	}
	for n := 0; n <= len(stores); n++ {
		got, dropped, err := parse(aligned(append([]byte(nil), l.data...)))
		if err != nil || dropped != 0 {
			t.Fatalf("after %d stores: %v, %d dropped", n, err, dropped)
		}
		v := got.values(counterIndex(1, dirIn))
		_, pending := got.entry(uint32(slot))
		if counted := v == (values{100, 10, 1}); counted == pending || (!counted && v != values{}) {
			t.Fatalf("after %d stores: %v, pending %v", n, v, pending)
		}
		if n < len(stores) {
			stores[n]()
		}
	}
	if string(l.data) != string(after) {
		t.Fatal("the list of stores is not what the meter does")
	}
}
