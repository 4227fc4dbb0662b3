package group

import (
	"cmp"
	"hash/fnv"
	"iter"
	"maps"
	"slices"
	"time"

	"penstock/dataplane/group/assignor"
	"penstock/dataplane/protocol"
)

// consumerType is what ListGroups calls the groups of KIP-848's protocol.
const consumerType = "consumer"

// Topics is the cluster's topics as the broker knows them at one time. Values are
// compared by ==: equal ones are the same topics.
type Topics interface {
	// Topic is the id and the number of partitions of a topic.
	Topic(name string) (id protocol.UUID, partitions int32, ok bool)
	// Name is the name of the topic of that id.
	Name(id protocol.UUID) (string, bool)
	// Names goes through all topics.
	Names() iter.Seq[string]
}

// consumerGroup is the part of a group that the next generation of the protocol (KIP-848)
// needs; a group that has one is a consumer group, and a classic group has none. It is
// guarded by the group's mutex.
//
// There are three epochs. The group's goes up with every change of what there is to share
// or among whom. The target assignment follows it: it says what each member is to have in
// the end, and for which group epoch that was worked out. Each member follows the target
// at its own pace (consumerMember.next).
//
// What a decision changes is changed at once, and its records go to the log in the order
// of the decisions, one batch at a time (consumer_write.go). Who asked is answered when
// all that its answer rests on is stored. If that fails, all that is not stored is taken
// back.
//
// Invariants: owner names a member for exactly those partitions that the member has or is
// to revoke, so that a partition has one owner at most; static and subscribed and matched
// count the members that are there.
type consumerGroup struct {
	epoch    int32
	hash     int64     // of the topics, as they were when the epoch was made
	seen     Topics    // what hash was last compared with; nil if never
	assigned int32     // the target's epoch
	at       time.Time // when the target was worked out
	retarget *timer    // works the target out when it may be done again

	members    map[string]*consumerMember
	static     map[string]string // instance id to member id
	target     map[string]assignor.Assignment
	owner      map[protocol.UUID]map[int32]string
	subscribed map[string]int // by topic name: members that name it
	matched    map[string]int // by regular expression: members that have it
	regexes    map[string]*resolved
	refreshed  time.Time // when the expressions were last resolved
	refreshing bool      // a resolution is under way
	matchedIn  Topics    // the topics that they were resolved in

	bytes int64 // what all this holds, an estimate, see budget.go

	partitionsRecord bool // the log has a record of kind 4, which is not written any more
	clocks           map[string]*clock

	changes []*change // decided and not stored; the first may be on its way
	writing bool      // it is
	unsure  map[consumerKey]struct{}
}

// resolved is what a regular expression matches.
type resolved struct {
	topics []string // sorted
	at     int64    // ms since 1970
}

func newConsumerGroup() *consumerGroup {
	return &consumerGroup{
		members:    make(map[string]*consumerMember),
		static:     make(map[string]string),
		target:     make(map[string]assignor.Assignment),
		owner:      make(map[protocol.UUID]map[int32]string),
		subscribed: make(map[string]int),
		matched:    make(map[string]int),
		regexes:    make(map[string]*resolved),
		clocks:     make(map[string]*clock),
		unsure:     make(map[consumerKey]struct{}),
	}
}

// stateName is the group's state as clients are told it.
func (cg *consumerGroup) stateName() string {
	switch {
	case len(cg.members) == 0:
		return "Empty"
	case cg.epoch > cg.assigned:
		return "Assigning"
	}
	for _, m := range cg.members {
		if !m.reconciled(cg.assigned) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// blank says that nothing of the group is or may be in the log.
func (cg *consumerGroup) blank() bool {
	return cg.epoch == 0 && len(cg.members) == 0 && len(cg.changes) == 0 && len(cg.unsure) == 0 && !cg.partitionsRecord
}

// memberless says whether the group, of whichever kind, has no members.
func (g *group) memberless() bool {
	return g.state == stateEmpty && (g.consumer == nil || len(g.consumer.members) == 0)
}

// put makes m the member of that id, or removes it where m is nil; what is derived from
// the members follows.
func (cg *consumerGroup) put(id string, m *consumerMember) {
	if old := cg.members[id]; old != nil {
		for _, n := range old.names {
			uncount(cg.subscribed, n)
		}
		if old.regex != "" {
			uncount(cg.matched, old.regex)
		}
		if old.instance != nil && cg.static[*old.instance] == id {
			delete(cg.static, *old.instance)
		}
		cg.own(old.has, id, false)
		cg.own(old.revoking, id, false)
		delete(cg.members, id)
		cg.bytes -= old.size()
	}
	if m == nil {
		return
	}
	cg.members[id] = m
	cg.bytes += m.size()
	for _, n := range m.names {
		cg.subscribed[n]++
	}
	if m.regex != "" {
		cg.matched[m.regex]++
	}
	if m.instance != nil {
		cg.static[*m.instance] = id
	}
	cg.own(m.has, id, true)
	cg.own(m.revoking, id, true)
}

func uncount(m map[string]int, k string) {
	if m[k]--; m[k] == 0 {
		delete(m, k)
	}
}

func (cg *consumerGroup) own(h holding, id string, take bool) {
	for t, ps := range h {
		owners := cg.owner[t]
		if owners == nil {
			owners = make(map[int32]string)
			cg.owner[t] = owners
		}
		for p := range ps {
			switch other, ok := owners[p]; {
			case take && ok && other != id:
				panic("partition given to two members") // next gives what is free only
			case take:
				owners[p] = id
			case other == id:
				delete(owners, p)
			}
		}
		if len(owners) == 0 {
			delete(cg.owner, t)
		}
	}
}

// freeFor says whether the member may be given the partition.
func (cg *consumerGroup) freeFor(id string) func(protocol.UUID, int32) bool {
	return func(t protocol.UUID, p int32) bool {
		other, ok := cg.owner[t][p]
		return !ok || other == id
	}
}

// topicNames is all that the members subscribe to, sorted: by name, and what the
// expressions match.
func (cg *consumerGroup) topicNames() []string {
	names := slices.Collect(maps.Keys(cg.subscribed))
	for re := range cg.matched {
		if r := cg.regexes[re]; r != nil {
			names = append(names, r.topics...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// topicsHash stands for what there is to share: it is another if a subscribed topic comes
// to be, goes, grows or is another of the same name. It is 0 if there is none. Kafka's is
// made in another way, and differs after a takeover; that costs a group one epoch.
func (cg *consumerGroup) topicsHash(topics Topics) int64 {
	h := fnv.New64a()
	some := false
	for _, name := range cg.topicNames() {
		id, n, ok := topics.Topic(name)
		if !ok {
			continue
		}
		some = true
		_, _ = h.Write(id[:])
		_, _ = h.Write(putInt32(nil, n))
	}
	if !some {
		return 0
	}
	return int64(h.Sum64())
}

// preferred is the assignor that most members ask for; the first of those configured that
// is asked for as often as any, and the first of all if nobody asks.
func (g *group) preferredAssignor() string {
	votes := make(map[string]int)
	for _, m := range g.consumer.members {
		if m.assignor != "" {
			votes[m.assignor]++
		}
	}
	known := g.c.cfg.ConsumerAssignors
	return slices.MaxFunc(known, func(a, b string) int { // the first of equals
		return cmp.Compare(votes[a], votes[b])
	})
}

// sortedMembers is for stable output.
func (cg *consumerGroup) sortedMembers() []*consumerMember {
	return slices.SortedFunc(maps.Values(cg.members), func(a, b *consumerMember) int { return cmp.Compare(a.id, b.id) })
}
