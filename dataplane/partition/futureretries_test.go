package partition

import (
	"bytes"
	"testing"

	"penstock/dataplane/recordbatch"
)

// What a producer has in flight is known in the new folder, too, though all of it was
// deleted before the copy began.
func TestMovedReplicaKnowsRetries(t *testing.T) {
	for _, deleted := range []int64{0, 6, 14} {
		inTwoDirs(t, nil, func(r *rig) {
			r.sole(tpA, 1)
			var sent [][]byte
			send := func(b []byte) int64 {
				t.Helper()
				res := <-r.produce(tpA, 1, b)
				if res.Err != nil {
					t.Fatal(res.Err)
				}
				return res.BaseOffset
			}
			for i := range 7 {
				o := recordbatch.NoProducer()
				o.ProducerID, o.ProducerEpoch, o.BaseSequence = 5, 0, int32(2*i)
				b, err := recordbatch.Build(o, []recordbatch.Record{{Value: []byte("v")}, {Value: []byte("w")}})
				if err != nil {
					t.Fatal(err)
				}
				sent = append(sent, bytes.Clone(b))
				send(b)
			}
			if deleted > 0 {
				<-r.deleteTo(tpA, deleted)
			}
			for _, to := range []string{"/two", "/one"} {
				wantErr(t, "move", r.m.MoveReplica(tpA, to), nil)
				if r.settled(tpA); r.dirOf(tpA) != to {
					t.Fatalf("it lies in %s", r.dirOf(tpA))
				}
				for i := 2; i < len(sent); i++ {
					if at := send(bytes.Clone(sent[i])); at != int64(2*i) {
						t.Errorf("%d deleted: the batch at %d came again, to %d", deleted, 2*i, at)
					}
				}
			}
		})
	}
}
