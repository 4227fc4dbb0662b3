package handler

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/admission"
	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/coordinator"
	"penstock/dataplane/fetchsession"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/txnverify"
	"penstock/dataplane/vfs"
)

// txnPath is a hotPath whose partitions demand verification, with a real verifier and a
// coordinator that says what the test has it say.
type txnPath struct {
	*hotPath
	say   atomic.Pointer[func(x kmsg.AddPartitionsToTxnRequestTransaction) int16]
	asked chan kmsg.AddPartitionsToTxnRequestTransaction // each question, before its answer
	gate  atomic.Pointer[chan struct{}]                  // answers wait for its closing; nil: they do not
}

func newTxnPath(t *testing.T) *txnPath {
	t.Helper()
	dir, err := commitlog.OpenDir(vfs.OS, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	m, err := partition.NewManager(context.Background(), partition.Config{
		BrokerID: 1, FS: vfs.OS, Dirs: []*commitlog.Dir{dir}, Wheel: wheel,
		Topic: func(string) partition.TopicConfig {
			return partition.TopicConfig{MinISR: 1, Log: commitlog.Config{VerifyTransactions: true}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	lead(m)
	p := &txnPath{hotPath: &hotPath{tb: t, m: m, buf: make([]byte, 1<<20)}, asked: make(chan kmsg.AddPartitionsToTxnRequestTransaction, 100)}
	v := txnverify.New(txnverify.Config{
		Enabled: func() bool { return true }, Coordinator: func(string) (int32, error) { return 1, nil }, Ask: p.ask,
		Begin: m.BeginVerification, End: m.EndVerification, Timeout: 10 * time.Second, RetryBackoff: time.Millisecond, RetryFor: 0,
	})
	p.q = admission.NewQuotas(admission.QuotaConfig{})
	cfg := &config.Broker{FetchMaxBytes: 55 << 20, VerifyTransactions: true}
	h := New(context.Background(), Deps{
		BrokerID: 1, Broker: func() *config.Broker { return cfg }, Partitions: m, Metadata: metadata.NewCache("c"),
		Sessions: fetchsession.New(fetchsession.Config{}), Quotas: p.q, VerifyBatches: v.VerifyBatches,
		VerifyingMax: 1, // one at a time, which may be larger
	})
	l, err := listener.Listen(listener.Config{Addr: "127.0.0.1:0", Name: "PLAINTEXT", Handler: h.Serve, Budget: admission.NewLanes(64 << 20)})
	if err != nil {
		t.Fatal(err)
	}
	l.Serve()
	if p.conn, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.conn.Close()
		v.Close()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		wheel.Close()
		if err := dir.Close(true); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *txnPath) ask(ctx context.Context, _ int32, req *kmsg.AddPartitionsToTxnRequest) (*kmsg.AddPartitionsToTxnResponse, error) {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	for _, x := range req.Transactions {
		p.asked <- x
		if gate := p.gate.Load(); gate != nil {
			select {
			case <-*gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		rx := kmsg.NewAddPartitionsToTxnResponseTransaction()
		rx.TransactionalID = x.TransactionalID
		for _, t := range x.Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = t.Topic
			for _, n := range t.Partitions {
				rp := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				rp.Partition = n
				if say := p.say.Load(); say != nil {
					rp.ErrorCode = (*say)(x)
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			rx.Topics = append(rx.Topics, rt)
		}
		resp.Transactions = append(resp.Transactions, rx)
	}
	return resp, nil
}

// txnProduce has one record of each producer for partitions 0, 1, ... of the topic.
func txnProduce(t *testing.T, version int16, seq int32, producers ...coordinator.Producer) *kmsg.ProduceRequest {
	t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	id := "an-id"
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, 1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = hotTopic
	for i, p := range producers {
		o := recordbatch.NoProducer()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = p.ID, p.Epoch, seq, true
		b, err := recordbatch.Build(o, []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: []byte("v")}})
		if err != nil {
			t.Fatal(err)
		}
		rt.Partitions = append(rt.Partitions, kmsg.ProduceRequestTopicPartition{Partition: int32(i), Records: b})
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func (p *txnPath) answer(version int16) *kmsg.ProduceResponse {
	body := p.buf[4:p.receive()]
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(version)
	if version >= 9 {
		body = body[1:]
	}
	if err := resp.ReadFrom(body); err != nil {
		p.tb.Fatal(err)
	}
	return resp
}

func (p *txnPath) produced(req *kmsg.ProduceRequest) *kmsg.ProduceResponse {
	p.send(frameOf(req))
	return p.answer(req.Version)
}

// What a producer of each version is told, as by Kafka.
func TestRefusedVerificationByVersionOfProduce(t *testing.T) {
	p := newTxnPath(t)
	for i, c := range []struct {
		said          *kerr.Error
		v10, v11, v12 *kerr.Error
	}{
		{nil, nil, nil, nil},
		{kerr.TransactionAbortable, kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.TransactionAbortable},
		{kerr.InvalidTxnState, kerr.InvalidTxnState, kerr.InvalidTxnState, kerr.InvalidTxnState},
		{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch, kerr.InvalidProducerEpoch},
		{kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping, kerr.InvalidProducerIDMapping},
		{kerr.ConcurrentTransactions, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, kerr.ConcurrentTransactions},
		{kerr.NotCoordinator, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas},
		{kerr.CoordinatorLoadInProgress, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas},
		{kerr.CoordinatorNotAvailable, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas, kerr.NotEnoughReplicas},
	} {
		for n, want := range []*kerr.Error{c.v10, c.v11, c.v12} {
			version := int16(10 + n)
			say := func(x kmsg.AddPartitionsToTxnRequestTransaction) int16 {
				if x.VerifyOnly != (version < 12) {
					t.Errorf("v%d: verify only: %v", version, x.VerifyOnly)
				}
				if c.said == nil {
					return 0
				}
				return c.said.Code
			}
			p.say.Store(&say)
			got := p.produced(txnProduce(t, version, 0, coordinator.Producer{ID: int64(100 + 10*i + n)})).Topics[0].Partitions[0]
			<-p.asked
			if code := code(nilOr(want)); got.ErrorCode != code {
				t.Errorf("v%d, the coordinator said %v: %v, want %v", version, c.said, kerr.ErrorForCode(got.ErrorCode), want)
			}
			if (got.ErrorCode != 0) != (got.ErrorMessage != nil) || (got.ErrorCode == 0) != (got.BaseOffset >= 0) {
				t.Errorf("v%d, the coordinator said %v: %+v", version, c.said, got)
			}
		}
	}
}

func nilOr(e *kerr.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func TestTransactionIsAskedAboutOnceAPartition(t *testing.T) {
	p := newTxnPath(t)
	producer := coordinator.Producer{ID: 7}
	for seq := range int32(3) {
		for _, got := range p.produced(txnProduce(t, 9, seq, producer, producer)).Topics[0].Partitions {
			if got.ErrorCode != 0 || got.BaseOffset != int64(seq) {
				t.Errorf("batch %d: %+v", seq, got)
			}
		}
	}
	if x := <-p.asked; !slices.Equal(x.Topics[0].Partitions, []int32{0, 1}) || len(p.asked) > 0 {
		t.Errorf("asked %+v, and %d times more", x, len(p.asked))
	}
}

// The connection's batches come into the log as they were sent, though the first has to wait
// for the coordinator and those after it need not.
func TestPipelinedProducesStayInOrder(t *testing.T) {
	p := newTxnPath(t)
	gate := make(chan struct{})
	p.gate.Store(&gate)
	producer := coordinator.Producer{ID: 7}
	for seq := range int32(5) {
		p.send(frameOf(txnProduce(t, 9, seq, producer)))
	}
	p.send(produceOf(t, 9, 1, 1, 10)) // no transaction, the same partition
	<-p.asked
	if end := p.m.Partition(partition.TopicPartition{Topic: hotTopic}).EndOffset(); end != 0 {
		t.Errorf("the log ends at %d before the answer", end)
	}
	close(gate)
	for want := range int64(6) {
		if got := p.answer(9).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.BaseOffset != want {
			t.Errorf("answer %d: %+v", want, got)
		}
	}
}

// Requests that wait for a silent coordinator hold memory that others need.
func TestFewBytesWaitForACoordinator(t *testing.T) {
	p := newTxnPath(t)
	gate := make(chan struct{})
	p.gate.Store(&gate)
	first := txnProduce(t, 12, 0, coordinator.Producer{ID: 7})
	p.send(frameOf(first))
	<-p.asked // it waits
	second := &txnPath{hotPath: &hotPath{tb: t, m: p.m, q: p.q, buf: make([]byte, 1<<20)}}
	var err error
	if second.conn, err = net.Dial("tcp", p.conn.RemoteAddr().String()); err != nil {
		t.Fatal(err)
	}
	defer second.conn.Close()
	again := txnProduce(t, 12, 0, coordinator.Producer{ID: 8})
	if got := second.produced(again).Topics[0].Partitions[0]; got.ErrorCode != kerr.NotEnoughReplicas.Code {
		t.Errorf("beside one that waits: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	if len(p.asked) != 0 {
		t.Error("the coordinator was asked about what was refused")
	}
	close(gate)
	if got := p.answer(12).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Errorf("the one that waited: %v", kerr.ErrorForCode(got.ErrorCode))
	}
	if got := second.produced(again).Topics[0].Partitions[0]; got.ErrorCode != 0 {
		t.Errorf("when none waits: %v", kerr.ErrorForCode(got.ErrorCode))
	}
}

func TestRequestWithTwoProducersIsRefused(t *testing.T) {
	p := newTxnPath(t)
	for i, got := range p.produced(txnProduce(t, 9, 0, coordinator.Producer{ID: 7}, coordinator.Producer{ID: 7, Epoch: 1})).Topics[0].Partitions {
		if got.ErrorCode != kerr.InvalidProducerIDMapping.Code {
			t.Errorf("partition %d: %v", i, kerr.ErrorForCode(got.ErrorCode))
		}
	}
	if len(p.asked) > 0 {
		t.Error("the coordinator was asked")
	}
}

func TestBatchOfAnOpenTransactionAllocatesNoMoreThanAnother(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector makes pools forget")
	}
	p := newTxnPath(t)
	producer := coordinator.Producer{ID: 7}
	const runs = 100
	var frames [][]byte
	for seq := range int32(runs + 30) {
		frames = append(frames, frameOf(txnProduce(t, 9, seq, producer)))
	}
	next := func() {
		p.call(frames[0])
		frames = frames[1:]
	}
	for range 20 {
		next()
	}
	if n := testing.AllocsPerRun(runs, next); n > 1 {
		t.Errorf("%v allocations, 1 is justified: see hotpath_test.go", n)
	}
}

func TestFeaturesAreToldAsTheVersionCanCarryThem(t *testing.T) {
	in := metadata.Features{Epoch: 9, Levels: map[string]int16{"transaction.version": 2, "not.ours": 1}}
	for version, supported := range map[int16]bool{3: false, 4: true} {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = version
		addFeatures(resp, in)
		told := slices.ContainsFunc(resp.SupportedFeatures, func(f kmsg.ApiVersionsResponseSupportedFeature) bool {
			return f.Name == "transaction.version" && f.MinVersion == 0 && f.MaxVersion == 2
		})
		if told != supported || resp.FinalizedFeaturesEpoch != 9 || len(resp.FinalizedFeatures) != 1 ||
			resp.FinalizedFeatures[0].Name != "transaction.version" || resp.FinalizedFeatures[0].MaxVersionLevel != 2 || resp.FinalizedFeatures[0].MinVersionLevel != 2 {
			t.Errorf("v%d: %+v", version, resp)
		}
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 4
	addFeatures(resp, metadata.NoFeatures)
	if resp.FinalizedFeaturesEpoch != -1 || len(resp.FinalizedFeatures) != 0 {
		t.Errorf("before anything is known: %+v", resp)
	}
}
