package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteOffsets asks for the deletion of single offsets; the answers are by topic and
// partition.
func deleteOffsets(w *wire, group string, parts map[string][]int32) (int16, map[string]int16) {
	w.t.Helper()
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for topic, ps := range parts {
		rt := kmsg.NewOffsetDeleteRequestTopic()
		rt.Topic = topic
		for _, p := range ps {
			rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteRequestTopicPartition{Partition: p})
		}
		req.Topics = append(req.Topics, rt)
	}
	resp := ask[*kmsg.OffsetDeleteResponse](w, req)
	got := map[string]int16{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			got[fmt.Sprintf("%s-%d", t.Topic, p.Partition)] = p.ErrorCode
		}
	}
	return resp.ErrorCode, got
}

// subscribe makes the join that of a consumer which reads these topics.
func subscribe(req *kmsg.JoinGroupRequest, topics ...string) *kmsg.JoinGroupRequest {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	req.Protocols[0].Metadata = m.AppendTo(nil)
	return req
}

// joinedBy brings one member into a stable group by this request.
func joinedBy(w *wire, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	w.t.Helper()
	r := ask[*kmsg.JoinGroupResponse](w, req)
	if r.ErrorCode == kerr.MemberIDRequired.Code {
		req.MemberID = r.MemberID
		r = ask[*kmsg.JoinGroupResponse](w, req)
	}
	wantCode(w.t, "join", r.ErrorCode, nil)
	sync := syncOf(req.Group, r.MemberID, r.Generation, req.InstanceID, map[string]string{r.MemberID: "all"})
	sync.ProtocolType = &req.ProtocolType
	wantCode(w.t, "sync", ask[*kmsg.SyncGroupResponse](w, sync).ErrorCode, nil)
	return r
}

func listGroups(w *wire, version int16, states, types []string) map[string]kmsg.ListGroupsResponseGroup {
	w.t.Helper()
	req := at(kmsg.NewPtrListGroupsRequest(), version)
	req.StatesFilter, req.TypesFilter = states, types
	resp := ask[*kmsg.ListGroupsResponse](w, req)
	wantCode(w.t, "list", resp.ErrorCode, nil)
	all := map[string]kmsg.ListGroupsResponseGroup{}
	for _, g := range resp.Groups {
		all[g.Group] = g
	}
	return all
}

// groupAdminCases are of what administrators do to groups, and of what groups withstand.
var groupAdminCases = []blackBoxCase{
	{"groups/offsets are deleted one by one", func(t *testing.T, b *target) {
		group, topic, absent := b.name("group"), b.topic(t, 3), b.name("absent")
		w := b.coordinator(t, group)
		code, _ := deleteOffsets(w, group, map[string][]int32{topic.name: {0}})
		wantCode(t, "of no group", code, kerr.GroupIDNotFound)
		code, _ = deleteOffsets(w, "", map[string][]int32{topic.name: {0}})
		wantCode(t, "without a group", code, kerr.InvalidGroupID)
		wantCode(t, "commit", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 5, 1: 6})), nil)
		code, got := deleteOffsets(w, group, map[string][]int32{topic.name: {0, 2, 9}, absent: {0}})
		wantCode(t, "delete", code, nil)
		want := map[string]int16{topic.name + "-0": 0, topic.name + "-2": 0, topic.name + "-9": kerr.UnknownTopicOrPartition.Code, absent + "-0": kerr.UnknownTopicOrPartition.Code}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, got := committed(w, 7, group, nil); fmt.Sprint(got) != fmt.Sprintf(`map[%s-1:6 "m" 0]`, topic.name) {
			t.Errorf("in the end: %v", got)
		}
		code, _ = deleteOffsets(w, group, nil)
		wantCode(t, "delete nothing", code, nil)
		code, _ = deleteOffsets(w, b.name("none"), nil)
		wantCode(t, "delete nothing of no group", code, kerr.GroupIDNotFound)
	}},
	{"groups/offsets of what members read are kept", func(t *testing.T, b *target) {
		group, read, left := b.name("group"), b.topic(t, 1), b.topic(t, 1)
		w := b.coordinator(t, group)
		m := joinedBy(w, subscribe(joinOf(7, group, "", nil), read.name))
		for _, topic := range []string{read.name, left.name} {
			wantCode(t, "commit", commit(w, commitOf(7, group, m.MemberID, m.Generation, topic, map[int32]int64{0: 5})), nil)
		}
		code, got := deleteOffsets(w, group, map[string][]int32{read.name: {0}, left.name: {0}})
		wantCode(t, "delete", code, nil)
		if want := map[string]int16{read.name + "-0": kerr.GroupSubscribedToTopic.Code, left.name + "-0": 0}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if _, got := committed(w, 7, group, nil); fmt.Sprint(got) != fmt.Sprintf(`map[%s-0:5 "m" 0]`, read.name) {
			t.Errorf("in the end: %v", got)
		}

		// What cannot be understood may subscribe to anything.
		odd := b.name("group")
		m = joined(t, w, odd, nil)
		wantCode(t, "commit", commit(w, commitOf(7, odd, m.MemberID, m.Generation, read.name, map[int32]int64{0: 5})), nil)
		code, got = deleteOffsets(w, odd, map[string][]int32{read.name: {0}})
		wantCode(t, "delete", code, nil)
		wantCode(t, "of an unknown subscription", got[read.name+"-0"], kerr.GroupSubscribedToTopic)

		// And of members that are no consumers nobody knows what they read.
		connect := joinOf(7, b.name("group"), "", nil)
		connect.ProtocolType = "connect"
		joinedBy(w, connect)
		code, _ = deleteOffsets(w, connect.Group, map[string][]int32{read.name: {0}})
		wantCode(t, "of another kind", code, kerr.NonEmptyGroup)
	}},
	{"groups/topic ids stand for names in commits and fetches", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		req := commitOf(10, group, "", -1, "", map[int32]int64{0: 5})
		req.Topics[0].TopicID = topic.id
		unknown := kmsg.NewOffsetCommitRequestTopic()
		unknown.TopicID = [16]byte{1, 2, 3}
		unknown.Partitions = req.Topics[0].Partitions
		req.Topics = append(req.Topics, unknown)
		resp := ask[*kmsg.OffsetCommitResponse](w, req)
		for _, rt := range resp.Topics {
			want := kerr.UnknownTopicID
			if rt.TopicID == topic.id {
				want = nil
			}
			wantCode(t, "commit", rt.Partitions[0].ErrorCode, want)
		}
		if len(resp.Topics) != 2 {
			t.Errorf("%+v", resp)
		}
		fetch := func(topics ...kmsg.OffsetFetchRequestGroupTopic) map[[16]byte]string {
			t.Helper()
			req := at(kmsg.NewPtrOffsetFetchRequest(), 10)
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group, g.MemberEpoch, g.Topics = group, -1, topics
			req.Groups = append(req.Groups, g)
			resp := ask[*kmsg.OffsetFetchResponse](w, req)
			wantCode(t, "fetch", resp.Groups[0].ErrorCode, nil)
			got := map[[16]byte]string{}
			for _, rt := range resp.Groups[0].Topics {
				s := rt.Topic
				for _, p := range rt.Partitions {
					s += fmt.Sprintf("%d: %d %q %d, ", p.Partition, p.Offset, deref(p.Metadata), p.ErrorCode)
				}
				got[rt.TopicID] = s
			}
			return got
		}
		a, c := kmsg.NewOffsetFetchRequestGroupTopic(), kmsg.NewOffsetFetchRequestGroupTopic()
		a.TopicID, a.Partitions = topic.id, []int32{0, 1}
		c.TopicID, c.Partitions = [16]byte{1, 2, 3}, []int32{0}
		got := fetch(a, c)
		want := map[[16]byte]string{topic.id: `0: 5 "m" 0, 1: -1 "" 0, `, {1, 2, 3}: fmt.Sprintf(`0: -1 "" %d, `, kerr.UnknownTopicID.Code)}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, want %v", got, want)
		}
		if got, want := fetch(), map[[16]byte]string{topic.id: `0: 5 "m" 0, `}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("all: %v, want %v", got, want)
		}
	}},
	{"groups/what is said of groups that are not there, by version", func(t *testing.T, b *target) {
		w, topic := b.coordinator(t, b.name("group")), b.topic(t, 1)
		for v := int16(2); v < 10; v++ {
			want := kerr.IllegalGeneration
			if v >= 9 {
				want = kerr.GroupIDNotFound
			}
			wantCode(t, fmt.Sprint("a member's commit v", v), commit(w, commitOf(v, b.name("none"), "m", 1, topic.name, map[int32]int64{0: 5})), want)
		}
		for v := range int16(7) {
			none := b.name("none")
			d := ask[*kmsg.DescribeGroupsResponse](w, at(describeGroups(none), v)).Groups[0]
			var want *kerr.Error
			if v >= 6 {
				want = kerr.GroupIDNotFound
			}
			wantCode(t, fmt.Sprint("describe v", v), d.ErrorCode, want)
			if d.State != "Dead" || d.Group != none || (d.ErrorMessage != nil) != (v >= 6) {
				t.Errorf("v%d: %+v", v, d)
			}
		}
		for v := range int16(4) {
			req := at(kmsg.NewPtrDeleteGroupsRequest(), v)
			req.Groups = []string{b.name("none")}
			d := ask[*kmsg.DeleteGroupsResponse](w, req).Groups[0]
			wantCode(t, fmt.Sprint("delete v", v), d.ErrorCode, kerr.GroupIDNotFound)
			if d.ErrorMessage != nil {
				t.Errorf("v%d: %+v", v, d)
			}
		}
	}},
	{"groups/lists by state and type", func(t *testing.T, b *target) {
		stable, empty, topic := b.name("group"), b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, stable)
		joined(t, w, stable, nil)
		wantCode(t, "commit", commit(w, commitOf(7, empty, "", -1, topic.name, map[int32]int64{0: 5})), nil)
		for v := range int16(6) {
			all := listGroups(w, v, nil, nil)
			s, e := all[stable], all[empty]
			if s.Group != stable || e.Group != empty || s.ProtocolType != "consumer" || e.ProtocolType != "" {
				t.Errorf("v%d: %+v, %+v", v, s, e)
			}
			if v >= 4 && (s.GroupState != "Stable" || e.GroupState != "Empty") || v >= 5 && (s.GroupType != "classic" || e.GroupType != "classic") {
				t.Errorf("v%d: %+v, %+v", v, s, e)
			}
		}
		for _, c := range []struct {
			states, types []string
			stable, empty bool
		}{
			{[]string{"Stable"}, nil, true, false},
			{[]string{"stable", "EMPTY"}, nil, true, true},
			{[]string{"Dead"}, nil, false, false},
			{nil, []string{"Classic"}, true, true},
			{[]string{"Empty"}, []string{"classic"}, false, true},
			{[]string{"Empty"}, []string{"consumer"}, false, false},
		} {
			all := listGroups(w, 5, c.states, c.types)
			_, s := all[stable]
			_, e := all[empty]
			if s != c.stable || e != c.empty {
				t.Errorf("%v %v: %v, %v", c.states, c.types, s, e)
			}
		}
	}},
	{"groups/clients that give up while they join block nobody for ever", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		slow := joinOf(7, group, "", nil)
		slow.SessionTimeoutMillis, slow.RebalanceTimeoutMillis = 30_000, 30_000
		m := joinedBy(w, slow)
		for range 300 { // each is given an id that it never comes back with
			c := b.dial(t)
			req := joinOf(7, group, "", nil)
			req.SessionTimeoutMillis = 6000
			wantCode(t, "join", ask[*kmsg.JoinGroupResponse](c, req).ErrorCode, kerr.MemberIDRequired)
			c.Close()
		}
		live := b.dial(t)
		join := joinOf(7, group, "", nil)
		join.MemberID = ask[*kmsg.JoinGroupResponse](live, join).MemberID
		live.send(join)
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, m.MemberID, m.Generation, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		slow.MemberID = m.MemberID
		again := ask[*kmsg.JoinGroupResponse](w, slow) // waits for the ids to expire
		wantCode(t, "join again", again.ErrorCode, nil)
		if r, err := live.receive(join); err != nil || r.(*kmsg.JoinGroupResponse).ErrorCode != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		if len(again.Members) != 2 {
			t.Errorf("%d members", len(again.Members))
		}
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, m.MemberID, again.Generation, nil, nil)).ErrorCode, nil)
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Stable" || len(d.Members) != 2 {
			t.Errorf("%+v", d)
		}
	}},
	{"groups/an id that was given out is forgotten after the session timeout", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		req := joinOf(7, group, "", nil)
		req.SessionTimeoutMillis = 6000
		id := ask[*kmsg.JoinGroupResponse](w, req).MemberID
		// The group is there for as long as the id is.
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Empty" || len(d.Members) != 0 {
			t.Errorf("%+v", d)
		}
		leave := at(kmsg.NewPtrLeaveGroupRequest(), 4)
		leave.Group = group
		other := ask[*kmsg.JoinGroupResponse](w, req).MemberID
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID = other
		leave.Members = append(leave.Members, lm)
		wantCode(t, "an id may leave", ask[*kmsg.LeaveGroupResponse](w, leave).Members[0].ErrorCode, nil)
		used := joinOf(7, group, other, nil)
		wantCode(t, "and is unknown then", ask[*kmsg.JoinGroupResponse](w, used).ErrorCode, kerr.UnknownMemberID)
		wantCode(t, "its beat", beat(w, group, id, -1, nil), kerr.UnknownMemberID)
		time.Sleep(7 * time.Second) // nothing that happens then can be seen from outside
		late := joinOf(7, group, id, nil)
		wantCode(t, "too late", ask[*kmsg.JoinGroupResponse](w, late).ErrorCode, kerr.UnknownMemberID)
	}},
	{"groups/a member of version 0 has its session for the rebalance", func(t *testing.T, b *target) {
		group := b.name("group")
		w, w2 := b.coordinator(t, group), b.dial(t)
		old := joinOf(0, group, "", nil)
		old.SessionTimeoutMillis, old.RebalanceTimeoutMillis = 6000, -1
		m := joinedBy(w, old)
		join := joinOf(0, group, "", nil)
		join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 6000, -1
		began := time.Now()
		r := ask[*kmsg.JoinGroupResponse](w2, join) // the first does not come again
		wantCode(t, "join", r.ErrorCode, nil)
		if len(r.Members) != 1 || r.LeaderID != r.MemberID {
			t.Errorf("%+v", r)
		}
		if took := time.Since(began); took < 4*time.Second {
			t.Errorf("the rebalance was over after %v: the one who was in had no time to come", took)
		}
		wantCode(t, "the one who did not come", beat(w, group, m.MemberID, m.Generation, nil), kerr.UnknownMemberID)
	}},
	{"groups/the last one to join again ends the wait, a leave does so, too", func(t *testing.T, b *target) {
		group := b.name("group")
		w, w2 := b.coordinator(t, group), b.dial(t)
		req := joinOf(7, group, "", nil)
		req.RebalanceTimeoutMillis = 60_000
		m := joinedBy(w, req)
		join := joinOf(7, group, "", nil)
		join.RebalanceTimeoutMillis = 60_000
		join.MemberID = ask[*kmsg.JoinGroupResponse](w2, join).MemberID
		w2.send(join)
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, m.MemberID, m.Generation, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		leave := at(kmsg.NewPtrLeaveGroupRequest(), 4)
		leave.Group = group
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.MemberID = m.MemberID
		leave.Members = append(leave.Members, lm)
		wantCode(t, "leave", ask[*kmsg.LeaveGroupResponse](w, leave).Members[0].ErrorCode, nil)
		_ = w2.SetReadDeadline(time.Now().Add(20 * time.Second)) // well before the rebalance's own time is up
		r, err := w2.receive(join)
		if err != nil {
			t.Fatal(err)
		}
		if j := r.(*kmsg.JoinGroupResponse); j.ErrorCode != 0 || len(j.Members) != 1 || !slices.ContainsFunc(j.Members, func(m kmsg.JoinGroupResponseMember) bool { return m.MemberID == j.MemberID }) {
			t.Errorf("%+v", j)
		}
	}},
}
