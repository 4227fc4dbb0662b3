package vfs

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// OS is the real file system.
var OS FS = osFS{}

type osFS struct{}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Fd does not switch the file to blocking mode, as os.File.Fd may: regular files
// are never polled.
func (f osFile) Fd() (uintptr, bool) { return f.File.Fd(), true }

// Allocate keeps the length, so that readers of the folder, Kafka's tools among
// them, see batches up to the end of the file and nothing behind.
func (f osFile) Allocate(size int64) error {
	for {
		err := unix.Fallocate(int(f.File.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch err {
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return nil
		case nil:
			return nil
		}
		return &os.PathError{Op: "allocate", Path: f.Name(), Err: err}
	}
}

// Open does not try whether the file can be polled, as os.OpenFile does with five more
// system calls: a start opens half a dozen files of each partition.
func (osFS) Open(name string, create bool) (File, error) {
	flag := unix.O_RDWR | unix.O_CLOEXEC
	if create {
		flag |= unix.O_CREAT
	}
	for {
		fd, err := unix.Open(name, flag, 0o644)
		switch err {
		case unix.EINTR:
			continue
		case nil:
			return osFile{os.NewFile(uintptr(fd), name)}, nil
		}
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
}

func (osFS) Rename(o, n string) error    { return os.Rename(o, n) }
func (osFS) Remove(name string) error    { return os.Remove(name) }
func (osFS) RemoveAll(name string) error { return os.RemoveAll(name) }
func (osFS) MkdirAll(name string) error  { return os.MkdirAll(name, 0o755) }

func (osFS) ReadDir(name string) ([]Info, error) {
	es, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := make([]Info, 0, len(es))
	for _, e := range es {
		st, err := e.Info()
		if err == nil && st.Mode()&os.ModeSymlink != 0 {
			if to, err := os.Stat(filepath.Join(name, e.Name())); err == nil {
				st = to
			}
		}
		if os.IsNotExist(err) {
			continue // gone between listing and stat
		}
		if err != nil {
			return nil, err
		}
		out = append(out, infoOf(st))
	}
	return out, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(st), nil
}

func infoOf(st os.FileInfo) Info {
	return Info{Name: st.Name(), Dir: st.IsDir(), Special: !st.IsDir() && !st.Mode().IsRegular(), Size: st.Size(), ModTime: st.ModTime()}
}

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	// A record lock, not flock: the two do not see each other, and Java takes the
	// former. Owned by the open file, not the process, it lives as long as f does.
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: another process uses %s: %w", name, filepath.Dir(name), err)
	}
	return f, nil
}
