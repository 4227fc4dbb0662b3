package vfs

import (
	"io"
	"io/fs"
	"time"
)

type memFile struct {
	fs     *Mem
	n      *memNode
	name   string
	closed bool
}

func (f *memFile) check() error {
	if f.closed {
		return fs.ErrClosed
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return 0, err
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.change(dataOp{off: off, data: append(make([]byte, 0, len(p)), p...)})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error { return f.change(dataOp{off: size}) }

func (f *memFile) change(op dataOp) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return err
	}
	return f.fs.change(func() {
		f.n.data = op.apply(f.n.data)
		f.n.pending = append(f.n.pending, op)
		f.n.mtime = time.Now()
	})
}

// Allocate implements File: memory needs no reserving.
func (f *memFile) Allocate(int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.check()
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return err
	}
	return f.fs.commit(func() {
		for _, op := range f.n.pending {
			f.n.synced = op.apply(f.n.synced)
		}
		f.n.pending = nil
	})
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.n.data)), f.check()
}

func (f *memFile) Fd() (uintptr, bool) { return 0, false }
func (f *memFile) Name() string        { return f.name }

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.check()
	f.closed = true
	return err
}
