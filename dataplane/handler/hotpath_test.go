package handler

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/admission"
	"penstock/dataplane/commitlog"
	"penstock/dataplane/config"
	"penstock/dataplane/fetchsession"
	"penstock/dataplane/listener"
	"penstock/dataplane/metadata"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/purgatory"
	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// hotTopic has hotPartitions partitions, all led by the one broker of a hotPath.
const (
	hotTopic      = "hot"
	hotPartitions = 4
)

// hotPath is what a Produce or a Fetch passes through in a broker, from the socket
// to the file and back, and a client that costs nothing.
type hotPath struct {
	tb   testing.TB
	m    *partition.Manager
	q    *admission.Quotas
	conn net.Conn
	buf  []byte
	// exempt tells of each request, before its reply, whether it is kept out of the request quota.
	exempt chan bool
}

func newHotPath(tb testing.TB, image ...*metadata.Cache) *hotPath {
	tb.Helper()
	dir, err := commitlog.OpenDir(vfs.OS, tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	wheel := purgatory.NewWheel()
	m, err := partition.NewManager(context.Background(), partition.Config{
		BrokerID: 1, FS: vfs.OS, Dirs: []*commitlog.Dir{dir}, Wheel: wheel,
		Topic: func(string) partition.TopicConfig { return partition.TopicConfig{MinISR: 1} },
	})
	if err != nil {
		tb.Fatal(err)
	}
	lead(m)
	if image == nil {
		image = append(image, metadata.NewCache("c"))
	}
	quotas, cfg := admission.NewQuotas(admission.QuotaConfig{}), &config.Broker{FetchMaxBytes: 55 << 20}
	h := New(context.Background(), Deps{
		BrokerID: 1, Broker: func() *config.Broker { return cfg }, Partitions: m, Metadata: image[0],
		Sessions: fetchsession.New(fetchsession.Config{}), Quotas: quotas,
	})
	exempt := make(chan bool, 1)
	l, err := listener.Listen(listener.Config{Addr: "127.0.0.1:0", Name: "PLAINTEXT", Handler: h.Serve, Budget: admission.NewLanes(64 << 20),
		OnLocalDone: func(r *listener.Request, _ time.Duration) time.Duration {
			select {
			case exempt <- r.Exempt:
			default: // nobody asks
			}
			return 0
		}})
	if err != nil {
		tb.Fatal(err)
	}
	l.Serve()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
		wheel.Close()
		if err := dir.Close(true); err != nil {
			tb.Error(err)
		}
	})
	return &hotPath{tb: tb, m: m, q: quotas, conn: conn, buf: make([]byte, 1<<20), exempt: exempt}
}

func lead(m *partition.Manager) {
	ts := kmsg.NewLeaderAndISRRequestTopicState()
	ts.Topic, ts.TopicID = hotTopic, protocol.UUID{1}
	for i := range int32(hotPartitions) {
		s := kmsg.NewLeaderAndISRRequestTopicPartition()
		s.Partition, s.Leader, s.ISR, s.Replicas = i, 1, []int32{1}, []int32{1}
		ts.PartitionStates = append(ts.PartitionStates, s)
	}
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.SetVersion(7)
	req.BrokerEpoch, req.TopicStates = -1, append(req.TopicStates, ts)
	m.LeaderAndISR(req)
}

// call sends a framed request and reads the whole answer into p.buf, whose length
// it returns.
func (p *hotPath) call(frame []byte) int {
	p.send(frame)
	return p.receive()
}

func (p *hotPath) send(frame []byte) {
	if _, err := p.conn.Write(frame); err != nil {
		p.tb.Fatal(err)
	}
}

func (p *hotPath) receive() int {
	if _, err := io.ReadFull(p.conn, p.buf[:4]); err != nil {
		p.tb.Fatal(err)
	}
	n := int(binary.BigEndian.Uint32(p.buf))
	if _, err := io.ReadFull(p.conn, p.buf[:n]); err != nil {
		p.tb.Fatal(err)
	}
	return n
}

func frameOf(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("hot")).AppendRequest(nil, req, 7)
}

// produceOf has one batch of so many records of size bytes for each of so many
// partitions.
func produceOf(tb testing.TB, version int16, partitions, records, size int) []byte {
	tb.Helper()
	all := make([]recordbatch.Record, records)
	for i := range all {
		all[i] = recordbatch.Record{Offset: int64(i), Timestamp: time.Now().UnixMilli(), Value: make([]byte, size)}
	}
	b, err := recordbatch.Build(recordbatch.NoProducer(), all)
	if err != nil {
		tb.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(version)
	req.Acks, req.TimeoutMillis = 1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = hotTopic
	for i := range partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = int32(i), b
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return frameOf(req)
}

func fetchOf(version int16, partitions int, maxBytes, maxWait int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(version)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, maxWait, 1, 50<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = hotTopic
	for i := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = int32(i), maxBytes, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// What a request allocates is told and justified in DESIGN.md; change both.
func TestARequestOfTheHotPathAllocatesWhatIsJustifiedOnly(t *testing.T) {
	if raceBuild {
		t.Skip("the race detector makes pools forget")
	}
	p := newHotPath(t)
	for range 20 {
		p.call(produceOf(t, 9, hotPartitions, 1, 1024))
	}
	always := func(frame []byte) func() { return func() { p.call(frame) } }
	for _, c := range []struct {
		name string
		run  func() func()
		want float64
	}{
		{"produce of one record", func() func() { return always(produceOf(t, 9, 1, 1, 1024)) }, 1},
		{"produce of version 3", func() func() { return always(produceOf(t, 3, 1, 1, 1024)) }, 1},
		{"produce of 10 records to each of 4 partitions", func() func() { return always(produceOf(t, 9, 4, 10, 1024)) }, 1},
		{"fetch of 4 partitions", func() func() { return always(frameOf(fetchOf(11, 4, 16<<10, 500))) }, 5},
		{"fetch of 4 partitions in a session", func() func() { return p.session(fetchOf(12, 4, 16<<10, 500)) }, 2},
		{"fetch of an empty tail without a wait", func() func() { return always(frameOf(p.tail(fetchOf(11, 1, 16<<10, 0)))) }, 5},
		{"fetch that waits, and the produce that ends its wait", p.poll, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			if n := testing.AllocsPerRun(100, c.run()); n > c.want {
				t.Errorf("%v allocations, %v are justified", n, c.want)
			}
		})
	}
}

// A follower's fetch and a produce that nobody waits for are not the tenant's to pay for, whatever
// listener they come in on.
func TestExemptFromTheRequestQuota(t *testing.T) {
	p := newHotPath(t)
	unawaited := func() []byte {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(9)
		if err := req.ReadFrom(produceOf(t, 9, 1, 1, 10)[4+2+2+4+2+3+1:]); err != nil { // length and header: key, version, correlation, client id, tags
			t.Fatal(err)
		}
		req.Acks = 0
		return frameOf(req)
	}()
	follower := fetchOf(12, 1, 1<<20, 0)
	follower.ReplicaID = 2
	for _, c := range []struct {
		what     string
		frame    []byte
		answered bool
		want     bool
	}{
		{"a produce with acks=1", produceOf(t, 9, 1, 1, 10), true, false},
		{"a produce with acks=0", unawaited, false, true},
		{"a consumer's fetch", frameOf(fetchOf(12, 1, 1<<20, 0)), true, false},
		{"a follower's fetch", frameOf(follower), true, true},
	} {
		p.send(c.frame)
		if got := <-p.exempt; got != c.want {
			t.Errorf("%s is exempt: %v", c.what, got)
		}
		if c.answered {
			p.receive()
		}
	}
}

// session makes a fetch session of a full fetch and gives the incremental fetches after
// it, which leave the offsets where they are.
func (p *hotPath) session(full *kmsg.FetchRequest) func() {
	full.SessionEpoch = 0
	id := p.fetch(full).SessionID
	if id == 0 {
		p.tb.Fatal("no session")
	}
	next := *full
	next.Topics, next.SessionID = nil, id
	frame := frameOf(&next)
	epoch := bytes.LastIndex(frame, binary.BigEndian.AppendUint32(nil, uint32(id))) + 4
	n := uint32(0)
	return func() {
		n++
		binary.BigEndian.PutUint32(frame[epoch:], n)
		p.call(frame)
	}
}

func (p *hotPath) fetch(req *kmsg.FetchRequest) *kmsg.FetchResponse {
	body := p.buf[4:p.call(frameOf(req))]
	if req.IsFlexible() {
		body = body[1:]
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(req.Version)
	if err := resp.ReadFrom(body); err != nil {
		p.tb.Fatal(err)
	}
	return resp
}

// tail moves a fetch to the end of its log.
func (p *hotPath) tail(req *kmsg.FetchRequest) *kmsg.FetchRequest {
	for _, got := range p.fetch(req).Topics[0].Partitions {
		req.Topics[0].Partitions[got.Partition].FetchOffset = got.HighWatermark
	}
	return req
}

// another is a second connection.
func (p *hotPath) another() *hotPath {
	conn, err := net.Dial("tcp", p.conn.RemoteAddr().String())
	if err != nil {
		p.tb.Fatal(err)
	}
	p.tb.Cleanup(func() { conn.Close() })
	return &hotPath{tb: p.tb, m: p.m, q: p.q, conn: conn, buf: make([]byte, 1<<20)}
}

// poll gives rounds of a fetch of the tail, which waits, and a produce on another
// connection that ends the wait.
func (p *hotPath) poll() func() {
	other := p.another()
	req := p.tail(fetchOf(11, 1, 16<<10, 30_000))
	frame, produce := frameOf(req), produceOf(p.tb, 9, 1, 1, 1024)
	next := req.Topics[0].Partitions[0].FetchOffset
	offset := bytes.LastIndex(frame, []byte(hotTopic)) + len(hotTopic) + 4 + 4 + 4
	return func() {
		binary.BigEndian.PutUint64(frame[offset:], uint64(next))
		next++
		p.send(frame)
		for waiting := 0; waiting == 0; _, waiting = p.m.Waiting() {
			runtime.Gosched()
		}
		other.call(produce)
		p.receive()
	}
}

// Nothing of an earlier request may stand in a reply that is made in its memory: one
// that was throttled and refused, for topics that are not there, is followed by one that is in order.
func TestAReplyHoldsNothingOfTheRequestsBeforeIt(t *testing.T) {
	p := newHotPath(t)
	user := "/config/users/ANONYMOUS"
	bad := kmsg.NewPtrProduceRequest()
	bad.SetVersion(11)
	bad.Acks = 1
	for _, name := range []string{"absent", "absent too"} {
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = name
		rt.Partitions = make([]kmsg.ProduceRequestTopicPartition, 3)
		bad.Topics = append(bad.Topics, rt)
	}
	ask := func(frame []byte) *kmsg.ProduceResponse {
		c := p.another() // a throttled connection would be muted
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(11)
		if err := resp.ReadFrom(c.buf[5:c.call(frame)]); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for range 20 { // a pool does not give back what it was given last
		if err := p.q.Update(user, map[string]string{"producer_byte_rate": "1"}); err != nil {
			t.Fatal(err)
		}
		if r := ask(frameOf(bad)); r.ThrottleMillis == 0 || len(r.Topics) != 2 || r.Topics[1].Partitions[2].ErrorCode == 0 {
			t.Fatalf("%+v", r)
		}
		if err := p.q.Update(user, nil); err != nil {
			t.Fatal(err)
		}
		r := ask(produceOf(t, 11, 1, 1, 10))
		if r.ThrottleMillis != 0 || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Topic != hotTopic {
			t.Fatalf("%+v", r)
		}
		if a := r.Topics[0].Partitions[0]; a.ErrorCode != 0 || a.ErrorMessage != nil || len(a.ErrorRecords) != 0 || a.BaseOffset < 0 {
			t.Fatalf("%+v", a)
		}
	}
}

func BenchmarkHotProduceOfOneRecord(b *testing.B) {
	p := newHotPath(b)
	frame := produceOf(b, 9, 1, 1, 1024)
	b.ReportAllocs()
	for b.Loop() {
		p.call(frame)
	}
}

func BenchmarkHotFetchOfFour(b *testing.B) {
	p := newHotPath(b)
	for range 100 {
		p.call(produceOf(b, 9, hotPartitions, 1, 1024))
	}
	fetch := frameOf(fetchOf(11, hotPartitions, 16<<10, 500))
	b.ReportAllocs()
	for b.Loop() {
		p.call(fetch)
	}
}
