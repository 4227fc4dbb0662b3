package recordbatch

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Limits of zstd windows in bytes. Above smallZstdWindow (levels 20 and up on large
// input) a lane decodes one at a time; above largeZstdWindow, where zstd's own
// decoder and so Kafka's consumer stops, a frame is refused.
const (
	smallZstdWindow = 8 << 20
	largeZstdWindow = 128 << 20
)

var (
	errZstd           = errors.New("zstd: malformed frame")
	errZstdWindow     = errors.New("zstd: the window is larger than Kafka's consumer takes")
	errZstdDictionary = errors.New("zstd: a frame with a dictionary")
)

// zstdWindow walks the frames of p by their headers, without unfolding anything,
// and tells the largest window. Several frames and skippable ones are read by all clients.
func zstdWindow(p []byte) (uint64, error) {
	var largest uint64
	var h zstd.Header
	for len(p) > 0 {
		if err := h.Decode(p); err != nil {
			return 0, errZstd
		}
		p = p[h.HeaderSize:]
		if h.Skippable {
			if int64(h.SkippableSize) > int64(len(p)) {
				return 0, io.ErrUnexpectedEOF
			}
			p = p[h.SkippableSize:]
			continue
		}
		w := h.WindowSize
		if h.SingleSegment {
			w = h.FrameContentSize
		}
		switch {
		case h.DictionaryID != 0:
			return 0, errZstdDictionary
		case w > largeZstdWindow:
			return 0, errZstdWindow
		}
		largest = max(largest, w)
		for last := false; !last; {
			if len(p) < 3 {
				return 0, io.ErrUnexpectedEOF
			}
			head := uint32(p[0]) | uint32(p[1])<<8 | uint32(p[2])<<16
			last = head&1 != 0
			n := int(head >> 3)
			switch head >> 1 & 3 {
			case 1: // one byte, repeated
				n = 1
			case 3:
				return 0, errZstd
			}
			if p = p[3:]; n > len(p) {
				return 0, io.ErrUnexpectedEOF
			}
			p = p[n:]
		}
		if h.HasCheckSum {
			if len(p) < 4 {
				return 0, io.ErrUnexpectedEOF
			}
			p = p[4:]
		}
	}
	return largest, nil
}

func newZstdDecoder(window uint64) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		panic("BUG: zstd decoder options: " + err.Error())
	}
	return d
}

// zstdClass maps compression.zstd.level to one of the library's four, which are
// like zstd's own 1, 3, 7 and 11.
func zstdClass(level int) zstd.EncoderLevel { return zstd.EncoderLevelFromZstd(level) }

func newZstdEncoder(class zstd.EncoderLevel) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(class), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("BUG: zstd encoder options: " + err.Error())
	}
	return e
}
