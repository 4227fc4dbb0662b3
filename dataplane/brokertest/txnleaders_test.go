package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const (
	txnPartitions = 3
	txnProducers  = 4
	txnRecords    = 6 // a transaction: two for each partition
)

// txnLoad is producers whose transactions are committed and aborted in turns, and what a
// reader of committed data has seen of them.
type txnLoad struct {
	t     *testing.T
	c     *Cluster
	topic string
	opts  []kgo.Opt

	mu     sync.Mutex
	ending map[string]bool // transactions whose commit was asked for
	done   map[string]bool // transactions whose commit was answered
	ended  int             // of either kind, as answered
	seen   map[string]int  // records by value
	last   map[string]int  // by producer and partition: the number of its last record
}

// value tells all that the reader has to know: whether its transaction will be committed, and
// what came before it. A producer's records of one partition have rising numbers.
func txnValue(commit bool, producer, txn, n int) string {
	kind := "abort"
	if commit {
		kind = "commit"
	}
	return fmt.Sprintf("%s/%d.%d/%d", kind, producer, txn, n)
}

func txnName(producer, txn int) string { return fmt.Sprintf("%d.%d", producer, txn) }

// produce runs transactions until ctx ends. A transaction of which it is not known how it ended is
// given up with its client, whose successor fences it off.
func (l *txnLoad) produce(ctx context.Context, producer int) {
	random := rand.New(rand.NewPCG(uint64(producer), 1))
	var cl *kgo.Client
	defer func() {
		if cl != nil {
			cl.Close()
		}
	}()
	for txn := 0; ctx.Err() == nil; txn++ {
		if cl == nil {
			cl = l.c.Client(append([]kgo.Opt{
				kgo.TransactionalID(fmt.Sprint("loader-", producer)), kgo.DefaultProduceTopic(l.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()),
				kgo.ProducerLinger(0), kgo.TransactionTimeout(30 * time.Second), kgo.RecordDeliveryTimeout(20 * time.Second),
			}, l.opts...)...)
		}
		if err := l.transaction(cl, producer, txn, random.IntN(3) > 0); err != nil {
			l.t.Logf("producer %d, transaction %d: %v", producer, txn, err)
			cl.Close()
			cl = nil
		}
	}
}

func (l *txnLoad) transaction(cl *kgo.Client, producer, txn int, commit bool) error {
	// Beyond the load's own context: one that is begun is ended.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var mu sync.Mutex
	var failed error
	for n := range txnRecords {
		cl.Produce(ctx, &kgo.Record{Partition: int32(n % txnPartitions), Value: []byte(txnValue(commit, producer, txn, txn*txnRecords+n))}, func(_ *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if failed != nil {
		if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
			return fmt.Errorf("produce: %w; abort: %w", failed, err)
		}
		return nil
	}
	if commit {
		l.mu.Lock()
		l.ending[txnName(producer, txn)] = true
		l.mu.Unlock()
	}
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return fmt.Errorf("end: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended++
	if commit {
		l.done[txnName(producer, txn)] = true
	}
	return nil
}

// read reads committed data until ctx ends.
func (l *txnLoad) read(ctx context.Context) {
	cl := l.c.Client(kgo.ConsumeTopics(l.topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(200*time.Millisecond))
	defer cl.Close()
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		l.mu.Lock()
		fs.EachRecord(l.saw)
		l.mu.Unlock()
	}
}

func (l *txnLoad) saw(r *kgo.Record) {
	v := string(r.Value)
	parts := strings.Split(v, "/")
	var producer, txn, n int
	if len(parts) != 3 {
		l.t.Errorf("strange record %q", v)
		return
	}
	if _, err := fmt.Sscanf(parts[1]+" "+parts[2], "%d.%d %d", &producer, &txn, &n); err != nil {
		l.t.Errorf("strange record %q: %v", v, err)
		return
	}
	if l.seen[v]++; l.seen[v] > 1 {
		l.t.Errorf("%s came %d times", v, l.seen[v])
	}
	switch {
	case parts[0] != "commit":
		l.t.Errorf("%s of an aborted transaction at %d of partition %d", v, r.Offset, r.Partition)
	case !l.ending[parts[1]]:
		l.t.Errorf("%s of an open transaction at %d of partition %d", v, r.Offset, r.Partition)
	}
	key := fmt.Sprintf("%d %d", producer, r.Partition)
	if last, ok := l.last[key]; ok && n <= last {
		l.t.Errorf("%s after number %d in partition %d", v, last, r.Partition)
	}
	l.last[key] = n
}

func (l *txnLoad) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// goesOn waits until so many more transactions have ended.
func (l *txnLoad) goesOn(more int, within time.Duration) {
	l.t.Helper()
	from := l.count()
	Await(l.t, within, "transactions", func() error {
		if n := l.count() - from; n < more {
			return fmt.Errorf("%d have ended, want %d", n, more)
		}
		return nil
	})
}

// Leaders move and are killed, those of the coordinator's partitions among them, while
// transactions are committed and aborted. A reader of committed data never sees a record of an
// aborted or open one, gets each record of a committed one once and in order, and is not
// held up for ever.
func TestCommittedReadersUnderKillsAndMovesOfLeaders(t *testing.T) {
	for _, v := range []struct {
		name string
		opts []kgo.Opt
		adds bool // second version of the protocol
	}{
		{"first version of the protocol", []kgo.Opt{kgo.MaxVersions(kversion.V3_7_0())}, false},
		{"second version of the protocol", nil, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := threeBrokers(t, "transaction.abort.timed.out.transaction.cleanup.interval.ms=500", "transaction.state.log.num.partitions=6")
			const topic = "ledger"
			c.CreateTopic(topic, txnPartitions, 3, "min.insync.replicas=2")
			l := &txnLoad{t: t, c: c, topic: topic, opts: v.opts, ending: map[string]bool{}, done: map[string]bool{}, seen: map[string]int{}, last: map[string]int{}}
			ctx, stop := context.WithCancel(context.Background())
			var producers, readers sync.WaitGroup
			for i := range txnProducers {
				producers.Go(func() { l.produce(ctx, i) })
			}
			reading, stopReading := context.WithCancel(context.Background())
			readers.Go(func() { l.read(reading) })
			defer func() { stop(); producers.Wait(); stopReading(); readers.Wait() }()

			l.goesOn(20, time.Minute)
			for _, n := range c.Brokers {
				n.Kill()
				l.goesOn(10, 2*time.Minute)
				n.Start()
				c.AwaitWhole(topic, time.Minute)
				c.AwaitWhole("__transaction_state", time.Minute)
			}
			for _, n := range c.Brokers { // planned: leaders move before the broker is gone
				n.Stop()
				l.goesOn(10, 2*time.Minute)
				n.Start()
				c.AwaitWhole(topic, time.Minute)
			}
			l.goesOn(20, time.Minute)
			stop()
			producers.Wait()

			l.settled(c)
			stopReading()
			readers.Wait()
			l.complete()
			if each := l.epoch() > int32(l.ended/txnProducers/2); each != v.adds {
				t.Errorf("the highest epoch of a producer is %d after %d transactions of %d producers", l.epoch(), l.ended, txnProducers)
			}
			t.Logf("%d transactions, %d committed, %d records seen", l.ended, len(l.done), len(l.seen))
		})
	}
}

// settled waits until every transaction has ended in every partition, and the reader is there.
func (l *txnLoad) settled(c *Cluster) {
	l.t.Helper()
	adm := kadm.NewClient(c.Client())
	Await(l.t, 90*time.Second, "last stable offsets at the end of the logs", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		stable, err := adm.ListCommittedOffsets(ctx, l.topic)
		if err != nil {
			return err
		}
		end, err := adm.ListEndOffsets(ctx, l.topic)
		if err != nil {
			return err
		}
		for p := range int32(txnPartitions) {
			s, _ := stable.Lookup(l.topic, p)
			e, _ := end.Lookup(l.topic, p)
			if s.Err != nil || e.Err != nil || s.Offset != e.Offset {
				return fmt.Errorf("partition %d is stable up to %d of %d (%v, %v)", p, s.Offset, e.Offset, s.Err, e.Err)
			}
		}
		return nil
	})
	Await(l.t, 30*time.Second, "the reader at all that was committed", func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if missing := l.missing(); len(missing) > 0 {
			return fmt.Errorf("%d records are missing, %s among them", len(missing), missing[0])
		}
		return nil
	})
}

// epoch is the highest of a producer in partition 0: in the second version of the protocol each
// transaction has the next one.
func (l *txnLoad) epoch() (highest int32) {
	l.t.Helper()
	addr := l.c.Brokers[l.c.leader(l.topic, 0)].Addr
	for _, a := range describeProducers((&target{addr: addr}).dial(l.t), l.topic, 0)[0].ActiveProducers {
		highest = max(highest, a.ProducerEpoch)
	}
	return highest
}

// missing are records of transactions whose commit was answered. REQUIRES: mu held.
func (l *txnLoad) missing() (out []string) {
	for name := range l.done {
		var producer, txn int
		if _, err := fmt.Sscanf(name, "%d.%d", &producer, &txn); err != nil {
			panic(err)
		}
		for n := range txnRecords {
			if v := txnValue(true, producer, txn, txn*txnRecords+n); l.seen[v] == 0 {
				out = append(out, v)
			}
		}
	}
	return out
}

// complete demands of each transaction that was seen that all of it was.
func (l *txnLoad) complete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[string]int{}
	for v := range l.seen {
		of[strings.Split(v, "/")[1]]++
	}
	for name, n := range of {
		if n != txnRecords {
			l.t.Errorf("%d of %d records of transaction %s were seen", n, txnRecords, name)
		}
	}
}
