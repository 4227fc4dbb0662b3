package replication

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/partition"
	"penstock/dataplane/peer"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/vfs"
)

var tp0 = protocol.TopicPartition{Topic: "t", Partition: 0}

// failer is what *testing.T and *rapid.T share.
type failer interface {
	Helper()
	Fatalf(string, ...any)
	Errorf(string, ...any)
	Logf(string, ...any)
}

// cluster is three brokers in one process, a network of function calls that
// can be cut, and a controller whose orders reach each broker when the test
// says so.
type cluster struct {
	t        failer
	rng      *rand.Rand
	nodes    []*node
	dialling atomic.Int64 // how long a connection takes to make, a time.Duration
	dialled  atomic.Int64 // connections made
	// wire, if not nil, is how the answer to a fetch comes, and its length.
	wire func(ctx context.Context, req *kmsg.FetchRequest, answer []byte) (io.Reader, int)

	mu       sync.Mutex
	cut      map[[2]int32]bool // from, to
	ctlCut   map[int32]bool    // cannot reach the controller
	leader   int32
	epoch    int32
	isr      []int32
	pepoch   int32
	orders   map[int32][]*kmsg.LeaderAndISRRequest
	epochSeq int64
}

type node struct {
	c        *cluster
	id       int32
	fs       *vfs.Mem
	up       bool
	epoch    int64 // broker epoch
	dir      *commitlog.Dir
	wheel    *purgatory.Wheel
	m        *partition.Manager
	fetchers *Fetchers
	isr      *ISRSender
	topic    partition.TopicConfig
}

func newCluster(t failer, seed int64, topic partition.TopicConfig) *cluster {
	c := &cluster{
		t: t, rng: rand.New(rand.NewSource(seed)), cut: map[[2]int32]bool{}, ctlCut: map[int32]bool{},
		leader: -1, epoch: -1, isr: []int32{1, 2, 3}, orders: map[int32][]*kmsg.LeaderAndISRRequest{},
	}
	for id := int32(1); id <= 3; id++ {
		n := &node{c: c, id: id, fs: vfs.NewMem(), topic: topic}
		c.nodes = append(c.nodes, n)
		n.start()
	}
	return c
}

func (c *cluster) node(id int32) *node { return c.nodes[id-1] }

func (n *node) start() {
	c := n.c
	dir, err := commitlog.OpenDir(n.fs, "/data")
	if err != nil {
		c.t.Fatalf("opening the folder of %d: %v", n.id, err)
	}
	c.mu.Lock()
	c.epochSeq++
	epoch := c.epochSeq
	n.epoch = epoch
	n.dir = dir
	c.mu.Unlock()
	n.wheel = purgatory.NewWheel()
	n.fetchers = NewFetchers(Config{
		BrokerID: n.id, BrokerEpoch: func() int64 { return epoch }, WaitMax: 200 * time.Millisecond, Backoff: 200 * time.Millisecond, RequestTimeout: time.Second,
		Dial: func(_ context.Context, to int32, _ string) (Conn, error) {
			if !c.reachable(n.id, to) {
				return nil, errors.New("no route")
			}
			time.Sleep(time.Duration(c.dialling.Load()))
			c.dialled.Add(1)
			return &fakeConn{c: c, from: n.id, to: to, target: c.node(to).epochNow()}, nil
		},
	})
	n.isr = NewISRSender(ISRConfig{BrokerID: n.id, BrokerEpoch: func() int64 { return epoch }, Send: func(_ context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		return c.alterPartition(n.id, req)
	}})
	m, err := partition.NewManager(context.Background(), partition.Config{
		BrokerID: n.id, BrokerEpoch: func() int64 { return epoch }, FS: n.fs, Dirs: []*commitlog.Dir{dir}, Wheel: n.wheel,
		ISR: n.isr, Fetchers: n.fetchers, ReplicaLagTimeMax: 2 * time.Second,
		Topic: func(string) partition.TopicConfig { return n.topic },
		Alive: func(id int32) bool { return c.isUp(id) },
	})
	if err != nil {
		c.t.Fatalf("starting %d: %v", n.id, err)
	}
	c.mu.Lock()
	n.m, n.up = m, true
	c.mu.Unlock()
}

func (n *node) epochNow() int64 {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return n.epoch
}

// down stops the node: cleanly, or as by a power cut.
func (n *node) down(clean bool) {
	n.c.mu.Lock()
	n.up = false
	n.c.orders[n.id] = nil
	n.c.mu.Unlock()
	after := n.fs
	if !clean {
		after = n.fs.Crash(n.c.rng)
	}
	n.fetchers.Close()
	n.isr.Close()
	err := n.m.Close()
	n.wheel.Close()
	if err2 := n.dir.Close(err == nil); clean && (err != nil || err2 != nil) {
		n.c.t.Errorf("clean stop of %d: %v, %v", n.id, err, err2)
	}
	n.fs = after
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.up {
			n.down(true)
		}
	}
}

func (c *cluster) isUp(id int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.node(id).up
}

// cutOff keeps one node from reaching another.
func (c *cluster) cutOff(from, to int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut[[2]int32{from, to}] = true
}

func (c *cluster) reachable(from, to int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.cut[[2]int32{from, to}] && c.node(to).up && c.node(from).up
}

// elect makes a live in-sync replica the leader and queues the orders. Dead
// ones leave the set, unless they are all that is left.
func (c *cluster) elect(want int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var live []int32
	for _, id := range c.isr {
		if c.node(id).up {
			live = append(live, id)
		}
	}
	c.epoch++
	c.pepoch++
	if len(live) == 0 {
		c.leader = -1
	} else {
		c.isr = live
		c.leader = live[0]
		if slices.Contains(live, want) {
			c.leader = want
		}
	}
	for _, n := range c.nodes {
		if n.up {
			c.orders[n.id] = append(c.orders[n.id], c.orderLocked(n))
		}
	}
}

func (c *cluster) orderLocked(n *node) *kmsg.LeaderAndISRRequest {
	s := kmsg.NewLeaderAndISRRequestTopicPartition()
	s.Leader, s.LeaderEpoch, s.ISR, s.Replicas, s.ZKVersion = c.leader, c.epoch, slices.Clone(c.isr), []int32{1, 2, 3}, c.pepoch
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID = tp0.Topic, protocol.UUID{1}
	ts.PartitionStates = append(ts.PartitionStates, s)
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.BrokerEpoch, req.ControllerEpoch = n.epoch, 1
	req.TopicStates = append(req.TopicStates, ts)
	return req
}

// electUnclean makes a live replica the leader whether it is in sync or not, alone in the set.
func (c *cluster) electUnclean(id int32) {
	c.mu.Lock()
	if c.node(id).up {
		c.isr = []int32{id}
	}
	c.mu.Unlock()
	c.elect(id)
}

// deliver hands a node its oldest order; false if there is none.
func (c *cluster) deliver(id int32) bool {
	c.mu.Lock()
	n := c.node(id)
	if !n.up || len(c.orders[id]) == 0 {
		c.mu.Unlock()
		return false
	}
	req, m := c.orders[id][0], n.m
	c.orders[id] = c.orders[id][1:]
	c.mu.Unlock()
	m.LeaderAndISR(req)
	return true
}

func (c *cluster) deliverAll() {
	for _, n := range c.nodes {
		for c.deliver(n.id) {
		}
	}
}

// alterPartition is the controller's side of in-sync changes.
func (c *cluster) alterPartition(from int32, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctlCut[from] {
		return nil, errors.New("no controller")
	}
	resp := agree(req)
	if req.BrokerEpoch != c.node(from).epoch {
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return resp, nil
	}
	p, a := req.Topics[0].Partitions[0], &resp.Topics[0].Partitions[0]
	switch {
	case p.LeaderEpoch != c.epoch || c.leader != from:
		a.ErrorCode = kerr.FencedLeaderEpoch.Code
	case p.PartitionEpoch != c.pepoch:
		a.ErrorCode = kerr.InvalidUpdateVersion.Code
	case slices.ContainsFunc(p.NewEpochISR, func(m kmsg.AlterPartitionRequestTopicPartitionNewEpochISR) bool {
		n := c.node(m.BrokerID)
		return !n.up || m.BrokerEpoch != -1 && m.BrokerEpoch != n.epoch
	}):
		a.ErrorCode = kerr.IneligibleReplica.Code
	default:
		c.isr = slices.Clone(p.NewISR)
		c.pepoch++
		a.PartitionEpoch, a.LeaderID = c.pepoch, c.leader
	}
	return resp, nil
}

// fakeConn turns requests into calls of the target's Manager.
type fakeConn struct {
	c        *cluster
	from, to int32
	target   int64 // broker epoch when dialled: a restart breaks the connection
	session  map[protocol.TopicPartition]kmsg.FetchRequestTopicPartition
	epoch    int32
	told     map[protocol.TopicPartition][2]int64 // high watermark and log start
	busy     bool
}

func (f *fakeConn) Close() error { return nil }

func (f *fakeConn) Newest(_ context.Context, _, ours int16) (int16, error) { return ours, nil }

func (f *fakeConn) manager() (*partition.Manager, error) {
	if !f.c.reachable(f.from, f.to) || f.c.node(f.to).epochNow() != f.target {
		return nil, errors.New("connection lost")
	}
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.c.node(f.to).m, nil
}

func (f *fakeConn) Do(_ context.Context, r kmsg.Request) (kmsg.Response, error) {
	f.use()
	m, err := f.manager()
	if err != nil {
		return nil, err
	}
	req := r.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	p := req.Topics[0].Partitions[0]
	res, err := m.ListOffsets(protocol.TopicPartition{Topic: req.Topics[0].Topic, Partition: p.Partition}, p.Timestamp, false, p.CurrentLeaderEpoch, req.ReplicaID)
	rp := kmsg.NewListOffsetsResponseTopicPartition()
	rp.Partition, rp.Offset, rp.ErrorCode = p.Partition, res.Offset, protocol.Code(err)
	resp.Topics = append(resp.Topics, kmsg.ListOffsetsResponseTopic{Topic: req.Topics[0].Topic, Partitions: []kmsg.ListOffsetsResponseTopicPartition{rp}})
	return resp, nil
}

func (f *fakeConn) DoStream(ctx context.Context, r kmsg.Request, read func(*peer.Body) error) error {
	f.use()
	f.busy = true
	answer, err := f.fetch(ctx, r)
	if err != nil {
		return err // busy for good: it is broken
	}
	var src io.Reader = bytes.NewReader(answer)
	size := len(answer)
	if f.c.wire != nil {
		src, size = f.c.wire(ctx, r.(*kmsg.FetchRequest), answer)
	}
	err = stream(src, size, read)
	f.busy = err != nil
	return err
}

func (f *fakeConn) use() {
	if f.busy {
		f.c.t.Errorf("connection from %d to %d is used while an answer comes, or after it broke", f.from, f.to)
	}
}

// stream is what peer.Conn does with an answer.
func stream(r io.Reader, size int, read func(*peer.Body) error) error {
	b := peer.NewBody(r, size, buffers)
	defer b.Close()
	if err := read(b); err != nil {
		return err
	}
	if n := b.Left(); n > 0 {
		return fmt.Errorf("%d bytes left", n)
	}
	return b.Err()
}

var buffers = protocol.NewPool()

func (f *fakeConn) fetch(ctx context.Context, r kmsg.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	m, err := f.manager()
	if err != nil {
		return nil, err
	}
	req := r.(*kmsg.FetchRequest)
	if req.SessionEpoch == 0 {
		f.session = map[protocol.TopicPartition]kmsg.FetchRequestTopicPartition{}
		f.told = map[protocol.TopicPartition][2]int64{}
		f.epoch = 0
	}
	if req.SessionEpoch != f.epoch {
		return nil, fmt.Errorf("session epoch %d, want %d", req.SessionEpoch, f.epoch)
	}
	f.epoch++
	for _, t := range req.ForgottenTopics {
		delete(f.session, protocol.TopicPartition{Topic: t.Topic, Partition: t.Partitions[0]})
		delete(f.told, protocol.TopicPartition{Topic: t.Topic, Partition: t.Partitions[0]})
	}
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			f.session[protocol.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p
		}
	}
	in := partition.FetchRequest{ReplicaID: req.ReplicaState.ID, ReplicaEpoch: req.ReplicaState.Epoch, MaxWait: time.Duration(req.MaxWaitMillis) * time.Millisecond, MinBytes: int(req.MinBytes), MaxBytes: int(req.MaxBytes)}
	for tp, p := range f.session {
		in.Parts = append(in.Parts, partition.FetchPart{
			TP: tp, TopicID: protocol.UUID{1}, Offset: p.FetchOffset, LogStartOffset: p.LogStartOffset,
			CurrentLeaderEpoch: p.CurrentLeaderEpoch, LastFetchedEpoch: p.LastFetchedEpoch, MaxBytes: int(p.PartitionMaxBytes),
		})
	}
	slices.SortFunc(in.Parts, func(a, b partition.FetchPart) int { return cmp.Compare(a.TP.Partition, b.TP.Partition) })
	ch := make(chan *kmsg.FetchResponse, 1)
	m.Fetch(in, func(rs []partition.FetchResult) { ch <- fetchResponse(req.Version, rs) })
	var resp *kmsg.FetchResponse
	select {
	case resp = <-ch:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, f.hasBeenTold)
	time.Sleep(time.Millisecond) // the way back
	if _, err := f.manager(); err != nil {
		return nil, err // lost with the request already served
	}
	return resp.AppendTo(nil), nil
}

// hasBeenTold is so of a partition without news: a session keeps silent about it.
func (f *fakeConn) hasBeenTold(t kmsg.FetchResponseTopic) bool {
	p := &t.Partitions[0]
	tp, now := protocol.TopicPartition{Topic: t.Topic, Partition: p.Partition}, [2]int64{p.HighWatermark, p.LogStartOffset}
	if p.ErrorCode != 0 || p.DivergingEpoch.Epoch >= 0 {
		delete(f.told, tp)
		return false
	}
	old, ok := f.told[tp]
	f.told[tp] = now
	return ok && old == now && len(p.RecordBatches) == 0
}

func fetchResponse(version int16, rs []partition.FetchResult) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.SessionID = version, 1
	for i := range rs {
		r := &rs[i]
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = r.TP.Topic, protocol.UUID{1}
		p := kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.ErrorCode = r.TP.Partition, protocol.Code(r.Err)
		p.HighWatermark, p.LogStartOffset = r.HighWatermark, r.LogStartOffset
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = r.DivergingEpoch, r.DivergingEndOffset
		if r.Slice.Len > 0 {
			p.RecordBatches = make([]byte, r.Slice.Len)
			n, err := r.Slice.ReadInto(p.RecordBatches)
			if err != nil {
				n = 0
			}
			p.RecordBatches = p.RecordBatches[:n]
		}
		r.Slice.Close()
		t.Partitions = append(t.Partitions, p)
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
