package eos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/nemesis"
)

// feeder sends inputs that nobody has sent before.
type feeder struct {
	h     *History
	id    int
	topic string
	seeds []string
	every time.Duration
	gate  *nemesis.Gate

	seq int
}

func (f *feeder) next() Input {
	in := Input{f.id, f.seq}
	f.seq++
	f.h.Count(func(c *Counts) { c.Inputs++ })
	return in
}

func (f *feeder) record(in Input, txn string) *kgo.Record {
	return &kgo.Record{Topic: f.topic, Key: []byte(in.key()), Value: []byte(in.value(txn))}
}

func (f *feeder) client(more ...kgo.Opt) (*kgo.Client, error) {
	opts := append(timing(2*time.Second), kgo.SeedBrokers(f.seeds...), kgo.ClientID(fmt.Sprint("feed-", f.id)), kgo.MaxBufferedRecords(500))
	return kgo.NewClient(append(opts, more...)...)
}

// idempotent sends as a stock producer does, outside of transactions: what is
// acknowledged is there, once, in order.
func (f *feeder) idempotent(ctx context.Context) error {
	cl, err := f.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(f.every)
	defer tick.Stop()
	for f.gate.Pass(ctx) {
		in := f.next()
		cl.Produce(ctx, f.record(in, NoTxn), func(r *kgo.Record, err error) {
			switch {
			case err == nil:
				f.h.Acked(in, Place{r.Partition, r.Offset, in})
			case ctx.Err() == nil:
				f.h.Anomaly("given up", f.topic, r.Partition, "input %v: %v", in, err)
			}
		})
		<-tick.C
	}
	return nil
}

// transactional sends some inputs a transaction, and aborts one of eight on purpose.
func (f *feeder) transactional(ctx context.Context) error {
	for life := 0; ctx.Err() == nil; life++ {
		cl, err := f.client(kgo.TransactionalID(fmt.Sprint("feed-", f.id)), kgo.TransactionTimeout(txnTimeout))
		if err != nil {
			return err
		}
		for n := 0; f.gate.Pass(ctx); n++ {
			if f.transaction(cl, fmt.Sprintf("feed-%d.%d.%d", f.id, life, n)) != nil {
				break // the next client fences what is left of this one
			}
		}
		cl.Close()
	}
	return nil
}

func (f *feeder) transaction(cl *kgo.Client, name string) error {
	ctx := context.Background() // who gives one up halfway does not know its outcome
	tell := func(e Event) {
		e.Txn, e.At = name, nemesis.Monotonic()
		f.h.Tell(e, "", "", f.topic)
	}
	began := time.Now()
	tell(Event{Deed: Begins})
	if err := cl.BeginTransaction(); err != nil {
		tell(Event{Deed: Aborted, Err: err.Error()})
		return err
	}
	size := 1 + rand.IntN(12)
	var all sync.WaitGroup
	var mu sync.Mutex
	var results kgo.ProduceResults
	for range size {
		all.Add(1)
		cl.Produce(ctx, f.record(f.next(), name), func(r *kgo.Record, err error) {
			mu.Lock()
			results = append(results, kgo.ProduceResult{Record: r, Err: err})
			mu.Unlock()
			all.Done()
		})
	}
	all.Wait()
	e := Event{Deed: GivesUp, Sent: places(results)}
	commit := results.FirstErr() == nil && rand.IntN(8) > 0
	if commit {
		e.Deed = Asks
	}
	tell(e)
	err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	switch {
	case err != nil:
		tell(Event{Deed: Unsure, Err: err.Error()})
	case commit:
		tell(Event{Deed: Committed})
	default:
		tell(Event{Deed: Aborted})
	}
	time.Sleep(time.Until(began.Add(time.Duration(size) * f.every)))
	return err
}
