package brokertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ext4Disk mounts an ext4 of its own, which turns read-only at its first error: trigger is
// the file that makes it meet one, and repair takes the disk off and mounts it mended. It
// skips the test where that is not allowed.
func ext4Disk(t *testing.T) (dir, trigger string, repair func() error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "disk")
	image := dir + ".img"
	run := func(name string, args ...string) error {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	mount := func() error { return run("mount", "-o", "loop,errors=remount-ro", image, dir) }
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(64<<20), f.Close(), os.Mkdir(dir, 0o755), run("mkfs.ext4", "-q", "-F", image))
	}
	if err == nil {
		err = mount()
	}
	if err != nil {
		t.Skipf("a disk that fails needs the right to mount one: %v", err)
	}
	t.Cleanup(func() { _ = run("umount", "-l", dir) })
	source, err := exec.Command("findmnt", "-no", "SOURCE", dir).Output()
	trigger = filepath.Join("/sys/fs/ext4", filepath.Base(strings.TrimSpace(string(source))), "trigger_fs_error")
	if err == nil {
		_, err = os.Stat(trigger)
	}
	if err != nil {
		t.Skipf("the kernel offers no way to let ext4 meet an error: %v", err)
	}
	return dir, trigger, func() error {
		// Not a lazy one: nothing may keep the disk from being repaired beside the broker.
		if err := run("umount", dir); err != nil {
			return err
		}
		_ = run("e2fsck", "-fy", image) // it says by an error that it has mended something
		return mount()
	}
}

// A disk that meets an error turns read-only under its folder. The broker goes on with the
// other, lets the disk be taken off and repaired meanwhile, and takes the folder up again
// at its next start.
func TestDirsDiskTurnsReadOnlyUnderLoad(t *testing.T) {
	disk, trigger, repair := ext4Disk(t)
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
	n := c.Brokers[1]
	l.folderFails(t, n, func() error { return os.WriteFile(trigger, []byte("1"), 0o200) })
	if err := repair(); err != nil {
		t.Fatalf("the disk cannot be repaired while the broker goes on: %v", err)
	}
	l.goesOn(500, time.Minute)
	n.Stop()
	n.Start()
	c.AwaitWhole("ledger", time.Minute)
	l.goesOn(500, time.Minute)
	l.end(t)
}

// DeleteRecords waits for followers that live, no longer than it may, and not for dead ones.
func TestDirsDeleteRecordsBesideADeadFollower(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=12000", "auto.leader.rebalance.enable=false"}})
	c.CreateTopic("t", 1, 3, "min.insync.replicas=2")
	cl := c.Client(kgo.DefaultProduceTopic("t"))
	for i := range 100 {
		if err := cl.ProduceSync(context.Background(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.AwaitWhole("t", time.Minute)
	leader := c.leader("t", 0)
	frozen, there := c.Brokers[(leader+1)%3], kgo.SeedBrokers(c.Brokers[leader].Addr)
	frozen.freeze()
	low, err := c.deleteWithin(300*time.Millisecond, "t", 0, 10, there) // and not by way of the frozen one
	if !errors.Is(err, kerr.RequestTimedOut) || low >= 10 {
		t.Errorf("a follower lives and is silent: low watermark %d, %v", low, err)
	}
	if low, err = c.deleteWithin(time.Minute, "t", 0, 20, there); low != 20 || err != nil { // until its session is over
		t.Errorf("a follower dies meanwhile: low watermark %d, %v", low, err)
	}
	if low, err = c.deleteAt("t", 0, 30); low != 30 || err != nil {
		t.Errorf("a follower is dead: low watermark %d, %v", low, err)
	}
	frozen.Kill() // as it is, so that its start comes from what it wrote down and the leader
	frozen.Start()
	c.AwaitWhole("t", time.Minute)
	if low, err = c.deleteAt("t", 0, 40); low != 40 || err != nil {
		t.Errorf("with all of them back: low watermark %d, %v", low, err)
	}
	for _, n := range c.Brokers {
		if b, err := os.ReadFile(filepath.Join(n.LogDir, "log-start-offset-checkpoint")); err != nil || !strings.Contains(string(b), "\nt 0 40\n") {
			t.Errorf("broker %d has the log starts %q, %v", n.ID, b, err)
		}
	}
}

// A topic that is deleted while its replica moves, and made again at once, has nothing of
// the old one, whichever folder it comes to lie in; and can move itself, through a kill.
func TestDirsTopicIsMadeAgainWhileItMoves(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	c := Start(t, Options{Settings: []string{"replica.alter.log.dirs.io.max.bytes.per.second=100000", "log.segment.delete.delay.ms=100"},
		Each: func(int) []string { return []string{"log.dirs=" + one + "," + two} }})
	n := c.Brokers[0]
	n.LogDir, n.SecondDir = one, two
	adm := kadm.NewClient(c.Client())
	ctx := context.Background()
	for round := range 6 {
		c.CreateTopic("t", 1, 1)
		cl := c.Client(kgo.DefaultProduceTopic("t"))
		for i := range 1 + round%2 {
			r := kgo.StringRecord(fmt.Sprintf("life %d, %d %s", round, i, strings.Repeat("x", 60_000*(1-round%2)))) // a move of a second or none
			if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		cl.Close()
		in := one
		if c.partitionsIn(two, "t")[0] {
			in = two
		}
		var req kadm.AlterReplicaLogDirsReq
		req.Add(map[string]string{one: two, two: one}[in], kadm.TopicsSet{"t": {0: {}}})
		Await(t, 10*time.Second, "the move to be taken", func() error {
			resp, err := adm.AlterBrokerReplicaLogDirs(ctx, 0, req)
			return errors.Join(err, resp["t"][0].Err)
		})
		if round == 3 {
			n.Kill()
			n.Start()
		}
		reader := c.Client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		got := reader.PollRecords(ctx, 1).Records()
		reader.Close()
		if len(got) == 0 || got[0].Offset != 0 || !strings.HasPrefix(string(got[0].Value), fmt.Sprintf("life %d, 0", round)) {
			t.Fatalf("round %d reads something else: %.300s", round, fmt.Sprint(got))
		}
		if _, err := adm.DeleteTopics(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		Await(t, time.Minute, "the topic to be gone", func() error {
			all, err := adm.ListTopics(ctx)
			if err == nil && all.Has("t") {
				err = errors.New("it is there")
			}
			return err
		})
	}
	Await(t, time.Minute, "no trace of the topic in the folders", func() error {
		left, err := filepath.Glob(filepath.Join(dir, "*", "t-0*"))
		aside, _ := filepath.Glob(filepath.Join(dir, "*", "t.0*"))
		if left = append(left, aside...); len(left) > 0 {
			return fmt.Errorf("left are %v", left)
		}
		return err
	})
	n.Stop()
	for _, d := range []string{one, two} {
		for _, name := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} {
			if b, err := os.ReadFile(filepath.Join(d, name)); err == nil && strings.Contains(string(b), "\nt 0 ") {
				t.Errorf("%s of %s still knows the topic: %q", name, d, b)
			}
		}
	}
}
