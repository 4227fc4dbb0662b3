package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The table does what a map of maps would.
func TestOffsetTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table offsetTable
		model := map[string]map[int32]int64{}
		topic := rapid.SampledFrom([]string{"a", "b"})
		partition := rapid.OneOf(rapid.Int32Range(0, 200), rapid.Int32())
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				got := map[string]map[int32]int64{}
				table.each(func(topic string, o *offset) {
					if got[topic] == nil {
						got[topic] = map[int32]int64{}
					}
					got[topic][o.partition] = o.offset
				})
				want := maps.Clone(model)
				n := 0
				maps.DeleteFunc(want, func(_ string, m map[int32]int64) bool { n += len(m); return len(m) == 0 })
				if fmt.Sprint(got) != fmt.Sprint(want) || table.len() != n {
					t.Fatalf("%d: %v, want %d: %v", table.len(), got, n, want)
				}
				var order []string
				for _, k := range table.sorted() {
					for _, o := range table.runs[k] {
						order = append(order, fmt.Sprintf("%s %011d", k.topic, int64(o.partition)+1<<31))
					}
				}
				if !slices.IsSorted(order) {
					t.Fatalf("not in order: %v", order)
				}
			},
			"put": func(t *rapid.T) {
				name, p, o := topic.Draw(t, "topic"), partition.Draw(t, "partition"), rapid.Int64().Draw(t, "offset")
				table.put(name, offset{partition: p, offset: o})
				if model[name] == nil {
					model[name] = map[int32]int64{}
				}
				model[name][p] = o
			},
			"remove": func(t *rapid.T) {
				name, p := topic.Draw(t, "topic"), partition.Draw(t, "partition")
				_, want := model[name][p]
				if table.remove(name, p) != want {
					t.Fatalf("removed: %v", !want)
				}
				delete(model[name], p)
			},
			"get": func(t *rapid.T) {
				name, p := topic.Draw(t, "topic"), partition.Draw(t, "partition")
				want, ok := model[name][p]
				got := table.get(name, p)
				if (got != nil) != ok || ok && got.offset != want {
					t.Fatalf("%+v, want %d, %v", got, want, ok)
				}
			},
			"clip": func(*rapid.T) { table.clip() },
		})
	})
}
