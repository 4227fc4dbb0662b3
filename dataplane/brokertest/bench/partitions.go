package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/recordbatch"
)

const (
	perTopic = 100
	idleTime = 20 * time.Second
)

// manyRows are the figures of one broker with many partitions, in order.
var manyRows = []struct{ name, unit string }{
	{"create all, until each has a leader that serves", "s"},
	{"first round of produces, one record to each", "s"},
	{"stop in order", "s"},
	{"start after that: exec to first answer", "s"},
	{"the same: exec to a serving leader for every partition", "s"},
	{"memory of an empty broker (RSS)", "MB"},
	{"memory after the start (RSS)", "MB"},
	{"memory after another round of produces (RSS)", "MB"},
	{"the same, a partition, beyond the empty broker", "KB"},
	{"open files after the start", ""},
	{"open files after the round", ""},
	{"memory maps after the round", ""},
	{"idle CPU", "% of a core"},
}

// manyPartitions measures Kafka with 2,000 partitions beside ours with as many and
// with 10,000.
func manyPartitions(ctx context.Context, o options, only string) error {
	type column struct {
		name  string
		parts int
		start starter
		got   figures
	}
	var columns []*column
	for _, c := range []*column{
		{name: "kafka", parts: 2000, start: startKafka},
		{name: "penstock", parts: 2000, start: startPenstock},
		{name: "penstock", parts: 10_000, start: startPenstock},
	} {
		if only != "" && only != c.name {
			continue
		}
		dir, err := os.MkdirTemp("", "penstock-bench")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		fmt.Fprintf(os.Stderr, "%s with %d partitions\n", c.name, c.parts)
		t, err := c.start(ctx, o, dir, 1)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if err = t.whole(); err == nil {
			c.got, err = measureMany(ctx, t, c.parts)
		}
		if err = errors.Join(err, t.stop()); err != nil {
			return fmt.Errorf("%s with %d partitions: %w", c.name, c.parts, err)
		}
		columns = append(columns, c)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprint(w, "| figure\t| unit\t|")
	for _, c := range columns {
		fmt.Fprintf(w, " %s, %d\t|", c.name, c.parts)
	}
	fmt.Fprintln(w, "\n|"+strings.Repeat("---\t|", 2+len(columns)))
	for _, r := range manyRows {
		fmt.Fprintf(w, "| %s\t| %s\t|", r.name, r.unit)
		for _, c := range columns {
			fmt.Fprintf(w, " %s\t|", short(c.got[r.name]))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func measureMany(ctx context.Context, t *target, parts int) (figures, error) {
	f := figures{}
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	empty, err := t.rss()
	if err != nil {
		return nil, err
	}
	f["memory of an empty broker (RSS)"] = empty
	began := time.Now()
	topics := make([]string, parts/perTopic)
	for i := range topics {
		topics[i] = fmt.Sprintf("many-%03d", i)
	}
	for _, topic := range topics {
		if err := createTopic(t, topic, perTopic, nil); err != nil {
			return nil, err
		}
	}
	if err := awaitAll(ctx, t.addrs[0], topics); err != nil {
		return nil, err
	}
	f["create all, until each has a leader that serves"] = time.Since(began).Seconds()
	began = time.Now()
	if err := produceEach(t.addrs[0], topics); err != nil {
		return nil, err
	}
	f["first round of produces, one record to each"] = time.Since(began).Seconds()

	asked := time.Now()
	if err := t.down(0); err != nil {
		return nil, err
	}
	began = time.Now()
	f["stop in order"] = began.Sub(asked).Seconds()
	took, err := t.up(ctx, 0)
	if err != nil {
		return nil, err
	}
	f["start after that: exec to first answer"] = took.Seconds()
	if err := awaitAll(ctx, t.addrs[0], topics); err != nil {
		return nil, err
	}
	f["the same: exec to a serving leader for every partition"] = time.Since(began).Seconds()
	if err := pause(ctx, 10*time.Second); err != nil {
		return nil, err
	}
	mem, err1 := t.rss()
	fds, err2 := openFilesOf(t.pids[0])
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	f["memory after the start (RSS)"], f["open files after the start"] = mem, float64(fds)
	if err := produceEach(t.addrs[0], topics); err != nil {
		return nil, err
	}
	if err := pause(ctx, 10*time.Second); err != nil { // checkpoints are written meanwhile
		return nil, err
	}
	mem, err1 = t.rss()
	fds, err2 = openFilesOf(t.pids[0])
	maps, err3 := mapsOf(t.pids[0])
	before, err4 := t.cpu()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	f["memory after another round of produces (RSS)"] = mem
	f["the same, a partition, beyond the empty broker"] = (mem - empty) * 1000 / float64(parts)
	f["open files after the round"], f["memory maps after the round"] = float64(fds), float64(maps)
	if err := pause(ctx, idleTime); err != nil {
		return nil, err
	}
	after, err := t.cpu()
	f["idle CPU"] = 100 * (after - before).Seconds() / idleTime.Seconds()
	return f, err
}

// awaitAll waits until the broker serves every partition as its leader: it is asked
// for their ends, as a consumer would.
func awaitAll(ctx context.Context, addr string, topics []string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, topic := range topics {
		req := kmsg.NewPtrListOffsetsRequest()
		req.SetVersion(1)
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		for p := range int32(perTopic) {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		for deadline := time.Now().Add(restartLimit); ; {
			resp, err := c.do(req)
			if err != nil {
				return err
			}
			err = nil
			for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
				if p.ErrorCode != 0 {
					err = fmt.Errorf("%s-%d: %w", topic, p.Partition, kerr.ErrorForCode(p.ErrorCode))
				}
			}
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return err
			}
			if err := pause(ctx, 5*time.Millisecond); err != nil { // leadership has no event to await
				return err
			}
		}
	}
	return nil
}

// produceEach writes one record of 1 KiB to every partition, a topic a request.
func produceEach(addr string, topics []string) error {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer c.Close()
	batch, err := recordbatch.Build(recordbatch.NoProducer(), []recordbatch.Record{{Timestamp: time.Now().UnixMilli(), Value: bytes.Repeat([]byte{'x'}, recordSize)}})
	if err != nil {
		return err
	}
	for _, topic := range topics {
		req := kmsg.NewPtrProduceRequest()
		req.SetVersion(8)
		req.Acks, req.TimeoutMillis = 1, 30_000
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = topic
		for p := range int32(perTopic) {
			rp := kmsg.NewProduceRequestTopicPartition()
			rp.Partition, rp.Records = p, batch
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		resp, err := c.do(req)
		if err != nil {
			return err
		}
		for _, p := range resp.(*kmsg.ProduceResponse).Topics[0].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", topic, p.Partition, err)
			}
		}
	}
	return nil
}

func openFilesOf(pid int) (int, error) {
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(es), err
}

func mapsOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return bytes.Count(b, []byte{'\n'}), err
}
