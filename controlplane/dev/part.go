package dev

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"penstock/internal/process"
)

// part is one child of the service, kept alive.
type part struct {
	name string
	log  *os.File
	say  func(format string, args ...any)

	mu     sync.Mutex
	id     process.ID
	fatal  error
	ended  chan struct{} // closed when the keeper has returned
	cancel context.CancelCauseFunc
	failed chan struct{} // closed at the first death that nothing will mend
}

// keep starts a part. It is stopped by stop, not by a context: parts end in an
// order.
func (s *Service) keep(name string, log *os.File, stop syscall.Signal, start func() (*process.Child, error)) *part {
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &part{name: name, log: log, say: s.say, ended: make(chan struct{}), failed: make(chan struct{}), cancel: cancel}
	k := process.Keeper{
		Start: start, NoRestart: s.o.NoRestart, Stop: stop, Grace: 15 * time.Second,
		// A part that dies young, again and again, shall not keep others waiting
		// for half a minute.
		Max: 5 * time.Second, OnEvent: p.event,
	}
	go func() {
		defer close(p.ended)
		k.Run(ctx, true, nil)
	}()
	s.parts = append(s.parts, p)
	return p
}

func (p *part) event(e process.Event) {
	p.mu.Lock()
	p.id = process.ID{}
	if e.Kind == process.Started || e.Kind == process.Killed {
		p.id = e.ID
	}
	if e.Delay < 0 && p.fatal == nil {
		p.fatal = fmt.Errorf("%s %s (%s), see %s", p.name, e.Kind, e.Text, p.log.Name())
		close(p.failed)
	}
	p.mu.Unlock()
	switch e.Kind {
	case process.Died, process.Failed:
		if e.Delay < 0 {
			p.say("%s %s (%s); it stays down, see %s", p.name, e.Kind, e.Text, p.log.Name())
		} else {
			p.say("%s %s (%s), again in %v, see %s", p.name, e.Kind, e.Text, e.Delay, p.log.Name())
		}
	case process.Killed:
		p.say("%s does not stop: killed", p.name)
	}
}

func (p *part) pid() int {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id.PID
}

// stop ends the part and waits for it.
func (p *part) stop() {
	if p == nil {
		return
	}
	p.cancel(nil)
	<-p.ended
	p.log.Close()
}

// openLog opens a child's log to append to.
func (s *Service) openLog(name string) (*os.File, error) {
	return os.OpenFile(s.f.path("log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}
