//go:build compat

package brokertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// Kafka's own tool reads what our cleaner leaves: batches built anew with each codec,
// emptied ones, tombstones with their horizon; and finds the indexes sane.
func TestCleanerSegmentsAreReadByKafka(t *testing.T) {
	c := Start(t, Options{Brokers: 1, Settings: []string{"log.cleaner.backoff.ms=20", "log.cleaner.dedupe.buffer.size=1048576"}})
	const topic = "compacted"
	c.CreateTopic(topic, 1, 1, "cleanup.policy=compact", "segment.bytes=3000", "min.cleanable.dirty.ratio=0.01", "index.interval.bytes=100", "file.delete.delay.ms=100")
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, codec := range codecs {
		cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(20*time.Millisecond))
		for round := range 12 {
			var rs []*kgo.Record
			for k := range 20 {
				rs = append(rs, &kgo.Record{Key: fmt.Appendf(nil, "key %d of %d", k*(round%3+1), i), Value: fmt.Appendf(nil, "%d %s", round, strings.Repeat("v", 40))})
			}
			if round%4 == 0 {
				rs = append(rs, &kgo.Record{Key: fmt.Appendf(nil, "gone %d of %d", round, i)})
			}
			if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	last := c.Client(kgo.DefaultProduceTopic(topic)) // leaves nothing of the first producer's last batch
	for k := range 20 {
		for range 10 {
			if err := last.ProduceSync(ctx, &kgo.Record{Key: fmt.Appendf(nil, "key %d of 0", k*3), Value: []byte(strings.Repeat("w", 100))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := c.Brokers[0]
	var files []string
	Await(t, time.Minute, "the topic to be compacted", func() (err error) {
		if files, err = filepath.Glob(filepath.Join(n.LogDir, topic+"-0", "*.log")); err != nil {
			return err
		}
		checkpoint, err := os.ReadFile(filepath.Join(n.LogDir, "cleaner-offset-checkpoint"))
		if err != nil {
			return err
		}
		active := strings.TrimLeft(strings.TrimSuffix(filepath.Base(files[len(files)-1]), ".log"), "0")
		if want := topic + " 0 " + active + "\n"; !strings.HasSuffix(string(checkpoint), want) {
			return fmt.Errorf("checkpoint is %q, want %q", checkpoint, want)
		}
		return nil
	})
	n.Stop()
	dump := func(files []string, args ...string) string {
		t.Helper()
		cmd, err := apache.Tool(ctx, apache.V39, "dump-log", nil, append(args, "--files", strings.Join(files, ","))...)
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("dump-log: %v\n%s", err, out)
		}
		return string(out)
	}
	logs := dump(files, "--deep-iteration", "--print-data-log")
	if strings.Contains(logs, "isvalid: false") || strings.Contains(logs, "Exception") {
		t.Errorf("Kafka finds fault with the log:\n%s", logs)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		if !regexp.MustCompile(`(?m)^baseOffset.*compresscodec: ` + codec + `\b.*isvalid: true`).MatchString(logs) {
			t.Errorf("no valid batch of codec %s", codec)
		}
	}
	for _, want := range []string{`count: 0 `, `deleteHorizonMs: OptionalLong\[\d+\]`} {
		if !regexp.MustCompile(want).MatchString(logs) {
			t.Errorf("no batch with %s in\n%s", want, logs)
		}
	}
	ours, _ := cleanerDump(logs)
	if len(ours) < 100 || !slices.IsSorted(ours) {
		t.Errorf("Kafka reads %d records: %v", len(ours), ours)
	}
	for _, suffix := range []string{"*.index", "*.timeindex"} {
		files, err := filepath.Glob(filepath.Join(n.LogDir, topic+"-0", suffix))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		out := dump(files, "--index-sanity-check")
		if strings.Contains(out, "Exception") || strings.Contains(out, "mismatch") || strings.Contains(out, "not monotonic") || strings.Contains(out, "Found ") {
			t.Errorf("Kafka finds fault with %s:\n%s", suffix, out)
		}
		if out = dump(files); strings.Contains(out, "mismatch") || strings.Contains(out, "out of order") || strings.Contains(out, "not found") {
			t.Errorf("Kafka finds fault with %s:\n%s", suffix, out)
		}
	}
}

// cleanerDump takes the offsets of the records out of the tool's lines.
func cleanerDump(out string) (offsets []int, lines int) {
	for _, m := range regexp.MustCompile(`(?m)^\| offset: (\d+) `).FindAllStringSubmatch(out, -1) {
		var n int
		_, _ = fmt.Sscan(m[1], &n)
		offsets = append(offsets, n)
		lines++
	}
	return offsets, lines
}
