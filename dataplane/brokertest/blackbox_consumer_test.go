package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// consumer is a member of a consumer group (KIP-848) that does as it is told: it has what
// it was last assigned, and says so.
type consumer struct {
	t     *testing.T
	w     *wire
	req   *kmsg.ConsumerGroupHeartbeatRequest // the next heartbeat
	owned []kmsg.ConsumerGroupHeartbeatResponseAssignmentTopic
}

// consumerOf is one that has not joined yet.
func (b *target) consumerOf(t *testing.T, group, member string, topics ...string) *consumer {
	t.Helper()
	req := at(kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1)
	req.Group, req.MemberID, req.RebalanceTimeoutMillis = group, member, 30_000
	req.SubscribedTopicNames = topics
	req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return &consumer{t: t, w: b.dial(t), req: req}
}

// beat sends the heartbeat as it stands and takes the answer in.
func (c *consumer) beat() *kmsg.ConsumerGroupHeartbeatResponse {
	c.t.Helper()
	resp := ask[*kmsg.ConsumerGroupHeartbeatResponse](c.w, c.req)
	if resp.ErrorCode != 0 {
		return resp
	}
	c.req.MemberID, c.req.MemberEpoch = *resp.MemberID, resp.MemberEpoch
	if resp.Assignment != nil {
		c.owned = resp.Assignment.Topics
	}
	c.req.RebalanceTimeoutMillis, c.req.SubscribedTopicNames, c.req.SubscribedTopicRegex = -1, nil, nil
	c.req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	for _, t := range c.owned {
		c.req.Topics = append(c.req.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: t.TopicID, Partitions: t.Partitions})
	}
	return resp
}

// mustBeat is beat without an error.
func (c *consumer) mustBeat() *kmsg.ConsumerGroupHeartbeatResponse {
	c.t.Helper()
	resp := c.beat()
	if resp.ErrorCode != 0 {
		c.t.Fatalf("member %s: %v: %s", c.req.MemberID, kerr.ErrorForCode(resp.ErrorCode), deref(resp.ErrorMessage))
	}
	return resp
}

// has lists what the consumer has of the topic.
func (c *consumer) has(topic madeTopic) []int32 {
	for _, t := range c.owned {
		if t.TopicID == topic.id {
			return slices.Sorted(slices.Values(t.Partitions))
		}
	}
	return nil
}

// share lets the consumers beat until each has that many partitions of the topic.
func share(t *testing.T, topic madeTopic, counts map[*consumer]int) {
	t.Helper()
	Await(t, 30*time.Second, "partitions shared out", func() error {
		var err error
		at := map[int32]*consumer{}
		for c, want := range counts {
			c.mustBeat()
			if got := len(c.has(topic)); got != want {
				err = fmt.Errorf("a member has %d partitions, and is to have %d", got, want)
			}
		}
		for c := range counts {
			for _, p := range c.has(topic) {
				if at[p] != nil {
					t.Fatalf("partition %d belongs to two members", p)
				}
				at[p] = c
			}
		}
		return err
	})
}

func (c *consumer) leave(epoch int32) int16 {
	c.t.Helper()
	req := at(kmsg.NewPtrConsumerGroupHeartbeatRequest(), 1)
	req.Group, req.MemberID, req.InstanceID, req.MemberEpoch = c.req.Group, c.req.MemberID, c.req.InstanceID, epoch
	return ask[*kmsg.ConsumerGroupHeartbeatResponse](c.w, req).ErrorCode
}

func describeConsumers(w *wire, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	w.t.Helper()
	req := at(kmsg.NewPtrConsumerGroupDescribeRequest(), 1)
	req.Groups = []string{group}
	return ask[*kmsg.ConsumerGroupDescribeResponse](w, req).Groups[0]
}

// memberCommit commits an offset as a member with that epoch.
func memberCommit(w *wire, version int16, group, member string, epoch int32, topic string) int16 {
	w.t.Helper()
	return commit(w, commitOf(version, group, member, epoch, topic, map[int32]int64{0: 7}))
}

func memberFetch(w *wire, group, topic string, member *string, epoch int32) int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrOffsetFetchRequest(), 9)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = group, member, epoch
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{0}}}
	req.Groups = append(req.Groups, g)
	return ask[*kmsg.OffsetFetchResponse](w, req).Groups[0].ErrorCode
}

var consumerGroupCases = []blackBoxCase{
	{"consumer groups/heartbeats that are refused", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		f := func(what string, want *kerr.Error, change func(*kmsg.ConsumerGroupHeartbeatRequest)) {
			t.Helper()
			c := b.consumerOf(t, group, "m", "topic")
			c.w = w
			change(c.req)
			wantCode(t, what, c.beat().ErrorCode, want)
		}
		type r = *kmsg.ConsumerGroupHeartbeatRequest
		f("no member id in v1", kerr.InvalidRequest, func(q r) { q.MemberID = "" })
		f("no group", kerr.InvalidRequest, func(q r) { q.Group = "" })
		f("blank instance", kerr.InvalidRequest, func(q r) { q.InstanceID = kmsg.StringPtr(" ") })
		f("empty rack", kerr.InvalidRequest, func(q r) { q.RackID = kmsg.StringPtr("") })
		f("joining without a rebalance timeout", kerr.InvalidRequest, func(q r) { q.RebalanceTimeoutMillis = -1 })
		f("joining without saying what it has", kerr.InvalidRequest, func(q r) { q.Topics = nil })
		f("joining with partitions", kerr.InvalidRequest, func(q r) {
			q.Topics = append(q.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{Partitions: []int32{0}})
		})
		f("joining without a subscription", kerr.InvalidRequest, func(q r) { q.SubscribedTopicNames = nil })
		f("an epoch that is none", kerr.InvalidRequest, func(q r) { q.MemberEpoch = -3 })
		f("a static leave without an instance", kerr.InvalidRequest, func(q r) { q.MemberEpoch = -2 })
		f("an unknown assignor", kerr.UnsupportedAssignor, func(q r) { q.ServerAssignor = kmsg.StringPtr("lottery") })
		f("a bad expression", kerr.InvalidRegularExpression, func(q r) { q.SubscribedTopicRegex = kmsg.StringPtr("(") })
		f("a beat to no group", kerr.GroupIDNotFound, func(q r) { q.MemberEpoch, q.Group = 1, b.name("none") })
		f("a leave from no group", kerr.GroupIDNotFound, func(q r) { q.MemberEpoch, q.Group = -1, b.name("none") })
		if d := describeConsumers(w, b.name("none")); d.ErrorCode != kerr.GroupIDNotFound.Code {
			t.Errorf("%+v", d)
		}
		wantCode(t, "describing no name", describeConsumers(w, "").ErrorCode, kerr.InvalidGroupID)
	}},
	{"consumer groups/a member joins, is seen, and leaves", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 3)
		w := b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		first := c.mustBeat()
		if *first.MemberID != "m1" || first.MemberEpoch < 1 || first.HeartbeatIntervalMillis != 5000 || first.Assignment == nil {
			t.Errorf("%+v", first)
		}
		share(t, topic, map[*consumer]int{c: 3})
		if again := c.mustBeat(); again.Assignment != nil {
			t.Errorf("nothing changed, and yet: %+v", again)
		}
		var d kmsg.ConsumerGroupDescribeResponseGroup
		Await(t, 10*time.Second, "a stable group", func() error {
			if d = describeConsumers(w, group); d.State != "Stable" {
				return fmt.Errorf("%+v", d)
			}
			return nil
		})
		if d.AssignorName != "uniform" || d.Epoch != d.AssignmentEpoch || len(d.Members) != 1 {
			t.Fatalf("%+v", d)
		}
		m := d.Members[0]
		if m.MemberID != "m1" || m.MemberEpoch != d.Epoch || m.MemberType != 1 || m.ClientID != "blackbox" || fmt.Sprint(m.SubscribedTopics) != fmt.Sprint([]string{topic.name}) ||
			m.InstanceID != nil || m.RackID != nil || m.SubscribedTopicRegex == nil || *m.SubscribedTopicRegex != "" {
			t.Errorf("%+v", m)
		}
		for _, a := range []kmsg.Assignment{m.Assignment, m.TargetAssignment} {
			if len(a.TopicPartitions) != 1 || a.TopicPartitions[0].Topic != topic.name || a.TopicPartitions[0].TopicID != topic.id || len(a.TopicPartitions[0].Partitions) != 3 {
				t.Errorf("%+v", a)
			}
		}
		listed := func(typ, state string) bool {
			req := at(kmsg.NewPtrListGroupsRequest(), 5)
			req.TypesFilter, req.StatesFilter = []string{typ}, []string{state}
			return slices.ContainsFunc(ask[*kmsg.ListGroupsResponse](w, req).Groups, func(g kmsg.ListGroupsResponseGroup) bool {
				return g.Group == group && g.GroupType == "consumer" && g.GroupState == "Stable" && g.ProtocolType == "consumer"
			})
		}
		if !listed("consumer", "stable") || !listed("Consumer", "Stable") || listed("classic", "Stable") || listed("consumer", "Empty") {
			t.Error("the filters of ListGroups do not hold")
		}
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Dead" || d.ErrorCode != 0 {
			t.Errorf("described as a classic group: %+v", d)
		}
		wantCode(t, "deleting it", deleteGroups(w, group)[group], kerr.NonEmptyGroup)
		wantCode(t, "leaving", c.leave(-1), nil)
		wantCode(t, "leaving again", c.leave(-1), kerr.UnknownMemberID)
		wantCode(t, "a beat after it", c.beat().ErrorCode, kerr.UnknownMemberID)
		if d := describeConsumers(w, group); d.State != "Empty" || len(d.Members) != 0 {
			t.Errorf("%+v", d)
		}
		wantCode(t, "deleting it", deleteGroups(w, group)[group], nil)
		wantCode(t, "describing it", describeConsumers(w, group).ErrorCode, kerr.GroupIDNotFound)
	}},
	{"consumer groups/v0 makes member ids", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		b.coordinator(t, group)
		c := b.consumerOf(t, group, "", topic.name)
		c.req.Version = 0
		if r := c.mustBeat(); len(*r.MemberID) < 16 {
			t.Errorf("%+v", r)
		}
		share(t, topic, map[*consumer]int{c: 2})
	}},
	{"consumer groups/members come and go and share what there is", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 6)
		w := b.coordinator(t, group)
		one, two, three := b.consumerOf(t, group, "m1", topic.name), b.consumerOf(t, group, "m2", topic.name), b.consumerOf(t, group, "m3", topic.name)
		one.mustBeat()
		share(t, topic, map[*consumer]int{one: 6})
		kept := one.has(topic)
		two.mustBeat()
		three.mustBeat()
		share(t, topic, map[*consumer]int{one: 2, two: 2, three: 2})
		for _, p := range one.has(topic) {
			if !slices.Contains(kept, p) {
				t.Errorf("partition %d moved to the member that had others", p)
			}
		}
		wantCode(t, "leaving", two.leave(-1), nil)
		had := append(one.has(topic), three.has(topic)...)
		share(t, topic, map[*consumer]int{one: 3, three: 3})
		for _, p := range had {
			if !slices.Contains(one.has(topic), p) && !slices.Contains(three.has(topic), p) {
				t.Errorf("partition %d is nowhere", p)
			}
		}
		// Growth.
		grow := at(kmsg.NewPtrCreatePartitionsRequest(), 3)
		gt := kmsg.NewCreatePartitionsRequestTopic()
		gt.Topic, gt.Count = topic.name, 10
		grow.Topics, grow.TimeoutMillis = append(grow.Topics, gt), 10_000
		wantCode(t, "growing", ask[*kmsg.CreatePartitionsResponse](w, grow).Topics[0].ErrorCode, nil)
		share(t, topic, map[*consumer]int{one: 5, three: 5})
		// Another subscription.
		other := b.topic(t, 3)
		three.req.SubscribedTopicNames = []string{other.name}
		three.mustBeat()
		share(t, topic, map[*consumer]int{one: 10, three: 0})
		share(t, other, map[*consumer]int{one: 0, three: 3})
		// A deleted topic is nobody's.
		del := at(kmsg.NewPtrDeleteTopicsRequest(), 5)
		del.TimeoutMillis, del.TopicNames = 10_000, []string{other.name}
		wantCode(t, "delete", ask[*kmsg.DeleteTopicsResponse](w, del).Topics[0].ErrorCode, nil)
		share(t, other, map[*consumer]int{one: 0, three: 0})
	}},
	{"consumer groups/epochs that fence", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 2})
		epoch := c.req.MemberEpoch
		c.req.MemberEpoch = epoch + 1
		wantCode(t, "an epoch ahead", c.beat().ErrorCode, kerr.FencedMemberEpoch)
		c.req.MemberEpoch = epoch
		wantCode(t, "its epoch", c.beat().ErrorCode, nil)

		// A change of the subscription begins an epoch; the answer is lost.
		other := b.topic(t, 1)
		c.req.SubscribedTopicNames = []string{topic.name, other.name}
		lost := *c.req
		Await(t, 10*time.Second, "another epoch", func() error {
			c.mustBeat()
			if c.req.MemberEpoch == epoch {
				return fmt.Errorf("epoch %d", epoch)
			}
			return nil
		})
		last := c.req.MemberEpoch
		lost.SubscribedTopicNames = nil
		retried := ask[*kmsg.ConsumerGroupHeartbeatResponse](c.w, &lost)
		if retried.ErrorCode != 0 || retried.MemberEpoch != last {
			t.Errorf("with the epoch before: %+v", retried)
		}
		lost.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{{TopicID: topic.id, Partitions: []int32{0, 1, 2}}}
		wantCode(t, "the epoch before, and more than it has", ask[*kmsg.ConsumerGroupHeartbeatResponse](c.w, &lost).ErrorCode, kerr.FencedMemberEpoch)
		lost.Topics = nil
		wantCode(t, "the epoch before, and not a word", ask[*kmsg.ConsumerGroupHeartbeatResponse](c.w, &lost).ErrorCode, kerr.FencedMemberEpoch)

		again := b.consumerOf(t, group, "m1", topic.name)
		wantCode(t, "joining again under the same id", again.beat().ErrorCode, nil)
		share(t, topic, map[*consumer]int{again: 2})
	}},
	{"consumer groups/static members leave for a while", func(t *testing.T, b *target) {
		group, topic, instance := b.name("group"), b.topic(t, 4), "instance-1"
		w := b.coordinator(t, group)
		one, two := b.consumerOf(t, group, "m1", topic.name), b.consumerOf(t, group, "m2", topic.name)
		one.req.InstanceID = &instance
		one.mustBeat()
		two.mustBeat()
		share(t, topic, map[*consumer]int{one: 2, two: 2})
		had, epoch := one.has(topic), describeConsumers(w, group).Epoch

		other := b.consumerOf(t, group, "m3", topic.name)
		other.req.InstanceID = &instance
		wantCode(t, "the instance in use", other.beat().ErrorCode, kerr.UnreleasedInstanceID)
		other.req.MemberEpoch = 1
		wantCode(t, "a beat of another member", other.beat().ErrorCode, kerr.FencedInstanceID)
		other.req.InstanceID = kmsg.StringPtr("unknown")
		wantCode(t, "a beat of an unknown instance", other.beat().ErrorCode, kerr.UnknownMemberID)
		other.req.InstanceID, other.req.MemberEpoch = &instance, 0

		wantCode(t, "a static leave", one.leave(-2), nil)
		two.mustBeat()
		if n := len(two.has(topic)); n != 2 {
			t.Errorf("the other has %d partitions while the first is away", n)
		}
		wantCode(t, "coming back", other.beat().ErrorCode, nil)
		if !slices.Equal(other.has(topic), had) {
			t.Errorf("it has %v and had %v", other.has(topic), had)
		}
		if d := describeConsumers(w, group); d.Epoch != epoch || len(d.Members) != 2 {
			t.Errorf("%+v; it was in epoch %d", d, epoch)
		}
		wantCode(t, "a beat of who was replaced", one.beat().ErrorCode, kerr.FencedInstanceID)
		wantCode(t, "a leave for good", other.leave(-1), nil)
		share(t, topic, map[*consumer]int{two: 4})
	}},
	{"consumer groups/a regular expression is resolved by the broker", func(t *testing.T, b *target) {
		group, topic, other := b.name("group"), b.topic(t, 3), b.topic(t, 2)
		b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1")
		c.req.SubscribedTopicNames = nil
		c.req.SubscribedTopicRegex = kmsg.StringPtr(topic.name[:len(topic.name)-1] + "." + "|" + other.name[:4]) // the second is no whole name
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 3})
		c.req.SubscribedTopicRegex = kmsg.StringPtr(topic.name + "|" + other.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 3})
		share(t, other, map[*consumer]int{c: 2})
		c.req.SubscribedTopicRegex = kmsg.StringPtr("(")
		wantCode(t, "a bad expression", c.beat().ErrorCode, kerr.InvalidRegularExpression)
		c.req.SubscribedTopicRegex = kmsg.StringPtr("")
		c.req.SubscribedTopicNames = []string{other.name}
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 0})
		share(t, other, map[*consumer]int{c: 2})
	}},
	{"consumer groups/offsets of members", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 2})
		id, epoch := "m1", c.req.MemberEpoch
		wantCode(t, "a commit", memberCommit(w, 9, group, id, epoch, topic.name), nil)
		wantCode(t, "a commit of an old version", memberCommit(w, 8, group, id, epoch, topic.name), kerr.UnsupportedVersion)
		wantCode(t, "a commit with an epoch ahead", memberCommit(w, 9, group, id, epoch+1, topic.name), kerr.StaleMemberEpoch)
		wantCode(t, "a commit with an epoch behind", memberCommit(w, 9, group, id, epoch-1, topic.name), kerr.StaleMemberEpoch)
		wantCode(t, "a commit of nobody", memberCommit(w, 9, group, "nobody", epoch, topic.name), kerr.UnknownMemberID)
		wantCode(t, "a commit from outside", memberCommit(w, 9, group, "", -1, topic.name), kerr.UnknownMemberID)
		wantCode(t, "a fetch", memberFetch(w, group, topic.name, &id, epoch), nil)
		wantCode(t, "a fetch from outside", memberFetch(w, group, topic.name, nil, -1), nil)
		wantCode(t, "a fetch with an epoch behind", memberFetch(w, group, topic.name, &id, epoch-1), kerr.StaleMemberEpoch)
		wantCode(t, "a fetch of nobody", memberFetch(w, group, topic.name, kmsg.StringPtr("nobody"), epoch), kerr.UnknownMemberID)

		// A commit that was on its way when the epoch changed (KIP-1251).
		other := b.topic(t, 1)
		c.req.SubscribedTopicNames = []string{topic.name, other.name}
		Await(t, 10*time.Second, "another epoch", func() error {
			c.mustBeat()
			if c.req.MemberEpoch == epoch {
				return fmt.Errorf("epoch %d", epoch)
			}
			return nil
		})
		wantCode(t, "a commit with the epoch in which it got the partition", memberCommit(w, 9, group, id, epoch, topic.name), nil)
		wantCode(t, "a commit of a partition with an epoch before it got it", memberCommit(w, 9, group, id, epoch, other.name), kerr.StaleMemberEpoch)
		wantCode(t, "leaving", c.leave(-1), nil)
		wantCode(t, "a commit to the empty group", memberCommit(w, 9, group, "", -1, topic.name), nil)
		if _, got := committed(w, 7, group, map[string][]int32{topic.name: {0}}); got[topic.name+"-0"] != `7 "m" 0` {
			t.Errorf("%v", got)
		}
		wantCode(t, "deleting it", deleteGroups(w, group)[group], nil)
	}},
	{"consumer groups/an empty group may change its kind", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		m := joined(t, w, group, nil)
		leave := at(kmsg.NewPtrLeaveGroupRequest(), 4)
		leave.Group, leave.Members = group, []kmsg.LeaveGroupRequestMember{{MemberID: m.MemberID}}
		wantCode(t, "leave", ask[*kmsg.LeaveGroupResponse](w, leave).ErrorCode, nil)
		wantCode(t, "commit", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 5})), nil)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 2})
		if _, got := committed(w, 7, group, map[string][]int32{topic.name: {0}}); got[topic.name+"-0"] != `5 "m" 0` {
			t.Errorf("the offsets of the classic group: %v", got)
		}
		wantCode(t, "leaving", c.leave(-1), nil)
		joined(t, w, group, nil)
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Stable" {
			t.Errorf("%+v", d)
		}
		wantCode(t, "describing it", describeConsumers(w, group).ErrorCode, kerr.GroupIDNotFound)
	}},
}

// classicConsumer is a JoinGroup of a member with a consumer's subscription.
func classicConsumer(group, member string, topics ...string) *kmsg.JoinGroupRequest {
	req := joinOf(7, group, member, nil)
	md := kmsg.NewConsumerMemberMetadata()
	md.Version, md.Topics = 1, topics
	req.Protocols[0].Metadata = md.AppendTo(nil)
	return req
}

// migrationCases are of groups whose members speak both protocols.
var migrationCases = []blackBoxCase{
	{"consumer groups/a group goes over from classic to consumer and back", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 4)
		w := b.coordinator(t, group)
		req := classicConsumer(group, "", topic.name)
		req.MemberID = ask[*kmsg.JoinGroupResponse](w, req).MemberID
		r := ask[*kmsg.JoinGroupResponse](w, req)
		wantCode(t, "join", r.ErrorCode, nil)
		all := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic.name, Partitions: []int32{0, 1, 2, 3}}}}
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, r.MemberID, r.Generation, nil, map[string]string{r.MemberID: string(all.AppendTo(nil))})).ErrorCode, nil)

		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		if n := len(c.has(topic)); n > 0 {
			t.Errorf("it has %d partitions while the classic member has all", n)
		}
		d := describeConsumers(w, group)
		kinds := map[string]int8{}
		for _, m := range d.Members {
			kinds[m.MemberID] = m.MemberType
		}
		if d.ErrorCode != 0 || len(kinds) != 2 || kinds["m1"] != 1 || kinds[r.MemberID] != 0 {
			t.Errorf("%+v", d)
		}
		Await(t, 10*time.Second, "the rebalance", func() error {
			c.mustBeat()
			if code := beat(w, group, r.MemberID, r.Generation, nil); code != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", code)
			}
			return nil
		})
		wantCode(t, "a beat of another generation", beat(w, group, r.MemberID, r.Generation+7, nil), kerr.IllegalGeneration)
		wantCode(t, "a classic beat of the other member", beat(w, group, "m1", c.req.MemberEpoch, nil), kerr.UnknownMemberID)
		// It joins again, with nothing: all that it had is free.
		var again *kmsg.JoinGroupResponse
		var has int
		Await(t, 10*time.Second, "its part", func() error {
			again = ask[*kmsg.JoinGroupResponse](w, classicConsumer(group, r.MemberID, topic.name))
			wantCode(t, "join again", again.ErrorCode, nil)
			s := ask[*kmsg.SyncGroupResponse](w, syncOf(group, r.MemberID, again.Generation, nil, nil))
			if s.ErrorCode == kerr.RebalanceInProgress.Code {
				return fmt.Errorf("in progress")
			}
			wantCode(t, "sync again", s.ErrorCode, nil)
			var a kmsg.ConsumerMemberAssignment
			if err := a.ReadFrom(s.MemberAssignment); err != nil {
				t.Fatal(err)
			}
			if has = 0; len(a.Topics) == 1 {
				has = len(a.Topics[0].Partitions)
			}
			if has != 2 {
				return fmt.Errorf("%d partitions", has)
			}
			return nil
		})
		if again.LeaderID != "" || len(again.Members) > 0 || deref(again.Protocol) != "range" {
			t.Errorf("%+v", again)
		}
		share(t, topic, map[*consumer]int{c: 2})
		wantCode(t, "its beat", beat(w, group, r.MemberID, again.Generation, nil), nil)
		wantCode(t, "its commit", memberCommit(w, 7, group, r.MemberID, again.Generation, topic.name), nil)
		wantCode(t, "a commit of a generation ahead", memberCommit(w, 9, group, r.MemberID, again.Generation+1, topic.name), kerr.IllegalGeneration)
		other := classicConsumer(group, "", topic.name)
		other.Protocols[0].Name = "other"
		wantCode(t, "a protocol that not all know", ask[*kmsg.JoinGroupResponse](w, other).ErrorCode, kerr.InconsistentGroupProtocol)

		generation := describeConsumers(w, group).Epoch
		wantCode(t, "the last of the next protocol leaves", c.leave(-1), nil)
		wantCode(t, "a beat of the classic group", beat(w, group, r.MemberID, generation, nil), kerr.RebalanceInProgress)
		last := ask[*kmsg.JoinGroupResponse](w, classicConsumer(group, r.MemberID, topic.name))
		if last.ErrorCode != 0 || last.LeaderID != r.MemberID || len(last.Members) != 1 {
			t.Errorf("%+v", last)
		}
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "CompletingRebalance" {
			t.Errorf("%+v", d)
		}
	}},
	{"consumer groups/a group that is not of consumers does not go over", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		joined(t, w, group, nil) // its metadata is no subscription
		c := b.consumerOf(t, group, "m1", "topic")
		wantCode(t, "join", c.beat().ErrorCode, kerr.GroupIDNotFound)
		wantCode(t, "leave", c.leave(-1), kerr.GroupIDNotFound)
	}},
}
