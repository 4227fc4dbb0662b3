package partition

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
)

func TestProduceIsAnsweredByItsAcks(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		for _, acks := range []int16{0, 1} {
			ch := r.produce(tpA, acks, batch(2, "v"))
			if pending(ch) {
				t.Fatalf("acks=%d waits", acks)
			}
			wantErr(t, "append", (<-ch).Err, nil)
		}
		all := r.produce(tpA, -1, batch(3, "v"))
		if !pending(all) {
			t.Fatal("acks=-1 answered before the follower has the records")
		}
		r.fetch(2, from(tpA, 4)) // the follower has 0..3
		if !pending(all) {
			t.Fatal("acks=-1 answered with a part of its records on the follower")
		}
		r.hw(tpA, 4)
		r.fetch(2, from(tpA, 7))
		if pending(all) {
			t.Fatal("acks=-1 not woken by the fetch that commits it")
		}
		res := <-all
		if res.Err != nil || res.BaseOffset != 4 || res.LastOffset != 6 {
			t.Errorf("got %+v", res)
		}
		wantErr(t, "acks=2", (<-r.produce(tpA, 2, batch(1, "v"))).Err, kerr.InvalidRequiredAcks)
		if got := r.m.Partition(tpA).EndOffset(); got != 7 {
			t.Errorf("end %d", got)
		}
	})
}

func TestProduceTimesOutButMayStillCommit(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		start := time.Now()
		ch := r.produce(tpA, -1, batch(1, "v"))
		res := <-ch
		wantErr(t, "append", res.Err, kerr.RequestTimedOut)
		if d := time.Since(start); d < time.Second || d > time.Second+3*time.Millisecond {
			t.Errorf("timed out after %v", d)
		}
		r.fetch(2, from(tpA, 1))
		r.hw(tpA, 1)
		if !pending(ch) {
			t.Error("answered twice")
		}
	})
}

func TestMinISRGuardsAcksAllOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.minISR = 2
		r.lead(tpA, 1, 1)
		wantErr(t, "acks=-1", (<-r.produce(tpA, -1, batch(1, "v"))).Err, kerr.NotEnoughReplicas)
		if got := r.m.Partition(tpA).EndOffset(); got != 0 {
			t.Errorf("a refused produce was appended: end %d", got)
		}
		r.put(tpA, 1, "v")
		r.hw(tpA, 0) // nothing is committed below min.insync.replicas

		// The set shrinks while a produce waits; then it is committed by too few.
		r.lead(tpA, 2, 1, 2)
		ch := r.produce(tpA, -1, batch(1, "v"))
		r.fetch(2, from(tpA, 1))
		r.hw(tpA, 1)
		time.Sleep(50 * time.Millisecond)
		r.m.Partition(tpA).shrink(time.Now().Add(time.Hour))
		c := r.nextChange()
		if c == nil || len(c.ISR) != 1 {
			t.Fatalf("proposal %+v", c)
		}
		c.agree()
		if !pending(ch) {
			t.Fatal("answered although the high watermark stands")
		}
		r.minISR, r.alive = 1, map[int32]bool{1: true} // a live 2 would still be waited for
		r.m.UpdateTopicConfig("a")
		wantErr(t, "append", (<-ch).Err, nil)
		r.hw(tpA, 2)
	})
}

func TestTooFewReplicasAfterAppend(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.minISR = 2
		r.lead(tpA, 1, 1, 2)
		ch := r.produce(tpA, -1, batch(1, "v"))
		p := r.m.Partition(tpA)
		// Committed by two, and shrunk before anyone looked.
		p.state.Lock()
		p.hw, p.isr = 1, []int32{1}
		p.state.Unlock()
		p.changed(true)
		wantErr(t, "append", (<-ch).Err, kerr.NotEnoughReplicasAfterAppend)
	})
}

func TestLostLeadershipEndsWaitingProduces(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		ch := r.produce(tpA, -1, batch(1, "v"))
		r.follow(tpA, 2, 2)
		// Both say who leads now: a stock client that is not told waits for seconds.
		for what, res := range map[string]AppendResult{"append": <-ch, "later append": <-r.produce(tpA, 1, batch(1, "v"))} {
			wantErr(t, what, res.Err, kerr.NotLeaderForPartition)
			if res.Leader != 2 || res.LeaderEpoch != 2 {
				t.Errorf("%s: told of leader %d in epoch %d", what, res.Leader, res.LeaderEpoch)
			}
		}

		// A bumped epoch of the same leader does not.
		r.lead(tpA, 3, 1, 2)
		ch = r.produce(tpA, -1, batch(1, "v"))
		r.lead(tpA, 4, 1, 2)
		if !pending(ch) {
			t.Fatal("answered")
		}
		r.fetch(2, from(tpA, 2))
		wantErr(t, "append", (<-ch).Err, nil)
	})
}

// Between two looks of a waiting produce leadership may go and come back, with
// other records at its offsets by then.
func TestAcknowledgementIsVoidOnceLeadershipWasLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.put(tpA, 1, "v")
		p := r.m.Partition(tpA)
		if done, err := p.acked(1, p.term); !done || err != nil {
			t.Fatalf("done %v, %v", done, err)
		}
		old := p.term
		r.follow(tpA, 2, 2)
		r.lead(tpA, 3, 1)
		done, err := p.acked(1, old)
		if !done {
			t.Error("still waits")
		}
		wantErr(t, "old append", err, kerr.NotLeaderForPartition)
	})
}

func TestProduceErrorsByPartition(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.follow(tpB, 2, 5)
		bad := batch(1, "v")
		bad[len(bad)-1] ^= 1
		es := []AppendEntry{
			{TP: tpA, Records: batch(1, "v")},
			{TP: tpB, Records: batch(1, "v")},
			{TP: TopicPartition{Topic: "nowhere"}, Records: batch(1, "v")},
			{TP: TopicPartition{Topic: "elsewhere"}, Records: batch(1, "v")},
			{TP: TopicPartition{Topic: "__consumer_offsets"}, Records: batch(1, "v")},
			{TP: tpA, Records: bad},
			{TP: tpA, TopicID: [16]byte{1}, Records: batch(1, "v")},
			{TP: tpA, Records: batch(1, "v")},
		}
		want := []error{
			nil, kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.InvalidTopicException,
			kerr.CorruptMessage, kerr.InconsistentTopicID, nil,
		}
		ch := make(chan []AppendResult, 1)
		r.m.Append(AppendRequest{Acks: -1, Timeout: time.Second, Entries: es}, func(rs []AppendResult) { ch <- rs })
		got := <-ch
		for i := range want {
			wantErr(t, es[i].TP.String(), got[i].Err, want[i])
			if (want[i] == nil) != (got[i].BaseOffset >= 0) {
				t.Errorf("%d: base offset %d with %v", i, got[i].BaseOffset, got[i].Err)
			}
		}
		if got[1].Leader != 2 || got[1].LeaderEpoch != 5 {
			t.Errorf("hint %d at %d", got[1].Leader, got[1].LeaderEpoch)
		}
		if got[7].BaseOffset != 1 {
			t.Errorf("one entry's failure moved another: %d", got[7].BaseOffset)
		}
	})
}

func TestHooksSeeAppendsBeforeCommitsAndDuplicatesTakenBack(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 5, 0, 0
		mk := func() []byte {
			b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("x")}})
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		first := <-r.produce(tpA, -1, mk())
		again := <-r.produce(tpA, -1, mk())
		if first.Err != nil || again.Err != nil || !again.Duplicate || again.BaseOffset != first.BaseOffset || again.Bytes != 0 {
			t.Errorf("first %+v, again %+v", first, again)
		}
		// The duplicate was told of too, since what is written must have been told
		// before, and taken back at once.
		if len(r.appends) != 2 || r.appends[1].BaseOffset != 1 || !slices.Equal(r.truncs, []int64{1}) {
			t.Errorf("appends %+v, taken back %v", r.appends, r.truncs)
		}
		if r.appends[0].Principal != "User:p" || r.appends[0].Bytes != len(mk()) || r.appends[0].Records != 1 {
			t.Errorf("appends %+v", r.appends)
		}
		if len(r.commits) != 1 || r.commits[0] != 1 {
			t.Errorf("commits %v", r.commits)
		}
		r.follow(tpA, 2, 2)
		if err := r.m.Partition(tpA).TruncateTo(2, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.truncs, []int64{1, 0}) {
			t.Errorf("truncations %v", r.truncs)
		}
	})
}

func TestCloseEndsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, minISR: 1}
		r.fs = newMem()
		r.start()
		r.lead(tpA, 1, 1, 2)
		produce := r.produce(tpA, -1, batch(1, "v"))
		fetch := r.fetchAsync(-1, from(tpA, 0), time.Minute, 1)
		r.stop()
		wantErr(t, "produce", (<-produce).Err, kerr.RequestTimedOut)
		res := <-fetch
		res.Slice.Close()
	})
}
