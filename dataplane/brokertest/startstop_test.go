package brokertest

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
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// logged is what the broker has written to its log from position from on.
func (n *Node) logged(from int64) []byte {
	n.c.t.Helper()
	b, err := os.ReadFile(n.logFile())
	if err != nil {
		n.c.t.Fatal(err)
	}
	return b[from:]
}

// stopWhileStarting starts the broker, stops it at once when moment says so, and fails
// the test unless the end is in order: status 0, or, before the program has taken its
// signals over and thus before it has done anything, the signal itself.
func (n *Node) stopWhileStarting(what string, moment func(log func() []byte) bool) {
	t := n.c.t
	t.Helper()
	from := int64(len(n.logged(0)))
	n.start(nil)
	for !n.ended() && !moment(func() []byte { return n.logged(from) }) {
		time.Sleep(time.Millisecond / 4) // looks at the log as often
	}
	n.Signal(syscall.SIGTERM)
	select {
	case <-n.end:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: broker does not stop", what)
	}
	n.mu.Lock()
	err := n.err
	n.mu.Unlock()
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(n.logged(from)) == 0 {
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() && ws.Signal() == syscall.SIGTERM {
			err = nil
		}
	}
	if err != nil {
		t.Errorf("%s: broker ended with %v:\n%s", what, err, tail(n.logged(from), 2000))
	}
}

// A stop may come at any moment of a start. It ends in order, and leaves a folder that
// was clean clean: the start after it has nothing to recover.
func TestStartStopIsInOrderAtEveryMoment(t *testing.T) {
	c := Start(t, Options{Settings: []string{"num.recovery.threads.per.data.dir=1"}})
	n := c.Brokers[0]
	c.CreateTopic("t", 12, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(12) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "t", Partition: p, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	marker := filepath.Join(n.LogDir, ".kafka_cleanshutdown")
	wantClean := func(what string) {
		t.Helper()
		if _, err := os.Stat(marker); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	n.Stop()
	wantClean("after a stop")
	began := time.Now()
	n.Start()
	took := time.Since(began)
	n.Stop()
	from := int64(len(n.logged(0)))

	const moments = 24
	for i := range moments {
		at := took * time.Duration(i) / (moments - 4) // the last ones while it serves
		what := fmt.Sprintf("stopped after %v of a start of %v", at, took)
		began := time.Now()
		n.stopWhileStarting(what, func(func() []byte) bool { return time.Since(began) >= at })
		wantClean(what)
	}
	// The steps of a start are of very unequal length: one stop at each of them.
	plain, err := os.ReadFile(n.Properties)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"connecting to ZooKeeper", "opening log.dirs", "opening the logs", "serving", "registering", "joining the election"} {
		n.debug = true
		n.stopWhileStarting("after "+step, func(log func() []byte) bool { return bytes.Contains(log(), []byte(step)) })
		n.debug = false
		wantClean("after " + step)
	}
	// Nobody answers where ZooKeeper should be.
	lost := strings.Replace(string(plain), "zookeeper.connect="+c.ZK.Addr(), "zookeeper.connect=127.0.0.1:1", 1)
	if err := os.WriteFile(n.Properties, []byte(lost), 0o600); err != nil {
		t.Fatal(err)
	}
	n.debug = true
	n.stopWhileStarting("without ZooKeeper", func(log func() []byte) bool { return bytes.Contains(log(), []byte("binding the listeners")) })
	n.debug = false
	wantClean("without ZooKeeper")
	if err := os.WriteFile(n.Properties, plain, 0o600); err != nil {
		t.Fatal(err)
	}

	n.Start()
	for line := range bytes.Lines(n.logged(from)) {
		if bytes.Contains(line, []byte("recovered a log")) || bytes.Contains(line, []byte("level=ERROR")) {
			t.Errorf("a start after a stop had something to recover: %s", line)
		}
	}
	seen := map[int32]int64{}
	in := c.Client(kgo.ConsumeTopics("t"))
	for len(seen) < 12 {
		fs := in.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { seen[r.Partition]++ })
	}
	n.Stop()
}

// After a kill, too, a stop in the midst of the recovery is one in order; what is left to
// recover is left.
func TestStartStopDuringARecoveryLosesNothing(t *testing.T) {
	c := Start(t, Options{})
	n := c.Brokers[0]
	c.CreateTopic("t", 4, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cl := c.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	value := bytes.Repeat([]byte("0123456789abcdef"), 60)
	const each = 3000
	for p := range int32(4) {
		var rs []*kgo.Record
		for range each {
			rs = append(rs, &kgo.Record{Topic: "t", Partition: p, Value: value})
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	n.Kill()
	for i := range 8 {
		began := time.Now()
		at := time.Duration(i) * 15 * time.Millisecond
		n.stopWhileStarting(fmt.Sprintf("recovery stopped after %v", at), func(func() []byte) bool { return time.Since(began) >= at })
	}
	n.Start()
	seen, in := 0, c.Client(kgo.ConsumeTopics("t"))
	for seen < 4*each {
		fs := in.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		seen += fs.NumRecords()
	}
	n.Stop()
}
