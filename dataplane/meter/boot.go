package meter

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"penstock/dataplane/protocol"
	"penstock/tenants/usage"
)

// The files in the folder.
const (
	currentName = "penstock-usage.meter"
	finalPrefix = "penstock-usage-final-" // and the boot's epoch
	maxFinal    = 64 << 20
	// unsettled is the age at which a journal entry is dropped at a start.
	unsettled = 7 * 24 * time.Hour
)

// In tells whether a folder holds the counters of an earlier boot.
func In(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, currentName))
	return err == nil
}

// boot closes the last boot and begins a new one; see the package comment.
func (m *Meter) boot() error {
	path := filepath.Join(m.cfg.Dir, currentName)
	old, err := m.readOld(path)
	if err != nil {
		return err
	}
	epoch := max(1, m.cfg.Now().UnixMilli())
	if old != nil {
		epoch = max(epoch, old.epoch()+1)
		if err := m.writeFinal(old); err != nil {
			return err
		}
	}
	// A boot whose file was lost may still have final records here.
	if finals, err := m.finals(); err != nil {
		return err
	} else if n := len(finals); n > 0 {
		epoch = max(epoch, finals[n-1]+1)
	}
	l := &layout{np: uint32(m.cfg.MaxPrincipals) + 1, nt: uint32(m.cfg.MaxPartitions), nj: uint32(m.cfg.MaxJournal)}
	f, err := create(path+".tmp", fileSize(l.np, l.nt, l.nj))
	if err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	// The descriptor is not needed once the file is mapped.
	l.data, err = unix.Mmap(int(f.Fd()), 0, int(fileSize(l.np, l.nt, l.nj)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("meter: map %s: %w", path, err)
	}
	l.initialise(epoch, m.cfg.Broker)
	m.l, m.epoch = l, epoch
	m.index()
	if old != nil {
		m.carryOver(old)
	}
	err = unix.Msync(l.data, unix.MS_SYNC)
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err == nil {
		err = syncDir(m.cfg.Dir)
	}
	if err != nil {
		unix.Munmap(l.data)
		return fmt.Errorf("meter: %w", err)
	}
	return nil
}

// readOld reads the file of the last boot; nil if there is none. One that
// cannot be understood is put aside, for a human to look at: counting goes on.
func (m *Meter) readOld(path string) (*layout, error) {
	data, err := readFile(path, fileSize(maxPrincipals, maxPartitions, maxJournal))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	l, dropped, err := parse(aligned(data))
	if err != nil {
		aside := path + ".unusable-" + strconv.FormatInt(m.cfg.Now().UnixMilli(), 10)
		m.log.Error("the usage counters of the last boot are unusable and put aside", "file", aside, "err", err)
		return nil, os.Rename(path, aside)
	}
	if dropped > 0 {
		m.log.Warn("entries of the usage journal made no sense and are dropped", "entries", dropped)
	}
	return l, nil
}

// aligned copies data to where 8-byte fields may be read atomically. Go's
// allocator aligns large slices already; this keeps it from being an assumption.
func aligned(data []byte) []byte {
	words := make([]uint64, (len(data)+7)/8)
	if len(words) == 0 {
		return nil
	}
	out := bytesOf(words)[:len(data)]
	copy(out, data)
	return out
}

// writeFinal keeps the last values of a boot until they are published.
func (m *Meter) writeFinal(old *layout) error {
	if old.get(offFinal) == 1 {
		return nil
	}
	var entries []usage.Entry
	for p := uint32(0); p < old.np; p++ {
		name := old.name(p)
		if name == "" {
			continue
		}
		for d := range 2 {
			if v := old.values(counterIndex(p, d)); v != (values{}) && v[0] >= 0 && v[1] >= 0 && v[2] >= 0 {
				entries = append(entries, usageEntry(name, d, v))
			}
		}
	}
	if len(entries) == 0 && old.seq() == 0 {
		return nil // a boot that published nothing and counted nothing
	}
	var lines bytes.Buffer
	seq := old.seq()
	for first := true; first || len(entries) > 0; first = false {
		n := min(len(entries), usage.MaxEntries)
		seq++
		r := usage.Record{Cluster: m.cfg.Cluster, Broker: int32(old.get(offBroker)), BootEpoch: old.epoch(), Seq: seq,
			At: m.cfg.Now(), Final: n == len(entries), Entries: entries[:n]}
		b, err := r.Encode()
		if err != nil {
			return fmt.Errorf("meter: final record: %w", err)
		}
		lines.Write(b)
		lines.WriteByte('\n')
		entries = entries[n:]
	}
	path := filepath.Join(m.cfg.Dir, finalPrefix+strconv.FormatInt(old.epoch(), 10))
	if _, err := os.Stat(path); err == nil {
		return nil // written before a kill; the boot has counted nothing since
	}
	return writeAtomic(path, lines.Bytes())
}

// finals lists the epochs of boots whose final records wait, ascending.
func (m *Meter) finals() ([]int64, error) {
	entries, err := os.ReadDir(m.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("meter: %w", err)
	}
	var out []int64
	for _, e := range entries {
		if s, ok := strings.CutPrefix(e.Name(), finalPrefix); ok {
			if epoch, err := strconv.ParseInt(s, 10, 64); err == nil && epoch > 0 {
				out = append(out, epoch)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// carryOver takes the old journal into the new file, oldest batches first.
func (m *Meter) carryOver(old *layout) {
	type item struct {
		e    entry
		tp   protocol.TopicPartition
		name string
	}
	var items []item
	late := 0
	for i := uint32(0); i < old.nj; i++ {
		e, used := old.entry(i)
		if !used {
			continue
		}
		if m.cfg.Now().Sub(time.UnixMilli(e.time)) > unsettled {
			late++
			continue
		}
		tp, _ := old.tp(e.partition)
		items = append(items, item{e, tp, old.name(e.principal)})
	}
	slices.SortStableFunc(items, func(a, b item) int {
		return cmp.Or(cmp.Compare(a.tp.Topic, b.tp.Topic), cmp.Compare(a.tp.Partition, b.tp.Partition), cmp.Compare(a.e.base, b.e.base))
	})
	for _, it := range items {
		m.journal(it.name, it.tp, it.e)
	}
	if late > 0 {
		m.log.Warn("batches that nobody settled are dropped from the usage journal", "batches", late)
	}
}

// create makes a file of that size with all its blocks, so that a full disk is
// an error here and not a fault at a store into the mapping.
func create(path string, size int64) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		zeros := make([]byte, 1<<20)
		for done := int64(0); done < size && (err == nil || done == 0); done += int64(len(zeros)) {
			_, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-done)], done)
		}
	}
	if err != nil {
		f.Close()
		os.Remove(path)
		return nil, &fs.PathError{Op: "allocate", Path: path, Err: err}
	}
	return f, nil
}

func readFile(path string, limit int64) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s has %d bytes, limit %d", path, st.Size(), limit)
	}
	return os.ReadFile(path)
}

func writeAtomic(path string, b []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("meter: %w", err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
