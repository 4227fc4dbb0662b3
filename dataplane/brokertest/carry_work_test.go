//go:build compat

package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// carryTopics are the topics that travel, with their settings. Each has one
// partition.
var carryTopics = map[string][]string{
	"plain": {}, "gzip": {}, "snappy": {}, "lz4": {}, "zstd": {},
	"sequenced": {}, "steady": {}, "flood": {},
	"tx": {}, "txlate": {}, "txflood": {},
	"kept":      {"cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.bytes=4096", "delete.retention.ms=86400000"},
	"forgotten": {"cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.bytes=4096", "delete.retention.ms=0"},
	"cut":       {},
	"appended":  {"message.timestamp.type=LogAppendTime"},
	"future":    {"message.timestamp.after.max.ms=9223372036854775807"},
}

func (f *folder) createTopics() {
	f.t.Helper()
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		for topic, extra := range carryTopics {
			cfg := map[string]*string{}
			for _, kv := range append([]string{"segment.bytes=16384", "retention.ms=-1"}, extra...) {
				k, v, _ := strings.Cut(kv, "=")
				cfg[k] = &v
			}
			resp, err := adm.CreateTopic(ctx, 1, 1, cfg, topic)
			if err != nil {
				return fmt.Errorf("%s: %w", topic, err)
			}
			compacted := strings.Contains(strings.Join(extra, " "), "compact")
			f.byTopic[topic] = &carriedLog{
				topic: topic, configs: cfg, id: resp.ID, compacted: compacted, forgets: topic == "forgotten",
				recs: map[int64]*wanted{}, ends: map[int32]int64{},
			}
		}
		return nil
	})
}

// produce writes records with a client and enters them.
func (f *folder) produce(cl *kgo.Client, topic string, as fate, rs ...*kgo.Record) []*wanted {
	f.t.Helper()
	l := f.byTopic[topic]
	for _, r := range rs {
		r.Topic = topic
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		f.t.Fatalf("%s: producing to %s: %v", f.who, topic, err)
	}
	var ws []*wanted
	for _, r := range rs {
		ws = append(ws, l.add(r, as))
	}
	return ws
}

// sundry makes records of every shape: nulls, empty and long fields, headers.
func sundry(rng *rand.Rand, n int) []*kgo.Record {
	var rs []*kgo.Record
	for i := range n {
		r := &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i), Value: bytes.Repeat([]byte{byte('a' + i%26)}, rng.IntN(300))}
		switch rng.IntN(8) {
		case 0:
			r.Key = nil
		case 1:
			r.Value = nil
		case 2:
			r.Key, r.Value = []byte{}, []byte{}
		case 3:
			r.Headers = []kgo.RecordHeader{{Key: "h", Value: []byte("v")}, {Key: "", Value: nil}, {Key: "h", Value: []byte{}}}
		case 4:
			r.Value = make([]byte, 3000)
			for j := range r.Value {
				r.Value[j] = byte(rng.Uint32())
			}
		}
		rs = append(rs, r)
	}
	return rs
}

var carryCodecs = map[string]kgo.CompressionCodec{
	"plain": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

// smallBatches fit the segments.
var smallBatches = kgo.ProducerBatchMaxBytes(6000)

// extend writes to every topic, by ordinary means.
func (f *folder) extend(leg int) {
	f.t.Helper()
	rng := rand.New(rand.NewPCG(uint64(leg), 1))
	for _, name := range slices.Sorted(maps.Keys(carryCodecs)) {
		opts := []kgo.Opt{smallBatches, kgo.ProducerBatchCompression(carryCodecs[name])}
		if name == "plain" {
			opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
		}
		cl := f.client(opts...)
		for range 3 {
			f.produce(cl, name, wasCommitted, sundry(rng, 60)...)
		}
		cl.Close()
	}
	cl := f.client(smallBatches)
	defer cl.Close()
	f.produceAppended(rng)
	for _, at := range []time.Time{time.Now().Add(240 * time.Hour), time.UnixMilli(0), time.Now().Add(time.Hour), time.UnixMilli(1234567890123), time.Now()} {
		for range 3 {
			r := kgo.StringRecord("at another time")
			r.Timestamp = at
			f.produce(cl, "future", wasCommitted, r)
		}
	}
	for range 10 {
		f.produce(cl, "cut", wasCommitted, sundry(rng, 30)...)
	}
	f.overwrite(cl, leg, rng)
	f.produce(f.steady, "steady", wasCommitted, sundry(rng, 20)...)
	f.sequenced.goOn(f)
}

// produceAppended writes to the topic with times of arrival, which the client
// hears from the broker.
func (f *folder) produceAppended(rng *rand.Rand) {
	f.t.Helper()
	cl := f.client()
	defer cl.Close()
	for range 10 {
		rs := sundry(rng, 5)
		var raw []recordbatch.Record
		for _, r := range rs {
			x := recordbatch.Record{Timestamp: 1 + rng.Int64N(1<<40), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				x.Headers = append(x.Headers, recordbatch.Header(h))
			}
			raw = append(raw, x)
		}
		b, err := recordbatch.Build(recordbatch.NoProducer(), raw)
		if err != nil {
			f.t.Fatal(err)
		}
		got := f.raw(cl, "appended", b)
		wantCode(f.t, f.who.String()+": times of arrival", got.ErrorCode, nil)
		for i, r := range rs {
			r.Offset, r.Timestamp = got.BaseOffset+int64(i), time.UnixMilli(got.LogAppendTime)
			f.byTopic["appended"].add(r, wasCommitted).appended = true
		}
	}
}

// raw produces one ready-made batch.
func (f *folder) raw(cl *kgo.Client, topic string, batch []byte) (got kmsg.ProduceResponseTopicPartition) {
	f.t.Helper()
	Await(f.t, 20*time.Second, "a leader of "+topic, func() error {
		resp, err := produceOf(topic, -1, bytes.Clone(batch)).RequestWith(context.Background(), cl.SeedBrokers()[0])
		if err != nil {
			return err
		}
		if got = resp.Topics[0].Partitions[0]; got.ErrorCode == kerr.NotLeaderForPartition.Code || got.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			return kerr.ErrorForCode(got.ErrorCode)
		}
		return nil
	})
	return got
}

// overwrite gives the compacted topics new values for old keys, and tombstones.
func (f *folder) overwrite(cl *kgo.Client, leg int, rng *rand.Rand) {
	f.t.Helper()
	for _, topic := range []string{"kept", "forgotten"} {
		for i := range 12 {
			var rs []*kgo.Record
			for j := range 20 {
				r := kgo.KeyStringRecord(fmt.Sprintf("k%d", rng.IntN(25)), fmt.Sprintf("leg %d, %d.%d %s", leg, i, j, strings.Repeat("v", 50)))
				if rng.IntN(6) == 0 {
					r.Value = nil
				}
				rs = append(rs, r)
			}
			// A key that is set in every leg and deleted in the odd ones.
			r := kgo.KeyStringRecord("parity", "here")
			if leg%2 == 1 {
				r.Value = nil
			}
			f.produce(cl, topic, wasCommitted, append(rs, r)...)
		}
	}
}

// awaitCleaned waits until a cleaner has been over the compacted topics: before
// the segment that is written to, each key is there once at most.
func (f *folder) awaitCleaned() {
	f.t.Helper()
	for _, topic := range []string{"kept", "forgotten"} {
		Await(f.t, 30*time.Second, fmt.Sprintf("%s cleaning %s", f.who, topic), func() error {
			logs := f.glob(topic + "-0/*.log")
			active, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(slices.Max(logs)), ".log"), 10, 64)
			if err != nil {
				return err
			}
			if active == 0 {
				return errors.New("one segment only")
			}
			seen := map[string]bool{}
			for _, r := range f.readAll(kgo.ReadUncommitted(), topic)[topic][0] {
				if r.Offset < active && seen[string(r.Key)] {
					return fmt.Errorf("key %s is twice below offset %d", r.Key, active)
				}
				seen[string(r.Key)] = true
			}
			return nil
		})
	}
}

// sequencedProducer sets its own sequence numbers, so that it can do again what
// it did before the move.
type sequencedProducer struct {
	id    int64
	epoch int16
	seq   int32
	last  []byte
	older []byte // the one before last
	// Where they went.
	base, olderBase int64
}

func (p *sequencedProducer) goOn(f *folder) {
	f.t.Helper()
	cl := f.client()
	defer cl.Close()
	try := func(what string, b []byte, want *kerr.Error) int64 {
		f.t.Helper()
		got := f.raw(cl, "sequenced", b)
		wantCode(f.t, fmt.Sprintf("%s: %s", f.who, what), got.ErrorCode, want)
		return got.BaseOffset
	}
	if p.last == nil {
		id, epoch, err := cl.ProducerID(context.Background())
		if err != nil {
			f.t.Fatal(err)
		}
		p.id, p.epoch = id, epoch
	} else {
		if at := try("a retry of the last batch before the move", p.last, nil); at != p.base {
			f.t.Errorf("%s: a retry of the last batch before the move is answered with offset %d, want %d", f.who, at, p.base)
		}
		// A snapshot keeps a producer's last batch only. Ours knows more of a log that
		// it has read through, or that it closed itself (.batches); Kafka goes by a
		// snapshot that it makes meanwhile.
		if f.who == penstock && (f.crashed || f.prior == penstock) {
			if at := try("a retry of the batch before that", p.older, nil); at != p.olderBase {
				f.t.Errorf("%s: a retry of the batch before that is answered with offset %d, want %d", f.who, at, p.olderBase)
			}
		} else {
			try("a retry of a batch that is forgotten", p.older, kerr.OutOfOrderSequenceNumber)
		}
		try("a batch that leaves one out", p.batch(f, p.seq+1, "gap"), kerr.OutOfOrderSequenceNumber)
	}
	for i := range 8 {
		values := []string{fmt.Sprintf("sequence %d", p.seq), "and", "so on"}[:1+i%3]
		b := p.batch(f, p.seq, values...)
		base := try("the next batch", b, nil)
		for j, v := range values {
			r := kgo.StringRecord(v)
			r.Offset, r.Timestamp = base+int64(j), time.UnixMilli(carryTime)
			f.byTopic["sequenced"].add(r, wasCommitted)
		}
		p.older, p.olderBase, p.last, p.base = p.last, p.base, b, base
		p.seq += int32(len(values))
	}
}

// carryTime is a time for records: recent, since Kafka takes a producer that
// wrote records of long ago for one that has fallen silent.
var carryTime = time.Now().UnixMilli()

func (p *sequencedProducer) batch(f *folder, seq int32, values ...string) []byte {
	o := recordbatch.NoProducer()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = p.id, p.epoch, seq
	var rs []recordbatch.Record
	for _, v := range values {
		rs = append(rs, recordbatch.Record{Timestamp: carryTime, Value: []byte(v)})
	}
	b, err := recordbatch.Build(o, rs)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// deleteRecords moves the start of "cut" up, into the middle of a batch.
func (f *folder) deleteRecords() {
	f.t.Helper()
	l := f.byTopic["cut"]
	to := l.start + 157
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		os := kadm.Offsets{}
		os.AddOffset("cut", 0, to, -1)
		resp, err := adm.DeleteRecords(ctx, os)
		if err == nil {
			err = resp.Error()
		}
		if err == nil {
			l.start = to
		}
		return err
	})
	// Kafka writes the new start down now and then only.
	Await(f.t, 30*time.Second, "the new start of cut written down", func() error {
		got := map[string]int64{}
		for _, path := range f.glob("log-start-offset-checkpoint") {
			starts, err := readOffsets(path)
			if err != nil {
				return err
			}
			maps.Copy(got, starts)
		}
		if got["cut-0"] != to {
			return fmt.Errorf("%d, not %d", got["cut-0"], to)
		}
		return nil
	})
}

// deleteATopic leaves a -delete folder behind.
func (f *folder) deleteATopic() {
	f.t.Helper()
	const topic = "gone" // which in each leg is another one of that name
	f.within(func(ctx context.Context, adm *kadm.Client) error {
		if _, err := adm.CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			return err
		}
		cl := f.client()
		defer cl.Close()
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			return err
		}
		_, err := adm.DeleteTopic(ctx, topic)
		return err
	})
	Await(f.t, 20*time.Second, "the folder of a deleted topic renamed", func() error {
		if here, gone := len(f.glob(topic+"-0")), len(f.glob(topic+"-0.*-delete")); here != 0 || gone == 0 {
			return fmt.Errorf("%d and %d folders", here, gone)
		}
		return nil
	})
}

// flood keeps an idempotent producer and a group's member busy until the broker
// has been killed, and enters what was acknowledged.
func (f *folder) flood(leg int, kill func()) {
	f.t.Helper()
	l := f.byTopic["flood"]
	codecs := slices.Sorted(maps.Keys(carryCodecs))
	cl := f.client(smallBatches, kgo.ProducerBatchCompression(carryCodecs[codecs[leg%len(codecs)]]), kgo.ProducerLinger(0), kgo.MaxBufferedRecords(1000))
	var mu sync.Mutex
	var acked []*kgo.Record
	var sent []*kgo.Record
	enough := make(chan struct{})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			r := &kgo.Record{Topic: "flood", Key: fmt.Appendf(nil, "%d", leg), Value: fmt.Appendf(nil, "leg %d record %d %s", leg, i, strings.Repeat("~", i%200)), Timestamp: time.UnixMilli(carryTime + int64(i))}
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			sent = append(sent, r)
			mu.Unlock()
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					return
				}
				if acked = append(acked, r); len(acked) == 3000 {
					close(enough)
				}
			})
		}
	}()
	group := f.client(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("flood", "plain"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	groupDone := make(chan struct{})
	go func() {
		defer close(groupDone)
		for {
			fs := group.PollFetches(context.Background())
			if fs.IsClientClosed() {
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			if err := group.CommitUncommittedOffsets(ctx); err == nil {
				mu.Lock()
				f.readersAt = max(f.readersAt, group.CommittedOffsets()["flood"][0].Offset)
				mu.Unlock()
			}
			cancel()
		}
	}()
	select {
	case <-enough:
	case <-time.After(time.Minute):
		f.t.Errorf("%s: not 3,000 records in a minute", f.who)
	}
	kill()
	close(stop)
	cl.Close()
	group.Close()
	<-done
	<-groupDone
	mu.Lock()
	defer mu.Unlock()
	got := map[*kgo.Record]bool{}
	for _, r := range acked {
		l.add(r, wasCommitted)
		got[r] = true
	}
	for _, r := range sent {
		if !got[r] {
			l.maybe = append(l.maybe, r)
		}
	}
	f.t.Logf("killed with %d records acknowledged, %d not", len(acked), len(l.maybe))
}
