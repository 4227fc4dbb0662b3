package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/coordination"
)

// zookeeper is an onlooker's connection to the cluster's znodes.
func (c *Cluster) zookeeper(ctx context.Context) *coordination.Client {
	c.t.Helper()
	zk, err := coordination.Connect(ctx, coordination.Config{Connect: c.ZK.Addr() + c.chroot, SessionTimeout: 60 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(zk.Close)
	return zk
}

// createAtLast makes a topic of three partitions and replicas, trying until ZooKeeper's
// trouble lets it.
func (c *Cluster) createAtLast(topic string) {
	c.t.Helper()
	Await(c.t, time.Minute, "topic "+topic+" made", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := kadm.NewClient(c.Client()).CreateTopic(ctx, 3, 3, nil, topic)
		if err == nil {
			err = r.Err
		}
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil
		}
		return err
	})
}

// TestBrokerCutOffFromZooKeeperLearnsWhatItMissed: a topic's setting changes while a
// broker cannot reach ZooKeeper, and the notification is gone before it is back, as
// after a quarter of an hour; with its session still there, and with it lost.
func TestBrokerCutOffFromZooKeeperLearnsWhatItMissed(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Proxies: true, Settings: []string{"zookeeper.session.timeout.ms=30000"}})
	c.CreateTopic("t", 1, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	zk, n := c.zookeeper(ctx), c.Brokers[0]
	for _, tc := range []struct {
		limit  string
		lost   bool // its session
		expect *kerr.Error
	}{{"200", false, kerr.MessageTooLarge}, {"200000", true, nil}, {"200", true, kerr.MessageTooLarge}} {
		n.ZK.Cut()
		if tc.lost {
			n.ZK.Expire(t)
		}
		if err := zk.ChangeConfig(ctx, "topics/t", func(now map[string]string) (map[string]string, error) {
			now["max.message.bytes"] = tc.limit
			return now, nil
		}); err != nil {
			t.Fatal(err)
		}
		notes, err := zk.Children(ctx, coordination.ConfigChangesPath)
		if err != nil {
			t.Fatal(err)
		}
		for _, note := range notes {
			if err := zk.Delete(ctx, coordination.ConfigChangesPath+"/"+note, -1); err != nil {
				t.Fatal(err)
			}
		}
		n.ZK.Heal()
		Await(t, 30*time.Second, "the limit of "+tc.limit+" in force", func() error {
			got := produce(dialBroker(t, n.Addr), "t", sized(t, 1000)).ErrorCode
			if err := kerr.ErrorForCode(got); err != nil && err != tc.expect || err == nil && tc.expect != nil {
				return fmt.Errorf("answered %v", err)
			}
			return nil
		})
	}
}

// TestReplyToTheRegistrationIsLost: a broker's session ends, and the reply to its next
// registration does not reach it. It finds its own znode, knows it for its own, and
// serves under the epoch that the controller knows. Likewise at its start, with the
// znode of its former life still there.
func TestReplyToTheRegistrationIsLost(t *testing.T) {
	t.Parallel()
	const opMulti = 14
	c := Start(t, Options{Brokers: 3, Proxies: true, Settings: []string{"zookeeper.session.timeout.ms=60000"}})
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(300, 20*time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	zk := c.zookeeper(ctx)
	ctl := c.controller()
	for i := range int32(3) { // the controller last
		n := c.Brokers[(ctl+1+i)%3]
		for _, restarted := range []bool{false, true} {
			was, err := zk.Broker(ctx, n.ID)
			if err != nil {
				t.Fatal(err)
			}
			var lost <-chan struct{}
			if restarted {
				n.Kill() // its session lives on for a minute
				lost = n.ZK.LoseReply(opMulti)
				n.Start()
			} else {
				n.ZK.Cut()
				n.ZK.Expire(t)
				lost = n.ZK.LoseReply(opMulti)
				n.ZK.Heal()
			}
			select {
			case <-lost:
			case <-time.After(30 * time.Second):
				t.Fatalf("broker %d registers in another way", n.ID)
			}
			Await(t, 30*time.Second, fmt.Sprintf("broker %d registered again", n.ID), func() error {
				now, err := zk.Broker(ctx, n.ID)
				if err == nil && now.Epoch <= was.Epoch {
					err = fmt.Errorf("epoch %d, as before", now.Epoch)
				}
				return err
			})
			c.AwaitWhole("ledger", 30*time.Second) // nobody gets into an ISR under a wrong epoch
			l.goesOn(300, 30*time.Second)
		}
	}
	l.end(t)
}

// TestSessionEndsDuringTheFirstRegistration: the session of a broker that starts ends before
// its registration is carried out. It registers under the next session and serves.
func TestSessionEndsDuringTheFirstRegistration(t *testing.T) {
	t.Parallel()
	const opMulti = 14
	c := Start(t, Options{Brokers: 3, Proxies: true})
	n := c.Brokers[0]
	n.Stop()
	held := n.ZK.Hold(opMulti, 0)
	n.Launch()
	select {
	case <-held:
	case <-time.After(30 * time.Second):
		t.Fatal("the broker registers in another way")
	}
	n.ZK.Expire(t)
	n.ZK.Drop()
	n.AwaitServing()
	c.createAtLast("afterwards")
}

// TestTopicIsNeverSeenHalfMade: whoever asks a broker for a topic that is being made
// is told either that there is none or of all its partitions, with leaders; and
// once the creation is answered every broker has it, and each leader serves it at once.
func TestTopicIsNeverSeenHalfMade(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Brokers: 3})
	const partitions = 12
	look := func(w *wire, topic string) (known bool, err error) {
		rt := ask[*kmsg.MetadataResponse](w, metadataOf(topic)).Topics[0]
		if rt.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return false, nil
		}
		if rt.ErrorCode != 0 || len(rt.Partitions) != partitions {
			return true, fmt.Errorf("%s: error %d, %d partitions", topic, rt.ErrorCode, len(rt.Partitions))
		}
		for _, p := range rt.Partitions {
			if p.Leader < 0 || p.ErrorCode != 0 || len(p.ISR) != 3 || len(p.Replicas) != 3 {
				return true, fmt.Errorf("%s-%d: leader %d, error %d, ISR %v of %v", topic, p.Partition, p.Leader, p.ErrorCode, p.ISR, p.Replicas)
			}
		}
		return true, nil
	}
	var wg sync.WaitGroup
	for round := range 5 {
		topic := fmt.Sprint("whole-", round)
		made := make(chan struct{})
		for _, n := range c.Brokers {
			w := dialBroker(t, n.Addr)
			wg.Go(func() {
				for asked := 0; ; asked++ {
					if _, err := look(w, topic); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(2 * time.Millisecond) // leave the brokers some time to make it
					select {
					case <-made:
						if asked > 0 {
							return
						}
					default:
					}
				}
			})
		}
		got := ask[*kmsg.CreateTopicsResponse](dialBroker(t, c.Brokers[c.controller()].Addr), createOf(newTopic(topic, partitions, 3))).Topics[0]
		wantCode(t, "create "+topic, got.ErrorCode, nil)
		for _, n := range c.Brokers {
			if known, err := look(dialBroker(t, n.Addr), topic); !known || err != nil {
				t.Errorf("broker %d after the answer: known %v, %v", n.ID, known, err)
			}
		}
		for _, p := range ask[*kmsg.MetadataResponse](dialBroker(t, c.Brokers[0].Addr), metadataOf(topic)).Topics[0].Partitions {
			r := ask[*kmsg.ProduceResponse](dialBroker(t, c.Brokers[p.Leader].Addr), produceTo(-1, map[string]map[int32][]byte{topic: {p.Partition: sized(t, 10)}}))
			wantCode(t, fmt.Sprintf("produce to %s-%d", topic, p.Partition), r.Topics[0].Partitions[0].ErrorCode, nil)
		}
		close(made)
		wg.Wait()
	}
}

// TestEnsembleLosesServers: of three ZooKeeper servers each hangs in turn, the leading
// one included, and then two at once. Clients of existing leaders go on all the
// while. With one server hanging the cluster can still change; with two it
// cannot, for a while, and is told no lie.
func TestEnsembleLosesServers(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Brokers: 3, ZooKeepers: 3, Settings: []string{"zookeeper.session.timeout.ms=4000", "replica.lag.time.max.ms=4000"}})
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	create := func(topic string) {
		t.Helper()
		c.createAtLast(topic)
		c.AwaitWhole(topic, time.Minute)
	}
	for i, zk := range c.ZKs {
		zk.Freeze()
		l.goesOn(500, 20*time.Second)
		create(fmt.Sprint("with-hanging-", i))
		if i == 0 { // also a leader's loss is noticed
			dead := c.leader("ledger", 0)
			c.Brokers[dead].Kill()
			c.awaitLeader("ledger", 0, dead)
			c.Brokers[dead].Start()
		}
		zk.Thaw()
		c.AwaitWhole("ledger", time.Minute)
		l.goesOn(500, 20*time.Second)
	}
	c.ZKs[0].Freeze()
	c.ZKs[1].Freeze()
	for gone := time.Now(); time.Since(gone) < 6*time.Second; { // longer than a session
		l.goesOn(200, 20*time.Second)
	}
	c.ZKs[0].Thaw()
	c.ZKs[1].Thaw()
	create("afterwards")
	l.goesOn(500, time.Minute)
	l.end(t)
}

// TestZooKeeperIsGoneForManySessions: the whole ensemble is out of reach for ten session timeouts. Clients of
// existing leaders produce and read on all the while, and none of the brokers gives up. Afterwards every session is
// over at once: the brokers register anew, one of them becomes controller, topics can be made, and
// the death of a leader is noticed.
func TestZooKeeperIsGoneForManySessions(t *testing.T) {
	t.Parallel()
	const session, sessions = 1500 * time.Millisecond, 10
	c := Start(t, Options{Brokers: 3, Settings: []string{fmt.Sprint("zookeeper.session.timeout.ms=", session.Milliseconds())}})
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, time.Minute)
	reader := c.Client(kgo.ConsumeTopics("ledger"))
	read := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for n > 0 {
			fs := reader.PollFetches(ctx)
			if err := fs.Err(); err != nil {
				t.Fatalf("%d records short: %v", n, err)
			}
			n -= fs.NumRecords()
		}
	}
	read(500)
	epochs := map[int32]int64{}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	zk := c.zookeeper(ctx)
	for _, n := range c.Brokers {
		b, err := zk.Broker(ctx, n.ID)
		if err != nil {
			t.Fatal(err)
		}
		epochs[n.ID] = b.Epoch
	}
	c.ZK.Freeze()
	for gone := time.Now(); time.Since(gone) < sessions*session; {
		l.goesOn(200, time.Minute)
		read(200)
	}
	c.ZK.Thaw()
	for _, n := range c.Brokers {
		Await(t, time.Minute, fmt.Sprintf("broker %d registered under a new session", n.ID), func() error {
			b, err := zk.Broker(ctx, n.ID)
			if err == nil && b.Epoch <= epochs[n.ID] {
				err = fmt.Errorf("epoch %d as before", b.Epoch)
			}
			return err
		})
	}
	c.AwaitWhole("ledger", time.Minute)
	c.createAtLast("afterwards")
	dead := c.leader("ledger", 0)
	c.Brokers[dead].Kill()
	c.awaitLeader("ledger", 0, dead)
	c.Brokers[dead].Start()
	c.AwaitWhole("ledger", time.Minute)
	l.goesOn(500, time.Minute)
	read(500)
	l.end(t)
}

// TestConnectionsToZooKeeperFlap drops every broker's connection again and again, and
// cuts it for a moment, while topics are made, a broker dies and comes back, and
// the controller with it: each broker knows in the end what is true, and nobody's
// session ended for it.
func TestConnectionsToZooKeeperFlap(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{Brokers: 3, Proxies: true, Settings: []string{"zookeeper.session.timeout.ms=20000"}})
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(150 * time.Millisecond):
			}
			p := c.Brokers[i%3].ZK
			if i%2 == 0 {
				p.Drop()
				continue
			}
			p.Cut()
			time.Sleep(100 * time.Millisecond) // the fault itself
			p.Heal()
		}
	}()
	for i := range 5 {
		c.createAtLast(fmt.Sprint("flap-", i))
		l.goesOn(200, time.Minute)
	}
	ctl := c.controller()
	c.Brokers[ctl].Stop()
	l.goesOn(200, time.Minute)
	c.Brokers[ctl].Start()
	l.goesOn(200, time.Minute)
	close(stop)
	<-done
	for i := range 5 {
		c.AwaitWhole(fmt.Sprint("flap-", i), time.Minute)
	}
	l.end(t)
	for _, n := range c.Brokers {
		b, err := os.ReadFile(n.logFile())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"session expired", "controller step failed"} {
			if bytes.Contains(b, []byte(bad)) {
				t.Errorf("broker %d says %q", n.ID, bad)
			}
		}
	}
}
