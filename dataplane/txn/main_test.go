package txn

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is __transaction_state in memory, with one leader at a time. Appends are
// answered on other goroutines, 1 ms later, unless held or failing. What is held is in
// the log and not committed.
type memLog struct {
	mu        sync.Mutex
	n         int32
	parts     map[int32][]coordinator.Record
	committed map[int32]int
	fail      error // refuse appends with this
	hold      bool  // keep answers back
	held      []heldAppend
}

type heldAppend struct {
	partition int32
	upTo      int
	done      func(error)
}

func newMemLog(n int32) *memLog {
	return &memLog{n: n, parts: make(map[int32][]coordinator.Record), committed: make(map[int32]int)}
}

func (l *memLog) Partitions() int32 { return l.n }

func (l *memLog) Append(p int32, b coordinator.Batch, done func(error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		err := l.fail
		go done(err)
		return
	}
	l.parts[p] = append(l.parts[p], b.Records...)
	upTo := len(l.parts[p])
	if l.hold {
		l.held = append(l.held, heldAppend{p, upTo, done})
		return
	}
	time.AfterFunc(time.Millisecond, func() {
		l.set(func(l *memLog) { l.committed[p] = max(l.committed[p], min(upTo, len(l.parts[p]))) })
		done(nil)
	})
}

func (l *memLog) Read(p int32, fn func(coordinator.Logged) error) error {
	l.mu.Lock()
	recs := l.parts[p][:len(l.parts[p]):len(l.parts[p])]
	l.mu.Unlock()
	for i, r := range recs {
		r.Offset = int64(i)
		if err := fn(coordinator.Logged{Record: r, Producer: coordinator.NoTransaction}); err != nil {
			return err
		}
	}
	return nil
}

// Settle is Config.Settle.
func (l *memLog) Settle(p int32, lost <-chan struct{}) error {
	var end int
	l.set(func(l *memLog) { end = len(l.parts[p]) })
	for !over(lost) {
		var committed int
		l.set(func(l *memLog) { committed = l.committed[p] })
		if committed >= end {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// over says that the channel is closed.
func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (l *memLog) set(f func(*memLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

// release answers the held appends: with nil they are committed, otherwise they stay in
// the log all the same.
func (l *memLog) release(err error) {
	l.mu.Lock()
	held := l.held
	l.held, l.hold = nil, false
	if err == nil {
		for _, h := range held {
			l.committed[h.partition] = max(l.committed[h.partition], h.upTo)
		}
	}
	l.mu.Unlock()
	for _, h := range held {
		h.done(err)
	}
}

// stored is the state that the log has of the id, nil if none.
func (l *memLog) stored(t *testing.T, id string) *meta {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var last *meta
	for _, recs := range l.parts {
		for _, r := range recs {
			got, m, err := decode(r)
			if err != nil {
				t.Fatal(err)
			}
			if got == id {
				last = m
			}
		}
	}
	return last
}

// sent is a marker as it came to a partition.
type sent struct {
	tp          protocol.TopicPartition
	producer    coordinator.Producer
	committed   bool
	coordinator int32
	version     int8
}

// memPeers are brokers that lead partitions and keep what markers they get.
type memPeers struct {
	mu      sync.Mutex
	leaders map[protocol.TopicPartition]int32
	empty   bool // nothing is known of any partition
	answer  func(broker int32, s sent) error
	err     error         // requests fail with this
	gate    chan struct{} // if set, requests wait for it
	got     []sent
	asked   int // requests
}

func (p *memPeers) Leader(tp protocol.TopicPartition) (int32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.leaders[tp]
	return b, ok && !p.empty
}

func (p *memPeers) set(f func(*memPeers)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *memPeers) WriteMarkers(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	p.mu.Lock()
	gate := p.gate
	p.asked++
	p.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	time.Sleep(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, p.err
	}
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, m := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, n := range t.Partitions {
				s := sent{protocol.TopicPartition{Topic: t.Topic, Partition: n}, coordinator.Producer{ID: m.ProducerID, Epoch: m.ProducerEpoch}, m.Committed, m.CoordinatorEpoch, m.TransactionVersion}
				var err error
				if p.leaders[s.tp] != broker {
					err = kerr.NotLeaderForPartition
				} else if p.answer != nil {
					err = p.answer(broker, s)
				}
				if err == nil {
					p.got = append(p.got, s)
				}
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				rp.Partition, rp.ErrorCode = n, protocol.Code(err)
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	return resp, nil
}

func (p *memPeers) markers() []sent {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]sent(nil), p.got...)
}

// env is a coordinator that leads everything, in a synctest bubble.
type env struct {
	t       *testing.T
	log     *memLog
	peers   *memPeers
	c       *Coordinator
	cfg     Config
	version int16
	nextID  int64
	idErr   error
}

func newEnv(t *testing.T, cfg Config) *env {
	e := &env{t: t, log: newMemLog(1), version: 2, nextID: 1000, peers: &memPeers{leaders: make(map[protocol.TopicPartition]int32)}}
	for b := range int32(3) {
		e.peers.leaders[protocol.TopicPartition{Topic: "t", Partition: b}] = b
		e.peers.leaders[protocol.TopicPartition{Topic: protocol.OffsetsTopic, Partition: b}] = b
	}
	cfg.Version = func() int16 { return e.version }
	cfg.NextProducerID = func(context.Context) (int64, error) {
		e.nextID++
		return e.nextID, e.idErr
	}
	cfg.Peers, cfg.Settle = e.peers, e.log.Settle
	e.cfg = cfg
	e.c = New(cfg, e.log)
	return e
}

func run(t *testing.T, cfg Config, f func(*env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := newEnv(t, cfg)
		defer func() {
			e.c.Close()
			time.Sleep(time.Minute) // answers on their way
		}()
		e.c.OnLeader(0, 1)
		synctest.Wait()
		f(e)
	})
}

// move takes the partition away and gives it to a new coordinator.
func (e *env) move(epoch int32) {
	e.t.Helper()
	e.c.Close()
	e.c = New(e.cfg, e.log)
	e.c.OnLeader(0, epoch)
	synctest.Wait()
}

// pass lets what is under way come to its end.
func (e *env) pass() { time.Sleep(20 * time.Millisecond) }

// future is an answer to come; a second one is an error.
type future[T any] struct {
	t   *testing.T
	mu  sync.Mutex
	got *T
}

func newFuture[T any](t *testing.T) *future[T] { return &future[T]{t: t} }

func (f *future[T]) done(v *T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.got != nil {
		f.t.Errorf("answered twice: %+v, then %+v", f.got, v)
	}
	f.got = v
}

func (f *future[T]) poll() *T {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got
}

// wait lets time pass until the answer is there; at most an hour.
func (f *future[T]) wait() *T {
	f.t.Helper()
	for d := time.Millisecond; d < time.Hour; d *= 2 {
		if v := f.poll(); v != nil {
			return v
		}
		time.Sleep(d)
	}
	f.t.Fatal("no answer")
	return nil
}

func (f *future[T]) mustWait() {
	f.t.Helper()
	if v := f.poll(); v != nil {
		f.t.Fatalf("answered early: %+v", v)
	}
}

func initReq(id string) *kmsg.InitProducerIDRequest {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.Version, r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = 5, &id, 60_000, -1, -1
	return r
}

func (e *env) initAsync(r *kmsg.InitProducerIDRequest) *future[kmsg.InitProducerIDResponse] {
	f := newFuture[kmsg.InitProducerIDResponse](e.t)
	e.c.InitProducerID(r, f.done)
	return f
}

func (e *env) init(r *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	e.t.Helper()
	return e.initAsync(r).wait()
}

// producer has a new epoch for the id, once what is open of it is aborted.
func (e *env) producer(id string) coordinator.Producer {
	e.t.Helper()
	for range 100 {
		r := e.init(initReq(id))
		if r.ErrorCode == kerr.ConcurrentTransactions.Code {
			e.pass()
			continue
		}
		wantCode(e.t, r.ErrorCode, nil)
		return coordinator.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
	}
	e.t.Fatalf("%s gets no epoch", id)
	return coordinator.Producer{}
}

func addReq(id string, p coordinator.Producer, verify bool, parts ...int32) *kmsg.AddPartitionsToTxnRequestTransaction {
	r := kmsg.NewAddPartitionsToTxnRequestTransaction()
	r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.VerifyOnly = id, p.ID, p.Epoch, verify
	t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	t.Topic, t.Partitions = "t", parts
	r.Topics = append(r.Topics, t)
	return &r
}

func (e *env) addAsync(version int16, r *kmsg.AddPartitionsToTxnRequestTransaction) *future[kmsg.AddPartitionsToTxnResponseTransaction] {
	f := newFuture[kmsg.AddPartitionsToTxnResponseTransaction](e.t)
	e.c.AddPartitions(version, r, func(a kmsg.AddPartitionsToTxnResponseTransaction) { f.done(&a) })
	return f
}

// add adds partitions of topic t and gives the code of the first.
func (e *env) add(version int16, id string, p coordinator.Producer, parts ...int32) int16 {
	e.t.Helper()
	return e.addAsync(version, addReq(id, p, false, parts...)).wait().Topics[0].Partitions[0].ErrorCode
}

func endReq(version int16, id string, p coordinator.Producer, commit bool) *kmsg.EndTxnRequest {
	r := kmsg.NewPtrEndTxnRequest()
	r.Version, r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = version, id, p.ID, p.Epoch, commit
	return r
}

func (e *env) endAsync(r *kmsg.EndTxnRequest) *future[kmsg.EndTxnResponse] {
	f := newFuture[kmsg.EndTxnResponse](e.t)
	e.c.EndTxn(r, f.done)
	return f
}

func (e *env) end(version int16, id string, p coordinator.Producer, commit bool) *kmsg.EndTxnResponse {
	e.t.Helper()
	return e.endAsync(endReq(version, id, p, commit)).wait()
}

func (e *env) wantState(id, want string) {
	e.t.Helper()
	synctest.Wait()
	if d := e.c.Describe(id); d.ErrorCode != 0 || d.State != want {
		e.t.Fatalf("state is %q (%v), want %s", d.State, kerr.ErrorForCode(d.ErrorCode), want)
	}
}

func wantCode(t *testing.T, got int16, want error) {
	t.Helper()
	var w int16
	var ke *kerr.Error
	if errors.As(want, &ke) {
		w = ke.Code
	}
	if got != w {
		t.Fatalf("error %v, want %v", kerr.ErrorForCode(got), kerr.ErrorForCode(w))
	}
}
