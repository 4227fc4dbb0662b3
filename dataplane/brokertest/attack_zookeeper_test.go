package brokertest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestZooKeeperGoneForAWhile ends ZooKeeper under load: who leads goes on
// leading, clients that come anew are served, and when it is back the cluster
// can change again.
func TestZooKeeperGoneForAWhile(t *testing.T) {
	t.Parallel()
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

// TestSessionsEndAndBrokersComeBack ends ZooKeeper sessions of live brokers: at
// once, as after a long pause, and by cutting a leader off while clients still
// reach it. It must not acknowledge to all what only it has, and must come back
// by itself.
func TestSessionsEndAndBrokersComeBack(t *testing.T) {
	t.Parallel()
	c := threeBrokers(t)
	c.CreateTopic("ledger", 6, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(500, 20*time.Second)
	registered := func(want int) {
		t.Helper()
		for _, n := range c.Brokers {
			Await(t, 30*time.Second, fmt.Sprintf("broker %d knowing all", n.ID), func() error {
				m := ask[*kmsg.MetadataResponse](dialBroker(t, n.Addr), metadataFor(12))
				if len(m.Brokers) != want || m.ControllerID < 0 {
					return fmt.Errorf("%d brokers, controller %d", len(m.Brokers), m.ControllerID)
				}
				return nil
			})
		}
	}
	for range 2 {
		for _, id := range []int32{c.leader("ledger", 0), c.controller()} {
			c.Brokers[id].ZK.Expire(t)
			l.goesOn(300, 30*time.Second)
			registered(3)
			c.AwaitWhole("ledger", 30*time.Second)
		}
	}
	// Both at once: the controller and another.
	ctl := c.controller()
	c.Brokers[ctl].ZK.Expire(t)
	c.Brokers[(ctl+1)%3].ZK.Expire(t)
	l.goesOn(300, 30*time.Second)
	registered(3)
	c.AwaitWhole("ledger", 30*time.Second)

	old := c.leader("ledger", 0)
	cut := c.Brokers[old]
	w := dialBroker(t, cut.Addr)
	cut.ZK.Cut()
	acked := map[string]bool{}
	try := func(value string) {
		req := produceTo(-1, map[string]map[int32][]byte{"ledger": {0: batch(t, value)}})
		req.TimeoutMillis = 300
		if p := ask[*kmsg.ProduceResponse](w, req).Topics[0].Partitions[0]; p.ErrorCode == 0 {
			acked[value] = true
		}
	}
	moved := false
	Await(t, 30*time.Second, "another leader", func() error {
		try(fmt.Sprintf("cut-%04d.", len(acked)))
		for _, n := range c.Brokers {
			if n == cut {
				continue
			}
			m := ask[*kmsg.MetadataResponse](dialBroker(t, n.Addr), metadataFor(12, kmsg.StringPtr("ledger")))
			for _, p := range m.Topics[0].Partitions {
				moved = moved || (p.Partition == 0 && p.Leader >= 0 && p.Leader != old)
			}
		}
		if !moved {
			return fmt.Errorf("%d still leads", old)
		}
		return nil
	})
	for i := range 5 {
		try(fmt.Sprintf("cut-late-%02d.", i))
	}
	l.goesOn(300, 60*time.Second)
	cut.ZK.Heal()
	registered(3)
	l.goesOn(300, 60*time.Second)
	l.end(t)
	all := c.read(t, "ledger")
	for v := range acked {
		if !strings.Contains(all, v) {
			t.Errorf("%s was acknowledged by the leader that was cut off, and is lost", v)
		}
	}
	t.Logf("%d records were acknowledged by the leader that was cut off", len(acked))
}

// TestFrozenControllerComesBackAsAZombie stops the controller until another is
// elected, changes the cluster, and lets it go on: it must obey the new one.
func TestFrozenControllerComesBackAsAZombie(t *testing.T) {
	t.Parallel()
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
	for _, n := range c.Brokers { // the zombie registers anew first, and is told of the cluster after that
		Await(t, 10*time.Second, fmt.Sprintf("broker %d knowing all others and the controller", n.ID), func() error {
			m := ask[*kmsg.MetadataResponse](dialBroker(t, n.Addr), metadataFor(12))
			if m.ControllerID == old || len(m.Brokers) != 3 {
				return fmt.Errorf("it sees controller %d and %d brokers", m.ControllerID, len(m.Brokers))
			}
			return nil
		})
	}
	l.goesOn(500, 60*time.Second)
	l.end(t)
}
