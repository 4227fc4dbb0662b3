package meter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/dataplane/protocol"
	"penstock/tenants/usage"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("METER_TEST_CHILD"); dir != "" {
		child(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

// topic is a usage topic in memory.
type topic struct {
	mu      sync.Mutex
	records []*usage.Record
	raw     [][]byte
	fail    error
	grown   chan struct{}
}

func newTopic() *topic { return &topic{grown: make(chan struct{}, 1)} }

func (t *topic) publish(_ context.Context, _, value []byte) error {
	r, err := usage.Decode(value)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.fail != nil {
		err = t.fail
	}
	if err != nil {
		return err
	}
	t.records = append(t.records, r)
	t.raw = append(t.raw, append([]byte(nil), value...))
	select {
	case t.grown <- struct{}{}:
	default:
	}
	return nil
}

func (t *topic) setFail(err error) { t.mu.Lock(); t.fail = err; t.mu.Unlock() }

// sum adds up the topic as billing does: greatest value of each boot, over boots.
func (t *topic) sum(principal string, d usage.Direction) (bytes, records, requests int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	type boot struct {
		broker int32
		epoch  int64
	}
	best := map[boot]usage.Entry{}
	for _, r := range t.records {
		for _, e := range r.Entries {
			if e.Principal == principal && e.Direction == d {
				k := boot{r.Broker, r.BootEpoch}
				b := best[k]
				best[k] = usage.Entry{Bytes: max(b.Bytes, e.Bytes), Records: max(b.Records, e.Records), Requests: max(b.Requests, e.Requests)}
			}
		}
	}
	for _, e := range best {
		bytes, records, requests = bytes+e.Bytes, records+e.Records, requests+e.Requests
	}
	return
}

func (t *topic) await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-t.grown:
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			tb.Fatalf("no %s", what)
		}
	}
}

func open(tb testing.TB, dir string, t *topic, change ...func(*Config)) *Meter {
	tb.Helper()
	cfg := Config{Dir: dir, Broker: 3, Cluster: "clu", Interval: time.Millisecond, Publish: t.publish}
	for _, f := range change {
		f(&cfg)
	}
	m, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

// kill leaves the file as a killed process does: nothing more is published.
func kill(m *Meter) {
	if m.cancel != nil {
		m.cancel()
		<-m.done
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
}

func tp(topic string, p int32) protocol.TopicPartition {
	return protocol.TopicPartition{Topic: topic, Partition: p}
}

func wantUsage(tb testing.TB, m *Meter, principal string, d usage.Direction, bytes, records, requests int64) {
	tb.Helper()
	b, r, q := m.Usage(principal, d)
	if b != bytes || r != records || q != requests {
		tb.Fatalf("%s %s: %d bytes, %d records, %d requests; want %d, %d, %d", principal, d, b, r, q, bytes, records, requests)
	}
}

// The child of the kill tests: it appends, commits, truncates and fetches in
// small steps, and says on stdout what the meter must know after each.
type step struct{ Bytes, Records, Requests, OutBytes, Pending int64 }

func child(dir string) {
	m, err := Open(Config{Dir: dir, Broker: 3, Publish: func(context.Context, []byte, []byte) error { return errors.New("no topic") }, Interval: time.Hour})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := json.NewEncoder(os.Stdout)
	var s step
	part := tp("t", 0)
	for off := int64(0); ; off += 10 {
		m.Appended("User:a", part, off, off+9, 100, 10)
		s.Pending++
		out.Encode(s)
		switch {
		case off%30 == 20:
			m.Committed(part, off+10)
			s.Bytes, s.Records, s.Requests = s.Bytes+100*s.Pending, s.Records+10*s.Pending, s.Requests+s.Pending
			s.Pending = 0
		case off%70 == 60:
			m.Truncated(part, off)
			s.Pending--
		}
		m.Fetched("User:a", 7, 0)
		s.OutBytes += 7
		out.Encode(s)
	}
}

func startChild(tb testing.TB, dir string) (*exec.Cmd, *bufio.Scanner) {
	tb.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "METER_TEST_CHILD="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func finalFiles(tb testing.TB, dir string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(dir, finalPrefix+"*"))
	if err != nil {
		tb.Fatal(err)
	}
	return files
}
