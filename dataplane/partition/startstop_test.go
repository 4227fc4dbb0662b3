package partition

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/vfs"
)

// calledOff starts a Manager that is told to stop while it opens its nth log, with 0
// before the first, and tells how many it began to open.
func (r *rig) calledOff(nth int) (opened int) {
	r.t.Helper()
	d, err := commitlog.OpenDir(r.fs, "/data")
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if nth == 0 {
		stop()
	}
	wheel := purgatory.NewWheel()
	defer wheel.Close()
	_, err = NewManager(ctx, Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: r.fs, Dirs: []*commitlog.Dir{d}, Wheel: wheel, ISR: r, RecoveryThreads: 1,
		Topic: func(string) TopicConfig {
			if opened++; opened == nth {
				stop()
			}
			return TopicConfig{MinISR: 1, Log: r.log}
		},
	})
	if !errors.Is(err, context.Canceled) {
		r.t.Fatalf("called off at log %d: %v", nth, err)
	}
	if err := d.Close(false); err != nil {
		r.t.Fatal(err)
	}
	return opened
}

// checkpoints are those of the folder, by name.
func (r *rig) checkpoints() (all map[string]map[TopicPartition]int64, clean bool) {
	r.t.Helper()
	d, err := commitlog.OpenDir(r.fs, "/data")
	if err != nil {
		r.t.Fatal(err)
	}
	all = map[string]map[TopicPartition]int64{}
	for _, name := range []string{commitlog.HighWatermarkCheckpoint, commitlog.RecoveryPointCheckpoint, commitlog.LogStartCheckpoint} {
		if all[name], err = d.ReadCheckpoint(name); err != nil {
			r.t.Fatal(err)
		}
	}
	clean = d.CleanShutdown()
	if err := d.Close(false); err != nil {
		r.t.Fatal(err)
	}
	return all, clean
}

// A start that is called off, at whichever log, leaves a clean folder clean and one that
// was killed to be recovered, with all that the checkpoints say.
func TestStartThatIsCalledOffChangesNothing(t *testing.T) {
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed %v", killed), func(t *testing.T) {
			r := &rig{t: t, fs: vfs.NewMem(), minISR: 1}
			r.start()
			const parts = 5
			for i := range int32(parts) {
				tp := TopicPartition{Topic: "a", Partition: i}
				r.lead(tp, 1, 1)
				r.put(tp, int(i)+1, "v")
			}
			if killed {
				r.kill()
			} else {
				r.stop()
			}
			want, clean := r.checkpoints()
			if clean == killed {
				t.Fatalf("killed %v, clean %v", killed, clean)
			}
			for nth := range parts + 1 {
				if opened := r.calledOff(nth); opened > nth {
					t.Errorf("called off at log %d, and %d were opened", nth, opened)
				}
				if got, still := r.checkpoints(); still != clean || !reflect.DeepEqual(got, want) {
					t.Errorf("called off at log %d: clean %v, before %v; checkpoints\n%v, before\n%v", nth, still, clean, got, want)
				}
			}
			r.start()
			defer r.stop()
			for i := range int32(parts) {
				l := r.m.Partition(TopicPartition{Topic: "a", Partition: i}).log()
				if l.EndOffset() != int64(i)+1 || (l.Recovery().Segments > 0) != killed {
					t.Errorf("partition %d ends at %d, recovered %+v", i, l.EndOffset(), l.Recovery())
				}
			}
		})
	}
}

// The marker goes before the first log is opened, for good, whatever comes then.
func TestStartTakesTheCleanMarkerBeforeItOpensALog(t *testing.T) {
	r := &rig{t: t, fs: vfs.NewMem(), minISR: 1}
	r.start()
	r.lead(tpA, 1, 1)
	r.put(tpA, 1, "v")
	r.stop()
	looked := false
	r.onTopic = func() {
		looked = true
		if vfs.Exists(r.fs, "/data/.kafka_cleanshutdown") {
			t.Error("a log is opened while the folder says that all are closed")
		}
	}
	r.start()
	r.onTopic = nil
	if !looked {
		t.Error("no log was opened")
	}
	r.kill()
	if _, clean := r.checkpoints(); clean {
		t.Error("a folder is clean after a kill")
	}
}
