package partition

import (
	"fmt"
	"testing"
)

// A truncation inside a gap of compaction leaves a log that ends above its last batch,
// and with all deleted up to there it starts there, too.
func TestReplicaThatEndsInAGapMoves(t *testing.T) {
	for _, start := range []int64{0, 12, 15} {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("from %d, copied before the cut: %v", start, early), func(t *testing.T) {
				inTwoDirs(t, nil, func(r *rig) {
					wantErr(t, "order", r.orderNew(tpA, 2, 1, true), nil)
					p := r.m.Partition(tpA)
					add := func(at, base, hw, start int64) {
						t.Helper()
						if _, err := p.AppendFollower(1, at, batchAt(base, 1, 5, "v"), hw, start); err != nil {
							t.Fatal(err)
						}
					}
					add(0, 5, 0, 0)
					add(10, 20, 15, start)
					resume := func() {}
					if early {
						resume = r.stalled()
						wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
						f, buf := p.copying(), make([]byte, 1000)
						for f.log.EndOffset() < 25 {
							p.copyStep(f, &buf)
						}
					}
					wantErr(t, "cut", p.TruncateTo(1, 15), nil)
					if got := p.EndOffset(); got != 15 {
						t.Fatalf("the cut log ends at %d", got)
					}
					if !early {
						wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
					}
					resume()
					if current, future, _ := r.settled(tpA); fmt.Sprint(current, future) != "[/two] []" {
						t.Fatalf("replica in %v, copy in %v", current, future)
					}
					add(15, 15, 20, start)
					r.restart()
					if p := r.m.Partition(tpA); p.EndOffset() != 20 || p.StartOffset() != start {
						t.Errorf("%d to %d", p.StartOffset(), p.EndOffset())
					}
				})
			})
		}
	}
}
