package group

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/coordinator"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memLog is Storage in memory. Appends are answered on other goroutines, 1 ms
// later, unless held or failing.
type memLog struct {
	mu      sync.Mutex
	n       int32
	parts   map[int32][]coordinator.Logged
	fail    error         // refuse appends with this
	doubt   error         // append what is of a transaction, and say this all the same
	hold    bool          // keep answers back
	held    []func(error) // answers kept back, in the order of the appends
	gate    chan struct{} // if set, Read waits for it
	readErr error         // one Read fails with this
	reads   int
	logged  []coordinator.Logged // read before everything else
	onApp   func()               // called by Append before it does anything
}

func newMemLog(n int32) *memLog { return &memLog{n: n, parts: make(map[int32][]coordinator.Logged)} }

func (l *memLog) Partitions() int32 { return l.n }

func (l *memLog) Append(p int32, b coordinator.Batch, done func(error)) {
	l.mu.Lock()
	onApp := l.onApp
	l.mu.Unlock()
	if onApp != nil {
		onApp()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		err := l.fail
		go done(err)
		return
	}
	for _, r := range b.Records {
		l.write(p, coordinator.Logged{Record: r, Producer: b.Producer.ID})
	}
	if l.hold {
		l.held = append(l.held, done)
		return
	}
	var err error
	if b.Producer != coordinator.NoProducer {
		err = l.doubt
	}
	time.AfterFunc(time.Millisecond, func() { done(err) })
}

// write puts one thing at the end; the mutex is held.
func (l *memLog) write(p int32, x coordinator.Logged) {
	x.Offset = int64(len(l.parts[p]))
	l.parts[p] = append(l.parts[p], x)
}

// end writes the marker that ends a producer's transaction.
func (l *memLog) end(p int32, producer int64, how coordinator.TransactionEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(p, coordinator.Logged{Producer: producer, End: how})
}

func (l *memLog) Read(p int32, fn func(coordinator.Logged) error) error {
	l.mu.Lock()
	l.reads++
	logged := l.logged
	gate, recs, err := l.gate, l.parts[p][:len(l.parts[p]):len(l.parts[p])], l.readErr
	l.readErr = nil
	l.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if err != nil {
		return err
	}
	for _, x := range logged {
		if err := fn(x); err != nil {
			return err
		}
	}
	for _, r := range recs {
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (l *memLog) set(f func(*memLog)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (e *env) reads() (n int) {
	e.log.set(func(l *memLog) { n = l.reads })
	return n
}

// release answers the held appends, last first: the order of answers must not matter.
func (l *memLog) release(err error) {
	l.mu.Lock()
	held := l.held
	l.held, l.hold = nil, false
	l.mu.Unlock()
	for i := len(held) - 1; i >= 0; i-- {
		held[i](err)
	}
}

// live is the last record of each key that is no tombstone.
func (l *memLog) live(p int32) map[string][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := make(map[string][]byte)
	for _, r := range l.parts[p] {
		if r.End != coordinator.NotAnEnd {
			continue
		}
		if r.Value == nil {
			delete(m, string(r.Key))
		} else {
			m[string(r.Key)] = r.Value
		}
	}
	return m
}

// env is a coordinator that leads everything, in a synctest bubble.
type env struct {
	t   *testing.T
	log *memLog
	c   *Coordinator
}

func run(t *testing.T, cfg Config, f func(*env)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &env{t: t, log: newMemLog(1)}
		e.c = New(cfg, e.log, SystemTimers{})
		defer func() {
			e.c.Close()
			time.Sleep(time.Second) // answers on their way
		}()
		e.c.OnLeader(0, 1)
		synctest.Wait()
		f(e)
	})
}

// move takes the partition away and gives it to a new coordinator.
func (e *env) move() {
	e.t.Helper()
	e.c.Close()
	e.c = New(e.c.cfg, e.log, SystemTimers{})
	e.c.OnLeader(0, 2)
	synctest.Wait()
}

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

// wait lets time pass until the answer is there; at most a day.
func (f *future[T]) wait() *T {
	f.t.Helper()
	for d := time.Millisecond; d < 24*time.Hour; d *= 2 {
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

func joinReq(version int16, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version, r.Group, r.MemberID = version, "g", member
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10_000, 60_000
	r.ProtocolType = "consumer"
	r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte("m-" + member)}}
	return r
}

func (e *env) joinAsync(r *kmsg.JoinGroupRequest) *future[kmsg.JoinGroupResponse] {
	f := newFuture[kmsg.JoinGroupResponse](e.t)
	e.c.Join(ClientInfo{"client", "/127.0.0.1"}, r, f.done)
	return f
}

func (e *env) join(r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	e.t.Helper()
	return e.joinAsync(r).wait()
}

// newMember gets an id and joins with it.
func (e *env) newMember(change ...func(*kmsg.JoinGroupRequest)) (string, *future[kmsg.JoinGroupResponse]) {
	e.t.Helper()
	r := joinReq(7, "")
	for _, f := range change {
		f(r)
	}
	resp := e.join(r)
	wantCode(e.t, resp.ErrorCode, kerr.MemberIDRequired)
	r.MemberID = resp.MemberID
	return r.MemberID, e.joinAsync(r)
}

func (e *env) syncAsync(member string, generation int32, assign map[string]string) *future[kmsg.SyncGroupResponse] {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", member, generation
	for m, a := range assign {
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m, MemberAssignment: []byte(a)})
	}
	f := newFuture[kmsg.SyncGroupResponse](e.t)
	e.c.Sync(r, f.done)
	return f
}

func (e *env) heartbeat(member string, generation int32) int16 {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 3, "g", member, generation
	f := newFuture[kmsg.HeartbeatResponse](e.t)
	e.c.Heartbeat(r, f.done)
	return f.poll().ErrorCode
}

func (e *env) leave(members ...kmsg.LeaveGroupRequestMember) *kmsg.LeaveGroupResponse {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group, r.Members = 4, "g", members
	f := newFuture[kmsg.LeaveGroupResponse](e.t)
	e.c.Leave(r, f.done)
	return f.poll()
}

func commitReq(member string, generation int32, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.Generation = 8, "g", member, generation
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{
		Partition: partition, Offset: offset, LeaderEpoch: 5, Metadata: new("note"),
	}}}}
	return r
}

func (e *env) commitAsync(r *kmsg.OffsetCommitRequest) *future[kmsg.OffsetCommitResponse] {
	f := newFuture[kmsg.OffsetCommitResponse](e.t)
	e.c.Commit(r, f.done)
	return f
}

func (e *env) commit(member string, generation int32, topic string, partition int32, offset int64) int16 {
	e.t.Helper()
	return e.commitAsync(commitReq(member, generation, topic, partition, offset)).wait().Topics[0].Partitions[0].ErrorCode
}

// fetch asks for partitions of one topic; no topic asks for all.
func (e *env) fetch(group, topic string, partitions ...int32) kmsg.OffsetFetchResponseGroup {
	r := kmsg.NewOffsetFetchRequestGroup()
	r.Group = group
	if topic != "" {
		r.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: partitions}}
	}
	synctest.Wait()
	return e.c.FetchGroup(r, false)
}

// committed is what OffsetFetch says of one partition, -1000 for an error.
func (e *env) committed(topic string, partition int32) int64 {
	e.t.Helper()
	resp := e.fetch("g", topic, partition)
	if resp.ErrorCode != 0 {
		return -1000
	}
	return resp.Topics[0].Partitions[0].Offset
}

func (e *env) describe() kmsg.DescribeGroupsResponseGroup {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version, r.Groups = 5, []string{"g"}
	f := newFuture[kmsg.DescribeGroupsResponse](e.t)
	e.c.Describe(r, f.done)
	return f.poll().Groups[0]
}

func (e *env) wantState(want string) {
	e.t.Helper()
	if got := e.describe().State; got != want {
		e.t.Fatalf("state is %s, want %s", got, want)
	}
}

func (e *env) deleteAsync(groups ...string) *future[kmsg.DeleteGroupsResponse] {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Version, r.Groups = 2, groups
	f := newFuture[kmsg.DeleteGroupsResponse](e.t)
	e.c.Delete(r, f.done)
	return f
}

// stable makes a Stable group of n members, the first of them the leader, and
// returns their ids and the generation.
func (e *env) stable(n int, change ...func(*kmsg.JoinGroupRequest)) ([]string, int32) {
	e.t.Helper()
	var ids []string
	var joins []*future[kmsg.JoinGroupResponse]
	for range n {
		// All have their id before the first joins: one rebalance.
		r := joinReq(7, "")
		for _, f := range change {
			f(r)
		}
		ids = append(ids, e.join(r).MemberID)
	}
	for _, id := range ids {
		r := joinReq(7, id)
		for _, f := range change {
			f(r)
		}
		joins = append(joins, e.joinAsync(r))
	}
	assign := make(map[string]string)
	for _, id := range ids {
		assign[id] = "a-" + id
	}
	generation := joins[0].wait().Generation
	for _, j := range joins {
		resp := j.wait()
		wantCode(e.t, resp.ErrorCode, nil)
		if resp.LeaderID != ids[0] {
			e.t.Fatalf("leader is %q, want %q", resp.LeaderID, ids[0])
		}
	}
	var syncs []*future[kmsg.SyncGroupResponse]
	for _, id := range ids[1:] {
		syncs = append(syncs, e.syncAsync(id, generation, nil))
	}
	syncs = append(syncs, e.syncAsync(ids[0], generation, assign))
	for _, s := range syncs {
		wantCode(e.t, s.wait().ErrorCode, nil)
	}
	e.wantState("Stable")
	return ids, generation
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
