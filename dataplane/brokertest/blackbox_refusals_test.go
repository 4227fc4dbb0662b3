package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// speaker is who a member says that it is.
type speaker struct {
	group, member string
	generation    int32
	instance      *string
}

// groupAPI is a request that members send, in the versions that can say all of speaker but the instance, which comes with a later one.
type groupAPI struct {
	name                       string
	first, last, firstInstance int16
	ask                        func(w *wire, version int16, s speaker) int16
}

func leaveOf(version int16, group string, members ...kmsg.LeaveGroupRequestMember) *kmsg.LeaveGroupRequest {
	req := at(kmsg.NewPtrLeaveGroupRequest(), version)
	req.Group, req.Members = group, members
	if version < 3 {
		req.MemberID = members[0].MemberID
	}
	return req
}

// leaveCode is the answer to a leave of one member, wherever its version puts it.
func leaveCode(w *wire, version int16, s speaker) int16 {
	w.t.Helper()
	r := ask[*kmsg.LeaveGroupResponse](w, leaveOf(version, s.group, kmsg.LeaveGroupRequestMember{MemberID: s.member, InstanceID: s.instance}))
	if r.ErrorCode != 0 || version < 3 {
		return r.ErrorCode
	}
	return r.Members[0].ErrorCode
}

// groupAPIs are those that take a member's word for a topic that exists. The generation of a JoinGroup and of a LeaveGroup is not in the request.
func groupAPIs(topic string) []groupAPI {
	return []groupAPI{
		{"JoinGroup", 0, 9, 5, func(w *wire, v int16, s speaker) int16 {
			return ask[*kmsg.JoinGroupResponse](w, joinOf(v, s.group, s.member, s.instance)).ErrorCode
		}},
		{"SyncGroup", 0, 5, 3, func(w *wire, v int16, s speaker) int16 {
			return ask[*kmsg.SyncGroupResponse](w, at(syncOf(s.group, s.member, s.generation, s.instance, nil), v)).ErrorCode
		}},
		{"Heartbeat", 0, 4, 3, func(w *wire, v int16, s speaker) int16 {
			req := at(kmsg.NewPtrHeartbeatRequest(), v)
			req.Group, req.MemberID, req.Generation, req.InstanceID = s.group, s.member, s.generation, s.instance
			return ask[*kmsg.HeartbeatResponse](w, req).ErrorCode
		}},
		{"LeaveGroup", 0, 5, 3, leaveCode},
		{"OffsetCommit", 2, 9, 7, func(w *wire, v int16, s speaker) int16 {
			req := commitOf(v, s.group, s.member, s.generation, topic, map[int32]int64{0: 5})
			req.InstanceID = s.instance
			return commit(w, req)
		}},
	}
}

// inTheWay is a static member of a group of its own, and the id that it had before.
func inTheWay(t *testing.T, w *wire, group, instance string) (now, before speaker) {
	t.Helper()
	old := joined(t, w, group, &instance)
	r := ask[*kmsg.JoinGroupResponse](w, joinOf(7, group, "", &instance))
	wantCode(t, "joining again", r.ErrorCode, nil)
	return speaker{group, r.MemberID, r.Generation, &instance}, speaker{group, old.MemberID, r.Generation, &instance}
}

// refusalCases are of what coordinators and partitions refuse, for each request that can meet with it and in each of its versions.
var refusalCases = []blackBoxCase{
	{"refusals/nobody, and another generation, by request and version", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		m := joined(t, w, group, nil)
		for _, api := range groupAPIs(topic.name) {
			for v := api.first; v <= api.last; v++ {
				f := func(what string, s speaker, want *kerr.Error) {
					t.Helper()
					wantCode(t, fmt.Sprintf("%s v%d: %s", api.name, v, what), api.ask(w, v, s), want)
				}
				f("nobody", speaker{group, "nobody", m.Generation, nil}, kerr.UnknownMemberID)
				absent := kerr.UnknownMemberID
				if api.name == "OffsetCommit" {
					if absent = kerr.IllegalGeneration; v >= 9 {
						absent = kerr.GroupIDNotFound
					}
				}
				f("no group", speaker{b.name("none"), "nobody", 1, nil}, absent)
				if api.name != "OffsetCommit" { // to which any name is a group's
					f("no name of a group", speaker{"", "nobody", 1, nil}, kerr.InvalidGroupID)
				}
				if api.name != "JoinGroup" && api.name != "LeaveGroup" {
					f("the generation before", speaker{group, m.MemberID, m.Generation - 1, nil}, kerr.IllegalGeneration)
					f("the next generation", speaker{group, m.MemberID, m.Generation + 1, nil}, kerr.IllegalGeneration)
				}
			}
		}
		if d := ask[*kmsg.DescribeGroupsResponse](w, describeGroups(group)).Groups[0]; d.State != "Stable" || len(d.Members) != 1 {
			t.Errorf("in the end: %+v", d)
		}
	}},
	{"refusals/a static member that was replaced, by request and version", func(t *testing.T, b *target) {
		group, instance, topic := b.name("group"), "i", b.topic(t, 1)
		w := b.coordinator(t, group)
		now, before := inTheWay(t, w, group, instance)
		for _, api := range groupAPIs(topic.name) {
			for v := api.firstInstance; v <= api.last; v++ {
				what := fmt.Sprintf("%s v%d", api.name, v)
				wantCode(t, what, api.ask(w, v, before), kerr.FencedInstanceID)
				old := before
				old.generation -= 7 // who is fenced is told so first
				wantCode(t, what+" of an old generation", api.ask(w, v, old), kerr.FencedInstanceID)
				unknown := now
				unknown.instance = kmsg.StringPtr("other")
				wantCode(t, what+" of another instance", api.ask(w, v, unknown), kerr.UnknownMemberID)
			}
		}
		wantCode(t, "a beat of the present one", beat(w, group, now.member, now.generation, &instance), nil)
		// Without its instance it is a member like any other.
		wantCode(t, "a beat that does not name the instance", beat(w, group, now.member, now.generation, nil), nil)
		gone := speaker{group, "", 0, kmsg.StringPtr("other")}
		for v := int16(3); v < 6; v++ {
			wantCode(t, "a leave by an instance that is unknown", leaveCode(w, v, gone), kerr.UnknownMemberID)
		}
		wantCode(t, "a leave by the instance", leaveCode(w, 5, speaker{group, "", 0, &instance}), nil)
	}},
	{"refusals/each request while a rebalance is being prepared and completed", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w, w2 := b.coordinator(t, group), b.dial(t)
		first := joinOf(7, group, "", nil)
		first.RebalanceTimeoutMillis = 60_000
		m := joinedBy(w, first)
		second := joinOf(7, group, "", nil)
		second.RebalanceTimeoutMillis = 60_000
		second.MemberID = ask[*kmsg.JoinGroupResponse](w2, second).MemberID
		w2.send(second)
		me := speaker{group, m.MemberID, m.Generation, nil}
		Await(t, 10*time.Second, "the rebalance", func() error {
			if c := beat(w, group, me.member, me.generation, nil); c != kerr.RebalanceInProgress.Code {
				return fmt.Errorf("its beat is answered %d", c)
			}
			return nil
		})
		apis := groupAPIs(topic.name)
		each := func(name string, s speaker, want *kerr.Error) {
			t.Helper()
			i := slices.IndexFunc(apis, func(a groupAPI) bool { return a.name == name })
			for v := apis[i].first; v <= apis[i].last; v++ {
				wantCode(t, fmt.Sprintf("%s v%d", name, v), apis[i].ask(w, v, s), want)
			}
		}
		each("SyncGroup", me, kerr.RebalanceInProgress)
		each("Heartbeat", me, kerr.RebalanceInProgress)
		each("OffsetCommit", me, nil)
		w.send(first)
		r2, err := w2.receive(second)
		if err != nil {
			t.Fatal(err)
		}
		r1, err := w.receive(first)
		if err != nil {
			t.Fatal(err)
		}
		me.generation = r1.(*kmsg.JoinGroupResponse).Generation
		follower := r2.(*kmsg.JoinGroupResponse)
		each("Heartbeat", me, nil) // alive, and nothing to tell
		each("OffsetCommit", me, kerr.RebalanceInProgress)
		each("Heartbeat", speaker{group, me.member, me.generation - 1, nil}, kerr.IllegalGeneration)
		// A member that joins once more with the same protocols is told the same generation again.
		again := joinOf(7, group, follower.MemberID, nil)
		again.RebalanceTimeoutMillis = 60_000
		if r := ask[*kmsg.JoinGroupResponse](w2, again); r.ErrorCode != 0 || r.Generation != me.generation || r.LeaderID != me.member {
			t.Errorf("%+v", r)
		}
		wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, me.member, me.generation, nil, map[string]string{me.member: "a"})).ErrorCode, nil)
		each("SyncGroup", me, nil)
	}},
	{"refusals/bounds of the session timeout", func(t *testing.T, b *target) {
		w := b.coordinator(t, b.name("group"))
		for v := range int16(10) {
			for session, want := range map[int32]*kerr.Error{5999: kerr.InvalidSessionTimeout, 6000: nil, 1_800_000: nil, 1_800_001: kerr.InvalidSessionTimeout, -1: kerr.InvalidSessionTimeout} {
				if want == nil && v >= 4 {
					want = kerr.MemberIDRequired
				}
				req := joinOf(v, b.name("group"), "", nil)
				req.SessionTimeoutMillis = session
				wantCode(t, fmt.Sprintf("v%d: %d ms", v, session), ask[*kmsg.JoinGroupResponse](w, req).ErrorCode, want)
			}
		}
	}},
	{"refusals/a sync that names no protocol, or another one", func(t *testing.T, b *target) {
		group := b.name("group")
		w := b.coordinator(t, group)
		m := joined(t, w, group, nil)
		for what, c := range map[string]struct {
			version int16
			typ     *string
			name    *string
			want    *kerr.Error
		}{
			"no type":        {5, nil, new("range"), kerr.InconsistentGroupProtocol},
			"no protocol":    {5, new("consumer"), nil, kerr.InconsistentGroupProtocol},
			"neither":        {5, nil, nil, kerr.InconsistentGroupProtocol},
			"another type":   {5, new("connect"), new("range"), kerr.InconsistentGroupProtocol},
			"another":        {5, new("consumer"), new("sticky"), kerr.InconsistentGroupProtocol},
			"the right ones": {5, new("consumer"), new("range"), nil},
			"before v5":      {4, nil, nil, nil},
		} {
			req := at(syncOf(group, m.MemberID, m.Generation, nil, nil), c.version)
			req.ProtocolType, req.Protocol = c.typ, c.name
			wantCode(t, what, ask[*kmsg.SyncGroupResponse](w, req).ErrorCode, c.want)
		}
	}},
	{"refusals/who does not bring its sync in time is out", func(t *testing.T, b *target) {
		group := b.name("group")
		w, w2 := b.coordinator(t, group), b.dial(t)
		req := joinOf(7, group, "", nil)
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60_000, 6000
		req.MemberID = ask[*kmsg.JoinGroupResponse](w, req).MemberID
		m := ask[*kmsg.JoinGroupResponse](w, req)
		wantCode(t, "join", m.ErrorCode, nil)
		Await(t, 20*time.Second, "its end", func() error {
			if d := ask[*kmsg.DescribeGroupsResponse](w2, describeGroups(group)).Groups[0]; d.State != "Empty" {
				return fmt.Errorf("%s with %d members", d.State, len(d.Members))
			}
			return nil
		})
		wantCode(t, "its sync", ask[*kmsg.SyncGroupResponse](w, syncOf(group, m.MemberID, m.Generation, nil, nil)).ErrorCode, kerr.UnknownMemberID)
	}},
	{"refusals/a consumer group and members of the classic protocol", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 2})
		epoch := c.req.MemberEpoch
		for _, api := range groupAPIs(topic.name) {
			switch api.name {
			case "OffsetCommit": // members may, see "offsets of members"
				continue
			case "JoinGroup":
				wantCode(t, "a join with a subscription that is none", api.ask(w, api.last, speaker{group, "nobody", epoch, nil}), kerr.InconsistentGroupProtocol)
				continue
			}
			wantCode(t, api.name+" of nobody", api.ask(w, api.last, speaker{group, "nobody", epoch, nil}), kerr.UnknownMemberID)
			if api.name != "LeaveGroup" {
				wantCode(t, api.name+" of a member of the next protocol", api.ask(w, api.last, speaker{group, "m1", epoch, nil}), kerr.UnknownMemberID)
			}
		}
		connect := joinOf(9, group, "", nil)
		connect.ProtocolType = "connect"
		wantCode(t, "a join of another kind", ask[*kmsg.JoinGroupResponse](w, connect).ErrorCode, kerr.InconsistentGroupProtocol)
		code, got := deleteOffsets(w, group, map[string][]int32{topic.name: {0}})
		wantCode(t, "deleting offsets", code, nil)
		wantCode(t, "of a topic that is read", got[topic.name+"-0"], kerr.GroupSubscribedToTopic)
		c.mustBeat() // and it is none the worse for it
	}},
	{"refusals/an administrator removes a consumer group's members by LeaveGroup", func(t *testing.T, b *target) {
		group, topic, instance := b.name("group"), b.topic(t, 2), "i"
		w := b.coordinator(t, group)
		one, two := b.consumerOf(t, group, "m1", topic.name), b.consumerOf(t, group, "m2", topic.name)
		two.req.InstanceID = &instance
		one.mustBeat()
		two.mustBeat()
		share(t, topic, map[*consumer]int{one: 1, two: 1})
		wantCode(t, "another instance", leaveCode(w, 5, speaker{group, "", 0, kmsg.StringPtr("other")}), kerr.UnknownMemberID)
		wantCode(t, "another member of the instance", leaveCode(w, 5, speaker{group, "m1", 0, &instance}), kerr.FencedInstanceID)
		wantCode(t, "by the instance", leaveCode(w, 5, speaker{group, "", 0, &instance}), nil)
		wantCode(t, "its beat", two.beat().ErrorCode, kerr.UnknownMemberID)
		share(t, topic, map[*consumer]int{one: 2})
		wantCode(t, "by the member's id", leaveCode(w, 5, speaker{group, "m1", 0, nil}), nil)
		wantCode(t, "its beat", one.beat().ErrorCode, kerr.UnknownMemberID)
		if d := describeConsumers(w, group); d.State != "Empty" || len(d.Members) != 0 {
			t.Errorf("%+v", d)
		}
	}},
	{"refusals/a consumer's requests to a classic group", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		w := b.coordinator(t, group)
		m := joinedBy(w, classicConsumer(group, "", topic.name))
		c := b.consumerOf(t, group, m.MemberID, topic.name)
		for epoch, what := range map[int32]string{1: "beat", -1: "leave", -2: "static leave"} {
			c.req.MemberEpoch, c.req.InstanceID = epoch, nil
			if epoch == -2 {
				c.req.InstanceID = kmsg.StringPtr("i")
			}
			wantCode(t, what, c.beat().ErrorCode, kerr.GroupIDNotFound)
		}
		wantCode(t, "describe", describeConsumers(w, group).ErrorCode, kerr.GroupIDNotFound)
		wantCode(t, "fetch of a member", memberFetch(w, group, topic.name, &m.MemberID, m.Generation), nil)
		wantCode(t, "fetch of nobody", memberFetch(w, group, topic.name, kmsg.StringPtr("nobody"), 7), nil)
	}},
	{"refusals/a consumer group's members in a transaction", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 1})
		p := b.offsetsProducer(t, b.name("txn"))
		p.addGroup(group)
		for v := int16(3); v < 6; v++ {
			try := func(what, member string, epoch int32, want *kerr.Error) {
				t.Helper()
				req := p.commitOf(v, group, topic.name, 0, 5)
				req.MemberID, req.Generation = member, epoch
				wantCode(t, fmt.Sprintf("v%d: %s", v, what), p.commit(req), want)
			}
			try("the member", "m1", c.req.MemberEpoch, nil)
			try("an epoch ahead", "m1", c.req.MemberEpoch+1, kerr.IllegalGeneration)
			try("an epoch behind", "m1", c.req.MemberEpoch-1, kerr.IllegalGeneration)
			try("nobody", "nobody", c.req.MemberEpoch, kerr.UnknownMemberID)
		}
		p.end(3, false)
	}},
	{"refusals/an assignor and a subscription that change", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		c := b.consumerOf(t, group, "m1", topic.name)
		c.req.ServerAssignor = kmsg.StringPtr("range")
		c.mustBeat()
		c.req.ServerAssignor = nil
		share(t, topic, map[*consumer]int{c: 2})
		if d := describeConsumers(w, group); d.AssignorName != "range" {
			t.Errorf("assignor %s", d.AssignorName)
		}
		for _, name := range []string{"lottery", "", "Range"} {
			c.req.ServerAssignor = &name
			wantCode(t, fmt.Sprintf("assignor %q", name), c.beat().ErrorCode, kerr.UnsupportedAssignor)
		}
		c.req.ServerAssignor = kmsg.StringPtr("uniform")
		c.mustBeat()
		c.req.ServerAssignor = nil
		Await(t, 10*time.Second, "the other assignor", func() error {
			c.mustBeat()
			if d := describeConsumers(w, group); d.AssignorName != "uniform" {
				return fmt.Errorf("assignor %s", d.AssignorName)
			}
			return nil
		})
		c.req.SubscribedTopicNames = []string{}
		c.mustBeat()
		share(t, topic, map[*consumer]int{c: 0})
		negative := *c
		negative.req.MemberEpoch = -3
		wantCode(t, "epoch -3", negative.beat().ErrorCode, kerr.InvalidRequest)
	}},
	{"refusals/a fenced producer of a transactional id, by request and version", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 1)
		b.coordinator(t, group)
		p := b.txn(t)
		old := p.as(p.pid, p.epoch)
		p.begin()
		ahead, other := p.as(p.pid, p.epoch+1), p.as(1<<50, p.epoch)
		fenced := func(v int16) *kerr.Error {
			if v < 2 {
				return kerr.InvalidProducerEpoch
			}
			return kerr.ProducerFenced
		}
		offsets := func(p *txnProducer, v int16) int16 {
			req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), v)
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, p.epoch, group
			return ask[*kmsg.AddOffsetsToTxnResponse](p.wire, req).ErrorCode
		}
		commit := func(p *txnProducer, v int16) int16 {
			o := &offsetsProducer{p.wire, p.id, p.pid, p.epoch}
			return o.commit(o.commitOf(v, group, topic.name, 0, 5))
		}
		for v := range int16(6) {
			f := func(api string, code int16, want *kerr.Error) {
				t.Helper()
				wantCode(t, fmt.Sprintf("%s v%d", api, v), code, want)
			}
			if v < 4 {
				f("AddPartitionsToTxn", old.add(v, topic.name, 0)[0], fenced(v))
				f("AddPartitionsToTxn, an epoch ahead", ahead.add(v, topic.name, 0)[0], fenced(v))
				f("AddPartitionsToTxn, another producer", other.add(v, topic.name, 0)[0], kerr.InvalidProducerIDMapping)
			} else {
				for _, verify := range []bool{true, false} {
					one := func(p *txnProducer) int16 {
						return p.batch(v, verify, topic.name, 0).Transactions[0].Topics[0].Partitions[0].ErrorCode
					}
					f("AddPartitionsToTxn", one(old), kerr.ProducerFenced)
					f("AddPartitionsToTxn, an epoch ahead", one(ahead), kerr.ProducerFenced)
					f("AddPartitionsToTxn, another producer", one(other), kerr.InvalidProducerIDMapping)
				}
			}
			if v < 5 {
				f("AddOffsetsToTxn", offsets(old, v), fenced(v))
				f("AddOffsetsToTxn, an epoch ahead", offsets(ahead, v), fenced(v))
				f("AddOffsetsToTxn, another producer", offsets(other, v), kerr.InvalidProducerIDMapping)
			}
			for _, commit := range []bool{true, false} {
				f("EndTxn", old.end(v, commit).ErrorCode, fenced(v))
				f("EndTxn, an epoch ahead", ahead.end(v, commit).ErrorCode, fenced(v))
				f("EndTxn, another producer", other.end(v, commit).ErrorCode, kerr.InvalidProducerIDMapping)
			}
			f("TxnOffsetCommit", commit(old, v), kerr.InvalidProducerEpoch)
			f("TxnOffsetCommit, another producer", commit(other, v), kerr.InvalidProducerIDMapping)
			if v >= 3 {
				for what, q := range map[string]*txnProducer{"InitProducerId, an epoch that is not its own": old.as(p.pid, p.epoch+5), "InitProducerId, another producer": other} {
					req := initOf(v, p.id)
					req.ProducerID, req.ProducerEpoch = q.pid, q.epoch
					want := kerr.ProducerFenced
					if v < 4 {
						want = kerr.InvalidProducerEpoch
					}
					f(what, ask[*kmsg.InitProducerIDResponse](p.wire, req).ErrorCode, want)
				}
			}
		}
		if d := p.describe(); d.State != "Empty" || d.ProducerEpoch != p.epoch {
			t.Errorf("in the end: %+v", d)
		}
	}},
	{"refusals/EndTxn of nothing, by version", func(t *testing.T, b *target) {
		for v := range int16(6) {
			for _, commit := range []bool{true, false} {
				p := b.txn(t)
				want := kerr.InvalidTxnState
				if v >= 5 && !commit {
					want = nil
				}
				wantCode(t, fmt.Sprintf("v%d, commit %v", v, commit), p.end(v, commit).ErrorCode, want)
			}
		}
	}},
	{"refusals/batches in and out of a transaction", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.add()
		p.try("in it", 9, nil, "x")
		plain := func(seq int32, epoch int16) int16 {
			o := recordbatch.NoProducer()
			o.ProducerID, o.ProducerEpoch, o.BaseSequence = p.pid, epoch, seq
			return produce(p.w, topic.name, build(t, o, records("plain"))).ErrorCode
		}
		wantCode(t, "a plain batch of the same producer while it is open", plain(1, p.epoch), kerr.InvalidTxnState)
		for _, version := range []int16{3, 9, 11, 12} {
			gap := *p
			gap.seq += 3
			gap.try(fmt.Sprintf("a gap, v%d", version), version, kerr.OutOfOrderSequenceNumber, "y")
			old := *p
			old.epoch--
			if old.epoch >= 0 {
				old.try(fmt.Sprintf("an older epoch, v%d", version), version, kerr.InvalidProducerEpoch, "y")
			}
		}
		p.end(3, true)
		p.stable(2)
		wantCode(t, "a plain batch after it", plain(1, p.epoch), nil)
		wantCode(t, "a plain batch, a gap", plain(5, p.epoch), kerr.OutOfOrderSequenceNumber)
		p.stable(3)
	}},
	{"refusals/a producer without a transactional id", func(t *testing.T, b *target) {
		w := b.dial(t)
		one := newIdempotent(t, b, b.topic(t, 1).name)
		for v := int16(0); v < 6; v++ {
			for what, c := range map[string]struct {
				id    int64
				epoch int16
				want  *kerr.Error
			}{"new": {-1, -1, nil}, "its own id again": {one.id, one.epoch, nil}, "an id that nobody has": {1 << 50, 3, nil}, "an epoch without an id": {-1, 0, kerr.InvalidRequest}, "an id without an epoch": {one.id, -1, kerr.InvalidRequest}} {
				req := at(kmsg.NewPtrInitProducerIDRequest(), v)
				req.ProducerID, req.ProducerEpoch = c.id, c.epoch
				if v < 3 {
					c.want = nil // they cannot say it
				}
				Await(t, 10*time.Second, "an answer", func() error { // Kafka says "loading" while it gets its next block of ids
					r := ask[*kmsg.InitProducerIDResponse](w, req)
					if r.ErrorCode == kerr.CoordinatorLoadInProgress.Code {
						return kerr.CoordinatorLoadInProgress
					}
					wantCode(t, fmt.Sprintf("v%d: %s", v, what), r.ErrorCode, c.want)
					if r.ErrorCode == 0 && (r.ProducerID < 0 || r.ProducerID == one.id || r.ProducerEpoch != 0) {
						t.Errorf("v%d: %s: answered %d/%d", v, what, r.ProducerID, r.ProducerEpoch)
					}
					return nil
				})
			}
		}
	}},
	{"refusals/stable offsets, by version", func(t *testing.T, b *target) {
		group, topic := b.name("group"), b.topic(t, 2)
		w := b.coordinator(t, group)
		p := b.offsetsProducer(t, b.name("txn"))
		wantCode(t, "commit", commit(w, commitOf(7, group, "", -1, topic.name, map[int32]int64{0: 1, 1: 1})), nil)
		p.addGroup(group)
		wantCode(t, "commit", p.commit(p.commitOf(3, group, topic.name, 0, 5)), nil)
		for v := int16(7); v < 11; v++ {
			for _, all := range []bool{false, true} {
				if v >= 10 && all {
					continue // names are ids there
				}
				req := at(kmsg.NewPtrOffsetFetchRequest(), v)
				req.RequireStable = true
				var parts []int32
				if !all {
					parts = []int32{0, 1}
				}
				if v >= 8 {
					g := kmsg.NewOffsetFetchRequestGroup()
					g.Group, g.MemberEpoch = group, -1
					if parts != nil {
						g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic.name, TopicID: topic.id, Partitions: parts}}
					}
					req.Groups = append(req.Groups, g)
				} else if req.Group = group; parts != nil {
					req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: topic.name, Partitions: parts}}
				}
				resp := ask[*kmsg.OffsetFetchResponse](w, req)
				got := map[int32]string{}
				for _, rt := range resp.Topics {
					for _, rp := range rt.Partitions {
						got[rp.Partition] = fmt.Sprintf("%d/%d", rp.Offset, rp.ErrorCode)
					}
				}
				for _, g := range resp.Groups {
					wantCode(t, "the group", g.ErrorCode, nil)
					for _, rt := range g.Topics {
						for _, rp := range rt.Partitions {
							got[rp.Partition] = fmt.Sprintf("%d/%d", rp.Offset, rp.ErrorCode)
						}
					}
				}
				if want := map[int32]string{0: unstable, 1: "1/0"}; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("v%d, all %v: %v, want %v", v, all, got, want)
				}
			}
		}
		p.end(3, false)
		awaitFetched(w, group, topic.name, 0, "1/0")
	}},
}
