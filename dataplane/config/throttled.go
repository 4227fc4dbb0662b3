package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Throttled is a topic's list of replicas that may be copied slowly only (KIP-73). The zero value
// names none.
type Throttled struct {
	all bool
	of  map[throttledReplica]bool
}

type throttledReplica struct{ partition, broker int32 }

// ParseThrottled reads leader. or follower.replication.throttled.replicas: "*" for all, "none"
// or nothing for none, else partition:broker each. With an error the list has what is right in it.
func ParseThrottled(list string) (Throttled, error) {
	switch list {
	case "", "none":
		return Throttled{}, nil
	case "*":
		return Throttled{all: true}, nil
	}
	t, bad := Throttled{of: map[throttledReplica]bool{}}, false
	for _, e := range splitList(list) {
		p, b, ok := strings.Cut(e, ":")
		n, err1 := strconv.ParseInt(p, 10, 32)
		id, err2 := strconv.ParseInt(b, 10, 32)
		if !ok || err1 != nil || err2 != nil {
			bad = true
			continue
		}
		t.of[throttledReplica{int32(n), int32(id)}] = true
	}
	if bad {
		return t, fmt.Errorf("must be *, or a list of partition:broker")
	}
	return t, nil
}

// Has says whether the broker's replica of the partition is in the list.
func (t Throttled) Has(partition, broker int32) bool {
	return t.all || t.of[throttledReplica{partition, broker}]
}

func throttledReplicas(v string) error { _, err := ParseThrottled(v); return err }
