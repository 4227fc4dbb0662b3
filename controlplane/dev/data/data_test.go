package data

import (
	"bytes"
	"testing"
)

func TestEarthquakesAreAllThereAndInOrder(t *testing.T) {
	all, err := Earthquakes()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1707 {
		t.Errorf("%d events, want 1707", len(all))
	}
	seen := map[string]bool{}
	for i, e := range all {
		if seen[e.ID] || e.ID == "" || e.Network == "" {
			t.Errorf("event %d: id %q, network %q", i, e.ID, e.Network)
		}
		seen[e.ID] = true
		if i > 0 && e.Time < all[i-1].Time {
			t.Errorf("event %d is older than the one before", i)
		}
		if bytes.ContainsAny(e.Line, "\r\n") || !bytes.HasPrefix(e.Line, []byte("{")) {
			t.Errorf("event %d: line %q", i, e.Line)
		}
	}
}
