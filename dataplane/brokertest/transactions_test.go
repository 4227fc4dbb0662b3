package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnCoordinator is the broker that coordinates the transactional id.
func (c *Cluster) txnCoordinator(id string) *Node {
	c.t.Helper()
	var n *Node
	Await(c.t, time.Minute, "a coordinator of "+id, func() error {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap()...), kgo.RetryTimeout(5*time.Second))
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, id, []string{id}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil {
			return err
		}
		node := resp.NodeID
		if len(resp.Coordinators) > 0 {
			node = resp.Coordinators[0].NodeID
		}
		for _, b := range c.Brokers {
			if b.ID == node {
				n = b
				return nil
			}
		}
		return fmt.Errorf("it is broker %d", node)
	})
	return n
}

// Each step of a transaction, committed or aborted, has its coordinator killed under it:
// as soon as it began, with its records written, while it ends, and when its producer
// was told that it has. What was committed is read, once and in order, and nothing else.
func TestTransactionsSurviveTheirCoordinator(t *testing.T) {
	c := Start(t, Options{Brokers: 3, Settings: []string{"zookeeper.session.timeout.ms=2000"}})
	c.CreateTopic("ledger", 3, 3, "min.insync.replicas=2")
	const id = "bookkeeper"
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	cl := c.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute), kgo.DefaultProduceTopic("ledger"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	kill := func() {
		n := c.txnCoordinator(id)
		n.Kill()
		n.Start()
		n.AwaitServing()
	}
	var want []string
	unsure := map[string]bool{} // whose end was answered by an error: it may have been either
	steps := []string{"never", "begun", "written", "ending", "ended"}
	for round := range 2 * len(steps) {
		step, commit := steps[round%len(steps)], round < len(steps) || round%2 == 0
		if err := cl.BeginTransaction(); err != nil {
			t.Fatalf("round %d: begin: %v", round, err)
		}
		var records []*kgo.Record
		var values []string
		for i := range 9 {
			v := fmt.Sprintf("%d-%d", round, i)
			values = append(values, v)
			records = append(records, &kgo.Record{Partition: int32(i % 3), Value: []byte(v)})
		}
		if err := cl.ProduceSync(ctx, records[:3]...).FirstErr(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if step == "begun" {
			kill()
		}
		err := cl.ProduceSync(ctx, records[3:]...).FirstErr()
		if step == "written" {
			kill()
		}
		if err != nil {
			t.Logf("round %d, %s: produce: %v", round, step, err)
			commit = false
		}
		if step == "ending" {
			n := c.txnCoordinator(id)
			answered := make(chan error, 1)
			go func() { answered <- cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)) }()
			n.Kill()
			n.Start()
			err = <-answered
		} else {
			err = cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
		}
		if step == "ended" {
			kill()
		}
		switch {
		case err != nil:
			t.Logf("round %d, %s: end: %v", round, step, err)
			for _, v := range values {
				unsure[v] = true
			}
			if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil && !errors.Is(err, context.Canceled) {
				t.Logf("round %d, %s: abort: %v", round, step, err)
			}
		case commit:
			want = append(want, values...)
		}
	}
	if len(want) < 9*len(steps)/2 {
		t.Errorf("%d records were committed: too few transactions went well", len(want))
	}
	// One more transaction, whose records come after all others.
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("last")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	got := map[int32][]string{}
	reader := c.Client(kgo.ConsumeTopics("ledger"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for last := 0; last < 3; {
		fs := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("after %v: no end comes in sight of readers of committed records", got)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if string(r.Value) == "last" {
				last++
				return
			}
			got[r.Partition] = append(got[r.Partition], string(r.Value))
		})
	}
	// Of a transaction that nobody knows the end of all is there, or nothing.
	halves := map[string]int{}
	for p := range int32(3) {
		var expect []string
		for _, v := range want {
			var round, i int
			_, _ = fmt.Sscanf(v, "%d-%d", &round, &i)
			if int32(i%3) == p {
				expect = append(expect, v)
			}
		}
		sure := slices.DeleteFunc(slices.Clone(got[p]), func(v string) bool {
			if unsure[v] {
				round, _, _ := strings.Cut(v, "-")
				halves[round]++
			}
			return unsure[v]
		})
		if !slices.Equal(sure, expect) {
			t.Errorf("partition %d: read %v, want %v", p, sure, expect)
		}
	}
	for round, n := range halves {
		if n != 9 {
			t.Errorf("of round %s, whose end is not known, %d records of 9 are committed", round, n)
		}
	}
}
