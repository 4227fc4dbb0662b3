//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// longTransaction is the timeout of one that must still be open when Kafka has the folder
// again, shortTransaction of one that whoever has it next aborts.
const (
	longTransaction  = 10 * time.Minute
	shortTransaction = 20 * time.Second
)

// transactions commits, aborts, and leaves one open. The one that an earlier leg
// has left open is aborted by the coordinator, when its producer begins anew.
func (f *folder) transactions(leg int) {
	f.t.Helper()
	rng := rand.New(rand.NewPCG(uint64(leg), 2))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	opener := f.client(kgo.TransactionalID("opener"), kgo.TransactionTimeout(longTransaction), smallBatches)
	if _, _, err := opener.ProducerID(ctx); err != nil {
		f.t.Fatalf("a producer with a transaction left open begins anew: %v", err)
	}
	settle(f.undecided, wasAborted)
	f.awaitDecided("tx")

	others := f.client(smallBatches)
	defer others.Close()
	cl := f.client(kgo.TransactionalID(fmt.Sprintf("t-%d", leg)), kgo.TransactionTimeout(longTransaction), smallBatches, kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	defer cl.Close()
	for i, as := range []fate{wasCommitted, wasAborted, wasCommitted, wasAborted, wasAborted} {
		if err := cl.BeginTransaction(); err != nil {
			f.t.Fatal(err)
		}
		f.produce(cl, "tx", as, sundry(rng, 20)...)
		if i%2 == 1 {
			f.produce(others, "tx", wasCommitted, sundry(rng, 5)...)
			f.produce(cl, "tx", as, sundry(rng, 20)...)
		}
		if err := cl.EndTransaction(ctx, as == wasCommitted); err != nil {
			f.t.Fatalf("ending a transaction: %v", err)
		}
		f.awaitDecided("tx") // the markers come after the answer
	}
	if err := opener.BeginTransaction(); err != nil {
		f.t.Fatal(err)
	}
	f.undecided = f.produce(opener, "tx", stillOpen, sundry(rng, 10)...)
	opener.Close()
	f.produce(others, "tx", wasCommitted, sundry(rng, 10)...)

	f.transactionalOffsets(leg)
}

// openLate leaves a transaction open that times out while the folder is away.
func (f *folder) openLate(leg int) {
	f.t.Helper()
	cl := f.client(kgo.TransactionalID(fmt.Sprintf("late-%d", leg)), kgo.TransactionTimeout(shortTransaction), smallBatches)
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		f.t.Fatal(err)
	}
	f.late = f.produce(cl, "txlate", stillOpen, sundry(rand.New(rand.NewPCG(uint64(leg), 3)), 10)...)
}

// awaitDecided waits until a topic has no open transaction.
func (f *folder) awaitDecided(topic string) {
	f.t.Helper()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		Await(f.t, 45*time.Second, "no open transaction in "+topic, func() error {
			stable, err := adm.ListCommittedOffsets(ctx, topic)
			if err != nil {
				return err
			}
			end, err := adm.ListEndOffsets(ctx, topic)
			if err != nil {
				return err
			}
			s, _ := stable.Lookup(topic, 0)
			if e, _ := end.Lookup(topic, 0); s.Offset != e.Offset || s.Err != nil || e.Err != nil {
				return fmt.Errorf("stable to %d of %d (%v, %v)", s.Offset, e.Offset, s.Err, e.Err)
			}
			return nil
		})
		return nil
	})
}

// transactionalOffsets commits a group's offset in transactions: one committed,
// then one aborted, then one left open until the producer begins anew.
func (f *folder) transactionalOffsets(leg int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const id = "offsets"
	for i, end := range []fate{wasCommitted, wasAborted, stillOpen} {
		cl := f.client(kgo.TransactionalID(id), kgo.TransactionTimeout(longTransaction))
		pid, epoch, err := cl.ProducerID(ctx)
		if err != nil {
			f.t.Fatal(err)
		}
		// Each of two groups takes part in one that is left open or is not.
		group := "txgroup"
		if end == stillOpen {
			group = "txpending"
		}
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = id, pid, epoch, group
		Await(f.t, 20*time.Second, "a group added to a transaction", func() error { // the abort by the new epoch may be under way
			resp, err := add.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.ErrorCode)
		})
		offset := int64(leg*100 + i)
		commit := kmsg.NewPtrTxnOffsetCommitRequest()
		commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = id, group, pid, epoch, -1
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = "plain"
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Offset, rp.LeaderEpoch = offset, -1
		rt.Partitions = append(rt.Partitions, rp)
		commit.Topics = append(commit.Topics, rt)
		Await(f.t, 20*time.Second, "an offset in a transaction", func() error {
			resp, err := commit.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
		})
		if end == stillOpen {
			cl.Close()
			break
		}
		fin := kmsg.NewPtrEndTxnRequest()
		fin.TransactionalID, fin.ProducerID, fin.ProducerEpoch, fin.Commit = id, pid, epoch, end == wasCommitted
		resp, err := fin.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil {
			f.t.Fatalf("ending a transaction with offsets: %v", err)
		}
		if end == wasCommitted {
			f.offsets[group] = offset
		}
		cl.Close()
	}
	f.pending = true
}

// perTransaction is how many records each transaction of txflood has.
const perTransaction = 3

// floodTransactions runs one transaction after the other while during runs, until
// kill, and notes those whose commit was acknowledged.
func (f *folder) floodTransactions(leg int, during func(kill func()), kill func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cl := f.client(kgo.TransactionalID("flood"), kgo.TransactionTimeout(shortTransaction), smallBatches, kgo.ProducerLinger(0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			n := leg*100_000 + i
			if cl.BeginTransaction() != nil {
				return
			}
			var rs []*kgo.Record
			for range perTransaction {
				rs = append(rs, &kgo.Record{Topic: "txflood", Value: strconv.AppendInt(nil, int64(n), 10)})
			}
			if cl.ProduceSync(ctx, rs...).FirstErr() != nil || cl.EndTransaction(ctx, kgo.TryCommit) != nil {
				return
			}
			f.inFlight = append(f.inFlight, n)
		}
	}()
	during(func() {
		kill()
		cancel()
	})
	cl.Close() // or a record in flight would wait for the broker
	<-done
	f.t.Logf("killed after %d transactions", len(f.inFlight))
}

// verifyTransactionsInFlight reads the committed transactions of txflood: each is
// there whole, and those that were acknowledged are there.
func (f *folder) verifyTransactionsInFlight() {
	f.t.Helper()
	got := map[string]int{}
	for _, r := range f.readAll(kgo.ReadCommitted(), "txflood")["txflood"][0] {
		if !r.Attrs.IsControl() {
			got[string(r.Value)]++
		}
	}
	for n, records := range got {
		if records != perTransaction {
			f.t.Errorf("%s: %d records of transaction %s are seen", f.who, records, n)
		}
	}
	for _, n := range f.inFlight {
		if got[strconv.Itoa(n)] == 0 {
			f.t.Errorf("%s: transaction %d, which was committed, is not seen", f.who, n)
		}
	}
}
