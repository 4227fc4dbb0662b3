package group

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// TestManyAtOnceWhileTheCoordinatorMoves has members of a few groups do everything at once,
// rightly and wrongly, with leadership coming and going and the sweep running. Each request is
// answered once; those that wait at the end are when the coordinator closes.
func TestManyAtOnceWhileTheCoordinatorMoves(t *testing.T) {
	log := newMemLog(1)
	c := New(Config{MinSessionTimeout: time.Millisecond, OffsetsRetention: time.Millisecond}, log, SystemTimers{})
	c.OnLeader(0, 1)
	const workers, calls = 12, 400
	var asked, answered atomic.Int64
	once := func(what string) func() {
		asked.Add(1)
		var called atomic.Bool
		return func() {
			if called.Swap(true) {
				t.Errorf("%s was answered twice", what)
				return
			}
			answered.Add(1)
		}
	}
	type place struct {
		member     string
		instance   *string
		generation int32
	}
	work := func(seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		var mu sync.Mutex
		places := map[string]place{} // what this worker believes to be in each group
		for range calls {
			id := fmt.Sprint("g-", r.IntN(3))
			mu.Lock()
			at := places[id]
			mu.Unlock()
			if r.IntN(10) == 0 {
				at.generation += int32(r.IntN(3) - 1)
			}
			switch r.IntN(12) {
			case 0, 1, 2:
				req := kmsg.NewPtrJoinGroupRequest()
				req.Version, req.Group, req.MemberID = 9, id, at.member
				req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 50, 50, "consumer"
				if r.IntN(3) == 0 {
					req.MemberID, req.InstanceID = "", new(fmt.Sprint("i-", r.IntN(3)))
				}
				p := kmsg.NewJoinGroupRequestProtocol()
				p.Name, p.Metadata = "range", []byte{byte(r.IntN(2))}
				req.Protocols = append(req.Protocols, p)
				done := once("JoinGroup")
				c.Join(ClientInfo{"c", "/h"}, req, func(resp *kmsg.JoinGroupResponse) {
					mu.Lock()
					places[id] = place{resp.MemberID, req.InstanceID, resp.Generation}
					mu.Unlock()
					done()
				})
			case 3, 4, 5:
				req := kmsg.NewPtrSyncGroupRequest()
				req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 5, id, at.member, at.instance, at.generation
				req.ProtocolType, req.Protocol = new("consumer"), new("range")
				a := kmsg.NewSyncGroupRequestGroupAssignment()
				a.MemberID, a.MemberAssignment = at.member, []byte("all")
				req.GroupAssignment = append(req.GroupAssignment, a)
				done := once("SyncGroup")
				c.Sync(req, func(*kmsg.SyncGroupResponse) { done() })
			case 6, 7:
				req := kmsg.NewPtrHeartbeatRequest()
				req.Group, req.MemberID, req.InstanceID, req.Generation = id, at.member, at.instance, at.generation
				done := once("Heartbeat")
				c.Heartbeat(req, func(*kmsg.HeartbeatResponse) { done() })
			case 8:
				req := kmsg.NewPtrLeaveGroupRequest()
				req.Version, req.Group = 5, id
				m := kmsg.NewLeaveGroupRequestMember()
				m.MemberID, m.InstanceID = at.member, at.instance
				req.Members = append(req.Members, m)
				done := once("LeaveGroup")
				c.Leave(req, func(*kmsg.LeaveGroupResponse) { done() })
			case 9:
				req := kmsg.NewPtrOffsetCommitRequest()
				req.Version, req.Group, req.MemberID, req.InstanceID, req.Generation = 8, id, at.member, at.instance, at.generation
				if r.IntN(3) == 0 {
					req.MemberID, req.InstanceID, req.Generation = "", nil, -1
				}
				rt := kmsg.NewOffsetCommitRequestTopic()
				rt.Topic = "t"
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset = int32(r.IntN(3)), int64(r.IntN(100))
				rt.Partitions = append(rt.Partitions, rp)
				req.Topics = append(req.Topics, rt)
				done := once("OffsetCommit")
				c.Commit(req, func(*kmsg.OffsetCommitResponse) { done() })
			case 10:
				req := kmsg.NewPtrDeleteGroupsRequest()
				req.Groups = []string{id, "nobody"}
				done := once("DeleteGroups")
				c.Delete(req, func(*kmsg.DeleteGroupsResponse) { done() })
			default:
				d := kmsg.NewPtrDescribeGroupsRequest()
				d.Groups = []string{id}
				done := once("DescribeGroups")
				c.Describe(d, func(*kmsg.DescribeGroupsResponse) { done() })
				done = once("ListGroups")
				c.List(kmsg.NewPtrListGroupsRequest(), func(*kmsg.ListGroupsResponse) { done() })
			}
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
			}
		}
	}
	stop := make(chan struct{})
	var moving, working sync.WaitGroup
	moving.Go(func() {
		r := rand.New(rand.NewPCG(7, 7))
		for epoch := int32(2); ; epoch += 2 {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
			}
			switch r.IntN(3) {
			case 0:
				c.OnResign(0, epoch)
				c.OnLeader(0, epoch+1)
			case 1:
				c.OnPartitionsDeleted([]protocol.TopicPartition{{Topic: "t", Partition: 1}})
			default:
				for _, g := range c.groups() {
					g.do(func(fx *effects) { g.expireOffsets(fx, time.Now().Add(time.Hour)) })
				}
			}
		}
	})
	for i := range uint64(workers) {
		working.Go(func() { work(i) })
	}
	working.Wait()
	close(stop)
	moving.Wait()
	wantAccounts(t, c)
	c.Close()
	if held, _ := c.MemoryStats(); held != 0 {
		t.Errorf("%d bytes are held by nobody", held)
	}
	for deadline := time.Now().Add(time.Minute); answered.Load() != asked.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d requests are answered", answered.Load(), asked.Load())
		}
	}
}
