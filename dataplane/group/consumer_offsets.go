package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// minMemberCommit is the version of OffsetCommit from which on it has a member epoch.
const minMemberCommit = 9

// consumerMayCommit says whether offsets may be committed in the group, which is a
// consumer group, with that member id and epoch. A member may commit for a partition since
// it got it, also when it has reached another epoch meanwhile (KIP-1251): a commit that is
// on its way when the epoch changes is not lost. Errors: UNKNOWN_MEMBER_ID,
// STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION before version 9 of OffsetCommit, and
// ILLEGAL_GENERATION for a classic member.
//
// In a transaction it is the marker that decides when an offset counts: whoever does not say
// for whom it commits is taken at its word, and an epoch that is not the present one is
// ILLEGAL_GENERATION, as there is no other error in that protocol.
func (g *group) consumerMayCommit(cm *commit) *kerr.Error {
	cg := g.consumer
	if cm.generation < 0 && len(cg.members) == 0 {
		return nil // a consumer that assigns its partitions itself, or an operator
	}
	if cm.transactional() && cm.generation < 0 && cm.memberID == "" && cm.instanceID == nil {
		return nil
	}
	m, err := cg.speaker(cm.memberID, cm.instanceID)
	if err != nil {
		return err
	}
	stale := kerr.StaleMemberEpoch
	if m.classic != nil || cm.transactional() {
		stale = kerr.IllegalGeneration
	}
	switch {
	case m.classic == nil && !cm.transactional() && cm.version < minMemberCommit:
		return kerr.UnsupportedVersion
	case cm.generation == m.epoch:
		if m.classic != nil {
			g.keepMember(m.id)
		}
		return nil
	case cm.generation > m.epoch || !g.gotBy(m, cm):
		return stale
	}
	return nil
}

// gotBy says whether the member has had all partitions of the commit since the epoch that
// it names.
func (g *group) gotBy(m *consumerMember, cm *commit) bool {
	topics := g.c.cfg.Topics()
	for i := range cm.writes {
		w := &cm.writes[i]
		if topics == nil {
			return false
		}
		t, _, ok := topics.Topic(w.topic)
		since, has := m.has[t][w.partition]
		if !has {
			since, has = m.revoking[t][w.partition]
		}
		if !ok || !has || since > cm.generation {
			return false
		}
	}
	return true
}

// speaker finds the member by its id; by the instance id too if a classic member gives one.
func (cg *consumerGroup) speaker(id string, instance *string) (*consumerMember, *kerr.Error) {
	if instance != nil {
		switch now := cg.static[*instance]; {
		case now == "":
			return nil, kerr.UnknownMemberID
		case now != id:
			return nil, kerr.FencedInstanceID
		}
	}
	m := cg.members[id]
	if m == nil {
		return nil, kerr.UnknownMemberID
	}
	return m, nil
}

// consumerMayFetch says whether the committed offsets may be fetched with that member id
// and epoch; whoever gives none may.
func (g *group) consumerMayFetch(id *string, epoch int32) *kerr.Error {
	if id == nil && epoch < 0 {
		return nil
	}
	m := g.consumer.members[str(id)]
	switch {
	case m == nil:
		return kerr.UnknownMemberID
	case m.epoch == epoch:
		return nil
	case m.classic != nil:
		return kerr.IllegalGeneration
	}
	return kerr.StaleMemberEpoch
}

// subscribes says whether some member subscribes to the topic.
func (cg *consumerGroup) subscribes(topic string) bool {
	if cg.subscribed[topic] > 0 {
		return true
	}
	for re := range cg.matched {
		if r := cg.regexes[re]; r != nil {
			if _, ok := slices.BinarySearch(r.topics, topic); ok {
				return true
			}
		}
	}
	return false
}
