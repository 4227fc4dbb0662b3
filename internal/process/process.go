// Package process is the small part of process handling that the supervisor of
// a broker, the process engine and the development service share: naming a
// process without being fooled by a reused pid, pid files, and children that
// cannot outlive their parent.
//
// It is a leaf below both planes. Linux only: it rests on /proc, pidfd_open(2)
// and the parent-death signal.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ErrGone says that the named process does not run any more.
var ErrGone = errors.New("process is gone")

// ID names one process for good: a pid may be given to another process, a pid
// together with its start time may not.
type ID struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks after boot, field 22 of
	// /proc/PID/stat.
	Start uint64 `json:"start"`
}

// Zero reports whether the id names nothing.
func (id ID) Zero() bool { return id.PID == 0 }

// String is the form that pid files hold: "PID START".
func (id ID) String() string { return fmt.Sprintf("%d %d", id.PID, id.Start) }

// Parse reads the form of String.
func Parse(s string) (ID, error) {
	pid, start, ok := strings.Cut(strings.TrimSpace(s), " ")
	if !ok {
		return ID{}, fmt.Errorf("parse process id %q: want \"PID START\"", s)
	}
	p, err := strconv.Atoi(pid)
	if err != nil || p <= 0 {
		return ID{}, fmt.Errorf("parse process id %q: bad pid", s)
	}
	t, err := strconv.ParseUint(start, 10, 64)
	if err != nil {
		return ID{}, fmt.Errorf("parse process id %q: bad start time", s)
	}
	return ID{PID: p, Start: t}, nil
}

// Lookup names the process that has this pid now. A zombie counts as gone: it
// holds nothing any more but its pid.
func Lookup(pid int) (ID, error) {
	st, err := readStat(pid)
	if err != nil {
		return ID{}, err
	}
	if st.dead() {
		return ID{}, ErrGone
	}
	return ID{PID: pid, Start: st.start}, nil
}

// Self names the calling process.
func Self() ID {
	id, err := Lookup(os.Getpid())
	if err != nil { // /proc is not mounted: nothing of this package can work
		panic(fmt.Sprintf("process: read own start time: %v", err))
	}
	return id
}

// Alive reports whether the process still runs.
func (id ID) Alive() bool {
	if id.Zero() {
		return false
	}
	now, err := Lookup(id.PID)
	return err == nil && now == id
}

// open returns a pidfd that is sure to mean this process.
func (id ID) open() (int, error) {
	if id.Zero() {
		return -1, ErrGone
	}
	fd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, fmt.Errorf("open pidfd of %d: %w", id.PID, err)
	}
	// Checked after the pidfd is held: from here on the pid cannot change hands.
	if !id.Alive() {
		unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}

// Signal sends sig to exactly this process, or returns ErrGone.
func (id ID) Signal(sig syscall.Signal) error {
	fd, err := id.open()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); errors.Is(err, unix.ESRCH) {
		return ErrGone
	} else if err != nil {
		return fmt.Errorf("signal %d: %w", id.PID, err)
	}
	return nil
}

// Wait returns nil once the process has ended, or the context's error.
func (id ID) Wait(ctx context.Context) error {
	fd, err := id.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The event fd wakes the poll when the context ends, so that waiting costs
	// nothing and ends at once.
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("make eventfd: %w", err)
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_, _ = unix.Write(wake, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	})
	defer func() {
		if !stop() {
			<-done
		}
		unix.Close(wake)
	}()
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll pidfd of %d: %w", id.PID, err)
		}
		if fds[0].Revents != 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Terminate sends SIGTERM, waits up to grace, then kills; it returns when the
// process is gone. A process that is gone already is success.
func (id ID) Terminate(ctx context.Context, grace time.Duration) error {
	return id.end(ctx, syscall.SIGTERM, grace)
}

// Kill sends SIGKILL and waits until the process is gone.
func (id ID) Kill(ctx context.Context) error { return id.end(ctx, syscall.SIGKILL, 0) }

func (id ID) end(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	if err := id.Signal(sig); errors.Is(err, ErrGone) {
		return nil
	} else if err != nil {
		return err
	}
	if grace > 0 {
		soft, cancel := context.WithTimeout(ctx, grace)
		err := id.Wait(soft)
		cancel()
		if err == nil {
			return nil
		}
		if err := id.Signal(syscall.SIGKILL); errors.Is(err, ErrGone) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return id.Wait(ctx)
}

// ReadFile reads a pid file. A missing file gives an error that is
// os.ErrNotExist.
func ReadFile(path string) (ID, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return ID{}, err
	}
	return Parse(string(b))
}

// WriteFile writes a pid file so that a reader sees the old or the new one,
// never a part.
func WriteFile(path string, id ID) error {
	return WriteAtomic(path, []byte(id.String()+"\n"), 0o600)
}

// WriteAtomic replaces path by a file with this content and mode.
func WriteAtomic(path string, content []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once renamed, as it should
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

type stat struct {
	state   byte
	ppid    int
	threads int
	start   uint64
}

// dead says that nothing of the process is left but its entry. A zombie whose
// other threads are still on their way out holds its files and locks yet.
func (s stat) dead() bool { return s.state == 'X' || s.state == 'Z' && s.threads <= 1 }

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return stat{}, ErrGone
	}
	if err != nil {
		return stat{}, err
	}
	// The command name may hold blanks and brackets: fields count from the last
	// closing bracket.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: no command name", pid)
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: %d fields", pid, len(f))
	}
	ppid, err := strconv.Atoi(f[1])
	if err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: parent %q", pid, f[1])
	}
	threads, err := strconv.Atoi(f[17])
	if err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: threads %q", pid, f[17])
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("parse /proc/%d/stat: start %q", pid, f[19])
	}
	return stat{state: f[0][0], ppid: ppid, threads: threads, start: start}, nil
}
