package partition

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/vfs"
)

// content is all that a consumer reads of a partition, as offset and value.
func (r *rig) content(tp TopicPartition) string {
	r.t.Helper()
	p := r.m.Partition(tp)
	var b bytes.Buffer
	for at := p.StartOffset(); at < p.EndOffset(); {
		s, err := p.Read(at, 1<<20, p.EndOffset(), true)
		if err != nil || s.Len == 0 {
			r.t.Fatalf("reading at %d: %d bytes, %v", at, s.Len, err)
		}
		buf := make([]byte, s.Len)
		if _, err := s.ReadInto(buf); err != nil {
			r.t.Fatal(err)
		}
		b.Write(buf)
		at = s.LastOffset + 1
		s.Close()
	}
	return b.String()
}

// settled waits for the movers and lists what the folders hold of a partition.
func (r *rig) settled(tp TopicPartition) (current, future, rest []string) {
	r.t.Helper()
	synctest.Wait()
	for _, path := range r.paths {
		es, err := r.fs.ReadDir(path)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range es {
			switch {
			case !e.Dir || !strings.HasPrefix(e.Name, tp.String()):
			case e.Name == tp.String():
				current = append(current, path)
			case strings.HasSuffix(e.Name, "-future"):
				future = append(future, path)
			default:
				rest = append(rest, path+"/"+e.Name)
			}
		}
	}
	return current, future, rest
}

func TestReplicaMovesToAnotherFolderWhileItServes(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.log = commitlog.Config{SegmentBytes: 5000, IndexIntervalBytes: 100}
		r.sole(tpA, 1)
		for range 50 {
			r.put(tpA, 10, strings.Repeat("x", 20))
		}
		<-r.deleteTo(tpA, 25)
		before := r.content(tpA)
		poll := r.fetchAsync(-1, from(tpA, 500), time.Hour, 1)
		old := r.m.Partition(tpA).log()
		pinned, err := old.Read(25, 1<<20, 500, true)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two/"), nil)
		r.put(tpA, 10, "meanwhile")
		current, future, rest := r.settled(tpA)
		if fmt.Sprint(current, future) != "[/two] []" || len(rest) != 1 || !strings.HasPrefix(rest[0], "/one/a-0.") || !strings.HasSuffix(rest[0], "-delete") {
			t.Fatalf("folders: %v, %v, %v", current, future, rest)
		}
		if res := <-poll; res.Err != nil || res.Slice.Len == 0 {
			t.Errorf("the poll that waited got %+v", res)
		} else {
			res.Slice.Close()
		}
		if after := r.content(tpA); !strings.HasPrefix(after, before) || !strings.Contains(after, "meanwhile") {
			t.Error("the replica's content has changed")
		}
		// What was handed to a reader before is still to be read.
		if _, err := pinned.ReadInto(make([]byte, pinned.Len)); err != nil {
			t.Error(err)
		}
		pinned.Close()
		r.put(tpA, 1, "after")
		if e, ok := r.m.Partition(tpA).log().LatestEpoch(); e != 1 || !ok {
			t.Errorf("latest epoch %d, %v", e, ok)
		}
		want := r.content(tpA)
		r.kill()
		r.start()
		if got := r.dirOf(tpA); got != "/two" || r.content(tpA) != want {
			t.Errorf("after a kill it lies in %s, whole: %v", got, r.content(tpA) == want)
		}
		if p := r.m.Partition(tpA); p.StartOffset() != 25 {
			t.Errorf("log starts at %d", p.StartOffset())
		}
	})
}

// Whatever the call at which the process is killed, one replica with all records is
// there afterwards, and the move either comes to its end or has left nothing.
func TestKillAtAnyMomentOfAMoveLeavesOneGoodReplica(t *testing.T) {
	kills := 0
	for at := 1; ; at++ {
		over := false
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			var left *vfs.Mem
			var mu sync.Mutex // others stand still while the disk is copied
			n, counting := 0, false
			r := &rig{t: t, minISR: 1, paths: []string{"/one", "/two"}, log: commitlog.Config{SegmentBytes: 2000}}
			r.fs = &vfs.Faulty{FS: mem, Hook: func(op vfs.Op, _ string) error {
				mu.Lock()
				defer mu.Unlock()
				if counting && op != vfs.OpRead && op != vfs.OpList {
					if n++; n == at {
						for err := error(errDisk); err != nil; { // a call that was under way ends first
							left, err = r.snapshot(mem)
						}
					}
				}
				return nil
			}}
			r.start()
			r.sole(tpA, 1)
			count := func(on bool) {
				mu.Lock()
				defer mu.Unlock()
				counting = on
			}
			for range 3 {
				r.put(tpA, 10, strings.Repeat("x", 100))
			}
			<-r.deleteTo(tpA, 7)
			want := r.content(tpA)
			count(true)
			wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
			synctest.Wait()
			count(false)
			over = left == nil
			r.stop()
			if over {
				return
			}
			kills++
			r.fs = left
			r.start()
			defer r.stop()
			r.sole(tpA, 2)
			current, future, rest := r.settled(tpA)
			if len(current) != 1 || len(future) != 0 {
				t.Fatalf("killed at call %d: replicas in %v, copies in %v, rest %v", at, current, future, rest)
			}
			if got := r.content(tpA); got != want {
				t.Fatalf("killed at call %d: %d bytes of records, want %d", at, len(got), len(want))
			}
			r.put(tpA, 1, "goes on")
			if p := r.m.Partition(tpA); p.EndOffset() != 31 || p.StartOffset() != 7 || p.HighWatermark() != 31 {
				t.Errorf("killed at call %d: %d to %d, high watermark %d", at, p.StartOffset(), p.EndOffset(), p.HighWatermark())
			}
		})
		if over || t.Failed() {
			break
		}
	}
	t.Logf("%d kills", kills)
	if kills < 30 {
		t.Errorf("only %d moments", kills)
	}
}

// A failing call of the folder that the copy goes to ends the move, of the folder
// that it comes from the replica as well.
func TestFailureWhileMovingLeavesTheReplicaWhereItIs(t *testing.T) {
	seen := 0
	for at := 1; ; at++ {
		n, counting := 0, false
		over := false
		inTwoDirs(t, func(op vfs.Op, name string) bool {
			if !counting || !strings.HasPrefix(name, "/two") {
				return false
			}
			n++
			return n >= at
		}, func(r *rig) {
			r.sole(tpA, 1)
			r.put(tpA, 10, "v")
			want := r.content(tpA)
			counting = true
			err := r.m.MoveReplica(tpA, "/two")
			synctest.Wait()
			over = n < at
			counting = false
			if over {
				return
			}
			seen++
			wantErr(t, "at once or not at all", err, map[bool]error{true: kerr.KafkaStorageError}[err != nil])
			if r.dirOf(tpA) == "/two" { // failed after it had moved
				wantErr(t, "fetch", r.fetch(-1, from(tpA, 0)).Err, kerr.KafkaStorageError)
			} else {
				if r.content(tpA) != want || r.m.Partition(tpA).copying() != nil {
					t.Errorf("call %d: the replica is spoilt, or moves on", at)
				}
				r.put(tpA, 1, "goes on")
			}
			r.restart()
			if got := r.content(tpA); !strings.HasPrefix(got, want) {
				t.Errorf("call %d: after the repair %d bytes, want %d", at, len(got), len(want))
			}
		})
		if over || t.Failed() {
			break
		}
	}
	if seen < 15 {
		t.Errorf("only %d failing calls", seen)
	}
}

func TestMoveRefusesWhatItCannotDo(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		long := TopicPartition{Topic: strings.Repeat("x", 220)}
		r.sole(long, 1)
		r.sole(tpB, 1)
		elsewhere := TopicPartition{Topic: "elsewhere"}
		wantErr(t, "unknown folder", r.m.MoveReplica(tpA, "/three"), kerr.LogDirNotFound)
		wantErr(t, "relative folder", r.m.MoveReplica(tpA, "two"), kerr.LogDirNotFound)
		wantErr(t, "long name", r.m.MoveReplica(long, "/two"), kerr.InvalidTopicException)
		wantErr(t, "not here", r.m.MoveReplica(elsewhere, "/two"), kerr.ReplicaNotAvailable)
		wantErr(t, "nowhere", r.m.MoveReplica(TopicPartition{Topic: "nowhere"}, "/two"), kerr.UnknownTopicOrPartition)
		wantErr(t, "where it is", r.m.MoveReplica(tpA, "/one"), nil)
		if current, future, _ := r.settled(tpA); fmt.Sprint(current, future) != "[/one] []" {
			t.Errorf("moved to where it is: %v, %v", current, future)
		}
		// The wish holds when the replica is made.
		r.sole(TopicPartition{Topic: "x"}, 1)
		r.sole(elsewhere, 1)
		if got := r.dirOf(elsewhere); got != "/two" {
			t.Errorf("made in %s", got)
		}
		r.restart()
		wantErr(t, "before the controller has spoken", r.m.MoveReplica(tpA, "/two"), kerr.UnknownTopicOrPartition)
		r.sole(tpA, 2)
		r.m.failDir(r.dirs[1], errDisk)
		wantErr(t, "to a failed folder", r.m.MoveReplica(tpA, "/two"), kerr.KafkaStorageError)
		wantErr(t, "of a failed replica", r.m.MoveReplica(elsewhere, "/one"), kerr.KafkaStorageError)
	})
}

// stalled makes moves that copy nothing until it is given back.
func (r *rig) stalled() (resume func()) {
	r.m.movers.mu.Lock()
	r.m.movers.running += 100
	r.m.movers.mu.Unlock()
	return func() {
		r.m.movers.mu.Lock()
		r.m.movers.running -= 100
		r.m.movers.queued = map[*Partition]bool{}
		r.m.movers.queue = nil
		r.m.movers.mu.Unlock()
		for _, p := range r.m.all() {
			r.m.movers.add(p)
		}
	}
}

func TestMoveCanBeTurnedAndGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, fs: vfs.NewMem(), minISR: 1, paths: []string{"/one", "/two", "/three"}}
		r.start()
		defer r.stop()
		r.sole(tpA, 1)
		r.put(tpA, 10, "v")
		resume := r.stalled()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		wantErr(t, "again", r.m.MoveReplica(tpA, "/two"), nil)
		if current, future, rest := r.settled(tpA); fmt.Sprint(current, future, rest) != "[/one] [/two] []" {
			t.Errorf("%v %v %v", current, future, rest)
		}
		d := r.m.DescribeDirs(func(TopicPartition) bool { return true })
		if len(d[2].Replicas) != 1 || !d[2].Replicas[0].Future || d[2].Replicas[0].Lag != 10 || d[0].Replicas[0].Future {
			t.Errorf("%+v", d)
		}
		wantErr(t, "elsewhere", r.m.MoveReplica(tpA, "/three"), nil)
		if current, future, rest := r.settled(tpA); fmt.Sprint(current, future) != "[/one] [/three]" || len(rest) != 1 {
			t.Errorf("%v %v %v", current, future, rest)
		}
		wantErr(t, "back", r.m.MoveReplica(tpA, "/one"), nil)
		if current, future, rest := r.settled(tpA); fmt.Sprint(current, future) != "[/one] []" || len(rest) != 2 {
			t.Errorf("%v %v %v", current, future, rest)
		}
		// A deleted replica leaves no copy.
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		wantErr(t, "deletion", r.stopReplica(tpA, -2, true), nil)
		if current, future, _ := r.settled(tpA); len(current)+len(future) > 0 {
			t.Errorf("%v %v", current, future)
		}
		resume()
	})
}

// Whatever the call at which a move is turned back, one folder has the replica's name
// afterwards, and the way to the other one is free.
func TestMoveTurnedBackAtAnyMomentLeavesOneReplica(t *testing.T) {
	turns := 0
	for at := int64(1); ; at++ {
		var n atomic.Int64
		var counting atomic.Bool
		var hook func()
		over := false
		inTwoDirs(t, func(op vfs.Op, _ string) bool {
			if counting.Load() && op != vfs.OpRead && op != vfs.OpList && n.Add(1) == at {
				hook()
			}
			return false
		}, func(r *rig) {
			r.sole(tpA, 1)
			r.put(tpA, 10, "v")
			want := r.content(tpA)
			turned := make(chan error, 1)
			hook = func() {
				go func() { turned <- r.m.MoveReplica(tpA, "/one") }()
				for range 1000 { // it comes as far as it can; where it waits for the mover nobody could tell
					runtime.Gosched()
				}
			}
			counting.Store(true)
			wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
			synctest.Wait()
			counting.Store(false)
			if over = n.Load() < at; over {
				return
			}
			turns++
			wantErr(t, "back", <-turned, nil)
			if current, future, _ := r.settled(tpA); len(current) != 1 || len(future) != 0 || current[0] != r.dirOf(tpA) {
				t.Fatalf("turned back at call %d: replicas in %v, copies in %v, served from %s", at, current, future, r.dirOf(tpA))
			}
			for _, to := range []string{"/two", "/one"} {
				wantErr(t, "move", r.m.MoveReplica(tpA, to), nil)
				if current, future, _ := r.settled(tpA); fmt.Sprint(current, future) != "["+to+"] []" || r.content(tpA) != want {
					t.Fatalf("turned back at call %d and sent to %s: %v, %v", at, to, current, future)
				}
			}
		})
		if over || t.Failed() {
			break
		}
	}
	if turns < 30 {
		t.Errorf("only %d moments", turns)
	}
}

func TestDeleteRecordsWaitsForTheCopy(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.put(tpA, 10, "v")
		resume := r.stalled()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		res := r.deleteTo(tpA, 4)
		if !pending(res) {
			t.Fatal("answered although a copy has the records")
		}
		resume()
		if got := <-res; got.Err != nil || got.LowWatermark != 4 {
			t.Errorf("%+v", got)
		}
	})
}

func TestCopyFollowsTruncations(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		wantErr(t, "order", r.orderNew(tpA, 2, 1, true), nil)
		p := r.m.Partition(tpA)
		add := func(epoch int32, n int, value string) {
			t.Helper()
			if _, err := p.AppendFollower(epoch, p.EndOffset(), batchAt(p.EndOffset(), epoch, n, value), 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		add(1, 10, "kept")
		add(1, 10, "cut")
		resume := r.stalled()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		f, buf := p.copying(), make([]byte, 1000)
		for f.log.EndOffset() < 20 {
			p.copyStep(f, &buf)
		}
		wantErr(t, "new leader", r.orderNew(tpA, 3, 2, false), nil)
		wantErr(t, "truncation", p.TruncateTo(2, 10), nil)
		if got := f.log.EndOffset(); got != 10 {
			t.Errorf("copy ends at %d after the truncation", got)
		}
		add(2, 5, "led on")
		want := r.content(tpA)
		resume()
		r.settled(tpA)
		if r.dirOf(tpA) != "/two" || r.content(tpA) != want {
			t.Errorf("in %s, the same: %v", r.dirOf(tpA), r.content(tpA) == want)
		}
		// And one that starts over.
		resume = r.stalled()
		wantErr(t, "move back", r.m.MoveReplica(tpA, "/one"), nil)
		f = p.copying()
		p.copyStep(f, &buf)
		wantErr(t, "starting over", p.TruncateFullyAndStartAt(2, 100), nil)
		if f.log.StartOffset() != 100 || f.log.EndOffset() != 100 {
			t.Errorf("copy has %d..%d", f.log.StartOffset(), f.log.EndOffset())
		}
		add(2, 3, "anew")
		resume()
		r.settled(tpA)
		if r.dirOf(tpA) != "/one" || p.StartOffset() != 100 || p.EndOffset() != 103 {
			t.Errorf("in %s, %d..%d", r.dirOf(tpA), p.StartOffset(), p.EndOffset())
		}
	})
}

// A crash can leave a copy that is longer than the replica, which was then led on.
func TestCopyOfAnEarlierLifeIsHeldAgainstTheReplica(t *testing.T) {
	for _, c := range []struct {
		what string
		cur  [][2]int // epoch and number of records
		cop  [][2]int
		want int64
	}{
		{"the same", [][2]int{{1, 10}}, [][2]int{{1, 10}}, 10},
		{"behind", [][2]int{{1, 10}, {2, 5}}, [][2]int{{1, 7}}, 7},
		{"ahead", [][2]int{{1, 5}}, [][2]int{{1, 10}}, 5},
		{"ahead by an epoch", [][2]int{{1, 5}}, [][2]int{{1, 5}, {2, 5}}, 5},
		{"parted", [][2]int{{1, 5}, {3, 10}}, [][2]int{{1, 5}, {2, 4}}, 5},
		{"parted within an epoch", [][2]int{{1, 5}, {3, 10}}, [][2]int{{1, 8}, {2, 4}}, 5},
		{"nothing in common", [][2]int{{5, 5}}, [][2]int{{1, 8}}, 0},
		{"empty", [][2]int{{5, 5}}, nil, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			fs := vfs.NewMem()
			logOf := func(name string, parts [][2]int) *commitlog.Log {
				l, err := commitlog.Open(fs, "/"+name, commitlog.Config{}, commitlog.OpenOptions{CleanShutdown: true})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = l.Abandon() })
				for _, p := range parts {
					for range p[1] {
						if _, err := l.AppendFollower(batchAt(l.EndOffset(), int32(p[0]), 1, "v")); err != nil {
							t.Fatal(err)
						}
					}
				}
				return l
			}
			cur, cop := logOf("cur", c.cur), logOf("cop", c.cop)
			if err := matchCopy(cop, cur); err != nil {
				t.Fatal(err)
			}
			if got := cop.EndOffset(); got != c.want {
				t.Errorf("copy ends at %d, want %d", got, c.want)
			}
		})
	}
}

func TestCopyWithoutItsReplicaIsPutAside(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.put(tpA, 10, "v")
		r.stalled()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		r.stop()
		if err := r.fs.RemoveAll("/one/a-0"); err != nil {
			t.Fatal(err)
		}
		r.start()
		if l, err := r.dirs[1].List(); err != nil || len(l.Future) != 0 || len(l.Stray) != 1 {
			t.Errorf("%+v, %v", l, err)
		}
	})
}

// A copy that cannot be opened is worth less than the folder that it lies in.
func TestDamagedCopyHarmsNothingElse(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.put(tpA, 10, "v")
		r.stalled()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		r.stop()
		l, err := r.dirs[1].List()
		if err != nil || len(l.Future) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		if err := r.fs.MkdirAll(l.Future[0].Path + "/00000000000000000009.log"); err != nil {
			t.Fatal(err)
		}
		r.start()
		if len(r.failures) != 0 {
			t.Errorf("folders taken offline: %v", r.failures)
		}
		if l, err := r.dirs[1].List(); err != nil || len(l.Future) != 0 {
			t.Errorf("%+v, %v", l, err)
		}
		if p := r.m.Partition(tpA); p == nil || p.EndOffset() != 10 {
			t.Errorf("%v", p)
		}
	})
}

func TestSpoiltRecordsAreNotMoved(t *testing.T) {
	inTwoDirs(t, nil, func(r *rig) {
		r.sole(tpA, 1)
		r.put(tpA, 10, "v")
		f, err := r.fs.Open("/one/a-0/00000000000000000000.log", false)
		if err == nil {
			_, err = f.WriteAt([]byte{0xff}, 70)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		if current, future, rest := r.settled(tpA); fmt.Sprint(current, future) != "[/one] []" || len(rest) != 1 {
			t.Errorf("%v %v %v", current, future, rest)
		}
		if len(r.failures) != 0 {
			t.Errorf("folders taken offline: %v", r.failures)
		}
	})
}

func TestMovesAreNoFasterThanTheirRate(t *testing.T) {
	now := time.Unix(100, 0)
	var c pace
	c.set(1000)
	for i, want := range []time.Duration{500, 1000, 1500} {
		if got, _ := c.take(500, now); got != want*time.Millisecond {
			t.Errorf("wait %d: %v", i, got)
		}
	}
	now = now.Add(time.Minute) // what was not used is not saved up
	if got, _ := c.take(100, now); got != 100*time.Millisecond {
		t.Errorf("after a pause: %v", got)
	}
	c.set(1<<63 - 1)
	if got, _ := c.take(1<<30, now); got > time.Microsecond {
		t.Errorf("at the default rate: %v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &rig{t: t, fs: vfs.NewMem(), minISR: 1, paths: []string{"/one", "/two"}, log: commitlog.Config{SegmentBytes: 1000}}
		r.start()
		defer r.stop()
		r.m.SetMoveRate(100)
		r.sole(tpA, 1)
		for range 20 {
			r.put(tpA, 1, strings.Repeat("x", 500))
		}
		began := time.Now()
		wantErr(t, "move", r.m.MoveReplica(tpA, "/two"), nil)
		for r.dirOf(tpA) != "/two" {
			time.Sleep(time.Second)
		}
		if took := time.Since(began); took < 90*time.Second || took > 130*time.Second {
			t.Errorf("11 KB at 100 B/s took %v", took)
		}
	})
}
