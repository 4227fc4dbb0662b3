package partition

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

func (r *rig) committed(tp TopicPartition, timeout time.Duration) chan error {
	ch := make(chan error, 2) // a second answer would be seen
	r.m.AwaitCommitted(tp, timeout, func(err error) { ch <- err })
	return ch
}

func TestAwaitCommittedGoesByTheWatermarkAndTheLeadership(t *testing.T) {
	inBubble(t, func(r *rig) {
		wantErr(t, "a partition that is not here", <-r.committed(tpA, time.Minute), kerr.UnknownTopicOrPartition)
		r.lead(tpA, 1, 1, 2)
		wantErr(t, "an empty log", <-r.committed(tpA, time.Minute), nil)

		r.produce(tpA, 1, batch(2, "v"))
		ch := r.committed(tpA, time.Minute)
		r.produce(tpA, 1, batch(1, "v")) // later than the question
		r.fetch(2, from(tpA, 1))
		if !pending(ch) {
			t.Fatal("answered while a part is not committed")
		}
		r.fetch(2, from(tpA, 2))
		wantErr(t, "committed", <-ch, nil)

		began := time.Now()
		wantErr(t, "out of time", <-r.committed(tpA, time.Second), kerr.RequestTimedOut)
		if d := time.Since(began); d < time.Second {
			t.Errorf("timed out after %v", d)
		}
		ch = r.committed(tpA, time.Minute)
		r.follow(tpA, 2, 2)
		if pending(ch) {
			t.Fatal("not woken by the end of the leadership")
		}
		wantErr(t, "leadership lost", <-ch, kerr.NotLeaderForPartition)
	})
}
