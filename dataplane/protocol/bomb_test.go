package protocol

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"testing"
)

// Bodies made to decode into far more than their size. What decoding them
// allocates in all, garbage included, must not exceed what Measure says.
func TestMeasureCoversWhatHostileBodiesAllocate(t *testing.T) {
	uv := func(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)) }
	f := func(name string, key, version int16, body []byte, atLeast int64) {
		t.Helper()
		a := Lookup(key)
		n, err := a.shape.measure(version, true, body, 1<<40)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := a.Decode(version, body); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		runtime.ReadMemStats(&after)
		took := int64(after.TotalAlloc - before.TotalAlloc)
		t.Logf("%s: body %d, measured %d (%.0fx), took %d", name, len(body), n, float64(n)/float64(len(body)), took)
		// The race detector's build makes an array twice where append grows it.
		if took > n+8<<10 && !raceBuild {
			t.Errorf("%s: measured %d, took %d", name, n, took)
		}
		if n < atLeast {
			t.Errorf("%s: measured only %d", name, n)
		}
	}
	const n = 20_000
	f("one tag a topic", 3, 9, append(append(uv(nil, n+1), bytes.Repeat([]byte{1, 1, 99, 0}, n)...), 0, 0, 0, 0), n*300)
	many := uv([]byte{1, 0, 0, 0}, n)
	for i := range n {
		many = append(uv(many, 100+i), 0)
	}
	f("many tags in one place", 3, 9, many, n*40)
	f("empty topics", 0, 9, append(append(append([]byte{0, 0, 0, 0, 0, 0, 0}, uv(nil, n+1)...), bytes.Repeat([]byte{1, 1, 0}, n)...), 0), n*64)
	// Of each topic's partitions.
	topic := append(append([]byte{1}, uv(nil, 101)...), bytes.Repeat([]byte{0, 0, 0, 0, 0, 0}, 100)...)
	f("empty partitions", 0, 9, append(append(append([]byte{0, 0, 0, 0, 0, 0, 0}, uv(nil, 201)...), bytes.Repeat(append(topic, 0), 200)...), 0), n*40)
	f("one letter strings", 42, 2, append(append(uv(nil, n+1), bytes.Repeat([]byte{2, 'a'}, n)...), 0), n*16)
	f("arrays of arrays", 37, 3, append(append(append([]byte{2, 2, 'a', 0, 0, 0, 1}, uv(nil, n+1)...), bytes.Repeat([]byte{1, 0}, n)...), 0, 0, 0, 0, 0, 0, 0), n*32)
}
