package partition

import (
	"math/rand"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/vfs"
)

// leadMany orders n replicas of the topic at once.
func leadMany(r *rig, n, epoch int32, isNew bool) {
	r.t.Helper()
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID = "many", theID
	for i := range n {
		s := kmsg.NewLeaderAndISRRequestTopicPartition()
		s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch, s.ISR, s.Replicas, s.IsNew = i, 1, 1, epoch, []int32{1}, []int32{1}, isNew
		ts.PartitionStates = append(ts.PartitionStates, s)
	}
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.ControllerEpoch, req.BrokerEpoch = 1, 50
	req.TopicStates = append(req.TopicStates, ts)
	for _, p := range r.m.LeaderAndISR(req).Topics[0].Partitions {
		if p.ErrorCode != 0 {
			r.t.Fatalf("partition %d: %d", p.Partition, p.ErrorCode)
		}
	}
}

func TestManyReplicasAreMadeLedAndClosedWithFewSyncs(t *testing.T) {
	const n = 60
	var syncs atomic.Int64
	fsys := &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, _ string) error {
		if op == vfs.OpSync || op == vfs.OpSyncDir {
			syncs.Add(1)
		}
		return nil
	}}
	r := &rig{t: t, fs: fsys, minISR: 1}
	r.start()
	defer func() { r.stop() }()
	took := func(what string, most int64, f func()) {
		t.Helper()
		before := syncs.Load()
		f()
		if got := syncs.Load() - before; got > most {
			t.Errorf("%s made %d syncs for %d replicas, at most %d were expected", what, got, n, most)
		}
	}
	took("making them", n+1, func() { leadMany(r, n, 0, true) })
	took("leading them again", 0, func() { leadMany(r, n, 1, false) })
	for i := range int32(n) {
		r.put(TopicPartition{Topic: "many", Partition: i}, 1, "v")
	}
	r.restart()
	took("opening and leading them", 0, func() { leadMany(r, n, 2, false) })
	for i := range int32(n) {
		p := r.m.Partition(TopicPartition{Topic: "many", Partition: i})
		if p == nil || p.TopicID() != theID || p.EndOffset() != 1 {
			t.Fatalf("replica %d is not what it was", i)
		}
	}
	took("closing them without an append", 20, r.stop)
	r.start()
}

// A power cut at any time after the order was answered must find every replica, or
// at least no folder of another topic's.
func TestAReplicasFolderIsOnDiskWhenTheOrderIsAnswered(t *testing.T) {
	mem := vfs.NewMem()
	r := &rig{t: t, fs: mem, minISR: 1}
	r.start()
	defer func() { r.stop() }()
	if err := mem.SyncDir("/"); err != nil { // the log folder itself is the operator's
		t.Fatal(err)
	}
	leadMany(r, 20, 0, true)
	for seed := range int64(20) {
		after := mem.Crash(rand.New(rand.NewSource(seed)))
		es, err := after.ReadDir("/data")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, e := range es {
			if e.Dir {
				found++
				id, ok, err := commitlog.ReadTopicID(after, "/data/"+e.Name)
				if err != nil || ok && id != theID {
					t.Fatalf("%s: topic id %v, %v", e.Name, id, err)
				}
			}
		}
		if found != 20 {
			t.Fatalf("seed %d: %d folders of 20 are there", seed, found)
		}
	}
}
