package recordbatch

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

var be = binary.BigEndian

// snappyBlock is the block size of snappy-java.
const snappyBlock = 32 << 10

var zstdEncoders = sync.Pool{New: func() any {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("BUG: zstd encoder options: " + err.Error())
	}
	return e
}}

// compress appends body, compressed as Kafka's clients expect it, to dst.
func compress(c Codec, dst, body []byte) ([]byte, error) {
	switch c {
	case CodecNone:
		return append(dst, body...), nil
	case CodecGzip:
		buf := bytes.NewBuffer(dst)
		w := gzip.NewWriter(buf)
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		err := w.Close()
		return buf.Bytes(), err
	case CodecSnappy:
		dst = append(dst, xerialMagic...)
		dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 1)
		for len(body) > 0 {
			n := min(len(body), snappyBlock)
			enc := snappy.Encode(nil, body[:n])
			dst = be.AppendUint32(dst, uint32(len(enc)))
			dst = append(dst, enc...)
			body = body[n:]
		}
		return dst, nil
	case CodecLZ4:
		buf := bytes.NewBuffer(dst)
		w := lz4.NewWriter(buf)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)); err != nil {
			return nil, err
		}
		if _, err := w.Write(body); err != nil {
			return nil, err
		}
		err := w.Close()
		return buf.Bytes(), err
	case CodecZstd:
		e := zstdEncoders.Get().(*zstd.Encoder)
		defer zstdEncoders.Put(e)
		return e.EncodeAll(body, dst), nil
	}
	return nil, errCodec
}
