package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// unsureLog is a memLog whose appends may fail although the records are there.
type unsureLog struct {
	*memLog
	unsure bool
}

func (l *unsureLog) Append(p int32, b coordinator.Batch, done func(error)) {
	l.mu.Lock()
	unsure := l.unsure && l.fail == nil
	l.mu.Unlock()
	if !unsure {
		l.memLog.Append(p, b, done)
		return
	}
	l.memLog.Append(p, b, func(error) { done(kerr.NotEnoughReplicasAfterAppend) })
}

// kindOf is the protocol that a modelled client speaks.
type kindOf uint8

const (
	speaksConsumer kindOf = iota
	speaksClassic
)

// consumerModel drives a group with clients of both protocols that join, beat, lose
// answers, fall silent and leave, over a log that fails and moves and topics that grow, and
// checks that no partition is ever with two of them.
type consumerModel struct {
	t       *testing.T
	log     *unsureLog
	c       *Coordinator
	epoch   int32
	topics  *fakeTopics
	clients []*modelClient
	nextID  int
}

// modelClient is a client and what it believes to have.
type modelClient struct {
	kind     kindOf
	id       string
	instance *string
	epoch    int32 // member epoch or generation
	names    []string
	tell     bool // of the subscription and all, in the next beat
	owns     map[protocol.TopicPartition]bool
	heard    time.Time // when an answer came last; after a session without one it has nothing
	joins    *future[kmsg.JoinGroupResponse]
	syncs    *future[kmsg.SyncGroupResponse]
}

func (m *consumerModel) pick(t *rapid.T) *modelClient {
	return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(t, "client")]
}

// over forgets what the client has.
func (c *modelClient) over() {
	*c = modelClient{kind: c.kind, instance: c.instance, names: c.names, tell: true, id: c.id}
}

func (m *consumerModel) ownedTopics(c *modelClient) []kmsg.ConsumerGroupHeartbeatRequestTopic {
	by := make(map[protocol.UUID][]int32)
	for tp := range c.owns {
		id, _, ok := m.topics.Topic(tp.Topic)
		if ok {
			by[id] = append(by[id], tp.Partition)
		}
	}
	out := []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for id, ps := range by {
		out = append(out, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: id, Partitions: ps})
	}
	return out
}

// beat is one heartbeat of a client of the consumer protocol; lost says that its answer
// never comes.
func (m *consumerModel) beat(t *rapid.T, c *modelClient, lost bool) {
	if c.id == "" {
		m.nextID++
		c.id, c.epoch, c.tell = fmt.Sprint("m", m.nextID), 0, true
	}
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.MemberEpoch, r.InstanceID = 1, "g", c.id, c.epoch, c.instance
	if c.tell || c.epoch == 0 {
		r.RebalanceTimeoutMillis, r.SubscribedTopicNames = 60_000, c.names
	}
	r.Topics = m.ownedTopics(c)
	if c.epoch == 0 {
		clear(c.owns)
		r.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	f := newFuture[kmsg.ConsumerGroupHeartbeatResponse](m.t)
	m.c.ConsumerHeartbeat(ClientInfo{"client", "/h"}, func(string) bool { return true }, r, f.done)
	time.Sleep(5 * time.Millisecond)
	resp := f.poll()
	if resp == nil || lost {
		return
	}
	switch resp.ErrorCode {
	case 0:
	case kerr.FencedMemberEpoch.Code, kerr.UnknownMemberID.Code, kerr.GroupIDNotFound.Code:
		c.over()
		return
	case kerr.FencedInstanceID.Code, kerr.UnreleasedInstanceID.Code:
		c.over()
		c.id = ""
		return
	default:
		return
	}
	if resp.MemberEpoch < c.epoch {
		t.Fatalf("the epoch of %s goes from %d to %d", c.id, c.epoch, resp.MemberEpoch)
	}
	c.epoch, c.tell, c.heard = resp.MemberEpoch, false, time.Now()
	if resp.Assignment != nil {
		c.owns = make(map[protocol.TopicPartition]bool)
		for _, at := range resp.Assignment.Topics {
			name, ok := m.topics.Name(at.TopicID)
			for _, p := range at.Partitions {
				if ok {
					c.owns[protocol.TopicPartition{Topic: name, Partition: p}] = true
				}
			}
		}
	}
}

// classicStep carries a client of the classic protocol on: cooperative, so that it keeps
// what it has over a rebalance.
func (m *consumerModel) classicStep(c *modelClient) {
	switch {
	case c.joins != nil:
		r := c.joins.poll()
		if r == nil {
			return
		}
		c.joins = nil
		switch r.ErrorCode {
		case 0:
			c.id, c.epoch, c.heard = r.MemberID, r.Generation, time.Now()
			m.classicSync(c, r)
		case kerr.MemberIDRequired.Code:
			c.id = r.MemberID
			m.classicJoin(c)
		case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.InconsistentGroupProtocol.Code, kerr.GroupMaxSizeReached.Code:
			c.over()
			c.id = ""
		}
	case c.syncs != nil:
		r := c.syncs.poll()
		if r == nil {
			return
		}
		c.syncs = nil
		switch r.ErrorCode {
		case 0:
			c.heard = time.Now()
			var a kmsg.ConsumerMemberAssignment
			if err := a.ReadFrom(r.MemberAssignment); err != nil && len(r.MemberAssignment) > 0 {
				m.t.Errorf("assignment of %s: %v", c.id, err)
			}
			had := len(c.owns)
			kept := make(map[protocol.TopicPartition]bool)
			for _, t := range a.Topics {
				for _, p := range t.Partitions {
					kept[protocol.TopicPartition{Topic: t.Topic, Partition: p}] = true
				}
			}
			gaveUp := false
			for tp := range c.owns {
				gaveUp = gaveUp || !kept[tp]
			}
			c.owns = kept
			if gaveUp && had > 0 {
				m.classicJoin(c) // as cooperative clients do
			}
		case kerr.RebalanceInProgress.Code:
			m.classicJoin(c)
		case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.IllegalGeneration.Code:
			c.over()
			c.id = ""
		}
	case c.id == "":
		m.classicJoin(c)
	default:
		r := kmsg.NewPtrHeartbeatRequest()
		r.Version, r.Group, r.MemberID, r.Generation, r.InstanceID = 4, "g", c.id, c.epoch, c.instance
		f := newFuture[kmsg.HeartbeatResponse](m.t)
		m.c.Heartbeat(r, f.done)
		switch f.poll().ErrorCode {
		case 0:
			c.heard = time.Now()
		case kerr.RebalanceInProgress.Code:
			m.classicJoin(c)
		case kerr.UnknownMemberID.Code, kerr.FencedInstanceID.Code, kerr.IllegalGeneration.Code:
			c.over()
			c.id = ""
		}
	}
}

func (m *consumerModel) classicJoin(c *modelClient) {
	r := joinReq(7, c.id)
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.InstanceID = 45_000, 60_000, c.instance
	md := kmsg.NewConsumerMemberMetadata()
	md.Version, md.Topics, md.Generation = 2, c.names, c.epoch
	by := make(map[string][]int32)
	for tp := range c.owns {
		by[tp.Topic] = append(by[tp.Topic], tp.Partition)
	}
	for t, ps := range by {
		md.OwnedPartitions = append(md.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: t, Partitions: ps})
	}
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "cooperative-sticky", Metadata: md.AppendTo(nil)}}
	c.joins, c.syncs = newFuture[kmsg.JoinGroupResponse](m.t), nil
	m.c.Join(ClientInfo{"client", "/h"}, r, c.joins.done)
}

// classicSync syncs; a leader assigns as cooperative leaders do: what somebody has is
// given to another only when it has been given up.
func (m *consumerModel) classicSync(c *modelClient, join *kmsg.JoinGroupResponse) {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation, r.InstanceID = 4, "g", c.id, c.epoch, c.instance
	if join.LeaderID == join.MemberID && len(join.Members) > 0 {
		taken := make(map[protocol.TopicPartition]bool)
		out := make(map[string]*kmsg.ConsumerMemberAssignment)
		subs := make(map[string]kmsg.ConsumerMemberMetadata)
		give := func(id string, tp protocol.TopicPartition) {
			taken[tp] = true
			out[id].Topics = append(out[id].Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: tp.Topic, Partitions: []int32{tp.Partition}})
		}
		for _, jm := range join.Members {
			var md kmsg.ConsumerMemberMetadata
			if err := md.ReadFrom(jm.ProtocolMetadata); err != nil {
				m.t.Error(err)
			}
			subs[jm.MemberID], out[jm.MemberID] = md, new(kmsg.ConsumerMemberAssignment)
			for _, o := range md.OwnedPartitions {
				for _, p := range o.Partitions {
					if tp := (protocol.TopicPartition{Topic: o.Topic, Partition: p}); slices.Contains(md.Topics, o.Topic) && !taken[tp] {
						give(jm.MemberID, tp)
					}
				}
			}
		}
		for _, name := range slices.Sorted(m.topics.Names()) {
			_, n, _ := m.topics.Topic(name)
			for p := range n {
				for _, jm := range join.Members {
					if tp := (protocol.TopicPartition{Topic: name, Partition: p}); !taken[tp] && slices.Contains(subs[jm.MemberID].Topics, name) {
						give(jm.MemberID, tp)
					}
				}
			}
		}
		for id, a := range out {
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: a.AppendTo(nil)})
		}
	}
	c.syncs = newFuture[kmsg.SyncGroupResponse](m.t)
	m.c.Sync(r, c.syncs.done)
}

// step is the next thing that the client does of itself.
func (m *consumerModel) step(t *rapid.T, c *modelClient, lost bool) {
	if c.kind == speaksClassic {
		m.classicStep(c)
		return
	}
	m.beat(t, c, lost)
}

// check looks for a partition that is with two clients. One that has heard nothing for a
// session does not count: it is for the client to stop then.
func (m *consumerModel) check(t *rapid.T) {
	synctest.Wait()
	at := make(map[protocol.TopicPartition]*modelClient)
	for _, c := range m.clients {
		if time.Since(c.heard) >= 40*time.Second {
			continue
		}
		for tp := range c.owns {
			if other := at[tp]; other != nil {
				t.Fatalf("%v is with %s (epoch %d) and with %s (epoch %d)", tp, other.id, other.epoch, c.id, c.epoch)
			}
			at[tp] = c
		}
	}
	g, _ := m.c.find("g", false)
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if cg := g.consumer; cg != nil {
		cg.mustHold(t)
		if g.state != stateEmpty || len(g.order) > 0 {
			t.Fatalf("a consumer group in the classic state %v with %d classic members", g.state, len(g.order))
		}
	}
}

// mustHold holds what consumerGroup says of itself.
func (cg *consumerGroup) mustHold(t interface{ Fatalf(string, ...any) }) {
	owned, names, regexes := 0, map[string]int{}, map[string]int{}
	for id, m := range cg.members {
		if m.id != id || m.epoch > cg.epoch {
			t.Fatalf("member %s is kept as %s, in epoch %d of %d", m.id, id, m.epoch, cg.epoch)
		}
		for _, h := range []holding{m.has, m.revoking} {
			for topic, ps := range h {
				for p := range ps {
					if owned++; cg.owner[topic][p] != id {
						t.Fatalf("%s has a partition that belongs to %q", id, cg.owner[topic][p])
					}
				}
			}
		}
		if m.instance != nil && cg.static[*m.instance] != id {
			t.Fatalf("instance %s is %s, not %s", *m.instance, cg.static[*m.instance], id)
		}
		for _, n := range m.names {
			names[n]++
		}
		if m.regex != "" {
			regexes[m.regex]++
		}
	}
	for _, ps := range cg.owner {
		owned -= len(ps)
	}
	if owned != 0 || !maps.Equal(names, cg.subscribed) || !maps.Equal(regexes, cg.matched) || cg.assigned > cg.epoch {
		t.Fatalf("%d partitions off, names %v and %v, expressions %v and %v, epochs %d and %d", owned, names, cg.subscribed, regexes, cg.matched, cg.assigned, cg.epoch)
	}
	for id := range cg.target {
		if cg.members[id] == nil {
			t.Fatalf("a target for %s, who is not there", id)
		}
	}
}

// settle lets everybody do as it should until nothing changes, and demands that all
// partitions are shared out.
func (m *consumerModel) settle(t *rapid.T) {
	m.log.set(func(l *memLog) { l.fail = nil })
	m.log.unsure = false
	for _, c := range m.clients {
		if time.Since(c.heard) >= 40*time.Second {
			c.over()
			c.id = ""
		}
	}
	for range 40 {
		for _, c := range m.clients {
			m.step(t, c, false)
			m.check(t)
		}
		time.Sleep(4 * time.Second)
	}
	owned := make(map[string]int)
	loads := make(map[string][]int)
	for _, c := range m.clients {
		mine := make(map[string]int)
		for tp := range c.owns {
			if !slices.Contains(c.names, tp.Topic) {
				t.Fatalf("%s has %v and subscribes to %v", c.id, tp, c.names)
			}
			owned[tp.Topic]++
			mine[tp.Topic]++
		}
		key := fmt.Sprint(c.names)
		loads[key] = append(loads[key], len(c.owns))
	}
	for name := range m.topics.Names() {
		_, n, _ := m.topics.Topic(name)
		if slices.ContainsFunc(m.clients, func(c *modelClient) bool { return slices.Contains(c.names, name) }) && owned[name] != int(n) {
			g, _ := m.c.find("g", false)
			g.mu.Lock()
			defer g.mu.Unlock()
			s := ""
			if g.consumer != nil {
				for _, cm := range g.consumer.sortedMembers() {
					s += fmt.Sprintf("\n%+v target %v", *cm, g.consumer.target[cm.id])
				}
				s = fmt.Sprintf("epoch %d assigned %d%s", g.consumer.epoch, g.consumer.assigned, s)
			}
			t.Fatalf("%d of %d partitions of %s are with somebody, in %v %v", owned[name], n, name, g.state, s)
		}
	}
	for names, ls := range loads {
		g, _ := m.c.find("g", false)
		if g != nil && g.consumer != nil && len(loads) == 1 && slices.Max(ls)-slices.Min(ls) > 1 {
			t.Fatalf("those of %s have %v partitions", names, ls)
		}
	}
}

// newConsumerModel has no classic clients unless they are asked for.
func newConsumerModel(t *testing.T, rt *rapid.T, classic bool) *consumerModel {
	m := &consumerModel{t: t, log: &unsureLog{memLog: newMemLog(1)}, epoch: 1, topics: newFakeTopics(map[string]int32{"a": 4, "b": 3})}
	m.start()
	for i := range 4 {
		c := &modelClient{names: []string{"a"}, owns: map[protocol.TopicPartition]bool{}}
		if i == 0 && rapid.Bool().Draw(rt, "static") {
			c.instance = new("i0")
		}
		if classic && rapid.Bool().Draw(rt, "classic") {
			c.kind = speaksClassic
		}
		m.clients = append(m.clients, c)
	}
	return m
}

func (m *consumerModel) start() {
	m.c = New(Config{ConsumerProtocol: true, Topics: func() Topics { return m.topics }, ConsumerAssignmentInterval: time.Second}, m.log, SystemTimers{})
	m.c.OnLeader(0, m.epoch)
	synctest.Wait()
}

func (m *consumerModel) actions(classic bool) map[string]func(*rapid.T) {
	acts := map[string]func(*rapid.T){
		"":     func(t *rapid.T) { m.check(t) },
		"step": func(t *rapid.T) { m.step(t, m.pick(t), false) },
		"steps": func(t *rapid.T) {
			for _, c := range m.clients {
				m.step(t, c, false)
				m.check(t)
			}
		},
		"lost": func(t *rapid.T) {
			if c := m.pick(t); c.kind == speaksConsumer {
				m.beat(t, c, true)
			}
		},
		"drop": func(t *rapid.T) { // it starts over without a word, as another process
			c := m.pick(t)
			c.over()
			c.id = ""
		},
		"leave": func(t *rapid.T) {
			c := m.pick(t)
			if c.id == "" || c.kind == speaksClassic {
				return
			}
			r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			r.Version, r.Group, r.MemberID, r.MemberEpoch, r.InstanceID = 1, "g", c.id, -1, c.instance
			if c.instance != nil && rapid.Bool().Draw(t, "for a while") {
				r.MemberEpoch = -2
			}
			f := newFuture[kmsg.ConsumerGroupHeartbeatResponse](m.t)
			m.c.ConsumerHeartbeat(ClientInfo{}, func(string) bool { return true }, r, f.done)
			time.Sleep(5 * time.Millisecond)
			f.poll()
			c.over()
			c.id = ""
		},
		"subscribe": func(t *rapid.T) {
			c := m.pick(t)
			c.names = rapid.SampledFrom([][]string{{"a"}, {"b"}, {"a", "b"}, {}}).Draw(t, "names")
			c.tell = true
			if c.kind == speaksClassic && c.id != "" && c.joins == nil && c.syncs == nil {
				m.classicJoin(c)
			}
		},
		"grow": func(t *rapid.T) { m.topics = m.topics.with("b", min(8, m.topics.parts["b"]+1)) },
		"time": func(t *rapid.T) {
			time.Sleep(time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond)
		},
		"storage fails": func(*rapid.T) { m.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas }) },
		"storage is unsure": func(*rapid.T) {
			m.log.set(func(l *memLog) { l.fail = nil })
			m.log.unsure = true
		},
		"storage works": func(*rapid.T) {
			m.log.set(func(l *memLog) { l.fail = nil })
			m.log.unsure = false
		},
		"move": func(*rapid.T) {
			m.epoch++
			m.c.OnResign(0, m.epoch)
			m.epoch++
			m.c.OnLeader(0, m.epoch)
			synctest.Wait()
		},
		"new broker": func(*rapid.T) {
			m.c.Close()
			m.epoch++
			m.start()
		},
	}
	if classic {
		acts["another version"] = func(t *rapid.T) { // the client is restarted with the other protocol
			c := m.pick(t)
			c.over()
			c.id = ""
			c.kind = 1 - c.kind
		}
	}
	return acts
}

func runConsumerModel(t *testing.T, classic bool) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newConsumerModel(t, rt, classic)
			defer func() {
				m.c.Close()
				time.Sleep(5 * time.Minute)
			}()
			rt.Repeat(m.actions(classic))
			wantAccounts(rt, m.c)
			m.settle(rt)
			wantAccounts(rt, m.c)
		})
	})
}

func TestConsumerGroupNeverGivesAPartitionToTwo(t *testing.T) { runConsumerModel(t, false) }

func TestGroupsThatChangeTheirProtocolNeverGiveAPartitionToTwo(t *testing.T) {
	runConsumerModel(t, true)
}
