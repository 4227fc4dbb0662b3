package controller

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"penstock/dataplane/coordination"
	"penstock/dataplane/coordination/zktest"
	"penstock/dataplane/metadata"
)

func TestMain(m *testing.M) { zktest.Main(m, func() error { return goleak.Find() }) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// cluster is some scripted brokers around a real ZooKeeper. Any of them may be
// controller.
type cluster struct {
	t    *testing.T
	path string
	ctx  context.Context
	zk   *coordination.Client // an onlooker

	mu      sync.Mutex
	brokers map[int32]*fake
	changed chan struct{}
}

// fake is a broker that remembers what controllers told it.
type fake struct {
	c     *cluster
	id    int32
	rack  string
	zk    *coordination.Client
	proxy *zktest.Proxy
	ctl   *Controller
	cache *metadata.Cache

	// gate, if set before there is a controller, is asked before each request.
	gate func(context.Context, kmsg.Request) error

	// guarded by c.mu
	epoch   int64
	down    bool               // does not answer
	refuse  map[int16]int16    // request key, error code: answers that
	lost    map[topicPart]bool // lie in a log folder that has failed
	leads   map[topicPart]kmsg.LeaderAndISRRequestTopicPartition
	deleted map[topicPart]int
	stopped map[topicPart]int
	log     []string // kinds of requests, in order
	first   int      // topics in its image after the first update
	ctlEp   int32
}

func newCluster(t *testing.T, ids ...int32) *cluster {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	t.Cleanup(cancel)
	c := &cluster{t: t, path: zktest.Path(), ctx: ctx, brokers: map[int32]*fake{}, changed: make(chan struct{})}
	c.zk = c.connect(zktest.Shared(t).Addr())
	must(t, c.zk.EnsureLayout(ctx))
	for _, id := range ids {
		c.start(id)
	}
	return c
}

func (c *cluster) connect(addr string) *coordination.Client {
	zk, err := coordination.Connect(c.ctx, coordination.Config{Connect: addr + c.path, SessionTimeout: 60 * time.Second})
	must(c.t, err)
	c.t.Cleanup(zk.Close)
	return zk
}

// start makes a broker; one of that id that was there has lost all it knew.
func (c *cluster) start(id int32) *fake {
	c.t.Helper()
	f := &fake{c: c, id: id, cache: metadata.NewCache("test"), refuse: map[int16]int16{},
		leads: map[topicPart]kmsg.LeaderAndISRRequestTopicPartition{}, deleted: map[topicPart]int{}, stopped: map[topicPart]int{}}
	f.proxy = zktest.NewProxy(c.t, zktest.Shared(c.t))
	f.zk = c.connect(f.proxy.Addr())
	c.mu.Lock()
	c.brokers[id] = f
	c.mu.Unlock()
	must(c.t, f.register(c.ctx))
	f.zk.OnSession(f.register)
	return f
}

func (f *fake) register(ctx context.Context) error {
	epoch, err := f.zk.RegisterBroker(ctx, coordination.Broker{ID: f.id, Rack: f.rack, JMXPort: -1, Endpoints: []coordination.Endpoint{
		{Listener: "INTERNAL", SecurityProtocol: "SASL_PLAINTEXT", Host: "127.0.0.1", Port: 10000 + f.id}}})
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.epoch = epoch
	return err
}

// control lets the broker take part in the election.
func (f *fake) control(change ...func(*Config)) *fake {
	f.c.t.Helper()
	cfg := Config{BrokerID: f.id, ZK: f.zk, Dial: f.c.dial, Listener: "INTERNAL"}
	if os.Getenv("CONTROLLER_LOG") != "" {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("on", f.id)
	}
	for _, fn := range change {
		fn(&cfg)
	}
	ctl, err := New(cfg)
	must(f.c.t, err)
	f.ctl = ctl
	f.c.t.Cleanup(ctl.Stop)
	must(f.c.t, ctl.Start(f.c.ctx))
	return f
}

// kill ends the broker's session as a crash and a timeout would.
func (f *fake) kill() {
	f.c.t.Helper()
	f.c.mu.Lock()
	f.down = true
	f.c.mu.Unlock()
	f.proxy.Cut()
	f.proxy.Expire(f.c.t)
}

func (c *cluster) dial(_ context.Context, b coordination.Broker) (Peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.brokers[b.ID]
	if f == nil || f.down {
		return (*fake)(nil), errors.New("connection refused") // as a careless dialer would
	}
	return f, nil
}

func (f *fake) Close() error { _ = f.id; return nil }

// Do answers like a broker, from the request's bytes.
func (f *fake) Do(ctx context.Context, sent kmsg.Request) (kmsg.Response, error) {
	if f.gate != nil {
		if err := f.gate(ctx, sent); err != nil {
			return nil, err
		}
	}
	req := kmsg.RequestForKey(sent.Key())
	req.SetVersion(sent.GetVersion())
	if err := req.ReadFrom(sent.AppendTo(nil)); err != nil {
		return nil, err
	}
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	defer func() {
		close(c.changed)
		c.changed = make(chan struct{})
	}()
	if f.down {
		return nil, errors.New("connection reset")
	}
	resp := req.ResponseKind()
	switch r := req.(type) {
	case *kmsg.LeaderAndISRRequest:
		out := resp.(*kmsg.LeaderAndISRResponse)
		if out.ErrorCode = f.fence(r.ControllerEpoch, r.BrokerEpoch, "LeaderAndISR"); out.ErrorCode != 0 {
			break
		}
		for _, ts := range r.TopicStates {
			ot := kmsg.NewLeaderAndISRResponseTopic()
			ot.TopicID = ts.TopicID
			for _, ps := range ts.PartitionStates {
				at := topicPart{Topic: ts.Topic, Partition: ps.Partition}
				op := kmsg.NewLeaderAndISRResponseTopicPartition()
				op.Partition = ps.Partition
				old, ok := f.leads[at]
				switch {
				case f.lost[at]:
					op.ErrorCode = kerr.KafkaStorageError.Code
				case ok && ps.LeaderEpoch <= old.LeaderEpoch:
					op.ErrorCode = kerr.StaleControllerEpoch.Code
				default:
					f.leads[at] = ps
				}
				ot.Partitions = append(ot.Partitions, op)
			}
			out.Topics = append(out.Topics, ot)
		}
	case *kmsg.UpdateMetadataRequest:
		out := resp.(*kmsg.UpdateMetadataResponse)
		if out.ErrorCode = f.fence(r.ControllerEpoch, r.BrokerEpoch, "UpdateMetadata"); out.ErrorCode == 0 {
			first := f.cache.Image().ControllerEpoch == 0
			if _, err := f.cache.Apply(r); err != nil {
				return nil, err
			}
			if first {
				f.first = len(slices.Collect(f.cache.Image().Topics()))
			}
		}
	case *kmsg.StopReplicaRequest:
		out := resp.(*kmsg.StopReplicaResponse)
		if out.ErrorCode = f.fence(r.ControllerEpoch, r.BrokerEpoch, "StopReplica"); out.ErrorCode != 0 {
			break
		}
		for _, ts := range r.Topics {
			for _, ps := range ts.PartitionStates {
				at := topicPart{Topic: ts.Topic, Partition: ps.Partition}
				po := kmsg.NewStopReplicaResponsePartition()
				po.Topic, po.Partition, po.ErrorCode = at.Topic, at.Partition, f.refuse[5]
				out.Partitions = append(out.Partitions, po)
				if po.ErrorCode != 0 {
					continue
				}
				f.stopped[at]++
				if ps.Delete {
					f.deleted[at]++
					delete(f.leads, at)
				}
			}
		}
	default:
		return nil, errors.New("unexpected request")
	}
	return resp, nil
}

func (f *fake) fence(ctlEpoch int32, brokerEpoch int64, kind string) int16 {
	switch {
	case ctlEpoch < f.ctlEp:
		return kerr.StaleControllerEpoch.Code
	case brokerEpoch != -1 && brokerEpoch < f.epoch:
		return kerr.StaleBrokerEpoch.Code
	}
	f.ctlEp = ctlEpoch
	f.log = append(f.log, kind)
	return 0
}

// await waits until cond holds; it is looked at after each request to a broker,
// and now and then, for what happens only in ZooKeeper.
func (c *cluster) await(what string, cond func() bool) {
	c.t.Helper()
	for {
		c.mu.Lock()
		ok, ch := cond(), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-ch:
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
			c.t.Fatalf("still waiting: %s", what)
		}
	}
}

// locked reads the brokers' records.
func (c *cluster) locked(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

func (c *cluster) awaitController(id int32) *Controller {
	c.t.Helper()
	c.await("controller", func() bool { f := c.brokers[id]; return f.ctl != nil && f.ctl.Active() })
	return c.brokers[id].ctl
}

// create makes a topic of that assignment and waits until all know it.
func (c *cluster) create(ctl *Controller, name string, replicas ...[]int32) {
	c.t.Helper()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, -1, -1
	for i, rs := range replicas {
		ra := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		ra.Partition, ra.Replicas = int32(i), rs
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, ra)
	}
	c.createTopic(ctl, rt)
	must(c.t, ctl.AwaitPropagated(c.ctx, name))
}

func (c *cluster) createTopic(ctl *Controller, rt kmsg.CreateTopicsRequestTopic) kmsg.CreateTopicsResponseTopic {
	c.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.Topics = 7, []kmsg.CreateTopicsRequestTopic{rt}
	resp := ctl.CreateTopics(c.ctx, req)
	if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != 0 {
		c.t.Fatalf("create %s: %v", rt.Topic, text(resp.Topics[0].ErrorCode, resp.Topics[0].ErrorMessage))
	}
	return resp.Topics[0]
}

func text(code int16, msg *string) string {
	s := "none"
	if err := kerr.ErrorForCode(code); err != nil {
		s = err.Error()
	}
	if msg != nil {
		s += ": " + *msg
	}
	return s
}

func (c *cluster) state(topic string, partition int32) coordination.PartitionState {
	c.t.Helper()
	s, err := c.zk.PartitionState(c.ctx, topicPart{Topic: topic, Partition: partition})
	must(c.t, err)
	return s
}
