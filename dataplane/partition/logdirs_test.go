package partition

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/vfs"
)

var errDisk = errors.New("disk on fire")

// inTwoDirs runs f with a rig of two folders, of which failing says which calls fail.
func inTwoDirs(t *testing.T, failing func(op vfs.Op, name string) bool, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		fs := &vfs.Faulty{FS: vfs.NewMem(), Hook: func(op vfs.Op, name string) error {
			if failing != nil && failing(op, name) {
				return errDisk
			}
			return nil
		}}
		r := &rig{t: t, fs: fs, minISR: 1, paths: []string{"/one", "/two"}}
		r.start()
		defer func() { r.stop() }()
		f(r)
	})
}

// orderNew is order for a replica that the controller calls new.
func (r *rig) orderNew(tp TopicPartition, lead, epoch int32, isNew bool) error {
	r.t.Helper()
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Partition, s.ControllerEpoch, s.Leader, s.LeaderEpoch, s.ISR, s.Replicas, s.IsNew = tp.Partition, 1, lead, epoch, []int32{lead}, []int32{1, lead}, isNew
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID, ts.PartitionStates = tp.Topic, theID, append(ts.PartitionStates, s)
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.ControllerEpoch, req.BrokerEpoch, req.TopicStates = 1, 50, append(req.TopicStates, ts)
	return kerr.ErrorForCode(r.m.LeaderAndISR(req).Topics[0].Partitions[0].ErrorCode)
}

// sole makes this broker the only replica.
func (r *rig) sole(tp TopicPartition, epoch int32) {
	r.t.Helper()
	if err := r.orderNew(tp, 1, epoch, true); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dirOf(tp TopicPartition) string { return r.m.Partition(tp).dir().Path() }

// Each failing call that a folder can make ends that folder, and nothing else.
func TestFailedCallTakesOneFolderOffline(t *testing.T) {
	two := func(r *rig) *Partition { return r.m.Partition(tpB) }
	for _, c := range []struct {
		what string
		op   vfs.Op
		name string // part of the path, beside the folder's
		do   func(r *rig)
	}{
		{"write of records", vfs.OpWrite, ".log", func(r *rig) { <-r.produce(tpB, 1, batch(1, "v")) }},
		{"read of records", vfs.OpRead, ".log", func(r *rig) { r.fetch(-1, from(tpB, 0)) }},
		{"sync of records", vfs.OpSync, ".log", func(r *rig) { _ = two(r).log().Flush() }},
		{"truncation", vfs.OpTruncate, ".log", func(r *rig) {
			r.follow(tpB, 2, 2)
			_ = two(r).TruncateTo(2, 1)
		}},
		{"open of a checkpoint", vfs.OpOpen, "replication-offset-checkpoint.tmp", func(r *rig) { r.m.writeHighWatermarks() }},
		{"write of a checkpoint", vfs.OpWrite, "recovery-point-offset-checkpoint.tmp", func(r *rig) { r.m.writeAllRecoveryPoints() }},
		{"sync of a checkpoint", vfs.OpSync, "replication-offset-checkpoint.tmp", func(r *rig) { r.m.writeHighWatermarks() }},
		{"rename of a checkpoint", vfs.OpRename, "replication-offset-checkpoint.tmp", func(r *rig) { r.m.writeHighWatermarks() }},
		{"write of the log starts", vfs.OpWrite, "log-start-offset-checkpoint.tmp", func(r *rig) {
			if res := <-r.deleteTo(tpB, 1); !errors.Is(res.Err, kerr.KafkaStorageError) {
				r.t.Errorf("DeleteRecords: %v", res.Err)
			}
		}},
		{"sync of the folder", vfs.OpSyncDir, "", func(r *rig) { r.m.writeHighWatermarks() }},
		{"making a partition's folder", vfs.OpMkdir, "c-0", func(r *rig) {
			r.sole(TopicPartition{Topic: "x"}, 1)
			r.sole(TopicPartition{Topic: "c"}, 1) // tried in the emptier folder first
			r.put(TopicPartition{Topic: "c"}, 1, "v")
		}},
		{"listing", vfs.OpList, "", func(r *rig) { r.m.sweep() }},
		{"removal of a deleted partition", vfs.OpRemove, "-delete", func(r *rig) {
			r.m.preferred[TopicPartition{Topic: "c"}] = r.dirs[1]
			r.sole(TopicPartition{Topic: "c"}, 1)
			wantErr(r.t, "deletion", r.stopReplica(TopicPartition{Topic: "c"}, -2, true), nil)
			time.Sleep(time.Hour) // in a bubble
			r.m.sweep()
		}},
		{"rename of a deleted partition", vfs.OpRename, "b-0", func(r *rig) {
			wantErr(r.t, "deletion", r.stopReplica(tpB, -2, true), kerr.KafkaStorageError)
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			broken := false
			failing := func(op vfs.Op, name string) bool {
				return broken && op == c.op && strings.HasPrefix(name, "/two") && strings.Contains(name, c.name)
			}
			inTwoDirs(t, failing, func(r *rig) {
				r.sole(tpA, 1)
				r.sole(tpB, 1)
				if r.dirOf(tpA) != "/one" || r.dirOf(tpB) != "/two" {
					t.Fatalf("replicas lie in %s and %s", r.dirOf(tpA), r.dirOf(tpB))
				}
				r.put(tpA, 3, "v")
				r.put(tpB, 3, "v")
				lost := two(r)
				broken = true
				c.do(r)
				synctest.Wait()
				if !slices.Equal(r.failures, []string{"/two"}) {
					t.Fatalf("failed folders: %v", r.failures)
				}
				broken = false // it stays offline all the same
				wantErr(t, "fetch in the failed folder", r.fetch(-1, from(tpB, 0)).Err, map[bool]error{true: kerr.KafkaStorageError, false: kerr.UnknownTopicOrPartition}[r.m.Partition(tpB) != nil])
				if !lost.log().Closed() {
					t.Error("files of the failed folder stay open")
				}
				r.put(tpA, 1, "v")
				if res := r.fetch(-1, from(tpA, 0)); res.Err != nil {
					t.Errorf("fetch in the good folder: %v", res.Err)
				}
				wantErr(t, "order for the failed replica", r.orderNew(tpB, 1, 5, false), kerr.KafkaStorageError)
				wantErr(t, "order for the good replica", r.orderNew(tpA, 1, 5, false), nil)
				wantErr(t, "a replica that is not new", r.orderNew(TopicPartition{Topic: "d"}, 1, 1, false), kerr.KafkaStorageError)
				wantErr(t, "deletion of a replica that is not known", r.stopReplica(TopicPartition{Topic: "e"}, -2, true), kerr.KafkaStorageError)
				wantErr(t, "a new replica", r.orderNew(TopicPartition{Topic: "d"}, 1, 1, true), nil)
				if got := r.dirOf(TopicPartition{Topic: "d"}); got != "/one" {
					t.Errorf("a new replica lies in %s", got)
				}
				r.m.writeAllRecoveryPoints()
				dirs := r.m.DescribeDirs(func(TopicPartition) bool { return true })
				if len(dirs) != 2 || dirs[0].Err != nil || !errors.Is(dirs[1].Err, kerr.KafkaStorageError) || len(dirs[1].Replicas) != 0 {
					t.Errorf("%+v", dirs)
				}

				// Repaired and started again it is all there, and only the good one was closed clean.
				r.restart()
				if !r.dirs[0].CleanShutdown() || r.dirs[1].CleanShutdown() {
					t.Errorf("clean shutdown: %v, %v", r.dirs[0].CleanShutdown(), r.dirs[1].CleanShutdown())
				}
				if p := r.m.Partition(tpB); p == nil && c.op != vfs.OpRename || p != nil && p.EndOffset() < 1 {
					t.Errorf("after the repair: %+v", p)
				}
			})
		})
	}
}

func TestLastFailedFolderIsReportedAsTheLast(t *testing.T) {
	broken := ""
	inTwoDirs(t, func(op vfs.Op, name string) bool {
		return broken != "" && op == vfs.OpWrite && strings.HasPrefix(name, broken)
	}, func(r *rig) {
		r.sole(tpA, 1)
		r.sole(tpB, 1)
		var lasts []bool
		r.m.cfg.Hooks.OnDirFailure = func(_ string, last bool, _ error) { r.note(func() { lasts = append(lasts, last) }) }
		for i, tp := range []TopicPartition{tpB, tpA} {
			broken = r.dirOf(tp)
			wantErr(t, "append", (<-r.produce(tp, 1, batch(1, "v"))).Err, kerr.KafkaStorageError)
			synctest.Wait()
			if want := []bool{false, true}[:i+1]; !slices.Equal(lasts, want) {
				t.Errorf("told %v, want %v", lasts, want)
			}
		}
		if !slices.Contains(r.leads, "a-0 false -1") || !slices.Contains(r.leads, "b-0 false -1") {
			t.Errorf("coordinators were told %q", r.leads)
		}
		broken = ""
	})
}

func TestFolderThatCannotBeOpenedIsReportedAndHoldsNewReplicasBack(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.stop()
		broken := true
		r.fs = &vfs.Faulty{FS: r.fs, Hook: func(op vfs.Op, name string) error {
			if broken && strings.HasPrefix(name, "/two") {
				return errDisk
			}
			return nil
		}}
		r.start()
		if len(r.dirs) != 1 {
			t.Fatal("the broken folder was opened")
		}
		dirs := r.m.DescribeDirs(func(TopicPartition) bool { return true })
		if len(dirs) != 2 || dirs[0].Err != nil || len(dirs[0].Replicas) != 1 || !errors.Is(dirs[1].Err, kerr.KafkaStorageError) {
			t.Errorf("%+v", dirs)
		}
		wantErr(t, "replica that may be in it", r.orderNew(tpB, 2, 1, false), kerr.KafkaStorageError)
		wantErr(t, "move into it", r.m.MoveReplica(tpA, "/two"), kerr.KafkaStorageError)
		broken = false
		r.restart()
		wantErr(t, "with the folder back", r.orderNew(tpB, 2, 1, false), nil)
		if got := r.dirOf(tpB); got != "/two" {
			t.Errorf("the replica lies in %s", got)
		}
	})
}

// A copy that took a replica's place, killed before the old folder lost its name; or
// a folder that was away while the replica was made anew in another.
func TestOfTwoFoldersOfOneReplicaTheBetterStays(t *testing.T) {
	for _, c := range []struct {
		what          string
		epoch1, n1    int
		epoch2, n2    int
		id1, id2, now byte
		want          string
		aside         bool
	}{
		{"equal", 1, 3, 1, 3, 7, 7, 7, "/one", false},
		{"the second is longer", 1, 3, 1, 5, 7, 7, 7, "/two", false},
		{"the first has the newer epoch", 2, 3, 1, 5, 7, 7, 7, "/one", false},
		{"the second is of the topic that there is", 3, 5, 1, 1, 6, 7, 7, "/two", true},
		{"the first is of the topic that there is", 1, 1, 3, 5, 7, 6, 7, "/one", true},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{t: t, fs: vfs.NewMem(), minISR: 1, paths: []string{"/one", "/two"}}
				r.topicID = func(string) [16]byte { return [16]byte{c.now} }
				for i, path := range r.paths {
					dir := filepath.Join(path, "a-0")
					if err := commitlog.WriteTopicID(r.fs, dir, [16]byte{[]byte{c.id1, c.id2}[i]}); err != nil {
						t.Fatal(err)
					}
					l, err := commitlog.Open(r.fs, dir, commitlog.Config{}, commitlog.OpenOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := l.AppendFollower(batchAt(0, int32([]int{c.epoch1, c.epoch2}[i]), []int{c.n1, c.n2}[i], "v")); err != nil {
						t.Fatal(err)
					}
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
				}
				r.start()
				defer r.stop()
				if got := r.dirOf(tpA); got != c.want {
					t.Errorf("the replica lies in %s", got)
				}
				for i, d := range r.dirs {
					l, err := d.List()
					if err != nil {
						t.Fatal(err)
					}
					kept := d.Path() == c.want
					if kept != (len(l.Current) == 1) || len(l.Stray) > 0 != (!kept && c.aside) {
						t.Errorf("folder %d: %+v", i, l)
					}
				}
			})
		})
	}
}

func TestStrayFoldersAreLeftAloneByFullOrders(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.sole(tpB, 1)
		if err := r.fs.MkdirAll("/one/gone-0.0123456789abcdef-stray"); err != nil {
			t.Fatal(err)
		}
		r.restart()
		req := kmsg.NewPtrLeaderAndISRRequest()
		req.SetVersion(7)
		req.Type, req.ControllerEpoch, req.BrokerEpoch = 2, 1, 50
		if resp := r.m.LeaderAndISR(req); resp.ErrorCode != 0 {
			t.Fatal(resp.ErrorCode)
		}
		r.sole(tpA, 2)
		r.sole(tpB, 2)
		if l, err := r.dirs[0].List(); err != nil || len(l.Stray) != 1 || len(l.Current) != 1 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}
