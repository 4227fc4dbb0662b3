package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination/zktest"
	"penstock/internal/ports"
)

// target is a running cluster under measurement, of one broker or several.
type target struct {
	addrs   []string
	pids    []int         // 0 while it is down
	dir     string        // holds the logs
	floor   bool          // not a broker, see floor.go
	started time.Duration // of the first broker: from exec to its first answer
	stop    func() error

	// down stops the broker of that place in order; up starts it again and says how
	// long its first answer took.
	down func(i int) error
	up   func(ctx context.Context, i int) (time.Duration, error)
}

// restartLimit bounds the stop and the start of one broker of either make.
const restartLimit = 3 * time.Minute

func startKafka(ctx context.Context, _ options, dir string, brokers int) (*target, error) {
	all, err := apache.StartCluster(ctx, dir, brokers)
	if err != nil {
		return nil, err
	}
	t := &target{started: all[0].Started, dir: dir, stop: func() (err error) {
		for _, b := range all {
			// Its files go anyway, and of three controllers the last two wait in vain for
			// a quorum to let them go.
			b.Kill()
			err = errors.Join(err, b.Stop())
		}
		return err
	}}
	for _, b := range all {
		t.addrs, t.pids = append(t.addrs, b.Addr), append(t.pids, b.PID())
	}
	t.down = func(i int) error {
		t.pids[i] = 0
		return all[i].Down(restartLimit)
	}
	t.up = func(ctx context.Context, i int) (time.Duration, error) {
		err := all[i].Up(ctx, restartLimit)
		t.pids[i] = all[i].PID()
		return all[i].Started, err
	}
	return t, nil
}

// startPenstock runs our brokers as processes of their own, with a ZooKeeper
// whose cost counts for nobody. Settings are the defaults, as Kafka's are.
func startPenstock(ctx context.Context, o options, dir string, brokers int) (_ *target, err error) {
	zk, err := zktest.Start()
	if err != nil {
		return nil, err
	}
	var free ports.Pool
	var homes []string
	var cmds []*exec.Cmd // nil while it is down
	t := &target{dir: dir}
	t.down = func(i int) error {
		c := cmds[i]
		cmds[i], t.pids[i] = nil, 0
		_ = c.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(restartLimit, func() { _ = c.Process.Kill() })
		defer kill.Stop()
		return c.Wait()
	}
	t.up = func(ctx context.Context, i int) (took time.Duration, err error) {
		cmds[i], took, err = launchPenstock(ctx, o.broker, homes[i], t.addrs[i])
		if cmds[i] != nil {
			t.pids[i] = cmds[i].Process.Pid
		}
		return took, err
	}
	t.stop = func() error {
		errs := make([]error, len(cmds))
		var wg sync.WaitGroup
		for i, c := range cmds { // all at once
			if c != nil {
				wg.Go(func() { errs[i] = t.down(i) })
			}
		}
		wg.Wait()
		zk.Stop()
		free.Release()
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.stop())
		}
	}()
	for id := range brokers {
		port, err := free.Any()
		if err != nil {
			return nil, err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		home := filepath.Join(dir, fmt.Sprintf("penstock-%d", id))
		if err := os.MkdirAll(home, 0o755); err != nil {
			return nil, err
		}
		text := fmt.Sprintf("broker.id=%[1]d\nlisteners=PLAINTEXT://%[2]s\nadvertised.listeners=PLAINTEXT://%[2]s\nlog.dirs=%[3]s\nzookeeper.connect=%[4]s/bench\noffsets.topic.replication.factor=%[5]d\ntransaction.state.log.replication.factor=%[5]d\ntransaction.state.log.min.isr=1\n",
			id, addr, filepath.Join(home, "data"), zk.Addr(), min(brokers, 3))
		if err := os.WriteFile(propertiesOf(home), []byte(text), 0o600); err != nil {
			return nil, err
		}
		homes, cmds, t.addrs, t.pids = append(homes, home), append(cmds, nil), append(t.addrs, addr), append(t.pids, 0)
		took, err := t.up(ctx, id)
		if err != nil {
			return nil, err
		}
		if id == 0 {
			t.started = took
		}
	}
	return t, nil
}

func propertiesOf(home string) string { return filepath.Join(home, "server.properties") }

// launchPenstock starts one of our brokers and tells how long its first answer took.
func launchPenstock(ctx context.Context, binary, home, addr string) (*exec.Cmd, time.Duration, error) {
	out, err := os.OpenFile(filepath.Join(home, "broker.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, binary, "--config", propertiesOf(home))
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, 0, err
	}
	for {
		if err = apache.Answers(addr); err == nil {
			return cmd, time.Since(began), nil
		}
		if time.Since(began) > 30*time.Second {
			return cmd, 0, fmt.Errorf("no answer on %s, see %s: %w", addr, out.Name(), err)
		}
		time.Sleep(time.Millisecond) // the port has no event to await
	}
}

// whole waits until every broker knows all others.
func (t *target) whole() error {
	if t.floor {
		return nil
	}
	for _, addr := range t.addrs {
		if err := awaitMetadata(addr, "", func(m *kmsg.MetadataResponse) bool { return len(m.Brokers) == len(t.addrs) && m.ControllerID >= 0 }); err != nil {
			return err
		}
	}
	return nil
}

// cpu is the user and system time that the brokers which are up have used.
func (t *target) cpu() (sum time.Duration, err error) {
	for _, pid := range t.pids {
		if pid == 0 {
			continue
		}
		d, perr := processCPU(pid)
		sum, err = sum+d, errors.Join(err, perr)
	}
	return sum, err
}

// processCPU reads the kernel's clock of a process, which counts nanoseconds.
func processCPU(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED of linux/posix-timers.h; clock_getcpuclockid(3) makes it so
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// rss is the resident memory of the largest broker in MB (10^6 bytes).
func (t *target) rss() (largest float64, err error) {
	for _, pid := range t.pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, err
		}
		pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
		if err != nil {
			return 0, err
		}
		largest = max(largest, float64(pages*int64(os.Getpagesize()))/1e6)
	}
	return largest, nil
}
