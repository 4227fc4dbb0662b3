package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"penstock/dataplane/brokertest/apache"
	"penstock/dataplane/coordination/zktest"
)

// target is one running broker under measurement.
type target struct {
	addr    string
	pid     int
	started time.Duration
	stop    func() error
}

func startKafka(ctx context.Context, _ options, dir string) (*target, error) {
	b, err := apache.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &target{addr: b.Addr, pid: b.PID(), started: b.Started, stop: b.Stop}, nil
}

// startPenstock runs our broker as one process of its own, with a ZooKeeper
// whose cost counts for nobody.
func startPenstock(ctx context.Context, o options, dir string) (*target, error) {
	zk, err := zktest.Start()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	props := filepath.Join(dir, "server.properties")
	text := fmt.Sprintf("broker.id=0\nlisteners=PLAINTEXT://%[1]s\nadvertised.listeners=PLAINTEXT://%[1]s\nlog.dirs=%[2]s\nzookeeper.connect=%[3]s/bench\noffsets.topic.replication.factor=1\n",
		addr, filepath.Join(dir, "data"), zk.Addr())
	if err := os.WriteFile(props, []byte(text), 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(filepath.Join(dir, "broker.log"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, o.broker, "--config", props)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		err := cmd.Wait()
		zk.Stop()
		return err
	}
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			break
		}
		if time.Since(began) > 30*time.Second {
			return nil, errors.Join(fmt.Errorf("no answer on %s, see %s", addr, out.Name()), stop())
		}
		time.Sleep(time.Millisecond) // the port has no event to await
	}
	return &target{addr: addr, pid: cmd.Process.Pid, started: time.Since(began), stop: stop}, nil
}

// cpu is the user and system time that the process has used.
func (t *target) cpu() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", t.pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux of amd64 and arm64
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// rss is the process's resident memory in MB (10^6 bytes).
func (t *target) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", t.pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	return float64(pages*int64(os.Getpagesize())) / 1e6, err
}
