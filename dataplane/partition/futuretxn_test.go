package partition

import (
	"fmt"
	"testing"
	"testing/synctest"

	"penstock/dataplane/commitlog"
)

func TestMovedReplicaKeepsItsTransactions(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.txn(tpA, txnBatch(1, 0, 3))   // 0 to 2, aborted by 3
		r.txn(tpA, txnMarker(1, true))  //
		r.txn(tpA, txnBatch(2, 0, 2))   // 4 and 5, committed by 6
		r.txn(tpA, txnMarker(2, false)) //
		r.txn(tpA, txnBatch(3, 0, 2))   // 7 and 8, open
		aborted := commitlog.AbortedTransaction{ProducerID: 1, FirstOffset: 0}
		r.wantCommitted(tpA, 0, 6, 7, 9, aborted)
		for _, to := range []string{"/two", "/one"} {
			wantErr(t, "move", r.m.MoveReplica(tpA, to), nil)
			synctest.Wait()
			if got := r.dirOf(tpA); got != to {
				t.Fatalf("it lies in %s", got)
			}
			r.wantCommitted(tpA, 0, 6, 7, 9, aborted)
		}
		// The open one goes on where it was, sequence and all, and ends.
		if res := r.txn(tpA, txnBatch(3, 2, 1)); res.BaseOffset != 9 {
			t.Errorf("appended at %d", res.BaseOffset)
		}
		r.txn(tpA, txnMarker(3, true))
		r.wantCommitted(tpA, 7, 10, 11, 11, commitlog.AbortedTransaction{ProducerID: 3, FirstOffset: 7})
		if current, future, rest := r.settled(tpA); fmt.Sprint(current, future) != "[/one] []" || len(rest) != 2 {
			t.Errorf("%v %v %v", current, future, rest)
		}
	})
}
