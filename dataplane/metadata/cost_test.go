package metadata

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/protocol"
)

// filled is a cluster of that many partitions, so many in each topic.
func filled(t testing.TB, partitions, each int) *Cache {
	t.Helper()
	c := NewCache("")
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.ControllerEpoch = 1
	for i := 0; i < partitions; i += each {
		ts := state(fmt.Sprintf("topic-%06d", i/each), 0)
		ts.TopicID = protocol.UUID{1, byte(i >> 16), byte(i >> 8), byte(i)}
		for p := range int32(each) {
			ts.PartitionStates = append(ts.PartitionStates, part(p, 1, 0))
		}
		req.TopicStates = append(req.TopicStates, ts)
	}
	if _, err := c.Apply(req); err != nil {
		t.Fatal(err)
	}
	return c
}

var clusters = []struct{ partitions, each int }{{10, 10}, {1000, 10}, {100_000, 10}, {1000, 1000}, {100_000, 100_000}}

// changeOne is an update about one partition in the midst of a cluster.
func changeOne(partitions, each int) *kmsg.UpdateMetadataRequest {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.ControllerEpoch = 1
	ts := state(fmt.Sprintf("topic-%06d", partitions/each/2), 0, part(int32(each/2), 2, 1))
	ts.TopicID = protocol.UUID{}
	req.TopicStates = append(req.TopicStates, ts)
	return req
}

func BenchmarkApplyOnePartition(b *testing.B) {
	for _, tc := range clusters {
		b.Run(fmt.Sprintf("of=%d/topics=%d", tc.partitions, tc.partitions/tc.each), func(b *testing.B) {
			c, req := filled(b, tc.partitions, tc.each), changeOne(tc.partitions, tc.each)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Apply(req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAnUpdateCostsWhatItChanges measures by memory, which the machine's load does
// not change: a copy of the map of 100,000 partitions or of 10,000 topics would
// take hundreds of kilobytes.
func TestAnUpdateCostsWhatItChanges(t *testing.T) {
	for _, tc := range clusters {
		c, req := filled(t, tc.partitions, tc.each), changeOne(tc.partitions, tc.each)
		const rounds = 50
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			if d, err := c.Apply(req); err != nil || len(d.Changed) != 1 {
				t.Fatalf("%+v, %v", d, err)
			}
		}
		runtime.ReadMemStats(&after)
		if got := (after.TotalAlloc - before.TotalAlloc) / rounds; got > 20<<10 {
			t.Errorf("one of %d partitions in %d topics changed: %d bytes taken", tc.partitions, tc.partitions/tc.each, got)
		}
	}
}

func TestLookupsTakeNoMemory(t *testing.T) {
	c := filled(t, 1000, 10)
	id, _ := c.Image().TopicID("topic-000007")
	if n := testing.AllocsPerRun(100, func() {
		im := c.Image()
		if name, ok := im.TopicName(id); !ok || im.Partition(name, 3) == nil {
			t.Fatal("not found")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestImagesBehaveLikeMaps applies updates at random, and finds in each image,
// also long after it was replaced, what a plain copy of everything has; all the
// while others read the images.
func TestImagesBehaveLikeMaps(t *testing.T) {
	type seen struct {
		im   *Image
		want map[string]map[int32]int32 // leader epochs
		ids  map[string]byte
	}
	rapid.Check(t, func(t *rapid.T) {
		c := NewCache("")
		want, ids := map[string]map[int32]int32{}, map[string]byte{}
		var all []seen
		var readers sync.WaitGroup
		defer readers.Wait()
		for range rapid.IntRange(1, 12).Draw(t, "updates") {
			req := kmsg.NewPtrUpdateMetadataRequest()
			for range rapid.IntRange(0, 4).Draw(t, "topics") {
				name := fmt.Sprint("t", rapid.IntRange(0, 200).Draw(t, "topic"))
				id := byte(rapid.IntRange(1, 2).Draw(t, "life"))
				ts := state(name, id)
				copy(ts.TopicID[1:], name)
				if ids[name] != id {
					want[name], ids[name] = map[int32]int32{}, id
				}
				for range rapid.IntRange(1, 100).Draw(t, "partitions") {
					p, epoch := rapid.Int32Range(0, 300).Draw(t, "partition"), rapid.Int32Range(0, 99).Draw(t, "epoch")
					if epoch < 30 {
						ts.PartitionStates = append(ts.PartitionStates, part(p, leaderDuringDelete, epoch))
						delete(want[name], p)
					} else {
						ts.PartitionStates = append(ts.PartitionStates, part(p, 1, epoch))
						want[name][p] = epoch
					}
				}
				if len(want[name]) == 0 {
					delete(want, name)
					delete(ids, name)
				}
				req.TopicStates = append(req.TopicStates, ts)
			}
			if _, err := c.Apply(req); err != nil {
				t.Fatal(err)
			}
			s := seen{im: c.Image(), want: map[string]map[int32]int32{}, ids: map[string]byte{}}
			for name, ps := range want {
				s.want[name], s.ids[name] = map[int32]int32{}, ids[name]
				for p, e := range ps {
					s.want[name][p] = e
				}
			}
			all = append(all, s)
			readers.Go(func() {
				for tc := range s.im.Topics() {
					_ = tc.Sorted()
				}
			})
		}
		for i, s := range all {
			n, last := 0, ""
			for tc := range s.im.Topics() {
				if tc.Name <= last {
					t.Fatalf("image %d: %s comes after %s", i, tc.Name, last)
				}
				last = tc.Name
				n++
				var at []int32
				for _, p := range tc.Sorted() {
					if e, ok := s.want[tc.Name][p.Index]; !ok || e != p.LeaderEpoch || tc.Partition(p.Index) != p {
						t.Fatalf("image %d: %s: %+v, want epoch %d, %v", i, tc.Name, p, e, ok)
					}
					at = append(at, p.Index)
				}
				if len(at) != len(s.want[tc.Name]) || !slices.IsSorted(at) {
					t.Fatalf("image %d: %s: %v, want %v", i, tc.Name, at, s.want[tc.Name])
				}
				if name, ok := s.im.TopicName(tc.ID); !ok || name != tc.Name || tc.ID[0] != s.ids[tc.Name] {
					t.Fatalf("image %d: %v is %q", i, tc.ID, name)
				}
			}
			if n != len(s.want) || s.im.names.Len() != n {
				t.Fatalf("image %d: %d topics, %d ids, want %d", i, n, s.im.names.Len(), len(s.want))
			}
		}
	})
}
