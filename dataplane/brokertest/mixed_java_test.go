//go:build compat

package brokertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/dataplane/brokertest/apache"
)

// javaClients are Java's producer and consumer at work: Kafka's verifiable tools,
// which tell of every record in a line of JSON.
type javaClients struct {
	c     *Cluster
	t     *testing.T
	topic string

	producer, consumer *exec.Cmd
	ended              sync.WaitGroup // of the lines of both

	mu       sync.Mutex
	acked    map[string]bool
	consumed map[string]int
	again    int // records that the group was given more than once
}

// javaEvent is such a line.
type javaEvent struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Success *bool  `json:"success"`
	Error   string `json:"error"`
	Message string `json:"message"`
}

// startJava starts an idempotent acks=all producer, with the settings that a
// producer of Java has if none are given, and a group of one that reads what it
// writes.
func startJava(c *Cluster, t *testing.T, version, topic string) *javaClients {
	t.Helper()
	j := &javaClients{c: c, t: t, topic: topic, acked: map[string]bool{}, consumed: map[string]int{}}
	config := filepath.Join(c.Dir, "producer.properties") // the tool forbids retries otherwise
	if err := os.WriteFile(config, []byte("retries=2147483647\nenable.idempotence=true\nacks=all\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	servers := strings.Join(c.Bootstrap(), ",")
	j.producer = j.run(version, "verifiable-producer", "--bootstrap-server", servers, "--topic", topic, "--throughput", "400", "--acks", "-1", "--producer.config", config)
	j.consumer = j.run(version, "verifiable-consumer", "--bootstrap-server", servers, "--topic", topic, "--group-id", "java", "--reset-policy", "earliest", "--verbose")
	return j
}

func (j *javaClients) run(version, tool string, args ...string) *exec.Cmd {
	j.t.Helper()
	cmd, err := apache.Tool(context.Background(), version, tool, []string{"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}, args...)
	if err != nil {
		j.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		j.t.Fatal(err)
	}
	said := &strings.Builder{}
	cmd.Stderr = said
	cmd.SysProcAttr = nil // the death signal goes by a thread that may end earlier
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = cmd.Process.Kill() })
	j.ended.Go(func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e javaEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				continue
			}
			j.note(e)
		}
		_ = cmd.Wait()
		if said.Len() > 0 {
			j.t.Errorf("Java's %s says:\n%.2000s", tool, said)
		}
	})
	return cmd
}

func (j *javaClients) note(e javaEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e.Name {
	case "producer_send_success":
		j.acked[e.Value] = true
	case "producer_send_error":
		j.t.Errorf("Java's producer gives up %s: %s", e.Value, e.Message)
	case "record_data":
		if j.consumed[e.Value]++; j.consumed[e.Value] > 1 {
			j.again++
		}
	case "offsets_committed":
		if e.Success != nil && !*e.Success {
			j.t.Logf("a commit of Java's consumer failed: %s", e.Error)
		}
	}
}

// goesOn waits for n more acknowledged records, and for the group to have read as many.
func (j *javaClients) goesOn(n int) {
	j.t.Helper()
	j.mu.Lock()
	acked, consumed := len(j.acked)+n, len(j.consumed)+n
	j.mu.Unlock()
	Await(j.t, 2*time.Minute, "Java's clients at work", func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if len(j.acked) < acked || len(j.consumed) < consumed {
			return fmt.Errorf("%d of %d written, %d of %d read", len(j.acked), acked, len(j.consumed), consumed)
		}
		return nil
	})
}

// end stops the producer and checks that all it was told is there once and in
// order, and that the group has read it.
func (j *javaClients) end() {
	j.t.Helper()
	_ = j.producer.Process.Signal(syscall.SIGTERM)
	Await(j.t, 2*time.Minute, "Java's group has read everything", func() error {
		j.mu.Lock()
		defer j.mu.Unlock()
		for v := range j.acked {
			if j.consumed[v] == 0 {
				return fmt.Errorf("not record %s", v)
			}
		}
		return nil
	})
	_ = j.consumer.Process.Signal(syscall.SIGTERM)
	j.ended.Wait()
	j.c.AwaitWhole(j.topic, time.Minute)
	cl := j.c.Client(kgo.ConsumeTopics(j.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	seen, last := map[string]bool{}, map[int32]int{}
	for missing := len(j.acked); missing > 0; {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			j.t.Fatalf("%d of %d records of Java's producer are missing: %v", missing, len(j.acked), err)
		}
		f.EachRecord(func(r *kgo.Record) {
			v := string(r.Value)
			n, err := strconv.Atoi(v)
			if err != nil || seen[v] || len(seen) > 0 && n <= last[r.Partition] && last[r.Partition] > 0 {
				j.t.Errorf("partition %d, offset %d: record %s after %d, seen before: %v", r.Partition, r.Offset, v, last[r.Partition], seen[v])
			}
			if seen[v], last[r.Partition] = true, n; j.acked[v] {
				missing--
			}
		})
	}
	j.t.Logf("Java's producer had %d records acknowledged, all there once and in order; its group read all, %d again after a rebalance", len(j.acked), j.again)
	// Kafka's leader notes its epoch when it takes over, a follower with the first record.
	j.c.put(j.topic, 2, 1)
	j.c.sameLogs(j.topic)
}
