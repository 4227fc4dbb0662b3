package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"penstock/controlplane/provision"
	"penstock/internal/ports"
	"penstock/internal/process"
)

// Options say how to run the service.
type Options struct {
	// Dir is the state folder.
	Dir string
	// BinDir holds penstock-control and penstock-broker.
	BinDir string
	// Bare leaves out control plane and PostgreSQL: ZooKeeper and Brokers brokers
	// on Port, Port+1, ...; 0 is 9092 and following, or free ports if one is taken.
	Bare    bool
	Brokers int
	Port    int
	// Once stops everything after the demonstration.
	Once bool
	// NoRestart leaves what dies dead.
	NoRestart bool
	// Set holds more lines for every broker's server.properties.
	Set []provision.Property
	// Background says that dev.json shall be the last sign of being ready.
	Background bool
	// Out takes what the service says; Terminal says that it is one.
	Out      io.Writer
	Terminal bool
}

// ErrRunning says that a service runs on the folder already.
var ErrRunning = errors.New("a dev service is running here already: `penstock dev status` shows it, `penstock dev stop` ends it")

// Service is a running service.
type Service struct {
	o     Options
	f     folder
	state *state
	ports ports.Pool
	self  process.ID

	outMu sync.Mutex
	parts []*part

	postgres, zookeeper, control *part
	pg                           *postgres
	zk                           *zooKeeper
}

// Run runs the service until the context ends, a signal comes, or, with Once,
// the demonstration is over. It returns after everything has stopped; an error
// tells what went wrong on the way.
func Run(ctx context.Context, o Options) (err error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return err
	}
	f := folder(dir)
	if err := checkBinaries(o); err != nil {
		return err
	}
	if err := os.MkdirAll(f.path("log"), 0o700); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	lock, ok, err := process.TryLock(f.path(lockFile))
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s: %w", dir, ErrRunning)
	}
	defer lock.Close()
	s := &Service{o: o, f: f, self: process.Self()}
	if err := process.WriteFile(f.path(pidFile), s.self); err != nil {
		return err
	}
	defer os.Remove(f.path(pidFile))
	defer s.ports.Release()

	// What loses its parent falls to this process and is found at the end.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become a subreaper: %w", err)
	}
	stopReaping := reap()
	defer stopReaping()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopSignals := s.onSignals(cancel)
	defer stopSignals()

	if err := s.checkSettings(ctx); err != nil {
		return err
	}
	defer s.stop()
	if err := s.prepare(); err != nil {
		return err
	}
	if o.Bare {
		err = s.runBare(ctx)
	} else {
		err = s.runWhole(ctx)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errAsked) {
		return nil
	}
	return err
}

// errAsked is the cause of an end that somebody asked for.
var errAsked = errors.New("stopped by a signal")

// onSignals ends the service at the first signal and kills its children at the
// second.
func (s *Service) onSignals(cancel context.CancelCauseFunc) (stop func()) {
	signals := make(chan os.Signal, 4)
	take := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !s.o.Background {
		take = append(take, syscall.SIGHUP)
	}
	signal.Notify(signals, take...)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for n := 0; ; n++ {
			select {
			case <-signals:
				if n == 0 {
					s.say("stopping")
					cancel(errAsked)
				} else {
					s.say("killing what is left")
					killAll(s.self.PID)
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// reap collects children that lost their parent.
func reap() (stop func()) {
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-died:
				process.ReapOrphans()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(died)
		close(done)
		<-ended
	}
}

func killAll(root int) {
	for _, id := range process.Descendants(root) {
		_ = id.Signal(syscall.SIGKILL)
	}
}

// say prints one line.
func (s *Service) say(format string, args ...any) {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	fmt.Fprintf(s.o.Out, format+"\n", args...)
}

// prepare reads or makes the state, ends what an earlier service may have left,
// and settles the ports.
func (s *Service) prepare() error {
	st, err := s.f.load()
	switch {
	case errors.Is(err, errNoState):
		st = &state{Version: 1}
	case err != nil:
		return err
	}
	if (st.Bare != nil) != s.o.Bare && !errors.Is(err, errNoState) {
		return fmt.Errorf("%s holds the state of a service with --bare=%v; use another --dir or `penstock dev reset`", s.f, st.Bare != nil)
	}
	s.state = st
	if err := os.Remove(s.f.path(devFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := s.haltBrokers(5 * time.Second); err != nil {
		return err
	}
	if st.Ports.ZooKeeper, err = s.ports.Keep(st.Ports.ZooKeeper); err != nil {
		return err
	}
	if s.o.Bare {
		st.Bare = &bareState{Brokers: s.o.Brokers}
		return s.f.save(st)
	}
	if st.Ports.Postgres, err = s.ports.Keep(st.Ports.Postgres); err != nil {
		return err
	}
	if st.Ports.API, err = s.ports.Keep(st.Ports.API); err != nil {
		return err
	}
	if st.Postgres.Password == "" {
		st.Postgres.Password = rand.Text()
	}
	if st.Postgres.Dir == "" {
		if st.Postgres.Dir, err = placePostgres(s.f); err != nil {
			return err
		}
	}
	if st.Operator.ClientID == "" {
		st.Operator = credential{ClientID: "dev-operator", ClientSecret: rand.Text() + rand.Text()}
	}
	return s.f.save(st)
}

// brokerFolders lists the folders of all brokers in the state folder.
func (f folder) brokerFolders() []string {
	files, _ := filepath.Glob(f.path(brokersDir, "*", "*", "launch.json"))
	for i, file := range files {
		files[i] = filepath.Dir(file)
	}
	return files
}

// haltBrokers ends all brokers at once.
func (s *Service) haltBrokers(grace time.Duration) error {
	return haltAll(context.Background(), s.f.brokerFolders(), grace)
}

func haltAll(ctx context.Context, dirs []string, grace time.Duration) error {
	errs := make([]error, len(dirs))
	var wg sync.WaitGroup
	for i, dir := range dirs {
		wg.Go(func() { errs[i] = provision.Halt(ctx, dir, grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// startZooKeeper starts it and does not wait for it.
func (s *Service) startZooKeeper() error {
	zk, err := newZooKeeper(s.f.path("zookeeper"), s.state.Ports.ZooKeeper)
	if err != nil {
		return err
	}
	log, err := s.openLog("zookeeper")
	if err != nil {
		return err
	}
	s.zk = zk
	s.zookeeper = s.keep("ZooKeeper", log, syscall.SIGTERM, func() (*process.Child, error) { return zk.start(log) })
	return nil
}

// awaitPart waits until ready says so, the part has died for good, or a minute
// has passed.
func awaitPart(ctx context.Context, p *part, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-p.failed:
			fail(p.fatal)
		case <-done:
		}
	}()
	return ready(ctx)
}

// stop ends everything in order: first what would start brokers again, then the
// brokers, then what they need.
func (s *Service) stop() {
	_ = os.Remove(s.f.path(devFile))
	s.control.stop()
	if err := s.haltBrokers(20 * time.Second); err != nil {
		s.say("%v", err)
	}
	var wg sync.WaitGroup
	for _, p := range []*part{s.zookeeper, s.postgres} {
		wg.Go(p.stop)
	}
	wg.Wait()
	// Nothing should be left. What is, is a fault; it must not outlive us.
	for _, id := range process.Descendants(s.self.PID) {
		s.say("process %d is left over: killed", id.PID)
		_ = id.Signal(syscall.SIGKILL)
	}
	process.ReapOrphans()
}

func (s *Service) binary(name string) string { return filepath.Join(s.o.BinDir, name) }

func join(addrs []string) string { return strings.Join(addrs, ",") }
