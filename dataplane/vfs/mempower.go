package vfs

import (
	"errors"
	"maps"
	"math/rand"
)

// ErrPowerCut is the error of every change after the power has failed.
var ErrPowerCut = errors.New("the power has failed")

// sectorSize is what a disk writes whole, in bytes.
const sectorSize = 512

// power counts the changes and fails at one of them.
type power struct {
	changes int
	failAt  int // 0: never
	rand    *rand.Rand
	disk    *Mem
}

// CutAt lets the power fail at the n-th change from now on (1: the next one). That
// change and all after it give ErrPowerCut; what it left behind is up to chance, as
// of all that was not synced. Reading goes on, for whoever looks at the wreck.
func (m *Mem) CutAt(n int, r *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.power.failAt, m.power.rand = m.power.changes+n, r
}

// Disk is what the power cut left, nil before it.
func (m *Mem) Disk() *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power.disk
}

// Changes counts the calls that change something durable: creations, writes,
// truncations, renames, removals, syncs of files and folders.
func (m *Mem) Changes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.power.changes
}

// change makes a change that a sync will have to commit. REQUIRES: mu held.
func (m *Mem) change(apply func()) error { return m.step(apply, true) }

// commit makes changes durable: it happens, or the power fails before it.
func (m *Mem) commit(apply func()) error { return m.step(apply, false) }

func (m *Mem) step(apply func(), may bool) error {
	if m.power.disk != nil {
		return ErrPowerCut
	}
	m.power.changes++
	last := m.power.changes == m.power.failAt
	if !last || may {
		apply()
	}
	if last {
		m.power.disk = m.crash(m.power.rand)
		return ErrPowerCut
	}
	return nil
}

// nameOp is one change of a folder: the name comes (node), goes (no node), or takes
// the place of another (from).
type nameOp struct {
	dir  *memNode
	name string
	node *memNode
	from string
}

func (o *nameOp) apply(names map[string]*memNode) {
	switch {
	case o.from != "":
		if n := names[o.from]; n != nil {
			delete(names, o.from)
			names[o.name] = n
		}
	case o.node != nil:
		names[o.name] = o.node
	default:
		delete(names, o.name)
	}
}

// changeName makes the change in the living folder. REQUIRES: mu held.
func (m *Mem) changeName(o *nameOp) error {
	return m.change(func() {
		o.apply(o.dir.names)
		m.log = append(m.log, o)
	})
}

// SyncDir implements FS. It promises no more than POSIX does: the names of this one
// folder.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	if n == nil || !n.dir {
		return notExist("syncdir", name)
	}
	return m.commit(func() {
		rest := m.log[:0:0]
		for _, o := range m.log {
			if o.dir == n {
				o.apply(n.stored)
			} else {
				rest = append(rest, o)
			}
		}
		m.log = rest
	})
}

// Crash is the disk after a power cut at this moment; m itself is not changed. A
// journal keeps the order of changed names, so that a first part of those not synced
// is there: of all of them, or of each folder by itself, where each has a journal of
// its own. See memNode.crash for the bytes.
func (m *Mem) Crash(r *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crash(r)
}

func (m *Mem) crash(r *rand.Rand) *Mem {
	tables := map[*memNode]map[string]*memNode{}
	table := func(dir *memNode) map[string]*memNode {
		if tables[dir] == nil {
			tables[dir] = maps.Clone(dir.stored)
		}
		return tables[dir]
	}
	if r.Intn(2) == 0 {
		for _, o := range m.log[:r.Intn(len(m.log)+1)] {
			o.apply(table(o.dir))
		}
	} else {
		of := map[*memNode]int{}
		for _, o := range m.log {
			of[o.dir]++
		}
		left := map[*memNode]int{}
		for _, o := range m.log {
			if _, drawn := left[o.dir]; !drawn {
				left[o.dir] = r.Intn(of[o.dir] + 1)
			}
			if left[o.dir] > 0 {
				left[o.dir]--
				o.apply(table(o.dir))
			}
		}
	}
	out := NewMem()
	out.root = m.root.crash(r, table)
	return out
}

// crash is what is left of a node. Of a file's writes since its last sync there are:
// none; all; a first part, the last one torn; any sectors, and any truncations; or
// the length without the bytes.
func (n *memNode) crash(r *rand.Rand, table func(*memNode) map[string]*memNode) *memNode {
	if n.dir {
		out := newFolder()
		names := table(n)
		for _, base := range sorted(names) { // in order, so that one seed gives one outcome
			c := names[base].crash(r, table)
			out.names[base], out.stored[base] = c, c
		}
		return out
	}
	b := append([]byte(nil), n.synced...)
	switch r.Intn(5) {
	case 0:
	case 1:
		for _, op := range n.pending {
			b = op.apply(b)
		}
	case 2:
		cut := r.Intn(len(n.pending) + 1)
		for _, op := range n.pending[:cut] {
			b = op.apply(b)
		}
		if cut < len(n.pending) {
			b = n.pending[cut].tear(b, r)
		}
	case 3:
		for _, op := range n.pending {
			b = op.scatter(b, r)
		}
	default:
		b = resize(b, int64(len(n.data)))
	}
	return &memNode{data: append([]byte(nil), b...), synced: b, mtime: n.mtime}
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

// tear applies a first part of a write: whole sectors, or as many bytes as the
// length of the file says.
func (o dataOp) tear(b []byte, r *rand.Rand) []byte {
	if len(o.data) == 0 {
		return b
	}
	n := r.Intn(len(o.data))
	if r.Intn(2) == 0 {
		n = int(max(0, (o.off+int64(n))/sectorSize*sectorSize-o.off))
	}
	if n == 0 {
		return b
	}
	return dataOp{o.off, o.data[:n]}.apply(b)
}

// scatter applies some sectors of a write, or perhaps a truncation.
func (o dataOp) scatter(b []byte, r *rand.Rand) []byte {
	if o.data == nil {
		if r.Intn(4) > 0 {
			b = o.apply(b)
		}
		return b
	}
	for at := o.off; at < o.off+int64(len(o.data)); {
		next := min((at/sectorSize+1)*sectorSize, o.off+int64(len(o.data)))
		if r.Intn(2) == 0 {
			b = dataOp{at, o.data[at-o.off : next-o.off]}.apply(b)
		}
		at = next
	}
	return b
}

func resize(b []byte, n int64) []byte {
	if n <= int64(len(b)) {
		return b[:n:n]
	}
	return append(b, make([]byte, n-int64(len(b)))...)
}
