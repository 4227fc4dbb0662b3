// Package placement chooses, purely, which brokers a cluster gets and where
// they stand. It reads nothing and changes nothing: what is there already comes
// in, the plan goes out, and the same input gives the same plan.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrNoRoom says that the hosts cannot take the brokers.
var ErrNoRoom = errors.New("no host has room for the broker")

// Host is a place for brokers. One machine is one Host.
type Host struct {
	Name string
	// Zone is what fails together; empty is a zone of its own.
	Zone string
	// Capacity is how many brokers it may hold, of all clusters; Used is how many
	// it holds now, without those of the cluster that is placed. Brokers that are
	// being taken down still count, removed ones do not.
	Capacity, Used int
}

// Broker is one broker and the host it stands on.
type Broker struct {
	ID   int32
	Host string
}

// Place extends have, the brokers that the cluster has, to count brokers with
// the ids 0 to count-1. A broker that has a place keeps it. New ones go, in the
// order of their ids, to the host whose zone holds fewest brokers of this
// cluster, then the host that holds fewest of it, then the emptiest, then by
// name: the loss of one host or zone shall cost as few replicas as can be.
func Place(count int, have []Broker, hosts []Host) ([]Broker, error) {
	out := slices.Clone(have)
	placed := map[int32]bool{}
	onHost, inZone := map[string]int{}, map[string]int{}
	zone := map[string]string{}
	for _, h := range hosts {
		zone[h.Name] = cmp.Or(h.Zone, "host "+h.Name)
	}
	put := func(b Broker) {
		placed[b.ID] = true
		onHost[b.Host]++
		inZone[zone[b.Host]]++
	}
	for _, b := range have {
		put(b)
	}
	for id := range int32(count) {
		if placed[id] {
			continue
		}
		best := -1
		for i, h := range hosts {
			if h.Used+onHost[h.Name] >= h.Capacity {
				continue
			}
			if best < 0 || cmp.Or(
				cmp.Compare(inZone[zone[h.Name]], inZone[zone[hosts[best].Name]]),
				cmp.Compare(onHost[h.Name], onHost[hosts[best].Name]),
				cmp.Compare(h.Used, hosts[best].Used),
				cmp.Compare(h.Name, hosts[best].Name)) < 0 {
				best = i
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("%w: broker %d of %d", ErrNoRoom, id, count)
		}
		b := Broker{ID: id, Host: hosts[best].Name}
		out = append(out, b)
		put(b)
	}
	slices.SortFunc(out, func(a, b Broker) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}
