package group

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

type state uint8

const (
	stateEmpty state = iota
	statePreparing
	stateCompleting
	stateStable
	stateDead
)

// String is the name that DescribeGroups and ListGroups use.
func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// maxClientIDInMemberID bounds what a member id takes over from the client id.
const maxClientIDInMemberID = 200

// group is one group. Every field below mu is guarded by it.
//
// Invariants: order and members hold the same members, in the order of their
// joining; waiting counts those with a join to answer; supports counts, for
// each protocol, the members that know it; a member id is in members or in
// pending, never in both; each waiting join or sync is answered exactly once,
// by whoever takes the function out of its field.
type group struct {
	id string
	c  *Coordinator
	sh *shard

	mu       sync.Mutex
	state    state
	stateAt  time.Time // when state was entered
	lost     bool      // dead because the broker does not lead any more
	deleting bool      // its tombstones are being written; nothing may change

	generation   int32
	protocolType string // "" before the first member
	protocol     *string
	leader       string // "" without members
	members      map[string]*member
	order        []*member
	static       map[string]*member // by instance id
	pending      map[string]*timer  // ids given out by MEMBER_ID_REQUIRED
	supports     map[string]int
	waiting      int

	rebalance     *timer        // ends PreparingRebalance
	initialDelay  bool          // the delay of an empty group runs: joins do not end it
	remaining     time.Duration // what may be added to the initial delay
	newMember     bool          // someone arrived during the initial delay
	unsynced      map[string]struct{}
	syncTimer     *timer // expels unsynced
	topics        map[string]bool
	topicsUnknown bool // some member's subscription cannot be read

	offsets  offsetTable
	seq      uint64                               // counts what was written of offsets: an order that is also the log's
	inFlight map[protocol.TopicPartition]int      // commits not answered by the storage
	buried   map[protocol.TopicPartition]uint64   // of those in flight: the seq of a tombstone that came later
	doubtful map[protocol.TopicPartition]struct{} // commits that failed, and yet may be in the log
	open     map[int64]*transaction               // by producer, see transaction.go
	unstable map[protocol.TopicPartition]int      // in how many open transactions something is pending
	stored   bool                                 // the log may have a record of the group itself

	memberBytes int64 // what the classic members hold
	openBytes   int64 // what the open transactions hold
	charged     int64 // to the budget, see account

	consumer *consumerGroup           // nil for a classic group
	leftover map[consumerKey]struct{} // what the log may have of it as a consumer group, if it is none
}

func newGroup(c *Coordinator, sh *shard, id string) *group {
	return &group{
		id:       strings.Clone(id),
		c:        c,
		sh:       sh,
		stateAt:  time.Now(),
		members:  make(map[string]*member),
		static:   make(map[string]*member),
		pending:  make(map[string]*timer),
		supports: make(map[string]int),
		unsynced: make(map[string]struct{}),
		inFlight: make(map[protocol.TopicPartition]int),
		buried:   make(map[protocol.TopicPartition]uint64),
		doubtful: make(map[protocol.TopicPartition]struct{}),
		open:     make(map[int64]*transaction),
		unstable: make(map[protocol.TopicPartition]int),
	}
}

// effects are what a decision wants done once the group's mutex is free.
type effects struct {
	calls []func()
	drain bool
}

func (fx *effects) call(f func()) { fx.calls = append(fx.calls, f) }

// do runs f with the mutex held, then its effects.
func (g *group) do(f func(*effects)) {
	var fx effects
	g.mu.Lock()
	f(&fx)
	g.account()
	g.mu.Unlock()
	for _, call := range fx.calls {
		call()
	}
	if fx.drain {
		g.sh.Drain()
	}
}

// append has the records written after all that was decided before; done runs
// with the mutex held.
func (g *group) append(fx *effects, recs []coordinator.Record, done func(*effects, error)) {
	g.appendBatch(fx, coordinator.Batch{Records: recs, Producer: coordinator.NoProducer}, done)
}

func (g *group) appendBatch(fx *effects, b coordinator.Batch, done func(*effects, error)) {
	fx.drain = true
	g.sh.Enqueue(b, func(err error) {
		g.do(func(fx *effects) { done(fx, err) })
	})
}

// timer is a pending call on a group; guarded by the group's mutex.
type timer struct {
	stop func() bool
	over bool
}

// after runs f, with the mutex held, once d has passed and the timer was not
// cancelled before.
func (g *group) after(d time.Duration, f func(*effects)) *timer {
	t := new(timer)
	t.stop = g.c.timers.AfterFunc(max(d, 0), func() {
		g.c.shards.Spawn(func() {
			g.do(func(fx *effects) {
				if !t.over {
					t.over = true
					f(fx)
				}
			})
		})
	})
	return t
}

func (t *timer) cancel() {
	if t != nil && !t.over {
		t.over = true
		t.stop()
	}
}

func (g *group) enter(s state) {
	g.state = s
	g.stateAt = time.Now()
}

// kill makes the group Dead and stops its clocks.
func (g *group) kill(fx *effects) {
	g.enter(stateDead)
	g.rebalance.cancel()
	g.syncTimer.cancel()
	for _, t := range g.pending {
		t.cancel()
	}
	clear(g.pending)
	for _, m := range g.order {
		m.session.cancel()
	}
	if g.consumer != nil {
		g.consumer.stopClocks()
	}
	g.dropTransactions()
	fx.call(func() { g.sh.Forget(g.id, g) })
}

// idle says that the group holds nothing, here or in the log: such a group
// need not be remembered.
func (g *group) idle() bool {
	return g.state == stateEmpty && (g.consumer == nil || g.consumer.blank()) && len(g.leftover) == 0 && !g.deleting && len(g.pending) == 0 && g.offsets.len() == 0 &&
		len(g.inFlight) == 0 && len(g.doubtful) == 0 && len(g.open) == 0 && !g.stored
}

// newMemberID is the instance id or the client id, and something unique.
func newMemberID(instanceID *string, clientID string) string {
	prefix := clientID
	if instanceID != nil {
		prefix = *instanceID
	}
	if len(prefix) > maxClientIDInMemberID {
		prefix = strings.ToValidUTF8(prefix[:maxClientIDInMemberID], "")
	}
	return prefix + "-" + uuid.NewString()
}

// supportsProtocols says whether a member of this kind could join: the type
// matches and at least one protocol is known to everybody.
func (g *group) supportsProtocols(protocolType string, protocols []groupProtocol) bool {
	if g.state == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	if protocolType != g.protocolType {
		return false
	}
	for _, p := range protocols {
		if g.supports[p.name] == len(g.order) {
			return true
		}
	}
	return false
}

// selectProtocol is the vote: each member votes for the first in its list that
// all know; the most votes win, a tie goes to the oldest member's preference.
func (g *group) selectProtocol() string {
	votes := make(map[string]int)
	for _, m := range g.order {
		for _, p := range m.protocols {
			if g.supports[p.name] == len(g.order) {
				votes[p.name]++
				break
			}
		}
	}
	best := ""
	if len(g.order) > 0 {
		for _, p := range g.order[0].protocols {
			if votes[p.name] > votes[best] {
				best = p.name
			}
		}
	}
	return best
}

func (g *group) rebalanceTimeout() time.Duration {
	var d time.Duration
	for _, m := range g.order {
		d = max(d, m.rebalanceTimeout)
	}
	return d
}

// add takes the member in; the first one is the leader and decides the type.
func (g *group) add(m *member, protocolType string) {
	if len(g.order) == 0 {
		g.protocolType = strings.Clone(protocolType)
	}
	if g.leader == "" {
		g.leader = m.id
	}
	g.members[m.id] = m
	g.order = append(g.order, m)
	if m.instanceID != nil {
		g.static[*m.instanceID] = m
	}
	g.count(m, +1)
	g.memberBytes += int64(len(m.assignment))
	g.dropPending(m.id)
}

// remove takes the member out; a join or sync of it that waits is answered by
// the caller before.
func (g *group) remove(m *member) {
	m.session.cancel()
	g.count(m, -1)
	g.memberBytes -= int64(len(m.assignment))
	delete(g.members, m.id)
	delete(g.unsynced, m.id)
	if m.instanceID != nil && g.static[*m.instanceID] == m {
		delete(g.static, *m.instanceID)
	}
	if i := slices.Index(g.order, m); i >= 0 {
		g.order = slices.Delete(g.order, i, i+1) // which leaves no trace of m behind the end
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

func (g *group) count(m *member, by int) {
	g.memberBytes += int64(by) * m.size()
	seen := make(map[string]bool, len(m.protocols))
	for _, p := range m.protocols {
		if seen[p.name] {
			continue
		}
		seen[p.name] = true
		if g.supports[p.name] += by; g.supports[p.name] == 0 {
			delete(g.supports, p.name)
		}
	}
}

func (g *group) dropPending(id string) {
	if t, ok := g.pending[id]; ok {
		t.cancel()
		delete(g.pending, id)
	}
}

// electJoined makes sure that the leader is one who has joined; false if
// nobody has.
func (g *group) electJoined() bool {
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// noteTopics recomputes what the members subscribe to, for offset expiry.
func (g *group) noteTopics() {
	g.topics, g.topicsUnknown = nil, false
	if g.protocolType != consumerProtocolType || g.protocol == nil {
		return
	}
	g.topics = make(map[string]bool)
	for _, m := range g.order {
		topics, err := subscription(m.metadata(*g.protocol))
		if err != nil {
			g.topicsUnknown = true
			return
		}
		for _, t := range topics {
			g.topics[t] = true
		}
	}
}

func str(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func cloneStr(p *string) *string {
	if p == nil {
		return nil
	}
	return new(strings.Clone(*p))
}

// byID orders for stable output.
func byID(a, b *group) int { return cmp.Compare(a.id, b.id) }
