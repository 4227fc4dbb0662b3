package vfs

import "io"

// Op names a kind of call for fault injection.
type Op string

// The kinds of calls that a Faulty asks its hook about.
const (
	OpOpen     Op = "open"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpAllocate Op = "allocate"
	OpSync     Op = "sync"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
	OpList     Op = "list"
	OpSyncDir  Op = "syncdir"
)

// Faulty asks Hook before each call on FS or on a file of it; an error of the hook
// is returned instead of making the call. A failed write leaves half of its bytes.
type Faulty struct {
	FS
	Hook func(op Op, name string) error
}

// Open implements FS.
func (f *Faulty) Open(name string, create bool) (File, error) {
	if err := f.Hook(OpOpen, name); err != nil {
		return nil, err
	}
	x, err := f.FS.Open(name, create)
	if err != nil {
		return nil, err
	}
	return &faultyFile{x, f}, nil
}

// Rename implements FS.
func (f *Faulty) Rename(o, n string) error {
	return first(f.Hook(OpRename, o), func() error { return f.FS.Rename(o, n) })
}

// Remove implements FS.
func (f *Faulty) Remove(n string) error {
	return first(f.Hook(OpRemove, n), func() error { return f.FS.Remove(n) })
}

// RemoveAll implements FS.
func (f *Faulty) RemoveAll(n string) error {
	return first(f.Hook(OpRemove, n), func() error { return f.FS.RemoveAll(n) })
}

// MkdirAll implements FS.
func (f *Faulty) MkdirAll(n string) error {
	return first(f.Hook(OpMkdir, n), func() error { return f.FS.MkdirAll(n) })
}

// SyncDir implements FS.
func (f *Faulty) SyncDir(n string) error {
	return first(f.Hook(OpSyncDir, n), func() error { return f.FS.SyncDir(n) })
}

// ReadDir implements FS.
func (f *Faulty) ReadDir(n string) ([]Info, error) {
	if err := f.Hook(OpList, n); err != nil {
		return nil, err
	}
	return f.FS.ReadDir(n)
}

// Lock implements FS; it is not subject to faults.
func (f *Faulty) Lock(n string) (io.Closer, error) { return f.FS.Lock(n) }

func first(err error, call func() error) error {
	if err != nil {
		return err
	}
	return call()
}

type faultyFile struct {
	File
	fs *Faulty
}

func (f *faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.fs.Hook(OpRead, f.Name()); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.Hook(OpWrite, f.Name()); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Truncate(n int64) error {
	return first(f.fs.Hook(OpTruncate, f.Name()), func() error { return f.File.Truncate(n) })
}

func (f *faultyFile) Allocate(n int64) error {
	return first(f.fs.Hook(OpAllocate, f.Name()), func() error { return f.File.Allocate(n) })
}

func (f *faultyFile) Sync() error {
	return first(f.fs.Hook(OpSync, f.Name()), f.File.Sync)
}
