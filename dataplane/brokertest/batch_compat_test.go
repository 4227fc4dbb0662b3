//go:build compat

package brokertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"

	"penstock/dataplane/recordbatch"
)

// TestKafkaReadsOurLogsOfEveryCodec has our broker compress to every codec at its
// least, its default and its highest level, and take batches that are compressed in
// odd but good ways, and has Kafka's own tool unfold every record of them.
func TestKafkaReadsOurLogsOfEveryCodec(t *testing.T) {
	c := Start(t, Options{})
	b := &target{addr: c.Brokers[0].Addr, run: "c"}
	w := b.dial(t)
	want := 0
	send := func(topic string, bytes []byte, n int) {
		t.Helper()
		if p := produce(w, topic, bytes); p.ErrorCode != 0 {
			t.Fatalf("%d: %v", p.ErrorCode, p.ErrorMessage)
		}
		want += n
	}
	for codec, levels := range map[string][]string{"uncompressed": {""}, "snappy": {""}, "gzip": {"1", "-1", "9"}, "lz4": {"1", "9", "17"}, "zstd": {"-7", "3", "22"}} {
		for _, level := range levels {
			settings := []string{"compression.type=" + codec}
			if level != "" {
				settings = append(settings, fmt.Sprintf("compression.%s.level=%s", codec, level))
			}
			topic := b.topic(t, 1, settings...)
			for from := recordbatch.CodecNone; from <= recordbatch.CodecZstd; from++ {
				o := recordbatch.NoProducer()
				o.Codec = from
				send(topic.name, build(t, o, records(strings.Repeat("some value ", 20_000), "b", "")), 3)
			}
		}
	}
	odd := b.topic(t, 1)
	p := body(t, 400)
	send(odd.name, packed(t, recordbatch.CodecGzip, 400, append(gzipped(p[:999]), gzipped(p[999:])...)), 400)
	send(odd.name, packed(t, recordbatch.CodecSnappy, 400, s2.EncodeSnappyBest(nil, p)), 400)
	send(odd.name, packed(t, recordbatch.CodecZstd, 400, append(zstdFrame(t, p[:999]), zstdFrame(t, p[999:])...)), 400)
	c.Brokers[0].Stop()

	logs, err := filepath.Glob(filepath.Join(c.Brokers[0].LogDir, "topic-*", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	got, complaints := dumped(t, "--deep-iteration", logs, func(line string) bool { return strings.HasPrefix(line, "| offset: ") })
	if got != want || len(complaints) > 0 {
		t.Errorf("Kafka reads %d of %d records in %d logs; %q", got, want, len(logs), complaints)
	}
}
