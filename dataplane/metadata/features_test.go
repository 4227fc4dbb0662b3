package metadata

import (
	"maps"
	"testing"

	"penstock/dataplane/protocol"
)

func TestFeatureIsInForceAtWhatEveryLiveBrokerCanDo(t *testing.T) {
	own := []protocol.Feature{{Name: "a", Min: 0, Max: 2}, {Name: "b", Min: 0, Max: 1}}
	can := func(fs ...protocol.Feature) map[string]protocol.Feature {
		m := map[string]protocol.Feature{}
		for _, f := range fs {
			m[f.Name] = f
		}
		return m
	}
	ours := can(own...)
	for what, c := range map[string]struct {
		brokers []map[string]protocol.Feature
		want    map[string]int16
	}{
		"no broker":                {nil, map[string]int16{}},
		"all alike":                {[]map[string]protocol.Feature{ours, ours}, map[string]int16{"a": 2, "b": 1}},
		"one that names none":      {[]map[string]protocol.Feature{ours, can()}, map[string]int16{}},
		"one that can do less":     {[]map[string]protocol.Feature{ours, can(protocol.Feature{Name: "a", Max: 1})}, map[string]int16{"a": 1}},
		"one that can do more":     {[]map[string]protocol.Feature{ours, can(protocol.Feature{Name: "a", Max: 9}, protocol.Feature{Name: "c", Max: 1})}, map[string]int16{"a": 2}},
		"one that is too new":      {[]map[string]protocol.Feature{ours, can(protocol.Feature{Name: "a", Min: 3, Max: 9})}, map[string]int16{}},
		"one that demands as much": {[]map[string]protocol.Feature{ours, can(protocol.Feature{Name: "a", Min: 2, Max: 9})}, map[string]int16{"a": 2}},
	} {
		if got := Finalize(7, own, c.brokers); got.Epoch != 7 || !maps.Equal(got.Levels, c.want) {
			t.Errorf("%s: %+v, want %v", what, got, c.want)
		}
	}
}
