package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

// AlterPartitionAssignments starts, replaces and, with null replicas, cancels
// reassignments (AlterPartitionReassignments, KIP-455; versions 0 and 1). It
// returns when ZooKeeper has the wish; ListPartitionReassignments tells when it
// is done.
//
// Errors of the whole request: NOT_CONTROLLER, REQUEST_TIMED_OUT,
// INVALID_PARTITIONS (too many at once of one topic). Of a partition:
// INVALID_REPLICA_ASSIGNMENT (none, one twice, one that does not live and has no
// replica yet), NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION (also of a
// topic that is being deleted), INVALID_REPLICATION_FACTOR (version 1, where the
// caller has asked for that).
func (c *Controller) AlterPartitionAssignments(ctx context.Context, req *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	wishes := map[topicPart][]int32{} // of a partition that is named twice the last wish counts
	for _, rt := range req.Topics {
		for _, rp := range rt.Partitions {
			wishes[topicPart{Topic: rt.Topic, Partition: rp.Partition}] = rp.Replicas
		}
	}
	errs := map[topicPart]error{}
	err := c.call(ctx, func(t *term) error {
		var moves []move
		for _, tp := range sortedTPs(wishes) {
			m, err := t.wanted(tp, wishes[tp], req.AllowReplicationFactorChange)
			if err != nil {
				errs[tp] = err
				continue
			}
			moves = append(moves, m)
		}
		if len(moves) == 0 {
			return nil
		}
		err := t.reassign(moves)
		if errors.Is(err, coordination.ErrTooLarge) {
			return tooWide
		}
		return err
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeOf(err), message(err)
		return resp
	}
	for _, tp := range sortedTPs(wishes) {
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
			rt.Topic = tp.Topic
			resp.Topics = append(resp.Topics, rt)
		}
		rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
		rp.Partition, rp.ErrorCode, rp.ErrorMessage = tp.Partition, protocol.Code(errs[tp]), message(errs[tp])
		rt := &resp.Topics[len(resp.Topics)-1]
		rt.Partitions = append(rt.Partitions, rp)
	}
	return resp
}

// wanted checks one wish.
func (t *term) wanted(tp topicPart, target []int32, factorMayChange bool) (move, error) {
	p := t.st.partition(tp)
	moving := p != nil && len(p.adding)+len(p.removing) > 0
	switch {
	case target == nil && !moving:
		return move{}, kerr.NoReassignmentInProgress
	case target == nil:
		target = p.origin()
	case len(target) == 0:
		return move{}, refuse(kerr.InvalidReplicaAssignment, "a partition needs at least one replica")
	case repeats(target):
		return move{}, refuse(kerr.InvalidReplicaAssignment, "the replicas %v name a broker twice", target)
	case slices.Min(target) < 0:
		return move{}, refuse(kerr.InvalidReplicaAssignment, "the replicas %v name a broker below 0", target)
	default:
		var has []int32
		if p != nil {
			has = p.origin()
		}
		if dead := filter(without(target, has), func(id int32) bool { return !t.st.live(id) }); len(dead) > 0 {
			return move{}, refuse(kerr.InvalidReplicaAssignment, "brokers %v do not live to take a replica", dead)
		}
	}
	switch {
	case p == nil:
		return move{}, refuse(kerr.UnknownTopicOrPartition, "there is no such partition")
	case t.st.topics[tp.Topic].deleting:
		return move{}, refuse(kerr.UnknownTopicOrPartition, "the topic is being deleted")
	case !factorMayChange && len(p.target()) != len(target):
		return move{}, refuse(kerr.InvalidReplicationFactor, "the partition has %d replicas, the wish %d", len(p.target()), len(target))
	}
	return move{p, target}, nil
}

// ListPartitionReassignments tells which partitions are under reassignment
// (version 0), of those that are named or, for a null list, of all. One that is
// done in all but that its former replicas have not yet said that they are gone
// is among them.
//
// Errors: NOT_CONTROLLER, REQUEST_TIMED_OUT.
func (c *Controller) ListPartitionReassignments(ctx context.Context, req *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	resp := req.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	err := c.call(ctx, func(t *term) error {
		asked := map[topicPart]bool{}
		for _, rt := range req.Topics {
			for _, i := range rt.Partitions {
				asked[topicPart{Topic: rt.Topic, Partition: i}] = true
			}
		}
		for _, p := range t.movingSorted() {
			if req.Topics != nil && !asked[p.tp] {
				continue
			}
			if n := len(resp.Topics); n == 0 || resp.Topics[n-1].Topic != p.tp.Topic {
				rt := kmsg.NewListPartitionReassignmentsResponseTopic()
				rt.Topic = p.tp.Topic
				resp.Topics = append(resp.Topics, rt)
			}
			rp := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			rp.Partition = p.tp.Partition
			rp.Replicas, rp.AddingReplicas, rp.RemovingReplicas = p.hosts(), slices.Clone(p.adding), union(p.removing, p.leaving)
			rt := &resp.Topics[len(resp.Topics)-1]
			rt.Partitions = append(rt.Partitions, rp)
		}
		return nil
	})
	if err != nil {
		resp.Topics, resp.ErrorCode, resp.ErrorMessage = nil, codeOf(err), message(err)
	}
	return resp
}
