package config

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Group is what is in force for one consumer group (KIP-848).
type Group struct {
	SessionTimeout     time.Duration // silence after which a member is given up
	HeartbeatInterval  time.Duration // what members are told
	AssignmentInterval time.Duration // least time between two target assignments; 0: none
}

// The settings of a group as Kafka 4.4 names them, each with the broker's that it falls
// back to. The broker's bounds of that one hold for the group's, too.
const (
	groupAssignment = "consumer.assignment.interval.ms"
	groupHeartbeat  = "consumer.heartbeat.interval.ms"
	groupSession    = "consumer.session.timeout.ms"
)

var groupKeys = []key{
	{name: groupAssignment, typ: tInt, def: "1000", check: atLeast(0), syn: []string{"group." + groupAssignment}, doc: "Least time between two assignments of the group, in ms."},
	{name: groupHeartbeat, typ: tInt, def: "5000", check: atLeast(1), syn: []string{"group." + groupHeartbeat}, doc: "Time between heartbeats that the group's members are told to keep, in ms."},
	{name: groupSession, typ: tInt, def: "45000", check: atLeast(1), syn: []string{"group." + groupSession}, doc: "Silence after which a member of the group is given up, in ms."},
}

var groupIndex = index(groupKeys)

// Group computes what is in force for a group with these settings of its own. What the
// broker would refuse, as the bounds of another broker or another day may have let pass,
// counts as the nearest value that it takes, and what cannot be read as not set.
func (b *Broker) Group(settings map[string]string) Group {
	ms := func(name string) time.Duration {
		k := groupIndex[name]
		v, err := k.parse(settings[name])
		if err != nil {
			v = b.topicDefault(k)
		}
		low, high := b.groupBounds(k)
		return millis(min(max(mustInt(v), low), high))
	}
	g := Group{SessionTimeout: ms(groupSession), HeartbeatInterval: ms(groupHeartbeat), AssignmentInterval: ms(groupAssignment)}
	if g.HeartbeatInterval >= g.SessionTimeout {
		g.HeartbeatInterval, g.SessionTimeout = b.ConsumerGroupHeartbeat, b.ConsumerGroupSession
	}
	return g
}

// groupBounds are the least and the largest value that this broker lets the setting have.
func (b *Broker) groupBounds(k *key) (low, high int64) {
	num := func(which string) int64 {
		name := "group.consumer." + which + "." + k.name[len("consumer."):]
		v, ok := b.layers.raw(name)
		if !ok {
			v = brokerIndex[name].def
		}
		return mustInt(v)
	}
	return num("min"), num("max")
}

// AlterGroup applies changes to a group's own settings and checks the outcome; see
// AlterTopic.
func (b *Broker) AlterGroup(current map[string]string, ops []Op) (map[string]string, error) {
	out, named, err := apply(current, ops, func(name string) *key { return groupIndex[name] }, b.topicDefault)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		v, set := out[op.Name]
		if !set {
			continue // as in Kafka any name can be deleted
		}
		k := groupIndex[op.Name]
		if k == nil {
			return nil, fmt.Errorf("%w: no such group setting: %s", kerr.InvalidConfig, clip(op.Name))
		}
		if out[op.Name], err = k.parse(v); err != nil {
			return nil, fmt.Errorf("%w: %w", kerr.InvalidConfig, err)
		}
		if low, high := b.groupBounds(k); mustInt(out[op.Name]) < low || mustInt(out[op.Name]) > high {
			return nil, fmt.Errorf("%w: %w", kerr.InvalidConfig, &KeyError{k.name, v, fmt.Sprintf("must be between %d and %d", low, high)})
		}
	}
	if named[groupSession] || named[groupHeartbeat] {
		num := func(name string) int64 {
			if v, ok := out[name]; ok {
				return mustInt(v)
			}
			return mustInt(b.topicDefault(groupIndex[name]))
		}
		if s, h := num(groupSession), num(groupHeartbeat); h >= s {
			return nil, fmt.Errorf("%w: %s (%d) must be less than %s (%d)", kerr.InvalidConfig, groupHeartbeat, h, groupSession, s)
		}
	}
	return out, nil
}

// ReplaceGroup is the old AlterConfigs: the given settings become the whole set.
func (b *Broker) ReplaceGroup(settings []Op) (map[string]string, error) {
	return b.AlterGroup(nil, allSet(settings))
}

// DescribeGroup reports a group's settings, sorted by name; see DescribeTopic.
func (b *Broker) DescribeGroup(settings map[string]string, names []string) []Entry {
	return b.describeOwn(groupIndex, kmsg.ConfigSourceGroupConfig, settings, names)
}
