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
			topicErr = refuse(kerr.InvalidRequest, "the topic is named more than once")
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
		return refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", rt.Topic)
	}
	// The znode rather than the snapshot, since its version guards the write.
	a, err := c.cfg.ZK.Topic(ctx, rt.Topic)
	if errors.Is(err, coordination.ErrNoNode) {
		return refuse(kerr.UnknownTopicOrPartition, "there is no topic %q", rt.Topic)
	}
	if err != nil {
		return c.ended(err)
	}
	if len(a.Adding)+len(a.Removing) > 0 {
		return refuse(kerr.ReassignmentInProgress, "partitions of topic %q are being moved", rt.Topic)
	}
	have, more := len(a.Partitions), int(rt.Count)-len(a.Partitions)
	switch {
	case len(a.Partitions[0]) == 0: // a znode that no broker of ours or Kafka's writes
		return refuse(kerr.UnknownTopicOrPartition, "topic %q has no partition 0", rt.Topic)
	case more < 0:
		return refuse(kerr.InvalidPartitions, "topic %s has %d partitions already: %d would be fewer", rt.Topic, have, rt.Count)
	case more == 0:
		return refuse(kerr.InvalidPartitions, "the topic has %d partitions already", have)
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
			return refuse(kerr.InvalidReplicaAssignment, "%d partitions more need as many assignments, not %d", more, len(parts))
		}
		if err := checkReplicas(s.brokers, parts, factor); err != nil {
			return err
		}
	} else {
		if factor > len(s.brokers) {
			return refuse(kerr.InvalidReplicationFactor, "%d replicas need as many brokers, of which %d live", factor, len(s.brokers))
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
			return refuse(kerr.InvalidUpdateVersion, "topic %q was changed by somebody else meanwhile", rt.Topic)
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
