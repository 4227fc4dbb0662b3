package group

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestJoinWithoutIDGetsOneFromV4On(t *testing.T) {
	run(t, Config{}, func(e *env) {
		for v := int16(4); v <= 9; v++ {
			resp := e.join(joinReq(v, ""))
			wantCode(t, resp.ErrorCode, kerr.MemberIDRequired)
			if resp.MemberID == "" || resp.Version != v {
				t.Errorf("v%d: %+v", v, resp)
			}
		}
		time.Sleep(11 * time.Second)
		e.wantState("Dead") // ids that never came back leave nothing behind
		for v := int16(0); v <= 3; v++ {
			resp := e.joinAsync(joinReq(v, "")).poll()
			if v == 0 {
				wantCode(t, resp.ErrorCode, nil)
			} else if resp != nil {
				t.Errorf("v%d: the member waits for the others: %+v", v, resp)
			}
		}
	})
}

func TestJoinRefusals(t *testing.T) {
	run(t, Config{MaxPendingMembers: 2}, func(e *env) {
		for _, c := range []struct {
			name   string
			change func(*kmsg.JoinGroupRequest)
			want   *kerr.Error
		}{
			{"no group", func(r *kmsg.JoinGroupRequest) { r.Group = "" }, kerr.InvalidGroupID},
			{"session too short", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 }, kerr.InvalidSessionTimeout},
			{"session too long", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_001 }, kerr.InvalidSessionTimeout},
			{"unknown member", func(r *kmsg.JoinGroupRequest) { r.MemberID = "nobody" }, kerr.UnknownMemberID},
			{"no protocol type", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" }, kerr.InconsistentGroupProtocol},
			{"no protocols", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil }, kerr.InconsistentGroupProtocol},
			{"first id", func(*kmsg.JoinGroupRequest) {}, kerr.MemberIDRequired},
			{"second id", func(*kmsg.JoinGroupRequest) {}, kerr.MemberIDRequired},
			{"too many ids open", func(*kmsg.JoinGroupRequest) {}, kerr.CoordinatorNotAvailable},
		} {
			r := joinReq(7, "")
			c.change(r)
			if got := e.join(r).ErrorCode; got != c.want.Code {
				t.Errorf("%s: %v, want %v", c.name, kerr.ErrorForCode(got), c.want)
			}
		}
	})
}

func TestTwoMembersShareTheWork(t *testing.T) {
	run(t, Config{}, func(e *env) {
		a, ja := e.newMember()
		r := ja.wait()
		wantCode(t, r.ErrorCode, nil)
		if r.Generation != 1 || r.LeaderID != a || len(r.Members) != 1 || *r.Protocol != "range" || *r.ProtocolType != "consumer" {
			t.Fatalf("%+v", r)
		}
		wantCode(t, e.syncAsync(a, 1, map[string]string{a: "all"}).wait().ErrorCode, nil)

		b, jb := e.newMember()
		jb.mustWait()
		wantCode(t, e.heartbeat(a, 1), kerr.RebalanceInProgress)
		ja = e.joinAsync(joinReq(7, a))
		ra, rb := ja.wait(), jb.wait()
		if ra.Generation != 2 || len(ra.Members) != 2 || len(rb.Members) != 0 || rb.LeaderID != a {
			t.Fatalf("leader %+v, follower %+v", ra, rb)
		}
		sb := e.syncAsync(b, 2, nil)
		sb.mustWait()
		sa := e.syncAsync(a, 2, map[string]string{a: "half", b: "other half", "stranger": "x"})
		if got := string(sa.wait().MemberAssignment); got != "half" {
			t.Errorf("leader got %q", got)
		}
		if got := string(sb.wait().MemberAssignment); got != "other half" {
			t.Errorf("follower got %q", got)
		}
		wantCode(t, e.heartbeat(a, 2), nil)
		wantCode(t, e.heartbeat(b, 1), kerr.IllegalGeneration)
		d := e.describe()
		if d.State != "Stable" || d.Protocol != "range" || len(d.Members) != 2 || string(d.Members[1].MemberAssignment) != "other half" ||
			d.Members[0].ClientID != "client" || d.Members[0].ClientHost != "/127.0.0.1" {
			t.Errorf("%+v", d)
		}
		// A follower that only asks again gets what is; the leader's join is news.
		again := joinReq(7, b)
		again.Protocols[0].Metadata = []byte("m-") // as in its first join
		if r := e.joinAsync(again).poll(); r == nil || r.Generation != 2 {
			t.Errorf("%+v", r)
		}
		e.wantState("Stable")
		e.joinAsync(joinReq(7, a)).mustWait()
	})
}

func TestInitialDelayIsExtendedWhileMembersArrive(t *testing.T) {
	run(t, Config{InitialRebalanceDelay: 3 * time.Second}, func(e *env) {
		start := time.Now()
		_, first := e.newMember()
		time.Sleep(2 * time.Second)
		_, second := e.newMember()
		first.mustWait()
		time.Sleep(2 * time.Second) // 4 s: past the first delay
		first.mustWait()
		time.Sleep(2*time.Second + time.Millisecond)
		if r := first.poll(); r == nil || len(r.Members) != 2 {
			t.Fatalf("after %v: %+v", time.Since(start), r)
		}
		wantCode(t, second.poll().ErrorCode, nil)
	})
	run(t, Config{InitialRebalanceDelay: 3 * time.Second}, func(e *env) {
		// Somebody new every second: the largest rebalance timeout is the end.
		start := time.Now()
		short := func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = 10_000 }
		_, first := e.newMember(short)
		for first.poll() == nil && time.Since(start) < time.Minute {
			time.Sleep(time.Second)
			e.newMember(short)
		}
		if d := time.Since(start); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("the delay ended after %v, want 10 s", d)
		}
	})
}

func TestProtocolIsChosenByVoteAmongThoseThatAllKnow(t *testing.T) {
	protocols := func(names ...string) func(*kmsg.JoinGroupRequest) {
		return func(r *kmsg.JoinGroupRequest) {
			r.Protocols = nil
			for _, n := range names {
				r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: n, Metadata: []byte(n)})
			}
		}
	}
	run(t, Config{InitialRebalanceDelay: 3 * time.Second}, func(e *env) {
		_, a := e.newMember(protocols("sticky", "range", "roundrobin"))
		e.newMember(protocols("roundrobin", "range"))
		e.newMember(protocols("unknown", "roundrobin", "range"))
		r := joinReq(7, "")
		protocols("sticky")(r)
		wantCode(t, e.join(r).ErrorCode, kerr.InconsistentGroupProtocol) // not all know it
		r = joinReq(7, "")
		r.ProtocolType = "connect"
		wantCode(t, e.join(r).ErrorCode, kerr.InconsistentGroupProtocol)
		got := a.wait()
		if *got.Protocol != "roundrobin" || len(got.Members) != 3 || string(got.Members[0].ProtocolMetadata) != "roundrobin" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestSilentMemberIsReplaced(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(2)
		for range 12 { // 12 s: ids[1] is silent, ids[0] is not
			time.Sleep(time.Second)
			if e.heartbeat(ids[0], gen) == kerr.RebalanceInProgress.Code {
				break
			}
		}
		e.wantState("PreparingRebalance")
		r := e.join(joinReq(7, ids[0]))
		if r.Generation != gen+1 || len(r.Members) != 1 {
			t.Fatalf("%+v", r)
		}
		wantCode(t, e.heartbeat(ids[1], gen), kerr.UnknownMemberID)
	})
}

func TestRebalanceTimeoutOfV0IsTheSessionTimeout(t *testing.T) {
	run(t, Config{}, func(e *env) {
		r := joinReq(0, "")
		r.RebalanceTimeoutMillis = -1
		a := e.join(r).MemberID
		wantCode(t, e.syncAsync(a, 1, nil).wait().ErrorCode, nil)
		start := time.Now()
		r2 := joinReq(0, "")
		b := e.joinAsync(r2)
		for b.poll() == nil {
			time.Sleep(time.Second)
			e.heartbeat(a, 1) // alive, but it does not rejoin
		}
		if d := time.Since(start); d < 9*time.Second || d > 11*time.Second {
			t.Fatalf("rebalance took %v, want the session timeout of 10 s", d)
		}
		wantCode(t, b.poll().ErrorCode, nil)
	})
}

// A client that joins, drops its connection and starts over leaves a member or
// an id behind each time; they must all go again, and block nobody.
func TestThousandJoinsThatDrop(t *testing.T) {
	for _, version := range []int16{3, 4} {
		t.Run(fmt.Sprint("v", version), func(t *testing.T) {
			run(t, Config{}, func(e *env) {
				slow := func(r *kmsg.JoinGroupRequest) { r.RebalanceTimeoutMillis = 600_000 }
				ids, gen := e.stable(1, slow)
				for range 1000 {
					e.joinAsync(joinReq(version, ""))
				}
				for range 5*60 + 11 { // the longest time that something unheard of stays
					time.Sleep(time.Second)
					e.heartbeat(ids[0], gen)
				}
				r := joinReq(7, ids[0])
				slow(r)
				f := e.joinAsync(r)
				resp := f.poll()
				if resp == nil {
					t.Fatal("the group is blocked")
				}
				wantCode(t, resp.ErrorCode, nil)
				if len(resp.Members) != 1 {
					t.Fatalf("%d members, want the live one", len(resp.Members))
				}
				wantCode(t, e.syncAsync(ids[0], resp.Generation, nil).wait().ErrorCode, nil)
				e.wantState("Stable")
				g, _ := e.c.find("g", false)
				if len(g.pending) != 0 || len(g.order) != 1 || g.waiting != 0 || len(g.supports) != 1 {
					t.Errorf("left behind: %d ids, %d members, %d waiting, %d protocols", len(g.pending), len(g.order), g.waiting, len(g.supports))
				}
			})
		})
	}
}

func TestMaxSize(t *testing.T) {
	run(t, Config{MaxSize: 2}, func(e *env) {
		ids, _ := e.stable(2)
		wantCode(t, e.join(joinReq(7, "")).ErrorCode, kerr.GroupMaxSizeReached)
		f := e.joinAsync(joinReq(7, ids[0])) // members may still rejoin
		f.mustWait()
		wantCode(t, e.joinAsync(joinReq(7, ids[1])).wait().ErrorCode, nil)
		wantCode(t, f.wait().ErrorCode, nil)
	})
}

// group.max.size that has become smaller holds at the next rebalance, and that comes when
// the group is loaded.
func TestMaxSizeThatShrinks(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(3)
		e.c.cfg.MaxSize = 2
		e.move()
		e.wantState("PreparingRebalance")
		wantCode(t, e.commit(ids[2], gen, "t", 0, 5), nil)
		first, second := e.joinAsync(joinReq(7, ids[0])), e.joinAsync(joinReq(7, ids[1]))
		first.mustWait()
		wantCode(t, e.join(joinReq(7, ids[2])).ErrorCode, kerr.GroupMaxSizeReached)
		wantCode(t, first.wait().ErrorCode, nil)
		wantCode(t, second.wait().ErrorCode, nil)
		if d := e.describe(); len(d.Members) != 2 {
			t.Errorf("%d members", len(d.Members))
		}
		wantCode(t, e.heartbeat(ids[2], gen), kerr.UnknownMemberID)
	})
}

func TestMemberThatNeverSyncsIsExpelled(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, _ := e.stable(2)
		j0, j1 := e.joinAsync(joinReq(7, ids[0])), e.joinAsync(joinReq(7, ids[1]))
		gen := j0.wait().Generation
		j1.wait()
		s := e.syncAsync(ids[0], gen, nil)
		wantCode(t, s.wait().ErrorCode, nil)
		for range 61 {
			time.Sleep(time.Second)
			e.heartbeat(ids[0], gen)
			e.heartbeat(ids[1], gen)
		}
		wantCode(t, e.heartbeat(ids[1], gen), kerr.UnknownMemberID)
		wantCode(t, e.heartbeat(ids[0], gen), kerr.RebalanceInProgress)
	})
}

func TestLeaveDuringRebalanceDoesNotBlockIt(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(3)
		f := e.joinAsync(joinReq(7, ids[0]))
		g := e.joinAsync(joinReq(7, ids[1]))
		f.mustWait()
		resp := e.leave(
			kmsg.LeaveGroupRequestMember{MemberID: ids[2]},
			kmsg.LeaveGroupRequestMember{MemberID: "nobody"},
			kmsg.LeaveGroupRequestMember{InstanceID: new("nothing")},
		)
		wantCode(t, resp.ErrorCode, nil)
		wantCode(t, resp.Members[0].ErrorCode, nil)
		wantCode(t, resp.Members[1].ErrorCode, kerr.UnknownMemberID)
		wantCode(t, resp.Members[2].ErrorCode, kerr.UnknownMemberID)
		if r := f.poll(); r == nil || r.Generation != gen+1 || len(r.Members) != 2 {
			t.Fatalf("%+v", r)
		}
		wantCode(t, g.poll().ErrorCode, nil)
		// An id that was handed out blocks as well until it is given back.
		id := e.join(joinReq(7, "")).MemberID
		f = e.joinAsync(changed(ids[0]))
		g = e.joinAsync(joinReq(7, ids[1]))
		f.mustWait()
		e.leave(kmsg.LeaveGroupRequestMember{MemberID: id})
		wantCode(t, f.poll().ErrorCode, nil)
		wantCode(t, g.poll().ErrorCode, nil)
	})
}

func TestLastLeaveMakesTheGroupEmpty(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(1)
		r := kmsg.NewPtrLeaveGroupRequest()
		r.Version, r.Group, r.MemberID = 1, "g", ids[0]
		f := newFuture[kmsg.LeaveGroupResponse](t)
		e.c.Leave(r, f.done)
		wantCode(t, f.poll().ErrorCode, nil)
		e.wantState("Empty")
		wantCode(t, e.heartbeat(ids[0], gen), kerr.UnknownMemberID)
		e.c.Leave(r, func(resp *kmsg.LeaveGroupResponse) { wantCode(t, resp.ErrorCode, kerr.UnknownMemberID) })
	})
}

func TestSyncRefusals(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.syncAsync("nobody", 1, nil).poll().ErrorCode, kerr.UnknownMemberID)
		ids, gen := e.stable(1)
		wantCode(t, e.syncAsync("nobody", gen, nil).poll().ErrorCode, kerr.UnknownMemberID)
		wantCode(t, e.syncAsync(ids[0], gen+1, nil).poll().ErrorCode, kerr.IllegalGeneration)
		r := kmsg.NewPtrSyncGroupRequest()
		r.Version, r.Group, r.MemberID, r.Generation = 5, "g", ids[0], gen
		for _, c := range []struct {
			typ, name *string
			want      error
		}{
			{nil, nil, kerr.InconsistentGroupProtocol},
			{new("connect"), new("range"), kerr.InconsistentGroupProtocol},
			{new("consumer"), new("sticky"), kerr.InconsistentGroupProtocol},
			{new("consumer"), new("range"), nil},
		} {
			r.ProtocolType, r.Protocol = c.typ, c.name
			e.c.Sync(r, func(resp *kmsg.SyncGroupResponse) {
				wantCode(t, resp.ErrorCode, c.want)
				if c.want == nil && (str(resp.Protocol) != "range" || string(resp.MemberAssignment) != "a-"+ids[0]) {
					t.Errorf("%+v", resp)
				}
			})
		}
		e.newMember()
		wantCode(t, e.syncAsync(ids[0], gen, nil).poll().ErrorCode, kerr.RebalanceInProgress)
	})
}

func TestAssignmentThatCannotBeStored(t *testing.T) {
	for _, c := range []struct{ stored, told *kerr.Error }{
		{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable},
		{kerr.RequestTimedOut, kerr.RebalanceInProgress},
		{kerr.NotLeaderForPartition, kerr.NotCoordinator},
		{kerr.MessageTooLarge, kerr.UnknownServerError},
	} {
		t.Run(c.stored.Message, func(t *testing.T) {
			run(t, Config{}, func(e *env) {
				ids, _ := e.stable(2)
				f0, f1 := e.joinAsync(joinReq(7, ids[0])), e.joinAsync(joinReq(7, ids[1]))
				gen := f0.wait().Generation
				f1.wait()
				e.log.set(func(l *memLog) { l.fail = c.stored })
				s1 := e.syncAsync(ids[1], gen, nil)
				s0 := e.syncAsync(ids[0], gen, nil)
				wantCode(t, s0.wait().ErrorCode, c.told)
				wantCode(t, s1.wait().ErrorCode, c.told)
				e.wantState("PreparingRebalance")
			})
		})
	}
}

func TestIDThatNeverComesBackBlocksForASessionOnly(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(2)
		e.join(joinReq(7, "")) // gets an id and is never seen again
		f0, f1 := e.joinAsync(joinReq(7, ids[0])), e.joinAsync(changed(ids[1]))
		f0.mustWait()
		time.Sleep(9 * time.Second)
		f1.mustWait()
		time.Sleep(2 * time.Second)
		if r := f0.poll(); r == nil || r.Generation != gen+1 {
			t.Fatalf("%+v", r)
		}
		wantCode(t, f1.poll().ErrorCode, nil)
	})
}

// changed is a known member's join with other metadata than before.
func changed(member string) *kmsg.JoinGroupRequest {
	r := joinReq(7, member)
	r.Protocols[0].Metadata = []byte("other topics")
	return r
}
