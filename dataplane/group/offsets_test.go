package group

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

func TestCommitIsVisibleOnlyWhenStored(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.log.set(func(l *memLog) { l.hold = true })
		f := e.commitAsync(commitReq("", -1, "t", 0, 10))
		f.mustWait()
		if got := e.committed("t", 0); got != -1 {
			t.Errorf("offset %d is visible before it is stored", got)
		}
		e.log.release(nil)
		wantCode(t, f.wait().Topics[0].Partitions[0].ErrorCode, nil)
		if got := e.committed("t", 0); got != 10 {
			t.Errorf("offset %d, want 10", got)
		}
	})
}

func TestLastCommitWinsInWhateverOrderAnswersCome(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.log.set(func(l *memLog) { l.hold = true })
		for i := range int64(5) {
			e.commitAsync(commitReq("", -1, "t", 0, i))
		}
		e.log.release(nil) // answers the last append first
		if got := e.committed("t", 0); got != 4 {
			t.Errorf("offset %d, want 4", got)
		}
		e.move()
		if got := e.committed("t", 0); got != 4 {
			t.Errorf("offset %d after the move, want 4", got)
		}
	})
}

func TestCommitInEachState(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("m", 1, "t", 0, 1), kerr.IllegalGeneration) // no such group
		ids, gen := e.stable(2)
		wantCode(t, e.commit(ids[0], gen, "t", 0, 1), nil)
		wantCode(t, e.commit(ids[0], gen-1, "t", 0, 2), kerr.IllegalGeneration)
		wantCode(t, e.commit("nobody", gen, "t", 0, 2), kerr.UnknownMemberID)
		wantCode(t, e.commit("", -1, "t", 0, 2), kerr.UnknownMemberID) // members own the group

		f := e.joinAsync(joinReq(7, ids[0])) // PreparingRebalance: the old generation may commit
		wantCode(t, e.commit(ids[1], gen, "t", 0, 3), nil)
		g := e.joinAsync(joinReq(7, ids[1]))
		f.wait()
		g.wait()
		e.wantState("CompletingRebalance")
		wantCode(t, e.commit(ids[1], gen+1, "t", 0, 4), kerr.RebalanceInProgress)
		wantCode(t, e.syncAsync(ids[0], gen+1, nil).wait().ErrorCode, nil)
		wantCode(t, e.commit(ids[1], gen+1, "t", 0, 5), nil)

		e.leave(kmsg.LeaveGroupRequestMember{MemberID: ids[0]}, kmsg.LeaveGroupRequestMember{MemberID: ids[1]})
		e.wantState("Empty")
		wantCode(t, e.commit(ids[1], gen+1, "t", 0, 6), kerr.UnknownMemberID)
		wantCode(t, e.commit("", -1, "t", 0, 7), nil) // nobody owns the group: an operator may
		if got := e.committed("t", 0); got != 7 {
			t.Errorf("offset %d, want 7", got)
		}
	})
}

func TestCommitKeepsTheSessionAlive(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(1)
		for range 30 {
			time.Sleep(time.Second)
			wantCode(t, e.commit(ids[0], gen, "t", 0, 1), nil)
		}
	})
}

func TestCommitErrorsOfTheStorage(t *testing.T) {
	for _, c := range []struct{ stored, told *kerr.Error }{
		{kerr.NotEnoughReplicas, kerr.CoordinatorNotAvailable},
		{kerr.NotEnoughReplicasAfterAppend, kerr.CoordinatorNotAvailable},
		{kerr.UnknownTopicOrPartition, kerr.CoordinatorNotAvailable},
		{kerr.NotLeaderForPartition, kerr.NotCoordinator},
		{kerr.KafkaStorageError, kerr.NotCoordinator},
		{kerr.MessageTooLarge, kerr.InvalidCommitOffsetSize},
		{kerr.RecordListTooLarge, kerr.InvalidCommitOffsetSize},
		{kerr.RequestTimedOut, kerr.RequestTimedOut},
	} {
		t.Run(c.stored.Message, func(t *testing.T) {
			run(t, Config{}, func(e *env) {
				e.log.set(func(l *memLog) { l.fail = c.stored })
				wantCode(t, e.commit("", -1, "t", 0, 1), c.told)
				if got := e.committed("t", 0); got != -1 {
					t.Errorf("offset %d of a commit that failed", got)
				}
			})
		})
	}
}

func TestCommitMetadataTooLargeSparesTheOthers(t *testing.T) {
	run(t, Config{}, func(e *env) {
		r := commitReq("", -1, "t", 0, 1)
		r.Topics[0].Partitions[0].Metadata = new(strings.Repeat("x", 4097))
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.OffsetCommitRequestTopicPartition{
			Partition: 1, Offset: 2, Metadata: new(strings.Repeat("x", 4096)),
		})
		got := e.commitAsync(r).wait().Topics[0].Partitions
		wantCode(t, got[0].ErrorCode, kerr.OffsetMetadataTooLarge)
		wantCode(t, got[1].ErrorCode, nil)
		if a, b := e.committed("t", 0), e.committed("t", 1); a != -1 || b != 2 {
			t.Errorf("committed %d and %d, want -1 and 2", a, b)
		}
	})
}

// Asking for what was never committed is no error: consumers would stop.
func TestFetchOfTheUnknownIsMinusOne(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("", -1, "known", 0, 7), nil)
		for _, c := range []struct {
			group, topic string
			partition    int32
		}{{"never used", "known", 0}, {"g", "unknown", 0}, {"g", "known", 1}} {
			resp := e.fetch(c.group, c.topic, c.partition)
			p := resp.Topics[0].Partitions[0]
			if resp.ErrorCode != 0 || p.ErrorCode != 0 || p.Offset != -1 || p.LeaderEpoch != -1 || p.Metadata == nil || *p.Metadata != "" {
				t.Errorf("%v: %+v", c, resp)
			}
		}
		if all := e.fetch("never used", ""); all.ErrorCode != 0 || len(all.Topics) != 0 {
			t.Errorf("all of an unknown group: %+v", all)
		}
		all := e.fetch("g", "")
		if len(all.Topics) != 1 || all.Topics[0].Topic != "known" {
			t.Fatalf("all: %+v", all)
		}
		if p := all.Topics[0].Partitions[0]; p.Offset != 7 || p.LeaderEpoch != 5 || *p.Metadata != "note" {
			t.Errorf("%+v", p)
		}
	})
}

func TestDeletedGroupStaysGone(t *testing.T) {
	run(t, Config{}, func(e *env) {
		ids, gen := e.stable(1)
		wantCode(t, e.commit(ids[0], gen, "t", 0, 10), nil)
		got := e.deleteAsync("g", "unknown").wait()
		wantCode(t, got.Groups[0].ErrorCode, kerr.NonEmptyGroup)
		wantCode(t, got.Groups[1].ErrorCode, kerr.GroupIDNotFound)
		e.leave(kmsg.LeaveGroupRequestMember{MemberID: ids[0]})

		e.log.set(func(l *memLog) { l.hold = true })
		f := e.deleteAsync("g")
		f.mustWait() // not before the tombstones are stored
		wantCode(t, e.join(joinReq(7, "")).ErrorCode, kerr.CoordinatorNotAvailable)
		wantCode(t, e.commit("", -1, "t", 0, 11), kerr.CoordinatorNotAvailable)
		e.log.release(nil)
		wantCode(t, f.wait().Groups[0].ErrorCode, nil)
		wantCode(t, e.deleteAsync("g").wait().Groups[0].ErrorCode, kerr.GroupIDNotFound)
		e.wantState("Dead")
		if n := len(e.log.live(0)); n != 0 {
			t.Errorf("%d records left without a tombstone", n)
		}
		e.move()
		e.wantState("Dead")
		if got := e.committed("t", 0); got != -1 {
			t.Errorf("offset %d of a deleted group is back", got)
		}
		wantCode(t, e.commit("", -1, "t", 1, 3), nil) // starts afresh
		if a, b := e.committed("t", 0), e.committed("t", 1); a != -1 || b != 3 {
			t.Errorf("committed %d and %d, want -1 and 3", a, b)
		}
	})
}

func TestDeleteThatCannotBeStoredLeavesTheGroup(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("", -1, "t", 0, 10), nil)
		e.log.set(func(l *memLog) { l.fail = kerr.RequestTimedOut })
		wantCode(t, e.deleteAsync("g").wait().Groups[0].ErrorCode, kerr.CoordinatorNotAvailable)
		e.log.set(func(l *memLog) { l.fail = nil })
		if got := e.committed("t", 0); got != 10 {
			t.Errorf("offset %d, want 10", got)
		}
		wantCode(t, e.commit("", -1, "t", 0, 11), nil)
	})
}

// A commit that was answered with an error may be in the log all the same, and
// must not bring a deleted group back.
func TestDeleteCoversCommitsThatFailed(t *testing.T) {
	run(t, Config{}, func(e *env) {
		wantCode(t, e.commit("", -1, "t", 0, 10), nil)
		e.log.set(func(l *memLog) { l.hold = true })
		f := e.commitAsync(commitReq("", -1, "t", 1, 5))
		f.mustWait()
		e.log.release(kerr.RequestTimedOut) // appended, and too late
		wantCode(t, f.wait().Topics[0].Partitions[0].ErrorCode, kerr.RequestTimedOut)
		wantCode(t, e.deleteAsync("g").wait().Groups[0].ErrorCode, nil)
		if n := len(e.log.live(0)); n != 0 {
			t.Errorf("%d records left without a tombstone", n)
		}
	})
}

func TestOffsetsExpire(t *testing.T) {
	const day = 24 * time.Hour
	cfg := Config{OffsetsRetention: 7 * day}
	t.Run("of an empty group from when it became empty", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			ids, gen := e.stable(1, func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1_800_000 })
			wantCode(t, e.commit(ids[0], gen, "t", 0, 1), nil)
			for range 5 * 24 * 4 {
				time.Sleep(15 * time.Minute)
				wantCode(t, e.heartbeat(ids[0], gen), nil)
			}
			e.leave(kmsg.LeaveGroupRequestMember{MemberID: ids[0]})
			time.Sleep(6 * day)
			e.move() // the time survives a move
			time.Sleep(day - 20*time.Minute)
			if got := e.committed("t", 0); got != 1 {
				t.Fatalf("offset %d expired early", got)
			}
			time.Sleep(40 * time.Minute)
			if got := e.committed("t", 0); got != -1 {
				t.Fatalf("offset %d did not expire", got)
			}
			e.wantState("Dead")
			if n := len(e.log.live(0)); n != 0 {
				t.Errorf("%d records left without a tombstone", n)
			}
		})
	})
	t.Run("of a consumer without a group from the commit", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			e.commit("", -1, "t", 0, 1)
			time.Sleep(4 * day)
			e.commit("", -1, "t", 1, 1)
			time.Sleep(4 * day)
			if a, b := e.committed("t", 0), e.committed("t", 1); a != -1 || b != 1 {
				t.Errorf("committed %d and %d, want -1 and 1", a, b)
			}
		})
	})
	t.Run("by the commit's own retention", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			r := commitReq("", -1, "t", 0, 1)
			r.Version, r.RetentionTimeMillis = 2, time.Hour.Milliseconds()
			e.commitAsync(r).wait()
			e.move()
			time.Sleep(50 * time.Minute)
			if got := e.committed("t", 0); got != 1 {
				t.Fatalf("offset %d expired early", got)
			}
			time.Sleep(20 * time.Minute)
			if got := e.committed("t", 0); got != -1 {
				t.Fatalf("offset %d did not expire", got)
			}
		})
	})
	t.Run("of a live group only where nobody subscribes", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			meta := kmsg.NewConsumerMemberMetadata()
			meta.Topics = []string{"t"}
			ids, gen := e.stable(1, func(r *kmsg.JoinGroupRequest) {
				r.SessionTimeoutMillis = 1_800_000
				r.Protocols[0].Metadata = meta.AppendTo(nil)
			})
			e.commit(ids[0], gen, "t", 0, 1)
			e.commit(ids[0], gen, "left", 0, 1)
			for range 8 * 24 * 4 {
				time.Sleep(15 * time.Minute)
				wantCode(t, e.heartbeat(ids[0], gen), nil)
			}
			if a, b := e.committed("t", 0), e.committed("left", 0); a != 1 || b != -1 {
				t.Errorf("committed %d and %d, want 1 and -1", a, b)
			}
		})
	})
	t.Run("not while a commit is on its way", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			e.commit("", -1, "t", 0, 1)
			time.Sleep(7*day - time.Minute)
			e.log.set(func(l *memLog) { l.hold = true })
			f := e.commitAsync(commitReq("", -1, "t", 0, 2))
			time.Sleep(time.Hour)
			e.log.release(nil)
			f.wait()
			time.Sleep(time.Hour)
			if got := e.committed("t", 0); got != 2 {
				t.Errorf("offset %d, want 2", got)
			}
		})
	})
	t.Run("not if the tombstones cannot be stored", func(t *testing.T) {
		run(t, cfg, func(e *env) {
			e.commit("", -1, "t", 0, 1)
			e.log.set(func(l *memLog) { l.fail = kerr.NotEnoughReplicas })
			time.Sleep(8 * day)
			if got := e.committed("t", 0); got != 1 {
				t.Fatalf("offset %d, want 1: the log has it still", got)
			}
			e.log.set(func(l *memLog) { l.fail = nil })
			time.Sleep(time.Hour)
			if got := e.committed("t", 0); got != -1 {
				t.Fatalf("offset %d did not expire", got)
			}
		})
	})
}

func TestOffsetsOfDeletedTopicsAreForgotten(t *testing.T) {
	run(t, Config{}, func(e *env) {
		e.commit("", -1, "t", 0, 1)
		e.commit("", -1, "t", 1, 2)
		e.c.OnPartitionsDeleted([]protocol.TopicPartition{{Topic: "t", Partition: 0}})
		time.Sleep(time.Second)
		for range 2 {
			if a, b := e.committed("t", 0), e.committed("t", 1); a != -1 || b != 2 {
				t.Errorf("committed %d and %d, want -1 and 2", a, b)
			}
			e.move()
		}
	})
}
