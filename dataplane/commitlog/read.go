package commitlog

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

// Slice is a run of whole batches in one segment file, pinned until Close.
type Slice struct {
	File        vfs.File // nil if empty
	Pos         int64    // byte position of the first batch
	Len         int      // bytes; 0 = nothing
	FirstOffset int64    // base offset of the first batch; may be below the offset asked for
	LastOffset  int64    // of the last batch, or higher up to the next batch where compaction left a hole; -1 if empty

	ref *fileRef
	seg *segment
}

// Close unpins; the slice may not be read after. It may be called again.
func (s *Slice) Close() {
	if s != nil && s.ref != nil {
		_ = s.ref.release() // read only: nothing can get lost
		s.ref, s.File = nil, nil
	}
}

// ReadInto reads the slice into p, at most Len bytes.
func (s *Slice) ReadInto(p []byte) (int, error) {
	p = p[:min(len(p), s.Len)]
	if len(p) == 0 {
		return 0, nil
	}
	n, err := s.File.ReadAt(p, s.Pos)
	if n == len(p) {
		return n, nil
	}
	return n, readErr(s.File, err)
}

// Read finds the batches from the one that holds offset from up to, not including,
// the one that holds upTo (also bounded by the log's end), at most maxBytes. With
// minOneBatch the first batch comes whole even if it is larger. A read ends with
// its segment. OFFSET_OUT_OF_RANGE if from is below the start or above the end.
func (l *Log) Read(from int64, maxBytes int, upTo int64, minOneBatch bool) (Slice, error) {
	for {
		s, err := l.read(from, int64(maxBytes), upTo, minOneBatch)
		if !errors.Is(err, errGone) {
			return s, err
		}
		if l.closed.Load() {
			return emptySlice, ErrClosed
		}
	}
}

var emptySlice = Slice{FirstOffset: -1, LastOffset: -1}

func (l *Log) read(from, maxBytes, upTo int64, minOne bool) (Slice, error) {
	start, end := l.start.Load(), l.end.Load()
	if from < start || from > end {
		return emptySlice, outOfRange(from, start, end)
	}
	upTo = min(upTo, end)
	if from >= upTo {
		return emptySlice, nil
	}
	segs := l.segments()
	for _, s := range segs[find(segs, from):] {
		out, past, err := s.read(from, maxBytes, upTo, minOne)
		if err != nil || !past {
			return out, err
		}
	}
	return emptySlice, nil
}

// read is Log.Read in one segment; past tells that all its batches lie below from.
func (s *segment) read(from, maxBytes, upTo int64, minOne bool) (out Slice, past bool, err error) {
	v, err := s.pin(from, maxBytes, upTo)
	if err != nil {
		return emptySlice, false, err
	}
	out = emptySlice
	defer func() {
		if out.ref == nil {
			_ = v.ref.release()
		}
	}()
	sc := newScanner(v.file, v.size)
	defer sc.close()
	pos := v.from
	for {
		if pos >= v.size {
			return out, true, nil
		}
		h, n, err := sc.header(pos)
		if err != nil {
			return out, false, err
		}
		if h.LastOffset() < from {
			pos += n
			continue
		}
		if h.LastOffset() >= upTo || n > maxBytes && !minOne {
			return out, false, nil
		}
		out = Slice{File: v.file, ref: v.ref, seg: s, Pos: pos, Len: int(n), FirstOffset: h.BaseOffset(), LastOffset: h.LastOffset()}
		break
	}
	stop, last, err := v.stop(&sc, &out, pos+maxBytes, upTo)
	if err != nil {
		out = emptySlice
		return out, false, err
	}
	out.Len, out.LastOffset = int(stop-pos), last
	return out, false, nil
}

// stop finds where a run of batches that begins with out ends, so that it neither
// passes limit (bytes in the file) nor touches the batch that holds upTo.
func (v *view) stop(sc *scanner, out *Slice, limit, upTo int64) (end, last int64, err error) {
	end, last = out.Pos+int64(out.Len), out.LastOffset
	if v.next <= last {
		return 0, 0, v.backwards(end, v.next, last)
	}
	if v.size <= limit && v.next <= upTo {
		return v.size, v.next - 1, nil
	}
	end = max(end, v.mark)
	for end < v.size {
		h, n, err := sc.header(end)
		if err != nil {
			return 0, 0, err
		}
		if h.BaseOffset() <= last {
			return 0, 0, v.backwards(end, h.BaseOffset(), last)
		}
		if h.LastOffset() >= upTo || end+n > limit {
			return end, h.BaseOffset() - 1, nil
		}
		end += n
		last = h.LastOffset()
	}
	return end, v.next - 1, nil
}

// backwards is the error for a damaged file, in which offset comes after last.
func (v *view) backwards(pos, offset, last int64) error {
	return fmt.Errorf("%s at %d: offset %d after %d: %w (%w)", v.file.Name(), pos, offset, last, recordbatch.ErrCorrupt, kerr.CorruptMessage)
}
