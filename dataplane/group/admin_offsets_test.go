package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteOffset asks for the deletion of partition 0 of each topic.
func (e *env) deleteOffset(group string, topics ...string) *kmsg.OffsetDeleteResponse {
	e.t.Helper()
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = group
	for _, topic := range topics {
		r.Topics = append(r.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}})
	}
	f := newFuture[kmsg.OffsetDeleteResponse](e.t)
	e.c.DeleteOffsets(r, f.done)
	return f.wait()
}

func TestDeletedOffsetsStayGone(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("", -1, "t", 0, 5), nil)
		wantCode(t, e.commit("", -1, "u", 0, 6), nil)
		r := e.deleteOffset("g", "t", "never committed")
		wantCode(t, r.ErrorCode, nil)
		for _, rt := range r.Topics {
			wantCode(t, rt.Partitions[0].ErrorCode, nil)
		}
		for range 2 {
			if a, b := e.committed("t", 0), e.committed("u", 0); a != -1 || b != 6 {
				t.Errorf("offsets %d and %d, want -1 and 6", a, b)
			}
			e.move()
		}
		e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas })
		wantCode(t, e.deleteOffset("g", "u").ErrorCode, kerr.CoordinatorNotAvailable)
		if got := e.committed("u", 0); got != 6 {
			t.Errorf("offset %d of a deletion that was not stored", got)
		}
	})
}

// What the members of a group of either protocol subscribe to is kept.
func TestOffsetsOfSubscribedTopicsAreKept(t *testing.T) {
	topics := newFakeTopics(map[string]int32{"read": 1, "left": 1})
	run(t, Config{ConsumerProtocol: true, Topics: func() Topics { return topics }, ConsumerAssignmentInterval: time.Second}, func(e *env) {
		for _, topic := range []string{"read", "left"} {
			wantCode(t, e.commit("", -1, topic, 0, 5), nil)
		}
		beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		beat.Version, beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = 1, "g", "m", 60_000
		beat.SubscribedTopicNames, beat.Topics = []string{"read"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		f := newFuture[kmsg.ConsumerGroupHeartbeatResponse](t)
		e.c.ConsumerHeartbeat(ClientInfo{"client", "/h"}, func(string) bool { return true }, beat, f.done)
		wantCode(t, f.wait().ErrorCode, nil)
		r := e.deleteOffset("g", "read", "left")
		wantCode(t, r.ErrorCode, nil)
		wantCode(t, r.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic)
		wantCode(t, r.Topics[1].Partitions[0].ErrorCode, nil)
		if a, b := e.committed("read", 0), e.committed("left", 0); a != 5 || b != -1 {
			t.Errorf("offsets %d and %d, want 5 and -1", a, b)
		}
	})
}
