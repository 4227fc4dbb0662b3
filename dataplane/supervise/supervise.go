// Package supervise is the parent of exactly one broker process.
//
// It starts the broker, starts it again a second after it died by itself (a
// crash loop backs off to 30 s), and ends it when told, or when the process
// named as its lifeline is gone. It needs neither the control plane nor a
// terminal: the folder of the broker's server.properties holds all there is.
//
// Files in that folder:
//
//	supervisor.lock  held with an OFD lock, fcntl(2), while a supervisor lives: a second one
//	                 for the same folder ends at once with ErrRunning
//	supervisor.pid   "PID START" of the supervisor; START is the start time of
//	                 /proc/PID/stat, so that a reused pid is never mistaken
//	broker.pid       the same for the broker; absent while it does not run
//	stopped          exists while the broker shall stay stopped, also over
//	                 restarts of the supervisor
//	stopped.done     made by the supervisor once a stop has been carried out,
//	                 removed with the next start
//
// Control: make or remove the file stopped, then send the supervisor SIGHUP. It
// ends the broker with SIGTERM (a controlled shutdown, so it may take a while),
// or starts it at once. Whoever wants to see what happens without a restart's
// courtesy sends SIGKILL to the broker; that counts as dying by itself. SIGTERM
// to the supervisor ends both. If the supervisor itself is killed, the kernel
// kills the broker with it: a broker without its supervisor would be an orphan
// that nobody restarts or stops.
//
// A broker that has died, by itself or killed, is missed at once: the supervisor
// ends its ZooKeeper session, which the broker has left in memory that both share
// (package zksession), so that its partitions get new leaders without waiting for
// the session's timeout. It does so when it has reaped the process and not before:
// a broker that is stopped or does not answer is alive to it. With supervisor and
// broker both gone it takes the timeout.
package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"penstock/internal/process"
)

// Names of the files in the broker's folder.
const (
	LockFile       = "supervisor.lock"
	SupervisorFile = "supervisor.pid"
	BrokerFile     = "broker.pid"
	StoppedFile    = "stopped"
	DoneFile       = "stopped.done"
)

// ErrRunning says that the folder has a living supervisor already.
var ErrRunning = errors.New("another supervisor runs this broker")

// Config describes the broker to keep.
type Config struct {
	// Binary and Args are the broker's command line.
	Binary string
	Args   []string
	// Dir is the folder for the files of this package; it must exist.
	Dir string
	// Lifeline, if not zero, is a process that the supervisor does not outlive.
	Lifeline process.ID
	// LifelineGrace is how long the broker may take to stop once the lifeline is
	// gone, default 5 s: what it would hand over to is likely going too.
	LifelineGrace time.Duration
	// NoRestart leaves a dead broker dead until it is started by SIGHUP.
	NoRestart bool
	// First, Max, Steady and Grace are as in process.Keeper.
	First, Max, Steady, Grace time.Duration
	// Stdout and Stderr are the broker's; nil is the supervisor's own.
	Stdout, Stderr *os.File
	Logger         *slog.Logger
	// OnEvent, if set, sees every change, on the supervisor's goroutine.
	OnEvent func(process.Event)
}

// Run keeps the broker until the context ends, SIGTERM or SIGINT comes, or the
// lifeline is gone. It returns after the broker has ended.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	lock, ok, err := process.TryLock(filepath.Join(c.Dir, LockFile))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", c.Dir, ErrRunning)
	}
	defer lock.Close()

	// Signals are taken before the pid file invites others to send them.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	pidFile := filepath.Join(c.Dir, SupervisorFile)
	if err := process.WriteFile(pidFile, process.Self()); err != nil {
		return err
	}
	defer os.Remove(pidFile)
	// A pid file left by a killed supervisor names a broker that died with it.
	defer os.Remove(filepath.Join(c.Dir, BrokerFile))

	if !c.Lifeline.Zero() && !c.Lifeline.Alive() {
		c.Logger.Info("lifeline is gone: nothing started", "pid", c.Lifeline.PID)
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if c.Lifeline.Zero() {
			return
		}
		if err := c.Lifeline.Wait(ctx); err == nil {
			c.Logger.Info("lifeline is gone: stopping", "pid", c.Lifeline.PID)
			cancel(process.GraceError(c.LifelineGrace))
		} else if ctx.Err() == nil {
			c.Logger.Error("cannot watch the lifeline: stopping", "err", err)
			cancel(process.GraceError(c.LifelineGrace))
		}
	}()
	orders := make(chan process.Order)
	var acks sync.WaitGroup
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if s != syscall.SIGHUP {
					c.Logger.Info("stopping", "signal", s.String())
					cancel(nil)
					return
				}
				done := make(chan struct{})
				run := !stopped(c.Dir)
				select {
				case orders <- process.Order{Run: run, Done: done}:
				case <-ctx.Done():
					return
				}
				if !run {
					acks.Go(func() {
						<-done
						c.acknowledge()
					})
				}
			}
		}
	}()
	h := newHeir(c)
	k := process.Keeper{
		Start: h.start, NoRestart: c.NoRestart,
		First: c.First, Max: c.Max, Steady: c.Steady, Grace: c.Grace,
		OnEvent: func(e process.Event) {
			h.event(e)
			c.event(e)
		},
	}
	k.Run(ctx, !stopped(c.Dir), orders)
	cancel(nil)
	h.wait(lastWords)
	<-watched
	<-relayed
	acks.Wait()
	return nil
}

// acknowledge tells those who asked for a stop that it is done.
func (c Config) acknowledge() {
	if err := os.WriteFile(filepath.Join(c.Dir, DoneFile), nil, 0o600); err != nil {
		c.Logger.Error("cannot acknowledge the stop", "err", err)
	}
}

func (c Config) withDefaults() Config {
	if c.LifelineGrace == 0 {
		c.LifelineGrace = 5 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	return c
}

// event keeps broker.pid current and tells the log.
func (c Config) event(e process.Event) {
	file := filepath.Join(c.Dir, BrokerFile)
	if e.Kind == process.Started {
		_ = os.Remove(filepath.Join(c.Dir, DoneFile))
		if err := process.WriteFile(file, e.ID); err != nil {
			c.Logger.Error("cannot write the broker's pid", "err", err)
		}
	} else if e.Kind != process.Killed {
		_ = os.Remove(file)
	}
	switch {
	case e.Kind == process.Started || e.Kind == process.Stopped:
		c.Logger.Info("broker "+e.Kind.String(), "pid", e.ID.PID, "why", e.Text)
	case e.Delay < 0:
		c.Logger.Warn("broker "+e.Kind.String()+"; it stays down", "pid", e.ID.PID, "why", e.Text)
	default:
		c.Logger.Warn("broker "+e.Kind.String(), "pid", e.ID.PID, "why", e.Text, "next_start_in", e.Delay)
	}
	if c.OnEvent != nil {
		c.OnEvent(e)
	}
}

func stopped(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, StoppedFile))
	return err == nil
}
