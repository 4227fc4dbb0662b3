package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/recordbatch"
	"penstock/dataplane/vfs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scanner walks batch headers in a file; the record bytes between are not read
// unless they lie in the same small buffer.
type scanner struct {
	file vfs.File
	end  int64 // bytes
	buf  *[scratchSize]byte
	at   int64 // position of buf
	n    int   // bytes in buf
}

func newScanner(f vfs.File, end int64) scanner {
	return scanner{file: f, end: end, buf: scratch.Get().(*[scratchSize]byte)}
}

func (s *scanner) close() { scratch.Put(s.buf) }

// header gives the header of the batch at pos, valid until the next call, with its
// total length checked against the end of the file.
func (s *scanner) header(pos int64) (recordbatch.Batch, int64, error) {
	if pos+recordbatch.HeaderSize > s.end {
		return nil, 0, s.bad(pos, recordbatch.ErrShort)
	}
	if pos < s.at || pos+recordbatch.HeaderSize > s.at+int64(s.n) {
		want := min(int64(len(s.buf)), s.end-pos)
		n, err := s.file.ReadAt(s.buf[:want], pos)
		s.at, s.n = pos, n
		if n < recordbatch.HeaderSize {
			s.n = 0
			return nil, 0, readErr(s.file, err)
		}
	}
	h := recordbatch.Batch(s.buf[pos-s.at:][:recordbatch.HeaderSize])
	n, err := recordbatch.PeekLength(h)
	if err == nil && pos+int64(n) > s.end {
		err = recordbatch.ErrShort
	}
	if err != nil {
		return nil, 0, s.bad(pos, err)
	}
	return h, int64(n), nil
}

// bad is the error of bytes that are no batch: a reader gets CORRUPT_MESSAGE, the disk has
// not failed.
func (s *scanner) bad(pos int64, err error) error {
	return fmt.Errorf("%s at %d: %w (%w)", s.file.Name(), pos, err, kerr.CorruptMessage)
}

// checkCRC computes the checksum of the batch at pos in chunks, so that a forged
// length costs no memory.
func (s *scanner) checkCRC(pos, length int64, want uint32, chunk []byte) error {
	crc := uint32(0)
	for at, left := pos+crcStart, length-crcStart; left > 0; {
		p := chunk[:min(int64(len(chunk)), left)]
		n, err := s.file.ReadAt(p, at)
		if n < len(p) {
			return readErr(s.file, err)
		}
		crc = crc32.Update(crc, castagnoli, p)
		at += int64(n)
		left -= int64(n)
	}
	if crc != want {
		return fmt.Errorf("%s at %d: checksum is %08x, computed %08x: %w", s.file.Name(), pos, want, crc, recordbatch.ErrCorrupt)
	}
	return nil
}

// crcStart is where the checksummed part of a batch begins: the attributes.
const crcStart = 21

// readBatch reads the whole batch at pos.
func readBatch(f vfs.File, pos, length int64) (recordbatch.Batch, error) {
	b := make([]byte, length)
	if n, err := f.ReadAt(b, pos); n < len(b) {
		return nil, readErr(f, err)
	}
	return b, nil
}

// readErr is the error of a read that gave too little: a file that somebody has cut
// is damaged, and no sign of a failing disk.
func readErr(f vfs.File, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: the file ends early: %w (%w)", f.Name(), io.ErrUnexpectedEOF, kerr.CorruptMessage)
	}
	return storageErr("read", f.Name(), err)
}
