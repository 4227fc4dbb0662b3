package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// Mem is a file system in memory that can lose power: Crash gives what a disk
// would show afterwards.
type Mem struct {
	mu      sync.Mutex
	names   map[string]*memNode // live names, folders too
	durable map[string]*memNode // names as of the last commit
	log     []nameOp            // name changes since, in order
	locks   map[string]bool
}

// nameOp is one change of a name: node nil removes.
type nameOp struct {
	dir  string // the folder whose sync commits it
	name string
	node *memNode
	from string // rename: the name that goes in the same step
}

type memNode struct {
	dir     bool
	data    []byte
	synced  []byte
	pending []dataOp
	mtime   time.Time
}

// dataOp is one unsynced write, or a truncation if data is nil.
type dataOp struct {
	off  int64
	data []byte
}

func (o dataOp) apply(b []byte) []byte {
	if o.data == nil {
		return resize(b, o.off)
	}
	if end := o.off + int64(len(o.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[o.off:], o.data)
	return b
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}

// NewMem is an empty file system.
func NewMem() *Mem {
	root := &memNode{dir: true}
	return &Mem{names: map[string]*memNode{"/": root}, durable: map[string]*memNode{"/": root}, locks: map[string]bool{}}
}

// Crash is the disk after a power cut at this moment: of the name changes not yet
// synced a random first part is there (a journal keeps their order), of the writes
// not yet synced a random subset, some of them torn. m itself is not changed.
func (m *Mem) Crash(r *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	durable := clone(m.durable)
	for _, op := range m.log[:r.Intn(len(m.log)+1)] {
		op.apply(durable)
	}
	out := NewMem()
	copies := map[*memNode]*memNode{}
	keys := make([]string, 0, len(durable))
	for k := range durable {
		keys = append(keys, k)
	}
	sort.Strings(keys) // so that one seed gives one outcome
	for _, k := range keys {
		n := durable[k]
		c := copies[n]
		if c == nil {
			c = n.crash(r)
			copies[n] = c
		}
		out.names[k] = c
		out.durable[k] = c
	}
	return out
}

func (n *memNode) crash(r *rand.Rand) *memNode {
	b := append([]byte(nil), n.synced...)
	keep := r.Intn(3) // 0 none, 1 a random subset, 2 a first part
	cut := r.Intn(len(n.pending) + 1)
	for i, op := range n.pending {
		if keep == 0 || keep == 2 && i > cut || keep == 1 && r.Intn(2) == 0 {
			continue
		}
		if len(op.data) > 0 && (keep == 2 && i == cut || r.Intn(4) == 0) {
			op.data = op.data[:r.Intn(len(op.data)+1)]
			if len(op.data) == 0 {
				continue
			}
		}
		b = op.apply(b)
	}
	return &memNode{dir: n.dir, data: append([]byte(nil), b...), synced: b, mtime: n.mtime}
}

func clone(m map[string]*memNode) map[string]*memNode {
	out := make(map[string]*memNode, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func (o nameOp) apply(m map[string]*memNode) {
	if o.from == "" {
		if o.node == nil {
			delete(m, o.name)
		} else {
			m[o.name] = o.node
		}
		return
	}
	moved := map[string]*memNode{}
	for k, v := range m { // a folder takes what is below it along
		if k == o.from || strings.HasPrefix(k, o.from+"/") {
			moved[o.name+k[len(o.from):]] = v
			delete(m, k)
		}
	}
	for k, v := range moved {
		m[k] = v
	}
}

func clean(name string) string { return path.Clean("/" + filepath.ToSlash(name)) }

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func (m *Mem) do(o nameOp) {
	o.dir = path.Dir(o.name)
	o.apply(m.names)
	m.log = append(m.log, o)
}

// Open implements FS.
func (m *Mem) Open(name string, create bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	n := m.names[p]
	if n == nil {
		if d := m.names[path.Dir(p)]; !create || d == nil || !d.dir {
			return nil, notExist("open", name)
		}
		n = &memNode{mtime: time.Now()}
		m.do(nameOp{name: p, node: n})
	}
	if n.dir {
		return nil, fmt.Errorf("open %s: is a folder", name)
	}
	return &memFile{fs: m, n: n, name: name}, nil
}

// Rename implements FS.
func (m *Mem) Rename(o, n string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to := clean(o), clean(n)
	if m.names[from] == nil || m.names[path.Dir(to)] == nil {
		return notExist("rename", o)
	}
	m.do(nameOp{name: to, from: from})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	if m.names[p] == nil {
		return notExist("remove", name)
	}
	m.do(nameOp{name: p})
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	var below []string
	for k := range m.names {
		if k == p || strings.HasPrefix(k, p+"/") {
			below = append(below, k)
		}
	}
	sort.Sort(sort.Reverse(sort.StringSlice(below)))
	for _, k := range below {
		m.do(nameOp{name: k})
	}
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	for i := 1; i <= len(p); i++ {
		if i == len(p) || p[i] == '/' {
			if n := m.names[p[:i]]; n == nil {
				m.do(nameOp{name: p[:i], node: &memNode{dir: true}})
			} else if !n.dir {
				return fmt.Errorf("mkdir %s: a file is in the way", name)
			}
		}
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	if n := m.names[p]; n == nil || !n.dir {
		return nil, notExist("readdir", name)
	}
	var out []Info
	for k, n := range m.names {
		if k != p && path.Dir(k) == p {
			out = append(out, n.info(path.Base(k)))
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out, nil
}

func (n *memNode) info(base string) Info {
	return Info{Name: base, Dir: n.dir, Size: int64(len(n.data)), ModTime: n.mtime}
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.names[clean(name)]
	if n == nil {
		return Info{}, notExist("stat", name)
	}
	return n.info(path.Base(clean(name))), nil
}

// SyncDir implements FS. All changes up to the last one in this folder become
// durable, those of other folders in between too: a journal commits in order.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := clean(name)
	if m.names[p] == nil {
		return notExist("syncdir", name)
	}
	last := -1
	for i, o := range m.log {
		if o.dir == p || o.name == p || o.from != "" && path.Dir(o.from) == p {
			last = i
		}
	}
	for _, o := range m.log[:last+1] {
		o.apply(m.durable)
	}
	m.log = append([]nameOp(nil), m.log[last+1:]...)
	return nil
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
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return 0, err
	}
	op := dataOp{off: off, data: append(make([]byte, 0, len(p)), p...)}
	f.n.data = op.apply(f.n.data)
	f.n.pending = append(f.n.pending, op)
	f.n.mtime = time.Now()
	return len(p), nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return err
	}
	op := dataOp{off: size}
	f.n.data = append([]byte(nil), op.apply(f.n.data)...)
	f.n.pending = append(f.n.pending, op)
	return nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check(); err != nil {
		return err
	}
	for _, op := range f.n.pending {
		f.n.synced = op.apply(f.n.synced)
	}
	f.n.pending = nil
	return nil
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
