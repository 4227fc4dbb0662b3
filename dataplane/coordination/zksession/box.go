// Package zksession lets a process end the ZooKeeper session of another one that
// has died.
//
// ZooKeeper learns of a killed client when the session has timed out, seconds
// later. Its parent knows at once. What it needs to act on that is the session's
// id and password, which the client's library keeps to itself; they are in the
// server's first reply on each connection, and whoever makes the connections sees
// them there (coordination's dialer). They go into a Box, memory that both
// processes hold: the child writes to it before the library has read the reply,
// so that there is no moment at which a znode belongs to a session that the parent
// does not know. Only the parent's word that the child has ended, the child
// reaped, makes it a dead one's session: a stopped or a slow child keeps its own.
//
// Nothing of this is needed for a session to end, or to be right: a parent that
// dies with its child, a Box that was never filled, a ZooKeeper that does not
// answer, all leave it to the timeout.
package zksession

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Session is one that a server has granted.
type Session struct {
	ID       int64         `json:"id"`
	Password []byte        `json:"password"`
	Timeout  time.Duration `json:"timeout"` // as granted
	Server   string        `json:"server"`  // that has granted it, or taken it over
	Servers  []string      `json:"servers"` // all of them
	// Digest is "user:password" of the digest scheme, empty without: a server may
	// be set to do nothing for those who have not said who they are.
	Digest string `json:"digest,omitempty"`
}

// Box holds the latest session of a child. It lies in memory without a name in any
// folder and ends with the processes that hold it. A nil Box takes everything and
// holds nothing.
type Box struct{ file *os.File }

const (
	boxName = "penstock-session"
	// boxSize is a page: one write into one page is not cut in two by a kill, the
	// kernel looks for signals between pages only.
	boxSize = 4096
	// variable names the descriptor to the child. It is not on the command line: a
	// parent may be a newer program than its child.
	variable = "PENSTOCK_SESSION_FD"
)

// NewBox is the parent's.
func NewBox() (*Box, error) {
	fd, err := unix.MemfdCreate(boxName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory for a child's session: %w", err)
	}
	return &Box{os.NewFile(uintptr(fd), boxName)}, nil
}

// File is what the child inherits.
func (b *Box) File() *os.File { return b.file }

// Variable is the environment's entry that names the descriptor to the child.
func Variable(fd int) string { return variable + "=" + strconv.Itoa(fd) }

// Inherited is the child's end of its parent's Box, nil if there is none. The
// variable is taken out of the environment, and the descriptor is not passed on.
func Inherited() (*Box, error) {
	v, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(variable)
	// The number may be left of an environment that was meant for another
	// process: nothing but a Box is written to.
	fd, err := strconv.ParseUint(v, 10, 31)
	if err != nil {
		return nil, fmt.Errorf("%s=%q is no descriptor", variable, v)
	}
	to, err := os.Readlink("/proc/self/fd/" + v)
	if err != nil || !strings.HasPrefix(to, "/memfd:"+boxName) {
		return nil, fmt.Errorf("%s=%s is not what a supervisor gives", variable, v)
	}
	unix.CloseOnExec(int(fd))
	return &Box{os.NewFile(uintptr(fd), boxName)}, nil
}

// Put replaces what the Box holds. It never blocks for long.
func (b *Box) Put(s Session) error {
	if b == nil {
		return nil
	}
	data, err := json.Marshal(s)
	if err == nil && len(data) > boxSize { // the one that knows the session will do
		s.Servers = nil
		data, err = json.Marshal(s)
	}
	if err != nil {
		return err
	}
	if len(data) > boxSize {
		return errors.New("a session's description is too long")
	}
	page := make([]byte, boxSize)
	copy(page, data)
	_, err = b.file.WriteAt(page, 0)
	return err
}

// Get is the latest session; false if there was none.
func (b *Box) Get() (Session, bool, error) {
	if b == nil {
		return Session{}, false, nil
	}
	page := make([]byte, boxSize)
	n, err := b.file.ReadAt(page, 0)
	data := bytes.TrimRight(page[:n], "\x00")
	if len(data) == 0 {
		return Session{}, false, nil
	}
	if n < boxSize && err != nil {
		return Session{}, false, err
	}
	var s Session
	if err := json.Unmarshal(data, &s); err != nil {
		return Session{}, false, fmt.Errorf("a child's session: %w", err)
	}
	return s, s.ID != 0, nil
}

// Close gives this process's hold on the memory back.
func (b *Box) Close() error {
	if b == nil {
		return nil
	}
	return b.file.Close()
}
