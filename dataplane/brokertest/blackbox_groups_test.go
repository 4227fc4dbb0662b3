package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinator waits until the group has one and returns a connection to it.
func (b *target) coordinator(t *testing.T, group string) *wire {
	t.Helper()
	w := b.dial(t)
	Await(t, 30*time.Second, "a coordinator", func() error {
		req := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
		req.CoordinatorKey = group
		if err := kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](w, req).ErrorCode); err != nil {
			return err
		}
		hb := at(kmsg.NewPtrHeartbeatRequest(), 3) // loaded?
		hb.Group, hb.MemberID = group, "nobody"
		if c := ask[*kmsg.HeartbeatResponse](w, hb).ErrorCode; c != kerr.UnknownMemberID.Code {
			return fmt.Errorf("a beat is answered %d", c) // none while groups are loaded: then all are taken for alive
		}
		return nil
	})
	return w
}

func joinOf(version int16, group, member string, instance *string) *kmsg.JoinGroupRequest {
	req := at(kmsg.NewPtrJoinGroupRequest(), version)
	req.Group, req.MemberID, req.InstanceID, req.ProtocolType = group, member, instance, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte("meta")
	req.Protocols = append(req.Protocols, p)
	return req
}

func syncOf(group, member string, generation int32, instance *string, assignment map[string]string) *kmsg.SyncGroupRequest {
	req := at(kmsg.NewPtrSyncGroupRequest(), 5)
	req.Group, req.MemberID, req.Generation, req.InstanceID = group, member, generation, instance
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for m, a := range assignment {
		ga := kmsg.NewSyncGroupRequestGroupAssignment()
		ga.MemberID, ga.MemberAssignment = m, []byte(a)
		req.GroupAssignment = append(req.GroupAssignment, ga)
	}
	return req
}

func beat(w *wire, group, member string, generation int32, instance *string) int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrHeartbeatRequest(), 4)
	req.Group, req.MemberID, req.Generation, req.InstanceID = group, member, generation, instance
	return ask[*kmsg.HeartbeatResponse](w, req).ErrorCode
}

// joined brings one member into a stable group of its own.
func joined(t *testing.T, w *wire, group string, instance *string) *kmsg.JoinGroupResponse {
	t.Helper()
	r := ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, "", instance))
	if r.ErrorCode == kerr.MemberIDRequired.Code {
		r = ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, r.MemberID, instance))
	}
	wantCode(t, "join", r.ErrorCode, nil)
	s := ask[*kmsg.SyncGroupResponse](w, syncOf(group, r.MemberID, r.Generation, instance, map[string]string{r.MemberID: "all"}))
	wantCode(t, "sync", s.ErrorCode, nil)
	return r
}

func commitOf(version int16, group, member string, generation int32, topic string, offsets map[int32]int64) *kmsg.OffsetCommitRequest {
	req := at(kmsg.NewPtrOffsetCommitRequest(), version)
	req.Group, req.MemberID, req.Generation, req.RetentionTimeMillis = group, member, generation, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	for p, o := range offsets {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, o, -1, kmsg.StringPtr("m")
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// commit returns the first partition's answer.
func commit(w *wire, req *kmsg.OffsetCommitRequest) int16 {
	w.t.Helper()
	return ask[*kmsg.OffsetCommitResponse](w, req).Topics[0].Partitions[0].ErrorCode
}

// committed fetches offsets, null parts for all.
func committed(w *wire, version int16, group string, parts map[string][]int32) (int16, map[string]string) {
	w.t.Helper()
	req := at(kmsg.NewPtrOffsetFetchRequest(), version)
	if version >= 8 {
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.MemberEpoch = group, -1
		for t, ps := range parts {
			rt := kmsg.NewOffsetFetchRequestGroupTopic()
			rt.Topic, rt.Partitions = t, ps
			g.Topics = append(g.Topics, rt)
		}
		req.Groups = append(req.Groups, g)
	} else {
		req.Group = group
		for t, ps := range parts {
			rt := kmsg.NewOffsetFetchRequestTopic()
			rt.Topic, rt.Partitions = t, ps
			req.Topics = append(req.Topics, rt)
		}
	}
	resp := ask[*kmsg.OffsetFetchResponse](w, req)
	got := map[string]string{}
	add := func(t string, p int32, o int64, md *string, code int16) {
		got[fmt.Sprintf("%s-%d", t, p)] = fmt.Sprintf("%d %q %d", o, deref(md), code)
	}
	code := resp.ErrorCode
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			add(t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	for _, g := range resp.Groups {
		code = g.ErrorCode
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	return code, got
}

func deleteGroups(w *wire, groups ...string) map[string]int16 {
	w.t.Helper()
	req := at(kmsg.NewPtrDeleteGroupsRequest(), 2)
	req.Groups = groups
	got := map[string]int16{}
	for _, g := range ask[*kmsg.DeleteGroupsResponse](w, req).Groups {
		got[g.Group] = g.ErrorCode
	}
	return got
}

var groupCases = []blackBoxCase{
	{"FindCoordinator/v0 to v6, and keys that are none", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		for v := range int16(7) {
			req := at(kmsg.NewPtrFindCoordinatorRequest(), v)
			req.CoordinatorKey, req.CoordinatorKeys = group, []string{group, group + "2"}
			resp := ask[*kmsg.FindCoordinatorResponse](w, req)
			if v < 4 {
				wantCode(t, "find", resp.ErrorCode, nil)
				if resp.Port == 0 || resp.Host == "" {
					t.Errorf("v%d: %+v", v, resp)
				}
				continue
			}
			if len(resp.Coordinators) != 2 || resp.Coordinators[0].ErrorCode != 0 || resp.Coordinators[1].ErrorCode != 0 || resp.Coordinators[0].Port == 0 {
				t.Errorf("v%d: %+v", v, resp)
			}
		}
		req := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
		req.CoordinatorKey, req.CoordinatorType = group, 9
		wantCode(t, "an unknown type", ask[*kmsg.FindCoordinatorResponse](w, req).ErrorCode, kerr.InvalidRequest)
	}},
	{"groups/two members join, are assigned, and one leaves", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		one := joined(t, w, group, nil)
		if one.LeaderID != one.MemberID || one.Generation != 1 || len(one.Members) != 1 || deref(one.Protocol) != "range" || deref(one.ProtocolType) != "consumer" {
			t.Errorf("%+v", one)
		}
		wantCode(t, "beat", beat(w, group, one.MemberID, 1, nil), nil)
		wantCode(t, "beat of another generation", beat(w, group, one.MemberID, 7, nil), kerr.IllegalGeneration)
		wantCode(t, "beat of nobody", beat(w, group, "nobody", 1, nil), kerr.UnknownMemberID)
		wantCode(t, "beat of no group", beat(w, b.name("none"), "nobody", 1, nil), kerr.UnknownMemberID)
		wantCode(t, "beat without a group", beat(w, "", "nobody", 1, nil), kerr.InvalidGroupID)

		w2 := b.dial(t)
		need := ask[*kmsg.JoinGroupResponse](w2, joinOf(7, group, "", nil))
		wantCode(t, "no member id", need.ErrorCode, kerr.MemberIDRequired)
		if need.MemberID == "" {
			t.Fatal("no member id is given")
		}
		join2 := joinOf(7, group, need.MemberID, nil)
		w2.send(join2)
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, one.MemberID, 1, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		// Offsets of the generation that ends may still be committed.
		topic := b.topic(t, 1)
		wantCode(t, "commit while rebalancing", commit(w, commitOf(7, group, one.MemberID, 1, topic.name, map[int32]int64{0: 5})), nil)
		again := ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, one.MemberID, nil))
		wantCode(t, "join again", again.ErrorCode, nil)
		r2, err := w2.receive(join2)
		if err != nil {
			t.Fatal(err)
		}
		two := r2.(*kmsg.JoinGroupResponse)
		wantCode(t, "second join", two.ErrorCode, nil)
		if again.Generation != 2 || two.Generation != 2 || again.LeaderID != one.MemberID || two.LeaderID != one.MemberID || len(again.Members) != 2 || len(two.Members) != 0 {
			t.Errorf("%+v and %+v", again, two)
		}
		wantCode(t, "commit before the assignment", commit(w, commitOf(7, group, one.MemberID, 2, topic.name, map[int32]int64{0: 6})), kerr.RebalanceInProgress)
		wantCode(t, "sync of an old generation", ask[*kmsg.SyncGroupResponse](w, syncOf(group, one.MemberID, 1, nil, nil)).ErrorCode, kerr.IllegalGeneration)
		wantCode(t, "sync of nobody", ask[*kmsg.SyncGroupResponse](w, syncOf(group, "nobody", 2, nil, nil)).ErrorCode, kerr.UnknownMemberID)
		wrong := syncOf(group, one.MemberID, 2, nil, nil)
		wrong.Protocol = kmsg.StringPtr("roundrobin")
		wantCode(t, "sync of another protocol", ask[*kmsg.SyncGroupResponse](w, wrong).ErrorCode, kerr.InconsistentGroupProtocol)
		sync2 := syncOf(group, two.MemberID, 2, nil, nil)
		w2.send(sync2)
		s1 := ask[*kmsg.SyncGroupResponse](w, syncOf(group, one.MemberID, 2, nil, map[string]string{one.MemberID: "a", two.MemberID: "b"}))
		s2, err := w2.receive(sync2)
		if err != nil {
			t.Fatal(err)
		}
		if string(s1.MemberAssignment) != "a" || string(s2.(*kmsg.SyncGroupResponse).MemberAssignment) != "b" {
			t.Errorf("assigned %q and %q", s1.MemberAssignment, s2.(*kmsg.SyncGroupResponse).MemberAssignment)
		}

		d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]
		if d.State != "Stable" || len(d.Members) != 2 || d.ProtocolType != "consumer" || d.Protocol != "range" || d.ErrorCode != 0 {
			t.Errorf("%+v", d)
		}
		wantCode(t, "deleting a group in use", deleteGroups(w, group)[group], kerr.NonEmptyGroup)
		for _, m := range []struct {
			id   string
			want *kerr.Error
		}{{"nobody", kerr.UnknownMemberID}, {two.MemberID, nil}, {two.MemberID, kerr.UnknownMemberID}} {
			leave := at(kmsg.NewPtrLeaveGroupRequest(), 4)
			leave.Group = group
			lm := kmsg.NewLeaveGroupRequestMember()
			lm.MemberID = m.id
			leave.Members = append(leave.Members, lm)
			resp := ask[*kmsg.LeaveGroupResponse](w, leave)
			wantCode(t, "leave", resp.ErrorCode, nil)
			wantCode(t, "leave of "+m.id, resp.Members[0].ErrorCode, m.want)
		}
		wantCode(t, "beat after a leave", beat(w, group, one.MemberID, 2, nil), kerr.RebalanceInProgress)
	}},
	{"groups/joins that are refused", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		joined(t, w, group, nil)
		for what, c := range map[string]struct {
			change func(*kmsg.JoinGroupRequest)
			want   *kerr.Error
		}{
			"a session too short": {func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 10 }, kerr.InvalidSessionTimeout},
			"a session too long":  {func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 }, kerr.InvalidSessionTimeout},
			"no group":            {func(r *kmsg.JoinGroupRequest) { r.Group = "" }, kerr.InvalidGroupID},
			"an unknown member":   {func(r *kmsg.JoinGroupRequest) { r.MemberID = "nobody" }, kerr.UnknownMemberID},
			"another protocol":    {func(r *kmsg.JoinGroupRequest) { r.Protocols[0].Name = "other" }, kerr.InconsistentGroupProtocol},
			"another type":        {func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "connect" }, kerr.InconsistentGroupProtocol},
			"no protocol":         {func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }, kerr.InconsistentGroupProtocol},
			"no type":             {func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }, kerr.InconsistentGroupProtocol},
		} {
			req := joinOf(7, group, "", nil)
			c.change(req)
			r := ask[*kmsg.JoinGroupResponse](w, req)
			wantCode(t, what, r.ErrorCode, c.want)
			if r.Generation != -1 {
				t.Errorf("%s: generation %d", what, r.Generation)
			}
		}
	}},
	{"groups/v0 to v9 join and sync", func(t *testing.T, b *target) {
		w := b.coordinator(t, b.name("group"))
		for v := range int16(10) {
			group := b.name("group")
			r := ask[*kmsg.JoinGroupResponse](w, joinOf(v, group, "", nil))
			if (r.ErrorCode == kerr.MemberIDRequired.Code) != (v >= 4) {
				t.Fatalf("v%d: %v", v, kerr.ErrorForCode(r.ErrorCode))
			}
			if v >= 4 {
				r = ask[*kmsg.JoinGroupResponse](w, joinOf(v, group, r.MemberID, nil))
			}
			if r.ErrorCode != 0 || r.Generation != 1 || len(r.Members) != 1 || string(r.Members[0].ProtocolMetadata) != "meta" || r.SkipAssignment {
				t.Errorf("v%d: %+v", v, r)
			}
			s := ask[*kmsg.SyncGroupResponse](w, at(syncOf(group, r.MemberID, 1, nil, map[string]string{r.MemberID: "x"}), min(v, 5)))
			if s.ErrorCode != 0 || string(s.MemberAssignment) != "x" {
				t.Errorf("v%d: %+v", v, s)
			}
		}
	}},
	{"groups/static members come back without a rebalance and fence the old one", func(t *testing.T, b *target) {
		group, instance := b.name("group"), "instance-1"
		w := b.coordinator(t, group)
		first := joined(t, w, group, &instance)
		second := ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, "", &instance))
		wantCode(t, "join again", second.ErrorCode, nil)
		if second.Generation != first.Generation || second.MemberID == first.MemberID {
			t.Errorf("%+v after %+v", second, first)
		}
		wantCode(t, "the old member's beat", beat(w, group, first.MemberID, 1, &instance), kerr.FencedInstanceID)
		wantCode(t, "the new member's beat", beat(w, group, second.MemberID, 1, &instance), nil)
		s := ask[*kmsg.SyncGroupResponse](w, syncOf(group, second.MemberID, 1, &instance, nil))
		if s.ErrorCode != 0 || string(s.MemberAssignment) != "all" {
			t.Errorf("%+v", s)
		}
		topic := b.topic(t, 1)
		stale := commitOf(7, group, first.MemberID, 1, topic.name, map[int32]int64{0: 5})
		stale.InstanceID = &instance
		wantCode(t, "the old member's commit", commit(w, stale), kerr.FencedInstanceID)
		leave := at(kmsg.NewPtrLeaveGroupRequest(), 4)
		leave.Group = group
		lm := kmsg.NewLeaveGroupRequestMember()
		lm.InstanceID = &instance
		leave.Members = append(leave.Members, lm)
		resp := ask[*kmsg.LeaveGroupResponse](w, leave)
		wantCode(t, "leave by instance", resp.Members[0].ErrorCode, nil)
		d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]
		if d.State != "Empty" || len(d.Members) != 0 {
			t.Errorf("%+v", d)
		}
	}},
	{"groups/a leader of an old version and a static member", func(t *testing.T, b *target) {
		group, instance := b.name("group"), "instance-1"
		w, w2 := b.coordinator(t, group), b.dial(t)
		need := ask[*kmsg.JoinGroupResponse](w, joinOf(4, group, "", nil))
		one := ask[*kmsg.JoinGroupResponse](w, joinOf(4, group, need.MemberID, nil))
		wantCode(t, "join v4", one.ErrorCode, nil)
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, one.MemberID, 1, nil, map[string]string{one.MemberID: "x"})).ErrorCode, nil)
		join2 := joinOf(5, group, "", &instance)
		w2.send(join2)
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, one.MemberID, 1, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		again := ask[*kmsg.JoinGroupResponse](w, joinOf(4, group, one.MemberID, nil))
		if again.ErrorCode != 0 || len(again.Members) != 2 {
			t.Errorf("%+v", again)
		}
		if _, err := w2.receive(join2); err != nil {
			t.Fatal(err)
		}
	}},
	{"groups/commits that are taken and refused", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		for v := int16(2); v < 10; v++ {
			wantCode(t, fmt.Sprint("v", v, " without members"), commit(w, commitOf(v, group, "", -1, topic.name, map[int32]int64{0: int64(v)})), nil)
			_, got := committed(w, 5, group, map[string][]int32{topic.name: {0, 1}})
			if got[topic.name+"-0"] != fmt.Sprintf("%d \"m\" 0", v) || got[topic.name+"-1"] != `-1 "" 0` {
				t.Errorf("v%d: %v", v, got)
			}
		}
		wantCode(t, "a member of an empty group", commit(w, commitOf(7, group, "nobody", 1, topic.name, map[int32]int64{0: 5})), kerr.UnknownMemberID)
		wantCode(t, "a generation of a group that is not there", commit(w, commitOf(7, b.name("none"), "nobody", 1, topic.name, map[int32]int64{0: 5})), kerr.IllegalGeneration)
		m := joined(t, w, group, nil)
		wantCode(t, "a member", commit(w, commitOf(7, group, m.MemberID, m.Generation, topic.name, map[int32]int64{0: 50})), nil)
		wantCode(t, "nobody", commit(w, commitOf(7, group, "nobody", m.Generation, topic.name, map[int32]int64{0: 50})), kerr.UnknownMemberID)
		wantCode(t, "an old generation", commit(w, commitOf(7, group, m.MemberID, m.Generation-1, topic.name, map[int32]int64{0: 50})), kerr.IllegalGeneration)
		wantCode(t, "a stranger without a generation", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 50})), kerr.UnknownMemberID)
		long := commitOf(7, group, m.MemberID, m.Generation, topic.name, map[int32]int64{0: 51})
		long.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(string(make([]byte, 5000)))
		wantCode(t, "metadata too long", commit(w, long), kerr.OffsetMetadataTooLarge)
		wantCode(t, "an unknown topic", commit(w, commitOf(7, group, m.MemberID, m.Generation, b.name("absent"), map[int32]int64{0: 5})), kerr.UnknownTopicOrPartition)
		wantCode(t, "an unknown partition", commit(w, commitOf(7, group, m.MemberID, m.Generation, topic.name, map[int32]int64{7: 5})), kerr.UnknownTopicOrPartition)
		wantCode(t, "no name of a group", commit(w, commitOf(7, "", "", -1, topic.name, map[int32]int64{0: 5})), nil)
		null := commitOf(7, group, m.MemberID, m.Generation, topic.name, map[int32]int64{1: 9})
		null.Topics[0].Partitions[0].Metadata = nil
		wantCode(t, "null metadata", commit(w, null), nil)
		if _, got := committed(w, 7, group, nil); fmt.Sprint(got) != fmt.Sprintf(`map[%s-0:50 "m" 0 %s-1:9 "" 0]`, topic.name, topic.name) {
			t.Errorf("in the end: %v", got)
		}
	}},
	{"groups/what was never committed is offset -1 without an error", func(t *testing.T, b *target) {
		group, topic, absent := b.name("unknown"), b.topic(t, 1), b.name("absent")
		w := b.coordinator(t, group)
		for v := int16(1); v < 10; v++ {
			code, got := committed(w, v, group, map[string][]int32{topic.name: {0, 9}, absent: {0}})
			wantCode(t, "fetch", code, nil)
			want := map[string]string{topic.name + "-0": `-1 "" 0`, topic.name + "-9": `-1 "" 0`, absent + "-0": `-1 "" 0`}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("v%d: %v", v, got)
			}
			if v >= 2 {
				if code, got := committed(w, v, group, nil); code != 0 || len(got) != 0 {
					t.Errorf("v%d all: %d %v", v, code, got)
				}
			}
		}
	}},
	{"groups/deleted groups are gone", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		wantCode(t, "commit", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 5})), nil)
		listed := func() bool {
			return slices.ContainsFunc(ask[*kmsg.ListGroupsResponse](w, at(kmsg.NewPtrListGroupsRequest(), 4)).Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == group })
		}
		if !listed() {
			t.Error("the group is not listed")
		}
		none := b.name("none")
		got := deleteGroups(w, group, none)
		wantCode(t, "delete", got[group], nil)
		wantCode(t, "delete of none", got[none], kerr.GroupIDNotFound)
		wantCode(t, "delete again", deleteGroups(w, group)[group], kerr.GroupIDNotFound)
		if listed() {
			t.Error("the group is still listed")
		}
		if code, got := committed(w, 7, group, nil); code != 0 || len(got) != 0 {
			t.Errorf("%d %v", code, got)
		}
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Dead" || d.ErrorCode != 0 {
			t.Errorf("%+v", d)
		}
	}},
	{"groups/a deleted topic's offsets go with it", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		wantCode(t, "commit", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 5})), nil)
		del := at(kmsg.NewPtrDeleteTopicsRequest(), 5)
		del.TimeoutMillis, del.TopicNames = 10_000, []string{topic.name}
		wantCode(t, "delete", ask[*kmsg.DeleteTopicsResponse](w, del).Topics[0].ErrorCode, nil)
		Await(t, 10*time.Second, "no offset", func() error {
			if _, got := committed(w, 7, group, map[string][]int32{topic.name: {0}}); got[topic.name+"-0"] != `-1 "" 0` {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}},
	{"groups/a group gone quiet loses its member", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		req := joinOf(7, group, "", nil)
		req.SessionTimeoutMillis = 6000
		req.MemberID = ask[*kmsg.JoinGroupResponse](w, req).MemberID
		r := ask[*kmsg.JoinGroupResponse](w, req)
		wantCode(t, "join", r.ErrorCode, nil)
		s := ask[*kmsg.SyncGroupResponse](w, syncOf(group, r.MemberID, r.Generation, nil, map[string]string{r.MemberID: "x"}))
		wantCode(t, "sync", s.ErrorCode, nil)
		Await(t, 20*time.Second, "an empty group", func() error {
			if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Empty" {
				return fmt.Errorf("%s with %d members", d.State, len(d.Members))
			}
			return nil
		})
		wantCode(t, "its beat", beat(w, group, r.MemberID, r.Generation, nil), kerr.UnknownMemberID)
	}},
}

func describeGroups(groups ...string) *kmsg.DescribeGroupsRequest {
	req := at(kmsg.NewPtrDescribeGroupsRequest(), 5)
	req.Groups = groups
	return req
}
