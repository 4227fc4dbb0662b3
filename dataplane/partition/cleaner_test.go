package partition

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// compacting makes every topic of the rig a compacted one with small segments.
func compacting(r *rig) {
	r.keep = true
	r.fs = &vfs.Faulty{FS: r.fs, Hook: func(op vfs.Op, name string) error {
		if f := r.fault.Load(); f != nil {
			return (*f)(op, name)
		}
		return nil
	}}
	r.log = commitlog.Config{Compact: true, SegmentBytes: 300, IndexIntervalBytes: 100, DeleteDelay: -1, DeleteRetention: time.Hour}
	r.restart()
	time.Sleep(time.Second) // the cleaner has looked once, and found nothing
}

func keyBatch(t *testing.T, key, value string, at time.Time) []byte {
	t.Helper()
	v := []byte(value)
	if value == "-" {
		v = nil
	}
	b, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Key: []byte(key), Value: v, Timestamp: at.UnixMilli()}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hook asks f before every operation on the disk from now on.
func (r *rig) hook(f func(op vfs.Op, name string) error) { r.fault.Store(&f) }

// values reads what a consumer finds.
func values(t *testing.T, p *Partition) string {
	t.Helper()
	var out []string
	l := p.Log()
	for from := l.StartOffset(); from < l.EndOffset(); {
		s, err := l.Read(from, 1<<20, l.EndOffset(), true)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, s.Len)
		if _, err := s.ReadInto(b); err != nil {
			t.Fatal(err)
		}
		from = s.LastOffset + 1
		s.Close()
		for b, err := range recordbatch.Split(b) {
			if err != nil {
				t.Fatal(err)
			}
			if err := recordbatch.Records(b, func(r recordbatch.Record) error {
				v := string(r.Value)
				if r.Value == nil {
					v = "-"
				}
				out = append(out, fmt.Sprintf("%d:%s=%s", r.Offset, r.Key, v))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	return strings.Join(out, " ")
}

// putKeys appends one batch a word, in segments of their own every few of them.
func (r *rig) putKeys(tp TopicPartition, words ...string) {
	r.t.Helper()
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		if res := <-r.produce(tp, 1, keyBatch(r.t, k, v, time.Now())); res.Err != nil {
			r.t.Fatal(res.Err)
		}
	}
}

func (r *rig) wantValues(tp TopicPartition, want string) {
	r.t.Helper()
	if got := values(r.t, r.m.Partition(tp)); got != want {
		r.t.Fatalf("%s holds %s\nwant %s", tp, got, want)
	}
}

func (r *rig) wantCleaned(tp TopicPartition, want int64) {
	r.t.Helper()
	at, err := r.dir.ReadCheckpoint(commitlog.CleanerCheckpoint)
	if err != nil {
		r.t.Fatal(err)
	}
	if got, ok := at[tp]; !ok || got != want {
		r.t.Fatalf("checkpoint says that %s is clean up to %d (%v), want %d", tp, got, ok, want)
	}
}

func TestDirtyLogIsCompactedAndTombstonesGoWhenTheirTimeComesWithoutNewData(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			inBubble(t, func(r *rig) {
				compacting(r)
				r.lead(tpA, 1, 1)
				r.putKeys(tpA, "a=1", "b=1", "a=-", "c=1", "b=2", "c=2", "d=1", "d=2", "e=1")
				time.Sleep(16 * time.Second) // more than log.cleaner.backoff.ms
				synctest.Wait()
				st := r.m.CleanerStats()
				if st.Cleans != 1 || st.LastPartition != tpA || st.Failures != 0 {
					t.Fatalf("%+v", st)
				}
				r.wantCleaned(tpA, st.Last.End)
				got := values(t, r.m.Partition(tpA))
				if strings.Contains(got, "a=1") || !strings.Contains(got, "2:a=-") || strings.Contains(got, "b=1") {
					t.Fatalf("after the first clean: %s", got)
				}
				if restart {
					r.restart()
				}
				time.Sleep(time.Hour - 40*time.Second)
				synctest.Wait()
				if got := values(t, r.m.Partition(tpA)); !strings.Contains(got, "2:a=-") {
					t.Fatalf("before the horizon: %s", got)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if got := values(t, r.m.Partition(tpA)); strings.Contains(got, "a=") {
					t.Fatalf("after the horizon: %s", got)
				}
				cleans := r.m.CleanerStats().Cleans
				time.Sleep(24 * time.Hour)
				synctest.Wait()
				if again := r.m.CleanerStats().Cleans; again != cleans {
					t.Fatalf("a log with nothing to do was cleaned %d times more", again-cleans)
				}
			})
		})
	}
}

func TestLogIsCompactedByDirtyRatioOrByAge(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.ratio = 0.5
		r.log.MaxCompactionLag = 24 * time.Hour
		r.restart()
		synctest.Wait() // the cleaner looks at the logs at once: not while they are written
		r.lead(tpA, 1, 1)
		words := []string{}
		for i := range 40 {
			words = append(words, fmt.Sprintf("k%d=1", i))
		}
		r.putKeys(tpA, words...)
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if st := r.m.CleanerStats(); st.Cleans != 1 {
			t.Fatalf("a log of which all is dirty: %d cleans", st.Cleans)
		}
		r.putKeys(tpA, "k0=2", "k0=3", "k0=4", "k0=5", "k0=6", "k0=7", "k0=8") // a share of less than a half
		time.Sleep(time.Hour)
		synctest.Wait()
		if st := r.m.CleanerStats(); st.Cleans != 1 || st.Dirs["/data"].MaxDirtyRatio == 0 || st.Dirs["/data"].MaxDirtyRatio > 0.5 || st.Dirs["/data"].MaxDirtyAge < time.Hour {
			t.Fatalf("a log that is a little dirty: %+v", st)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if st := r.m.CleanerStats(); st.Cleans != 2 || st.Dirs["/data"].MaxDirtyRatio != 0 {
			t.Fatalf("a log beyond max.compaction.lag.ms: %+v", st)
		}
	})
}

func TestCleanThatFailsTakesOnlyItsOwnLogOut(t *testing.T) {
	kinds := map[string]func(r *rig){
		"panic": func(r *rig) {
			r.hook(func(op vfs.Op, name string) error {
				if strings.Contains(name, "/a-0/") && strings.HasSuffix(name, ".cleaned") && op == vfs.OpWrite {
					panic("here")
				}
				return nil
			})
		},
		"damaged batch": func(r *rig) {
			f, err := r.fs.Open("/data/a-0/00000000000000000000.log", false)
			if err == nil {
				_, err = f.WriteAt([]byte("?"), 70)
				err = errors.Join(err, f.Close())
			}
			if err != nil {
				r.t.Fatal(err)
			}
		},
	}
	for name, spoil := range kinds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				compacting(r)
				r.lead(tpA, 1, 1)
				r.lead(tpB, 1, 1)
				words := []string{"a=1", "a=2", "b=1", "b=2", "c=1", "c=2", "d=1", "d=2"}
				r.putKeys(tpA, words...)
				r.putKeys(tpB, words...)
				spoil(r)
				time.Sleep(time.Minute)
				synctest.Wait()
				st := r.m.CleanerStats()
				if st.Failures != 1 || st.Cleans != 1 || st.LastPartition != tpB {
					t.Fatalf("%+v", st)
				}
				if d := st.Dirs["/data"]; d.Uncleanable[tpA] == "" || len(d.Uncleanable) != 1 || d.UncleanableBytes == 0 {
					t.Fatalf("%+v", d)
				}
				r.putKeys(tpA, "e=1") // it is served as before
				r.putKeys(tpB, words...)
				time.Sleep(time.Minute)
				synctest.Wait()
				if st := r.m.CleanerStats(); st.Cleans != 2 || st.Failures != 1 {
					t.Fatalf("later: %+v", st)
				}
				if len(r.failures) > 0 {
					t.Fatalf("folder failed: %v", r.failures)
				}
			})
		})
	}
}

func TestSpoiltLogIsLeftAloneUntilItsTopicIsDeleted(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		words := []string{"a=1", "a=2", "b=1", "b=2", "c=1", "c=2", "d=1", "d=2"}
		r.lead(tpA, 1, 1)
		p := r.m.Partition(tpA)
		r.m.cleaner.mu.Lock()
		r.m.cleaner.spoil(p, errors.New("spoilt"))
		r.m.cleaner.whole[p] = true
		r.m.cleaner.mu.Unlock()
		r.putKeys(tpA, words...)
		r.log.Compact = false // who looks at the cleaner meanwhile must not change what it does
		r.m.UpdateTopicConfig(tpA.Topic)
		r.m.CleanerStats()
		r.log.Compact = true
		r.m.UpdateTopicConfig(tpA.Topic)
		time.Sleep(time.Minute)
		if st := r.m.CleanerStats(); st.Cleans != 0 || st.Dirs["/data"].Uncleanable[tpA] == "" {
			t.Fatalf("%+v", st)
		}
		wantErr(t, "deletion", r.stopReplica(tpA, 1, true), nil)
		time.Sleep(time.Minute)
		r.m.cleaner.mu.Lock()
		if n := len(r.m.cleaner.bad) + len(r.m.cleaner.whole); n != 0 {
			t.Errorf("%d entries of a deleted partition", n)
		}
		r.m.cleaner.mu.Unlock()
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, words...)
		time.Sleep(time.Minute)
		if st := r.m.CleanerStats(); st.Cleans != 1 {
			t.Errorf("its successor: %+v", st)
		}
	})
}

func TestFailedWriteOfACleanIsAFailureOfTheFolder(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "a=2", "b=1", "b=2", "c=1", "c=2")
		r.hook(func(op vfs.Op, name string) error {
			if strings.HasSuffix(name, ".cleaned") && op == vfs.OpSync {
				return errors.New("disk is gone")
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(r.failures) != 1 || r.m.CleanerStats().Failures != 0 {
			t.Fatalf("failed folders: %v; %+v", r.failures, r.m.CleanerStats())
		}
	})
}

func TestNothingAboveTheHighWatermarkIsCompacted(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.lead(tpA, 1, 1, 2) // nothing is committed before broker 2 fetches
		r.putKeys(tpA, "a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4")
		before := values(t, r.m.Partition(tpA))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantValues(tpA, before)
		r.fetch(2, from(tpA, 8))
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := values(t, r.m.Partition(tpA)); strings.Contains(got, "0:a=1") {
			t.Fatalf("after all was committed: %s", got)
		}
	})
}

func TestTruncationMakesWhatFollowsDirtyAgain(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4")
		time.Sleep(time.Minute)
		synctest.Wait()
		at, err := r.dir.ReadCheckpoint(commitlog.CleanerCheckpoint)
		if err != nil || at[tpA] < 3 {
			t.Fatal(at, err)
		}
		r.follow(tpA, 2, 2)
		if err := r.m.Partition(tpA).TruncateTo(2, 3); err != nil {
			t.Fatal(err)
		}
		if end := r.m.Partition(tpA).EndOffset(); end > 3 {
			t.Fatal(end)
		}
		at, err = r.dir.ReadCheckpoint(commitlog.CleanerCheckpoint)
		if err != nil || at[tpA] > 3 {
			t.Fatal(at, err)
		}
	})
}

// A log that ends below its checkpointed recovery point counts as damaged, and what lies
// above its end is not clean, whatever a batch was cut along with.
func TestCheckpointsComeDownBeforeACut(t *testing.T) {
	for _, all := range []bool{false, true} {
		inBubble(t, func(r *rig) {
			compacting(r)
			r.lead(tpA, 1, 1)
			for range 4 {
				r.put(tpA, 2, "v")
			}
			p := r.m.Partition(tpA)
			if err := errors.Join(p.log().Flush(), r.m.writeRecoveryPoints(r.dir)); err != nil {
				t.Fatal(err)
			}
			p.cleaned = 5 // as by a map that was full within a batch
			r.follow(tpA, 2, 2)
			cut := false
			r.hook(func(op vfs.Op, name string) error {
				if cut || op != vfs.OpTruncate && !(op == vfs.OpRename && strings.Contains(name, ".log")) {
					return nil
				}
				cut = true
				at, err := r.dir.ReadCheckpoint(commitlog.RecoveryPointCheckpoint)
				if err != nil || at[tpA] > 4 {
					t.Errorf("the log is cut to 4 while its checkpoint says %d, %v", at[tpA], err)
				}
				return nil
			})
			err := p.TruncateTo(2, 5)
			if all {
				err = errors.Join(err, p.TruncateFullyAndStartAt(2, 4))
			}
			if err != nil || !cut || p.EndOffset() != 4 {
				t.Fatalf("cut %v, end %d, %v", cut, p.EndOffset(), err)
			}
			at, err := r.dir.ReadCheckpoint(commitlog.CleanerCheckpoint)
			if from, _, _ := p.cleanable(); err != nil || from != 4 || at[tpA] != 4 {
				t.Errorf("clean up to %d, checkpointed %d, %v: the log ends at 4", from, at[tpA], err)
			}
		})
	}
}

func TestDamagedCleanerCheckpointCostsACleanOnly(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4")
		time.Sleep(time.Minute)
		r.stop()
		if err := vfs.WriteFileAtomic(r.fs, "/data/"+commitlog.CleanerCheckpoint, []byte("0\n1\nnonsense\n")); err != nil {
			t.Fatal(err)
		}
		r.start()
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantCleaned(tpA, r.m.CleanerStats().Last.End)
		if got := values(t, r.m.Partition(tpA)); !strings.Contains(got, "6:a=4 7:b=4") {
			t.Fatal(got)
		}
	})
}

func TestCleanerKeepsToItsRate(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.cleaner.BytesPerSecond = 100
		r.restart()
		time.Sleep(time.Second)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4")
		time.Sleep(17 * time.Second)
		if st := r.m.CleanerStats(); st.Cleans != 0 {
			t.Fatal("cleaned at once")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		st := r.m.CleanerStats()
		if atLeast := time.Duration(st.Last.BytesRead/100) * time.Second; st.Cleans != 1 || st.Last.Elapsed < atLeast {
			t.Fatalf("%d bytes in %v", st.Last.BytesRead, st.Last.Elapsed)
		}
	})
}

func TestDeletedTopicsCleanEndsAndTheCheckpointForgetsIt(t *testing.T) {
	inBubble(t, func(r *rig) {
		compacting(r)
		r.cleaner.BytesPerSecond = 100
		r.restart()
		time.Sleep(time.Second)
		r.lead(tpA, 1, 1)
		r.putKeys(tpA, "a=1", "b=1", "a=2", "b=2", "a=3", "b=3", "a=4", "b=4")
		time.Sleep(17 * time.Second) // in the middle of the clean
		wantErr(t, "deletion", r.stopReplica(tpA, 1, true), nil)
		if at, err := r.dir.ReadCheckpoint(commitlog.CleanerCheckpoint); err != nil || len(at) != 0 {
			t.Fatal(at, err)
		}
		synctest.Wait()
		if st := r.m.CleanerStats(); st.Cleans != 0 || st.Aborted != 1 || st.Failures != 0 || len(r.failures) != 0 {
			t.Fatalf("%+v; failed folders: %v", st, r.failures)
		}
	})
}
