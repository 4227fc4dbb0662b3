package devtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/internal/process"
)

// testAlone kills control plane and PostgreSQL and keeps them dead: the brokers
// must do without.
func testAlone(t *testing.T) {
	f := service(t)
	in := f.info(t)
	c := in.Cluster
	api := tenant(t, in)
	newTopic(t, api, c.ID, "alone", 6)
	acc := newAccount(t, in, api, c.ID, "alone")
	token := acc.token(t)
	l := startLedger(t, kafka(t, c.Bootstrap, token, kgo.RecordDeliveryTimeout(time.Minute)), "alone")
	group := kafka(t, c.Bootstrap, token, kgo.ConsumerGroup("alone"), kgo.ConsumeTopics("alone"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	consume := func(cl *kgo.Client, n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for got := 0; got < n; {
			fetches := cl.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				t.Fatalf("%d of %d records read: %v", got, n, err)
			}
			got += fetches.NumRecords()
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Fatalf("commit: %v", err)
		}
	}
	l.goesOn(t, 100, 20*time.Second)
	consume(group, 100)

	// A stopped parent starts nobody again, and keeps the brokers' lifeline.
	self, err := process.Lookup(in.PIDs.Dev)
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := func() { _ = self.Signal(syscall.SIGCONT) }
	defer resume()
	kill9(t, in.PIDs.Control)
	kill9(t, in.PIDs.Postgres)
	dead := func() {
		t.Helper()
		for _, addr := range []string{strings.TrimPrefix(in.API, "http://"), postgresAddr(in.Postgres)} {
			if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				conn.Close()
				t.Fatalf("somebody answers at %s", addr)
			}
		}
	}
	await(t, 10*time.Second, "control plane and PostgreSQL are dead", func(context.Context) error {
		for _, pid := range []int{in.PIDs.Control, in.PIDs.Postgres} {
			if _, err := process.Lookup(pid); !errors.Is(err, process.ErrGone) {
				return fmt.Errorf("pid %d: %v", pid, err)
			}
		}
		return nil
	})
	dead()

	l.goesOn(t, 300, 20*time.Second)
	consume(group, 200)

	// Logs in anew, at each broker by itself, and joins a group.
	for _, b := range c.Brokers {
		consume(kafka(t, b.Addr, token, kgo.ConsumerGroup(fmt.Sprintf("alone-%d", b.ID)), kgo.ConsumeTopics("alone"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 200)
	}

	watcher := kafka(t, c.Bootstrap, token)
	byHand := c.Brokers[2]
	f.must(t, "broker", "stop", "2")
	l.goesOn(t, 100, 20*time.Second)
	cmd := exec.Command(filepath.Join(bin, "penstock-broker"), "--config", filepath.Join(byHand.Dir, "server.properties"))
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stopped := false
	defer func() {
		if !stopped {
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("the broker started by hand:\n%s", said.String())
		}
	}()
	// The keys of the tokens come from its disk: who made them is dead.
	fresh := kafka(t, byHand.Addr, token)
	await(t, 20*time.Second, "login at the broker started by hand", func(ctx context.Context) error {
		return fresh.Ping(ctx)
	})
	whole(t, watcher, "alone", 30*time.Second)

	// A leader fails over.
	d, err := describe(t.Context(), watcher, "alone")
	if err != nil {
		t.Fatal(err)
	}
	epochs, victim := map[int32]int32{}, int32(-1)
	for _, p := range d.Partitions {
		if p.Leader != 2 && victim < 0 {
			victim = p.Leader
		}
		if p.Leader == victim {
			epochs[p.Partition] = p.LeaderEpoch
		}
	}
	if victim < 0 {
		t.Fatalf("broker 2 leads everything: %+v", d.Partitions)
	}
	killed := time.Now()
	f.must(t, "broker", "stop", fmt.Sprint(victim)) // it must not come back and lead again
	await(t, 20*time.Second, "other leaders", func(ctx context.Context) error {
		d, err := describe(ctx, watcher, "alone")
		if err != nil {
			return err
		}
		for _, p := range d.Partitions {
			if was, ok := epochs[p.Partition]; ok && (p.Leader < 0 || p.Leader == victim || p.LeaderEpoch <= was) {
				return fmt.Errorf("partition %d: leader %d, epoch %d after %d", p.Partition, p.Leader, p.LeaderEpoch, was)
			}
		}
		return nil
	})
	t.Logf("%d leaders of broker %d moved within %v of its stop", len(epochs), victim, time.Since(killed).Round(time.Millisecond))
	l.goesOn(t, 200, 20*time.Second)
	f.must(t, "broker", "start", fmt.Sprint(victim))
	whole(t, watcher, "alone", 30*time.Second)
	f.must(t, "broker", "kill", fmt.Sprint(victim))
	l.goesOn(t, 200, 30*time.Second)
	whole(t, watcher, "alone", 30*time.Second)
	consume(group, 500)
	dead()
	if out := f.must(t, "status"); !strings.Contains(out, "connection refused") && !strings.Contains(out, "no answer") {
		t.Errorf("status without control plane:\n%s", out)
	}

	l.verify(t, kafka(t, c.Bootstrap, token, kgo.ConsumeTopics("alone"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())))
	committed, err := kadm.NewClient(group).FetchOffsets(t.Context(), "alone")
	if err != nil || len(committed["alone"]) == 0 {
		t.Errorf("committed offsets: %v, %v", committed, err)
	}

	// Back to normal.
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	stopped = true
	if err := <-ended; err != nil {
		t.Errorf("the broker started by hand stopped with %v\n%s", err, said.String())
	}
	f.must(t, "broker", "start", "2")
	resume()
	f.healthy(t, 30*time.Second)
	whole(t, watcher, "alone", 30*time.Second)
	acc.token(t)
}

func postgresAddr(u string) string {
	_, rest, _ := strings.Cut(u, "@")
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}
