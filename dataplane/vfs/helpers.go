package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// ReadFile reads a whole file of at most limit bytes; a longer one is an error, so
// that a damaged file cannot fill the memory.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("read %s: %d bytes, more than %d", name, n, limit)
	}
	b := make([]byte, n)
	if m, err := f.ReadAt(b, 0); err != nil && !(errors.Is(err, io.EOF) && int64(m) == n) {
		return nil, err
	}
	return b, nil
}

// WriteFileAtomic replaces a file durably: after a crash it is the old or the new
// one, whole. The temporary name is name + ".tmp".
func WriteFileAtomic(fsys FS, name string, b []byte) error {
	if err := ReplaceFile(fsys, name, b); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(name))
}

// ReplaceFile is WriteFileAtomic for a caller who syncs the folder: until then a crash
// may bring the old file back.
func ReplaceFile(fsys FS, name string, b []byte) error {
	tmp := name + ".tmp"
	if err := fsys.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Open(tmp, true)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return fsys.Rename(tmp, name)
}

// Exists tells whether the name is there; an error other than "not there" counts as there.
func Exists(fsys FS, name string) bool {
	_, err := fsys.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

// MkdirAllDurable makes a folder and its parents, and syncs the folders that have got
// a new name in them.
func MkdirAllDurable(fsys FS, name string) error {
	var dirty []string
	for p := filepath.Clean(name); !Exists(fsys, p); p = filepath.Dir(p) {
		dirty = append(dirty, filepath.Dir(p))
	}
	if len(dirty) == 0 {
		return nil
	}
	if err := fsys.MkdirAll(name); err != nil {
		return err
	}
	for _, p := range dirty {
		if err := fsys.SyncDir(p); err != nil {
			return err
		}
	}
	return nil
}
