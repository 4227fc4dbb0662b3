package partition

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

func benchManager(b *testing.B) *Manager {
	fs := vfs.NewMem()
	dir, err := commitlog.OpenDir(fs, "/data")
	if err != nil {
		b.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	m, err := NewManager(context.Background(), Config{
		BrokerID: 1, FS: fs, Dirs: []*commitlog.Dir{dir}, Wheel: wheel,
		Topic: func(string) TopicConfig { return TopicConfig{MinISR: 1} },
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Close(); err != nil {
			b.Error(err)
		}
		wheel.Close()
		_ = dir.Close(true)
	})
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Leader, s.ISR, s.Replicas = 1, []int32{1, 2}, []int32{1, 2}
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID, ts.PartitionStates = "a", theID, append(ts.PartitionStates, s)
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.BrokerEpoch, req.TopicStates = -1, append(req.TopicStates, ts)
	m.LeaderAndISR(req)
	return m
}

// One produce of 1 KiB with acks=-1 and the follower's fetch that commits it.
func BenchmarkProduceAndReplicate(b *testing.B) {
	m := benchManager(b)
	records := batch(1, string(make([]byte, 1024)))
	produce := AppendRequest{Acks: -1, Timeout: time.Minute, ProduceVersion: 9, Entries: []AppendEntry{{TP: tpA, Records: records}}}
	acked := 0
	done := func(rs []AppendResult) {
		if rs[0].Err != nil {
			b.Fatal(rs[0].Err)
		}
		acked++
	}
	fetched := func(rs []FetchResult) { rs[0].Slice.Close() }
	b.ReportAllocs()
	for n := int64(1); b.Loop(); n++ {
		recordbatch.Batch(records).SetBaseOffset(0) // stamped by the append before
		m.Append(produce, done)
		m.Fetch(FetchRequest{ReplicaID: 2, MaxBytes: 1 << 20, Parts: []FetchPart{{TP: tpA, Offset: n, MaxBytes: 1 << 20, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1}}}, fetched)
		if acked != int(n) {
			b.Fatalf("%d acknowledged of %d", acked, n)
		}
	}
}
