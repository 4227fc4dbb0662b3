package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"slices"

	"penstock/dataplane/vfs"
)

// A producer snapshot is Kafka's, and holds the last batch of a producer only: whoever
// starts from it would refuse the client that sends the ones before again, which then
// begins a new epoch and has them appended twice. So a snapshot of ours has a file of
// its own beside it, with all batches that are remembered of each producer of which the
// snapshot does not say all: int16 version, uint32 CRC-32C of what follows, uint32
// CRC-32C of the snapshot (as it stands in there), int32 leader epoch of the batch
// before the snapshot's offset, -1 if not known, int32 count, then per producer int64
// id, int8 number of batches, and for each, oldest first, int32 last sequence, int64
// last offset, int32 offset delta, int64 largest timestamp.
//
// Kafka leaves the file alone, and it must say nothing of a log that Kafka has cut and
// appended to since. The epoch binds it to the batches: in a log that has the same
// leader's batch at an offset, all before it is the same, too. Where the epoch is not
// known, as the log begins at the offset, the snapshot must be the very one.
const (
	batchesVersion   = 1
	batchesHeader    = 2 + 4 + 4 + 4 + 4
	batchesEntrySize = 8 + 1
	batchSize        = 4 + 8 + 4 + 8
	maxBatchesSize   = 4 * maxSnapshotSize // a snapshot's entry is more than a quarter of one here
)

var errBatches = errors.New("file of producers' batches is malformed")

// encodeBatches is the content of the file; nil if the snapshot, whose checksum is sum,
// says all.
func (ps *producers) encodeBatches(sum uint32, epoch int32) []byte {
	var ids []int64
	for id, p := range ps.byID {
		if p.n > 1 || p.n == 1 && p.batches[0].timestamp != p.lastTimestamp {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	b := make([]byte, 2+4, batchesHeader+len(ids)*(batchesEntrySize+rememberedBatches*batchSize))
	b = be.AppendUint32(b, sum)
	b = be.AppendUint32(b, uint32(epoch))
	b = be.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		p := ps.byID[id]
		b = be.AppendUint64(b, uint64(id))
		b = append(b, byte(p.n))
		for _, m := range p.batches[:p.n] {
			b = be.AppendUint32(b, uint32(m.lastSeq))
			b = be.AppendUint64(b, uint64(m.lastOffset))
			b = be.AppendUint32(b, uint32(m.offsetDelta))
			b = be.AppendUint64(b, uint64(m.timestamp))
		}
	}
	be.PutUint16(b, batchesVersion)
	be.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

// decodeBatches gives the producers' batches, and what they are bound to.
func decodeBatches(b []byte) (batches map[int64][]batchMeta, sum uint32, epoch int32, err error) {
	bad := func(format string, args ...any) (map[int64][]batchMeta, uint32, int32, error) {
		return nil, 0, 0, fmt.Errorf("%w: "+format, append([]any{errBatches}, args...)...)
	}
	if len(b) < batchesHeader {
		return bad("%d bytes", len(b))
	}
	if v := be.Uint16(b); v != batchesVersion {
		return bad("version %d", v)
	}
	if crc32.Checksum(b[6:], castagnoli) != be.Uint32(b[2:]) {
		return bad("checksum")
	}
	sum, epoch = be.Uint32(b[6:]), int32(be.Uint32(b[10:]))
	count := int(be.Uint32(b[14:]))
	batches = map[int64][]batchMeta{}
	for b = b[batchesHeader:]; len(b) > 0; {
		if len(b) < batchesEntrySize {
			return bad("an entry of %d bytes", len(b))
		}
		id, n := int64(be.Uint64(b)), int(b[8])
		if b = b[batchesEntrySize:]; n < 1 || n > rememberedBatches || len(b) < n*batchSize || batches[id] != nil {
			return bad("%d batches of producer %d in %d bytes", n, id, len(b))
		}
		ms := make([]batchMeta, 0, n)
		for range n {
			m := batchMeta{int32(be.Uint32(b)), int64(be.Uint64(b[4:])), int32(be.Uint32(b[12:])), int64(be.Uint64(b[16:]))}
			if m.offsetDelta < 0 || m.firstOffset() < 0 || len(ms) > 0 && m.firstOffset() <= ms[len(ms)-1].lastOffset {
				return bad("producer %d: batch %+v after %+v", id, m, ms)
			}
			ms = append(ms, m)
			b = b[batchSize:]
		}
		batches[id] = ms
	}
	if len(batches) != count {
		return bad("%d producers, not %d", len(batches), count)
	}
	return batches, sum, epoch, nil
}

// recall adds to the producers of the snapshot as of offset, which are in force, the
// batches before their last ones, if there is a file that says so.
func (l *Log) recall(offset int64, snapshot []byte) error {
	if l.listed != nil && !l.listed.stale && l.listedSize(segmentName(offset, batchesSuffix)) < 0 {
		return nil
	}
	path := segmentPath(l.dir, offset, batchesSuffix)
	b, err := vfs.ReadFile(l.fs, path, maxBatchesSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return storageErr("read", path, err)
	}
	batches, sum, epoch, err := decodeBatches(b)
	if err != nil {
		l.logger.Warn("retries of producers' earlier batches will not be known", "file", path, "error", err)
		return nil
	}
	is, known := l.epochs.at(offset - 1)
	if known = known && epoch >= 0; known && is != epoch || !known && sum != be.Uint32(snapshot[2:]) {
		l.logger.Info("earlier batches are of another log", "file", path)
		return nil
	}
	for id, ms := range batches {
		p, last := l.producers.byID[id], ms[len(ms)-1]
		if p != nil && p.n == 1 && p.batches[0].lastOffset == last.lastOffset && p.lastSeq() == last.lastSeq {
			p.n = copy(p.batches[:], ms)
		}
	}
	return nil
}

// writeBatches writes the file beside the snapshot as of offset, and tells its name; none
// if it is not needed.
func (l *Log) writeBatches(offset int64, snapshot []byte, sync bool) (path string, err error) {
	epoch, ok := l.epochs.at(offset - 1)
	if !ok {
		epoch = -1
	}
	b := l.producers.encodeBatches(be.Uint32(snapshot[2:]), epoch)
	if b == nil {
		return "", nil
	}
	path = segmentPath(l.dir, offset, batchesSuffix)
	return path, writeFile(l.fs, path, b, sync)
}

// LearnProducers takes over what a log that this one is a whole copy of knows of producers
// besides: their batches may lie below its start, or have been compacted away.
func (l *Log) LearnProducers(from *Log) {
	from.mu.Lock()
	known := map[int64]producer{}
	for id, p := range from.producers.byID {
		known[id] = *p
	}
	verifying := maps.Clone(from.verifying)
	from.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verifying = verifying
	for id, was := range known {
		switch p := l.producers.byID[id]; {
		case p == nil && was.txnFirst < 0:
			*l.producers.get(id) = was
		case p != nil && p.epoch == was.epoch && p.n < was.n:
			p.batches, p.n = was.batches, was.n
		default:
			continue
		}
		l.cleanSegs = nil // there is something to write at Close
	}
}
