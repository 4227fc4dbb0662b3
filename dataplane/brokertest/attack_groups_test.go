package brokertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupMember is a member that speaks the classic protocol by hand, alone in its group.
type groupMember struct {
	w          *wire
	group, id  string
	generation int32
}

// join joins with metadata of that many bytes and gives the code.
func (m *groupMember) join(size int) int16 {
	m.w.t.Helper()
	for {
		req := at(kmsg.NewPtrJoinGroupRequest(), 9)
		req.Group, req.MemberID, req.ProtocolType = m.group, m.id, "attack"
		req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 30_000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "any", make([]byte, size)
		req.Protocols = append(req.Protocols, p)
		resp := ask[*kmsg.JoinGroupResponse](m.w, req)
		m.id, m.generation = resp.MemberID, resp.Generation
		if resp.ErrorCode != kerr.MemberIDRequired.Code {
			return resp.ErrorCode
		}
	}
}

func (m *groupMember) sync(size int) int16 {
	m.w.t.Helper()
	req := at(kmsg.NewPtrSyncGroupRequest(), 5)
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("attack"), kmsg.StringPtr("any")
	a := kmsg.NewSyncGroupRequestGroupAssignment()
	a.MemberID, a.MemberAssignment = m.id, make([]byte, size)
	req.GroupAssignment = append(req.GroupAssignment, a)
	return ask[*kmsg.SyncGroupResponse](m.w, req).ErrorCode
}

func (m *groupMember) beat() int16 {
	m.w.t.Helper()
	req := at(kmsg.NewPtrHeartbeatRequest(), 4)
	req.Group, req.MemberID, req.Generation = m.group, m.id, m.generation
	return ask[*kmsg.HeartbeatResponse](m.w, req).ErrorCode
}

// TestAttackGroupsOfStrangers sends what does not fit into a record. It is refused with its
// error, costs no memory that stays, and the group goes on with what does fit.
func TestAttackGroupsOfStrangers(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	c.CreateTopic("t", 4, 1)
	n := c.Brokers[0]
	w := dialBroker(t, n.Addr)
	Await(t, 30*time.Second, "a group coordinator", func() error {
		find := at(kmsg.NewPtrFindCoordinatorRequest(), 2)
		find.CoordinatorKey = "g"
		if err := kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](w, find).ErrorCode); err != nil {
			return err
		}
		return kerr.ErrorForCode((&groupMember{w: w, group: "probe"}).join(10))
	})
	const large = 2 << 20 // __consumer_offsets takes batches of 1 MiB

	m := &groupMember{w: w, group: "metadata"}
	wantCode(t, "JoinGroup with large metadata", m.join(large), nil)
	if code := m.sync(10); code == 0 {
		t.Error("SyncGroup: metadata that no record can hold was stored")
	}
	wantCode(t, "JoinGroup with small metadata", m.join(10), nil)
	wantCode(t, "SyncGroup with a large assignment", m.sync(large), kerr.UnknownServerError)
	wantCode(t, "JoinGroup again", m.join(10), nil)
	wantCode(t, "SyncGroup with a small one", m.sync(10), nil)
	wantCode(t, "Heartbeat", m.beat(), nil)

	var took [2]int
	for round := range took {
		before := residentKB(t, n)
		for i := range 100 { // 200 MiB in all, if any of it stayed
			m := &groupMember{w: w, group: fmt.Sprint("metadata-", round, "-", i)}
			wantCode(t, "JoinGroup", m.join(large), nil)
			leave := at(kmsg.NewPtrLeaveGroupRequest(), 5)
			lm := kmsg.NewLeaveGroupRequestMember()
			leave.Group, lm.MemberID = m.group, m.id
			leave.Members = append(leave.Members, lm)
			wantCode(t, "LeaveGroup", ask[*kmsg.LeaveGroupResponse](w, leave).Members[0].ErrorCode, nil)
		}
		took[round] = residentKB(t, n) - before
	}
	// The first round is the heap that such requests need; the second finds it there.
	if took[1] > 100<<10 {
		t.Errorf("members that are gone take %d KB, then %d KB", took[0], took[1])
	}

	commit := at(kmsg.NewPtrOffsetCommitRequest(), 8)
	commit.Group, commit.Generation = "commits", -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = "t"
	for i := range 100_000 {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset = int32(i%4), 1
		rt.Partitions = append(rt.Partitions, rp)
	}
	commit.Topics = append(commit.Topics, rt)
	for _, p := range ask[*kmsg.OffsetCommitResponse](w, commit).Topics[0].Partitions {
		if p.ErrorCode != kerr.InvalidCommitOffsetSize.Code {
			t.Fatalf("OffsetCommit of more than a batch: %v", kerr.ErrorForCode(p.ErrorCode))
		}
	}
	rt.Partitions = rt.Partitions[:4]
	commit.Topics[0] = rt
	for _, p := range ask[*kmsg.OffsetCommitResponse](w, commit).Topics[0].Partitions {
		wantCode(t, "OffsetCommit of what fits", p.ErrorCode, nil)
	}
	n.Kill()
	n.Start()
	w = dialBroker(t, n.Addr)
	fetch := at(kmsg.NewPtrOffsetFetchRequest(), 7)
	fetch.Group = "commits"
	Await(t, 30*time.Second, "the offsets after a kill", func() error {
		resp := ask[*kmsg.OffsetFetchResponse](w, fetch)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 4 {
			return fmt.Errorf("%+v", resp.Topics)
		}
		return nil
	})
	m.w = w
	Await(t, 30*time.Second, "the member after a kill", func() error { return kerr.ErrorForCode(m.beat()) })
}
