package brokertest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"
)

// threeBrokers is the cluster under attack: sessions end soon, followers are
// given up soon.
func threeBrokers(t *testing.T, settings ...string) *Cluster {
	return Start(t, Options{Brokers: 3, Settings: append([]string{
		"zookeeper.session.timeout.ms=1500", "replica.lag.time.max.ms=2000", "controller.socket.timeout.ms=3000",
	}, settings...)})
}

// freeze stops the broker's process without ending it and returns when none of
// its threads runs any more.
func (n *Node) freeze() {
	n.c.t.Helper()
	n.frozen = true
	n.Signal(syscall.SIGSTOP)
	Await(n.c.t, 5*time.Second, fmt.Sprintf("broker %d stopped", n.ID), func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.PID()))
		if err != nil || len(stats) == 0 {
			return fmt.Errorf("no threads: %v", err)
		}
		for _, s := range stats {
			b, err := os.ReadFile(s)
			if err != nil {
				return err
			}
			if _, state, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s: %s", s, state[:1])
			}
		}
		return nil
	})
}

func (n *Node) thaw() {
	n.Signal(syscall.SIGCONT)
	n.frozen = false
}

// dialBroker opens a raw connection.
func dialBroker(t *testing.T, addr string) *wire { return (&target{addr: addr}).dial(t) }

// TestFrozenLeaderComesBackAsAZombie stops a leader's process until others have
// taken its place, with produce requests waiting in its sockets: when it goes on
// it serves them before it hears of anything. Nothing of that may stay.
func TestFrozenLeaderComesBackAsAZombie(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	old := c.leader("ledger", 0)
	zombie := c.Brokers[old]
	w := dialBroker(t, zombie.Addr)
	zombie.freeze()
	for range 20 {
		w.send(produceTo(1, map[string]map[int32][]byte{"ledger": {0: batch(t, "zombie/leader")}}))
	}
	c.awaitLeader("ledger", 0, old)
	l.goesOn(500, 60*time.Second)
	zombie.thaw()
	l.goesOn(500, 60*time.Second)
	l.end(t)
	if got := strings.Count(c.read(t, "ledger"), "zombie/leader"); got > 0 {
		t.Errorf("%d records of the zombie are in the log", got)
	}
}

// read returns all values of a topic.
func (c *Cluster) read(t *testing.T, topic string) string {
	var all strings.Builder
	dirs, _ := filepath.Glob(filepath.Join(c.Brokers[0].LogDir, topic+"-[0-9]*"))
	for _, d := range dirs {
		data, _, err := logBytes(d)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// TestFrozenControllerComesBackAsAZombie stops the controller until another is
// elected, changes the cluster, and lets it go on: it must obey the new one.
func TestFrozenControllerComesBackAsAZombie(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	old := c.controller()
	zombie := c.Brokers[old]
	w := dialBroker(t, zombie.Addr)
	zombie.freeze()
	// It will find these first, and believe itself the controller.
	w.send(createOf(newTopic("made-by-a-zombie", 1, 3)))
	Await(t, 30*time.Second, "a new controller", func() error {
		if id := c.controller(); id < 0 || id == old {
			return fmt.Errorf("controller %d", id)
		}
		return nil
	})
	l.goesOn(500, 60*time.Second)
	other := c.Brokers[c.controller()]
	made := ask[*kmsg.CreateTopicsResponse](dialBroker(t, other.Addr), createOf(newTopic("made-meanwhile", 3, 2))).Topics[0]
	wantCode(t, "create", made.ErrorCode, nil)
	zombie.thaw()
	resp, err := w.receive(createOf())
	if err != nil {
		t.Fatal(err)
	}
	zombies := resp.(*kmsg.CreateTopicsResponse).Topics[0]
	c.AwaitWhole("ledger", time.Minute)
	c.AwaitWhole("made-meanwhile", time.Minute)
	if zombies.ErrorCode == 0 { // it lost its place only after the answer, or passed it on: then it must be true
		c.AwaitWhole("made-by-a-zombie", 10*time.Second)
	}
	for _, n := range c.Brokers {
		m := ask[*kmsg.MetadataResponse](dialBroker(t, n.Addr), metadataFor(12))
		if m.ControllerID == old || len(m.Brokers) != 3 {
			t.Errorf("broker %d sees controller %d and %d brokers", n.ID, m.ControllerID, len(m.Brokers))
		}
	}
	l.goesOn(500, 60*time.Second)
	l.end(t)
}

// TestZooKeeperGoneForAWhile ends ZooKeeper under load: who leads goes on
// leading, clients that come anew are served, and when it is back the cluster
// can change again.
func TestZooKeeperGoneForAWhile(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	before := c.leader("ledger", 0)
	c.ZK.Kill()
	gone := time.Now()
	for time.Since(gone) < 4*time.Second { // well over a session
		l.goesOn(200, 2*time.Second)
		time.Sleep(200 * time.Millisecond)
	}
	fresh := dialBroker(t, c.Brokers[before].Addr)
	got := ask[*kmsg.ProduceResponse](fresh, produceTo(-1, map[string]map[int32][]byte{"ledger": {0: batch(t, "0/new-client")}}))
	wantCode(t, "a new client", got.Topics[0].Partitions[0].ErrorCode, nil)
	// The cluster's changes are refused in time, not hung.
	began := time.Now()
	req := createOf(newTopic("not-now", 1, 1))
	req.TimeoutMillis = 1000
	if ctl := c.controller(); ctl >= 0 {
		r := ask[*kmsg.CreateTopicsResponse](dialBroker(t, c.Brokers[ctl].Addr), req).Topics[0]
		if r.ErrorCode == 0 || time.Since(began) > 5*time.Second {
			t.Errorf("creating a topic: %v after %v", kerr.ErrorForCode(r.ErrorCode), time.Since(began))
		}
	}
	if err := c.ZK.Up(); err != nil {
		t.Fatal(err)
	}
	l.goesOn(200, 20*time.Second)
	Await(t, 30*time.Second, "a topic made", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		r, err := kadm.NewClient(c.Client()).CreateTopic(ctx, 3, 3, nil, "afterwards")
		if err == nil {
			err = r.Err
		}
		if err == kerr.TopicAlreadyExists {
			err = nil
		}
		return err
	})
	c.AwaitWhole("afterwards", 30*time.Second)
	// And it can lose a leader.
	c.Brokers[before].Kill()
	c.awaitLeader("ledger", 0, before)
	c.Brokers[before].Start()
	l.goesOn(500, 60*time.Second)
	l.end(t)
}

// TestAllBrokersKilledAtOnce ends the whole cluster by SIGKILL under load.
func TestAllBrokersKilledAtOnce(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	for range 2 {
		l.goesOn(500, 60*time.Second)
		c.inParallel((*Node).Kill)
		for _, n := range c.Brokers {
			n.start(nil)
		}
		for _, n := range c.Brokers {
			n.AwaitServing()
		}
		c.AwaitWhole("ledger", time.Minute)
	}
	l.goesOn(500, 60*time.Second)
	l.end(t)
}

// TestRollingRestartFailsNoProduce restarts every broker in order under load:
// leadership goes before the broker does, so that no producer waits for long.
func TestRollingRestartFailsNoProduce(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	l.mu.Lock()
	l.gap = 0
	l.mu.Unlock()
	for _, n := range c.Brokers {
		n.Stop()
		l.goesOn(200, 10*time.Second)
		n.Start()
		c.AwaitWhole("ledger", 30*time.Second)
	}
	l.goesOn(500, 20*time.Second)
	l.end(t)
	if l.gap > 3*time.Second {
		t.Errorf("producers heard nothing for %v", l.gap)
	}
}

// TestTwoQuickFailoversLeaveNoDivergence has two replicas lead one after the
// other, each with records that the other never saw (KAFKA-6361): A writes in
// its epoch, B in the next, and A leads again before B has fetched from it.
func TestTwoQuickFailoversLeaveNoDivergence(t *testing.T) {
	c := threeBrokers(t)
	ctl := c.controller()
	var ids []int32
	for _, n := range c.Brokers {
		if n.ID != ctl {
			ids = append(ids, n.ID)
		}
	}
	topic := configured(configured(assigned(newTopic("torn", -1, -1), ids), "unclean.leader.election.enable", kmsg.StringPtr("true")), "min.insync.replicas", kmsg.StringPtr("1"))
	made := ask[*kmsg.CreateTopicsResponse](dialBroker(t, c.Brokers[ctl].Addr), createOf(topic)).Topics[0]
	wantCode(t, "create", made.ErrorCode, nil)
	c.AwaitWhole("torn", 20*time.Second)
	put := func(n *Node, acks int16, count int, value string) {
		t.Helper()
		w := dialBroker(t, n.Addr)
		for range count {
			Await(t, 20*time.Second, "produce to broker "+fmt.Sprint(n.ID), func() error {
				p := ask[*kmsg.ProduceResponse](w, produceTo(acks, map[string]map[int32][]byte{"torn": {0: batch(t, value)}})).Topics[0].Partitions[0]
				return kerr.ErrorForCode(p.ErrorCode)
			})
		}
	}
	a := c.Brokers[c.leader("torn", 0)]
	b := c.Brokers[ids[0]]
	if b == a {
		b = c.Brokers[ids[1]]
	}
	put(a, -1, 10, "both")
	for round := range 2 {
		b.freeze()
		put(a, 1, 5, fmt.Sprint("only-a-", round))
		a.Kill()
		b.thaw()
		c.awaitLeader("torn", 0, a.ID)
		put(b, 1, 3, strings.Repeat("only-b", 20+round))
		b.Kill()
		a.Start()
		c.awaitLeader("torn", 0, b.ID)
		put(a, 1, 4, fmt.Sprint("a-again-", round))
		b.Start()
		c.AwaitWhole("torn", 30*time.Second)
		put(c.Brokers[c.leader("torn", 0)], -1, 2, "both-again")
		c.sameLogs("torn")
		if l := c.leader("torn", 0); l != a.ID {
			a, b = b, a
		}
	}
	data, _, err := logBytes(filepath.Join(a.LogDir, "torn-0"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(data), "both"); n < 12 {
		t.Errorf("%d of the records that both had are left", n)
	}
}

// TestTopicDeletedInUseAndMadeAgain deletes a topic under producers and
// consumers and makes it again under its name, several times: nothing of an
// earlier one may be in a later one, and no broker may be harmed.
func TestTopicDeletedInUseAndMadeAgain(t *testing.T) {
	c := threeBrokers(t, "log.segment.delete.delay.ms=1000", "file.delete.delay.ms=1000", "auto.create.topics.enable=false")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	life := 0
	for _, n := range c.Brokers {
		wg.Go(func() { // whoever leads takes it, the others say so
			for ctx.Err() == nil {
				conn, err := net.Dial("tcp", n.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				w := &wire{Conn: conn, t: t, r: bufio.NewReader(conn)}
				_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
				for ctx.Err() == nil {
					mu.Lock()
					value := fmt.Sprintf("life-%d.", life)
					mu.Unlock()
					req := produceTo(1, map[string]map[int32][]byte{"phoenix": {0: batch(t, value), 1: batch(t, value)}})
					if _, err := w.Write(w.frame(req)); err != nil {
						break
					}
					if _, err := w.receive(req); err != nil {
						break
					}
					fetch := fetchOf("phoenix", 0, 0)
					if _, err := w.Write(w.frame(fetch)); err != nil {
						break
					}
					if _, err := w.receive(fetch); err != nil {
						break
					}
				}
				conn.Close()
			}
		})
	}
	adm := kadm.NewClient(c.Client())
	for i := range 4 {
		// A value of life i may be on its way while life i+1 is made: what must
		// not be there are values of lives before.
		mu.Lock()
		life = i
		mu.Unlock()
		c.CreateTopic("phoenix", 2, 3)
		c.AwaitWhole("phoenix", 30*time.Second)
		Await(t, 10*time.Second, "records", func() error {
			offs, err := adm.ListEndOffsets(context.Background(), "phoenix")
			if err != nil {
				return err
			}
			if o, ok := offs.Lookup("phoenix", 0); !ok || o.Offset < 20 {
				return fmt.Errorf("%+v", o)
			}
			return nil
		})
		for _, n := range c.Brokers {
			data, _, err := logBytes(filepath.Join(n.LogDir, "phoenix-0"))
			if err != nil {
				t.Fatal(err)
			}
			for j := range i - 1 {
				if strings.Contains(string(data), fmt.Sprintf("life-%d.", j)) {
					t.Errorf("broker %d: life %d is in life %d", n.ID, j, i)
				}
			}
		}
		if i == 3 {
			break
		}
		if _, err := adm.DeleteTopics(context.Background(), "phoenix"); err != nil {
			t.Fatal(err)
		}
		Await(t, 20*time.Second, "the end", func() error {
			code := int16(0)
			c.describe("phoenix", func(m *kmsg.MetadataResponse) { code = m.Topics[0].ErrorCode })
			if code != kerr.UnknownTopicOrPartition.Code {
				return fmt.Errorf("it answers %d", code)
			}
			return nil
		})
	}
	cancel()
	wg.Wait()
	c.AwaitWhole("phoenix", 30*time.Second)
	c.sameLogs("phoenix")
	Await(t, 30*time.Second, "deleted folders to be removed", func() error {
		for _, n := range c.Brokers {
			if left, _ := filepath.Glob(filepath.Join(n.LogDir, "*-delete")); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
		}
		return nil
	})
	// It can still be produced to by a stock client.
	cl := c.Client(kgo.DefaultProduceTopic("phoenix"))
	done, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	if err := cl.ProduceSync(done, kgo.StringRecord("last")).FirstErr(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskOfOneBroker lets every write of a leader fail from some size on:
// it must give its partitions up to the others, and be whole again when it is
// started with room.
func TestFullDiskOfOneBroker(t *testing.T) {
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	full := c.Brokers[c.leader("ledger", 0)]
	largest := int64(0)
	logs, _ := filepath.Glob(filepath.Join(full.LogDir, "*", "*.log"))
	for _, f := range logs {
		if st, err := os.Stat(f); err == nil {
			largest = max(largest, st.Size())
		}
	}
	// A write across the limit is cut short, like one to a full disk.
	limit := unix.Rlimit{Cur: uint64(largest) + 5000, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(full.PID(), unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	c.awaitLeader("ledger", 0, full.ID)
	l.goesOn(500, 60*time.Second)
	select {
	case <-full.end:
	case <-time.After(20 * time.Second):
		t.Fatal("the broker lives on without a log folder")
	}
	if full.err == nil {
		t.Error("the broker ended as if nothing were wrong")
	}
	full.Start()
	c.AwaitWhole("ledger", time.Minute)
	l.goesOn(500, 60*time.Second)
	l.end(t)
}
