package group

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordinator"
)

func TestPartitionForIsJavasHash(t *testing.T) {
	for _, c := range []struct {
		group string
		want  int32 // of 50, as Java computes it
	}{
		{"", 0},
		{"g", 3},
		{"hello", 22},
		{"console-consumer-12345", 6},
		{"polygenelubricants", 0}, // -2147483648, which has no absolute value
		{"\U0001f600", 49},        // a surrogate pair
		{"penstock-demo", 33},     // -2120676333
		{"группа", 8},
	} {
		if got := coordinator.PartitionFor(c.group, 50); got != c.want {
			t.Errorf("%q: partition %d, want %d", c.group, got, c.want)
		}
	}
}

func TestLoading(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(2)
		wantCode(t, e.commit(ids[0], gen, "t", 0, 10), nil)
		e.c.OnResign(0, 2)
		wantCode(t, e.heartbeat(ids[0], gen), kerr.NotCoordinator)
		wantCode(t, e.describe().ErrorCode, kerr.NotCoordinator)

		gate := make(chan struct{})
		e.log.set(func(l *memLog) { l.gate = gate })
		e.c.OnLeader(0, 3)
		wantCode(t, e.join(joinReq(7, ids[0])).ErrorCode, kerr.CoordinatorLoadInProgress)
		wantCode(t, e.heartbeat(ids[0], gen), nil)
		wantCode(t, e.syncAsync(ids[0], gen, nil).wait().ErrorCode, kerr.RebalanceInProgress)
		wantCode(t, e.commit(ids[0], gen, "t", 0, 11), kerr.CoordinatorLoadInProgress)
		wantCode(t, e.deleteAsync("g").wait().Groups[0].ErrorCode, kerr.CoordinatorLoadInProgress)
		list := newFuture[kmsg.ListGroupsResponse](t)
		e.c.List(kmsg.NewPtrListGroupsRequest(), list.done)
		wantCode(t, list.poll().ErrorCode, kerr.CoordinatorLoadInProgress)
		wantCode(t, e.fetch("g", "t", 0).ErrorCode, kerr.CoordinatorLoadInProgress)

		close(gate)
		synctest.Wait()
		e.wantState("Stable")
		wantCode(t, e.heartbeat(ids[0], gen), nil)
		if got := e.committed("t", 0); got != 10 {
			t.Errorf("offset %d, want 10", got)
		}
		if got := string(e.syncAsync(ids[1], gen, nil).wait().MemberAssignment); got != "a-"+ids[1] {
			t.Errorf("assignment %q", got)
		}
	})
}

func TestLoadedMembersHaveSessions(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.stable(2)
		e.move()
		time.Sleep(9 * time.Second)
		e.wantState("Stable")
		time.Sleep(2 * time.Second)
		e.wantState("Empty")
	})
}

func TestStaleLeadershipIsIgnored(t *testing.T) {
	run(t, Config{}, func(e *env) {
		gate := make(chan struct{})
		e.c.OnResign(0, 2)
		e.log.set(func(l *memLog) { l.gate = gate })
		e.c.OnLeader(0, 3) // hangs in its load
		e.c.OnResign(0, 4)
		e.log.set(func(l *memLog) { l.gate = nil })
		e.c.OnLeader(0, 3) // late news
		wantCode(t, e.commit("", -1, "t", 0, 1), kerr.NotCoordinator)
		e.c.OnLeader(0, 5)
		synctest.Wait()
		wantCode(t, e.commit("", -1, "t", 0, 1), nil)
		close(gate) // the load of epoch 3 ends now, and must not touch anything
		synctest.Wait()
		if got := e.committed("t", 0); got != 1 {
			t.Errorf("offset %d, want 1", got)
		}
		e.c.OnResign(0, 4) // late news
		if got := e.committed("t", 0); got != 1 {
			t.Errorf("offset %d, want 1", got)
		}
		reads := e.reads()
		e.c.OnLeader(0, 6) // a new epoch without a loss between
		e.c.OnLeader(0, 6)
		if e.reads() != reads || e.committed("t", 0) != 1 {
			t.Error("a partition that was led all along was loaded again")
		}
		e.c.OnResign(0, -1) // the replica goes; a new topic's epochs start over
		e.c.OnLeader(0, 0)
		synctest.Wait()
		if got := e.committed("t", 0); got != 1 {
			t.Errorf("offset %d, want 1", got)
		}
	})
}

// loadRetry is coordinator's pause after a failed reading.
const loadRetry = time.Second

func TestLoadIsTriedAgain(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.c.OnResign(0, 2)
		e.log.set(func(l *memLog) { l.readErr = errors.New("disk") })
		e.c.OnLeader(0, 3)
		wantCode(t, e.commit("", -1, "t", 0, 1), kerr.CoordinatorLoadInProgress)
		before := e.c.LoadStats()
		if before.Failures != 1 || before.Loading != 1 {
			t.Errorf("meanwhile %+v", before)
		}
		time.Sleep(2 * time.Second)
		wantCode(t, e.commit("", -1, "t", 0, 1), nil)
		got := e.c.LoadStats()
		if got.Failures != 1 || got.Loading != 0 || got.Loaded != before.Loaded+1 || got.Longest != loadRetry || got.Time != before.Time+loadRetry {
			t.Errorf("%+v after %+v", got, before)
		}
		if got := e.c.LoadStats().Longest; got != 0 {
			t.Errorf("longest since just now: %v", got)
		}
	})
}

func TestResignAnswersWhoWaits(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(2)
		f := e.joinAsync(joinReq(7, ids[0]))
		f.mustWait()
		e.c.OnResign(0, 2)
		wantCode(t, f.poll().ErrorCode, kerr.NotCoordinator)
		e.c.OnLeader(0, 3)
		synctest.Wait()
		f, g := e.joinAsync(joinReq(7, ids[0])), e.joinAsync(joinReq(7, ids[1]))
		f.wait()
		g.wait()
		s := e.syncAsync(ids[1], gen+1, nil)
		s.mustWait()
		e.c.Close()
		wantCode(t, s.poll().ErrorCode, kerr.NotCoordinator)
		wantCode(t, e.heartbeat(ids[0], gen), kerr.NotCoordinator)
		e.c.Close()
	})
}

// A write that an old leadership decided on must not reach the log after the
// new one has read it: it would be acknowledged and unknown.
func TestNoWriteOfAnOldLeadershipAfterTheLoad(t *testing.T) {
	run(t, Config{}, func(e *env) {
		stuck, reached := make(chan struct{}), make(chan struct{}, 1)
		e.log.set(func(l *memLog) {
			l.onApp = func() { reached <- struct{}{}; <-stuck }
		})
		f1 := newFuture[kmsg.OffsetCommitResponse](t)
		go e.c.Commit(commitReq("", -1, "t", 0, 1), f1.done) // hangs inside Append
		<-reached
		f2 := e.commitAsync(commitReq("", -1, "t", 0, 2)) // waits in the queue
		e.log.set(func(l *memLog) { l.onApp = nil })
		reads := e.reads()
		e.c.OnResign(0, 2)
		e.c.OnLeader(0, 3)
		synctest.Wait()
		if e.reads() != reads {
			t.Fatal("the log is read while an old write is under way")
		}
		close(stuck)
		wantCode(t, f1.wait().Topics[0].Partitions[0].ErrorCode, nil)
		wantCode(t, f2.wait().Topics[0].Partitions[0].ErrorCode, kerr.NotCoordinator)
		if got := e.committed("t", 0); got != 1 {
			t.Errorf("offset %d, want 1: it was acknowledged", got)
		}
	})
}

func TestListAndDescribe(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.stable(1)
		r := commitReq("", -1, "t", 0, 1)
		r.Group = "empty"
		e.commitAsync(r).wait()
		for _, c := range []struct {
			states, types []string
			want          string
		}{
			{nil, nil, "empty g "},
			{[]string{"stable"}, nil, "g "},
			{[]string{"Empty", "Dead"}, nil, "empty "},
			{nil, []string{"Classic"}, "empty g "},
			{nil, []string{"consumer"}, ""},
		} {
			lr := kmsg.NewPtrListGroupsRequest()
			lr.Version, lr.StatesFilter, lr.TypesFilter = 5, c.states, c.types
			e.c.List(lr, func(resp *kmsg.ListGroupsResponse) {
				got := ""
				for _, g := range resp.Groups {
					got += g.Group + " "
					if g.GroupType != "classic" || (g.Group == "g") != (g.GroupState == "Stable") || (g.Group == "g") != (g.ProtocolType == "consumer") {
						t.Errorf("%+v", g)
					}
				}
				if got != c.want || resp.ErrorCode != 0 {
					t.Errorf("filters %q %q: %q, want %q", c.states, c.types, got, c.want)
				}
			})
		}
		dr := kmsg.NewPtrDescribeGroupsRequest()
		dr.Groups = []string{"unknown", "empty"}
		e.c.Describe(dr, func(resp *kmsg.DescribeGroupsResponse) {
			if a, b := resp.Groups[0], resp.Groups[1]; a.State != "Dead" || a.ErrorCode != 0 || b.State != "Empty" || a.AuthorizedOperations != -1<<31 {
				t.Errorf("%+v", resp.Groups)
			}
		})
	})
}
