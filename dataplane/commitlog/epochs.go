package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strconv"
	"sync"

	"penstock/dataplane/vfs"
)

const epochsFile = "leader-epoch-checkpoint"

// epochEntry says where a leader epoch begins.
type epochEntry struct {
	epoch int32
	start int64
}

// epochs is the history of leader epochs of a log, ascending in both fields, kept in
// the file leader-epoch-checkpoint, which is replaced durably at each change but these:
// an epoch that has begun and has no batches yet (begin), and such ones that go
// (truncateEnd) when nothing else is cut. Those wait for the next batch, which must
// not be written before the file is (persist), or for Close: a broker that comes to
// lead ten thousand partitions would else sync as many files twice. A crash loses
// nothing by it, since what the file then has too little or too much begins at or
// behind the end of the log. Nor does what the file has too much before the log's start
// matter (truncateStart); it goes with the next change or at Close, so that retention
// does not hold appends up with a sync.
type epochs struct {
	fs  vfs.FS
	dir string

	mu      sync.RWMutex
	entries []epochEntry
	waiting bool // the file does not have all of it yet
	behind  bool // the file has entries below the log's start
}

// loadEpochs reads the file; a missing one gives an error that matches fs.ErrNotExist.
func loadEpochs(fsys vfs.FS, dir string) (*epochs, error) {
	e := &epochs{fs: fsys, dir: dir}
	b, err := vfs.ReadFile(fsys, e.path(), maxCheckpointSize)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			err = storageErr("read", e.path(), err)
		}
		return e, err
	}
	entries, err := parseEpochs(b)
	if err == nil { // of a damaged file nothing is believed
		e.entries = entries
	}
	return e, err
}

func parseEpochs(b []byte) ([]epochEntry, error) {
	var out []epochEntry
	err := parseCheckpoint(b, 2, func(f [][]byte) error {
		epoch, err1 := strconv.ParseInt(string(f[0]), 10, 32)
		start, err2 := strconv.ParseInt(string(f[1]), 10, 64)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if epoch < 0 || start < 0 {
			return fmt.Errorf("epoch %d at %d", epoch, start)
		}
		if n := len(out); n > 0 && (out[n-1].epoch >= int32(epoch) || out[n-1].start > start) {
			return fmt.Errorf("epoch %d at %d after %d at %d", epoch, start, out[n-1].epoch, out[n-1].start)
		}
		out = append(out, epochEntry{int32(epoch), start})
		return nil
	})
	return out, err
}

func (e *epochs) path() string { return filepath.Join(e.dir, epochsFile) }

// store writes the file. REQUIRES: mu held.
func (e *epochs) store(entries []epochEntry) error {
	lines := make([]string, len(entries))
	for i, x := range entries {
		lines[i] = fmt.Sprintf("%d %d", x.epoch, x.start)
	}
	if err := vfs.WriteFileAtomic(e.fs, e.path(), formatCheckpoint(lines)); err != nil {
		return storageErr("write", e.path(), err)
	}
	e.entries, e.waiting, e.behind = entries, false, false
	return nil
}

// persist writes the file if it does not have all yet.
func (e *epochs) persist() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.waiting {
		return nil
	}
	return e.store(e.entries)
}

// settle brings the file to what is known.
func (e *epochs) settle() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.waiting && !e.behind {
		return nil
	}
	return e.store(e.entries)
}

// lags tells that the file has entries below the log's start.
func (e *epochs) lags() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.behind
}

func (e *epochs) latest() (int32, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if len(e.entries) == 0 {
		return -1, false
	}
	return e.entries[len(e.entries)-1].epoch, true
}

// begin records the start of an epoch at the end of the log. Entries that contradict
// it (same or higher epoch, or same or higher start) go.
func (e *epochs) begin(epoch int32, start int64) error {
	if epoch < 0 || start < 0 {
		return fmt.Errorf("leader epoch %d at offset %d", epoch, start)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n := len(e.entries); n > 0 && e.entries[n-1].epoch == epoch && e.entries[n-1].start <= start {
		return nil
	}
	n := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].epoch >= epoch || e.entries[i].start >= start })
	e.entries = append(append([]epochEntry(nil), e.entries[:n]...), epochEntry{epoch, start})
	e.waiting = true
	return nil
}

// assign is begin for an epoch whose batches are there or about to be.
func (e *epochs) assign(epoch int32, start int64) error {
	if err := e.begin(epoch, start); err != nil {
		return err
	}
	return e.persist()
}

// truncateEnd drops epochs that begin at or after end, where the log ends by now.
func (e *epochs) truncateEnd(end int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].start >= end })
	if n < len(e.entries) {
		e.entries, e.waiting = append([]epochEntry(nil), e.entries[:n]...), true
	}
}

// truncateStart drops epochs that end before start; the one that start lies in
// begins there from now on.
func (e *epochs) truncateStart(start int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].start > start })
	if n == 0 || n == 1 && e.entries[0].start == start {
		return
	}
	kept := append([]epochEntry(nil), e.entries[n-1:]...)
	kept[0].start = start
	e.entries, e.behind = kept, true
}

// first is where the oldest known epoch begins.
func (e *epochs) first() (start int64, ok bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if len(e.entries) == 0 {
		return -1, false
	}
	return e.entries[0].start, true
}

// prepend adds older epochs; those that do not fit before the ones there are left out,
// and one that begins earlier than was known does so from now on.
func (e *epochs) prepend(older []epochEntry) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	rest := e.entries
	for len(older) > 0 && len(rest) > 0 && older[len(older)-1].epoch >= rest[0].epoch {
		if o := older[len(older)-1]; o.epoch == rest[0].epoch {
			rest = rest[1:]
			break
		}
		older = older[:len(older)-1]
	}
	if len(older) == 0 {
		return nil
	}
	return e.store(append(append([]epochEntry(nil), older...), rest...))
}

func (e *epochs) clear() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.entries) == 0 {
		return nil
	}
	return e.store(nil)
}

// endOffset is where the largest epoch not above epoch ends, in a log that ends at end.
func (e *epochs) endOffset(epoch int32, end int64) (int32, int64) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if epoch < 0 || len(e.entries) == 0 {
		return -1, -1
	}
	if e.entries[len(e.entries)-1].epoch == epoch {
		return epoch, end
	}
	i := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].epoch > epoch })
	switch i {
	case len(e.entries):
		return -1, -1 // newer than all we know
	case 0:
		return epoch, e.entries[0].start
	default:
		return e.entries[i-1].epoch, e.entries[i].start
	}
}

func (e *epochs) at(offset int64) (int32, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	i := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].start > offset })
	if i == 0 {
		return -1, false
	}
	return e.entries[i-1].epoch, true
}

func (e *epochs) start(epoch int32) (int64, bool) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	i := sort.Search(len(e.entries), func(i int) bool { return e.entries[i].epoch >= epoch })
	if i == len(e.entries) || e.entries[i].epoch != epoch {
		return -1, false
	}
	return e.entries[i].start, true
}
