package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"penstock/dataplane/recordbatch"
)

// errCleanStopped is the cause of a clean's end from outside.
var errCleanStopped = errors.New("stopped")

// throttle is called for all that is read and written, and is where a clean notices
// that it has to end.
func (c *clean) throttle(n int) error {
	var err error
	if c.o.Throttle != nil {
		err = c.o.Throttle(c.ctx, n)
	}
	if cerr := context.Cause(c.ctx); cerr != nil {
		return fmt.Errorf("%w: %w", ErrCleanAborted, cerr)
	}
	return err
}

// batchReader reads a pinned segment from front to back, a buffer at a time.
type batchReader struct {
	c     *clean
	v     view
	pos   int64  // position of what follows have
	have  []byte // read and not yet given out
	buf   []byte
	least int64 // offset that the next batch may begin at
}

// read begins at or before the batch that holds offset from.
func (c *clean) read(s *segment, from int64) (*batchReader, error) {
	v, err := s.pin(from, 0, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	r := &batchReader{c: c, v: v, pos: v.from, least: s.base}
	if from <= s.base {
		r.pos = 0
	}
	return r, nil
}

func (r *batchReader) close() { _ = r.v.ref.release() } // read only: nothing can get lost

// atEnd tells that the batch given last is the segment's last.
func (r *batchReader) atEnd() bool { return len(r.have) == 0 && r.pos >= r.v.size }

// next gives the next batch, checked, valid until the next call; nil at the end.
func (r *batchReader) next() (recordbatch.Batch, error) {
	need := recordbatch.HeaderSize
	for {
		if len(r.have) >= need {
			n, err := recordbatch.PeekLength(r.have)
			if err != nil {
				return nil, r.bad(err)
			}
			if n <= len(r.have) {
				return r.take(n)
			}
			if left := r.v.size - r.pos; int64(n-len(r.have)) > left {
				return nil, r.bad(recordbatch.ErrShort)
			}
			need = n
		}
		if r.atEnd() {
			return nil, nil
		}
		if err := r.fill(need); err != nil {
			return nil, err
		}
	}
}

func (r *batchReader) take(n int) (recordbatch.Batch, error) {
	b := recordbatch.Batch(r.have[:n:n])
	// The checksum does not cover the base offset.
	if b.CRC() != b.ComputeCRC() || b.LastOffsetDelta() < 0 || b.BaseOffset() < r.least || b.BaseOffset() >= r.v.next || b.LastOffset() >= r.v.next {
		return nil, r.bad(recordbatch.ErrCorrupt)
	}
	r.have = r.have[n:]
	r.least = b.NextOffset()
	return b, nil
}

func (r *batchReader) bad(err error) error {
	return fmt.Errorf("%s at %d: %w", r.v.file.Name(), r.pos-int64(len(r.have)), err)
}

// fill reads until at least need bytes are there. The length of a batch has been held
// against the file's before it gets here.
func (r *batchReader) fill(need int) error {
	if int64(need-len(r.have)) > r.v.size-r.pos {
		return r.bad(recordbatch.ErrShort)
	}
	size := max(r.c.o.Buffer, need)
	if len(r.buf) != size {
		buf := make([]byte, size)
		r.have, r.buf = buf[:copy(buf, r.have)], buf
	} else {
		r.have = r.buf[:copy(r.buf, r.have)]
	}
	n := len(r.have)
	p := r.buf[n:min(int64(size), int64(n)+r.v.size-r.pos)]
	if err := r.c.throttle(len(p)); err != nil {
		return err
	}
	m, err := r.v.file.ReadAt(p, r.pos)
	if m < len(p) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return storageErr("read", r.v.file.Name(), err)
	}
	r.have = r.buf[:n+m]
	r.pos += int64(m)
	return nil
}

// Suffixes of the files of a clean: cleanedSuffix while they are written, swapSuffix
// from when they are whole until the old ones are gone.
const (
	cleanedSuffix = ".cleaned"
	swapSuffix    = ".swap"
)

// cleanWriter writes the segment that takes the place of a group.
type cleanWriter struct {
	c       *clean
	seg     *segment // its paths end in .cleaned
	txns    txnIndex
	old     []abortedTxn // with HorizonsOnly: entries of the segment being read whose markers come yet
	held    []int64      // see segment.held
	buf     []byte       // batches not yet in the file
	flushed int64        // bytes in the file
	grow    int64        // how much larger than the group it may get
	changed bool         // it is not the same as the one segment that it stands for
}

func (c *clean) newWriter(group []*segment) (*cleanWriter, error) {
	l := c.l
	s := newSegment(l.fs, l.dir, group[0].base, &c.cfg, l.now())
	w := &cleanWriter{c: c, seg: s, grow: math.MaxInt32, txns: newTxnIndex(l.fs, s.path(txnSuffix)+cleanedSuffix)}
	for _, g := range group {
		w.grow -= g.bytes()
	}
	s.due = dueNever
	s.offsets.file = newFileRef(l.fs, l.dir, s.base, indexSuffix+cleanedSuffix, true)
	s.times.file = newFileRef(l.fs, l.dir, s.base, timeSuffix+cleanedSuffix, true)
	s.file = newFileRef(l.fs, l.dir, s.base, logSuffix+cleanedSuffix, true)
	for _, suffix := range segmentSuffixes {
		if err := removeIfThere(l.fs, s.path(suffix)+cleanedSuffix); err != nil {
			return nil, err
		}
	}
	for _, r := range []*fileRef{s.offsets.file, s.times.file, s.file} {
		if err := r.open(true); err != nil {
			return nil, errors.Join(err, w.discard())
		}
	}
	return w, nil
}

// mayGrow tells whether a batch may be n bytes larger than it was, and counts it.
func (w *cleanWriter) mayGrow(n int) bool {
	if n > 0 && int64(n) > w.grow {
		return false
	}
	w.grow -= int64(n)
	return true
}

// copy writes a batch as it is.
func (w *cleanWriter) copy(b recordbatch.Batch) error {
	w.buf = append(w.buf, b...)
	return w.took(b)
}

// took counts a batch that was added to buf.
func (w *cleanWriter) took(b recordbatch.Batch) error {
	w.c.stats.BytesWritten += int64(len(b))
	if err := w.seg.account(b, int64(len(b)), int(w.c.cfg.IndexIntervalBytes)); err != nil {
		return err
	}
	if len(w.buf) < w.c.o.Buffer {
		return nil
	}
	return w.write()
}

func (w *cleanWriter) write() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.c.throttle(len(w.buf)); err != nil {
		return err
	}
	if _, err := w.seg.file.WriteAt(w.buf, w.flushed); err != nil {
		return storageErr("write", w.seg.file.Name(), err)
	}
	w.flushed += int64(len(w.buf))
	if w.buf = w.buf[:0]; cap(w.buf) > 2*w.c.o.Buffer {
		w.buf = nil // a large batch is through
	}
	return nil
}

// markersOf gives the entries of the transaction index, and the markers that must stay.
func (s *segment) markersOf() (txns []abortedTxn, held []int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	err = s.txns.each(func(t abortedTxn) error { txns = append(txns, t); return nil })
	return txns, s.held, err
}

// aborts is the number of entries in the transaction index.
func (s *segment) aborts() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.txns.count
}

func (w *cleanWriter) addTxn(t abortedTxn) error { return w.txns.append(t) }

// markerStays takes over the entry of a marker that was written as it stands, from the
// old segment's index, and drops those of markers before it that are gone: an entry
// without its marker would hide all that the producer writes later, up to its next abort.
func (w *cleanWriter) markerStays(offset int64) error {
	for len(w.old) > 0 && w.old[0].last <= offset {
		t := w.old[0]
		w.old = w.old[1:]
		if t.last == offset {
			return w.addTxn(t)
		}
	}
	return nil
}

// finish makes all of it durable but its names.
func (w *cleanWriter) finish() error {
	if err := w.write(); err != nil {
		return err
	}
	return errors.Join(w.seg.finish(), w.seg.sync(), w.txns.finish())
}

// discard removes what was written.
func (w *cleanWriter) discard() error {
	err := errors.Join(w.seg.close(), w.txns.closeFile())
	for _, suffix := range segmentSuffixes {
		err = errors.Join(err, removeIfThere(w.c.l.fs, w.seg.path(suffix)+cleanedSuffix))
	}
	return err
}
