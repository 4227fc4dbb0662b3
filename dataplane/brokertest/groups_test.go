package brokertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestCommittedOffsetsSurviveTheirCoordinator commits an offset that grows, and
// kills the group's coordinator again and again: whatever was acknowledged must
// never be taken back, and a deleted group must stay deleted.
func TestCommittedOffsetsSurviveTheirCoordinator(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=2000"}})
	c.CreateTopic("events", 4, 3)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()

	// A client of its own for each step: this one keeps asking a coordinator that
	// it knew, also when nobody listens there any more.
	with := func(f func(*kadm.Client) error) error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RetryTimeout(5*time.Second))
		if err != nil {
			return err
		}
		defer cl.Close()
		return f(kadm.NewClient(cl))
	}
	acked := int64(-1)
	commit := func(adm *kadm.Client, offset int64) {
		t.Helper()
		var o kadm.Offsets
		o.AddOffset("events", 0, offset, -1)
		if err := adm.CommitAllOffsets(ctx, "g", o); err != nil {
			t.Logf("offset %d: %v", offset, err)
			return
		}
		acked = offset
	}
	fetch := func() int64 {
		t.Helper()
		got := int64(-2)
		Await(t, time.Minute, "committed offsets", func() error {
			return with(func(adm *kadm.Client) error {
				all, err := adm.FetchOffsets(ctx, "g")
				if err != nil {
					return err
				}
				got = -1
				o, ok := all.Lookup("events", 0)
				if ok {
					got = o.At
				}
				return o.Err
			})
		})
		return got
	}
	next := int64(0)
	for round := range 2 {
		var n *Node
		err := with(func(adm *kadm.Client) error {
			for range 20 {
				next++
				commit(adm, next)
			}
			coord := adm.FindGroupCoordinators(ctx, "g")["g"]
			if coord.Err == nil {
				n = c.Brokers[coord.NodeID]
			}
			return coord.Err
		})
		if err != nil {
			t.Fatal(err)
		}
		n.Kill()
		if got := fetch(); got < acked {
			t.Fatalf("round %d: offset %d is committed, and %d was acknowledged", round, got, acked)
		}
		n.Start()
		c.AwaitWhole("__consumer_offsets", time.Minute)
	}
	if acked < 20 {
		t.Fatalf("only %d was acknowledged in all", acked)
	}

	err := with(func(adm *kadm.Client) error {
		if _, err := adm.DeleteGroup(ctx, "g"); err != nil {
			return err
		}
		coord := adm.FindGroupCoordinators(ctx, "g")["g"]
		if coord.Err == nil {
			c.Brokers[coord.NodeID].Kill()
		}
		return coord.Err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fetch(); got != -1 {
		t.Errorf("offset %d of a deleted group is back", got)
	}
}

// TestGroupSharesATopic lets three consumers share a topic, and one of them go:
// every record is consumed, and the others take over.
func TestGroupSharesATopic(t *testing.T) {
	c := Start(t, Options{Brokers: 1})
	c.CreateTopic("work", 6, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var members []*kgo.Client
	got := make(chan string, 1000)
	for i := range 3 {
		cl := c.Client(kgo.ConsumerGroup("team"), kgo.ConsumeTopics("work"), kgo.ClientID(fmt.Sprint("member-", i)),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks())
		members = append(members, cl)
		go func() {
			for {
				fs := cl.PollFetches(ctx)
				if fs.IsClientClosed() || ctx.Err() != nil {
					return
				}
				fs.EachRecord(func(r *kgo.Record) { got <- string(r.Value); cl.MarkCommitRecords(r) })
			}
		}()
	}
	adm := kadm.NewClient(c.Client())
	awaitMembers := func(want int) {
		t.Helper()
		Await(t, 30*time.Second, fmt.Sprint(want, " members"), func() error {
			ds, err := adm.DescribeGroups(ctx, "team")
			if err != nil {
				return err
			}
			d := ds["team"]
			parts := 0
			for _, m := range d.Members {
				if a, ok := m.Assigned.AsConsumer(); ok {
					for _, t := range a.Topics {
						parts += len(t.Partitions)
					}
				}
			}
			if d.State != "Stable" || len(d.Members) != want || parts != 6 {
				return fmt.Errorf("%s with %d members and %d partitions, %v", d.State, len(d.Members), parts, d.Err)
			}
			return nil
		})
	}
	awaitMembers(3)
	produce := c.Client(kgo.DefaultProduceTopic("work"))
	seen := map[string]bool{}
	for round := range 2 {
		for i := range 60 {
			r := &kgo.Record{Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "%d/%d", round, i)}
			if err := produce.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for len(seen) < 60*(round+1) {
			select {
			case v := <-got:
				seen[v] = true
			case <-ctx.Done():
				t.Fatalf("only %d records were consumed", len(seen))
			}
		}
		if round == 0 {
			members[0].Close() // leaves the group
			awaitMembers(2)
		}
	}
	for _, m := range members[1:] {
		if err := m.CommitMarkedOffsets(ctx); err != nil {
			t.Fatal(err)
		}
		m.Close()
	}
	lag, err := adm.Lag(ctx, "team")
	if err != nil {
		t.Fatal(err)
	}
	if l := lag["team"]; l.Lag.Total() != 0 || l.State != "Empty" {
		t.Errorf("%s with a lag of %d, want Empty and none", l.State, l.Lag.Total())
	}
}
