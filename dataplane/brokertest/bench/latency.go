package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

// endToEnd measures the latency of one partition of a topic of its own, see tail.
func endToEnd(ctx context.Context, t *target, rate int, acks int16, length time.Duration) (p50, p99 float64, err error) {
	name := fmt.Sprintf("bench-latency-%d", time.Now().UnixNano())
	var config map[string]string
	if acks == -1 {
		config = map[string]string{"min.insync.replicas": "2"}
	}
	if err := createTopic(t, name, 1, config); err != nil {
		return 0, 0, err
	}
	return tail(ctx, t, name, 0, rate, acks, length)
}

// tail produces records to partition 0, whose end is first, at a steady rate and
// measures from before the send to the record's arrival at a consumer that polls all
// the while. As a producer without linger does, it sends each record at once while
// fewer than five requests are in flight, and then gathers what comes until one is
// answered. The first two seconds are the warm-up and do not count.
func tail(ctx context.Context, t *target, name string, first int64, rate int, acks int16, length time.Duration) (p50, p99 float64, err error) {
	led, err := t.leaders(name, 1)
	if err != nil {
		return 0, 0, err
	}
	warm := 2 * rate
	n := warm + int(length.Seconds()*float64(rate))
	sent := make([]atomic.Int64, n) // nanoseconds since began
	var frames [101][]byte          // by the number of records
	for k := 1; k < len(frames); k++ {
		b, err := batch(k, recordbatch.CodecNone)
		if err != nil {
			return 0, 0, err
		}
		frames[k] = produceFrame(name, 0, acks, b)
	}
	producer, err := dial(led[0])
	if err != nil {
		return 0, 0, err
	}
	defer producer.Close()
	consumer, err := dial(led[0])
	if err != nil {
		return 0, 0, err
	}
	defer consumer.Close()
	stopped := context.AfterFunc(ctx, func() { producer.Close(); consumer.Close() })
	defer stopped()
	ended, end := context.WithCancel(ctx)
	defer end()

	errs := make(chan error, 2)
	began := time.Now()
	due := func(i int) time.Duration { return time.Duration(i) * time.Second / time.Duration(rate) }
	slots, sizes := make(chan struct{}, inFlight), make(chan int, inFlight)
	go func() {
		for i := 0; i < n; {
			time.Sleep(due(i) - time.Since(began))
			sent[i].Store(int64(time.Since(began)))
			select {
			case slots <- struct{}{}:
			case <-ended.Done():
				errs <- nil
				return
			}
			k, now := 1, time.Since(began)
			for i+k < n && k < len(frames)-1 && due(i+k) <= now {
				sent[i+k].Store(int64(due(i + k)))
				k++
			}
			sizes <- k
			if err := producer.send(frames[k]); err != nil {
				errs <- err
				return
			}
			i += k
		}
		errs <- nil
	}()
	go func() {
		resp := kmsg.NewPtrProduceResponse()
		resp.SetVersion(8)
		var body, buf []byte
		for answered := 0; answered < n; answered += <-sizes {
			var err error
			if body, buf, err = producer.receive(buf, false); err == nil {
				err = resp.ReadFrom(body)
			}
			if err == nil {
				err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
			}
			if err != nil {
				consumer.Close() // it would wait for ever
				end()
				errs <- err
				return
			}
			<-slots
		}
		errs <- nil
	}()
	latencies, err := consumer.arrivals(fetchRequest(name, 1, first), n, began, sent)
	if err != nil {
		producer.Close()
		end()
	}
	if err := errors.Join(err, <-errs, <-errs); err != nil {
		return 0, 0, fmt.Errorf("end to end: %w", err)
	}
	latencies = latencies[warm:]
	return percentile(latencies, 0.5), percentile(latencies, 0.99), nil
}

// arrivals consumes n records and returns how long each has taken.
func (c *conn) arrivals(req *kmsg.FetchRequest, n int, began time.Time, sent []atomic.Int64) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, n)
	first := req.Topics[0].Partitions[0].FetchOffset
	resp := kmsg.NewPtrFetchResponse()
	resp.SetVersion(req.Version)
	var body, buf []byte
	var err error
	for len(latencies) < n {
		if err := c.send(encode(req)); err != nil {
			return nil, err
		}
		if body, buf, err = c.receive(buf, false); err != nil {
			return nil, err
		}
		now := time.Since(began)
		if err := resp.ReadFrom(body); err != nil {
			return nil, err
		}
		before := req.Topics[0].Partitions[0].FetchOffset
		if _, err := advance(req, resp); err != nil {
			return nil, err
		}
		for o := before; o < req.Topics[0].Partitions[0].FetchOffset; o++ {
			latencies = append(latencies, now-time.Duration(sent[o-first].Load()))
		}
	}
	return latencies, nil
}
