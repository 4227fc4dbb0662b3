package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"penstock/dataplane/recordbatch"
)

const (
	topic      = "bench"
	partitions = 6
	recordSize = 1024
	perBatch   = 100
	inFlight   = 5
)

// load is one produce run.
type load struct {
	topic    string
	requests int
	records  int // in each request's one batch
	acks     int16
	codec    recordbatch.Codec
}

// startSteps measure the start and what a broker holds that has done nothing.
var startSteps = []step{{once: true, run: func(ctx context.Context, _ options, t *target, f figures) (err error) {
	f["start to answering"] = float64(t.started.Microseconds()) / 1000
	if err := pause(ctx, 3*time.Second); err != nil {
		return err
	}
	f["idle memory (RSS after start)"], err = t.rss()
	return err
}}}

// singleSteps load one broker.
var singleSteps = []step{
	{once: true, run: func(_ context.Context, _ options, t *target, _ figures) error {
		return createTopic(t, topic, partitions, nil)
	}},
	{warm: 3, floor: true, run: func(ctx context.Context, o options, t *target, f figures) error {
		r, err := produce(ctx, t, load{topic: topic, requests: int(o.produceBytes / (perBatch * recordSize)), records: perBatch, acks: 1})
		f[produceRate] = r.mbs
		f[produceCPU] = r.cpuPerGB
		f["produce, p99"] = r.p99
		return err
	}},
	{warm: 2, floor: true, run: func(ctx context.Context, _ options, t *target, f figures) error {
		r, err := fetch(ctx, t, topic)
		f["fetch from page cache"] = r.mbs
		f[fetchCPU] = r.cpuPerGB
		f["fetch, p99"] = r.p99
		return err
	}},
	{warm: 3, floor: true, run: func(ctx context.Context, o options, t *target, f figures) error {
		r, err := produce(ctx, t, load{topic: topic, requests: o.singles, records: 1, acks: 1})
		f["produce, single 1 KiB records"] = r.mbs
		f[singleCPU] = r.cpu.Seconds() * 1e6 / float64(o.singles)
		f["produce single, p99"] = r.p99
		return err
	}},
	compressed("lz4", recordbatch.CodecLZ4),
	compressed("zstd", recordbatch.CodecZstd),
	{warm: 2, run: func(ctx context.Context, o options, t *target, f figures) (err error) {
		f["end to end at 2,000 records/s, p50"], f["end to end at 2,000 records/s, p99"], err = endToEnd(ctx, t, 2000, 1, o.latency)
		return err
	}},
	{once: true, run: func(ctx context.Context, _ options, t *target, f figures) (err error) {
		if err := pause(ctx, 10*time.Second); err != nil {
			return err
		}
		f["idle memory (RSS after the load, 10 s idle)"], err = t.rss()
		return err
	}},
}

// compressed produces batches of 100 records of 1 KiB that a codec halves.
func compressed(name string, codec recordbatch.Codec) step {
	return step{warm: 2, run: func(ctx context.Context, o options, t *target, f figures) error {
		n := int(o.produceBytes / (perBatch * recordSize))
		r, err := produce(ctx, t, load{topic: topic, requests: n, records: perBatch, acks: 1, codec: codec})
		f["produce "+name+", broker CPU"] = r.cpu.Seconds() * 1e6 / float64(n)
		return err
	}}
}

// clusterSteps load three brokers with three replicas of every partition: a
// request is answered when all that are in sync have it, which at least two must be.
var clusterSteps = []step{
	{once: true, run: func(_ context.Context, _ options, t *target, _ figures) error {
		return createTopic(t, topic, partitions, map[string]string{"min.insync.replicas": "2"})
	}},
	{warm: 3, run: func(ctx context.Context, o options, t *target, f figures) error {
		r, err := produce(ctx, t, load{topic: topic, requests: int(o.produceBytes / 4 / (perBatch * recordSize)), records: perBatch, acks: -1})
		f[clusterRate] = r.mbs
		f[clusterCPU] = r.cpuPerGB
		f["3 brokers: produce, p99"] = r.p99
		return err
	}},
	{warm: 2, run: func(ctx context.Context, o options, t *target, f figures) (err error) {
		f["3 brokers: end to end at 1,000 records/s, p50"], f[clusterLatency], err = endToEnd(ctx, t, 1000, -1, o.latency)
		return err
	}},
	{once: true, run: func(ctx context.Context, _ options, t *target, f figures) error {
		const idle = 10 * time.Second
		before, err := t.cpu()
		if err != nil {
			return err
		}
		if err := pause(ctx, idle); err != nil {
			return err
		}
		after, err := t.cpu()
		if err != nil {
			return err
		}
		f["3 brokers: idle CPU of all"] = 100 * (after - before).Seconds() / idle.Seconds()
		f["3 brokers: memory of the largest (RSS after the load)"], err = t.rss()
		return err
	}},
	{once: true, run: catchUp},
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

type result struct {
	mbs, cpuPerGB, p99 float64
	cpu                time.Duration
}

// metered runs a load and returns what it cost the broker. work returns the
// record bytes moved and the latency of each request.
func metered(t *target, work func() (int64, []time.Duration, error)) (result, error) {
	// What earlier runs have left to be written to disk must not slow this one.
	unix.Sync()
	before, err := t.cpu()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	n, latencies, err := work()
	took := time.Since(began)
	if err != nil {
		return result{}, err
	}
	after, err := t.cpu()
	r := result{cpu: after - before, mbs: float64(n) / 1e6 / took.Seconds(), p99: percentile(latencies, 0.99)}
	r.cpuPerGB = r.cpu.Seconds() / (float64(n) / 1e9)
	return r, err
}

// batch has records of random bytes; with a codec only half of each is.
func batch(records int, codec recordbatch.Codec) ([]byte, error) {
	rnd := rand.New(rand.NewPCG(1, 2))
	recs := make([]recordbatch.Record, records)
	now := time.Now().UnixMilli()
	for i := range recs {
		v := make([]byte, recordSize)
		random := v
		if codec != recordbatch.CodecNone {
			random = v[:len(v)/2]
		}
		for j := 0; j+8 <= len(random); j += 8 {
			binary.LittleEndian.PutUint64(random[j:], rnd.Uint64())
		}
		recs[i] = recordbatch.Record{Offset: int64(i), Timestamp: now, Value: v}
	}
	return recordbatch.Build(recordbatch.BuildOptions{Codec: codec, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
}

func produceFrame(topic string, partition int32, acks int16, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(8)
	req.Acks, req.TimeoutMillis = acks, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return encode(req)
}

// produce sends the load's requests over one connection to each leader, a few of
// them in flight on each.
func produce(ctx context.Context, t *target, l load) (result, error) {
	b, err := batch(l.records, l.codec)
	if err != nil {
		return result{}, err
	}
	led, err := t.leaders(l.topic, partitions)
	if err != nil {
		return result{}, err
	}
	frames := map[string][][]byte{}
	for p, addr := range led {
		frames[addr] = append(frames[addr], produceFrame(l.topic, int32(p), l.acks, b))
	}
	var conns []*conn
	var each [][][]byte
	for addr, fs := range frames {
		c, err := dial(addr)
		if err != nil {
			return result{}, err
		}
		defer c.Close()
		conns, each = append(conns, c), append(each, fs)
	}
	stopped := context.AfterFunc(ctx, func() {
		for _, c := range conns {
			c.Close()
		}
	})
	defer stopped()
	return metered(t, func() (int64, []time.Duration, error) {
		var wg sync.WaitGroup
		latencies, errs := make([][]time.Duration, len(conns)), make([]error, len(conns))
		for i, c := range conns {
			wg.Go(func() {
				// Each leader gets a share by the number of its partitions.
				latencies[i], errs[i] = c.produce(each[i], l.requests*len(each[i])/len(led))
			})
		}
		wg.Wait()
		all := slices.Concat(latencies...)
		return int64(len(all)) * int64(l.records) * recordSize, all, errors.Join(errs...)
	})
}

// produce sends n requests, the frames in turn, and reads the answers.
func (c *conn) produce(frames [][]byte, n int) ([]time.Duration, error) {
	slots, sent := make(chan struct{}, inFlight), make(chan time.Time, inFlight)
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			slots <- struct{}{} // the wait for a slot is no latency of the broker
			sent <- time.Now()
			if err := c.send(frames[i%len(frames)]); err != nil {
				failed <- err
				return
			}
		}
	}()
	latencies := make([]time.Duration, 0, n)
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(8)
	var body, buf []byte
	for range n {
		var err error
		if body, buf, err = c.receive(buf, false); err != nil {
			select {
			case err = <-failed:
			default:
			}
			return nil, err
		}
		latencies = append(latencies, time.Since(<-sent))
		<-slots
		if err := resp.ReadFrom(body); err != nil {
			return nil, err
		}
		if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// fetch reads the whole topic of one broker once.
func fetch(ctx context.Context, t *target, topic string) (result, error) {
	c, err := dial(t.addrs[0])
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	stopped := context.AfterFunc(ctx, func() { c.Close() })
	defer stopped()
	req := fetchRequest(topic, partitions, 0)
	return metered(t, func() (int64, []time.Duration, error) {
		var total int64
		var latencies []time.Duration
		var buf []byte
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(req.Version)
		for more := true; more; {
			began := time.Now()
			if err := c.send(encode(req)); err != nil {
				return 0, nil, err
			}
			body, grown, err := c.receive(buf, false)
			if err != nil {
				return 0, nil, err
			}
			buf = grown
			latencies = append(latencies, time.Since(began))
			if err := resp.ReadFrom(body); err != nil {
				return 0, nil, err
			}
			got, err := advance(req, resp)
			if err != nil {
				return 0, nil, err
			}
			total += got
			// Asking once more at the end would only measure the long poll.
			more = false
			for _, p := range resp.Topics[0].Partitions {
				more = more || req.Topics[0].Partitions[p.Partition].FetchOffset < p.HighWatermark
			}
		}
		return total, latencies, nil
	})
}

// fetchRequest asks for the first so many partitions from an offset on, with a
// consumer's default limits.
func fetchRequest(topic string, partitions int32, from int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 500, 1, 50<<20
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	for p := range partitions {
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch = p, from, 1<<20, -1
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	return req
}

// advance moves each partition's position past the whole batches received and
// returns their bytes. A batch cut at the end is asked for again.
func advance(req *kmsg.FetchRequest, resp *kmsg.FetchResponse) (int64, error) {
	var got int64
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return 0, err
		}
		next := &req.Topics[0].Partitions[p.Partition].FetchOffset
		for b := p.RecordBatches; len(b) >= 61; {
			size := 12 + int(int32(binary.BigEndian.Uint32(b[8:])))
			if size > len(b) {
				break
			}
			*next = int64(binary.BigEndian.Uint64(b)) + int64(int32(binary.BigEndian.Uint32(b[23:]))) + 1
			got += int64(size)
			b = b[size:]
		}
	}
	return got, nil
}
