package coordination

import (
	"testing"
	"time"

	"penstock/dataplane/coordination/zktest"
)

// All brokers see the same version for the same list, and a higher one after each change.
func TestListOfRegistrationsHasAVersion(t *testing.T) {
	addr := zktest.Shared(t).Addr() + zktest.Path()
	one := connect(t, Config{Connect: addr, SessionTimeout: 10 * time.Second})
	two := connect(t, Config{Connect: addr, SessionTimeout: 10 * time.Second})
	must(t, one.EnsureLayout(t.Context()))
	changed := make(chan struct{}, 10)
	t.Cleanup(two.WatchBrokers(func() { changed <- struct{}{} }))
	last := int64(-1)
	look := func(want ...int32) {
		t.Helper()
		bs, version, err := two.Registrations(t.Context())
		must(t, err)
		again, same, err := one.Registrations(t.Context())
		must(t, err)
		if version <= last || same != version || len(bs) != len(want) || len(again) != len(want) {
			t.Fatalf("%d brokers of version %d, %d of version %d; want %d, above %d", len(bs), version, len(again), same, len(want), last)
		}
		for i, b := range bs {
			if b.ID != want[i] || len(b.Features) != 1 || b.Features["f"] != (FeatureRange{0, int16(b.ID)}) {
				t.Errorf("%+v", b)
			}
		}
		last = version
	}
	register := func(c *Client, id int32) int64 {
		t.Helper()
		b := testBroker(id, 9000+10*id)
		b.Features = map[string]FeatureRange{"f": {0, int16(id)}}
		epoch, err := c.RegisterBroker(t.Context(), b)
		must(t, err)
		return epoch
	}
	look()
	register(one, 1)
	<-changed
	look(1)
	epoch := register(two, 2)
	<-changed
	look(1, 2)
	must(t, two.UnregisterBroker(t.Context(), 2, epoch))
	<-changed
	look(1)
}
