package groups

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Order is what a worker is told, one line of JSON on its standard input.
type Order struct {
	Do       string        `json:"do"` // start, leave, die, hold, let, slow
	Member   string        `json:"member"`
	Instance string        `json:"instance,omitempty"`
	Spec     Spec          `json:"spec,omitempty"`
	For      time.Duration `json:"for,omitempty"`
}

// workerEnv names the log of the worker that a test binary is to be.
const workerEnv = "PENSTOCK_GROUPS_WORKER"

// WorkerMain makes a worker of this process if it was started as one. It is the first
// thing in TestMain.
func WorkerMain() {
	path := os.Getenv(workerEnv)
	if path == "" {
		return
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := work(os.Stdin, &Log{out: out}); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// work carries out orders until there are no more, then ends all members in order.
func work(orders io.Reader, log *Log) error {
	members := map[string]*member{}
	in := bufio.NewScanner(orders)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var o Order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			return err
		}
		if err := carryOut(o, members, log); err != nil {
			return fmt.Errorf("%s %s: %w", o.Do, o.Member, err)
		}
	}
	for _, m := range members {
		m.tap.let()
		m.end(false)
	}
	for _, m := range members {
		<-m.over
	}
	return in.Err()
}

func carryOut(o Order, members map[string]*member, log *Log) error {
	m := members[o.Member]
	if m == nil && o.Do != "start" {
		return errNoMember
	}
	switch o.Do {
	case "start":
		m, err := startMember(o.Spec, o.Member, o.Instance, log)
		if err != nil {
			return err
		}
		members[o.Member] = m
	case "leave":
		m.end(false)
	case "die":
		m.end(true)
	case "hold":
		m.tap.hold()
		time.AfterFunc(o.For, m.tap.let)
	case "let":
		m.tap.let()
	case "slow":
		m.mu.Lock()
		m.slow = o.For
		m.mu.Unlock()
	default:
		return fmt.Errorf("unknown order")
	}
	return nil
}

// worker is such a process as the run sees it.
type worker struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  *tail
	end  chan struct{}
	err  error  // valid after end
	said string // where its standard error goes
}

// startWorker starts this binary once more as a worker. It dies with its parent.
func startWorker(dir string, n int) (*worker, error) {
	path := filepath.Join(dir, fmt.Sprintf("worker-%d.jsonl", n))
	w := &worker{cmd: exec.Command("/proc/self/exe"), log: &tail{path: path}, end: make(chan struct{}), said: path + ".err"}
	w.cmd.Env = append(os.Environ(), workerEnv+"="+path)
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := os.Create(w.said)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	w.cmd.Stdout, w.cmd.Stderr = said, said
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the death signal goes by the thread that has started the child
		defer runtime.UnlockOSThread()
		err := w.cmd.Start()
		started <- err
		if err == nil {
			w.err = w.cmd.Wait()
			close(w.end)
		}
	}()
	return w, <-started
}

func (w *worker) order(o Order) error {
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = w.in.Write(append(b, '\n'))
	return err
}

func (w *worker) signal(s syscall.Signal) { _ = w.cmd.Process.Signal(s) }

// kill ends the worker by SIGKILL.
func (w *worker) kill() {
	w.signal(syscall.SIGKILL)
	<-w.end
}
