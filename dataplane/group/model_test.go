package group

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// modelMember is a client as it should behave, with what it believes.
type modelMember struct {
	id         string
	generation int32
	join       *future[kmsg.JoinGroupResponse]
	sync       *future[kmsg.SyncGroupResponse]
	owns       string // partitions, one letter each
}

// model drives a coordinator with clients that join, sync, commit, fall silent
// and leave, over a log that fails and moves, and checks what every group
// promises.
type model struct {
	e       *env
	members []*modelMember
	epoch   int32
	acked   int64             // highest offset that was acknowledged
	next    int64             // next offset to commit
	owners  map[string]string // generation and partition → member
}

const modelPartitions = "abcdef"

// assign shares the partitions out among the members.
func assign(members []kmsg.JoinGroupResponseMember) map[string]string {
	m := make(map[string]string)
	for i, p := range modelPartitions {
		m[members[i%len(members)].MemberID] += string(p)
	}
	return m
}

// pump carries on every client whose answer has come.
func (m *model) pump(t *rapid.T) {
	for _, c := range m.members {
		if c.join != nil {
			if r := c.join.poll(); r != nil {
				c.join = nil
				switch r.ErrorCode {
				case 0:
					c.id, c.generation, c.owns = r.MemberID, r.Generation, ""
					var a map[string]string
					if r.LeaderID == r.MemberID && len(r.Members) > 0 {
						a = assign(r.Members)
					}
					c.sync = m.e.syncAsync(c.id, c.generation, a)
				case kerr.MemberIDRequired.Code:
					c.id = r.MemberID
					m.joinAs(c)
				case kerr.UnknownMemberID.Code:
					c.id = ""
				}
			}
		}
		if c.sync != nil {
			if r := c.sync.poll(); r != nil {
				c.sync = nil
				if r.ErrorCode == 0 {
					m.own(t, c, string(r.MemberAssignment))
				}
			}
		}
	}
}

// own checks that nobody else was given a partition in this generation.
func (m *model) own(t *rapid.T, c *modelMember, parts string) {
	c.owns = parts
	for _, p := range parts {
		key := fmt.Sprintf("%d/%c", c.generation, p)
		if other, ok := m.owners[key]; ok && other != c.id {
			t.Fatalf("generation %d: partition %c is given to %s and to %s", c.generation, p, other, c.id)
		}
		m.owners[key] = c.id
	}
}

func (m *model) joinAs(c *modelMember) {
	r := joinReq(7, c.id)
	r.Protocols[0].Metadata = []byte("m")
	c.join, c.sync = m.e.joinAsync(r), nil
}

func (m *model) pick(t *rapid.T) *modelMember {
	return m.members[rapid.IntRange(0, len(m.members)-1).Draw(t, "member")]
}

// check compares what can be fetched with what was acknowledged.
func (m *model) check(t *rapid.T) {
	synctest.Wait()
	got := m.e.committed("t", 0)
	if got < -1 { // an error: nobody leads, or the load is not over
		return
	}
	if got < m.acked {
		t.Fatalf("offset %d is committed, and %d was acknowledged before", got, m.acked)
	}
	g, _ := m.e.c.find("g", false)
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	waiting := 0
	for _, mb := range g.order {
		if mb.join != nil {
			waiting++
		}
		if g.members[mb.id] != mb {
			t.Fatalf("member %s is not in the table", mb.id)
		}
		if mb.sync != nil && g.state != stateCompleting {
			t.Fatalf("a sync waits in %v", g.state)
		}
		if mb.join != nil && g.state != statePreparing {
			t.Fatalf("a join waits in %v", g.state)
		}
	}
	if waiting != g.waiting || len(g.order) != len(g.members) {
		t.Fatalf("%d wait and %d are counted; %d members in order, %d in the table", waiting, g.waiting, len(g.order), len(g.members))
	}
	for name, n := range g.supports {
		if n < 0 || n > len(g.order) {
			t.Fatalf("protocol %s is supported by %d of %d", name, n, len(g.order))
		}
	}
	if (g.leader == "") != (len(g.order) == 0) {
		t.Fatalf("leader %q of %d members", g.leader, len(g.order))
	}
	if g.state == stateEmpty && len(g.order) > 0 {
		t.Fatalf("empty with %d members", len(g.order))
	}
}

func TestGroupPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			e := &env{t: t, log: newMemLog(1)}
			e.c = New(Config{}, e.log, SystemTimers{})
			m := &model{e: e, epoch: 1, acked: -1, owners: make(map[string]string)}
			for range 4 {
				m.members = append(m.members, new(modelMember))
			}
			e.c.OnLeader(0, 1)
			synctest.Wait()
			defer func() {
				e.c.Close()
				time.Sleep(time.Minute)
			}()
			rt.Repeat(map[string]func(*rapid.T){
				"": func(t *rapid.T) { m.pump(t); m.check(t) },
				"join": func(t *rapid.T) {
					if c := m.pick(t); c.join == nil {
						m.joinAs(c)
					}
				},
				"drop": func(t *rapid.T) { // the client starts over without a word
					*m.pick(t) = modelMember{}
				},
				"heartbeat": func(t *rapid.T) {
					c := m.pick(t)
					if c.join == nil && c.sync == nil && e.heartbeat(c.id, c.generation) == kerr.RebalanceInProgress.Code {
						m.joinAs(c)
					}
				},
				"leave": func(t *rapid.T) {
					c := m.pick(t)
					if c.id != "" {
						e.leave(kmsg.LeaveGroupRequestMember{MemberID: c.id})
						*c = modelMember{}
					}
				},
				"commit": func(t *rapid.T) {
					c := m.pick(t)
					m.next++
					offset := m.next
					f := e.commitAsync(commitReq(c.id, c.generation, "t", 0, offset))
					if rapid.Bool().Draw(t, "wait") {
						time.Sleep(2 * time.Millisecond)
					}
					if r := f.poll(); r != nil && r.Topics[0].Partitions[0].ErrorCode == 0 {
						m.acked = offset
					}
				},
				"simple commit": func(t *rapid.T) {
					m.next++
					offset := m.next
					f := e.commitAsync(commitReq("", -1, "t", 0, offset))
					time.Sleep(2 * time.Millisecond)
					if r := f.poll(); r != nil && r.Topics[0].Partitions[0].ErrorCode == 0 {
						m.acked = offset
					}
				},
				"time": func(t *rapid.T) {
					time.Sleep(time.Duration(rapid.IntRange(1, 7000).Draw(t, "ms")) * time.Millisecond)
				},
				"storage fails": func(*rapid.T) { e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas }) },
				"storage works": func(*rapid.T) { e.log.set(func(l *memLog) { l.fail = nil }) },
				"move": func(*rapid.T) {
					m.epoch++
					e.c.OnResign(0, m.epoch)
					m.epoch++
					e.c.OnLeader(0, m.epoch)
				},
				"new broker": func(*rapid.T) {
					e.c.Close()
					e.c = New(e.c.cfg, e.log, SystemTimers{})
					m.epoch++
					e.c.OnLeader(0, m.epoch)
				},
			})
		})
	})
}
