package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/coordination"
	"penstock/dataplane/vfs"
)

// deletions deletes topics of two partitions on all three brokers.
type deletions struct {
	*Cluster
	zk *coordination.Client
}

const deletedPartitions = 2

// TestDeletionSurvivesKills kills the controller after each of its writes to ZooKeeper in
// turn, with the answer lost, and a leader and a follower before the deletion, when it is
// marked, and while they give the replica up. Each time the topic goes without a trace, also
// from the broker that was killed, and one of the same name is another topic.
func TestDeletionSurvivesKills(t *testing.T) {
	d := &deletions{Cluster: Start(t, Options{Brokers: 3, Proxies: true, Settings: []string{"zookeeper.session.timeout.ms=2000", "auto.create.topics.enable=false",
		"log.segment.delete.delay.ms=1000", "log.flush.offset.checkpoint.interval.ms=500", "log.flush.start.offset.checkpoint.interval.ms=500", "replica.high.watermark.checkpoint.interval.ms=500"}})}
	var err error
	if d.zk, err = coordination.Connect(t.Context(), coordination.Config{Connect: d.ZK.Addr() + d.chroot, SessionTimeout: 60 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.zk.Close)

	for step, through := 1, false; !through; step++ {
		name := fmt.Sprint("by-controller-", step)
		old := d.make(name)
		id := d.controller()
		if id < 0 {
			t.Fatal("nobody is controller")
		}
		n := d.Brokers[id]
		cut := n.ZK.CutAfter(step)
		d.ask(name)
		select {
		case <-cut:
			n.Kill()
			n.ZK.Heal()
			n.Start()
		case <-d.unlisted(name):
			if through = true; step < 6 {
				t.Errorf("only %d writes", step-1)
			}
			n.ZK.CutAfter(0)
		}
		d.check(name, old, step%2 == 0)
	}
	moments := map[string]func(n *Node, name string){
		"before":      func(n *Node, name string) { n.Kill(); d.ask(name); d.awaitMark(name) },
		"when marked": func(n *Node, name string) { d.ask(name); d.awaitMark(name); n.Kill() },
		"renaming": func(n *Node, name string) { // it may be through with that: then it dies with the rest to do
			d.ask(name)
			for deadline := time.Now().Add(30 * time.Second); len(n.folders(name)) > 0 && time.Now().Before(deadline); {
				if slices.ContainsFunc(n.folders(name), func(f string) bool { return strings.HasSuffix(f, "-delete") }) {
					break
				}
			}
			n.Kill()
		},
	}
	for i, moment := range []string{"before", "when marked", "renaming"} {
		for j, role := range []string{"leader", "follower"} {
			name := strings.ReplaceAll(role+" "+moment, " ", "-")
			old := d.make(name)
			leader, ctl := d.leader(name, 0), d.controller()
			victim := leader
			for id := range int32(3) {
				if role == "follower" && id != leader && (id != ctl || victim == leader) {
					victim = id
				}
			}
			t.Logf("%s: broker %d, the controller is %d", name, victim, ctl)
			n := d.Brokers[victim]
			moments[moment](n, name)
			if moment == "before" {
				// Nothing forgets the topic while a broker may still have it, and none of that name is made.
				if err := d.create(name); !errors.Is(err, kerr.TopicAlreadyExists) {
					t.Errorf("%s: made anew beside what a dead broker has: %v", name, err)
				}
			}
			n.Start()
			d.check(name, old, (i+j)%2 == 0)
		}
	}
}

// make makes a topic with records in it.
func (d *deletions) make(name string) (id [16]byte) {
	d.t.Helper()
	d.createOn(name, deletedPartitions, []int32{0, 1, 2}, "retention.ms=86400000")
	d.AwaitWhole(name, 30*time.Second)
	cl := d.Client(kgo.DefaultProduceTopic(name), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	defer cl.Close()
	for range 10 {
		if err := cl.ProduceSync(context.Background(), kgo.StringRecord("old")).FirstErr(); err != nil {
			d.t.Fatal(err)
		}
	}
	a, err := d.zk.Topic(context.Background(), name)
	if err != nil {
		d.t.Fatal(err)
	}
	return a.ID
}

// ask asks for the deletion and does not wait for the answer, which may never come.
func (d *deletions) ask(name string) {
	cl := d.freshClient()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = kadm.NewClient(cl).DeleteTopics(ctx, name)
	}()
	d.t.Cleanup(func() { cancel(); <-done })
}

func (d *deletions) has(path string) bool {
	d.t.Helper()
	st, err := d.zk.Exists(context.Background(), path)
	if err != nil {
		d.t.Fatal(err)
	}
	return st != nil
}

func (d *deletions) awaitMark(name string) {
	d.t.Helper()
	Await(d.t, 30*time.Second, "the mark of "+name, func() error {
		if !d.has(coordination.DeleteTopicsPath+"/"+name) && d.has(coordination.TopicPath(name)) {
			return errors.New("not there")
		}
		return nil
	})
}

// unlisted is closed when nothing of the topic is in ZooKeeper any more.
func (d *deletions) unlisted(name string) <-chan struct{} {
	gone := make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
			if left, err := d.znodes(ctx, name); err == nil && len(left) == 0 {
				close(gone)
				return
			}
		}
	}()
	d.t.Cleanup(func() { cancel(); <-done })
	return gone
}

func (d *deletions) znodes(ctx context.Context, name string) (left []string, err error) {
	for _, path := range []string{coordination.TopicPath(name), "/config/topics/" + name, coordination.DeleteTopicsPath + "/" + name} {
		st, err := d.zk.Exists(ctx, path)
		if err != nil {
			return nil, err
		} else if st != nil {
			left = append(left, path)
		}
	}
	return left, nil
}

// folders are all of a topic's, those that are being deleted and put aside included.
func (n *Node) folders(topic string) []string {
	found, _ := filepath.Glob(filepath.Join(n.LogDir, topic+"-*"))
	return found
}

// traces is what is left of a topic anywhere.
func (d *deletions) traces(name string) error {
	left, err := d.znodes(context.Background(), name)
	if err != nil || len(left) > 0 {
		return fmt.Errorf("in ZooKeeper: %v, %v", left, err)
	}
	for _, n := range d.Brokers {
		if f := n.folders(name); len(f) > 0 {
			return fmt.Errorf("broker %d has %v", n.ID, f)
		}
		files, _ := filepath.Glob(filepath.Join(n.LogDir, "*checkpoint*"))
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(name+" ")) {
				return fmt.Errorf("broker %d has it in %s", n.ID, filepath.Base(f))
			}
		}
		cl := d.Client(kgo.SeedBrokers(n.Addr), kgo.RetryTimeout(time.Second))
		resp, err := metadataFor(12, &name).RequestWith(context.Background(), cl.SeedBrokers()[0])
		cl.Close()
		if err != nil || len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != kerr.UnknownTopicOrPartition.Code || len(resp.Brokers) != 3 {
			return fmt.Errorf("broker %d tells of it, or of fewer brokers: %+v, %v", n.ID, resp, err)
		}
	}
	return nil
}

func (d *deletions) create(name string) error {
	cl := d.freshClient()
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := kadm.NewClient(cl).CreateTopic(ctx, deletedPartitions, 3, nil, name)
	return err
}

// check waits for the end of the deletion and makes a topic of the same name: at once when
// that is taken, or when nothing is left of the old one.
func (d *deletions) check(name string, old [16]byte, atOnce bool) {
	d.t.Helper()
	if !atOnce {
		Await(d.t, 60*time.Second, name+" gone without a trace", func() error { return d.traces(name) })
	}
	Await(d.t, 60*time.Second, name+" being made anew", func() error { return d.create(name) })
	d.AwaitWhole(name, 30*time.Second)
	a, err := d.zk.Topic(context.Background(), name)
	if err != nil || a.ID == old {
		d.t.Fatalf("%s: made anew it has id %x, was %x, %v", name, a.ID, old, err)
	}
	cl := d.Client(kgo.DefaultProduceTopic(name), kgo.ConsumeTopics(name), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 4 {
		if err := cl.ProduceSync(ctx, kgo.StringRecord("new")).FirstErr(); err != nil {
			d.t.Fatal(err)
		}
	}
	for got := 0; got < 4; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			d.t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if got++; string(r.Value) != "new" || r.Offset > 3 {
				d.t.Errorf("%s: the new topic has %q at %d", name, r.Value, r.Offset)
			}
		})
	}
	for _, n := range d.Brokers {
		Await(d.t, 30*time.Second, fmt.Sprintf("broker %d with the new %s alone", n.ID, name), func() error {
			f := n.folders(name)
			if len(f) != deletedPartitions {
				return fmt.Errorf("it has %v", f)
			}
			for p := range deletedPartitions {
				id, ok, err := commitlog.ReadTopicID(vfs.OS, filepath.Join(n.LogDir, fmt.Sprintf("%s-%d", name, p)))
				if err != nil || !ok || id != a.ID {
					return fmt.Errorf("partition %d is of topic %x, %v", p, id, err)
				}
			}
			return nil
		})
	}
	d.describe(name, func(m *kmsg.MetadataResponse) {
		for _, p := range m.Topics[0].Partitions {
			if len(p.OfflineReplicas) > 0 {
				d.t.Errorf("%s-%d has offline replicas %v", name, p.Partition, p.OfflineReplicas)
			}
		}
	})
}
