package controller

import (
	"fmt"
	"maps"
	"slices"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

type topicPart = protocol.TopicPartition

// partition is the controller's record of one partition.
type partition struct {
	tp       topicPart
	replicas []int32 // in order of preference; with those that come and go
	adding   []int32 // of replicas, those that a reassignment adds
	removing []int32 // and those that it removes once the others are in sync
	leaving  []int32 // no longer replicas, and told to delete what they have
	listed   bool    // the topic's znode still has such replicas
	state    coordination.PartitionState
	known    bool // state is what ZooKeeper has; otherwise it has none
	status   partitionStatus
	replica  map[int32]replicaStatus
}

// become moves a partition to another state. A move that the machine does not
// have is an error in this package.
func (p *partition) become(next partitionStatus) {
	if !p.status.mayBecome(next) {
		panic(fmt.Sprintf("BUG: partition %s can not go from %v to %v", p.tp, p.status, next))
	}
	p.status = next
}

func (p *partition) replicaBecome(id int32, next replicaStatus) {
	if now := p.replica[id]; !now.mayBecome(next) {
		panic(fmt.Sprintf("BUG: replica %d of %s can not go from %v to %v", id, p.tp, now, next))
	}
	p.replica[id] = next
}

// topic is the controller's record of one topic.
type topic struct {
	name     string
	id       protocol.UUID
	parts    map[int32]*partition
	deleting bool   // marked for deletion
	told     bool   // brokers were told that it goes
	unwatch  func() // stops the watch of its znode
}

func (t *topic) sorted() []*partition {
	ps := make([]*partition, 0, len(t.parts))
	for _, i := range slices.Sorted(maps.Keys(t.parts)) {
		ps = append(ps, t.parts[i])
	}
	return ps
}

// state is the cluster as one term of the controller knows it. Only the loop
// touches it.
type state struct {
	brokers  map[int32]coordination.Broker // registered, whether stopping or not
	stopping map[int32]bool                // in a controlled shutdown
	offline  map[int32]map[topicPart]bool  // replicas that brokers have lost with a log folder
	topics   map[string]*topic
	names    map[protocol.UUID]string
	moving   map[topicPart]*partition         // partitions under reassignment
	strays   map[int32]map[topicPart]bool     // replicas that were moved away from brokers that were gone
	away     map[int32]topicPart              // brokers that were gone and had replicas, when that was last looked at, each with one of them
	could    map[int32]coordination.Abilities // what brokers could do that have gone in this term
}

func newState() *state {
	return &state{
		brokers: map[int32]coordination.Broker{}, stopping: map[int32]bool{}, offline: map[int32]map[topicPart]bool{},
		topics: map[string]*topic{}, names: map[protocol.UUID]string{}, moving: map[topicPart]*partition{},
		strays: map[int32]map[topicPart]bool{}, could: map[int32]coordination.Abilities{},
	}
}

func (s *state) up(id int32) bool { _, ok := s.brokers[id]; return ok }

// live brokers can lead and can join an ISR.
func (s *state) live(id int32) bool { return s.up(id) && !s.stopping[id] }

// reachable tells which brokers are there and have p in a log folder that works.
func (s *state) reachable(p *partition) func(int32) bool {
	return func(id int32) bool { return s.up(id) && !s.offline[id][p.tp] }
}

// serving brokers can lead p and can join its ISR.
func (s *state) serving(p *partition) func(int32) bool {
	return func(id int32) bool { return s.live(id) && !s.offline[id][p.tp] }
}

func (s *state) ids() []int32 { return slices.Sorted(maps.Keys(s.brokers)) }

func (s *state) partition(tp topicPart) *partition {
	if t := s.topics[tp.Topic]; t != nil {
		return t.parts[tp.Partition]
	}
	return nil
}

// eachPartition goes through the partitions of topics that are to stay, in a
// fixed order.
func (s *state) eachPartition(fn func(t *topic, p *partition)) {
	for _, name := range slices.Sorted(maps.Keys(s.topics)) {
		if t := s.topics[name]; !t.deleting {
			for _, p := range t.sorted() {
				fn(t, p)
			}
		}
	}
}

// partitionsOn lists the partitions with a replica on one of the brokers.
func (s *state) partitionsOn(ids ...int32) []*partition {
	var ps []*partition
	s.eachPartition(func(_ *topic, p *partition) {
		if slices.ContainsFunc(p.replicas, func(r int32) bool { return slices.Contains(ids, r) }) {
			ps = append(ps, p)
		}
	})
	return ps
}

func (s *state) addTopic(name string, a coordination.TopicAssignment) *topic {
	t := &topic{name: name, id: a.ID, parts: map[int32]*partition{}, unwatch: func() {}}
	s.topics[name] = t
	if a.ID != (protocol.UUID{}) {
		s.names[a.ID] = name
	}
	for i, rs := range a.Partitions {
		p := t.add(i, rs)
		if p.adding, p.removing = a.Adding[i], a.Removing[i]; p.moving() {
			s.moving[p.tp] = p
		}
	}
	return t
}

func (t *topic) add(index int32, replicas []int32) *partition {
	p := &partition{tp: topicPart{Topic: t.name, Partition: index}, replicas: replicas, replica: map[int32]replicaStatus{}}
	t.parts[index] = p
	return p
}

func (s *state) removeTopic(t *topic) {
	t.unwatch()
	delete(s.topics, t.name)
	for _, p := range t.parts {
		delete(s.moving, p.tp)
	}
	for _, of := range []map[int32]map[topicPart]bool{s.offline, s.strays} {
		for _, tps := range of {
			for _, p := range t.parts {
				delete(tps, p.tp)
			}
		}
	}
	if s.names[t.id] == t.name {
		delete(s.names, t.id)
	}
}
