package placement

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestBrokersSpreadOverZonesThenHosts(t *testing.T) {
	hosts := []Host{
		{Name: "a1", Zone: "a", Capacity: 9}, {Name: "a2", Zone: "a", Capacity: 9, Used: 1},
		{Name: "b1", Zone: "b", Capacity: 9, Used: 5}, {Name: "c1", Zone: "c", Capacity: 9},
	}
	got, err := Place(5, nil, hosts)
	if err != nil {
		t.Fatal(err)
	}
	want := []Broker{{0, "a1"}, {1, "c1"}, {2, "b1"}, {3, "a2"}, {4, "c1"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBrokerThatHasAPlaceKeepsIt(t *testing.T) {
	have := []Broker{{2, "b"}, {0, "b"}}
	got, err := Place(3, have, []Host{{Name: "a", Capacity: 1}, {Name: "b", Capacity: 2}})
	if err != nil || !slices.Equal(got, []Broker{{0, "b"}, {1, "a"}, {2, "b"}}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNoRoomIsAnError(t *testing.T) {
	if _, err := Place(3, nil, []Host{{Name: "a", Capacity: 4, Used: 2}}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("%v", err)
	}
	if _, err := Place(1, nil, nil); !errors.Is(err, ErrNoRoom) {
		t.Errorf("%v", err)
	}
}

// Whatever the hosts: ids are 0 to count-1, no host holds more than it can, the
// same hosts in any order give the same plan, and growing never moves a broker.
func TestPlansHoldTheirRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hosts []Host
		room := 0
		for i := range rapid.IntRange(1, 6).Draw(t, "hosts") {
			h := Host{Name: fmt.Sprint("h", i), Zone: rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "zone"),
				Capacity: rapid.IntRange(0, 5).Draw(t, "capacity")}
			h.Used = rapid.IntRange(0, h.Capacity).Draw(t, "used")
			room += h.Capacity - h.Used
			hosts = append(hosts, h)
		}
		count := rapid.IntRange(0, 12).Draw(t, "count")
		got, err := Place(count, nil, hosts)
		if (err != nil) != (count > room) {
			t.Fatalf("%d brokers in room for %d: %v", count, room, err)
		}
		if err != nil {
			return
		}
		turned := slices.Clone(hosts)
		slices.Reverse(turned)
		if again, err := Place(count, nil, turned); err != nil || !slices.Equal(again, got) {
			t.Fatalf("the order of hosts matters: %v, %v", got, again)
		}
		on := map[string]int{}
		for i, b := range got {
			if b.ID != int32(i) {
				t.Fatalf("ids %v", got)
			}
			on[b.Host]++
		}
		for _, h := range hosts {
			if on[h.Name]+h.Used > h.Capacity {
				t.Fatalf("host %+v got %d", h, on[h.Name])
			}
		}
		// Growing a plan never moves a broker.
		if count > 0 {
			part, err := Place(count-1, nil, hosts)
			if err != nil {
				t.Fatal(err)
			}
			if grown, err := Place(count, part, hosts); err != nil || !slices.Equal(grown, got) {
				t.Fatalf("grown %v, made at once %v, %v", grown, got, err)
			}
		}
	})
}
