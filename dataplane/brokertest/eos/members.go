package eos

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"penstock/dataplane/brokertest/nemesis"
)

// members are the processes of all stages. Each place, a stage's transactional id, has a
// process that is started anew whenever it ends, unless a step of the schedule has ended
// it and will start it again.
type members struct {
	t       testing.TB
	h       *History
	seeds   []string
	stages  int
	first   int      // so many places of each stage speak the first version of the protocol
	die     float64  // see job
	log     *os.File // what they say of themselves
	verbose bool

	wg sync.WaitGroup // processes and their reports

	mu      sync.Mutex
	places  []*place
	extra   int // places that were added by Join
	stopped bool
}

// place is one member's, whoever has it.
type place struct {
	number, stage int
	first         bool // the version
	lives         int
	now           *life
	held          bool // a step has ended its process
}

// life is one process.
type life struct {
	name   string
	cmd    *exec.Cmd
	ended  chan struct{}
	zombie bool // another has its place
}

func newMembers(t testing.TB, h *History, seeds []string, stages, each, first int, log *os.File, verbose bool) *members {
	ms := &members{t: t, h: h, seeds: seeds, stages: stages, first: first, log: log, verbose: verbose}
	for i := range stages * each {
		ms.places = append(ms.places, &place{number: i, stage: i % stages, first: i/stages < first})
	}
	return ms
}

func groupOf(stage int) string { return fmt.Sprint("stage-", stage) }

func (ms *members) start() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, p := range ms.places {
		ms.launch(p)
	}
}

// launch is called with mu held.
func (ms *members) launch(p *place) {
	if ms.stopped {
		return
	}
	version := 2
	if p.first {
		version = 1
	}
	name := fmt.Sprintf("m%dv%d.%d", p.number, version, p.lives)
	p.lives++
	level := 2 // warnings
	if ms.verbose {
		level = 3
	}
	env, err := json.Marshal(job{
		Name: name, TxnID: fmt.Sprintf("stage-%d-place-%d", p.stage, p.number), Group: groupOf(p.stage), From: ms.h.topics[p.stage], To: ms.h.topics[p.stage+1],
		Seeds: ms.seeds, First: p.first, Abort: 0.1, Die: ms.die, Batch: 20, LogLevel: level,
	})
	if err != nil {
		panic(err)
	}
	report, theirs, err := os.Pipe()
	if err != nil {
		ms.t.Error(err)
		return
	}
	defer theirs.Close()
	l := &life{name: name, ended: make(chan struct{}), cmd: ms.command(string(env), theirs)}
	started := make(chan error)
	ms.wg.Go(func() {
		// The death signal goes by the thread that has started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := l.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = l.cmd.Wait()
		close(l.ended)
		ms.h.Note("member", fmt.Sprintf("%s has ended: %v", name, err))
		ms.mu.Lock()
		if p.now == l && !p.held && l.cmd.ProcessState.ExitCode() < 0 { // by a signal that nobody sent
			ms.h.Count(func(c *Counts) { c.Deaths++ })
		}
		ms.mu.Unlock()
		ms.relaunch(p, l)
	})
	if err := <-started; err != nil {
		report.Close()
		ms.t.Error(err)
		return
	}
	p.now = l
	group, from, to := groupOf(p.stage), ms.h.topics[p.stage], ms.h.topics[p.stage+1]
	ms.wg.Go(func() {
		defer report.Close()
		readReport(report, func(e Event) { ms.h.Tell(e, group, from, to) })
	})
}

// relaunch gives a place a new process unless it has one, or is to have none.
func (ms *members) relaunch(p *place, ended *life) {
	time.Sleep(100 * time.Millisecond) // who fails at once must not take the machine
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if p.now == ended && !p.held {
		ms.launch(p)
	}
}

func (ms *members) command(env string, report *os.File) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), jobVariable+"="+env)
	cmd.ExtraFiles = []*os.File{report}
	cmd.Stdout, cmd.Stderr = ms.log, ms.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Number is how many members have links of their own: those of the start.
func (ms *members) Number() int {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return len(ms.places) - ms.extra
}

// pids are the parties of the network that are members.
func (ms *members) pids() map[nemesis.Party]int {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := map[nemesis.Party]int{}
	for i, p := range ms.places[:len(ms.places)-ms.extra] {
		if p.now != nil {
			m[nemesis.Member(i)] = p.now.cmd.Process.Pid
		}
	}
	return m
}

// Do carries out a step of the schedule.
func (ms *members) Do(s nemesis.Step) (undo func(), err error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if s.Fault == nemesis.Join {
		p := &place{number: len(ms.places), stage: len(ms.places) % ms.stages}
		ms.places = append(ms.places, p)
		ms.extra++
		ms.launch(p)
		ms.h.Count(func(c *Counts) { c.Left++ })
		return func() { ms.hold(p, syscall.SIGTERM) }, nil
	}
	var i int
	if n, err := fmt.Sscanf(s.A, "member-%d", &i); n != 1 || err != nil || i >= len(ms.places) {
		return nil, fmt.Errorf("no %s", s.A)
	}
	p := ms.places[i]
	if p.held || p.now == nil {
		return nil, errors.New("it is away")
	}
	l := p.now
	switch s.Fault {
	case nemesis.KillMember, nemesis.Leave:
		sig := syscall.SIGKILL
		if s.Fault == nemesis.Leave {
			sig = syscall.SIGTERM
		}
		p.held = true
		_ = l.cmd.Process.Signal(sig)
		ms.h.Count(func(c *Counts) {
			if sig == syscall.SIGKILL {
				c.Kills++
			} else {
				c.Left++
			}
		})
		return func() { ms.back(p) }, nil
	case nemesis.PauseMember:
		_ = l.cmd.Process.Signal(syscall.SIGSTOP)
		ms.h.Count(func(c *Counts) { c.Pauses++ })
		return func() { _ = l.cmd.Process.Signal(syscall.SIGCONT) }, nil
	case nemesis.KillInTxn:
		return nil, l.cmd.Process.Signal(doom) // its death is counted with those in the midst of a request
	case nemesis.Replace:
		_ = l.cmd.Process.Signal(syscall.SIGSTOP)
		l.zombie = true
		ms.launch(p)
		ms.h.Count(func(c *Counts) { c.Replaced++ })
		return func() { ms.wake(l) }, nil
	}
	return nil, fmt.Errorf("no such fault: %s", s.Fault)
}

// hold ends a place's process for good.
func (ms *members) hold(p *place, sig syscall.Signal) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	p.held = true
	if p.now != nil {
		_ = p.now.cmd.Process.Signal(sig)
	}
}

// back gives a place a process again, once the last one is gone.
func (ms *members) back(p *place) {
	ms.mu.Lock()
	l := p.now
	ms.mu.Unlock()
	select {
	case <-l.ended:
	case <-time.After(10 * time.Second): // it was asked to leave, and cannot
		_ = l.cmd.Process.Kill()
		<-l.ended
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	p.held = false
	ms.launch(p)
}

// wake lets a process go on whose place another has taken, and ends it after a
// while: both would fence each other for ever.
func (ms *members) wake(l *life) {
	_ = l.cmd.Process.Signal(syscall.SIGCONT)
	ms.wg.Go(func() {
		select {
		case <-l.ended:
			ms.h.Note("member", l.name+" came back and ended by itself")
		case <-time.After(3 * time.Second):
			_ = l.cmd.Process.Kill()
		}
	})
}

// stop ends all of them and returns when their reports are read. It may be called again.
func (ms *members) stop() {
	ms.mu.Lock()
	ms.stopped = true
	var lives []*life
	for _, p := range ms.places {
		p.held = true
		if p.now != nil {
			_ = p.now.cmd.Process.Signal(syscall.SIGTERM)
			lives = append(lives, p.now)
		}
	}
	ms.mu.Unlock()
	for _, l := range lives {
		select {
		case <-l.ended:
		case <-time.After(10 * time.Second):
			_ = l.cmd.Process.Kill()
		}
	}
	ms.wg.Wait()
}
