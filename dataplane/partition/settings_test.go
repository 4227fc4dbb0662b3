package partition

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/vfs"
)

func TestCleanerTakesOtherSettingsInTheMiddleOfAClean(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.cleaner.BytesPerSecond = 1
		r.restart()
		time.Sleep(time.Second)
		words := []string{"a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4"}
		for _, tp := range []TopicPartition{tpA, tpB} {
			r.lead(tp, 1, 1)
			r.putKeys(tp, words...)
		}
		time.Sleep(16 * time.Second) // the one thread has begun, and would take minutes
		running := func() int {
			r.m.cleaner.mu.Lock()
			defer r.m.cleaner.mu.Unlock()
			return len(r.m.cleaner.busy)
		}
		if n := running(); n != 1 {
			t.Fatalf("%d cleans at one time with one thread", n)
		}
		change := func(c CleanerConfig) {
			t.Helper()
			if err := r.m.SetCleaner(c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		change(CleanerConfig{BytesPerSecond: 1, Threads: 2})
		if st := r.m.CleanerStats(); running() != 2 || st.Aborted != 1 || st.Failures != 0 {
			t.Fatalf("%d cleans with two threads: %+v", running(), st)
		}
		change(CleanerConfig{BytesPerSecond: 1, Threads: 2})
		if st := r.m.CleanerStats(); st.Aborted != 1 {
			t.Fatal("the same settings have ended a clean")
		}
		change(CleanerConfig{Disabled: true})
		time.Sleep(time.Hour)
		if st := r.m.CleanerStats(); running() != 0 || st.Cleans != 0 || st.Aborted != 3 {
			t.Fatalf("%d cleans after it was turned off: %+v", running(), st)
		}
		change(CleanerConfig{})
		if st := r.m.CleanerStats(); st.Cleans != 2 || st.Failures != 0 {
			t.Fatalf("without a limit: %+v", st)
		}
		for _, tp := range []TopicPartition{tpA, tpB} {
			if got := values(t, r.m.Partition(tp)); strings.Contains(got, "=1") {
				t.Errorf("%s holds %s", tp, got)
			}
		}
	})
}

func TestCleanersBackoffChangesWhileItWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.cleaner.Backoff = 24 * time.Hour
		r.restart()
		time.Sleep(time.Second)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "a=2", "a=3", "a=4", "a=5", "a=6", "a=7", "a=8")
		time.Sleep(time.Hour)
		if st := r.m.CleanerStats(); st.Cleans != 0 {
			t.Fatal("cleaned before its time")
		}
		if err := r.m.SetCleaner(CleanerConfig{Backoff: time.Second}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := r.m.CleanerStats(); st.Cleans != 1 {
			t.Fatalf("%+v", st)
		}
	})
}

func TestMoveThatWaitsForItsRateGoesOnWhenThatIsRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, fs: vfs.NewMem(), minISR: 1, paths: []string{"/one", "/two"}, log: commitlog.Config{SegmentBytes: 1000}}
		r.start()
		defer r.stop()
		r.m.SetMoveRate(1)
		r.sole(tpA, 1)
		for range 20 {
			r.put(tpA, 1, strings.Repeat("x", 500))
		}
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		time.Sleep(10 * time.Minute)
		if r.dirOf(tpA) == "/two" {
			t.Fatal("11 KB at 1 B/s took ten minutes")
		}
		r.m.SetMoveRate(1 << 30)
		time.Sleep(time.Second)
		if dir := r.dirOf(tpA); dir != "/two" {
			t.Fatal(dir)
		}
	})
}

func TestChangedSettingsHoldForAllTopics(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.minISR = 3
		r.restart()
		r.lead(tpA, 1, 1)
		r.lead(tpB, 1, 1)
		a, b := r.produce(tpA, -1, batch(1, "x")), r.produce(tpB, 1, batch(1, "x"))
		if res := <-a; res.Err == nil {
			t.Fatal("acks=all with one replica in sync of three")
		}
		<-b
		r.minISR = 1
		r.m.UpdateTopicConfigs()
		for _, tp := range []TopicPartition{tpA, tpB} {
			if res := <-r.produce(tp, -1, batch(1, "x")); res.Err != nil {
				t.Errorf("%s: %v", tp, res.Err)
			}
		}
		if hw := r.m.Partition(tpB).HighWatermark(); hw != 2 {
			t.Errorf("watermark %d", hw)
		}
	})
}

func TestDeletedFoldersGoWhenTheDelayThatHoldsNowIsOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.m.SetDeleteDelay(24 * time.Hour)
		r.lead(tpA, 1, 1)
		wantErr(t, "deletion", r.stopReplica(tpA, 1, true), nil)
		left := func() string {
			es, err := r.fs.ReadDir("/data")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range es {
				if e.Dir && strings.HasPrefix(e.Name, "a-0.") {
					return e.Name
				}
			}
			return ""
		}
		time.Sleep(time.Hour)
		if left() == "" {
			t.Fatal("removed before its time")
		}
		r.m.SetDeleteDelay(time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if name := left(); name != "" {
			t.Fatal(fmt.Sprint(name, " is still there"))
		}
	})
}
