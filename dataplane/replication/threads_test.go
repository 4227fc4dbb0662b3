package replication

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/recordbatch"
)

// The number of threads changes while all of them copy, up and down: each partition is
// copied on by the thread that it belongs to, and no thread is left over.
func TestThreadsChangeWhileTheyCopy(t *testing.T) {
	const partitions = 16
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, partition.TopicConfig{MinISR: 3})
		defer c.close()
		c.elect(1)
		c.deliverAll()
		for i := int32(1); i < partitions; i++ {
			for _, n := range c.nodes {
				req := c.orderLocked(n)
				req.TopicStates[0].PartitionStates[0].Partition = i
				n.m.LeaderAndISR(req)
			}
		}
		produce := func(i int32) error {
			b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: fmt.Append(nil, i)}})
			if err != nil {
				return err
			}
			done := make(chan error, 1)
			c.node(1).m.Append(partition.AppendRequest{Acks: -1, Timeout: time.Second, Entries: []partition.AppendEntry{{TP: partition.TopicPartition{Topic: tp0.Topic, Partition: i}, Records: b}}},
				func(rs []partition.AppendResult) { done <- rs[0].Err })
			return <-done
		}
		f := c.node(2).fetchers
		for _, n := range []int{1, 4, 2, 3, 0, 8, 1} {
			f.SetThreads(n)
			began := time.Now()
			for range 3 {
				for i := range int32(partitions) {
					if err := produce(i); err != nil {
						t.Fatalf("partition %d with %d threads: %v", i, n, err)
					}
				}
			}
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%d threads: %v", n, took)
			}
			synctest.Wait()
			checkThreads(t, f, max(n, 1), partitions)
		}
		for i := range int32(partitions) {
			tp := protocol.TopicPartition{Topic: tp0.Topic, Partition: i}
			if a, b := c.node(1).m.Partition(tp).EndOffset(), c.node(2).m.Partition(tp).EndOffset(); a != b {
				t.Errorf("partition %d ends at %d and %d", i, a, b)
			}
		}
	})
}

func checkThreads(t *testing.T, f *Fetchers, want, partitions int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.threads) > want || len(f.where) != partitions {
		t.Errorf("%d threads of %d, %d partitions", len(f.threads), want, len(f.where))
	}
	copied := 0
	for key, th := range f.threads {
		th.mu.Lock()
		for tp := range th.parts {
			copied++
			if f.key(key.leader, tp) != key || f.where[tp] != th {
				t.Errorf("partition %d is with thread %v", tp.Partition, key)
			}
		}
		if want > 1 && len(th.parts) == partitions {
			t.Errorf("one of %d threads has all partitions", want)
		}
		th.mu.Unlock()
	}
	if copied != partitions {
		t.Errorf("%d partitions are copied", copied)
	}
}
