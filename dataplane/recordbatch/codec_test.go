package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func unfoldAll(c Codec, payload []byte) ([]byte, error) {
	b := withPayload(make(Batch, HeaderSize), c, payload)
	use, err := b.decoderUse()
	if err != nil {
		return nil, err
	}
	d, err := newDecoder(c, payload, use)
	if err != nil {
		return nil, err
	}
	defer d.release()
	var out []byte
	for {
		p, err := d.next()
		out = append(out, p...)
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
	}
}

func texts(n int) []byte {
	r := rand.New(rand.NewSource(int64(n)))
	out := make([]byte, n)
	for i := range out {
		out[i] = byte('a' + r.Intn(20)*r.Intn(2))
	}
	return out
}

func lz4Frame(t testing.TB, p []byte, options ...lz4.Option) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lz4.NewWriter(&b)
	if err := w.Apply(options...); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(p)
	_ = w.Close()
	return b.Bytes()
}

// linkedLZ4 is a frame of two blocks, the second of which copies out of the first.
func linkedLZ4(p []byte) []byte {
	out := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	out = append(out, lz4Version, 4<<4)
	out = append(out, byte(xxh32Of(out[4:])>>8))
	first := p[:64<<10]
	out = binary.LittleEndian.AppendUint32(out, uint32(len(first))|lz4Plain)
	out = append(out, first...)
	// One literal, then 19 bytes from 10 back, then five literals at the end.
	block := []byte{0x1f, p[0], 10, 0, 0, 0x50, 1, 2, 3, 4, 5}
	out = binary.LittleEndian.AppendUint32(out, uint32(len(block)))
	return append(append(out, block...), 0, 0, 0, 0)
}

func TestEachCodecsEncoderIsReadByEveryReader(t *testing.T) {
	for _, c := range codecs[1:] {
		for _, level := range []int{-131072, 1, 3, 9, 22} {
			for _, n := range []int{1, 100, snappyBlock, lz4BlockSize, lz4BlockSize + 1, 150_000} {
				want := texts(n)
				e, err := newEncoder(c, level, []byte("header"), 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				for rest := want; len(rest) > 0; { // in uneven pieces
					k := min(len(rest), 1+len(rest)/3)
					_, _ = e.Write(rest[:k])
					rest = rest[k:]
				}
				out, err := e.finish()
				e.release()
				if err != nil || !bytes.HasPrefix(out, []byte("header")) {
					t.Fatalf("%s at %d: %v", c, level, err)
				}
				out = out[len("header"):]
				if got, err := unfoldAll(c, out); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s at %d: %d of %d bytes, %v", c, level, len(got), n, err)
				}
				if got, err := reference(c, out); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("%s at %d: the library reads %d of %d bytes, %v", c, level, len(got), n, err)
				}
			}
		}
	}
}

func TestHigherLevelsFoldSmaller(t *testing.T) {
	text := bytes.Repeat(texts(3000), 30)
	text = append(text, texts(200_000)...)
	size := func(c Codec, level int) int {
		e, _ := newEncoder(c, level, nil, 1<<30)
		defer e.release()
		_, _ = e.Write(text)
		out, err := e.finish()
		if err != nil {
			t.Fatal(err)
		}
		return len(out)
	}
	for c, levels := range map[Codec][2]int{CodecGzip: {1, 9}, CodecLZ4: {1, 12}, CodecZstd: {1, 19}} {
		if low, high := size(c, levels[0]), size(c, levels[1]); low <= high {
			t.Errorf("%s: %d bytes at level %d, %d at %d", c, low, levels[0], high, levels[1])
		}
	}
	if size(CodecGzip, -1) != size(CodecGzip, 6) {
		t.Error("gzip's default is not level 6")
	}
}

func TestAnEncoderStopsAtItsLimit(t *testing.T) {
	noise := make([]byte, 200_000)
	rand.New(rand.NewSource(1)).Read(noise)
	for _, c := range codecs {
		e, _ := newEncoder(c, c.DefaultLevel(), nil, 150_000)
		_, _ = e.Write(noise)
		out, err := e.finish()
		if !errors.Is(err, errOutput) || len(out) > 250_000 {
			t.Errorf("%s: %d bytes, %v", c, len(out), err)
		}
		e.release()
	}
}

func TestLZ4FramesOfEveryKindThatKafkaReads(t *testing.T) {
	p := texts(300_000)
	for _, size := range []lz4.BlockSize{lz4.Block64Kb, lz4.Block256Kb, lz4.Block1Mb, lz4.Block4Mb} {
		for k := range 8 {
			frame := lz4Frame(t, p, lz4.BlockSizeOption(size), lz4.ChecksumOption(k&1 > 0), lz4.BlockChecksumOption(k&2 > 0), lz4.SizeOption(uint64(k>>2*len(p))))
			if got, err := unfoldAll(CodecLZ4, frame); err != nil || !bytes.Equal(got, p) {
				t.Errorf("block size %d, kind %d: %d bytes, %v", size, k, len(got), err)
			}
			for cut := range 6 {
				if _, err := unfoldAll(CodecLZ4, frame[:len(frame)-1-cut*len(frame)/7]); err == nil {
					t.Errorf("kind %d: a cut frame was read", k)
				}
			}
		}
	}
}

func TestLZ4FramesThatKafkaCannotReadAreRefused(t *testing.T) {
	p := texts(100_000)
	whole := lz4Frame(t, p, lz4.ChecksumOption(true), lz4.BlockChecksumOption(true), lz4.SizeOption(uint64(len(p))))
	change := func(at int, x byte) []byte { c := bytes.Clone(whole); c[at] ^= x; return c }
	// The header's own checksum is set right, so that only the size is wrong.
	size := change(6, 1)
	size[14] = byte(xxh32Of(size[4:14]) >> 8)
	for name, c := range map[string]struct {
		frame []byte
		want  error
	}{
		"linked blocks":       {linkedLZ4(p), errLZ4Linked},
		"header's checksum":   {change(14, 1), errLZ4Sum},
		"content's checksum":  {change(len(whole)-1, 1), errLZ4Sum},
		"block's checksum":    {change(len(whole)-9, 1), errLZ4Sum},
		"content's size":      {size, errLZ4Size},
		"version 2":           {change(4, 0xc0), errLZ4Header},
		"a dictionary":        {change(4, 1), errLZ4Header},
		"block size of 16 KB": {change(5, 0x70), errLZ4Header},
		"another magic":       {change(0, 1), errLZ4Header},
		"a second frame":      {append(bytes.Clone(whole), whole...), errLZ4Trailer},
		"nothing":             {nil, errLZ4Header},
	} {
		if _, err := unfoldAll(CodecLZ4, c.frame); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "abcdefghijklmnopqrstuvwxyz0123456789": 0x42ae804d} {
		if got := xxh32Of([]byte(in)); got != want {
			t.Errorf("%q: %08x, want %08x", in, got, want)
		}
		var x xxh32
		x.reset()
		for i := range in {
			x.write([]byte(in[i : i+1]))
		}
		if x.sum() != want {
			t.Errorf("%q byte by byte: %08x", in, x.sum())
		}
	}
}

func TestS2IsNotTakenForSnappy(t *testing.T) {
	var rows []byte
	for i := range 500 {
		rows = fmt.Appendf(rows, `{"id":%d,"name":"user-%d","amount":%d.%d}`, i*i*7919, i%37, i*31%1000, i*17%100)
	}
	for _, p := range [][]byte{rows, append(bytes.Repeat([]byte("some text "), 30), texts(900)...)} {
		for name, enc := range map[string][]byte{"s2": s2.Encode(nil, p), "better": s2.EncodeBetter(nil, p), "best": s2.EncodeBest(nil, p)} {
			if _, err := unfoldAll(CodecSnappy, enc); !errors.Is(err, errS2) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for name, enc := range map[string][]byte{"snappy": snappy.Encode(nil, p), "better": s2.EncodeSnappyBetter(nil, p), "best": s2.EncodeSnappyBest(nil, p)} {
			if got, err := unfoldAll(CodecSnappy, enc); err != nil || !bytes.Equal(got, p) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestZstdFramesBehindOneAnother(t *testing.T) {
	p := texts(300_000)
	one := func(p []byte, o ...zstd.EOption) []byte {
		e, _ := zstd.NewWriter(nil, append(o, zstd.WithEncoderConcurrency(1))...)
		defer e.Close()
		return e.EncodeAll(p, nil)
	}
	skip := []byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
	z := one(p)
	for name, c := range map[string]struct {
		in   []byte
		want error
	}{
		"one":                {z, nil},
		"two":                {append(one(p[:1000]), one(p[1000:])...), nil},
		"skippable first":    {append(bytes.Clone(skip), z...), nil},
		"skippable last":     {append(bytes.Clone(z), skip...), nil},
		"skippable cut":      {append(bytes.Clone(z), skip[:10]...), io.ErrUnexpectedEOF},
		"rubbish behind":     {append(bytes.Clone(z), "rubbish"...), errZstd},
		"cut":                {z[:len(z)-5], io.ErrUnexpectedEOF},
		"dictionary":         {one(p, zstd.WithEncoderDictRaw(7, p[:1000])), errZstdDictionary},
		"a large window":     {[]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8, 1, 0, 0}, errZstdWindow},
		"behind a small one": {append(bytes.Clone(z), 0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8, 1, 0, 0), errZstdWindow},
	} {
		got, err := unfoldAll(CodecZstd, c.in)
		if !errors.Is(err, c.want) || c.want == nil && !bytes.Equal(got, p) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

func TestGzipMembersBehindOneAnother(t *testing.T) {
	p := texts(100_000)
	member := func(p []byte) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write(p)
		_ = w.Close()
		return b.Bytes()
	}
	two := append(member(p[:1000]), member(p[1000:])...)
	if got, err := unfoldAll(CodecGzip, two); err != nil || !bytes.Equal(got, p) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := unfoldAll(CodecGzip, append(two, "rubbish"...)); err == nil {
		t.Error("rubbish behind was taken")
	}
	if _, err := unfoldAll(CodecGzip, two[:len(two)-3]); err == nil {
		t.Error("a cut member was taken")
	}
}
