package partition

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

const (
	damageBatches = 60
	damageFlushed = 40 // below it all is on disk when the broker is killed
)

var (
	victim = TopicPartition{Topic: "victim"}
	other  = TopicPartition{Topic: "other"}
	// A dozen segments with some index entries each.
	damageLog = commitlog.Config{SegmentBytes: 900, IndexIntervalBytes: 150, RetentionAge: -1}
)

// What becomes of the victim.
type outcome int

const (
	whole      outcome = iota // all is there
	cut                       // what was not flushed may be gone
	offline                   // the replica cannot be used, and says so
	unreadable                // it is there but for the damaged batch, which readers are told
	hole                      // as in Kafka, nobody notices the missing segment
	visible                   // as in Kafka, nobody notices the missing index: readers of committed data get what was aborted
)

// TestDamagedFilesHarmTheirReplicaOnly damages a folder on the real disk in every way
// that we could think of, and opens it. The other replica must be whole whatever
// happens, and a second start must find what the first one left.
func TestDamagedFilesHarmTheirReplicaOnly(t *testing.T) {
	clean, killed := filepath.Join(t.TempDir(), "clean"), filepath.Join(t.TempDir(), "killed")
	writeDamageFolder(t, clean, true)
	writeDamageFolder(t, killed, false)

	flip := func(at func(size int64) int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at(int64(len(b)))] ^= 0x40
			overwrite(t, path, b)
		}
	}
	first := flip(func(int64) int64 { return 0 })
	magic := flip(func(int64) int64 { return 16 })
	middle := flip(func(n int64) int64 { return n / 2 })
	end := flip(func(n int64) int64 { return n - 1 })
	half := func(t *testing.T, path string) { truncate(t, path, 2) }
	empty := func(t *testing.T, path string) { overwrite(t, path, nil) }
	gone := func(t *testing.T, path string) { os.Remove(path) }
	folder := func(t *testing.T, path string) {
		os.Remove(path)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(t *testing.T, path string) { // what an operator does who is short of room
		away := filepath.Join(t.TempDir(), "moved")
		if err := errors.Join(os.CopyFS(away, os.DirFS(filepath.Dir(path))), os.RemoveAll(path), os.Symlink(filepath.Join(away, filepath.Base(path)), path)); err != nil {
			t.Fatal(err)
		}
	}
	pipe := func(t *testing.T, path string) {
		if err := errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	const last = -1
	seg := func(i int, suffix string) func(dir string) string {
		return func(dir string) string {
			logs, _ := filepath.Glob(filepath.Join(dir, victim.String(), "*.log"))
			return strings.TrimSuffix(logs[(i+len(logs))%len(logs)], ".log") + suffix
		}
	}
	aborts := func(dir string) string {
		all, _ := filepath.Glob(filepath.Join(dir, victim.String(), "*.txnindex"))
		return all[0]
	}
	snapshot := func(dir string) string {
		all, _ := filepath.Glob(filepath.Join(dir, victim.String(), "*.snapshot"))
		return all[len(all)-1]
	}
	in := func(name string) func(dir string) string {
		return func(dir string) string { return filepath.Join(dir, victim.String(), name) }
	}
	top := func(name string) func(dir string) string {
		return func(dir string) string { return filepath.Join(dir, name) }
	}
	type row struct {
		what   string
		file   func(dir string) string
		damage func(t *testing.T, path string)
		clean  outcome // after a clean stop
		killed outcome // after kill -9
		says   string  // in the log, where the outcome is not silent
	}
	for _, r := range []row{
		{"log, a record flipped in an old segment", seg(1, ".log"), end, whole, whole, ""}, // as in Kafka the client's checksum tells
		{"log, a header flipped in an old segment", seg(1, ".log"), magic, unreadable, unreadable, ""},
		{"log, the last record flipped", seg(last, ".log"), end, whole, cut, ""},
		{"log, the last segment's first header flipped", seg(last, ".log"), magic, unreadable, cut, ""},
		{"log, the last batch's header flipped", seg(last, ".log"), flip(func(n int64) int64 { return n - 92 + 16 }), offline, cut, "damaged"},
		{"log, an old segment cut to half", seg(1, ".log"), half, offline, offline, "damaged"},
		{"log, the last segment cut to half", seg(last, ".log"), half, offline, cut, "damaged"},
		{"log, an old segment empty", seg(1, ".log"), empty, offline, offline, "damaged"},
		{"log, the last segment empty", seg(last, ".log"), empty, offline, cut, "damaged"},
		{"log, an old segment missing", seg(1, ".log"), gone, hole, hole, ""},
		{"log, the last segment missing", seg(last, ".log"), gone, offline, cut, "damaged"},
		{"log, a folder in its place", seg(1, ".log"), folder, offline, offline, "is a directory"},
		{"log, a link in its place", seg(1, ".log"), link, whole, whole, ""},
		{"log, a link in place of the last segment", seg(last, ".log"), link, whole, whole, ""},
		{"log, a pipe in its place", seg(1, ".log"), pipe, offline, offline, "not a regular file"},
		{"log, a pipe in place of the last segment", seg(last, ".log"), pipe, offline, offline, "not a regular file"},
		{"index, a pipe in its place", seg(1, ".index"), pipe, offline, offline, "not a regular file"},
		{"epochs, a pipe in their place", in("leader-epoch-checkpoint"), pipe, offline, offline, "not a regular file"},
		{"topic id, a link to nowhere in its place", in("partition.metadata"), func(t *testing.T, p string) {
			if err := errors.Join(os.Remove(p), os.Symlink(p+".none", p)); err != nil {
				t.Fatal(err)
			}
		}, offline, offline, "not a regular file"},
		{"a link in the folder's place", in(""), func(t *testing.T, p string) { link(t, filepath.Clean(p)) }, whole, whole, ""},
		{"index, first entry flipped", seg(1, ".index"), first, whole, whole, ""},
		{"index, last byte flipped in the last segment", seg(last, ".index"), func(t *testing.T, p string) {
			if st, err := os.Stat(p); err == nil && st.Size() > 0 { // after kill -9 it is still in memory
				flip(func(n int64) int64 { return n - 4 })(t, p)
			}
		}, whole, whole, ""},
		{"index cut", seg(1, ".index"), func(t *testing.T, p string) { truncate(t, p, 3) }, whole, whole, "rebuilding a segment"},
		{"index empty", seg(1, ".index"), empty, whole, whole, "rebuilding a segment"},
		{"index missing", seg(1, ".index"), gone, whole, whole, "rebuilding a segment"},
		{"index, a folder in its place", seg(1, ".index"), folder, offline, offline, "is a directory"},
		{"time index, last entry flipped", seg(1, ".timeindex"), end, whole, whole, ""},
		{"time index empty", seg(1, ".timeindex"), empty, whole, whole, "rebuilding a segment"},
		{"time index missing", seg(1, ".timeindex"), gone, whole, whole, "rebuilding a segment"},
		{"time index, a folder in its place", seg(1, ".timeindex"), folder, offline, offline, "is a directory"},
		{"transaction index flipped", aborts, first, whole, whole, "rebuilding a segment"},
		{"transaction index, an offset flipped", aborts, end, whole, whole, ""}, // too far a look is not too short a one
		{"transaction index cut", aborts, half, whole, whole, "rebuilding a segment"},
		{"transaction index empty", aborts, empty, visible, visible, ""},
		{"transaction index missing", aborts, gone, visible, visible, ""},
		{"transaction index, a folder in its place", aborts, folder, offline, offline, "is a directory"},
		{"snapshot flipped", snapshot, middle, whole, whole, "bad producer snapshot"},
		{"snapshot empty", snapshot, empty, whole, whole, "bad producer snapshot"},
		{"snapshot cut", snapshot, half, whole, whole, "bad producer snapshot"},
		{"snapshot missing", snapshot, gone, whole, whole, ""},
		{"snapshot, a folder in its place", snapshot, folder, offline, offline, "is a directory"},
		{"epochs damaged", in("leader-epoch-checkpoint"), first, whole, whole, "leader epochs are unreadable"},
		{"epochs cut", in("leader-epoch-checkpoint"), half, whole, whole, "leader epochs are unreadable"},
		{"epochs empty", in("leader-epoch-checkpoint"), empty, whole, whole, ""},
		{"epochs missing", in("leader-epoch-checkpoint"), gone, whole, whole, ""},
		{"epochs, a folder in their place", in("leader-epoch-checkpoint"), folder, offline, offline, "is a directory"},
		{"topic id damaged", in("partition.metadata"), first, offline, offline, "partition.metadata"},
		{"topic id empty", in("partition.metadata"), empty, offline, offline, "partition.metadata"},
		{"topic id missing", in("partition.metadata"), gone, whole, whole, ""},
		{"topic id, a folder in its place", in("partition.metadata"), folder, offline, offline, "partition.metadata"},
		{"recovery points damaged", top(commitlog.RecoveryPointCheckpoint), first, whole, whole, "checkpoint is damaged"},
		{"recovery points empty", top(commitlog.RecoveryPointCheckpoint), empty, whole, whole, ""},
		{"recovery points missing", top(commitlog.RecoveryPointCheckpoint), gone, whole, whole, ""},
		{"watermarks cut", top(commitlog.HighWatermarkCheckpoint), half, whole, whole, "checkpoint is damaged"},
		{"watermarks missing", top(commitlog.HighWatermarkCheckpoint), gone, whole, whole, ""},
		{"log starts damaged", top(commitlog.LogStartCheckpoint), first, whole, whole, "checkpoint is damaged"},
		{"log starts missing", top(commitlog.LogStartCheckpoint), gone, whole, whole, ""},
		{"a file in the folder's place", in(""), func(t *testing.T, p string) {
			os.RemoveAll(filepath.Clean(p))
			overwrite(t, filepath.Clean(p), []byte("x"))
		}, offline, offline, ""},
		{"unknown files", in("core"), func(t *testing.T, p string) {
			overwrite(t, p, []byte("x"))
			overwrite(t, p+".tmp", nil)
			overwrite(t, filepath.Join(filepath.Dir(p), "00000000000000000000.log.deleted"), []byte("x"))
		}, whole, whole, ""},
	} {
		for _, c := range []struct {
			name     string
			template string
			want     outcome
		}{{"after a clean stop", clean, r.clean}, {"after kill -9", killed, r.killed}} {
			t.Run(r.what+" "+c.name, func(t *testing.T) {
				dir := filepath.Join(scratchDir(t), "data")
				if err := os.CopyFS(dir, os.DirFS(c.template)); err != nil {
					t.Fatal(err)
				}
				r.damage(t, r.file(dir))
				says := checkDamage(t, dir, c.want)
				want := r.says
				if c.want == cut {
					want = "recovered a log"
				} else if c.want == whole && c.template == killed && strings.HasPrefix(r.what, "snapshot") {
					want = "" // the scan makes the newest ones anew without a look at them
				}
				if !strings.Contains(says, want) {
					t.Errorf("the log does not say %q:\n%s", want, says)
				}
				if c.want != offline || r.what == "a file in the folder's place" {
					return
				}
				again := checkDamage(t, dir, c.want)
				if !strings.Contains(again, "replica is damaged") {
					t.Errorf("a second start does not say it:\n%s", again)
				}
			})
		}
	}
}

// checkDamage starts a Manager over the folder, holds both replicas against what is
// wanted, stops it in order and gives what it said.
func checkDamage(t *testing.T, dir string, want outcome) string {
	t.Helper()
	var said bytes.Buffer
	d, err := commitlog.OpenDir(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	defer wheel.Close()
	r := &rig{t: t, dir: d, fs: vfs.OS}
	r.m, err = NewManager(context.Background(), Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: vfs.OS, Dirs: []*commitlog.Dir{d}, Wheel: wheel, ISR: r,
		Topic:  func(string) TopicConfig { return TopicConfig{MinISR: 1, Log: damageLog} },
		Logger: slog.New(slog.NewTextHandler(&said, nil)), RecoveryThreads: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		err := r.m.Close()
		if err := d.Close(r.m.ClosedClean(d)); err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Errorf("closing: %v", err)
		}
	}()
	if n, err := readable(r.m.Partition(other).Log()); n < damageBatches || err != nil {
		t.Errorf("the other replica has %d records that can be read, %v", n, err)
	}
	r.lead(other, 5, 1)
	if res := <-r.produce(other, 1, batch(1, "x")); res.Err != nil {
		t.Errorf("the other replica: %v", res.Err)
	}
	p := r.m.Partition(victim)
	if want == offline {
		if p != nil {
			n, err := readable(p.Log())
			t.Fatalf("the victim is open with %d records, %v:\n%s", n, err, said.String())
		}
		if strings.Contains(said.String(), "replica is damaged") { // else it counts as not there
			wantErr(t, "becoming leader", r.order(victim, theID, 1, 5, []int32{1}, []int32{1}), kerr.KafkaStorageError)
			wantErr(t, "fetch", r.fetch(-1, from(victim, 0)).Err, kerr.KafkaStorageError)
			wantErr(t, "produce", (<-r.produce(victim, 1, batch(1, "x"))).Err, kerr.KafkaStorageError)
		}
		return said.String()
	}
	if p == nil {
		t.Fatalf("the victim is offline:\n%s", said.String())
	}
	n, err := readable(p.Log())
	switch {
	case (want == whole || want == visible) && (n != damageBatches || err != nil),
		want == cut && (n < damageFlushed || n >= damageBatches || err != nil || p.Log().EndOffset() != int64(n)),
		want == hole && (n < damageFlushed || n >= damageBatches || err != nil),
		want == unreadable && (!errors.Is(err, kerr.CorruptMessage) || p.Log().EndOffset() != damageBatches):
		t.Fatalf("%d records, log ends at %d, %v:\n%s", n, p.Log().EndOffset(), err, said.String())
	}
	if _, _, _, _, err := p.Log().OffsetForTimestamp(1_700_000_000_000+int64(n)/2, math.MaxInt64); err != nil && want != unreadable {
		t.Fatalf("looking for a time: %v", err)
	}
	r.lead(victim, 5, 1)
	for _, at := range damageAborts {
		seen, err := p.Log().AbortedTransactions(int64(at), int64(at)+1)
		known := len(seen) == 1 && seen[0] == commitlog.AbortedTransaction{ProducerID: 8, FirstOffset: int64(at)}
		switch {
		case want == visible && at == damageAborts[0]:
			if len(seen) > 0 || err != nil {
				t.Errorf("transaction aborted at %d: %v, %v, and its index is gone", at, seen, err)
			}
		case at+1 < n && !known || err != nil:
			t.Errorf("transaction aborted at %d: %v, %v", at, seen, err)
		}
	}
	if want == unreadable {
		wantErr(t, "fetch of the damaged batch", r.fetch(-1, from(victim, int64(n))).Err, kerr.CorruptMessage)
	}
	if want == whole {
		if e, _ := p.Log().EpochAt(25); e != 2 {
			t.Errorf("offset 25 has epoch %d", e)
		}
		if res := <-r.produce(victim, 1, damageBatch(damageBatches-1)); res.Err != nil || !res.Duplicate {
			t.Errorf("retry of the last batch: %+v", res)
		}
	}
	if len(r.failures) > 0 {
		t.Errorf("folders have failed: %v", r.failures)
	}
	return said.String()
}

// readable is how many records can be read from the start on, up to the end or an error.
func readable(l *commitlog.Log) (n int, err error) {
	for from := l.StartOffset(); from < l.EndOffset(); {
		s, err := l.Read(from, 1<<20, math.MaxInt64, true)
		if err != nil || s.Len == 0 {
			return n, err
		}
		b := make([]byte, s.Len)
		_, err = s.ReadInto(b)
		s.Close()
		if err != nil {
			return n, err
		}
		for x, err := range recordbatch.Split(b) {
			if err != nil {
				return n, err
			}
			n += int(x.Count())
		}
		from = s.LastOffset + 1
	}
	return n, nil
}

// damageAborts are where the aborted transactions are, of a record and a marker each: one
// in an old segment, one in what was not flushed.
var damageAborts = []int{11, 51}

func damageBatch(i int) []byte {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 9, 0, int32(i)
	for n, at := range damageAborts {
		switch {
		case i == at:
			o.ProducerID, o.BaseSequence, o.Transactional = 8, int32(n), true
		case i == at+1:
			return txnMarkerAt(0, 8, true)
		case i > at:
			o.BaseSequence -= 2
		}
	}
	b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: 1_700_000_000_000 + int64(i), Value: fmt.Appendf(nil, "record %d of some length", i)}})
	if err != nil {
		panic(err)
	}
	return b
}

func writeDamageFolder(t *testing.T, path string, clean bool) {
	t.Helper()
	d, err := commitlog.OpenDir(vfs.OS, path)
	if err != nil {
		t.Fatal(err)
	}
	recovery, starts, hws := map[TopicPartition]int64{}, map[TopicPartition]int64{}, map[TopicPartition]int64{}
	for _, tp := range []TopicPartition{victim, other} {
		err := commitlog.WriteTopicID(vfs.OS, d.PartitionPath(tp), theID)
		var l *commitlog.Log
		if err == nil {
			l, err = commitlog.Open(vfs.OS, d.PartitionPath(tp), damageLog, commitlog.OpenOptions{CleanShutdown: true, Background: func(func()) {}})
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range damageBatches {
			if _, err := l.AppendLeader(damageBatch(i), int32(1+i/20)); err != nil {
				t.Fatal(err)
			}
			if i+1 == damageFlushed {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		recovery[tp], starts[tp], hws[tp] = l.RecoveryPoint(), 0, damageFlushed
		if clean {
			err, recovery[tp], hws[tp] = l.Close(), damageBatches, damageBatches
		} else {
			err = l.Abandon()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(d.WriteMeta(commitlog.MetaProperties{ClusterID: "c", BrokerID: 1}), d.WriteCheckpoint(commitlog.RecoveryPointCheckpoint, recovery),
		d.WriteCheckpoint(commitlog.LogStartCheckpoint, starts), d.WriteCheckpoint(commitlog.HighWatermarkCheckpoint, hws), d.Close(clean))
	if err != nil {
		t.Fatal(err)
	}
}

// scratchDir is a real folder, where there is one in memory: hundreds of syncs take
// their time on a disk.
func scratchDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "penstock-damage")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// truncate leaves the n-th part of a file.
func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	st, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, st.Size()/n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged replica goes when its topic is deleted, and one made anew is sound; until
// then the checkpoints keep what they said of it.
// Bytes behind the last batch of an old segment are damage of that log, whatever a reader
// asks for, and no sign of a failing disk.
func TestBytesBehindTheLastBatchHarmTheirReplicaOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	writeDamageFolder(t, dir, true)
	logs, _ := filepath.Glob(filepath.Join(dir, victim.String(), "*.log"))
	b, err := os.ReadFile(logs[1])
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, logs[1], append(b, make([]byte, 10)...))
	d, err := commitlog.OpenDir(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	defer wheel.Close()
	r := &rig{t: t, dir: d, fs: vfs.OS}
	r.m, err = NewManager(context.Background(), Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: vfs.OS, Dirs: []*commitlog.Dir{d}, Wheel: wheel, ISR: r,
		Topic: func(string) TopicConfig { return TopicConfig{MinISR: 1, Log: damageLog} }, RecoveryThreads: 2,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.lead(victim, 5, 1)
	r.lead(other, 5, 1)
	for at := range int64(damageBatches) {
		part := from(victim, at)
		part.MaxBytes = 1 // each batch is looked for, and what follows it
		res := r.fetch(-1, part)
		if res.Err != nil && !errors.Is(res.Err, kerr.CorruptMessage) {
			t.Errorf("fetch at %d: %v", at, res.Err)
		}
		res.Slice.Close()
	}
	if res := <-r.produce(other, 1, batch(1, "x")); res.Err != nil {
		t.Errorf("the other replica: %v", res.Err)
	}
	if err := errors.Join(r.m.Close(), d.Close(true)); err != nil {
		t.Error(err)
	}
}

func TestDamagedReplicaCanBeDeleted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	writeDamageFolder(t, dir, true)
	meta := filepath.Join(dir, victim.String(), "partition.metadata")
	good, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, meta, []byte("?"))
	checkDamage(t, dir, offline)
	overwrite(t, meta, good)
	checkDamage(t, dir, whole) // mended

	overwrite(t, meta, []byte("?"))
	d, err := commitlog.OpenDir(vfs.OS, dir)
	if err != nil {
		t.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	defer wheel.Close()
	r := &rig{t: t, dir: d, fs: vfs.OS}
	r.m, err = NewManager(context.Background(), Config{
		BrokerID: 1, BrokerEpoch: func() int64 { return 50 }, FS: vfs.OS, Dirs: []*commitlog.Dir{d}, Wheel: wheel, ISR: r,
		Topic: func(string) TopicConfig { return TopicConfig{MinISR: 1, Log: damageLog} }, DeleteDelay: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	at, err := d.ReadCheckpoint(commitlog.RecoveryPointCheckpoint)
	if at[victim] != damageBatches || err != nil {
		t.Errorf("the damaged replica's recovery point is %d now, %v", at[victim], err)
	}
	wantErr(t, "deletion", r.stopReplica(victim, -2, true), nil)
	if err := r.order(victim, protocol.UUID{8}, 1, 0, []int32{1}, []int32{1}); err != nil {
		t.Fatalf("a topic of that name made anew: %v", err)
	}
	if p := r.m.Partition(victim); p == nil || p.EndOffset() != 0 {
		t.Error("the new replica is not empty")
	}
	if err := errors.Join(r.m.Close(), d.Close(true)); err != nil {
		t.Error(err)
	}
}

// What docs/operations.md tells an operator who has no other copy.
func TestDamagedReplicaCanBeTakenAsFarAsItIsWhole(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	writeDamageFolder(t, dir, true)
	logs, _ := filepath.Glob(filepath.Join(dir, victim.String(), "*.log"))
	truncate(t, logs[len(logs)-1], 2)
	checkDamage(t, dir, offline)
	_ = os.Remove(filepath.Join(dir, ".kafka_cleanshutdown"))
	overwrite(t, filepath.Join(dir, commitlog.RecoveryPointCheckpoint), []byte("0\n1\nother 0 60\n"))
	checkDamage(t, dir, cut)
}
