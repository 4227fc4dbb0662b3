package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

const (
	topic      = "bench"
	partitions = 6
	recordSize = 1024
	perBatch   = 100
	inFlight   = 5
)

// measure starts one broker in a new folder, runs every load against it and
// stops it.
func measure(ctx context.Context, o options, start func(context.Context, options, string) (*target, error)) (f figures, err error) {
	dir, err := os.MkdirTemp("", "penstock-bench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	t, err := start(ctx, o, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	f = figures{"start to answering": float64(t.started.Microseconds()) / 1000}
	time.Sleep(3 * time.Second) // idle memory is what stays when nothing happens
	if f["idle memory (RSS after start)"], err = t.rss(); err != nil {
		return nil, err
	}
	if err := createTopic(t.addr, topic, partitions); err != nil {
		return nil, err
	}
	batches := int(o.produceBytes / (perBatch * recordSize))
	for _, step := range []func() error{
		func() error { _, err := produce(ctx, t, topic, batches, perBatch, inFlight); return err }, // warm-up
		func() error {
			r, err := produce(ctx, t, topic, batches, perBatch, inFlight)
			f["produce, 100 x 1 KiB batches, acks=1"] = r.mbs
			f["produce, broker CPU"] = r.cpuPerGB
			f["produce, p99"] = r.p99
			return err
		},
		func() error { _, err := fetch(ctx, t, topic, 0); return err }, // warm-up
		func() error {
			r, err := fetch(ctx, t, topic, 0)
			f["fetch from page cache"] = r.mbs
			f["fetch, broker CPU"] = r.cpuPerGB
			f["fetch, p99"] = r.p99
			return err
		},
		func() error { _, err := produce(ctx, t, topic, o.singles, 1, inFlight); return err }, // warm-up
		func() error {
			r, err := produce(ctx, t, topic, o.singles, 1, inFlight)
			f["produce, single 1 KiB records"] = r.mbs
			f["produce single, broker CPU"] = r.cpu.Seconds() * 1e6 / float64(o.singles)
			f["produce single, p99"] = r.p99
			return err
		},
		func() error { return endToEnd(ctx, t, o.latency, f) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(10 * time.Second):
	}
	f["idle memory (RSS after the load, 10 s idle)"], err = t.rss()
	return f, err
}

type result struct {
	mbs, cpuPerGB, p99 float64
	cpu                time.Duration
}

// metered runs a load and returns what it cost the broker. work returns the
// record bytes moved and the latency of each request.
func metered(t *target, work func() (int64, []time.Duration, error)) (result, error) {
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

func batch(records int) ([]byte, error) {
	random := rand.New(rand.NewPCG(1, 2))
	recs := make([]recordbatch.Record, records)
	now := time.Now().UnixMilli()
	for i := range recs {
		v := make([]byte, recordSize)
		for j := 0; j+8 <= len(v); j += 8 {
			binary.LittleEndian.PutUint64(v[j:], random.Uint64())
		}
		recs[i] = recordbatch.Record{Offset: int64(i), Timestamp: now, Value: v}
	}
	return recordbatch.Build(recordbatch.BuildOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, recs)
}

func produceFrame(topic string, partition int32, records []byte) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(8)
	req.Acks, req.TimeoutMillis = 1, 30_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, records
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return encode(req)
}

// produce sends n requests of one ready-made batch each, in flight at a time.
func produce(ctx context.Context, t *target, topic string, n, records, flight int) (result, error) {
	b, err := batch(records)
	if err != nil {
		return result{}, err
	}
	var frames [partitions][]byte
	for p := range frames {
		frames[p] = produceFrame(topic, int32(p), b)
	}
	c, err := dial(t.addr)
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	stopped := context.AfterFunc(ctx, func() { c.Close() })
	defer stopped()
	return metered(t, func() (int64, []time.Duration, error) {
		sent := make(chan time.Time, flight)
		failed := make(chan error, 1)
		go func() {
			defer close(sent)
			for i := range n {
				sent <- time.Now()
				if err := c.send(frames[i%partitions]); err != nil {
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
				return 0, nil, err
			}
			latencies = append(latencies, time.Since(<-sent))
			if err := resp.ReadFrom(body); err != nil {
				return 0, nil, err
			}
			if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
				return 0, nil, err
			}
		}
		return int64(n) * int64(records) * recordSize, latencies, nil
	})
}

// fetch reads the whole topic once with a consumer's default limits.
func fetch(ctx context.Context, t *target, topic string, from int64) (result, error) {
	c, err := dial(t.addr)
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	stopped := context.AfterFunc(ctx, func() { c.Close() })
	defer stopped()
	req := fetchRequest(topic, from)
	return metered(t, func() (int64, []time.Duration, error) {
		var total int64
		var latencies []time.Duration
		var buf []byte
		resp := kmsg.NewPtrFetchResponse()
		resp.SetVersion(req.Version)
		for {
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
			if got == 0 {
				return total, latencies, nil
			}
			total += got
		}
	})
}

func fetchRequest(topic string, from int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SetVersion(11)
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, 500, 1, 50<<20
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	for p := range int32(partitions) {
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

// endToEnd produces single records at a steady rate and measures from before
// the send to the record's arrival at a consumer that polls all the while.
func endToEnd(ctx context.Context, t *target, length time.Duration, f figures) error {
	const name, rate = "bench-latency", 2000
	if err := createTopic(t.addr, name, partitions); err != nil {
		return err
	}
	n := int(length.Seconds() * rate)
	sent := make([]time.Time, n)
	b, err := batch(1)
	if err != nil {
		return err
	}
	frame := produceFrame(name, 0, b)
	producer, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := dial(t.addr)
	if err != nil {
		return err
	}
	defer consumer.Close()
	stopped := context.AfterFunc(ctx, func() { producer.Close(); consumer.Close() })
	defer stopped()

	errs := make(chan error, 2)
	began := time.Now().Add(100 * time.Millisecond)
	go func() {
		for i := range n {
			time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
			sent[i] = time.Now()
			if err := producer.send(frame); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	go func() {
		var buf []byte
		for range n {
			var err error
			if _, buf, err = producer.receive(buf, false); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	latencies := make([]time.Duration, 0, n)
	req := fetchRequest(name, 0)
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(req.Version)
	var buf []byte
	for len(latencies) < n {
		if err := consumer.send(encode(req)); err != nil {
			return err
		}
		body, grown, err := consumer.receive(buf, false)
		if err != nil {
			return err
		}
		buf = grown
		now := time.Now()
		if err := resp.ReadFrom(body); err != nil {
			return err
		}
		before := req.Topics[0].Partitions[0].FetchOffset
		if _, err := advance(req, resp); err != nil {
			return err
		}
		for o := before; o < req.Topics[0].Partitions[0].FetchOffset; o++ {
			latencies = append(latencies, now.Sub(sent[o]))
		}
	}
	if err := errors.Join(<-errs, <-errs); err != nil {
		return fmt.Errorf("end to end: %w", err)
	}
	f["end to end at 2,000 records/s, p50"] = percentile(latencies, 0.5)
	f["end to end at 2,000 records/s, p99"] = percentile(latencies, 0.99)
	return nil
}
