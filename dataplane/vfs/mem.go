package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that can lose power: Crash gives what a disk would
// show afterwards, and CutAt lets the power fail at a chosen change.
type Mem struct {
	mu    sync.Mutex
	root  *memNode
	log   []*nameOp // changes of names that are not yet durable, in order
	locks map[string]bool
	power power
}

// memNode is a folder or a file.
type memNode struct {
	dir           bool
	names, stored map[string]*memNode // of a folder: as it is, and as of the last sync
	data, synced  []byte              // of a file, likewise
	pending       []dataOp
	mtime         time.Time
}

// NewMem is an empty file system.
func NewMem() *Mem { return &Mem{root: newFolder(), locks: map[string]bool{}} }

func newFolder() *memNode {
	return &memNode{dir: true, names: map[string]*memNode{}, stored: map[string]*memNode{}, mtime: time.Now()}
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func clean(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

// find is the node of a path, nil if there is none.
func (m *Mem) find(name string) *memNode {
	n := m.root
	for part := range strings.SplitSeq(strings.TrimPrefix(clean(name), "/"), "/") {
		if part == "" {
			return n
		}
		if n = n.names[part]; n == nil {
			return nil
		}
	}
	return n
}

// parent is the folder that a path lies in, nil if there is none.
func (m *Mem) parent(name string) (dir *memNode, base string) {
	p := clean(name)
	if dir = m.find(path.Dir(p)); dir == nil || !dir.dir {
		return nil, ""
	}
	return dir, path.Base(p)
}

// Open implements FS.
func (m *Mem) Open(name string, create bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		dir, base := m.parent(name)
		if !create || dir == nil {
			return nil, notExist("open", name)
		}
		n = &memNode{mtime: time.Now()}
		if err := m.changeName(&nameOp{dir: dir, name: base, node: n}); err != nil {
			return nil, err
		}
	}
	if n.dir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return &memFile{fs: m, n: n, name: name}, nil
}

// Rename implements FS, within one folder only.
func (m *Mem) Rename(o, n string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, old := m.parent(o)
	to, base := m.parent(n)
	if from == nil || to == nil || from.names[old] == nil {
		return notExist("rename", o)
	}
	if from != to {
		return fmt.Errorf("rename %s to %s: into another folder", o, n)
	}
	return m.changeName(&nameOp{dir: from, name: base, from: old})
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil || dir.names[base] == nil {
		return notExist("remove", name)
	}
	if n := dir.names[base]; n.dir && len(n.names) > 0 {
		return fmt.Errorf("remove %s: folder is not empty", name)
	}
	return m.changeName(&nameOp{dir: dir, name: base})
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parent(name)
	if dir == nil || dir.names[base] == nil {
		return nil
	}
	return m.removeAll(dir, base)
}

func (m *Mem) removeAll(dir *memNode, base string) error {
	n := dir.names[base]
	for _, below := range sorted(n.names) {
		if err := m.removeAll(n, below); err != nil {
			return err
		}
	}
	return m.changeName(&nameOp{dir: dir, name: base})
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for part := range strings.SplitSeq(strings.TrimPrefix(clean(name), "/"), "/") {
		if part == "" {
			break
		}
		next := n.names[part]
		if next == nil {
			next = newFolder()
			if err := m.changeName(&nameOp{dir: n, name: part, node: next}); err != nil {
				return err
			}
		}
		if !next.dir {
			return fmt.Errorf("mkdir %s: a file is in the way", name)
		}
		n = next
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return nil, notExist("readdir", name)
	}
	out := make([]Info, 0, len(n.names))
	for _, base := range sorted(n.names) {
		out = append(out, n.names[base].info(base))
	}
	return out, nil
}

func sorted(names map[string]*memNode) []string {
	keys := make([]string, 0, len(names))
	for k := range names {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func (n *memNode) info(base string) Info {
	return Info{Name: base, Dir: n.dir, Size: int64(len(n.data)), ModTime: n.mtime}
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil {
		return Info{}, notExist("stat", name)
	}
	return n.info(path.Base(clean(name))), nil
}

// Lock implements FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	f, err := m.Open(name, true)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	if m.locks[p] {
		return nil, fmt.Errorf("lock %s: held", name)
	}
	m.locks[p] = true
	return &memLock{m: m, p: p, f: f}, nil
}

type memLock struct {
	m *Mem
	p string
	f File
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	delete(l.m.locks, l.p)
	l.m.mu.Unlock()
	return l.f.Close()
}
