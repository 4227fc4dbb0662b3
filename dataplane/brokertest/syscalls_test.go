package brokertest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// traced starts one broker under strace and returns the cluster and the trace.
func traced(t *testing.T, args ...string) (c *Cluster, trace string) {
	t.Helper()
	if _, err := exec.LookPath("strace"); err != nil {
		t.Fatal("strace is missing; install it: apt-get install strace")
	}
	trace = filepath.Join(t.TempDir(), "trace")
	return Start(t, Options{Wrap: append([]string{"strace", "-f", "-o", trace}, args...)}), trace
}

func fill(t *testing.T, c *Cluster, topic string, records, size int) (bytes int64) {
	t.Helper()
	hook := &producedBytes{}
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.WithHooks(hook), kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range records {
		cl.Produce(ctx, &kgo.Record{Value: []byte(strings.Repeat(string(rune('a'+i%26)), size))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return hook.n.Load()
}

// producedBytes counts on the client's goroutines, one a broker.
type producedBytes struct{ n atomic.Int64 }

func (h *producedBytes) OnProduceBatchWritten(_ kgo.BrokerMetadata, _ string, _ int32, m kgo.ProduceBatchMetrics) {
	h.n.Add(int64(m.CompressedBytes))
}

func drain(t *testing.T, c *Cluster, topic string, records int) {
	t.Helper()
	cl := c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := 0; n < records; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		n += f.NumRecords()
	}
}

// lines of a trace, with the halves of interrupted calls joined.
func calls(t *testing.T, trace string) []string {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	pending := map[string]string{}
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		pid, call, _ := strings.Cut(s.Text(), " ")
		call = strings.TrimSpace(call)
		if head, ok := strings.CutSuffix(call, " <unfinished ...>"); ok {
			pending[pid] = head
			continue
		}
		if strings.HasPrefix(call, "<... ") {
			_, rest, _ := strings.Cut(call, "resumed>")
			call = pending[pid] + rest
		}
		out = append(out, call)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFetchedBytesLeaveBySendfile counts, in the kernel's own words, how the
// record bytes of plaintext fetches leave the broker.
func TestFetchedBytesLeaveBySendfile(t *testing.T) {
	c, trace := traced(t, "-e", "trace=sendfile,write,writev,sendto,sendmsg")
	c.CreateTopic("records", 4, 1)
	const records = 20_000
	produced := fill(t, c, "records", records, 1000)
	c.Brokers[0].Signal(syscall.SIGCONT) // nothing but a mark of time in the trace
	drain(t, c, "records", records)
	c.Brokers[0].Kill()

	var bySendfile int64
	done := regexp.MustCompile(`^sendfile\(.* = (\d+)$`)
	for _, call := range calls(t, trace) {
		if m := done.FindStringSubmatch(call); m != nil {
			n, _ := strconv.ParseInt(m[1], 10, 64)
			bySendfile += n
		}
	}
	share := float64(bySendfile) / float64(produced)
	t.Logf("%d record bytes produced, %d left by sendfile: %.2f %%", produced, bySendfile, 100*share)
	if share < 0.95 {
		t.Errorf("only %.1f %% of the record bytes left by sendfile", 100*share)
	}
}

// TestProducedBytesAreCopiedAtMostOnceInUserSpace shows that what is written to
// the log is written from the very memory that the socket was read into. Only a
// frame's first bytes, at most 4 KiB, come by way of the connection's small read
// buffer, in which they are copied once: counted here is what part of each
// pwrite64's range read has filled directly, and that the rest stays below that.
func TestProducedBytesAreCopiedAtMostOnceInUserSpace(t *testing.T) {
	c, trace := traced(t, "-e", "trace=read,pwrite64,pwritev", "-e", "raw=read,pwrite64,pwritev")
	c.CreateTopic("records", 1, 1)
	produced := fill(t, c, "records", 5_000, 1000)
	c.Brokers[0].Kill()

	const readBuffer = 4 << 10
	type span struct{ from, to uint64 }
	var filled []span // since the last write of records
	arg := regexp.MustCompile(`^(read|pwrite64)\(0x[0-9a-f]+, (0x[0-9a-f]+), (0x[0-9a-f]+).*= (0x[0-9a-f]+)$`)
	num := func(s string) uint64 { n, _ := strconv.ParseUint(s, 0, 64); return n }
	var written, direct uint64
	for _, call := range calls(t, trace) {
		m := arg.FindStringSubmatch(call)
		if m == nil {
			continue
		}
		s := span{num(m[2]), num(m[2]) + num(m[4])}
		if m[1] == "read" {
			filled = append(filled, s)
			continue
		}
		if s.to-s.from < 1000 {
			continue // indexes and checkpoints
		}
		var here uint64
		for _, f := range filled {
			if from, to := max(f.from, s.from), min(f.to, s.to); from < to {
				here += to - from
			}
		}
		written, direct = written+s.to-s.from, direct+here
		if rest := s.to - s.from - here; rest > readBuffer {
			t.Errorf("of a write of %d bytes, %d were not read into their place", s.to-s.from, rest)
		}
		filled = nil
	}
	t.Logf("%d record bytes produced, %d written, %d of them never copied in user space (%.1f %%)", produced, written, direct, 100*float64(direct)/float64(written))
	if written < uint64(produced) {
		t.Errorf("%d bytes produced, but only %d seen written", produced, written)
	}
}
