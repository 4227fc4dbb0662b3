package controller

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
	"penstock/dataplane/protocol"
)

// DeleteTopics marks topics for deletion, by name or, from version 6 on, by id
// (versions 0 to 6), and returns when ZooKeeper has the marks; see AwaitDeleted.
// A topic that is marked already is no error. With the id of an unknown topic
// the response has no name.
//
// Errors: NOT_CONTROLLER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID,
// INVALID_REQUEST, REQUEST_TIMED_OUT when ctx ends.
func (c *Controller) DeleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	topics := req.Topics
	if req.Version < 6 {
		topics = nil
		for _, name := range req.TopicNames {
			t := kmsg.NewDeleteTopicsRequestTopic()
			t.Topic = &name
			topics = append(topics, t)
		}
	}
	var names []string
	var ids []protocol.UUID
	times := map[string]int{}
	for _, rt := range topics {
		if rt.Topic != nil {
			names = append(names, *rt.Topic)
			times[*rt.Topic]++
		} else {
			ids = append(ids, rt.TopicID)
			times[string(rt.TopicID[:])]++
		}
	}
	s, err := c.look(ctx, names, ids, false)
	if err == nil {
		for _, id := range ids { // a topic may be named once by name and once by id
			if name, ok := s.names[id]; ok {
				times[name]++
			}
		}
	}
	for _, rt := range topics {
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = rt.Topic, rt.TopicID
		topicErr := err
		if topicErr != nil {
			topicErr = c.ended(topicErr)
		} else {
			topicErr = c.deleteTopic(ctx, s, &rt, times, &out)
		}
		out.ErrorCode, out.ErrorMessage = protocol.Code(topicErr), message(topicErr)
		resp.Topics = append(resp.Topics, out)
	}
	if err == nil {
		s.t.post("deletions", s.t.deletionsChanged)
	}
	return resp
}

func (c *Controller) deleteTopic(ctx context.Context, s *snapshot, rt *kmsg.DeleteTopicsRequestTopic, times map[string]int, out *kmsg.DeleteTopicsResponseTopic) error {
	none := protocol.UUID{}
	switch {
	case rt.Topic != nil && rt.TopicID != none:
		return refuse(kerr.InvalidRequest, "a topic is named either by its name or by its id")
	case rt.Topic == nil && rt.TopicID == none:
		return refuse(kerr.InvalidRequest, "neither a name nor an id is given")
	case rt.Topic != nil && times[*rt.Topic] > 1, rt.Topic == nil && times[string(rt.TopicID[:])] > 1:
		return refuse(kerr.InvalidRequest, "the topic is named more than once")
	}
	if rt.Topic == nil {
		name, ok := s.names[rt.TopicID]
		if !ok {
			return kerr.UnknownTopicID
		}
		if times[name] > 1 {
			return refuse(kerr.InvalidRequest, "the topic is named by its name and by its id")
		}
		out.Topic = &name
	}
	info, ok := s.topics[*out.Topic]
	if !ok {
		return kerr.UnknownTopicOrPartition
	}
	out.TopicID = info.id
	err := c.cfg.ZK.MarkForDeletion(ctx, s.fence, *out.Topic)
	if errors.Is(err, coordination.ErrNodeExists) {
		return nil
	}
	return c.ended(err)
}
