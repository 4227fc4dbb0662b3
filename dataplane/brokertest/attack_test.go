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
	return Start(t, Options{Brokers: 3, Proxies: true, Settings: append([]string{
		"zookeeper.session.timeout.ms=1500", "replica.lag.time.max.ms=2000", "controller.socket.timeout.ms=3000",
	}, settings...)})
}

// freeze stops the broker's process without ending it and returns when none of
// its threads runs any more.
func (n *Node) freeze() {
	n.c.t.Helper()
	n.frozen = true
	n.Signal(syscall.SIGSTOP)
	awaitStopped(n.c.t, n.PID())
}

// awaitStopped waits until none of the process's threads runs any more: a SIGSTOP is under way for a while.
func awaitStopped(t testing.TB, pid int) {
	t.Helper()
	Await(t, 5*time.Second, fmt.Sprintf("process %d stopped", pid), func() error {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
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
	t.Parallel()
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

// TestAllBrokersKilledAtOnce ends the whole cluster by SIGKILL under load.
func TestAllBrokersKilledAtOnce(t *testing.T) {
	t.Parallel()
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
	if l.gap > 4*time.Second {
		t.Errorf("producers heard nothing for %v", l.gap)
	}
}

// TestTwoQuickFailoversLeaveNoDivergence has two replicas lead one after the
// other, each with records that the other never saw (KAFKA-6361): A writes in
// its epoch, B in the next, and A leads again before B has fetched from it.
func TestTwoQuickFailoversLeaveNoDivergence(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	never := metadataFor(12, kmsg.StringPtr("never"))
	never.AllowAutoTopicCreation = true
	wantCode(t, "a topic that nobody made", ask[*kmsg.MetadataResponse](dialBroker(t, c.Brokers[0].Addr), never).Topics[0].ErrorCode, kerr.UnknownTopicOrPartition)
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
	t.Parallel()
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

// TestLastReplicaInSyncIsWaitedFor freezes both followers until they are out of
// the in-sync set, and kills the leader: none of the others may lead without
// what only the leader has, and consumers must not have seen it before.
func TestLastReplicaInSyncIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := threeBrokers(t)
	c.CreateTopic("ledger", 1, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	last := c.Brokers[c.leader("ledger", 0)]
	w := dialBroker(t, last.Addr)
	var others []*Node
	for _, n := range c.Brokers {
		if n != last {
			others = append(others, n)
			n.freeze()
		}
	}
	sent := 0
	ofLedger := func(acks int16) *kerr.Error {
		sent++
		req := produceTo(acks, map[string]map[int32][]byte{"ledger": {0: batch(t, fmt.Sprintf("alone/%04d", sent))}})
		req.TimeoutMillis = 300
		p := ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]
		if p.ErrorCode == 0 {
			return nil
		}
		return kerr.ErrorForCode(p.ErrorCode).(*kerr.Error)
	}
	Await(t, 30*time.Second, "the followers out of sync", func() error {
		switch err := ofLedger(-1); err {
		case kerr.NotEnoughReplicas: // refused before it is written: the set has shrunk
			return nil
		case nil:
			t.Error("acknowledged to all with both followers frozen")
			return nil
		default:
			return err
		}
	})
	if err := ofLedger(1); err != nil {
		t.Errorf("acks=1: %v", err)
	}
	stuck := fetchOne(w, "ledger", 0).HighWatermark
	if err := ofLedger(1); err != nil {
		t.Errorf("acks=1: %v", err)
	}
	if after := fetchOne(w, "ledger", 0).HighWatermark; after != stuck {
		t.Errorf("with one replica of two in sync the watermark went from %d to %d", stuck, after)
	}
	last.Kill()
	for _, n := range others {
		n.thaw()
	}
	began := time.Now()
	Await(t, 30*time.Second, "the survivors serving each other", func() error {
		if id := c.controller(); id < 0 || id == last.ID {
			return fmt.Errorf("controller %d", id)
		}
		if id := c.leader("ledger", 0); id >= 0 && time.Since(began) > 5*time.Second {
			return fmt.Errorf("leader %d", id)
		}
		if time.Since(began) < 4*time.Second {
			return fmt.Errorf("watching on")
		}
		return nil
	})
	if id := c.leader("ledger", 0); id >= 0 {
		t.Errorf("broker %d leads without the last records", id)
	}
	last.Start()
	c.AwaitWhole("ledger", time.Minute)
	l.goesOn(300, time.Minute)
	l.end(t)
	if got := strings.Count(c.read(t, "ledger"), "alone/"); got < 2 {
		t.Errorf("%d records that only the last replica had are there, want at least the 2 of acks=1", got)
	}
}
