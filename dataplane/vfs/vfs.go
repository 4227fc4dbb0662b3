// Package vfs is the file-system seam under the commit log: the few calls that
// the log makes, a real implementation, one in memory that can lose power, and
// one that injects faults.
//
// Durability follows POSIX at its strictest: bytes are safe after File.Sync,
// names (create, rename, remove) after FS.SyncDir of the folder.
package vfs

import (
	"io"
	"time"
)

// File is an open regular file. ReadAt and WriteAt may be called concurrently;
// WriteAt beyond the end leaves a hole of zeros.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Truncate sets the length in bytes.
	Truncate(size int64) error
	// Allocate reserves disk space for size bytes without changing the length; what
	// lies behind the length goes back with the next Truncate. Where the file system
	// cannot it does nothing.
	Allocate(size int64) error
	// Sync makes all bytes written so far survive a power cut.
	Sync() error
	// Size is the length in bytes.
	Size() (int64, error)
	// Fd is the descriptor for sendfile; ok is false where there is none (memory).
	// It is valid until Close.
	Fd() (fd uintptr, ok bool)
	// Name is the path the file was opened under (a rename does not change it).
	Name() string
}

// Info describes one name in a folder.
type Info struct {
	Name    string // base name
	Dir     bool
	Special bool  // neither a folder nor a regular file: a pipe, a device, a link to nowhere
	Size    int64 // bytes
	ModTime time.Time
}

// FS is a file system. Paths are plain OS paths; a missing name gives an error
// that matches fs.ErrNotExist.
type FS interface {
	// Open opens for reading and writing; create makes a missing file.
	Open(name string, create bool) (File, error)
	Rename(oldName, newName string) error
	Remove(name string) error
	// RemoveAll removes a folder with all below it; a missing one is no error.
	RemoveAll(name string) error
	// MkdirAll makes a folder and its parents.
	MkdirAll(name string) error
	// ReadDir lists a folder sorted by name. What a link leads to stands in its place, as
	// in Stat.
	ReadDir(name string) ([]Info, error)
	Stat(name string) (Info, error)
	// SyncDir makes creations, renames and removals in the folder durable.
	SyncDir(name string) error
	// Lock takes an exclusive lock on a file, made if missing, until Close or the
	// death of the process. It fails at once when another process holds it.
	Lock(name string) (io.Closer, error)
}
