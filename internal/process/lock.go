package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TryLock takes an exclusive lock on the file, which it makes if missing, and
// holds it until the returned file is closed or the process dies. ok is false
// if it is held already.
//
// It is an open-file-description lock (fcntl(2), F_OFD_SETLK) rather than
// flock(2), since that kind can be asked about without being taken: a probe
// that takes the lock for a moment would turn away its rightful owner.
func TryLock(path string) (f *os.File, ok bool, err error) {
	f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, wholeFile())
	if err == nil {
		return f, true, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// Locked reports whether somebody holds the lock of TryLock on the file.
func Locked(path string) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	l := wholeFile()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, l); err != nil {
		return false, fmt.Errorf("ask for the lock of %s: %w", path, err)
	}
	return l.Type != unix.F_UNLCK, nil
}

func wholeFile() *unix.Flock_t {
	return &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
}

// LockSlot waits for one of the many locks in one file, numbered by slot, and
// returns what gives it back. Holders may be in one process or in several.
func LockSlot(path string, slot uint32) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	l := &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: int64(slot), Len: 1}
	for {
		switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, l); {
		case err == nil:
			return func() { f.Close() }, nil
		case !errors.Is(err, unix.EINTR):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}
