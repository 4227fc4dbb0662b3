//go:build compat

package brokertest

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// TestBlackBoxOfApacheKafka holds the black-box suite against the broker
// whose behaviour it describes.
func TestBlackBoxOfApacheKafka(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	k, err := apache.Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("suite", func(t *testing.T) { runBlackBox(t, &target{addr: k.Addr, kafka: true}) })
}

// TestBlackBoxOfApacheKafkaCluster holds the part of it that takes more than one
// broker against three of Kafka.
func TestBlackBoxOfApacheKafkaCluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	all, err := apache.StartCluster(ctx, t.TempDir(), 3, clusterSettings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, k := range all { // a quorum does not end in order one by one
			k.Kill()
			_ = k.Stop()
		}
	})
	tr := &trio{target: target{kafka: true}, addrs: map[int32]string{}, pids: map[int32]func() int{}}
	for i, k := range all {
		id := int32(i + 1)
		tr.ids = append(tr.ids, id)
		tr.addrs[id], tr.pids[id] = k.Addr, k.PID
	}
	runBlackBoxCluster(t, tr)
}

// TestKafkaReadsOurLogs lets a cluster of small segments go through kills,
// a frozen leader and restarts, with groups and every codec, stops it in order,
// and has Kafka's own tool walk every segment and index.
func TestKafkaReadsOurLogs(t *testing.T) {
	c := threeBrokers(t, "log.segment.bytes=60000", "log.index.interval.bytes=500", "offsets.topic.segment.bytes=60000")
	c.CreateTopic("ledger", 3, 3, "min.insync.replicas=2")
	l := startLoad(c, "ledger")
	l.goesOn(3000, 60*time.Second)
	for _, codec := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		cl := c.Client(kgo.DefaultProduceTopic("packed"), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codec))
		for range 50 {
			var rs []*kgo.Record
			for range 20 {
				rs = append(rs, kgo.StringRecord(strings.Repeat("packed ", 50)))
			}
			if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	group := c.Client(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("packed"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for n := 0; n < 4000; {
		n += group.PollFetches(context.Background()).NumRecords()
		if err := group.CommitUncommittedOffsets(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	group.Close()
	old := c.leader("ledger", 0)
	c.Brokers[old].freeze()
	c.awaitLeader("ledger", 0, old)
	c.Brokers[old].thaw()
	c.AwaitWhole("ledger", time.Minute)
	for _, n := range c.Brokers {
		n.Kill()
		l.goesOn(1000, time.Minute)
		n.Start()
		c.AwaitWhole("ledger", time.Minute)
	}
	l.goesOn(3000, time.Minute)
	l.end(t)
	c.inParallel((*Node).Stop)

	var logs, indexes, snapshots []string
	for _, n := range c.Brokers {
		for pattern, list := range map[string]*[]string{"*.log": &logs, "*.index": &indexes, "*.timeindex": &indexes, "*.snapshot": &snapshots} {
			files, err := filepath.Glob(filepath.Join(n.LogDir, "*", pattern))
			if err != nil {
				t.Fatal(err)
			}
			*list = append(*list, files...)
		}
	}
	if len(logs) < 30 || len(indexes) < 60 {
		t.Fatalf("only %d segments and %d indexes", len(logs), len(indexes))
	}
	good := func(mode string, files []string, wanted func(string) bool) int {
		n, complaints := dumped(t, mode, files, wanted)
		for _, line := range complaints[:min(len(complaints), 10)] {
			t.Errorf("%s: %s", mode, line)
		}
		return n
	}
	isBatch := func(line string) bool { return strings.HasPrefix(line, "baseOffset: ") }
	batches := good("--deep-iteration", logs, isBatch)
	sane := good("--index-sanity-check", indexes, func(line string) bool { return strings.HasSuffix(line, " passed sanity check.") })
	if want := count(indexes, ".index"); sane < want {
		t.Errorf("%d of %d offset indexes passed", sane, want)
	}
	// Without the check the tool compares each entry of an index with its log.
	good("--verify-index-only", indexes, func(string) bool { return false })
	if producers := good("--deep-iteration", snapshots, func(line string) bool { return strings.HasPrefix(line, "producerId: ") }); producers == 0 {
		t.Error("no producer is in any snapshot")
	}
	offsets := slices.DeleteFunc(slices.Clone(logs), func(l string) bool { return !strings.Contains(l, "__consumer_offsets-") })
	if commits := good("--offsets-decoder", offsets, func(line string) bool { return strings.Contains(line, "readers") }); commits == 0 {
		t.Error("no record of the group is decoded")
	}
	t.Logf("Kafka's tool read %d batches in %d segments, and %d indexes", batches, len(logs), len(indexes))
	if batches < 500 {
		t.Errorf("only %d batches", batches)
	}

	// The tool's word is worth something only if it notices damage.
	for _, suffix := range []string{".log", ".index"} {
		mode := "--deep-iteration"
		if suffix == ".index" {
			mode = "--verify-index-only"
		}
		if _, complaints := dumped(t, mode, []string{damagedCopy(t, logs, suffix)}, isBatch); len(complaints) == 0 {
			t.Errorf("a damaged %s is found to be in order", suffix)
		}
	}
}

// damagedCopy copies the largest segment that has index entries, with its
// index, and damages one of the two.
func damagedCopy(t *testing.T, logs []string, suffix string) string {
	t.Helper()
	var from string
	var size int64
	for _, l := range logs {
		index, err := os.Stat(strings.TrimSuffix(l, ".log") + ".index")
		if err != nil {
			t.Fatal(err)
		}
		if index.Size() > size {
			from, size = strings.TrimSuffix(l, ".log"), index.Size()
		}
	}
	to := filepath.Join(t.TempDir(), filepath.Base(from))
	for _, s := range []string{".log", ".index"} {
		b, err := os.ReadFile(from + s)
		if err != nil {
			t.Fatal(err)
		}
		if s == suffix {
			b[3*len(b)/4&^7+3] ^= 0x15 // within an entry's offset, within some batch
		}
		if err := os.WriteFile(to+s, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to + suffix
}

func count(files []string, suffix string) (n int) {
	for _, f := range files {
		if strings.HasSuffix(f, suffix) {
			n++
		}
	}
	return n
}

// dumped runs Kafka 3.9's dump-log over files, counts the lines that are wanted
// and returns those that complain.
func dumped(t *testing.T, mode string, files []string, wanted func(string) bool) (n int, complaints []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd, err := apache.Tool(ctx, apache.V39, "dump-log", nil, mode, "--files", strings.Join(files, ","))
	if err != nil {
		t.Fatal(err)
	}
	out, runErr := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if wanted(line) {
			n++
		}
		low := strings.ToLower(line)
		for _, bad := range []string{"mismatch", "non-consecutive", "non-secutive", "out of order", "could not", "exception", "corrupt", "isvalid: false", "entries beyond", "truncated", "not found"} {
			if strings.Contains(low, bad) {
				complaints = append(complaints, line)
				break
			}
		}
	}
	if runErr != nil {
		complaints = append(complaints, runErr.Error())
	}
	return n, complaints
}
