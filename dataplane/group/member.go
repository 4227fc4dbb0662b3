package group

import (
	"bytes"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/planted"
)

// newMemberTimeout is how long a member that is new may wait in its first join
// before it is given up, whatever its session timeout: the client may have gone.
const newMemberTimeout = 5 * time.Minute

type groupProtocol struct {
	name     string
	metadata []byte
}

// member is one member; guarded by its group's mutex. protocols and assignment
// are replaced, never written to, so that replies may share them.
type member struct {
	id                               string
	instanceID                       *string
	clientID, host                   string
	sessionTimeout, rebalanceTimeout time.Duration
	protocols                        []groupProtocol
	assignment                       []byte

	join  func(joinResult) // a JoinGroup that waits
	sync  func(syncResult) // a SyncGroup that waits
	isNew bool             // waits in its first join

	deadline time.Time // when the session is over
	session  *timer
	armed    time.Time // when session fires
}

// cloneProtocols copies what aliases a request.
func cloneProtocols(in []kmsg.JoinGroupRequestProtocol) []groupProtocol {
	out := make([]groupProtocol, len(in))
	for i, p := range in {
		out[i] = groupProtocol{strings.Clone(p.Name), bytes.Clone(p.Metadata)}
	}
	return out
}

func (m *member) sameProtocols(ps []groupProtocol) bool {
	if len(ps) != len(m.protocols) {
		return false
	}
	for i, p := range ps {
		if p.name != m.protocols[i].name || !bytes.Equal(p.metadata, m.protocols[i].metadata) {
			return false
		}
	}
	return true
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.name == protocol {
			return p.metadata
		}
	}
	return nil
}

// keepAlive starts the member's session anew. A heartbeat is only a new
// deadline: the timer that runs looks at it when it fires.
func (g *group) keepAlive(m *member) { g.expireIn(m, m.sessionTimeout) }

func (g *group) expireIn(m *member, d time.Duration) {
	if planted.Bug == planted.EarlyExpiry {
		d /= 3
	}
	m.deadline = time.Now().Add(d)
	if m.session != nil && !m.session.over && !m.armed.After(m.deadline) {
		return
	}
	m.session.cancel()
	m.armed = m.deadline
	m.session = g.after(d, func(fx *effects) { g.sessionFired(fx, m) })
}

// sessionFired ends the member's session if nothing was heard of it. Who waits
// for an answer of ours is alive as far as we can know, unless it is new: its
// client may have left without a word.
func (g *group) sessionFired(fx *effects, m *member) {
	if g.state == stateDead || g.members[m.id] != m {
		return
	}
	if left := time.Until(m.deadline); left > 0 {
		m.armed = m.deadline
		m.session = g.after(left, func(fx *effects) { g.sessionFired(fx, m) })
		return
	}
	if !m.isNew && (m.join != nil || m.sync != nil) {
		return // the answer starts the session anew
	}
	g.c.cfg.Logger.Info("group member timed out", "group", g.id, "member", m.id)
	g.removeAndUpdate(fx, m)
}

// answerJoin answers the member's join, if it waits in one.
func (g *group) answerJoin(fx *effects, m *member, r joinResult) {
	if f := m.join; f != nil {
		m.join = nil
		g.waiting--
		fx.call(func() { f(r) })
	}
}

// answerSync answers the member's sync, if it waits in one.
func (g *group) answerSync(fx *effects, m *member, r syncResult) bool {
	f := m.sync
	if f == nil {
		return false
	}
	m.sync = nil
	fx.call(func() { f(r) })
	return true
}
