package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"penstock/internal/ports"
	"penstock/internal/process"
)

// ProcessConfig configures the engine of one machine.
type ProcessConfig struct {
	// Dir holds the clusters: Dir/CLUSTER/BROKER/server.properties and the rest.
	Dir string
	// Binary is penstock-broker.
	Binary string
	// Lifeline, if not zero, is a process that no broker outlives. Without one,
	// brokers outlive everything but the machine.
	Lifeline process.ID
	// NoRestart leaves brokers that died dead.
	NoRestart bool
	// Grace is how long Stop waits for a controlled shutdown, default 30 s.
	Grace  time.Duration
	Logger *slog.Logger
	// fault, in tests, is called after each side effect.
	fault func(after string) error
}

// Process is the engine of one machine. Each broker has a folder (mode 0700)
// with
//
//	server.properties  0600, it holds secrets
//	launch.json        0600, ports, and how its supervisor was started
//	supervisor.*, broker.pid, stopped   see the broker's supervise command
//	broker.log         what supervisor and broker say; one older file is kept
//	data/              log.dirs
//
// Any number of engines may work on one Dir at the same time, also after one was
// killed at any point: who runs a broker is decided by the lock in its folder.
type Process struct {
	c     ProcessConfig
	ports ports.Pool
}

var _ Engine = (*Process)(nil)

// launch is launch.json: what must survive to start the broker again without
// the control plane.
type launch struct {
	ClientPort   int        `json:"client_port"`
	InternalPort int        `json:"internal_port,omitempty"`
	Binary       string     `json:"binary"`
	Lifeline     process.ID `json:"lifeline"`
	NoRestart    bool       `json:"no_restart"`
}

// Names of files in a broker's folder. Those of the supervisor are the contract
// of the broker's supervise command, which the control plane does not import.
const (
	propertiesFile = "server.properties"
	launchFile     = "launch.json"
	logFile        = "broker.log"
	supervisorFile = "supervisor.pid"
	supervisorLock = "supervisor.lock"
	brokerFile     = "broker.pid"
	stoppedFile    = "stopped"
	doneFile       = "stopped.done"

	// In the engine's folder: the locks of all its brokers.
	lockFile = "engine.lock"

	maxLogFile = 16 << 20

	// startTimeout is how long a supervisor may take to say that it runs.
	startTimeout = 20 * time.Second
)

// NewProcess makes an engine. Close ends its bookkeeping, not the brokers.
func NewProcess(c ProcessConfig) (*Process, error) {
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.fault == nil {
		c.fault = func(string) error { return nil }
	}
	var err error
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return nil, err
	}
	if c.Binary, err = filepath.Abs(c.Binary); err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.Binary); err != nil {
		return nil, fmt.Errorf("broker's binary: %w", err)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	return &Process{c: c}, nil
}

// Close frees the reserved ports. Brokers run on.
func (e *Process) Close() { e.ports.Release() }

func (e *Process) dir(r Ref) string {
	return filepath.Join(e.c.Dir, r.ClusterID, strconv.Itoa(int(r.BrokerID)))
}

// lock lets calls for one broker take turns, also those of other processes.
func (e *Process) lock(r Ref) (unlock func(), err error) {
	h := fnv.New32a()
	h.Write([]byte(r.String()))
	return process.LockSlot(filepath.Join(e.c.Dir, lockFile), h.Sum32())
}

// Ensure implements Engine.
func (e *Process) Ensure(ctx context.Context, s BrokerSpec) (BrokerStatus, error) {
	if err := s.validate(); err != nil {
		return BrokerStatus{}, err
	}
	unlock, err := e.lock(s.Ref)
	if err != nil {
		return BrokerStatus{}, err
	}
	defer unlock()
	dir, la, watched, err := e.prepare(s)
	if err != nil {
		return BrokerStatus{}, err
	}
	if watched {
		st := e.look(dir, la)
		have, err := os.ReadFile(filepath.Join(dir, propertiesFile))
		st.Outdated = err != nil || !bytes.Equal(have, render(s, la.layout(dir)))
		return st, nil
	}
	if err := process.WriteAtomic(filepath.Join(dir, propertiesFile), render(s, la.layout(dir)), 0o600); err != nil {
		return BrokerStatus{}, err
	}
	if err := e.c.fault("properties"); err != nil {
		return BrokerStatus{}, err
	}
	if err := startSupervisor(ctx, dir, la); err != nil {
		return BrokerStatus{}, err
	}
	e.c.Logger.Info("broker's supervisor started", "broker", s.Ref.String(), "client_port", la.ClientPort)
	if err := e.c.fault("supervisor"); err != nil {
		return BrokerStatus{}, err
	}
	return e.look(dir, la), nil
}

// Reserve implements Engine.
func (e *Process) Reserve(_ context.Context, s BrokerSpec) (Endpoints, error) {
	if err := s.validate(); err != nil {
		return Endpoints{}, err
	}
	unlock, err := e.lock(s.Ref)
	if err != nil {
		return Endpoints{}, err
	}
	defer unlock()
	_, la, _, err := e.prepare(s)
	return Endpoints{Host: "127.0.0.1", ClientPort: la.ClientPort, InternalPort: la.InternalPort}, err
}

// prepare makes the folder and settles the ports: those of a watched broker
// stand; others are kept if they are free.
func (e *Process) prepare(s BrokerSpec) (dir string, la launch, watched bool, err error) {
	dir = e.dir(s.Ref)
	fail := func(err error) (string, launch, bool, error) { return dir, launch{}, false, err }
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return fail(err)
	}
	if err := e.c.fault("folder"); err != nil {
		return fail(err)
	}
	if la, err = readLaunch(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fail(err)
	}
	if watched, err = supervised(dir); err != nil {
		return fail(err)
	}
	if watched {
		// The broker holds its ports itself now. Were they reserved on, an engine
		// that takes over from this one would take them for another's.
		if Answers(loopback(la.ClientPort)) {
			e.ports.Release(la.ClientPort, la.InternalPort)
		}
		return dir, la, true, nil
	}
	if err := e.choosePorts(&la, s); err != nil {
		return fail(err)
	}
	la.Binary, la.Lifeline, la.NoRestart = e.c.Binary, e.c.Lifeline, e.c.NoRestart
	if err := writeLaunch(dir, la); err != nil {
		return fail(err)
	}
	if err := e.c.fault("ports"); err != nil {
		return fail(err)
	}
	return dir, la, false, nil
}

// choosePorts keeps the ports that were chosen before if they are free.
func (e *Process) choosePorts(la *launch, s BrokerSpec) (err error) {
	if s.Port != 0 {
		if err := e.ports.Take(s.Port); err != nil {
			return err
		}
		la.ClientPort = s.Port
	} else if la.ClientPort, err = e.ports.Keep(la.ClientPort, s.Avoid...); err != nil {
		return err
	}
	if s.Security == nil {
		la.InternalPort = 0
		return nil
	}
	la.InternalPort, err = e.ports.Keep(la.InternalPort, s.Avoid...)
	return err
}

// Status implements Engine.
func (e *Process) Status(_ context.Context, r Ref) (BrokerStatus, error) {
	if err := r.validate(); err != nil {
		return BrokerStatus{}, err
	}
	return Look(e.dir(r))
}

// Look tells the status of the broker in this folder, also for those who have
// no engine.
func Look(dir string) (BrokerStatus, error) {
	la, err := readLaunch(dir)
	if errors.Is(err, os.ErrNotExist) {
		return BrokerStatus{State: Absent}, nil
	}
	if err != nil {
		return BrokerStatus{}, err
	}
	return (*Process)(nil).look(dir, la), nil
}

func (*Process) look(dir string, la launch) BrokerStatus {
	l := la.layout(dir)
	st := BrokerStatus{State: Halted, Dir: dir, LogDirs: []string{l.dataDir()}, ClientAddr: loopback(l.client)}
	if l.internal != 0 {
		st.InternalAddr = loopback(l.internal)
	}
	if id, err := process.ReadFile(filepath.Join(dir, supervisorFile)); err == nil && id.Alive() {
		st.Supervisor = id
		st.State = Down
	}
	if id, err := process.ReadFile(filepath.Join(dir, brokerFile)); err == nil && id.Alive() {
		st.Broker = id
		st.State = Running
	} else if _, err := os.Stat(filepath.Join(dir, stoppedFile)); err == nil && st.State == Down {
		st.State = Stopped
	}
	return st
}

// Stop implements Engine.
func (e *Process) Stop(ctx context.Context, r Ref) error {
	if err := r.validate(); err != nil {
		return err
	}
	unlock, err := e.lock(r)
	if err != nil {
		return err
	}
	defer unlock()
	return Halt(ctx, e.dir(r), e.c.Grace)
}

// Halt ends the supervisor of the broker in this folder, and with it the
// broker. If it takes longer than grace, both are killed.
//
// It is over when nobody holds the supervisor's lock: one that is just starting
// has that, and no pid file yet or the one of a killed predecessor.
func Halt(ctx context.Context, dir string, grace time.Duration) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(grace + startTimeout)
	defer late.Stop()
	for {
		broker, _ := process.ReadFile(filepath.Join(dir, brokerFile))
		if id, err := process.ReadFile(filepath.Join(dir, supervisorFile)); err == nil {
			if err := id.Terminate(ctx, grace); err != nil {
				return fmt.Errorf("stop supervisor of %s: %w", dir, err)
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		// It ends with its supervisor; wait for that rather than trust it.
		if err := broker.Wait(ctx); err != nil {
			return err
		}
		if watched, err := supervised(dir); err != nil || !watched {
			return err
		}
		select {
		case <-tick.C:
		case <-late.C:
			return fmt.Errorf("somebody holds %s and does not say who", filepath.Join(dir, supervisorLock))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Remove implements Engine.
func (e *Process) Remove(ctx context.Context, r Ref) error {
	if err := r.validate(); err != nil {
		return err
	}
	unlock, err := e.lock(r)
	if err != nil {
		return err
	}
	defer unlock()
	dir := e.dir(r)
	if err := Halt(ctx, dir, e.c.Grace); err != nil {
		return err
	}
	if err := e.c.fault("stopped"); err != nil {
		return err
	}
	if la, err := readLaunch(dir); err == nil {
		e.ports.Release(la.ClientPort, la.InternalPort)
	}
	// Moved aside first: a half-deleted folder must not look like a broker.
	gone := dir + ".removed"
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	if err := os.Rename(dir, gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := e.c.fault("moved"); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	// The cluster's folder goes with its last broker; not empty is no error.
	_ = os.Remove(filepath.Dir(dir))
	return nil
}

func (s BrokerSpec) validate() error {
	if err := s.Ref.validate(); err != nil {
		return err
	}
	if s.Brokers < 1 || s.ZooKeeper == "" {
		return fmt.Errorf("%w: needs the number of brokers and ZooKeeper", ErrInvalid)
	}
	if s.Chroot != "" && !strings.HasPrefix(s.Chroot, "/") {
		return fmt.Errorf("%w: chroot %q", ErrInvalid, s.Chroot)
	}
	return nil
}

func (la launch) layout(dir string) layout {
	return layout{dir: dir, client: la.ClientPort, internal: la.InternalPort}
}

func readLaunch(dir string) (launch, error) {
	var la launch
	b, err := os.ReadFile(filepath.Join(dir, launchFile))
	if err != nil {
		return la, err
	}
	if err := json.Unmarshal(b, &la); err != nil {
		return la, fmt.Errorf("read %s: %w", filepath.Join(dir, launchFile), err)
	}
	return la, nil
}

func writeLaunch(dir string, la launch) error {
	b, err := json.MarshalIndent(la, "", "  ")
	if err != nil {
		return err
	}
	return process.WriteAtomic(filepath.Join(dir, launchFile), append(b, '\n'), 0o600)
}

// supervised asks the lock, not the pid file: the lock is there from the
// supervisor's first moment to its last.
func supervised(dir string) (bool, error) {
	return process.Locked(filepath.Join(dir, supervisorLock))
}

// Start starts the supervisor of the broker in this folder as it was started
// before, unless it runs. It is for an operator's hand: no engine is needed.
func Start(ctx context.Context, dir string) error {
	if watched, err := supervised(dir); watched || err != nil {
		return err
	}
	la, err := readLaunch(dir)
	if err != nil {
		return fmt.Errorf("no broker in %s: %w", dir, err)
	}
	return startSupervisor(ctx, dir, la)
}

// startSupervisor starts it in a session of its own and waits until its pid
// file is there or it has ended.
func startSupervisor(ctx context.Context, dir string, la launch) error {
	path := filepath.Join(dir, logFile)
	if fi, err := os.Stat(path); err == nil && fi.Size() > maxLogFile {
		_ = os.Rename(path, path+".1")
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"supervise", "--config", filepath.Join(dir, propertiesFile)}
	if !la.Lifeline.Zero() {
		args = append(args, "--lifeline-pid", strconv.Itoa(la.Lifeline.PID), "--lifeline-start", strconv.FormatUint(la.Lifeline.Start, 10))
	}
	if la.NoRestart {
		args = append(args, "--no-restart")
	}
	c, err := process.Start(process.Spec{
		Path: la.Binary, Args: args, Dir: dir, Stdout: log, Stderr: log, Session: true,
	})
	if err != nil {
		return err
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(startTimeout)
	defer deadline.Stop()
	for {
		if id, err := process.ReadFile(filepath.Join(dir, supervisorFile)); err == nil && id.Alive() {
			return nil
		}
		select {
		case <-c.Done():
			if watched, _ := supervised(dir); watched { // another one was faster
				return nil
			}
			return fmt.Errorf("supervisor of %s ended at once (%s), see %s", dir, c.Describe(), path)
		case <-tick.C:
		case <-deadline.C:
			_ = c.ID.Signal(syscall.SIGKILL)
			return fmt.Errorf("supervisor of %s did not start, see %s", dir, path)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Answers reports whether somebody accepts connections at the address.
func Answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}
