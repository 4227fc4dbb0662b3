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

// CreatePartitions grows topics (versions 0 to 3) and returns when ZooKeeper
// has the new partitions; see AwaitPartitions.
//
// Errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS,
// INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
// REASSIGNMENT_IN_PROGRESS, INVALID_REQUEST, REQUEST_TIMED_OUT when ctx ends.
func (c *Controller) CreatePartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	var names []string
	times := map[string]int{}
	for _, rt := range req.Topics {
		names = append(names, rt.Topic)
		times[rt.Topic]++
	}
	s, err := c.look(ctx, names, nil, false)
	done := map[string]bool{}
	for i := range req.Topics {
		rt := &req.Topics[i]
		if done[rt.Topic] {
			continue
		}
		done[rt.Topic] = true
		out := kmsg.NewCreatePartitionsResponseTopic()
		out.Topic = rt.Topic
		topicErr := err
		if topicErr != nil {
			topicErr = c.ended(topicErr)
		} else if times[rt.Topic] > 1 {
			topicErr = refuse(kerr.InvalidRequest, "Duplicate topic in request.")
		} else {
			topicErr = c.growTopic(ctx, s, rt, req.ValidateOnly)
		}
		out.ErrorCode, out.ErrorMessage = protocol.Code(topicErr), message(topicErr)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (c *Controller) growTopic(ctx context.Context, s *snapshot, rt *kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	info, ok := s.topics[rt.Topic]
	if !ok || info.deleting || !info.regular {
		return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", rt.Topic)
	}
	// The znode rather than the snapshot, since its version guards the write.
	a, err := c.cfg.ZK.Topic(ctx, rt.Topic)
	if errors.Is(err, coordination.ErrNoNode) {
		return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", rt.Topic)
	}
	if err != nil {
		return c.ended(err)
	}
	if len(a.Adding)+len(a.Removing) > 0 {
		return refuse(kerr.ReassignmentInProgress, "A partition reassignment is in progress for the topic '%s'.", rt.Topic)
	}
	have, more := len(a.Partitions), int(rt.Count)-len(a.Partitions)
	switch {
	case len(a.Partitions[0]) == 0: // a znode that no broker of ours or Kafka's writes
		return refuse(kerr.UnknownTopicOrPartition, "The topic '%s' has no partition 0.", rt.Topic)
	case more < 0:
		return refuse(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", rt.Topic, have, rt.Count)
	case more == 0:
		return refuse(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	}
	if err := c.room(s, more); err != nil {
		return err
	}
	var existing [][]int32
	for i := range have {
		existing = append(existing, a.Partitions[int32(i)])
	}
	factor := len(existing[0])
	var parts [][]int32
	if rt.Assignment != nil {
		for _, as := range rt.Assignment {
			parts = append(parts, as.Replicas)
		}
		if len(parts) != more {
			return refuse(kerr.InvalidReplicaAssignment, "Increasing the number of partitions by %d but %d assignments provided.", more, len(parts))
		}
		if err := checkReplicas(s.brokers, parts, factor); err != nil {
			return err
		}
	} else {
		if factor > len(s.brokers) {
			return refuse(kerr.InvalidReplicationFactor, "Replication factor: %d larger than available brokers: %d.", factor, len(s.brokers))
		}
		parts = assignReplicas(newRand(), s.brokers, more, factor, existing)
	}
	if validateOnly {
		return nil
	}
	for i, rs := range parts {
		a.Partitions[int32(have+i)] = rs
	}
	err = c.cfg.ZK.SetTopic(ctx, s.fence, rt.Topic, a)
	if errors.Is(err, coordination.ErrBadVersion) {
		if now, rerr := c.cfg.ZK.Topic(ctx, rt.Topic); rerr == nil && samePartitions(now.Partitions, a.Partitions) {
			err = nil // ours, with the reply lost
		} else {
			return refuse(kerr.InvalidUpdateVersion, "The topic '%s' was changed by somebody else meanwhile.", rt.Topic)
		}
	}
	if err == nil {
		name := rt.Topic
		s.t.post("topic "+name, func() error { return s.t.topicChanged(name) })
	}
	return c.ended(err)
}

func samePartitions(a, b map[int32][]int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !slices.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}
