package txn

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"penstock/dataplane/coordinator"
	"penstock/dataplane/protocol"
)

// world is a cluster of one partition of __transaction_state, whose leader fails at any
// write, and of some partitions that take records and markers as Kafka's do. What is
// above committed is lost in part or whole when the leader fails; a leader that has lost
// its office may not know it for a while.
type world struct {
	mu        sync.Mutex
	t         *rapid.T
	recs      []coordinator.Record
	committed int
	gen       int32 // of the leadership
	mode      writeMode
	waiting   []pendingWrite
	nextID    int64
	parts     [3]modelPartition
	lossy     bool  // answers to markers are lost
	cut       bool  // no marker comes through
	refuse    int32 // the partition that takes no marker; -1: none
}

type writeMode int

const (
	writesCommit  writeMode = iota
	writesHang              // in the log, and nothing more
	writesTimeOut           // in the log, and answered by an error
	writesFail              // not in the log
	writeModes
)

type pendingWrite struct {
	gen  int32
	upTo int
	done func(error)
}

// modelPartition is a log as far as transactions go.
type modelPartition struct {
	epoch       map[int64]int16
	coordinator map[int64]int32
	open        map[int64][]*modelWrite
}

type modelWrite struct {
	txn     *modelTxn
	outcome string // once there is one
}

// modelTxn is one transaction as its client sees it.
type modelTxn struct {
	name   string
	writes []*modelWrite
	acked  string // how the client was told that it ended
}

// office is the log under one leadership.
type office struct {
	w   *world
	gen int32
}

func (o office) Partitions() int32 { return 1 }

func (o office) Append(_ int32, b coordinator.Batch, done func(error)) {
	w := o.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if o.gen != w.gen {
		go done(kerr.NotLeaderForPartition)
		return
	}
	if w.mode == writesFail {
		go done(kerr.NotEnoughReplicas)
		return
	}
	w.recs = append(w.recs, b.Records...)
	upTo := len(w.recs)
	switch w.mode {
	case writesHang:
		w.waiting = append(w.waiting, pendingWrite{o.gen, upTo, done})
	case writesTimeOut:
		time.AfterFunc(3*time.Millisecond, func() { done(kerr.RequestTimedOut) })
	default:
		time.AfterFunc(time.Millisecond, func() {
			if w.commit(o.gen, upTo) {
				done(nil)
			} else {
				done(kerr.NotLeaderForPartition)
			}
		})
	}
}

// commit raises the watermark, unless the leadership is over.
func (w *world) commit(gen int32, upTo int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if gen != w.gen {
		return false
	}
	w.committed = max(w.committed, upTo)
	return true
}

func (o office) Read(_ int32, fn func(coordinator.Logged) error) error {
	o.w.mu.Lock()
	recs := append([]coordinator.Record(nil), o.w.recs...)
	stale := o.gen != o.w.gen
	o.w.mu.Unlock()
	if stale {
		return kerr.NotLeaderForPartition
	}
	for _, r := range recs {
		if err := fn(coordinator.Logged{Record: r, Producer: coordinator.NoTransaction}); err != nil {
			return err
		}
	}
	return nil
}

func (o office) settle(_ int32, lost <-chan struct{}) error {
	o.w.mu.Lock()
	end := len(o.w.recs)
	o.w.mu.Unlock()
	for !over(lost) {
		o.w.mu.Lock()
		done, stale := o.w.committed >= end, o.gen != o.w.gen
		o.w.mu.Unlock()
		switch {
		case stale:
			return kerr.NotLeaderForPartition
		case done:
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (w *world) Leader(tp protocol.TopicPartition) (int32, bool) { return tp.Partition % 2, true }

func (w *world) WriteMarkers(_ context.Context, _ int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	time.Sleep(time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return nil, kerr.RequestTimedOut
	}
	resp := kmsg.NewPtrWriteTxnMarkersResponse()
	for _, m := range req.Markers {
		rm := kmsg.NewWriteTxnMarkersResponseMarker()
		rm.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			rt := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			rt.Topic = t.Topic
			for _, n := range t.Partitions {
				rp := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				err := error(kerr.NotEnoughReplicas)
				if n != w.refuse {
					err = w.mark(&w.parts[n], &m)
				}
				rp.Partition, rp.ErrorCode = n, protocol.Code(err)
				rt.Partitions = append(rt.Partitions, rp)
			}
			rm.Topics = append(rm.Topics, rt)
		}
		resp.Markers = append(resp.Markers, rm)
	}
	if w.lossy {
		return nil, kerr.RequestTimedOut
	}
	return resp, nil
}

// mark ends the producer's transaction in a partition.
func (w *world) mark(p *modelPartition, m *kmsg.WriteTxnMarkersRequestMarker) error {
	w.decided(m)
	switch {
	case m.ProducerEpoch < p.epoch[m.ProducerID]:
		if m.CoordinatorEpoch >= p.coordinator[m.ProducerID] {
			w.t.Errorf("a marker of producer %d with epoch %d, where %d was seen, from the newest coordinator", m.ProducerID, m.ProducerEpoch, p.epoch[m.ProducerID])
		}
		return kerr.InvalidProducerEpoch
	case m.CoordinatorEpoch < p.coordinator[m.ProducerID]:
		return kerr.TransactionCoordinatorFenced
	}
	p.epoch[m.ProducerID], p.coordinator[m.ProducerID] = m.ProducerEpoch, m.CoordinatorEpoch
	outcome := "abort"
	if m.Committed {
		outcome = "commit"
	}
	for _, x := range p.open[m.ProducerID] {
		x.outcome = outcome
	}
	delete(p.open, m.ProducerID)
	return nil
}

// decided checks that what a marker says stands in the log, committed.
func (w *world) decided(m *kmsg.WriteTxnMarkersRequestMarker) {
	want := statePrepareAbort
	if m.Committed {
		want = statePrepareCommit
	}
	for _, r := range w.recs[:w.committed] {
		if _, v, err := decode(r); err == nil && v != nil && v.state == want && v.producerID == m.ProducerID && v.epoch == m.ProducerEpoch {
			return
		}
	}
	w.t.Errorf("a marker %v of producer %d/%d, which is nowhere decided", want, m.ProducerID, m.ProducerEpoch)
}

// elect makes a new leader, who finds keep records.
func (w *world) elect(keep int) int32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.recs = w.recs[:keep:keep]
	w.gen++
	for _, p := range w.waiting {
		go p.done(kerr.NotLeaderForPartition)
	}
	w.waiting = nil
	return w.gen
}

// heal lets writes be committed again, and what hangs.
func (w *world) heal() {
	w.mu.Lock()
	waiting := w.waiting
	w.waiting, w.mode, w.cut, w.lossy, w.refuse = nil, writesCommit, false, false, -1
	w.committed = len(w.recs)
	w.mu.Unlock()
	for _, p := range waiting {
		p.done(nil)
	}
}

// client is a producer of one transactional id.
type client struct {
	id      string
	version int16 // of EndTxn: 4 is the first protocol, 5 the second
	p       coordinator.Producer
	txn     *modelTxn
	txns    []*modelTxn
	highest map[int64]int16 // epochs that the id was given, by producer id
}

type clusterModel struct {
	w       *world
	c       *Coordinator
	zombies []*Coordinator
	clients []*client
}

func (m *clusterModel) start(gen int32) {
	o := office{m.w, gen}
	m.c = New(Config{
		Version: func() int16 { return 2 }, Peers: m.w, Settle: o.settle, Patience: 5 * time.Millisecond,
		NextProducerID: func(context.Context) (int64, error) {
			m.w.mu.Lock()
			defer m.w.mu.Unlock()
			m.w.nextID++
			return m.w.nextID, nil
		},
	}, o)
	m.c.OnLeader(0, gen)
}

// call waits a while for an answer; none is as good as an error.
func call[T any](ask func(done func(*T))) *T {
	got := make(chan *T, 1)
	ask(func(v *T) { got <- v })
	select {
	case v := <-got:
		return v
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}

func (m *clusterModel) init(t *rapid.T, c *client) {
	r := initReq(c.id)
	resp := call(func(done func(*kmsg.InitProducerIDResponse)) { m.c.InitProducerID(r, done) })
	if resp == nil || resp.ErrorCode != 0 {
		return
	}
	c.take(t, resp.ProducerID, resp.ProducerEpoch)
	c.txn = nil
}

// take is the producer id and epoch that an answer gives.
func (c *client) take(t *rapid.T, id int64, epoch int16) {
	if was, ok := c.highest[id]; ok && epoch <= was {
		t.Fatalf("%s was given epoch %d of producer %d, after %d", c.id, epoch, id, was)
	}
	c.highest[id] = epoch
	c.p = coordinator.Producer{ID: id, Epoch: epoch}
}

// write adds a partition and writes to it, as its leader lets it.
func (m *clusterModel) write(c *client, n int32) {
	if c.p.Epoch < 0 {
		return
	}
	version := int16(3)
	if c.version == 5 {
		version = 5
	}
	code := func(version int16, verify bool) int16 {
		resp := call(func(done func(*kmsg.AddPartitionsToTxnResponseTransaction)) {
			m.c.AddPartitions(version, addReq(c.id, c.p, verify, n), func(a kmsg.AddPartitionsToTxnResponseTransaction) { done(&a) })
		})
		if resp == nil {
			return -1
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	if code(version, false) != 0 {
		return
	}
	m.w.mu.Lock()
	open := len(m.w.parts[n].open[c.p.ID]) > 0
	m.w.mu.Unlock()
	if version == 3 && !open && code(4, true) != 0 {
		return
	}
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	p := &m.w.parts[n]
	if c.p.Epoch < p.epoch[c.p.ID] {
		return
	}
	p.epoch[c.p.ID] = c.p.Epoch
	if c.txn == nil {
		c.txn = &modelTxn{name: fmt.Sprintf("%s-%d", c.id, len(c.txns))}
		c.txns = append(c.txns, c.txn)
	}
	x := &modelWrite{txn: c.txn}
	c.txn.writes = append(c.txn.writes, x)
	p.open[c.p.ID] = append(p.open[c.p.ID], x)
}

// end is asked for again and again until it is answered one way or the other.
func (m *clusterModel) end(t *rapid.T, c *client, commit bool) {
	if c.p.Epoch < 0 || c.txn == nil {
		return
	}
	r := endReq(c.version, c.id, c.p, commit)
	for range 5 {
		resp := call(func(done func(*kmsg.EndTxnResponse)) { m.c.EndTxn(r, done) })
		switch {
		case resp == nil, kerr.IsRetriable(kerr.ErrorForCode(resp.ErrorCode)):
			time.Sleep(time.Millisecond)
			continue
		case resp.ErrorCode == 0:
			c.txn.acked = map[bool]string{true: "commit", false: "abort"}[commit]
			if c.version == 5 {
				c.take(t, resp.ProducerID, resp.ProducerEpoch)
			}
		}
		c.txn = nil
		return
	}
	c.p.Epoch = noEpoch // it does not know: only a new epoch helps
	c.txn = nil
}

// check holds what must be true at any moment.
func (m *clusterModel) check(t *rapid.T) {
	m.w.mu.Lock()
	defer m.w.mu.Unlock()
	for _, c := range m.clients {
		for _, x := range c.txns {
			outcome := x.acked
			for _, w := range x.writes {
				if w.outcome != "" && outcome != "" && w.outcome != outcome {
					t.Fatalf("transaction %s (acknowledged as %q) is %s in one place and %s in another", x.name, x.acked, outcome, w.outcome)
				}
				if w.outcome != "" {
					outcome = w.outcome
				}
			}
		}
	}
}

// Whatever fails: a transaction ends the same way everywhere, and the way its producer was
// told; no marker tells of what could be taken back; epochs do not go back; and in the end
// every transaction is over.
func TestTransactionPromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			m := &clusterModel{w: &world{t: rt, gen: 1, nextID: 100, refuse: -1}}
			for i := range m.w.parts {
				m.w.parts[i] = modelPartition{epoch: make(map[int64]int16), coordinator: make(map[int64]int32), open: make(map[int64][]*modelWrite)}
			}
			for i, version := range []int16{4, 5, 5} {
				// The second and the third are two producers of one id.
				m.clients = append(m.clients, &client{id: []string{"v1", "v2", "v2"}[i], version: version, p: coordinator.NoProducer})
			}
			m.clients[0].highest = make(map[int64]int16)
			shared := make(map[int64]int16)
			m.clients[1].highest, m.clients[2].highest = shared, shared
			m.start(1)
			synctest.Wait()
			defer func() {
				m.w.heal()
				m.c.Close()
				for _, z := range m.zombies {
					z.Close()
				}
				time.Sleep(time.Minute)
			}()
			pick := func(t *rapid.T) *client { return m.clients[rapid.IntRange(0, len(m.clients)-1).Draw(t, "client")] }
			rt.Repeat(map[string]func(*rapid.T){
				"":      func(t *rapid.T) { m.check(t) },
				"init":  func(t *rapid.T) { m.init(t, pick(t)) },
				"write": func(t *rapid.T) { m.write(pick(t), rapid.Int32Range(0, 2).Draw(t, "partition")) },
				"more":  func(t *rapid.T) { m.write(pick(t), rapid.Int32Range(0, 2).Draw(t, "partition")) },
				"end":   func(t *rapid.T) { m.end(t, pick(t), rapid.Bool().Draw(t, "commit")) },
				"ended": func(t *rapid.T) { m.end(t, pick(t), true) },
				"mode": func(t *rapid.T) {
					mode := writeMode(rapid.IntRange(0, int(writeModes)-1).Draw(t, "mode"))
					m.w.mu.Lock()
					m.w.mode = mode
					m.w.mu.Unlock()
				},
				"cut":   func(t *rapid.T) { m.w.mu.Lock(); m.w.cut = !m.w.cut; m.w.mu.Unlock() },
				"lossy": func(t *rapid.T) { m.w.mu.Lock(); m.w.lossy = !m.w.lossy; m.w.mu.Unlock() },
				"refuse": func(t *rapid.T) {
					n := rapid.Int32Range(-1, 2).Draw(t, "partition")
					m.w.mu.Lock()
					m.w.refuse = n
					m.w.mu.Unlock()
				},
				"heal": func(t *rapid.T) { m.w.heal(); time.Sleep(100 * time.Millisecond) },
				"fail": func(t *rapid.T) {
					m.w.mu.Lock()
					committed, all := m.w.committed, len(m.w.recs)
					m.w.mu.Unlock()
					keep := rapid.IntRange(committed, all).Draw(t, "keep")
					gen := m.w.elect(keep)
					if old := m.c; rapid.Bool().Draw(t, "zombie") {
						m.zombies = append(m.zombies, old)
					} else {
						old.Close()
					}
					m.start(gen)
					time.Sleep(time.Duration(rapid.IntRange(0, 3).Draw(t, "after")) * time.Millisecond)
				},
				"wait": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 40).Draw(t, "seconds")) * time.Second) },
			})
			// In the end all is well again, and what nobody ended has its time up.
			m.w.heal()
			for _, z := range m.zombies {
				z.Close()
			}
			m.zombies = nil
			time.Sleep(3 * time.Minute)
			m.check(rt)
			for n := range m.w.parts {
				for id, open := range m.w.parts[n].open {
					if len(open) > 0 {
						rt.Fatalf("partition %d: a transaction of producer %d is open for ever", n, id)
					}
				}
			}
			for _, c := range m.clients {
				if d := m.c.Describe(c.id); d.ErrorCode == 0 && d.State != "Empty" && d.State != "CompleteCommit" && d.State != "CompleteAbort" {
					rt.Fatalf("%s ends in %s", c.id, d.State)
				}
			}
		})
	})
}
