package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
)

// Spec describes a child to start.
type Spec struct {
	Path string   // binary
	Args []string // without the name of the program
	Dir  string   // working folder; empty is the caller's
	Env  []string // nil is the caller's
	// Stdout and Stderr are given to the child as they are; nil is /dev/null.
	Stdout, Stderr *os.File
	// Files are inherited as descriptors 3, 4, ...
	Files []*os.File
	// Credential runs the child as another user.
	Credential *syscall.Credential
	// DeathSignal is sent to the child by the kernel when the caller dies,
	// however it dies. Zero lets the child live on.
	DeathSignal syscall.Signal
	// Session puts the child into a session of its own, away from the terminal
	// and its Ctrl-C.
	Session bool
}

// Child is a started process. Its end is observed by Done.
type Child struct {
	ID    ID
	done  chan struct{}
	state *os.ProcessState
	err   error
}

// own holds the pids of the children that some goroutine here waits for, so
// that ReapOrphans leaves them alone. The lock is held while one is started: a
// child that dies before it is listed must not be taken for an orphan.
var own = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

// Start starts a child. The parent-death signal is tied to the thread that
// forked, not to the process (prctl(2)), so a goroutine keeps that thread until
// the child has ended.
func Start(s Spec) (*Child, error) {
	cmd := exec.Command(s.Path, s.Args...)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	// Assigned only if set: a nil *os.File in the interface is not nil.
	if s.Stdout != nil {
		cmd.Stdout = s.Stdout
	}
	if s.Stderr != nil {
		cmd.Stderr = s.Stderr
	}
	cmd.ExtraFiles = s.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.Credential, Pdeathsig: s.DeathSignal, Setsid: s.Session}
	c := &Child{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		if s.DeathSignal != 0 {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		own.Lock()
		err := cmd.Start()
		if err == nil {
			own.pids[cmd.Process.Pid] = true
			// The child is not waited for yet, so its pid and start time stand
			// even if it has ended: read them past the zombie check of Lookup.
			var st stat
			st, err = readStat(cmd.Process.Pid)
			c.ID = ID{PID: cmd.Process.Pid, Start: st.start}
		}
		own.Unlock()
		started <- err
		if cmd.Process == nil {
			return
		}
		c.err = cmd.Wait()
		c.state = cmd.ProcessState
		own.Lock()
		delete(own.pids, cmd.Process.Pid)
		own.Unlock()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	return c, nil
}

// Done is closed when the child has ended and has been reaped.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err tells how the child ended: nil for exit status 0. Call it after Done.
func (c *Child) Err() error {
	<-c.done
	return c.err
}

// Describe tells in words how the child ended, for a log line.
func (c *Child) Describe() string {
	<-c.done
	if c.state == nil {
		return fmt.Sprint(c.err)
	}
	return c.state.String()
}

// ReapOrphans collects the zombies that fell to this process as a subreaper
// (prctl PR_SET_CHILD_SUBREAPER) or as pid 1. Children of Start are left to
// their own waiters.
func ReapOrphans() {
	own.Lock()
	defer own.Unlock()
	self := os.Getpid()
	for _, pid := range pids() {
		if own.pids[pid] {
			continue
		}
		if st, err := readStat(pid); err == nil && st.ppid == self && st.dead() {
			var ws syscall.WaitStatus
			_, _ = syscall.Wait4(pid, &ws, syscall.WNOHANG, nil)
		}
	}
}

// Descendants lists the living processes below root, root itself not included.
func Descendants(root int) []ID {
	type node struct {
		id   ID
		ppid int
	}
	var all []node
	for _, pid := range pids() {
		if st, err := readStat(pid); err == nil && !st.dead() {
			all = append(all, node{ID{PID: pid, Start: st.start}, st.ppid})
		}
	}
	var out []ID
	under := map[int]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, n := range all {
			if under[n.ppid] && !under[n.id.PID] {
				under[n.id.PID] = true
				out = append(out, n.id)
				grew = true
			}
		}
	}
	return out
}

func pids() []int {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	out := make([]int, 0, len(dirs))
	for _, d := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}
