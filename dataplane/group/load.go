package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// resume starts the sessions of a loaded group's members. If there are more of them than
// a group may have by now, they have to join again: those beyond it are refused then, and
// all have the time to commit before.
func (g *group) resume(fx *effects) {
	if g.state == stateDead {
		return
	}
	for _, m := range g.order {
		g.keepAlive(m)
	}
	switch {
	case g.consumer != nil:
		g.watchAll()
	case len(g.order) > g.c.cfg.MaxSize:
		g.c.cfg.Logger.Info("group has more members than group.max.size", "group", g.id, "members", len(g.order))
		g.maybePrepareRebalance(fx)
	}
}

// loader gathers what the records of a partition amount to. Of groups the last record
// counts; offsets go through the same steps as when they were written, so that what is
// pending in open transactions is as the coordinator before had it.
type loader struct {
	c      *Coordinator
	sh     *shard
	seq    uint64 // counts offset records, and becomes the groups' own
	groups map[string]*group
	values map[string]*kmsg.GroupMetadataValue
	open   map[int64]map[*group]struct{} // by producer
	topics map[string]string             // one copy of each name
	bad    int

	consumers map[string]consumerRecords // by group
}

func newLoader(c *Coordinator, sh *shard) *loader {
	if c != nil {
		c.beginOpen(sh)
	}
	return &loader{
		c:      c,
		sh:     sh,
		groups: make(map[string]*group),
		values: make(map[string]*kmsg.GroupMetadataValue),
		open:   make(map[int64]map[*group]struct{}),
		topics: make(map[string]string),

		consumers: make(map[string]consumerRecords),
	}
}

// Add takes what comes next in the log.
func (l *loader) Add(x coordinator.Logged) {
	switch {
	case x.End != coordinator.NotAnEnd:
		for g := range l.open[x.Producer] {
			g.endTransaction(x.Producer, x.End == coordinator.Committed)
		}
		delete(l.open, x.Producer)
	case isOffsetKey(x.Key):
		l.addOffset(x)
	default:
		e, err := decode(x.Record)
		switch {
		case err == errForeign:
			if err := l.addConsumer(x.Record); err != nil && err != errForeign {
				l.bad++
			}
		case err != nil:
			l.bad++
		case e.value == nil:
			delete(l.values, e.group)
		default:
			l.values[e.group] = e.value
		}
	}
}

func (l *loader) addOffset(x coordinator.Logged) {
	e, err := decodeOffset(x.Key, x.Value)
	if err != nil {
		l.bad++
		return
	}
	l.seq++
	e.seq = l.seq
	g := l.groups[string(e.group)]
	switch {
	case e.tombstone && g == nil:
	case e.tombstone:
		tp := protocol.TopicPartition{Topic: string(e.topic), Partition: e.partition}
		g.supersede(tp, e.seq)
		g.offsets.remove(tp.Topic, tp.Partition)
	case x.Producer != coordinator.NoTransaction:
		g = l.group(e.group)
		g.hold(x.Producer, l.topic(e.topic), e.offset, true)
		if l.open[x.Producer] == nil {
			l.open[x.Producer] = make(map[*group]struct{})
		}
		l.open[x.Producer][g] = struct{}{}
	default:
		l.group(e.group).offsets.put(l.topic(e.topic), e.offset)
	}
}

func (l *loader) group(id []byte) *group {
	g := l.groups[string(id)]
	if g == nil {
		g = newGroup(l.c, l.sh, string(id))
		l.groups[g.id] = g
	}
	return g
}

func (l *loader) topic(name []byte) string {
	t, ok := l.topics[string(name)]
	if !ok {
		t = string(name)
		l.topics[t] = t
	}
	return t
}

// Entities gives the groups; offsets without a group record make a group too.
func (l *loader) Entities() (map[string]*group, int) {
	for id, v := range l.values {
		if g := l.group([]byte(id)); l.consumers[id] == nil {
			g.restore(v)
		} else {
			g.stored = true // as consumer group it is newer; the record goes with the next write
		}
	}
	for id, recs := range l.consumers {
		l.group([]byte(id)).restoreConsumer(recs)
	}
	for id, g := range l.groups {
		if g.idle() {
			delete(l.groups, id)
			continue
		}
		g.seq = l.seq
		g.offsets.clip()
	}
	if l.c == nil {
		return l.groups, l.bad
	}
	if o := l.c.openIn(l.sh); o != nil {
		for producer, gs := range l.open {
			for g := range gs {
				if g.open[producer] != nil { // what was pending may have met a tombstone
					o.add(producer, g)
				}
			}
		}
		o.loaded()
	}
	return l.groups, l.bad
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
