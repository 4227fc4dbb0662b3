package group

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
)

// minMemberCommit is the version of OffsetCommit from which on it has a member epoch.
const minMemberCommit = 9

// consumerMayCommit says whether offsets may be committed in the group, which is a
// consumer group, with that member id and epoch. A member of the consumer protocol may
// commit for a partition since it got it, also when it has reached another epoch meanwhile
// (KIP-1251): a commit that is on its way when the epoch changes is not lost. Errors:
// UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, UNSUPPORTED_VERSION before version 9 of OffsetCommit, and
// ILLEGAL_GENERATION for a classic member.
func (g *group) consumerMayCommit(version int16, id string, instance *string, epoch int32, each func(yield func(topic string, partition int32) bool)) *kerr.Error {
	cg := g.consumer
	if epoch < 0 && len(cg.members) == 0 {
		return nil // a consumer that assigns its partitions itself, or an operator
	}
	m, err := cg.speaker(id, instance)
	switch {
	case err != nil:
		return err
	case m.classic == nil && version < minMemberCommit:
		return kerr.UnsupportedVersion
	case m.classic != nil && epoch != m.epoch:
		return kerr.IllegalGeneration
	case epoch == m.epoch:
		return nil
	case epoch > m.epoch:
		return kerr.StaleMemberEpoch
	}
	topics := g.c.cfg.Topics()
	if topics == nil {
		return kerr.StaleMemberEpoch
	}
	for topic, p := range each {
		t, _, ok := topics.Topic(topic)
		since, has := m.has[t][p]
		if !has {
			since, has = m.revoking[t][p]
		}
		if !ok || !has || since > epoch {
			return kerr.StaleMemberEpoch
		}
	}
	return nil
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
