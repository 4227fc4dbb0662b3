package brokertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	scaleTopics   = 5
	scalePerTopic = 100
	scaleFiles    = 60 // penstock.log.open.files.max
)

// TestScaleOneBrokerWithManyPartitions: five hundred partitions with data in each
// are there again after a stop in order, and neither descriptors nor maps nor memory
// grow with their number. How fast is for the benchmark to say: make bench
// ARGS=-partitions.
func TestScaleOneBrokerWithManyPartitions(t *testing.T) {
	c := Start(t, Options{Settings: []string{fmt.Sprintf("penstock.log.open.files.max=%d", scaleFiles)}})
	n := c.Brokers[0]
	empty := residentKB(t, n)
	files := descriptors(t, n)
	var topics []string
	for i := range scaleTopics {
		topics = append(topics, fmt.Sprintf("scale-%d", i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := kadm.NewClient(c.Client()).CreateTopics(ctx, scalePerTopic, 1, nil, topics...); err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		c.AwaitWhole(topic, time.Minute)
	}
	for round := range 2 {
		produceToEach(t, c, topics, round)
		checkEach(t, c, topics, round+1)
		// On top of the logs' files come connections and what is open for a moment.
		if now := descriptors(t, n); now > files+scaleFiles+50 {
			t.Errorf("%d descriptors with %d partitions, %d without; logs may have %d", now, len(topics)*scalePerTopic, files, scaleFiles)
		}
		if maps := mapsOfIndexes(t, n); maps > 0 {
			t.Errorf("%d memory maps of files in the log folder", maps)
		}
		n.Stop()
		n.Start()
		for _, topic := range topics {
			c.AwaitWhole(topic, time.Minute)
		}
		if now := descriptors(t, n); now > files+50 {
			t.Errorf("%d descriptors after a start, %d without partitions: files of logs that nobody has used", now, files)
		}
	}
	checkEach(t, c, topics, 2)
	// Seen: 3 MB, as much as the garbage of a start. 20 KB each would be 10 MB.
	if grown := residentKB(t, n) - empty; grown > 40<<10 {
		t.Errorf("%d partitions take %d KB", len(topics)*scalePerTopic, grown)
	}
}

func produceToEach(t *testing.T, c *Cluster, topics []string, round int) {
	t.Helper()
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var rs []*kgo.Record
	for _, topic := range topics {
		for p := range int32(scalePerTopic) {
			rs = append(rs, &kgo.Record{Topic: topic, Partition: p, Value: fmt.Appendf(nil, "%s-%d-%d", topic, p, round)})
		}
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// checkEach reads every partition from its start.
func checkEach(t *testing.T, c *Cluster, topics []string, rounds int) {
	t.Helper()
	at := map[string]map[int32]kgo.Offset{}
	for _, topic := range topics {
		at[topic] = map[int32]kgo.Offset{}
		for p := range int32(scalePerTopic) {
			at[topic][p] = kgo.NewOffset().At(0)
		}
	}
	cl := c.Client(kgo.ConsumePartitions(at))
	defer cl.Close() // or it goes on fetching, after a start of the broker too
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	next := map[string]int64{}
	for read := 0; read < len(topics)*scalePerTopic*rounds; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			t.Fatalf("after %d records: %v", read, err)
		}
		fs.EachError(func(topic string, p int32, err error) {
			if kerr.IsRetriable(err) {
				return
			}
			t.Fatalf("%s-%d: %v", topic, p, err)
		})
		fs.EachRecord(func(r *kgo.Record) {
			tp := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			if want := fmt.Sprintf("%s-%d", tp, next[tp]); r.Offset != next[tp] || string(r.Value) != want {
				t.Fatalf("%s at %d: %q, want %q at %d", tp, r.Offset, r.Value, want, next[tp])
			}
			next[tp]++
			read++
		})
	}
}

func descriptors(t *testing.T, n *Node) int {
	t.Helper()
	es, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

func mapsOfIndexes(t *testing.T, n *Node) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte(filepath.Clean(n.LogDir)+"/"))
}

func residentKB(t *testing.T, n *Node) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.PID()))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() / 1024
}
