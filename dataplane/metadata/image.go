// Package metadata is the cluster as a broker knows it: an immutable Image that
// every request reads without a lock, and a Cache that swaps in the next Image
// when the controller sends UpdateMetadata.
//
// What the controller has not said is unknown and stays unknown: a leader or a
// leader epoch is -1 rather than a guess, since clients fence themselves by the
// epochs they are told.
package metadata

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"penstock/dataplane/protocol"
)

// NoLeader stands for a leader or a leader epoch that is not known.
const NoLeader int32 = -1

// leaderDuringDelete is the leader that the controller announces for a
// partition whose topic is being deleted (Kafka's LeaderAndIsr.LeaderDuringDelete).
const leaderDuringDelete int32 = -2

// Endpoint is one advertised address of a broker.
type Endpoint struct {
	Listener         string
	Host             string
	Port             int32
	SecurityProtocol int16 // 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL
}

// Broker is a live broker; a broker that is not in an Image is dead.
type Broker struct {
	ID        int32
	Rack      *string // nil when the broker has none
	Endpoints []Endpoint
}

// Endpoint returns the address on the listener of that name. Listener names are
// compared without regard to case, as Kafka stores them in upper case.
func (b *Broker) Endpoint(listener string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if strings.EqualFold(e.Listener, listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// Partition is the controller's last word on one partition.
type Partition struct {
	Index           int32
	Leader          int32 // NoLeader when there is none
	LeaderEpoch     int32 // NoLeader when not known
	ControllerEpoch int32
	PartitionEpoch  int32 // version of the state znode; -1 when not known
	ISR             []int32
	Replicas        []int32
	Offline         []int32
}

// Topic is a topic with the partitions that the controller has announced.
type Topic struct {
	Name string
	ID   protocol.UUID // zero when the controller sent none (UpdateMetadata before v7)

	parts *btree.Map[int32, *Partition]
}

// Partition returns the partition of that index, or nil.
func (t *Topic) Partition(index int32) *Partition {
	p, _ := t.parts.Get(index)
	return p
}

// Len is the number of partitions.
func (t *Topic) Len() int { return t.parts.Len() }

// Sorted lists the partitions by index.
func (t *Topic) Sorted() []*Partition { return t.parts.Values() }

// Image is one consistent view. All that hangs below it is shared and must not
// be changed. The next image shares with it whatever the update does not touch,
// down to parts of the maps of topics and of a topic's partitions: these are trees
// whose copies share their nodes, so that an update costs what it changes,
// however large the cluster is.
type Image struct {
	ClusterID       string
	ControllerID    int32 // -1 when not known
	ControllerEpoch int32 // 0 before the first update
	Brokers         map[int32]*Broker

	topics *btree.Map[string, *Topic]
	names  *btree.Map[string, string] // by topic id
}

// Alive says whether the broker is registered, going by the last update.
func (im *Image) Alive(id int32) bool { return im.Brokers[id] != nil }

// Topic returns the topic of that name, or nil.
func (im *Image) Topic(name string) *Topic {
	t, _ := im.topics.Get(name)
	return t
}

// Topics goes through all topics by name.
func (im *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		im.topics.Scan(func(_ string, t *Topic) bool { return yield(t) })
	}
}

// TopicName maps a topic id to its name.
func (im *Image) TopicName(id protocol.UUID) (string, bool) { return im.names.Get(string(id[:])) }

// TopicID maps a topic name to its id; false when the topic or its id is unknown.
func (im *Image) TopicID(name string) (protocol.UUID, bool) {
	t := im.Topic(name)
	if t == nil || t.ID == (protocol.UUID{}) {
		return protocol.UUID{}, false
	}
	return t.ID, true
}

// Partition returns the partition, or nil.
func (im *Image) Partition(topic string, index int32) *Partition {
	if t := im.Topic(topic); t != nil {
		return t.Partition(index)
	}
	return nil
}

// LeaderEndpoint returns the leader's address on a listener. It is false when
// there is no leader, the leader is dead, or it does not have that listener.
func (im *Image) LeaderEndpoint(topic string, index int32, listener string) (Endpoint, int32, bool) {
	p := im.Partition(topic, index)
	if p == nil {
		return Endpoint{}, NoLeader, false
	}
	b := im.Brokers[p.Leader]
	if b == nil {
		return Endpoint{}, NoLeader, false
	}
	e, ok := b.Endpoint(listener)
	return e, b.ID, ok
}

// BrokersOn lists the brokers that can be reached on a listener, by id: what a
// Metadata reply names.
func (im *Image) BrokersOn(listener string) []*Broker {
	var bs []*Broker
	for _, id := range slices.Sorted(maps.Keys(im.Brokers)) {
		if _, ok := im.Brokers[id].Endpoint(listener); ok {
			bs = append(bs, im.Brokers[id])
		}
	}
	return bs
}
