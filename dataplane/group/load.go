package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// resume starts the sessions of a loaded group's members.
func (g *group) resume(*effects) {
	if g.state == stateDead {
		return
	}
	for _, m := range g.order {
		g.keepAlive(m)
	}
	if g.consumer != nil {
		g.watchAll()
	}
}

// loader gathers what the records of a partition amount to: the last record of
// a key counts. Offsets committed in a transaction (KIP-98) count from its
// commit on, but stand where they were written: what was written of the same
// key between the two is newer.
type loader struct {
	c       *Coordinator
	sh      *shard
	offsets map[string]map[string]map[int32]offset // group, topic, partition
	values  map[string]*kmsg.GroupMetadataValue
	bad     int // records that could not be read

	consumers map[string]consumerRecords // by group

	open   map[int64][]inTransaction // by producer: transactions not ended yet
	newest map[string]int64          // of the keys in transactions: the log's offset of the record that counts
}

// inTransaction is a record that waits for its transaction's end.
type inTransaction struct {
	entry
	key string
	at  int64 // offset in the log
}

func newLoader(c *Coordinator, sh *shard) *loader {
	return &loader{
		c:       c,
		sh:      sh,
		offsets: make(map[string]map[string]map[int32]offset),
		values:  make(map[string]*kmsg.GroupMetadataValue),
		open:    make(map[int64][]inTransaction),
		newest:  make(map[string]int64),

		consumers: make(map[string]consumerRecords),
	}
}

// Add takes what comes next in the log.
func (l *loader) Add(x coordinator.Logged) {
	if x.End != coordinator.NotAnEnd {
		for _, w := range l.open[x.Producer] {
			if x.End == coordinator.Committed && l.newest[w.key] <= w.at {
				l.newest[w.key] = w.at
				l.apply(w.entry)
			}
		}
		delete(l.open, x.Producer)
		return
	}
	e, err := decode(x.Record)
	if err == errForeign {
		err = l.addConsumer(x.Record)
	}
	switch {
	case err == errForeign:
	case err != nil:
		l.bad++
	case x.Producer != coordinator.NoTransaction:
		key := string(x.Key)
		l.open[x.Producer] = append(l.open[x.Producer], inTransaction{e, key, x.Offset})
		if _, ok := l.newest[key]; !ok {
			l.newest[key] = -1
		}
	default:
		if _, ok := l.newest[string(x.Key)]; ok {
			l.newest[string(x.Key)] = x.Offset
		}
		l.apply(e)
	}
}

func (l *loader) apply(e entry) {
	switch {
	case e.isGroup && e.value == nil:
		delete(l.values, e.group)
	case e.isGroup:
		l.values[e.group] = e.value
	case e.offset == nil:
		if p := l.offsets[e.group][e.topic]; p != nil {
			if delete(p, e.partition); len(p) == 0 {
				delete(l.offsets[e.group], e.topic)
			}
		}
	default:
		setOffset(l.topics(e.group), e.topic, e.partition, *e.offset)
	}
}

func (l *loader) topics(group string) map[string]map[int32]offset {
	t := l.offsets[group]
	if t == nil {
		t = make(map[string]map[int32]offset)
		l.offsets[group] = t
	}
	return t
}

// Entities builds the groups; offsets without a group record make a group too.
func (l *loader) Entities() (map[string]*group, int) {
	groups := make(map[string]*group)
	get := func(id string) *group {
		g := groups[id]
		if g == nil {
			g = newGroup(l.c, l.sh, id)
			groups[g.id] = g
		}
		return g
	}
	for id, topics := range l.offsets {
		if len(topics) > 0 {
			get(id).offsets = topics
		}
	}
	for _, ws := range l.open {
		for _, w := range ws {
			if !w.isGroup {
				get(w.group).unstable[protocol.TopicPartition{Topic: w.topic, Partition: w.partition}] = struct{}{}
			}
		}
	}
	for id, v := range l.values {
		if g := get(id); l.consumers[id] == nil {
			g.restore(v)
		} else {
			g.stored = true // as consumer group it is newer; the record goes with the next write
		}
	}
	for id, recs := range l.consumers {
		get(id).restoreConsumer(recs)
	}
	return groups, l.bad
}

// restore takes over the group's record: a group with members was Stable when
// it was written.
func (g *group) restore(v *kmsg.GroupMetadataValue) {
	g.stored = true
	g.generation = v.Generation
	g.protocolType = v.ProtocolType
	for i := range v.Members {
		vm := &v.Members[i]
		if g.members[vm.MemberID] != nil {
			continue
		}
		m := &member{
			id: vm.MemberID, instanceID: vm.InstanceID,
			clientID: vm.ClientID, host: vm.ClientHost,
			sessionTimeout:   time.Duration(vm.SessionTimeoutMillis) * time.Millisecond,
			rebalanceTimeout: time.Duration(vm.RebalanceTimeoutMillis) * time.Millisecond,
			protocols:        []groupProtocol{{str(v.Protocol), vm.Subscription}},
			assignment:       vm.Assignment,
		}
		if vm.RebalanceTimeoutMillis < 0 {
			m.rebalanceTimeout = m.sessionTimeout
		}
		g.add(m, v.ProtocolType)
	}
	if len(g.order) > 0 {
		g.state = stateStable
		g.protocol = v.Protocol
		if g.members[str(v.Leader)] != nil {
			g.leader = *v.Leader
		}
	}
	if v.CurrentStateTimestamp >= 0 {
		g.stateAt = time.UnixMilli(v.CurrentStateTimestamp)
	}
	g.noteTopics()
}
