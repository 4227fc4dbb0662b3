package handler

import (
	"context"
	"testing"

	"penstock/dataplane/protocol"
)

// Never advertise what is not there, and serve what is advertised.
func TestServedKeysAreTheAdvertisedOnes(t *testing.T) {
	h := New(context.Background(), Deps{})
	served := map[int16]bool{}
	for _, k := range h.Keys() {
		served[k] = true
		if protocol.Lookup(k) == nil {
			t.Errorf("key %d has a handler but no row in the table of versions", k)
		}
	}
	for _, a := range protocol.APIs() {
		if !served[a.Key] {
			t.Errorf("%s is advertised but has no handler", a.Name)
		}
	}
}
