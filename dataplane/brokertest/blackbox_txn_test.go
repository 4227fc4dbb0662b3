package brokertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnProducer is a producer of one transactional id, in raw requests.
type txnProducer struct {
	*wire
	id    string
	pid   int64
	epoch int16
}

func initOf(version int16, id string) *kmsg.InitProducerIDRequest {
	req := at(kmsg.NewPtrInitProducerIDRequest(), version)
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	return req
}

// txn waits until a new transactional id has a coordinator, and a producer.
func (b *target) txn(t *testing.T) *txnProducer {
	t.Helper()
	p := &txnProducer{wire: b.dial(t), id: b.name("txn")}
	p.begin()
	return p
}

// begin gets the id's next epoch, as soon as what is open is aborted.
func (p *txnProducer) begin() {
	p.t.Helper()
	Await(p.t, 30*time.Second, "a producer id", func() error {
		find := at(kmsg.NewPtrFindCoordinatorRequest(), 3)
		find.CoordinatorType, find.CoordinatorKey = 1, p.id
		if err := kerr.ErrorForCode(ask[*kmsg.FindCoordinatorResponse](p.wire, find).ErrorCode); err != nil {
			return err
		}
		r := ask[*kmsg.InitProducerIDResponse](p.wire, initOf(4, p.id))
		p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
		return kerr.ErrorForCode(r.ErrorCode)
	})
}

func (p *txnProducer) add(version int16, topic string, partitions ...int32) []int16 {
	p.t.Helper()
	req := at(kmsg.NewPtrAddPartitionsToTxnRequest(), version)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.id, p.pid, p.epoch
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	codes := map[int32]int16{}
	for _, at := range ask[*kmsg.AddPartitionsToTxnResponse](p.wire, req).Topics {
		for _, ap := range at.Partitions {
			codes[ap.Partition] = ap.ErrorCode
		}
	}
	var out []int16
	for _, n := range partitions {
		out = append(out, codes[n])
	}
	return out
}

// added adds partitions; the markers of the transaction before may be under way yet.
func (p *txnProducer) added(topic string, partitions ...int32) {
	p.t.Helper()
	Await(p.t, 20*time.Second, "partitions in the transaction", func() error { return kerr.ErrorForCode(p.add(3, topic, partitions...)[0]) })
}

func (p *txnProducer) batch(version int16, verify bool, topic string, partitions ...int32) *kmsg.AddPartitionsToTxnResponse {
	p.t.Helper()
	req := at(kmsg.NewPtrAddPartitionsToTxnRequest(), version)
	rt := kmsg.NewAddPartitionsToTxnRequestTransaction()
	rt.TransactionalID, rt.ProducerID, rt.ProducerEpoch, rt.VerifyOnly = p.id, p.pid, p.epoch, verify
	tt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	tt.Topic, tt.Partitions = topic, partitions
	rt.Topics = append(rt.Topics, tt)
	req.Transactions = append(req.Transactions, rt)
	return ask[*kmsg.AddPartitionsToTxnResponse](p.wire, req)
}

func (p *txnProducer) end(version int16, commit bool) *kmsg.EndTxnResponse {
	p.t.Helper()
	req := at(kmsg.NewPtrEndTxnRequest(), version)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.id, p.pid, p.epoch, commit
	return ask[*kmsg.EndTxnResponse](p.wire, req)
}

// ended ends the transaction, waits until that is over, and goes on as it is told.
func (p *txnProducer) ended(version int16, commit bool) {
	p.t.Helper()
	r := p.end(version, commit)
	wantCode(p.t, "EndTxn", r.ErrorCode, nil)
	if version >= 5 {
		p.pid, p.epoch = r.ProducerID, r.ProducerEpoch
	}
	p.awaitState(map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[commit])
}

func (p *txnProducer) describe() kmsg.DescribeTransactionsResponseTransactionState {
	p.t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{p.id}
	return ask[*kmsg.DescribeTransactionsResponse](p.wire, req).TransactionStates[0]
}

func (p *txnProducer) awaitState(want string) {
	p.t.Helper()
	Await(p.t, 20*time.Second, p.id+" in "+want, func() error {
		if d := p.describe(); d.State != want {
			return fmt.Errorf("it is in %s (%v)", d.State, kerr.ErrorForCode(d.ErrorCode))
		}
		return nil
	})
}

// as is the same producer believing to be another.
func (p *txnProducer) as(pid int64, epoch int16) *txnProducer {
	return &txnProducer{p.wire, p.id, pid, epoch}
}

var txnCases = []blackBoxCase{
	{"InitProducerId/a transactional id has one producer id, and each producer the next epoch", func(t *testing.T, b *target) {
		p := b.txn(t)
		pid := p.pid
		if p.epoch != 0 {
			t.Errorf("the first epoch is %d", p.epoch)
		}
		p.begin()
		if p.pid != pid || p.epoch != 1 {
			t.Errorf("%d/%d after %d/0", p.pid, p.epoch, pid)
		}
		w := b.dial(t)
		for what, c := range map[string]struct {
			change func(*kmsg.InitProducerIDRequest)
			want   *kerr.Error
		}{
			"an empty id":                 {func(r *kmsg.InitProducerIDRequest) { r.TransactionalID = new("") }, kerr.InvalidRequest},
			"a timeout of 0":              {func(r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 0 }, kerr.InvalidTransactionTimeout},
			"a timeout above the limit":   {func(r *kmsg.InitProducerIDRequest) { r.TransactionTimeoutMillis = 900_001 }, kerr.InvalidTransactionTimeout},
			"an epoch without producer":   {func(r *kmsg.InitProducerIDRequest) { r.ProducerEpoch = 1 }, kerr.InvalidRequest},
			"another producer's id":       {func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch = 1<<50, 0 }, kerr.ProducerFenced},
			"another producer's id by v3": {func(r *kmsg.InitProducerIDRequest) { r.ProducerID, r.ProducerEpoch, r.Version = 1<<50, 0, 3 }, kerr.InvalidProducerEpoch},
		} {
			req := initOf(4, p.id)
			c.change(req)
			r := ask[*kmsg.InitProducerIDResponse](w, req)
			wantCode(t, what, r.ErrorCode, c.want)
			if r.ProducerID != -1 || r.ProducerEpoch != -1 {
				t.Errorf("%s: answered %d/%d", what, r.ProducerID, r.ProducerEpoch)
			}
		}
	}},
	{"InitProducerId/a producer bumps its own epoch, asks again, and is fenced by another", func(t *testing.T, b *target) {
		p := b.txn(t)
		bump := func(epoch int16) *kmsg.InitProducerIDResponse {
			req := initOf(4, p.id)
			req.ProducerID, req.ProducerEpoch = p.pid, epoch
			return ask[*kmsg.InitProducerIDResponse](p.wire, req)
		}
		for _, what := range []string{"bump", "the same again"} {
			r := bump(0)
			wantCode(t, what, r.ErrorCode, nil)
			if r.ProducerEpoch != 1 || r.ProducerID != p.pid {
				t.Errorf("%s: %d/%d", what, r.ProducerID, r.ProducerEpoch)
			}
		}
		p.begin()
		wantCode(t, "after another producer", bump(1).ErrorCode, kerr.ProducerFenced)
	}},
	{"InitProducerId/what is open is aborted first", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := b.txn(t)
		p.added(topic.name, 0)
		old := p.as(p.pid, p.epoch)
		wantCode(t, "InitProducerId", ask[*kmsg.InitProducerIDResponse](p.wire, initOf(4, p.id)).ErrorCode, kerr.ConcurrentTransactions)
		p.awaitState("CompleteAbort")
		if d := p.describe(); d.ProducerEpoch != p.epoch+1 {
			t.Errorf("epoch %d, want %d", d.ProducerEpoch, p.epoch+1)
		}
		p.begin()
		if p.epoch != old.epoch+2 {
			t.Errorf("epoch %d, want %d", p.epoch, old.epoch+2)
		}
		wantCode(t, "the old one adds", old.add(3, topic.name, 0)[0], kerr.ProducerFenced)
		wantCode(t, "by v1", old.add(1, topic.name, 0)[0], kerr.InvalidProducerEpoch)
		wantCode(t, "the old one ends", old.end(4, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, "by v1", old.end(1, true).ErrorCode, kerr.InvalidProducerEpoch)
		wantCode(t, "by v5", old.end(5, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, "another producer id", old.as(1<<50, 0).add(3, topic.name, 0)[0], kerr.InvalidProducerIDMapping)
		wantCode(t, "another producer id ends", old.as(1<<50, 0).end(4, true).ErrorCode, kerr.InvalidProducerIDMapping)
	}},
	{"AddPartitionsToTxn/all partitions or none", func(t *testing.T, b *target) {
		topic := b.topic(t, 2)
		p := b.txn(t)
		got := p.add(3, topic.name, 0, 7, 1)
		if want := []int16{kerr.OperationNotAttempted.Code, kerr.UnknownTopicOrPartition.Code, kerr.OperationNotAttempted.Code}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		wantCode(t, "an internal topic", p.add(3, "__consumer_offsets", 0)[0], kerr.TopicAuthorizationFailed)
		if d := p.describe(); d.State != "Empty" || len(d.Topics) > 0 {
			t.Errorf("%+v", d)
		}
		wantCode(t, "both", p.add(3, topic.name, 0, 1)[1], nil)
		wantCode(t, "one again", p.add(0, topic.name, 1)[0], nil)
		d := p.describe()
		if d.State != "Ongoing" || d.ProducerID != p.pid || d.ProducerEpoch != p.epoch || d.TimeoutMillis != 60_000 || d.StartTimestamp <= 0 ||
			len(d.Topics) != 1 || d.Topics[0].Topic != topic.name || len(d.Topics[0].Partitions) != 2 {
			t.Errorf("%+v", d)
		}
		nobody := &txnProducer{p.wire, b.name("nobody"), p.pid, p.epoch}
		wantCode(t, "an id that nobody has", nobody.add(3, topic.name, 0)[0], kerr.InvalidProducerIDMapping)
		wantCode(t, "ends", nobody.end(4, true).ErrorCode, kerr.InvalidProducerIDMapping)
		wantCode(t, "is described", nobody.describe().ErrorCode, kerr.TransactionalIDNotFound)
		none := &txnProducer{p.wire, "", p.pid, p.epoch}
		wantCode(t, "an empty id", none.add(3, topic.name, 0)[0], kerr.InvalidRequest)
		wantCode(t, "ends", none.end(4, true).ErrorCode, kerr.InvalidRequest)
		wantCode(t, "is described", none.describe().ErrorCode, kerr.InvalidRequest)
	}},
	{"AddPartitionsToTxn/brokers verify and add in batches", func(t *testing.T, b *target) {
		topic := b.topic(t, 3)
		p := b.txn(t)
		codes := func(r *kmsg.AddPartitionsToTxnResponse) map[int32]int16 {
			out := map[int32]int16{}
			wantCode(t, "the batch", r.ErrorCode, nil)
			for _, at := range r.Transactions[0].Topics {
				for _, ap := range at.Partitions {
					out[ap.Partition] = ap.ErrorCode
				}
			}
			return out
		}
		wantCode(t, "verify before it began", codes(p.batch(4, true, topic.name, 0))[0], kerr.TransactionAbortable)
		p.added(topic.name, 0)
		got := codes(p.batch(4, true, topic.name, 0, 1))
		wantCode(t, "verify what is part of it", got[0], nil)
		wantCode(t, "verify what is not", got[1], kerr.TransactionAbortable)
		wantCode(t, "add", codes(p.batch(5, false, topic.name, 1, 2))[1], nil)
		wantCode(t, "verify what was added", codes(p.batch(4, true, topic.name, 2))[2], nil)
		wantCode(t, "verify for an older epoch", codes(p.as(p.pid, p.epoch-1).batch(4, true, topic.name, 0))[0], kerr.ProducerFenced)
		wantCode(t, "verify for another producer", codes(p.as(1<<50, 0).batch(4, true, topic.name, 0))[0], kerr.InvalidProducerIDMapping)
		wantCode(t, "a partition that is not there", codes(p.batch(4, true, topic.name, 9))[9], kerr.UnknownTopicOrPartition)
	}},
	{"AddOffsetsToTxn/the group's partition becomes part of it", func(t *testing.T, b *target) {
		p := b.txn(t)
		group := b.name("group")
		b.coordinator(t, group)
		add := func(version int16, epoch int16) int16 {
			req := at(kmsg.NewPtrAddOffsetsToTxnRequest(), version)
			req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.id, p.pid, epoch, group
			return ask[*kmsg.AddOffsetsToTxnResponse](p.wire, req).ErrorCode
		}
		wantCode(t, "an older epoch", add(3, p.epoch-1), kerr.ProducerFenced)
		wantCode(t, "by v1", add(1, p.epoch-1), kerr.InvalidProducerEpoch)
		wantCode(t, "AddOffsetsToTxn", add(3, p.epoch), nil)
		if d := p.describe(); len(d.Topics) != 1 || d.Topics[0].Topic != "__consumer_offsets" || len(d.Topics[0].Partitions) != 1 {
			t.Errorf("%+v", d)
		}
		p.ended(4, true)
	}},
	{"EndTxn/by the first protocol", func(t *testing.T, b *target) {
		topic := b.topic(t, 2)
		p := b.txn(t)
		for _, commit := range []bool{true, false} {
			wantCode(t, "nothing began", p.end(4, commit).ErrorCode, kerr.InvalidTxnState)
		}
		for _, commit := range []bool{true, false} {
			p.added(topic.name, 0, 1)
			p.ended(4, commit)
			wantCode(t, "the same again", p.end(4, commit).ErrorCode, nil)
			wantCode(t, "the opposite", p.end(4, !commit).ErrorCode, kerr.InvalidTxnState)
			if d := p.describe(); d.ProducerEpoch != p.epoch || len(d.Topics) > 0 {
				t.Errorf("%+v", d)
			}
		}
		// Two transactions, no data: two markers in each partition.
		for n := range int32(2) {
			end := ask[*kmsg.ListOffsetsResponse](p.wire, offsetsOf(6, topic.name, n, -1)).Topics[0].Partitions[0]
			if end.Offset != 2 {
				t.Errorf("partition %d ends at %d", n, end.Offset)
			}
		}
	}},
	{"EndTxn/by the second protocol", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := b.txn(t)
		first := p.as(p.pid, p.epoch)
		wantCode(t, "commit of nothing", p.end(5, true).ErrorCode, kerr.InvalidTxnState)
		wantCode(t, "an older epoch", p.as(p.pid, p.epoch-1).end(5, false).ErrorCode, kerr.ProducerFenced)
		abort := func(from string) {
			t.Helper()
			was := p.epoch
			p.ended(5, false)
			if p.epoch != was+1 || p.pid != first.pid {
				t.Errorf("an abort in %s goes on as %d/%d, not %d/%d", from, p.pid, p.epoch, first.pid, was+1)
			}
		}
		again := func(commit bool, want *kerr.Error) {
			t.Helper()
			r := p.as(p.pid, p.epoch-1).end(5, commit)
			wantCode(t, "the same again", r.ErrorCode, want)
			if want == nil && (r.ProducerID != p.pid || r.ProducerEpoch != p.epoch) {
				t.Errorf("the same again goes on as %d/%d, not %d/%d", r.ProducerID, r.ProducerEpoch, p.pid, p.epoch)
			}
		}
		abort("Empty")
		again(false, nil)
		again(true, kerr.InvalidTxnState)
		wantCode(t, "commit after an abort", p.end(5, true).ErrorCode, kerr.InvalidTxnState)
		abort("CompleteAbort")
		wantCode(t, "add", p.batch(5, false, topic.name, 0).ErrorCode, nil)
		p.awaitState("Ongoing")
		p.ended(5, true)
		again(true, nil)
		again(false, kerr.InvalidTxnState)
		wantCode(t, "commit after a commit", p.end(5, true).ErrorCode, kerr.InvalidTxnState)
		abort("CompleteCommit")
		wantCode(t, "the first epoch", first.end(5, true).ErrorCode, kerr.ProducerFenced)
	}},
	{"ListTransactions/by state, producer, age and pattern", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		open, empty := b.txn(t), b.txn(t)
		open.added(topic.name, 0)
		for what, c := range map[string]struct {
			change      func(*kmsg.ListTransactionsRequest)
			open, empty bool
			unknown     int
			want        *kerr.Error
		}{
			"all":               {func(r *kmsg.ListTransactionsRequest) {}, true, true, 0, nil},
			"ongoing":           {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing"} }, true, false, 0, nil},
			"two states":        {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Empty"} }, true, true, 0, nil},
			"no such state":     {func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"ongoing"} }, false, false, 1, nil},
			"a producer":        {func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{empty.pid} }, false, true, 0, nil},
			"old ones":          {func(r *kmsg.ListTransactionsRequest) { r.Version, r.DurationFilterMillis = 1, 3_600_000 }, false, true, 0, nil}, // no start counts as 1970
			"a pattern":         {func(r *kmsg.ListTransactionsRequest) { r.Version, r.TransactionalIDPattern = 2, new(open.id) }, true, false, 0, nil},
			"part of an id":     {func(r *kmsg.ListTransactionsRequest) { r.Version, r.TransactionalIDPattern = 2, new(open.id[1:]) }, false, false, 0, nil},
			"a pattern of many": {func(r *kmsg.ListTransactionsRequest) { r.Version, r.TransactionalIDPattern = 2, new("t.*|x") }, true, true, 0, nil},
			"a bad pattern":     {func(r *kmsg.ListTransactionsRequest) { r.Version, r.TransactionalIDPattern = 2, new("a)|(b") }, false, false, 0, kerr.InvalidRegularExpression},
		} {
			req := kmsg.NewPtrListTransactionsRequest()
			c.change(req)
			r := ask[*kmsg.ListTransactionsResponse](open.wire, req)
			wantCode(t, what, r.ErrorCode, c.want)
			var gotOpen, gotEmpty bool
			for _, s := range r.TransactionStates {
				gotOpen = gotOpen || s.TransactionalID == open.id && s.TransactionState == "Ongoing" && s.ProducerID == open.pid
				gotEmpty = gotEmpty || s.TransactionalID == empty.id && s.TransactionState == "Empty" && s.ProducerID == empty.pid
			}
			if gotOpen != c.open || gotEmpty != c.empty || len(r.UnknownStateFilters) != c.unknown {
				t.Errorf("%s: the open one %v, the empty one %v, unknown states %v", what, gotOpen, gotEmpty, r.UnknownStateFilters)
			}
		}
		open.ended(4, false)
	}},
	{"Transactions/a transaction whose time is up is aborted", func(t *testing.T, b *target) {
		topic := b.topic(t, 1)
		p := b.txn(t)
		short := initOf(4, p.id)
		short.TransactionTimeoutMillis = 1000
		r := ask[*kmsg.InitProducerIDResponse](p.wire, short)
		wantCode(t, "InitProducerId", r.ErrorCode, nil)
		p.epoch = r.ProducerEpoch
		p.added(topic.name, 0)
		p.awaitState("CompleteAbort")
		if d := p.describe(); d.ProducerEpoch != p.epoch+1 {
			t.Errorf("epoch %d after %d", d.ProducerEpoch, p.epoch)
		}
		wantCode(t, "EndTxn", p.end(4, true).ErrorCode, kerr.ProducerFenced)
		wantCode(t, "commit by the second protocol", p.end(5, true).ErrorCode, kerr.InvalidTxnState)
		r2 := p.end(5, false)
		wantCode(t, "abort by the second protocol", r2.ErrorCode, nil)
		if r2.ProducerEpoch != p.epoch+1 {
			t.Errorf("goes on as %d after %d", r2.ProducerEpoch, p.epoch)
		}
	}},
	{"FindCoordinator/of transactions, several ids at once", func(t *testing.T, b *target) {
		p := b.txn(t)
		req := at(kmsg.NewPtrFindCoordinatorRequest(), 4)
		req.CoordinatorType, req.CoordinatorKeys = 1, []string{p.id, b.name("other")}
		r := ask[*kmsg.FindCoordinatorResponse](p.wire, req)
		if len(r.Coordinators) != 2 {
			t.Fatalf("%+v", r)
		}
		for _, c := range r.Coordinators {
			wantCode(t, c.Key, c.ErrorCode, nil)
			if c.NodeID < 0 || c.Port <= 0 {
				t.Errorf("%+v", c)
			}
		}
	}},
}
