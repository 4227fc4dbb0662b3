package partition

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/vfs"
)

func TestOrdersOfStaleSendersAreRefused(t *testing.T) {
	inBubble(t, func(r *rig) {
		send := func(brokerEpoch int64, controllerEpoch int32) error {
			req := kmsg.NewPtrLeaderAndISRRequest()
			req.SetVersion(5)
			req.BrokerEpoch, req.ControllerEpoch = brokerEpoch, controllerEpoch
			err := kerr.ErrorForCode(r.m.LeaderAndISR(req).ErrorCode)
			stop := kmsg.NewPtrStopReplicaRequest()
			stop.SetVersion(3)
			stop.BrokerEpoch, stop.ControllerEpoch = brokerEpoch, controllerEpoch
			if err2 := kerr.ErrorForCode(r.m.StopReplica(stop).ErrorCode); !errors.Is(err2, err) {
				t.Errorf("LeaderAndIsr says %v, StopReplica %v", err, err2)
			}
			return err
		}
		wantErr(t, "first", send(50, 3), nil)
		wantErr(t, "same", send(50, 3), nil)
		wantErr(t, "old broker epoch", send(49, 3), kerr.StaleBrokerEpoch)
		wantErr(t, "newer broker epoch", send(51, 3), nil)
		wantErr(t, "no broker epoch", send(-1, 3), nil)
		wantErr(t, "old controller", send(50, 2), kerr.StaleControllerEpoch)
		wantErr(t, "new controller", send(50, 4), nil)
		wantErr(t, "old one after it", send(50, 3), kerr.StaleControllerEpoch)
	})
}

func TestLeaderEpochMustGrow(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 3, 1)
		wantErr(t, "same epoch", r.order(tpA, theID, 2, 3, []int32{2}, []int32{1, 2}), kerr.StaleControllerEpoch)
		wantErr(t, "lower epoch", r.order(tpA, theID, 2, 2, []int32{2}, []int32{1, 2}), kerr.StaleControllerEpoch)
		wantErr(t, "other topic id", r.order(tpA, [16]byte{8}, 2, 4, []int32{2}, []int32{1, 2}), kerr.InconsistentTopicID)
		wantErr(t, "not a replica", r.order(tpA, theID, 2, 4, []int32{2}, []int32{2, 3}), kerr.UnknownTopicOrPartition)
		if !r.m.Partition(tpA).IsLeader() {
			t.Error("a refused order changed the role")
		}
		wantErr(t, "higher epoch", r.order(tpA, theID, 2, 4, []int32{2}, []int32{1, 2}), nil)
		want := []string{"a-0 true 3", "a-0 false 4"}
		if !slices.Equal(r.leads, want) {
			t.Errorf("hooks %q, want %q", r.leads, want)
		}
		f := r.fetchers.set[tpA]
		if f.Leader != 2 || f.LeaderEpoch != 4 || f.Partition != r.m.Partition(tpA) {
			t.Errorf("fetcher %+v", f)
		}
		r.lead(tpA, 5, 1)
		if len(r.fetchers.set) != 0 {
			t.Errorf("a leader fetches: %+v", r.fetchers.set)
		}
		wantErr(t, "no leader", r.order(tpA, theID, -1, 6, nil, []int32{1, 2}), nil)
		if len(r.fetchers.set) != 0 || r.m.Partition(tpA).IsLeader() {
			t.Error("without a leader there is nobody to fetch from, and this replica does not lead")
		}
	})
}

func TestOldVersionsOfLeaderAndISRAndStopReplica(t *testing.T) {
	inBubble(t, func(r *rig) {
		s := kmsg.NewLeaderAndISRRequestTopicPartition()
		s.Topic, s.Leader, s.LeaderEpoch, s.ISR, s.Replicas = "old", 1, 0, []int32{1}, []int32{1}
		req := kmsg.NewPtrLeaderAndISRRequest()
		req.SetVersion(1)
		req.PartitionStates = append(req.PartitionStates, s)
		resp := r.m.LeaderAndISR(req)
		if len(resp.Partitions) != 1 || resp.Partitions[0].Topic != "old" || resp.Partitions[0].ErrorCode != 0 {
			t.Fatalf("answer %+v", resp)
		}
		old := TopicPartition{Topic: "old"}
		r.put(old, 1, "v")
		// The id comes later and is kept.
		wantErr(t, "with an id", r.order(old, theID, 1, 1, []int32{1}, []int32{1}), nil)
		id, ok, err := commitlog.ReadTopicID(r.fs, r.dir.PartitionPath(old))
		if id != theID || !ok || err != nil {
			t.Errorf("partition.metadata has %v, %v, %v", id, ok, err)
		}
		for _, v := range []int16{0, 2} {
			stop := kmsg.NewPtrStopReplicaRequest()
			stop.SetVersion(v)
			stop.ControllerEpoch = 1
			stop.Topics = append(stop.Topics, kmsg.StopReplicaRequestTopic{Topic: "old", Partition: 0, Partitions: []int32{0}})
			if resp := r.m.StopReplica(stop); len(resp.Partitions) != 1 || resp.Partitions[0].ErrorCode != 0 {
				t.Errorf("version %d: %+v", v, resp)
			}
		}
		if r.m.Partition(old) == nil {
			t.Error("stopped without deletion, but gone")
		}
	})
}

func (r *rig) stopReplica(tp TopicPartition, epoch int32, del bool) error {
	r.t.Helper()
	return stopOne(r.t, r.m, tp, epoch, del)
}

func stopOne(t fatal, m *Manager, tp TopicPartition, epoch int32, del bool) error {
	t.Helper()
	req := kmsg.NewPtrStopReplicaRequest()
	req.SetVersion(3)
	req.ControllerEpoch, req.BrokerEpoch = 1, 50
	ts := kmsg.NewStopReplicaRequestTopic()
	ts.Topic = tp.Topic
	ps := kmsg.NewStopReplicaRequestTopicPartitionState()
	ps.Partition, ps.LeaderEpoch, ps.Delete = tp.Partition, epoch, del
	ts.PartitionStates = append(ts.PartitionStates, ps)
	req.Topics = append(req.Topics, ts)
	resp := m.StopReplica(req)
	if resp.ErrorCode != 0 || len(resp.Partitions) != 1 || resp.Partitions[0].Topic != tp.Topic {
		t.Fatalf("answer %+v", resp)
	}
	return kerr.ErrorForCode(resp.Partitions[0].ErrorCode)
}

func TestStopReplica(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.follow(tpA, 2, 5)
		wantErr(t, "old epoch", r.stopReplica(tpA, 4, true), kerr.FencedLeaderEpoch)
		wantErr(t, "not here", r.stopReplica(tpB, 4, true), nil)
		wantErr(t, "same epoch, no deletion", r.stopReplica(tpA, 5, false), nil)
		if len(r.fetchers.set) != 0 || r.m.Partition(tpA) == nil {
			t.Error("must stop fetching and stay")
		}
		r.lead(tpA, 6, 1, 2)
		produce := r.produce(tpA, -1, batch(1, "v"))
		fetch := r.fetchAsync(-1, from(tpA, 0), time.Minute, 1)
		wantErr(t, "deletion overrides the epoch", r.stopReplica(tpA, -2, true), nil)
		wantErr(t, "waiting produce", (<-produce).Err, kerr.NotLeaderForPartition)
		wantErr(t, "waiting fetch", (<-fetch).Err, kerr.UnknownTopicOrPartition)
		wantErr(t, "produce after", (<-r.produce(tpA, 1, batch(1, "v"))).Err, kerr.UnknownTopicOrPartition)
		if _, err := r.fs.Stat(r.dir.PartitionPath(tpA)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("folder is still there: %v", err)
		}
		time.Sleep(3 * time.Minute)
		infos, err := r.fs.ReadDir("/data")
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			if i.Dir {
				t.Errorf("folder %s left behind", i.Name)
			}
		}
		// The topic may come again at once, with an epoch from zero.
		wantErr(t, "made anew", r.order(tpA, [16]byte{9}, 1, 0, []int32{1}, []int32{1}), nil)
		if got := r.put(tpA, 1, "v"); got.BaseOffset != 0 {
			t.Errorf("base offset %d", got.BaseOffset)
		}
	})
}

// A change that comes while a new replica is being opened finds no replica to
// apply it to; what was read before it must not stand.
func TestConfigChangedWhileAReplicaIsMade(t *testing.T) {
	r := &rig{t: t, fs: vfs.NewMem(), minISR: 1}
	changed := make(chan struct{})
	var asked atomic.Bool
	r.onTopic = func() {
		if asked.Swap(true) {
			return
		}
		r.minISR = 2 // and what is being read is the old value
		go func() {
			defer close(changed)
			r.m.UpdateTopicConfig(tpA.Topic)
		}()
		select {
		case <-changed: // too early for the new replica
		case <-time.After(50 * time.Millisecond): // it waits for its turn
		}
	}
	r.start()
	defer r.stop()
	r.lead(tpA, 1, 1)
	<-changed
	if err := (<-r.produce(tpA, -1, batch(1, "v"))).Err; !errors.Is(err, kerr.NotEnoughReplicas) {
		t.Errorf("acks=all with one replica in sync and min.insync.replicas=2: %v", err)
	}
}

// What the checkpoints say of a deleted partition must not be taken for the one
// that is made anew under its name, however soon the broker is killed.
func TestTopicMadeAnewIsNotJudgedByTheCheckpointsOfTheOldOne(t *testing.T) {
	for name, restart := range map[string]bool{"deleted in this life": false, "deleted before a kill": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.lead(tpA, 1, 1)
				for range 10 {
					r.put(tpA, 1, "old")
				}
				if _, err := r.m.Partition(tpA).Log().IncrementStartOffset(8); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute) // all checkpoints are written
				synctest.Wait()
				if restart {
					// A kill right after the folder was renamed: nothing else was written.
					r.kill()
					if err := r.fs.RemoveAll(r.dir.PartitionPath(tpA)); err != nil {
						t.Fatal(err)
					}
					r.start()
				} else {
					wantErr(t, "deletion", r.stopReplica(tpA, -2, true), nil)
				}
				if err := r.order(tpA, [16]byte{9}, 1, 0, []int32{1, 2}, []int32{1, 2}); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					r.put(tpA, 1, "new")
				}
				r.kill()
				r.start()
				p := r.m.Partition(tpA)
				if p.StartOffset() != 0 || p.EndOffset() != 3 {
					t.Errorf("the log is [%d, %d), want [0, 3)", p.StartOffset(), p.EndOffset())
				}
				r.hw(tpA, 0) // broker 2 has nothing yet
				if got := p.Log().RecoveryPoint(); got != 0 {
					t.Errorf("recovery point %d of a log that was never flushed", got)
				}
			})
		})
	}
}

func TestRestartKeepsLogWatermarkAndID(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1, 2)
		r.put(tpA, 5, "v")
		r.fetch(2, from(tpA, 3))
		r.restart()
		if !r.dir.CleanShutdown() {
			t.Error("shutdown was not clean")
		}
		r.hw(tpA, 3)
		p := r.m.Partition(tpA)
		if p.EndOffset() != 5 || p.TopicID() != theID {
			t.Errorf("end %d, id %v", p.EndOffset(), p.TopicID())
		}
		wantErr(t, "before the controller has spoken", r.fetch(-1, from(tpA, 0)).Err, kerr.UnknownTopicOrPartition)
		wantErr(t, "topic made anew meanwhile", r.order(tpA, [16]byte{8}, 1, 9, []int32{1}, []int32{1}), kerr.InconsistentTopicID)
		r.lead(tpA, 2, 1)
		r.hw(tpA, 5)
	})
}

func TestWatermarkIsCheckpointedEveryFiveSeconds(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.lead(tpA, 1, 1)
		r.put(tpA, 5, "v")
		time.Sleep(6 * time.Second)
		got, err := r.dir.ReadCheckpoint(commitlog.HighWatermarkCheckpoint)
		if err != nil || got[tpA] != 5 {
			t.Errorf("checkpoint %v, %v", got, err)
		}
	})
}

func TestRetentionStopsAtTheWatermark(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.log = commitlog.Config{SegmentBytes: 200, RetentionAge: time.Minute}
		r.lead(tpA, 1, 1, 2)
		for range 10 {
			r.put(tpA, 1, strings.Repeat("x", 100))
		}
		r.fetch(2, from(tpA, 6))
		time.Sleep(6 * time.Minute)
		p := r.m.Partition(tpA)
		if got := p.StartOffset(); got != 6 {
			t.Errorf("log starts at %d, the high watermark is 6", got)
		}
		wantErr(t, "fetch of what is gone", r.fetch(-1, from(tpA, 5)).Err, kerr.OffsetOutOfRange)
		r.restart()
		if got := r.m.Partition(tpA).StartOffset(); got != 6 {
			t.Errorf("log starts at %d after the restart", got)
		}
	})
}

func TestFailedStorageTakesItsPartitionsOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := false
		faulty := &vfs.Faulty{FS: vfs.NewMem()}
		faulty.Hook = func(op vfs.Op, name string) error {
			if broken && op == vfs.OpWrite {
				return errors.New("disk on fire")
			}
			return nil
		}
		r := &rig{t: t, fs: faulty, minISR: 1}
		r.start()
		r.lead(tpA, 1, 1, 2)
		r.lead(tpB, 1, 1)
		waiting := r.produce(tpA, -1, batch(1, "v"))
		long := r.fetchAsync(-1, from(tpB, 0), time.Minute, 1)
		broken = true
		wantErr(t, "append", (<-r.produce(tpB, 1, batch(1, "v"))).Err, kerr.KafkaStorageError)
		wantErr(t, "waiting produce", (<-waiting).Err, kerr.KafkaStorageError)
		wantErr(t, "waiting fetch", (<-long).Err, kerr.KafkaStorageError)
		wantErr(t, "fetch", r.fetch(-1, from(tpA, 0)).Err, kerr.KafkaStorageError)
		wantErr(t, "order", r.order(tpA, theID, 1, 2, []int32{1}, []int32{1}), kerr.KafkaStorageError)
		wantErr(t, "stop", r.stopReplica(tpA, -2, true), kerr.KafkaStorageError)
		wantErr(t, "new partition", r.order(TopicPartition{Topic: "c"}, theID, 1, 2, []int32{1}, []int32{1}), kerr.KafkaStorageError)
		synctest.Wait()
		if !slices.Equal(r.failures, []string{"/data"}) {
			t.Errorf("failures %v", r.failures)
		}
		broken = false
		if err := r.m.Close(); err != nil || r.m.ClosedClean(r.dir) {
			t.Errorf("a failed folder counts as cleanly closed (%v)", err)
		}
		r.wheel.Close()
		_ = r.dir.Close(false)
	})
}
