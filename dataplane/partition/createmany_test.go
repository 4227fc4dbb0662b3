package partition

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/vfs"
)

// orderMany makes this broker the only replica of that many new partitions, in one request that names each twice.
func (r *rig) orderMany(topic string, n int32) (failed int) {
	r.t.Helper()
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID = topic, theID
	for i := range 2 * n {
		s := kmsg.NewLeaderAndISRRequestTopicPartition()
		s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch, s.ISR, s.Replicas, s.IsNew = i%n, 1, 1, 1, []int32{1}, []int32{1}, true
		ts.PartitionStates = append(ts.PartitionStates, s)
	}
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.ControllerEpoch, req.BrokerEpoch, req.TopicStates = 1, 50, append(req.TopicStates, ts)
	for _, p := range r.m.LeaderAndISR(req).Topics[0].Partitions[:n] {
		if p.ErrorCode != 0 {
			failed++
		}
	}
	return failed
}

func TestReplicasOfOneRequestAreSpreadOverTheFolders(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		for round, n := range []int32{50, 1, 31} {
			if failed := r.orderMany(fmt.Sprint("many-", round), n); failed > 0 {
				t.Fatalf("%d of %d not made", failed, n)
			}
			count := map[string]int{}
			for _, p := range r.m.Partitions() {
				count[p.dir().Path()]++
				if p.TopicID() != theID {
					t.Errorf("%v has id %v", p.TP(), p.TopicID())
				}
			}
			if d := count["/one"] - count["/two"]; d < -1 || d > 1 {
				t.Errorf("after %d: %v", n, count)
			}
		}
		had := len(r.m.Partitions())
		r.restart()
		if now := len(r.m.Partitions()); now != had {
			t.Errorf("%d replicas after the restart, %d before", now, had)
		}
	})
}

// A folder that fails while many are made costs none of them: all go to the other one.
func TestReplicasOfOneRequestGoToTheFolderThatWorks(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpMkdir, vfs.OpSync, vfs.OpRename} {
		inTwoDirs(t, func(o vfs.Op, name string) bool { return o == op && strings.Contains(name, "/one/many-") }, func(r *rig) {
			if failed := r.orderMany("many", 20); failed > 0 {
				t.Errorf("%v: %d not made", op, failed)
			}
			for _, p := range r.m.Partitions() {
				if at := p.dir().Path(); at != "/two" {
					t.Errorf("%v: %v lies in %s", op, p.TP(), at)
				}
			}
			if res := <-r.produce(TopicPartition{Topic: "many", Partition: 7}, 1, batch(1, "v")); res.Err != nil {
				t.Errorf("%v: %v", op, res.Err)
			}
		})
	}
	inTwoDirs(t, func(o vfs.Op, name string) bool { return o == vfs.OpMkdir && strings.Contains(name, "/many-") }, func(r *rig) {
		r.sole(tpA, 1)
		if failed := r.orderMany("many", 20); failed != 20 {
			t.Errorf("%d of 20 refused though no folder works", failed)
		}
		wantErr(t, "another", r.orderNew(tpB, 1, 1, true), kerr.KafkaStorageError)
	})
}
