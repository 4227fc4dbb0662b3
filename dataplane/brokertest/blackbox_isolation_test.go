package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// inTxn is a transactional producer of raw requests.
type inTxn struct {
	w     *wire
	id    string
	topic madeTopic
	pid   int64
	epoch int16
	seq   int32 // next
}

func newInTxn(t *testing.T, b *target, topic madeTopic) *inTxn {
	t.Helper()
	p := &inTxn{w: b.dial(t), id: b.name("txn"), topic: topic}
	p.init()
	return p
}

// init gets a producer id, or the next epoch of it.
func (p *inTxn) init() {
	p.w.t.Helper()
	Await(p.w.t, 30*time.Second, "a transactional producer id", func() error { // the coordinator's topic is made by the first
		find := at(kmsg.NewPtrFindCoordinatorRequest(), 4)
		find.CoordinatorType, find.CoordinatorKeys = 1, []string{p.id}
		if err := kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](p.w, find).Coordinators[0].ErrorCode); err != nil {
			return err
		}
		req := at(kmsg.NewPtrInitProducerIDRequest(), 4)
		req.TransactionalID, req.TransactionTimeoutMillis = &p.id, 60_000
		resp := ask[*kmsg.InitProducerIDResponse](p.w, req)
		p.pid, p.epoch, p.seq = resp.ProducerID, resp.ProducerEpoch, 0
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// add puts the topic's partition 0 into the transaction, by the first version of the protocol.
func (p *inTxn) add() {
	p.w.t.Helper()
	Await(p.w.t, 20*time.Second, "the partition in the transaction", func() error { // the one before may be ending
		req := at(kmsg.NewPtrAddPartitionsToTxnRequest(), 3)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.pid, p.epoch
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = p.topic.name, []int32{0}
		req.Topics = append(req.Topics, rt)
		return kerr.ErrorForCode(ask[*kmsg.AddPartitionsToTxnResponse](p.w, req).Topics[0].Partitions[0].ErrorCode)
	})
}

func (p *inTxn) request(version int16, seq int32, values ...string) *kmsg.ProduceRequest {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = p.pid, p.epoch, seq, true
	req := produceOf(p.topic.name, -1, build(p.w.t, o, records(values...)))
	req.Version, req.TransactionID = version, &p.id
	return req
}

// try produces at the next sequence; only what is taken moves it.
func (p *inTxn) try(what string, version int16, want *kerr.Error, values ...string) (offset int64) {
	p.w.t.Helper()
	got := ask[*kmsg.ProduceResponse](p.w, p.request(version, p.seq, values...)).Topics[0].Partitions[0]
	wantCode(p.w.t, what, got.ErrorCode, want)
	if got.ErrorCode == 0 {
		p.seq += int32(len(values))
	}
	return got.BaseOffset
}

// end commits or aborts; from version 5 on with a new epoch. The markers may come a little later.
func (p *inTxn) end(version int16, commit bool) {
	p.w.t.Helper()
	Await(p.w.t, 20*time.Second, "the end of the transaction", func() error {
		req := at(kmsg.NewPtrEndTxnRequest(), version)
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
		resp := ask[*kmsg.EndTxnResponse](p.w, req)
		if version >= 5 && resp.ErrorCode == 0 {
			p.pid, p.epoch, p.seq = resp.ProducerID, resp.ProducerEpoch, 0
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// seen is one answer of a fetch of partition 0.
type seen struct {
	values  []string
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	stable  int64
	end     int64
}

func (p *inTxn) fetch(version int16, from int64, committed bool) seen {
	p.w.t.Helper()
	req := at(fetchOf(p.topic.name, 0, from), version)
	req.Topics[0].TopicID = p.topic.id
	if committed {
		req.IsolationLevel = 1
	}
	got := ask[*kmsg.FetchResponse](p.w, req).Topics[0].Partitions[0]
	wantCode(p.w.t, fmt.Sprintf("fetch v%d", version), got.ErrorCode, nil)
	s := seen{aborted: got.AbortedTransactions, stable: got.LastStableOffset, end: got.HighWatermark}
	for b, err := range recordbatch.Split(got.RecordBatches) {
		if err != nil {
			p.w.t.Fatal(err)
		}
		if b.IsControl() {
			continue
		}
		if err := recordbatch.Records(b, func(r recordbatch.Record) error { s.values = append(s.values, string(r.Value)); return nil }); err != nil {
			p.w.t.Fatal(err)
		}
	}
	return s
}

// stable waits until the last stable offset is there.
func (p *inTxn) stable(offset int64) {
	p.w.t.Helper()
	Await(p.w.t, 20*time.Second, "the transaction's marker", func() error {
		if s := p.fetch(12, 0, true); s.stable != offset {
			return fmt.Errorf("last stable offset is %d, want %d", s.stable, offset)
		}
		return nil
	})
}

var isolationCases = []blackBoxCase{
	{"isolation/the last stable offset is the first of the open transaction", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		if got := produce(p.w, topic.name, batch(t, "before")); got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		p.add()
		if at := p.try("the record", 9, nil, "aborted"); at != 1 {
			t.Fatalf("it is at %d", at)
		}
		for _, version := range []int16{4, 11, 12, 16} {
			s := p.fetch(version, 1, true)
			if s.values != nil || s.stable != 1 || s.end != 2 || s.aborted == nil || len(s.aborted) != 0 {
				t.Errorf("v%d, open: %+v", version, s)
			}
			if s = p.fetch(version, 0, true); !slices.Equal(s.values, []string{"before"}) || len(s.aborted) != 0 {
				t.Errorf("v%d, before it: %+v", version, s)
			}
		}
		p.end(3, false)
		p.stable(3)
		for _, version := range []int16{4, 11, 12, 16} {
			s := p.fetch(version, 1, true)
			if !slices.Equal(s.values, []string{"aborted"}) || s.stable != 3 || s.end != 3 || !slices.EqualFunc(s.aborted, txnAborts(p.pid, 1), sameAbort) {
				t.Errorf("v%d, aborted: %+v", version, s)
			}
		}
	}},
	{"isolation/readers of all get aborted records and no list, of committed ones a list even if it is empty", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.add()
		p.try("three", 9, nil, "1", "2", "3")
		p.end(3, false)
		p.stable(4)
		p.add()
		p.try("one", 9, nil, "4")
		p.end(3, true)
		p.stable(6)
		for _, version := range []int16{4, 8, 11, 12, 16} {
			s := p.fetch(version, 0, false)
			if !slices.Equal(s.values, []string{"1", "2", "3", "4"}) || s.aborted != nil {
				t.Errorf("v%d, uncommitted: %+v", version, s)
			}
			s = p.fetch(version, 0, true)
			if !slices.Equal(s.values, []string{"1", "2", "3", "4"}) || !slices.EqualFunc(s.aborted, txnAborts(p.pid, 0), sameAbort) {
				t.Errorf("v%d, committed: %+v", version, s)
			}
			s = p.fetch(version, 4, true)
			if !slices.Equal(s.values, []string{"4"}) || s.aborted == nil || len(s.aborted) != 0 {
				t.Errorf("v%d, committed, behind the abort: %+v", version, s)
			}
		}
	}},
	{"isolation/a batch of a transaction that is sent again is answered with its first offset", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.add()
		for i := range int32(5) {
			p.w.send(p.request(9, i, "x"))
		}
		if _, err := p.w.body(); err != nil {
			t.Fatal(err)
		}
		p.w.Close()
		p.w = b.dial(t)
		for i := range int64(5) {
			got := ask[*kmsg.ProduceResponse](p.w, p.request(9, int32(i), "x")).Topics[0].Partitions[0]
			if got.ErrorCode != 0 || got.BaseOffset != i {
				t.Errorf("batch %d: offset %d, %v", i, got.BaseOffset, kerr.ErrorForCode(got.ErrorCode))
			}
		}
		p.end(3, true)
		p.stable(6)
	}},
	{"verification/a partition that was not added", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.try("version 9", 9, kerr.InvalidTxnState, "x")
		p.try("version 10", 10, kerr.InvalidTxnState, "x")
		p.try("version 11", 11, kerr.TransactionAbortable, "x")
		req := p.request(9, 0, "x")
		req.TransactionID = nil
		wantCode(t, "no transactional id", ask[*kmsg.ProduceResponse](p.w, req).Topics[0].Partitions[0].ErrorCode, kerr.TransactionalIDAuthorizationFailed)
		strange := *p
		strange.pid += 1 << 40
		strange.try("a producer id that is not the id's", 9, kerr.InvalidProducerIDMapping, "x")
		p.add()
		p.try("added", 9, nil, "x")
		p.try("goes on", 11, nil, "y")
		p.end(3, true)
		p.stable(3)
	}},
	{"verification/a batch after the end of its transaction", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.add()
		p.try("in it", 9, nil, "x")
		p.end(3, false)
		p.stable(2)
		Await(t, 20*time.Second, "the transaction's completion", func() error { // until then the answer is to try again
			code := ask[*kmsg.ProduceResponse](p.w, p.request(9, p.seq, "late")).Topics[0].Partitions[0].ErrorCode
			if code == kerr.NotEnoughReplicas.Code {
				return kerr.NotEnoughReplicas
			}
			wantCode(t, "after it", code, kerr.InvalidTxnState)
			return nil
		})
		p.try("after it", 11, kerr.TransactionAbortable, "late")
		p.stable(2)
		p.add()
		p.try("in the next", 9, nil, "y")
		p.end(3, true)
		p.stable(4)
	}},
	{"verification/a producer that another has fenced off", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.add()
		p.try("in a transaction", 9, nil, "x")
		zombie := *p
		zombie.w = b.dial(t)
		p.init() // aborts it
		if p.pid != zombie.pid || p.epoch <= zombie.epoch {
			t.Fatalf("producer %d, epoch %d after %d, %d", p.pid, p.epoch, zombie.pid, zombie.epoch)
		}
		p.stable(2)
		for _, version := range []int16{9, 11, 12} {
			zombie.try(fmt.Sprintf("its next, v%d", version), version, kerr.InvalidProducerEpoch, "late")
		}
		p.add()
		p.try("the living", 9, nil, "y")
		zombie.try("its next, beside the living", 9, kerr.InvalidProducerEpoch, "late")
		p.end(3, true)
		p.stable(4)
	}},
	{"verification/the second version adds partitions and has an epoch a transaction", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		p.try("not from 0", 12, nil, "1") // added by the leader
		p.try("goes on", 12, nil, "2")
		zombie := *p
		zombie.w = b.dial(t)
		p.end(5, true)
		if p.pid == zombie.pid && p.epoch <= zombie.epoch {
			t.Fatalf("epoch %d after %d", p.epoch, zombie.epoch)
		}
		p.stable(3)
		zombie.try("late, of the transaction before", 12, kerr.InvalidProducerEpoch, "late")
		zombie.seq = 0
		zombie.try("sent again, of the transaction before", 12, kerr.InvalidProducerEpoch, "1")
		if at := p.try("the next transaction", 12, nil, "3"); at != 3 {
			t.Errorf("it begins at %d", at)
		}
		p.end(5, false)
		p.stable(5)
		if s := p.fetch(12, 0, true); !slices.Equal(s.values, []string{"1", "2", "3"}) || len(s.aborted) != 1 || s.aborted[0].FirstOffset != 3 {
			t.Errorf("%+v", s)
		}
	}},
	{"DescribeProducers/an open transaction, and its end by an administrator", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := newInTxn(t, b, topic)
		if got := produce(p.w, topic.name, batch(t, "before")); got.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(got.ErrorCode))
		}
		p.add()
		p.try("in it", 9, nil, "x")
		a, ok := active(p.w, topic.name, p.pid)
		if !ok || a.CurrentTxnStartOffset != 1 || a.LastSequence != 0 || a.ProducerEpoch != int32(p.epoch) {
			t.Fatalf("%+v, %v", a, ok)
		}
		mark(p.w, "an administrator's abort", markerOf(p.pid, p.epoch, false, a.CoordinatorEpoch, topic.name, 0), nil)
		p.stable(3)
		if a, _ := active(p.w, topic.name, p.pid); a.CurrentTxnStartOffset != -1 {
			t.Errorf("after it: %+v", a)
		}
	}},
}
