package commitlog

import (
	"math/bits"
	"math/rand"
	"sort"
	"testing"

	"penstock/dataplane/vfs"
)

func TestIndexSearchFindsTheFloorHoweverUnevenTheKeys(t *testing.T) {
	r := rand.New(rand.NewSource(3))
	grow := map[string]func(i int) int64{
		"even":    func(int) int64 { return 7 },
		"uneven":  func(int) int64 { return 1 + r.Int63n(1000) },
		"jump":    func(i int) int64 { return map[bool]int64{true: 1 << 40, false: 1}[i == 2500] },
		"squares": func(i int) int64 { return int64(2*i + 1) },
		"doubles": func(i int) int64 { return 1 << min(i/120, 40) },
	}
	for name, step := range grow {
		for _, n := range []int{0, 1, 340, 342, 700, 5000} {
			for _, pending := range []int{0, 100} {
				reads := 0
				fsys := &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, _ string) error {
					if op == vfs.OpRead {
						reads++
					}
					return nil
				}}
				must(t, fsys.MkdirAll(dir))
				x := index{file: newFileRef(fsys, dir, 0, timeSuffix, true), entry: timeEntrySize, max: 1 << 20}
				var keys []int64
				for i := range n + pending {
					k := step(i)
					if i > 0 {
						k += keys[i-1]
					}
					keys = append(keys, k)
					e := timeEntry(k, uint32(i))
					x.pending = append(x.pending, e[:]...)
					copy(x.last[:], e[:])
					if i == n-1 {
						must(t, x.write())
					}
				}
				most := 2*bits.Len(uint(n)) + 2
				for range 300 {
					want := int64(-1)
					if len(keys) > 0 {
						want = keys[r.Intn(len(keys))] + r.Int63n(3) - 1
					}
					reads = 0
					var e [timeEntrySize]byte
					ok, err := x.floor(&e, want, entryTime)
					must(t, err)
					i := sort.Search(len(keys), func(i int) bool { return keys[i] > want }) - 1
					if ok != (i >= 0) || ok && entryTimeOffset(e[:]) != int64(i) {
						t.Fatalf("%s, %d+%d entries: floor of %d is entry %d, %v; want %d", name, n, pending, want, entryTimeOffset(e[:]), ok, i)
					}
					if reads > most || name == "even" && reads > 3 {
						t.Fatalf("%s, %d+%d entries: %d reads", name, n, pending, reads)
					}
				}
				must(t, x.file.retire())
			}
		}
	}
}
