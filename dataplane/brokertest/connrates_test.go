package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestConnectionRatesAreQuotas: the rate at which an address may make connections (KIP-612) is set, described and
// removed as other quotas are, holds at once, and outlives a restart; that of a listener is a
// setting, and whoever is above it waits.
func TestConnectionRatesAreQuotas(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Settings: []string{"quota.window.num=2", "quota.window.size.seconds=1"}})
	n := c.Brokers[0]
	w := dialBroker(t, n.Addr)
	ip, here, user := "ip", "127.0.0.1", "user"
	refused := func(what string, want bool) {
		t.Helper()
		Await(t, time.Minute, fmt.Sprintf("%s: connections are refused: %v", what, want), func() error {
			failed := 0
			for range 20 {
				other := dialWire(t, n.Addr)
				if _, err := other.ask(kmsg.NewPtrApiVersionsRequest()); err != nil {
					failed++
				}
				other.Close()
			}
			if (failed > 0) != want {
				return fmt.Errorf("%d of 20", failed)
			}
			return nil
		})
	}
	set := func(want *kerr.Error, e kmsg.AlterClientQuotasRequestEntry) {
		t.Helper()
		wantCode(t, fmt.Sprintf("%+v", e), alterQuotas(w, false, e)[0].ErrorCode, want)
	}
	rate := map[string]float64{"connection_creation_rate": 2}
	refused("at first", false)
	set(nil, quotaEntry(rate, nil, &ip, &here))
	refused("with a rate of 2", true)
	if got := quotasOf(w, true, "ip", 0, here); len(got) != 1 || got["ip=127.0.0.1 "]["connection_creation_rate"] != 2 {
		t.Errorf("described as %v", got)
	}
	if got := quotasOf(w, false, "user", 2, nil); len(got) != 0 {
		t.Errorf("as a user's: %v", got)
	}
	set(nil, quotaEntry(nil, []string{"connection_creation_rate"}, &ip, &here))
	refused("without", false)
	set(nil, quotaEntry(rate, nil, &ip, nil))
	refused("with a rate of 2 for all", true)
	if got := quotasOf(w, true, "ip", 1, nil); len(got) != 1 || got["ip=<null> "]["connection_creation_rate"] != 2 {
		t.Errorf("the default is described as %v", got)
	}
	n.Stop()
	n.Start()
	refused("after a restart", true)
	time.Sleep(3 * time.Second) // from rest at least one gets in
	w = dialBroker(t, n.Addr)
	set(nil, quotaEntry(nil, []string{"connection_creation_rate"}, &ip, nil))
	refused("without again", false)

	nowhere := "nowhere.example.org"
	set(kerr.InvalidRequest, quotaEntry(rate, nil, &ip, &here, &user, &here))
	set(kerr.InvalidRequest, quotaEntry(rate, nil, &user, &here))
	set(kerr.InvalidRequest, quotaEntry(rate, nil, &ip, &nowhere))
	set(kerr.InvalidRequest, quotaEntry(map[string]float64{"producer_byte_rate": 5}, nil, &ip, &here))
	set(kerr.InvalidRequest, quotaEntry(map[string]float64{"connection_creation_rate": 1.5}, nil, &ip, &here))

	// The listener's own: nobody is refused, and 13 connections at 4 a second, of which 8 may come at once, take a while.
	setBroker(w, "", "listener.name.plaintext.max.connection.creation.rate", "4")
	Await(t, time.Minute, "connections wait", func() error {
		began := time.Now()
		for range 13 {
			other := dialWire(t, n.Addr)
			if _, err := other.ask(kmsg.NewPtrApiVersionsRequest()); err != nil {
				t.Fatalf("one above the rate: %v", err)
			}
			other.Close()
		}
		if took := time.Since(began); took < time.Second {
			return fmt.Errorf("13 took %v", took)
		}
		return nil
	})
}
