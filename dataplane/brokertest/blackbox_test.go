package brokertest

import (
	"bufio"
	bin "encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

var bootstrap = flag.String("bootstrap", os.Getenv("PENSTOCK_BLACKBOX_BOOTSTRAP"),
	"host:port of an Apache Kafka of one broker, on which TestBlackBox then runs in place of a cluster of ours")

// blackBox is the suite: what a client can see of one broker, said once and
// true of Apache Kafka and of ours. Where they differ, a case says so by pick,
// and docs/compatibility.md says why.
var blackBox = [][]blackBoxCase{protocolCases, metadataCases, produceCases, batchCases, idempotenceCases, markerCases, isolationCases, fetchCases, sessionCases, offsetCases, groupCases, groupAdminCases, txnOffsetCases, consumerGroupCases, groupConfigCases, migrationCases, refusalCases, topicCases, configCases, brokerConfigCases, quotaCases, logDirCases, reassignCases, txnCases}

type blackBoxCase struct {
	name string
	run  func(*testing.T, *target)
}

// TestBlackBox speaks to one broker in raw requests, so that no client library
// stands between what is asked and what is answered.
func TestBlackBox(t *testing.T) {
	b := &target{addr: *bootstrap, kafka: *bootstrap != ""}
	if !b.kafka {
		b.addr = Start(t, Options{}).Brokers[0].Addr
	}
	runBlackBox(t, b)
}

func runBlackBox(t *testing.T, b *target) {
	b.run = fmt.Sprintf("%x", time.Now().UnixNano()&0xffffffff)
	for _, area := range blackBox {
		for _, c := range area {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				c.run(t, b)
			})
		}
	}
}

// target is the broker under test.
type target struct {
	addr  string
	kafka bool
	run   string // part of every name made, so that a broker can be tested twice
	names atomic.Int64
}

// pick is where the two differ on purpose.
func pick[T any](b *target, ours, kafkas T) T {
	if b.kafka {
		return kafkas
	}
	return ours
}

// name is one that nothing else has.
func (b *target) name(kind string) string {
	return fmt.Sprintf("%s-%s-%d", kind, b.run, b.names.Add(1))
}

// wire is a raw connection.
type wire struct {
	net.Conn
	t    *testing.T
	r    *bufio.Reader
	corr int32
}

func (b *target) dial(t *testing.T) *wire {
	t.Helper()
	c, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w := &wire{Conn: c, t: t, r: bufio.NewReader(c)}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return w
}

// frame encodes a request.
func (w *wire) frame(req kmsg.Request) []byte {
	w.corr++
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("blackbox")).AppendRequest(nil, req, w.corr)
}

func (w *wire) send(req kmsg.Request) {
	w.t.Helper()
	if _, err := w.Write(w.frame(req)); err != nil {
		w.t.Fatal(err)
	}
}

// body reads one reply without its correlation id.
func (w *wire) body() ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(w.r, size[:]); err != nil {
		return nil, err
	}
	b := make([]byte, bin.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.r, b); err != nil {
		return nil, err
	}
	return b[4:], nil
}

func (w *wire) receive(req kmsg.Request) (kmsg.Response, error) {
	b, err := w.body()
	if err != nil {
		return nil, err
	}
	if req.IsFlexible() && req.Key() != 18 {
		b = b[1:] // no tags stand in any reply's header
	}
	resp := req.ResponseKind()
	return resp, resp.ReadFrom(b)
}

// ask sends a request and returns its reply.
func ask[R kmsg.Response](w *wire, req kmsg.Request) R {
	w.t.Helper()
	w.send(req)
	resp, err := w.receive(req)
	if err != nil {
		w.t.Fatalf("%s v%d: %v", kmsg.NameForKey(req.Key()), req.GetVersion(), err)
	}
	return resp.(R)
}

// closed demands that the broker ends the connection without a word.
func (w *wire) closed() {
	w.t.Helper()
	_ = w.SetReadDeadline(time.Now().Add(10 * time.Second))
	b, err := w.body()
	var timeout net.Error
	if err == nil || (errors.As(err, &timeout) && timeout.Timeout()) {
		w.t.Errorf("the connection is still open (%x, %v)", b, err)
	}
}

// at sets a request's version.
func at[R kmsg.Request](req R, version int16) R {
	req.SetVersion(version)
	return req
}

func wantCode(t *testing.T, what string, got int16, want *kerr.Error) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: %v (%d), want %v", what, kerr.ErrorForCode(got), got, want)
	}
}

// madeTopic is a topic of the suite.
type madeTopic struct {
	name string
	id   [16]byte
}

// topic makes a topic that can be produced to.
func (b *target) topic(t *testing.T, partitions int32, configs ...string) madeTopic {
	t.Helper()
	w := b.dial(t)
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = b.name("topic"), partitions, 1
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		rt.Configs = append(rt.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: k, Value: &v})
	}
	req.Topics, req.TimeoutMillis = append(req.Topics, rt), 10_000
	resp := ask[*kmsg.CreateTopicsResponse](w, at(req, 7))
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		t.Fatalf("creating %s: %v", rt.Topic, err)
	}
	b.awaitLeaders(w, rt.Topic, partitions)
	return madeTopic{rt.Topic, resp.Topics[0].TopicID}
}

// awaitLeaders waits until the broker names a leader of that many partitions.
func (b *target) awaitLeaders(w *wire, topic string, partitions int32) {
	w.t.Helper()
	Await(w.t, 20*time.Second, "leaders of "+topic, func() error {
		m := ask[*kmsg.MetadataResponse](w, metadataFor(12, &topic))
		if err := kerr.ErrorForCode(m.Topics[0].ErrorCode); err != nil {
			return err
		}
		if n := len(m.Topics[0].Partitions); n != int(partitions) {
			return fmt.Errorf("%d partitions", n)
		}
		for _, p := range m.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return fmt.Errorf("partition %d: leader %d, %v", p.Partition, p.Leader, kerr.ErrorForCode(p.ErrorCode))
			}
			// Kafka names a leader before that broker has heard of it.
			end := ask[*kmsg.ListOffsetsResponse](w, offsetsOf(6, topic, p.Partition, -1)).Topics[0].Partitions[0]
			if err := kerr.ErrorForCode(end.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
		return nil
	})
}

func metadataFor(version int16, topics ...*string) *kmsg.MetadataRequest {
	req := at(kmsg.NewPtrMetadataRequest(), version)
	req.Topics = []kmsg.MetadataRequestTopic{}
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = name
		req.Topics = append(req.Topics, t)
	}
	return req
}

// records makes records of these values, with the present time.
func records(values ...string) []recordbatch.Record {
	var recs []recordbatch.Record
	for _, v := range values {
		recs = append(recs, recordbatch.Record{Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte(v)})
	}
	return recs
}

// batch encodes values as one batch of no producer.
func batch(t testing.TB, values ...string) recordbatch.Batch {
	t.Helper()
	return build(t, recordbatch.NoProducer(), records(values...))
}

func build(t testing.TB, o recordbatch.BuildOptions, recs []recordbatch.Record) recordbatch.Batch {
	t.Helper()
	o.LeaderEpoch = -1
	b, err := recordbatch.Build(o, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
