package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// Rows of transactions.
const (
	txnRate  = "3 brokers: transactions of 100 x 1 KiB, 4 producers"
	txnEnd   = "the same: EndTxn, p99"
	txnWhole = "the same: whole transaction, p99"
	txnCPU   = "the same: CPU of all per commit"
)

// txnProducers run side by side: enough that a commit's wait for its replicas is
// another's work, and few enough that the client does not queue for a CPU.
const txnProducers = 4

// txnSteps commit transactions of one batch each to three brokers.
var txnSteps = []step{{warm: 2, run: transactions}}

// transactions has each producer commit one transaction after the other, as KIP-890's
// second version has it: Produce 12 adds the partition, EndTxn 5 answers with the
// next transaction's epoch.
func transactions(ctx context.Context, o options, t *target, f figures) error {
	led, err := t.leaders(topic, partitions)
	if err != nil {
		return err
	}
	all := make([]*txnProducer, txnProducers)
	for i := range all {
		p, err := newTxnProducer(t, fmt.Sprint("bench-txn-", i), led, int32(i))
		if err != nil {
			return err
		}
		defer p.close()
		all[i] = p
	}
	stopped := context.AfterFunc(ctx, func() {
		for _, p := range all {
			p.close()
		}
	})
	defer stopped()
	errs := make([]error, len(all))
	var took time.Duration
	r, err := metered(t, func() (int64, []time.Duration, error) {
		began := time.Now()
		var wg sync.WaitGroup
		for i, p := range all {
			wg.Go(func() {
				for errs[i] == nil && time.Since(began) < o.latency {
					errs[i] = p.transaction()
				}
			})
		}
		wg.Wait()
		took = time.Since(began)
		return 0, nil, errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	var ends, wholes []time.Duration
	for _, p := range all {
		ends, wholes = append(ends, p.ends...), append(wholes, p.wholes...)
	}
	f[txnRate] = float64(len(wholes)) / took.Seconds()
	f[txnEnd], f[txnWhole] = percentile(ends, 0.99), percentile(wholes, 0.99)
	f[txnCPU] = r.cpu.Seconds() * 1e6 / float64(len(wholes))
	return nil
}

// txnProducer writes to the partitions in turn, over a connection to its coordinator
// and one to each leader.
type txnProducer struct {
	coordinator *conn
	leaders     []*conn // by partition
	next        int32
	batch       []byte
	produce     *kmsg.ProduceRequest
	end         *kmsg.EndTxnRequest

	ends, wholes []time.Duration
}

func newTxnProducer(t *target, id string, led []string, first int32) (_ *txnProducer, err error) {
	p := &txnProducer{next: first, produce: kmsg.NewPtrProduceRequest(), end: kmsg.NewPtrEndTxnRequest()}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	byAddr := map[string]*conn{}
	for _, addr := range led {
		if byAddr[addr] == nil {
			if byAddr[addr], err = dial(addr); err != nil {
				return nil, err
			}
		}
		p.leaders = append(p.leaders, byAddr[addr])
	}
	if p.coordinator, err = coordinatorOf(t, ofTransactions, id); err != nil {
		return nil, err
	}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.SetVersion(5)
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 60_000
	got, err := again(p.coordinator, init, func(r *kmsg.InitProducerIDResponse) int16 { return r.ErrorCode })
	if err != nil {
		return nil, err
	}
	b, err := batch(perBatch, recordbatch.CodecNone)
	if err != nil {
		return nil, err
	}
	b[22] |= 1 << 4 // attributes: transactional
	p.batch = b
	p.produce.SetVersion(12)
	p.produce.TransactionID, p.produce.Acks, p.produce.TimeoutMillis = &id, -1, 30_000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = p.batch
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	p.produce.Topics = append(p.produce.Topics, rt)
	p.end.SetVersion(5)
	p.end.TransactionalID, p.end.Commit = id, true
	p.end.ProducerID, p.end.ProducerEpoch = got.ProducerID, got.ProducerEpoch
	return p, nil
}

func (p *txnProducer) close() {
	for _, c := range slices.Concat(p.leaders, []*conn{p.coordinator}) {
		if c != nil {
			c.Close()
		}
	}
}

// transaction produces one batch and commits it.
func (p *txnProducer) transaction() error {
	began := time.Now()
	// Every transaction has an epoch of its own, and sequences begin at 0 in each.
	p.stamp(p.end.ProducerID, p.end.ProducerEpoch)
	p.produce.Topics[0].Partitions[0].Partition = p.next
	if _, err := again(p.leaders[p.next], p.produce, func(r *kmsg.ProduceResponse) int16 { return r.Topics[0].Partitions[0].ErrorCode }); err != nil {
		return err
	}
	produced := time.Now()
	ended, err := again(p.coordinator, p.end, func(r *kmsg.EndTxnResponse) int16 { return r.ErrorCode })
	if err != nil {
		return err
	}
	p.ends, p.wholes = append(p.ends, time.Since(produced)), append(p.wholes, time.Since(began))
	p.end.ProducerID, p.end.ProducerEpoch = ended.ProducerID, ended.ProducerEpoch
	p.next = (p.next + 1) % int32(len(p.leaders))
	return nil
}

// stamp makes the batch the first of the producer's epoch.
func (p *txnProducer) stamp(id int64, epoch int16) {
	be := binary.BigEndian
	be.PutUint64(p.batch[43:], uint64(id))
	be.PutUint16(p.batch[51:], uint16(epoch))
	be.PutUint32(p.batch[53:], 0)
	be.PutUint32(p.batch[17:], recordbatch.Batch(p.batch).ComputeCRC())
}

// again asks until there is no error that goes away by itself. Nobody is told when the
// transaction before is over, and a client's usual pause of 20 ms would be most of what is measured.
func again[R kmsg.Response](c *conn, req kmsg.Request, code func(R) int16) (r R, err error) {
	for deadline := time.Now().Add(readyWithin); ; time.Sleep(time.Millisecond) {
		resp, err := c.do(req)
		if err != nil {
			return r, err
		}
		r = resp.(R)
		switch err := kerr.ErrorForCode(code(r)); {
		case err == nil:
			return r, nil
		case err != kerr.ConcurrentTransactions && !kerr.IsRetriable(err) || time.Now().After(deadline):
			return r, fmt.Errorf("%s: %w", kmsg.NameForKey(req.Key()), err)
		}
	}
}
