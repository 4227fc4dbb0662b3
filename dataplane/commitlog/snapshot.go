package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"sort"
	"strconv"
	"strings"

	"penstock/dataplane/vfs"
)

// A producer snapshot, version 1: int16 version, uint32 CRC-32C of what follows,
// int32 count, then per producer int64 id, int16 epoch, int32 last sequence, int64
// last offset, int32 offset delta, int64 timestamp (for expiry, see producers.add),
// int32 coordinator epoch, int64 first offset of the open transaction. It holds the
// last batch of a producer only; see earlier.go for the others.
const (
	snapshotVersion   = 1
	snapshotHeader    = 2 + 4
	snapshotEntrySize = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8
	maxSnapshotSize   = 1 << 30
)

var errSnapshot = errors.New("producer snapshot is malformed")

func (ps *producers) encode() []byte {
	ids := make([]int64, 0, len(ps.byID))
	for id := range ps.byID {
		ids = append(ids, id)
	}
	sort.Slice(ids, func(i, j int) bool { return ids[i] < ids[j] })
	b := make([]byte, snapshotHeader, snapshotHeader+4+len(ids)*snapshotEntrySize)
	b = be.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := ps.byID[id]
		last := batchMeta{lastSeq: -1, lastOffset: -1}
		if p.n > 0 {
			last = p.batches[p.n-1]
		}
		b = be.AppendUint64(b, uint64(id))
		b = be.AppendUint16(b, uint16(p.epoch))
		b = be.AppendUint32(b, uint32(last.lastSeq))
		b = be.AppendUint64(b, uint64(last.lastOffset))
		b = be.AppendUint32(b, uint32(last.offsetDelta))
		b = be.AppendUint64(b, uint64(p.lastTimestamp))
		b = be.AppendUint32(b, uint32(p.coordinatorEpoch))
		b = be.AppendUint64(b, uint64(p.txnFirst))
	}
	be.PutUint16(b, snapshotVersion)
	be.PutUint32(b[2:], crc32.Checksum(b[snapshotHeader:], castagnoli))
	return b
}

func decodeSnapshot(b []byte) (*producers, error) {
	if len(b) < snapshotHeader+4 {
		return nil, fmt.Errorf("%w: %d bytes", errSnapshot, len(b))
	}
	if v := be.Uint16(b); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d", errSnapshot, v)
	}
	if crc32.Checksum(b[snapshotHeader:], castagnoli) != be.Uint32(b[2:]) {
		return nil, fmt.Errorf("%w: checksum", errSnapshot)
	}
	n := int64(int32(be.Uint32(b[snapshotHeader:])))
	b = b[snapshotHeader+4:]
	if n < 0 || n*snapshotEntrySize != int64(len(b)) {
		return nil, fmt.Errorf("%w: %d producers in %d bytes", errSnapshot, n, len(b))
	}
	ps := &producers{}
	for ; len(b) > 0; b = b[snapshotEntrySize:] {
		id := int64(be.Uint64(b))
		if ps.byID[id] != nil {
			return nil, fmt.Errorf("%w: producer %d twice", errSnapshot, id)
		}
		p := ps.get(id)
		p.epoch = int16(be.Uint16(b[8:]))
		m := batchMeta{
			lastSeq: int32(be.Uint32(b[10:])), lastOffset: int64(be.Uint64(b[14:])),
			offsetDelta: int32(be.Uint32(b[22:])), timestamp: int64(be.Uint64(b[26:])),
		}
		if m.offsetDelta < 0 {
			return nil, fmt.Errorf("%w: offset delta %d", errSnapshot, m.offsetDelta)
		}
		p.n = 0
		if m.lastOffset >= 0 {
			p.batches[0], p.n = m, 1
		}
		p.lastTimestamp = m.timestamp
		p.coordinatorEpoch = int32(be.Uint32(b[34:]))
		switch first := int64(be.Uint64(b[38:])); {
		case first < -1:
			return nil, fmt.Errorf("%w: transaction from offset %d", errSnapshot, first)
		case first >= 0:
			ps.begin(p, id, first)
		}
	}
	return ps, nil
}

// snapshotOffsets lists the snapshots of the log, ascending.
func (l *Log) snapshotOffsets() ([]int64, error) { return l.offsetsOf(snapshotSuffix) }

// offsetsOf lists the files with one of the suffixes, ascending, by their offsets.
func (l *Log) offsetsOf(suffixes ...string) ([]int64, error) {
	var es []vfs.Info
	if l.listed != nil && !l.listed.stale {
		es = l.listed.files
	} else {
		var err error
		if es, err = l.fs.ReadDir(l.dir); err != nil {
			return nil, storageErr("list", l.dir, err)
		}
	}
	var out []int64
	for _, e := range es {
		for _, suffix := range suffixes {
			if o, ok := baseOfName(e.Name, suffix); ok {
				out = append(out, o)
			}
		}
	}
	return slices.Compact(out), nil // names have a fixed width, so they come sorted
}

// baseOfName reads the 20-digit offset of a file name with the suffix.
func baseOfName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	o, err := strconv.ParseInt(digits, 10, 64)
	return o, err == nil && o >= 0
}

// writeSnapshot stores the state as of offset, and what was written of it that is not on
// disk among what is to be synced; without sync a power cut may spoil it, which its
// checksum tells. REQUIRES: mu held, or the log not yet shared.
func (l *Log) writeSnapshot(offset int64, sync bool) error {
	path, b := segmentPath(l.dir, offset, snapshotSuffix), l.producers.encode()
	earlier, err := l.writeBatches(offset, b, sync)
	if err != nil {
		return err
	}
	if err := writeFile(l.fs, path, b, sync); err != nil {
		return err
	}
	if !sync {
		l.unsynced = append(l.unsynced, path)
		if earlier != "" {
			l.unsynced = append(l.unsynced, earlier)
		}
	}
	return nil
}

func writeFile(fsys vfs.FS, path string, b []byte, sync bool) error {
	f, err := fsys.Open(path, true)
	if err != nil {
		return storageErr("open", path, err)
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return storageErr("write", path, err)
}

// removeSnapshot removes the snapshot as of offset and the file beside it.
func removeSnapshot(fsys vfs.FS, dir string, offset int64) error {
	return errors.Join(removeIfThere(fsys, segmentPath(dir, offset, snapshotSuffix)), removeIfThere(fsys, segmentPath(dir, offset, batchesSuffix)))
}

// removeIfThere removes a file that may be missing.
func removeIfThere(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storageErr("remove", path, err)
	}
	return nil
}
