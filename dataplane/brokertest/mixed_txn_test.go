//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordinator"
)

// Kafka 3.9's tool decodes what ours writes into __transaction_state: here in version 1 of
// the record, in version 0 in a mixed cluster (TestMixedTransactionsChangeHands).
func TestKafkaReadsOurTransactionState(t *testing.T) {
	c := Start(t, Options{})
	c.CreateTopic("ledger", 2, 1)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl := c.Client(kgo.TransactionalID("teller"), kgo.DefaultProduceTopic("ledger"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 4 {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(i%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	c.Brokers[0].Stop()
	transactionStates(t, c.Brokers[0], "teller", "CompleteCommit", "CompleteAbort", "PrepareCommit", "PrepareAbort", "Ongoing", "ledger-1")
}

// transactionStates has Kafka's tool decode a stopped broker's __transaction_state, which
// must have records of the id with each of these in them.
func transactionStates(t *testing.T, n *Node, id string, wanted ...string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(n.LogDir, "__transaction_state-*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%v, %v", logs, err)
	}
	seen := map[string]int{}
	_, complaints := dumped(t, "--transaction-log-decoder", logs, func(line string) bool {
		if !strings.Contains(line, id) {
			return false
		}
		for _, w := range wanted {
			if strings.Contains(line, w) {
				seen[w]++
			}
		}
		return true
	})
	for _, w := range wanted {
		if seen[w] == 0 {
			t.Errorf("no record of %s with %s", id, w)
		}
	}
	for _, line := range complaints {
		t.Errorf("%s", line)
	}
}

// A transaction that is open when its coordinator stops is carried on and ended by the
// other make, whichever has it first: Kafka 3.9 takes over from ours, and hands it back.
func TestMixedTransactionsChangeHands(t *testing.T) {
	c := startMixed(t, 1, 1)
	const topic, id = "exact", "courier"
	// As many partitions as the settings say: Kafka counts them at its start only.
	c.assign("__transaction_state", [][]int32{{0, 1}, {0, 1}}, "cleanup.policy=compact")
	c.assign(topic, [][]int32{{0, 1}, {1, 0}})
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	cl := c.Client(kgo.TransactionalID(id), kgo.TransactionTimeout(2*time.Minute), kgo.RecordDeliveryTimeout(time.Minute), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var want []string
	put := func(v string) {
		t.Helper()
		for p := range int32(2) {
			if err := cl.ProduceSync(ctx, &kgo.Record{Partition: p, Value: []byte(fmt.Sprintf("%s/%d", v, p))}).FirstErr(); err != nil {
				t.Fatalf("%s: %v", v, err)
			}
		}
	}
	read := func(what string) {
		t.Helper()
		r := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		defer r.Close()
		limit, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		var have []string
		for len(have) < len(want) {
			f := r.PollFetches(limit)
			if err := f.Err(); err != nil {
				t.Fatalf("%s: %d of %d: %v", what, len(have), len(want), err)
			}
			f.EachRecord(func(rec *kgo.Record) { have = append(have, string(rec.Value)) })
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s: read %q, wanted %q", what, have, want)
		}
	}
	// While Kafka's only broker is down the cluster's transaction.version is 2; a fourth round
	// would have the client, which has seen that, go on by a protocol that Kafka 3.9 lacks.
	for round, commit := range []bool{true, false, true} {
		from := c.Brokers[c.leader("__transaction_state", coordinator.PartitionFor(id, 2))]
		name := fmt.Sprintf("%d, begun by %s", round, c.maker(from.ID))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprintf("%d-before", round))
		from.Stop()
		put(fmt.Sprintf("%d-after", round))
		if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
			t.Fatalf("%s: end: %v", name, err)
		}
		if commit {
			for _, v := range []string{"before", "after"} {
				for p := range 2 {
					want = append(want, fmt.Sprintf("%d-%s/%d", round, v, p))
				}
			}
		}
		read(name)
		if c.maker(from.ID) == penstock {
			transactionStates(t, from, id, "Ongoing")
			if kinds, _, undecoded := from.decoded(t, apache.V44, "__transaction_state"); kinds["0 v0"] == 0 || len(undecoded) > 0 {
				t.Errorf("Kafka 4.4 finds %v, and does not decode %q", kinds, undecoded)
			}
		}
		from.Start()
		c.AwaitWhole("__transaction_state", time.Minute)
		c.AwaitWhole(topic, time.Minute)
		if t.Failed() {
			return
		}
	}
}
