package brokertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system of its own, of a few MB. It skips the test where
// that is not allowed.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a folder on a disk that can be full needs the right to mount one: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// immutable makes a folder take no new name, not even root's.
func immutable(t *testing.T, dir string, on bool) error {
	t.Helper()
	flag := map[bool]string{true: "+i", false: "-i"}[on]
	return exec.Command("chattr", flag, dir).Run()
}

// twoDirs starts three brokers with two folders each; the second is given.
func twoDirs(t *testing.T, second func(id int) string, settings ...string) *Cluster {
	t.Helper()
	first := t.TempDir()
	firstOf := func(id int) string { return filepath.Join(first, fmt.Sprintf("first-%d", id)) }
	c := Start(t, Options{
		Brokers: 3,
		Settings: append([]string{"zookeeper.session.timeout.ms=3000", "replica.lag.time.max.ms=2000",
			"replica.high.watermark.checkpoint.interval.ms=200", "auto.leader.rebalance.enable=false"}, settings...),
		Each: func(id int) []string { return []string{"log.dirs=" + firstOf(id) + "," + second(id)} },
	})
	for id, n := range c.Brokers {
		n.LogDir, n.SecondDir = firstOf(id), second(id)
	}
	return c
}

// partitionsIn lists the partitions of a topic that a broker has in a folder.
func (c *Cluster) partitionsIn(dir, topic string) map[int32]bool {
	c.t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, topic+"-*"))
	if err != nil {
		c.t.Fatal(err)
	}
	in := map[int32]bool{}
	for _, f := range found {
		var p int32
		if _, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(f), topic+"-"), "%d", &p); err == nil && !strings.Contains(filepath.Base(f), ".") {
			in[p] = true
		}
	}
	return in
}

type partitionState struct {
	leader, epoch int32
	offline       []int32
}

func (c *Cluster) states(topic string) map[int32]partitionState {
	all := map[int32]partitionState{}
	c.describe(topic, func(m *kmsg.MetadataResponse) {
		for _, p := range m.Topics[0].Partitions {
			all[p.Partition] = partitionState{p.Leader, p.LeaderEpoch, p.OfflineReplicas}
		}
	})
	return all
}

// folderFails breaks a broker's second folder: what was led from there moves, what was
// not is not touched, and the load goes on.
func (l *load) folderFails(t *testing.T, n *Node, breakIt func() error) {
	t.Helper()
	c := l.c
	lost := c.partitionsIn(n.SecondDir, "ledger")
	if len(lost) == 0 || len(lost) == 6 {
		t.Fatalf("broker %d has %d of 6 partitions in its second folder", n.ID, len(lost))
	}
	before := c.states("ledger")
	if err := breakIt(); err != nil {
		t.Fatal(err)
	}
	Await(t, 30*time.Second, "replicas of the failed folder offline", func() error {
		for p, s := range c.states("ledger") {
			if lost[p] != slices.Contains(s.offline, n.ID) || lost[p] && s.leader == n.ID || s.leader < 0 {
				return fmt.Errorf("partition %d, lost: %v: %+v", p, lost[p], s)
			}
		}
		return nil
	})
	l.goesOn(1000, time.Minute)
	for p, s := range c.states("ledger") {
		if !lost[p] && (s.leader != before[p].leader || s.epoch != before[p].epoch) {
			t.Errorf("partition %d lay elsewhere and was touched: %+v, then %+v", p, before[p], s)
		}
	}
	if n.ended() {
		t.Fatalf("broker %d has ended", n.ID)
	}
	dirs, err := kadm.NewClient(c.Client()).DescribeBrokerLogDirs(context.Background(), n.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := dirs[n.SecondDir].Err; !errors.Is(err, kerr.KafkaStorageError) || dirs[n.LogDir].Err != nil || len(dirs[n.LogDir].Topics["ledger"]) != 6-len(lost) {
		t.Errorf("folders of broker %d: %+v", n.ID, dirs)
	}
}

// TestDirsFailOneByOneUnderLoad fills the disk under one broker's folder, then takes
// the right to make files in another's: what was led from there moves, what was not
// is not touched, nothing that was acknowledged is lost, and with the folders
// repaired the brokers catch up.
func TestDirsFailOneByOneUnderLoad(t *testing.T) {
	disk := smallDisk(t, "48m")
	plain := t.TempDir()
	c := twoDirs(t, func(id int) string {
		if id == 1 {
			return filepath.Join(disk, "logs")
		}
		return filepath.Join(plain, fmt.Sprintf("second-%d", id))
	})
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(1000, time.Minute)

	filler := filepath.Join(disk, "filler")
	l.folderFails(t, c.Brokers[1], func() error {
		f, err := os.Create(filler)
		if err != nil {
			return err
		}
		defer f.Close()
		for block := make([]byte, 1<<16); ; {
			if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
				return nil
			} else if err != nil {
				return err
			}
		}
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	c.Brokers[1].Stop()
	c.Brokers[1].Start()
	c.AwaitWhole("ledger", time.Minute)

	second := c.Brokers[2].SecondDir
	if err := immutable(t, second, true); err != nil {
		t.Logf("permissions cannot be taken from root here (chattr: %v); that part is left out", err)
	} else {
		t.Cleanup(func() { _ = immutable(t, second, false) })
		l.folderFails(t, c.Brokers[2], func() error { return nil })
		if err := immutable(t, second, false); err != nil {
			t.Fatal(err)
		}
		c.Brokers[2].Kill()
		c.Brokers[2].Start()
		c.AwaitWhole("ledger", time.Minute)
	}
	l.goesOn(500, time.Minute)
	l.end(t)
}

// deleteAt deletes records of one partition and gives the reply's low watermark.
func (c *Cluster) deleteAt(topic string, partition int32, offset int64) (int64, error) {
	return c.deleteWithin(20*time.Second, topic, partition, offset)
}

func (c *Cluster) deleteWithin(timeout time.Duration, topic string, partition int32, offset int64, opts ...kgo.Opt) (int64, error) {
	c.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = int32(timeout.Milliseconds())
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Partition, rp.Offset = partition, offset
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(context.Background(), c.Client(opts...))
	if err != nil {
		return -1, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.LowWatermark, kerr.ErrorForCode(p.ErrorCode)
}

// TestDirsDeletedRecordsStayDeleted kills every replica right after the
// acknowledgement.
func TestDirsDeletedRecordsStayDeleted(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=3000"}})
	c.CreateTopic("t", 1, 3)
	cl := c.Client(kgo.DefaultProduceTopic("t"))
	var rs []*kgo.Record
	for i := range 100 {
		rs = append(rs, kgo.StringRecord(fmt.Sprint(i)))
	}
	if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.AwaitWhole("t", time.Minute)
	adm := kadm.NewClient(c.Client())
	if err := adm.CommitAllOffsets(context.Background(), "readers", kadm.OffsetsFromRecords(kgo.Record{Topic: "t", Offset: 4, LeaderEpoch: -1})); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if low, err := c.deleteAt("t", 0, 37); low != 37 || err != nil {
		t.Fatalf("low watermark %d, %v", low, err)
	}
	t.Logf("three replicas have deleted after %v", time.Since(began).Round(time.Millisecond))
	for _, n := range c.Brokers {
		n.Signal(9)
	}
	c.inParallel((*Node).Kill)
	c.inParallel((*Node).Start)
	c.AwaitWhole("t", time.Minute)
	for _, n := range c.Brokers { // whichever leads next
		if b, err := os.ReadFile(filepath.Join(n.LogDir, "log-start-offset-checkpoint")); err != nil || !strings.Contains(string(b), "\nt 0 37\n") {
			t.Errorf("broker %d has the log starts %q, %v", n.ID, b, err)
		}
	}
	reader := c.Client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	first := reader.PollFetches(context.Background()).Records()
	if len(first) == 0 || first[0].Offset != 37 || string(first[0].Value) != "37" {
		t.Errorf("%d records, not from 37 on", len(first))
	}
	group, err := kadm.NewClient(c.Client()).FetchOffsets(context.Background(), "readers")
	if o, _ := group.Lookup("t", 0); err != nil || o.At != 5 {
		t.Errorf("the group's offset has become %d, %v", o.At, err)
	}
}

// TestDirsReplicaMovesThroughKills moves a replica to and fro between two folders
// under load, at a bounded rate, while the broker is killed again and again.
func TestDirsReplicaMovesThroughKills(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	c := Start(t, Options{Settings: []string{"log.segment.bytes=200000", "replica.alter.log.dirs.io.max.bytes.per.second=600000"},
		Each: func(int) []string { return []string{"log.dirs=" + one + "," + two, "num.partitions=1"} }})
	n := c.Brokers[0]
	n.LogDir, n.SecondDir = one, two
	c.CreateTopic("ledger", 1, 1)
	l := startLoad(c, "ledger")
	noise := make([]byte, 100_000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	noisy := c.Client(kgo.DefaultProduceTopic("noise"), kgo.AllowAutoTopicCreation())
	for range 6 { // so that a move takes its second
		if err := noisy.ProduceSync(context.Background(), kgo.SliceRecord(noise)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	l.goesOn(1000, time.Minute)
	adm := kadm.NewClient(c.Client())
	where := func() (current string, moving bool) {
		all, err := adm.DescribeBrokerLogDirs(context.Background(), 0, nil)
		if err != nil {
			return "", false
		}
		for path, d := range all {
			for _, p := range d.Topics["noise"] {
				if p.IsFuture {
					moving = true
				} else {
					current = path
				}
			}
		}
		return current, moving
	}
	ask := func(to string) {
		t.Helper()
		var req kadm.AlterReplicaLogDirsReq
		req.Add(to, kadm.TopicsSet{"ledger": {0: {}}, "noise": {0: {}}})
		Await(t, 10*time.Second, "the move to be taken", func() error {
			resp, err := adm.AlterBrokerReplicaLogDirs(context.Background(), 0, req)
			if err != nil {
				return err
			}
			return errors.Join(resp["ledger"][0].Err, resp["noise"][0].Err)
		})
	}
	for round := range 2 {
		from, _ := where()
		to := map[string]string{one: two, two: one}[from]
		ask(to)
		kills := 0
		Await(t, time.Minute, "the replica in its new folder", func() error {
			if current, moving := where(); current == to && !moving {
				return nil
			}
			if kills < 2 {
				time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond) // any moment will do
				n.Kill()
				kills++
				n.Start()
			}
			return errors.New("not yet")
		})
		l.goesOn(300, time.Minute)
		for _, d := range []string{one, two} {
			for _, topic := range []string{"ledger", "noise"} {
				if in := c.partitionsIn(d, topic); in[0] != (d == to) {
					t.Errorf("round %d: %s holds %v of %s", round, d, in, topic)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(d, "*-future")); len(left) > 0 {
				t.Errorf("round %d: copies are left: %v", round, left)
			}
		}
	}
	l.end(t)
}

func TestDirsMissingAtStartAndTheLastOne(t *testing.T) {
	disk := smallDisk(t, "8m")
	bad := filepath.Join(t.TempDir(), "a-file")
	if err := os.WriteFile(bad, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(disk, "logs")
	c := Start(t, Options{Each: func(int) []string {
		return []string{"log.dirs=" + bad + "," + good, "penstock.usage.enable=false"} // the counters take more room than that
	}})
	n := c.Brokers[0]
	c.CreateTopic("t", 2, 1)
	cl := c.Client(kgo.DefaultProduceTopic("t"), kgo.RecordDeliveryTimeout(time.Second), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err := cl.ProduceSync(context.Background(), kgo.StringRecord("v")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	dirs, err := kadm.NewClient(c.Client()).DescribeBrokerLogDirs(context.Background(), 0, nil)
	if err != nil || !errors.Is(dirs[bad].Err, kerr.KafkaStorageError) || dirs[good].Err != nil || len(dirs[good].Topics["t"]) != 2 {
		t.Fatalf("%+v, %v", dirs, err)
	}
	// With its last folder the broker has nothing left to do.
	for range 10 { // more than the disk holds; nobody waits for the answers, as the last are not given
		cl.Produce(context.Background(), kgo.SliceRecord(make([]byte, 900_000)), nil)
	}
	select {
	case <-n.end:
		said, err := os.ReadFile(n.logFile())
		if err != nil || !strings.Contains(string(said), "the last log folder, "+good+", has failed") {
			t.Errorf("the broker does not say why it ends (%v)", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the broker lives on without a folder")
	}
}
