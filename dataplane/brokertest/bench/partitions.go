package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination/zktest"
	"penstock/dataplane/recordbatch"
	"penstock/internal/ports"
)

const (
	perTopic  = 100
	idleTime  = 20 * time.Second
	startTime = 3 * time.Minute // what either make may take to stop or to start
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

// single is one broker that can be restarted on its folder.
type single interface {
	address() string
	pid() int
	// restart stops it in order and starts it; took is from exec to the first answer.
	restart(ctx context.Context) (began time.Time, took time.Duration, err error)
	stop() error
}

// manyPartitions measures Kafka with 2,000 partitions beside ours with as many and
// with 10,000.
func manyPartitions(ctx context.Context, o options, only string) error {
	type column struct {
		name  string
		parts int
		start func(ctx context.Context, o options, dir string) (single, error)
		got   figures
	}
	var columns []*column
	for _, c := range []*column{
		{name: "kafka", parts: 2000, start: singleKafka},
		{name: "penstock", parts: 2000, start: singlePenstock},
		{name: "penstock", parts: 10_000, start: singlePenstock},
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
		b, err := c.start(ctx, o, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		c.got, err = measureMany(ctx, b, c.parts)
		if err = errors.Join(err, b.stop()); err != nil {
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

func measureMany(ctx context.Context, b single, parts int) (figures, error) {
	f := figures{}
	if err := pause(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	empty, err := memoryOf(b.pid())
	if err != nil {
		return nil, err
	}
	f["memory of an empty broker (RSS)"] = empty
	began := time.Now()
	topics := make([]string, parts/perTopic)
	for i := range topics {
		topics[i] = fmt.Sprintf("many-%03d", i)
	}
	t := &target{addrs: []string{b.address()}}
	for _, topic := range topics {
		if err := createTopic(t, topic, perTopic, nil); err != nil {
			return nil, err
		}
	}
	if err := awaitAll(ctx, b.address(), topics); err != nil {
		return nil, err
	}
	f["create all, until each has a leader that serves"] = time.Since(began).Seconds()
	began = time.Now()
	if err := produceEach(b.address(), topics); err != nil {
		return nil, err
	}
	f["first round of produces, one record to each"] = time.Since(began).Seconds()

	asked := time.Now()
	began, took, err := b.restart(ctx)
	if err != nil {
		return nil, err
	}
	f["stop in order"] = began.Sub(asked).Seconds()
	f["start after that: exec to first answer"] = took.Seconds()
	if err := awaitAll(ctx, b.address(), topics); err != nil {
		return nil, err
	}
	f["the same: exec to a serving leader for every partition"] = time.Since(began).Seconds()
	if err := pause(ctx, 10*time.Second); err != nil {
		return nil, err
	}
	mem, err1 := memoryOf(b.pid())
	fds, err2 := openFilesOf(b.pid())
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	f["memory after the start (RSS)"], f["open files after the start"] = mem, float64(fds)
	if err := produceEach(b.address(), topics); err != nil {
		return nil, err
	}
	if err := pause(ctx, 10*time.Second); err != nil { // checkpoints are written meanwhile
		return nil, err
	}
	mem, err1 = memoryOf(b.pid())
	fds, err2 = openFilesOf(b.pid())
	maps, err3 := mapsOf(b.pid())
	before, err4 := processCPU(b.pid())
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	f["memory after another round of produces (RSS)"] = mem
	f["the same, a partition, beyond the empty broker"] = (mem - empty) * 1000 / float64(parts)
	f["open files after the round"], f["memory maps after the round"] = float64(fds), float64(maps)
	if err := pause(ctx, idleTime); err != nil {
		return nil, err
	}
	after, err := processCPU(b.pid())
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
		for deadline := time.Now().Add(startTime); ; {
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

func memoryOf(pid int) (float64, error) { return (&target{pids: []int{pid}}).rss() }

func openFilesOf(pid int) (int, error) {
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(es), err
}

func mapsOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	return bytes.Count(b, []byte{'\n'}), err
}

type kafkaBroker struct{ *apache.Broker }

func singleKafka(ctx context.Context, _ options, dir string) (single, error) {
	b, err := apache.Start(ctx, dir)
	return kafkaBroker{b}, err
}

func (b kafkaBroker) address() string { return b.Addr }
func (b kafkaBroker) pid() int        { return b.PID() }
func (b kafkaBroker) stop() error     { return b.Stop() }

func (b kafkaBroker) restart(ctx context.Context) (time.Time, time.Duration, error) {
	err := b.Restart(ctx, startTime)
	return time.Now().Add(-b.Started), b.Started, err
}

type penstockBroker struct {
	binary, home, addr string
	cmd                *exec.Cmd
	zk                 *zktest.Server
	free               ports.Pool
}

func singlePenstock(ctx context.Context, o options, dir string) (single, error) {
	b := &penstockBroker{binary: o.broker, home: filepath.Join(dir, "penstock-0")}
	port, err := b.free.Any()
	if err != nil {
		return nil, err
	}
	b.addr = fmt.Sprintf("127.0.0.1:%d", port)
	if b.zk, err = zktest.Start(); err != nil {
		return nil, err
	}
	text := fmt.Sprintf("broker.id=0\nlisteners=PLAINTEXT://%[1]s\nadvertised.listeners=PLAINTEXT://%[1]s\nlog.dirs=%[2]s\nzookeeper.connect=%[3]s/bench\noffsets.topic.replication.factor=1\n",
		b.addr, filepath.Join(b.home, "data"), b.zk.Addr())
	if err = os.MkdirAll(b.home, 0o755); err == nil {
		err = os.WriteFile(propertiesOf(b.home), []byte(text), 0o600)
	}
	if err == nil {
		b.cmd, _, err = launchPenstock(ctx, b.binary, b.home, b.addr)
	}
	if err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, awaitMetadata(b.addr, "", func(m *kmsg.MetadataResponse) bool { return m.ControllerID >= 0 })
}

func (b *penstockBroker) address() string { return b.addr }
func (b *penstockBroker) pid() int        { return b.cmd.Process.Pid }

func (b *penstockBroker) end() error {
	if b.cmd == nil {
		return nil
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(startTime, func() { _ = b.cmd.Process.Kill() })
	defer kill.Stop()
	return b.cmd.Wait()
}

func (b *penstockBroker) restart(ctx context.Context) (time.Time, time.Duration, error) {
	if err := b.end(); err != nil {
		return time.Time{}, 0, err
	}
	cmd, took, err := launchPenstock(ctx, b.binary, b.home, b.addr)
	b.cmd = cmd
	return time.Now().Add(-took), took, err
}

func (b *penstockBroker) stop() error {
	err := b.end()
	b.zk.Stop()
	b.free.Release()
	return err
}
