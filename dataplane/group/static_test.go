package group

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func static(version int16, instance, member string) *kmsg.JoinGroupRequest {
	r := joinReq(version, member)
	r.InstanceID = new(instance)
	r.Protocols[0].Metadata = []byte("m")
	return r
}

// staticGroup is a Stable group of two static members, "a" the leader.
func staticGroup(e *env) (a, b string, gen int32) {
	fa := e.joinAsync(static(9, "a", ""))
	a = fa.wait().MemberID
	fb := e.joinAsync(static(9, "b", ""))
	fa = e.joinAsync(static(9, "a", a))
	r := fa.wait()
	b = fb.wait().MemberID
	sb := e.syncAsync(b, r.Generation, nil)
	wantCode(e.t, e.syncAsync(a, r.Generation, map[string]string{a: "A", b: "B"}).wait().ErrorCode, nil)
	wantCode(e.t, sb.wait().ErrorCode, nil)
	return a, b, r.Generation
}

func TestStaticMemberComesBackWithoutRebalance(t *testing.T) {
	run(t, Config{}, func(e *env) {
		_, b, gen := staticGroup(e)
		r := e.join(static(9, "b", ""))
		wantCode(t, r.ErrorCode, nil)
		if r.Generation != gen || r.MemberID == b || len(r.Members) != 0 {
			t.Fatalf("%+v", r)
		}
		e.wantState("Stable")
		if got := string(e.syncAsync(r.MemberID, gen, nil).wait().MemberAssignment); got != "B" {
			t.Errorf("assignment %q, want that of the instance", got)
		}
		wantCode(t, e.heartbeat(b, gen), kerr.UnknownMemberID)
		// The process that had the instance before is fenced, whatever it tries.
		old := static(9, "b", b)
		wantCode(t, e.join(old).ErrorCode, kerr.FencedInstanceID)
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Version, hb.Group, hb.MemberID, hb.Generation, hb.InstanceID = 3, "g", b, gen, new("b")
		e.c.Heartbeat(hb, func(r *kmsg.HeartbeatResponse) { wantCode(t, r.ErrorCode, kerr.FencedInstanceID) })
		cr := commitReq(b, gen, "t", 0, 1)
		cr.InstanceID = new("b")
		wantCode(t, e.commitAsync(cr).wait().Topics[0].Partitions[0].ErrorCode, kerr.FencedInstanceID)
		l := e.leave(kmsg.LeaveGroupRequestMember{MemberID: b, InstanceID: new("b")})
		wantCode(t, l.Members[0].ErrorCode, kerr.FencedInstanceID)

		// The swap is durable.
		e.move()
		if got := string(e.syncAsync(r.MemberID, gen, nil).wait().MemberAssignment); got != "B" {
			t.Errorf("assignment %q after the move", got)
		}
	})
}

func TestStaticLeaderComesBack(t *testing.T) {
	run(t, Config{}, func(e *env) {
		_, _, gen := staticGroup(e)
		r := e.join(static(9, "a", ""))
		if r.Generation != gen || r.LeaderID != r.MemberID || !r.SkipAssignment || len(r.Members) != 2 {
			t.Errorf("v9 leader must be told to skip the assignment: %+v", r)
		}
		a := r.MemberID
		r = e.join(static(8, "a", ""))
		if r.Generation != gen || r.LeaderID != a || r.MemberID == a || r.SkipAssignment || len(r.Members) != 0 {
			t.Errorf("v8 leader must not think itself the leader: %+v", r)
		}
		e.wantState("Stable")
	})
}

func TestStaticMemberWithOtherProtocolsRebalances(t *testing.T) {
	run(t, Config{}, func(e *env) {
		r := static(7, "a", "")
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: "sticky"})
		a := e.join(r)
		wantCode(t, e.syncAsync(a.MemberID, 1, nil).wait().ErrorCode, nil)
		r = static(7, "a", "")
		r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "sticky"}}
		got := e.join(r)
		if got.Generation != 2 || *got.Protocol != "sticky" {
			t.Fatalf("%+v", got)
		}
	})
}

func TestStaticMemberMayBeLateButNotForEver(t *testing.T) {
	quick := func(instance, member string) *kmsg.JoinGroupRequest {
		r := static(7, instance, member)
		r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 60_000, 10_000
		return r
	}
	run(t, Config{}, func(e *env) {
		a := e.join(quick("a", "")).MemberID
		wantCode(t, e.syncAsync(a, 1, nil).wait().ErrorCode, nil)
		fb := e.joinAsync(quick("b", ""))
		time.Sleep(9 * time.Second)
		fb.mustWait()
		time.Sleep(2 * time.Second) // the rebalance is over without "a", who stays a member
		r := fb.poll()
		if r == nil || len(r.Members) != 2 || r.LeaderID != r.MemberID {
			t.Fatalf("%+v", r)
		}
		wantCode(t, e.syncAsync(r.MemberID, r.Generation, map[string]string{a: "for a"}).wait().ErrorCode, nil)
		// It comes for its assignment within the next rebalance timeout, or is out.
		time.Sleep(11 * time.Second)
		wantCode(t, e.heartbeat(a, r.Generation), kerr.UnknownMemberID)
		wantCode(t, e.heartbeat(r.MemberID, r.Generation), kerr.RebalanceInProgress)
	})
}

func TestStaticMemberIsRemovedByItsInstance(t *testing.T) {
	run(t, Config{}, func(e *env) {
		_, b, gen := staticGroup(e)
		l := e.leave(kmsg.LeaveGroupRequestMember{InstanceID: new("a")})
		wantCode(t, l.Members[0].ErrorCode, nil)
		wantCode(t, e.heartbeat(b, gen), kerr.RebalanceInProgress)
	})
}

// Instance ids came with JoinGroup v5: a leader that asks with v4 gets a list
// without them, instead of a failing encoder.
func TestOldLeaderOfAStaticMember(t *testing.T) {
	run(t, Config{}, func(e *env) {
		id := e.join(joinReq(4, "")).MemberID
		leader := joinReq(4, id)
		leader.Protocols[0].Metadata = []byte("m")
		e.joinAsync(leader).wait()
		fb := e.joinAsync(static(5, "b", ""))
		got := e.joinAsync(leader).wait()
		wantCode(t, fb.wait().ErrorCode, nil)
		wantCode(t, got.ErrorCode, nil)
		if got.Version != 4 || len(got.Members) != 2 {
			t.Fatalf("%+v", got)
		}
		back := kmsg.NewPtrJoinGroupResponse()
		back.Version = 4
		if err := back.ReadFrom(got.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if back.LeaderID != id || len(back.Members) != 2 || back.Members[1].InstanceID != nil || str(back.Protocol) != "range" {
			t.Errorf("%+v", back)
		}
	})
}

func TestStaticSwapThatCannotBeStored(t *testing.T) {
	run(t, Config{}, func(e *env) {
		_, b, gen := staticGroup(e)
		e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas })
		wantCode(t, e.join(static(9, "b", "")).ErrorCode, kerr.CoordinatorNotAvailable)
		wantCode(t, e.heartbeat(b, gen), nil) // it is still the member
	})
}
