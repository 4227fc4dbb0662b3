package controller

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Types of elections that can be asked for (KIP-460).
const (
	preferredElection int8 = 0
	uncleanElection   int8 = 1
)

// ElectLeaders puts preferred leaders back (type 0) or, where there is no leader,
// elects any replica that lives, at the price of what only others have (type 1;
// versions 0 to 2, all of which but 0 have a type). A null list means every
// partition; those that needed no election are not named in its answer. It
// returns when the brokers know.
//
// Errors of the whole request: NOT_CONTROLLER, INVALID_REQUEST (another type). Of a
// partition: these, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE,
// ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION,
// INVALID_TOPIC_EXCEPTION (the topic is being deleted), REQUEST_TIMED_OUT (elected,
// but not every broker has said that it knows).
func (c *Controller) ElectLeaders(ctx context.Context, req *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	results := map[topicPart]error{}
	for _, rt := range req.Topics {
		for _, i := range rt.Partitions {
			results[topicPart{Topic: rt.Topic, Partition: i}] = nil
		}
	}
	err := c.call(ctx, func(t *term) error {
		if req.ElectionType != preferredElection && req.ElectionType != uncleanElection {
			return kerr.InvalidRequest
		}
		if req.Topics == nil {
			t.st.eachPartition(func(_ *topic, p *partition) { results[p.tp] = nil })
		}
		return t.electAsked(req.ElectionType == uncleanElection, results)
	})
	var late error
	if err == nil && slices.ContainsFunc(sortedTPs(results), func(tp topicPart) bool { return results[tp] == nil }) {
		// By now the brokers' queues hold the news.
		late = c.await(ctx, func(*state) bool { return true })
	}
	resp.ErrorCode = codeOf(err)
	for _, tp := range sortedTPs(results) {
		result := results[tp]
		switch {
		case err != nil:
			result = err
		case result == nil && late != nil:
			result = kerr.RequestTimedOut
		case result == kerr.ElectionNotNeeded && req.Topics == nil:
			continue
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewElectLeadersResponseTopic()
			rt.Topic = tp.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		rp := kmsg.NewElectLeadersResponseTopicPartition()
		rp.Partition, rp.ErrorCode, rp.ErrorMessage = tp.Partition, protocol.Code(result), message(result)
		rt := &resp.Topics[len(resp.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	return resp
}

// electAsked elects where it is needed and notes the result of each partition.
func (t *term) electAsked(unclean bool, results map[topicPart]error) error {
	var parts []*partition
	for _, tp := range sortedTPs(results) {
		p := t.st.partition(tp)
		switch {
		case p == nil || len(p.replicas) == 0:
			results[tp] = refuse(kerr.UnknownTopicOrPartition, "there is no such partition")
		case t.st.topics[tp.Topic].deleting:
			results[tp] = refuse(kerr.InvalidTopicException, "the topic is being deleted")
		case p.led(t.st) && (unclean || p.state.Leader == p.replicas[0]):
			results[tp] = kerr.ElectionNotNeeded
		default:
			parts = append(parts, p)
		}
	}
	known := slices.DeleteFunc(slices.Clone(parts), func(p *partition) bool { return !p.known })
	b := t.newBatch()
	var err error
	if unclean {
		err = t.elect(b, known, t.uncleanly)
	} else {
		err = t.electPreferred(b, known)
	}
	if err != nil {
		return err
	}
	b.send()
	for _, p := range parts {
		switch {
		case unclean && !p.led(t.st):
			results[p.tp] = refuse(kerr.EligibleLeadersNotAvailable, "none of the replicas %v lives", p.replicas)
		case !unclean && !(p.led(t.st) && p.state.Leader == p.replicas[0]):
			results[p.tp] = refuse(kerr.PreferredLeaderNotAvailable, "broker %d does not live or is not in sync", p.replicas[0])
		}
	}
	return nil
}

// led says whether a partition has a leader that is there.
func (p *partition) led(st *state) bool {
	return p.known && p.state.Leader != noLeader && st.up(p.state.Leader)
}

// ElectAgain looks again at the partitions without a leader, those of one topic
// or, for "", all: another setting may allow an unclean election now. It does
// nothing on a broker that is not the controller.
func (c *Controller) ElectAgain(name string) {
	t := c.term.Load()
	if t == nil {
		return
	}
	t.post("elect again "+name, func() error {
		var offline []*partition
		t.st.eachPartition(func(_ *topic, p *partition) {
			if p.status == partitionOffline && (name == "" || name == p.tp.Topic) {
				offline = append(offline, p)
			}
		})
		b := t.newBatch()
		if err := t.electOffline(b, offline); err != nil {
			return err
		}
		b.send()
		return t.advance()
	})
}
