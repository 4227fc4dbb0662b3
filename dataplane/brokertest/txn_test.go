package brokertest

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// txnFolder appends transactions to a partition's folder as a coordinator and its
// producers would, while its broker is down: over several segments, interleaved,
// committed, aborted and, last, open.
func txnFolder(t *testing.T, logDir, topic string, clean bool) {
	t.Helper()
	dir, err := commitlog.OpenDir(vfs.OS, logDir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := commitlog.Open(vfs.OS, filepath.Join(logDir, topic+"-0"), commitlog.Config{SegmentBytes: 400}, commitlog.OpenOptions{CleanShutdown: true})
	if err != nil {
		t.Fatal(err)
	}
	seqs := map[int64]int32{}
	data := func(pid int64, transactional bool, values ...string) {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, seqs[pid], transactional
		seqs[pid] += int32(len(values))
		if _, err := l.AppendLeader(build(t, o, records(values...)), 0); err != nil {
			t.Fatal(err)
		}
	}
	end := func(pid int64, kind byte) {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.Transactional, o.Control = pid, 0, true, true
		b := build(t, o, []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)}})
		if _, err := l.AppendLeader(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	const abort, commit = 0, 1
	data(100, false, "plain-0") // 0
	for i := range 6 {          // 1 to 6
		data(101, true, fmt.Sprintf("aborted-%d", i+1))
	}
	data(102, true, "committed-7", "committed-8") // 7, 8
	end(101, abort)                               // 9
	data(101, true, "committed-10")               // 10
	end(102, commit)                              // 11
	end(101, commit)                              // 12
	data(102, true, "aborted-13")                 // 13
	end(102, abort)                               // 14
	data(100, false, "plain-15")                  // 15
	data(103, true, "open-16")                    // 16
	data(100, false, "plain-17")                  // 17: decided, and still not to be seen
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dir.Close(clean); err != nil {
		t.Fatal(err)
	}
}

var (
	txnCommitted = []string{"0:plain-0", "7:committed-7", "8:committed-8", "10:committed-10", "15:plain-15"}
	txnAll       = []string{
		"0:plain-0", "1:aborted-1", "2:aborted-2", "3:aborted-3", "4:aborted-4", "5:aborted-5", "6:aborted-6", "7:committed-7", "8:committed-8",
		"10:committed-10", "13:aborted-13", "15:plain-15", "16:open-16", "17:plain-17",
	}
)

// txnRead reads as many records as are wanted with a stock client.
func txnRead(t *testing.T, c *Cluster, topic string, level kgo.IsolationLevel, want []string) {
	t.Helper()
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(level), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var got []string
	for len(got) < len(want) {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("got %q, then %v", got, err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, fmt.Sprintf("%d:%s", r.Offset, r.Value)) })
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A folder with transactions, as Kafka keeps them, is served to readers of both
// kinds, however its broker went down before.
func TestTxnFolderIsReadInBothIsolationLevels(t *testing.T) {
	c := Start(t, Options{})
	n := c.Brokers[0]
	for _, topic := range []string{"clean", "unclean"} {
		c.CreateTopic(topic, 1, 1)
		n.Stop()
		txnFolder(t, n.LogDir, topic, topic == "clean")
		n.Start()
		n.AwaitServing()
		txnServed(t, c, topic)
		n.Kill()
		n.Start()
		n.AwaitServing()
		txnServed(t, c, topic)
		if t.Failed() {
			t.Fatal(topic)
		}
	}
	txnEndedByHand(t, c, "clean")
}

func txnServed(t *testing.T, c *Cluster, topic string) {
	t.Helper()
	txnRead(t, c, topic, kgo.ReadUncommitted(), txnAll)
	txnRead(t, c, topic, kgo.ReadCommitted(), txnCommitted)

	adm := kadm.NewClient(c.Client())
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	stable, err := adm.ListCommittedOffsets(ctx, topic)
	if o, _ := stable.Lookup(topic, 0); err != nil || o.Err != nil || o.Offset != 16 {
		t.Errorf("latest committed offset: %+v, %v", o, err)
	}
	end, err := adm.ListEndOffsets(ctx, topic)
	if o, _ := end.Lookup(topic, 0); err != nil || o.Err != nil || o.Offset != 18 {
		t.Errorf("latest offset: %+v, %v", o, err)
	}

	w := (&target{addr: c.Brokers[0].Addr}).dial(t)
	for _, version := range []int16{4, 5, 7, 11, 12} {
		for _, q := range []struct {
			from int64
			want []kmsg.FetchResponseTopicPartitionAbortedTransaction
			data bool
		}{
			{0, txnAborts(), true}, // a list is of what comes with it: one batch, which is plain
			{1, txnAborts(101, 1), true},
			{9, txnAborts(101, 1), true},
			{13, txnAborts(102, 13), true},
			{15, txnAborts(), true},
			{16, txnAborts(), false}, // between the stable offset and the end
			{18, txnAborts(), false},
		} {
			req := at(fetchOf(topic, 0, q.from), version)
			req.IsolationLevel = 1
			req.Topics[0].Partitions[0].PartitionMaxBytes = 1 // one batch
			p := ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.LastStableOffset != 16 || p.HighWatermark != 18 || p.AbortedTransactions == nil ||
				!slices.EqualFunc(p.AbortedTransactions, q.want, sameAbort) || (len(p.RecordBatches) > 0) != q.data {
				t.Errorf("committed, v%d from %d: %+v; want %v", version, q.from, p, q.want)
			}
			req.IsolationLevel = 0
			p = ask[*kmsg.FetchResponse](w, req).Topics[0].Partitions[0]
			if p.ErrorCode != 0 || p.LastStableOffset != 16 || p.AbortedTransactions != nil || (len(p.RecordBatches) > 0) != (q.from < 18) {
				t.Errorf("uncommitted, v%d from %d: %+v", version, q.from, p)
			}
		}
	}
}

func txnAborts(pidAndFirst ...int64) []kmsg.FetchResponseTopicPartitionAbortedTransaction {
	out := []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
	for i := 0; i < len(pidAndFirst); i += 2 {
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID, a.FirstOffset = pidAndFirst[i], pidAndFirst[i+1]
		out = append(out, a)
	}
	return out
}

func sameAbort(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
	return a.ProducerID == b.ProducerID && a.FirstOffset == b.FirstOffset
}

// txnEndedByHand: the transaction that Kafka left open has no coordinator any more. Nothing can be
// added to it, and an administrator's marker ends it, as kafka-transactions sends one.
func txnEndedByHand(t *testing.T, c *Cluster, topic string) {
	t.Helper()
	w := (&target{addr: c.Brokers[0].Addr}).dial(t)
	id := "an-id"
	for name, q := range map[string]struct {
		id            *string
		transactional bool
		pid           int64
		want          *kerr.Error
	}{
		"a new transaction":                      {&id, true, 900, kerr.NotEnoughReplicas}, // nobody coordinates the id
		"one without its id":                     {nil, true, 901, kerr.TransactionalIDAuthorizationFailed},
		"plain data within the open one":         {nil, false, 103, kerr.InvalidTxnState},
		"plain data with a transactional id":     {&id, false, 902, nil},
		"plain data of another producer of them": {nil, false, 101, nil},
	} {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = q.pid, 0, 1, q.transactional
		if q.pid == 101 {
			o.BaseSequence = 7 // after its last
		}
		req := produceOf(topic, -1, build(t, o, records("x")))
		req.TransactionID = q.id
		resp := ask[*kmsg.ProduceResponse](w, req)
		wantCode(t, name, resp.Topics[0].Partitions[0].ErrorCode, q.want)
	}
	open, ok := active(w, topic, 103)
	if !ok || open.CurrentTxnStartOffset != 16 {
		t.Fatalf("the open transaction: %+v, %v", open, ok)
	}
	mark(w, "an administrator's abort", markerOf(103, int16(open.ProducerEpoch), false, open.CoordinatorEpoch, topic, 0), nil)
	txnRead(t, c, topic, kgo.ReadCommitted(), append(slices.Clone(txnCommitted), "17:plain-17", "18:x", "19:x"))
}
