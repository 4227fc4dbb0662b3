package partition

import (
	"testing"
	"testing/synctest"
	"time"
)

// sentAway starts an answer that says that tp is led elsewhere.
func (r *rig) sentAway(tps ...TopicPartition) chan struct{} {
	done := make(chan struct{}, 2)
	r.m.AwaitSuccessors(tps, func() { done <- struct{}{} })
	return done
}

func TestAnswersWaitForTheSuccessorThatServesItsFollowers(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.lead(tpB, 1, 1, 2)
		if r.m.HandingOver() {
			t.Error("a leader hands over")
		}
		r.follow(tpA, 2, 2)
		p := r.m.Partition(tpA)
		if !r.m.HandingOver() || !p.AwaitsLeader() {
			t.Fatal("no successor is awaited")
		}
		a, b := r.sentAway(tpB, tpA), r.sentAway(tpB, TopicPartition{Topic: "elsewhere"})
		if pending(b) {
			t.Error("an answer waits for a partition that does not move")
		}
		p.LeaderServes(1)
		if !pending(a) {
			t.Error("an answer does not wait, though it was another epoch's leader that served")
		}
		p.LeaderServes(2)
		if pending(a) || r.m.HandingOver() {
			t.Error("an answer still waits")
		}
		if c := r.sentAway(tpA); pending(c) {
			t.Error("a later answer waits")
		}
	})
}

func TestAnswersDoNotWaitForASuccessorForEver(t *testing.T) {
	for name, over := range map[string]func(r *rig){
		"time is up":                     func(*rig) { time.Sleep(handoverMax) },
		"it leads again":                 func(r *rig) { r.lead(tpA, 3, 1, 2) },
		"nobody leads":                   func(r *rig) { r.follow(tpA, -1, 3) },
		"it is told to copy no more":     func(r *rig) { wantErr(r.t, "stop", r.stopReplica(tpA, 2, false), nil) },
		"it is deleted":                  func(r *rig) { wantErr(r.t, "deletion", r.stopReplica(tpA, 2, true), nil) },
		"its folder has failed":          func(r *rig) { r.m.failDir(r.dir, errDisk); synctest.Wait() },
		"the broker stops in the middle": func(r *rig) { _ = r.m.Close() },
	} {
		inBubble(t, func(r *rig) {
			r.lead(tpA, 1, 1, 2)
			r.follow(tpA, 2, 2)
			a := r.sentAway(tpA)
			if !pending(a) {
				t.Errorf("%s: it does not wait at all", name)
			}
			over(r)
			if pending(a) {
				t.Errorf("%s: it waits on", name)
			}
		})
	}
}

// A follower from the start has had no clients to keep.
func TestFollowersAwaitNoSuccessor(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 1)
		r.follow(tpA, 3, 2)
		if r.m.HandingOver() || r.m.Partition(tpA).AwaitsLeader() {
			t.Error("a successor is awaited")
		}
	})
}
