package recordbatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kerr"
)

// bombs are batches of about 10 MB that unfold to as much as their codec can make of
// that: 10 GB and more, but for lz4 (2.4 GB) and snappy (200 MB; as one block, just too much).
func bombs(t testing.TB) map[string]Batch {
	const size = 10 << 20
	zeros := make([]byte, 16<<20)
	// A record that claims to go on for 2 GB, in a batch of one.
	start := append(appendVarint(nil, math.MaxInt32), 0, 0, 0, 1)
	start = appendVarint(start, math.MaxInt32-20)

	member := func(p []byte) []byte {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, 9)
		_, _ = w.Write(p)
		_ = w.Close()
		return b.Bytes()
	}
	gz, more := member(start), member(zeros)
	for len(gz) < size {
		gz = append(gz, more...)
	}

	// A frame of blocks of 128 KiB, each of one byte that is repeated.
	rle := func(window byte, n int) []byte {
		b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, window}
		b = append(b, byte(len(start)<<3), 0, 0)
		b = append(b, start...)
		for len(b) < n {
			b = append(b, 1<<1, 0, 0x10, 0)
		}
		return append(b, 1|1<<1, 0, 0, 0)
	}

	lz := append(binary.LittleEndian.AppendUint32(nil, lz4Magic), lz4Version|lz4BlockIndep, 7<<4)
	lz = append(lz, byte(xxh32Of(lz[4:])>>8))
	lz = binary.LittleEndian.AppendUint32(lz, uint32(len(start))|lz4Plain)
	lz = append(lz, start...)
	block := make([]byte, lz4.CompressBlockBound(4<<20))
	n, err := lz4.CompressBlock(zeros[:4<<20], block, nil)
	if err != nil {
		t.Fatal(err)
	}
	for len(lz) < size {
		lz = append(binary.LittleEndian.AppendUint32(lz, uint32(n)), block[:n]...)
	}
	lz = append(lz, 0, 0, 0, 0)

	raw := snappy.Encode(nil, make([]byte, 130<<20))
	framed := appendXerialHeader(nil)
	for _, p := range [][]byte{start, zeros[:8<<20]} {
		enc := snappy.Encode(nil, p)
		for {
			framed = append(be.AppendUint32(framed, uint32(len(enc))), enc...)
			if len(p) < 100 || len(framed) > size {
				break
			}
		}
	}
	one := build(t, NoProducer(), sample(1, 1))
	return map[string]Batch{
		"gzip": withPayload(one, CodecGzip, gz), "lz4": withPayload(one, CodecLZ4, lz), "snappy, one block": withPayload(one, CodecSnappy, raw),
		"snappy, blocks of 8 MiB": withPayload(one, CodecSnappy, framed), "zstd": withPayload(one, CodecZstd, rle(11<<3, size)),
		"zstd, a window of 8 MiB": withPayload(one, CodecZstd, rle(13<<3, size)), "zstd, a window of 128 MiB": withPayload(one, CodecZstd, rle(17<<3, size)),
	}
}

// peakLive tells by how much what the heap really holds grows while fn runs. Garbage does
// not count: how much of that there is depends on who else wants the processors. What is
// taken while the collector looks around counts as held, which is up to a fifth of all.
func peakLive(fn func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	for range 3 { // pools forget in the second collection: what they hold must not be in base
		debug.FreeOSMemory()
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}} // by the last collection
	read := func() int64 { metrics.Read(live); return int64(live[0].Value.Uint64()) }
	base, peak := read(), int64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				peak = max(peak, read()-base) // of one that the heap's growth has begun
				runtime.GC()
				peak = max(peak, read()-base)
			}
		}
	}()
	fn()
	close(stop)
	<-done
	return max(peak, read()-base)
}

func TestBombsAreRefusedInFlatMemory(t *testing.T) {
	all := bombs(t)
	// What places and budget come to (see lane.go), doubled: peakLive may count some garbage.
	small := smallBound()
	many, limit := 16, int64(12<<20)
	if raceEnabled { // slow
		many, limit = 4, 1<<20
	}
	for name, b := range all {
		bound := small
		if name == "zstd, a window of 128 MiB" || name == "snappy, one block" {
			bound += 3 * largeBudget // in use, the one before, and one taken while the collector looked around
		}
		runs := map[string]func() error{
			"one, to the full limit": func() error {
				_, err := Validate(b, ValidateOptions{MaxMessageBytes: 11 << 20})
				return err
			},
			"many at once": func() error {
				return together(many, func() error { _, err := Validate(b, ValidateOptions{MaxDecompressed: limit}); return err })
			},
			"recompressed, many at once": func() error {
				return together(many/2, func() error {
					_, _, err := Prepare(b, ValidateOptions{Recompress: true, Codec: (b.Codec() + 1) % 5, Level: 3, MaxMessageBytes: 11 << 20, MaxDecompressed: limit})
					return err
				})
			},
		}
		for how, run := range runs {
			if raceEnabled && how == "one, to the full limit" {
				continue // takes long; what it shows is no matter of races
			}
			bound := bound
			if how == "recompressed, many at once" {
				bound += int64(4 * 11 << 20 * runtime.GOMAXPROCS(0)) // what is made, and what it outgrew
			}
			var err error
			if peak := peakLive(func() { err = run() }); peak > bound {
				t.Errorf("%s, %s: it held %d MiB, more than %d", name, how, peak>>20, bound>>20)
			}
			if !errors.Is(err, kerr.MessageTooLarge) {
				t.Errorf("%s, %s: %v", name, how, err)
			}
		}
	}
}

// Those who send what unfolds to much wait for each other, and nobody else waits for them.
func TestBombsHoldNobodyElseUp(t *testing.T) {
	good := build(t, withCodec(CodecGzip), sample(100, 1024))
	long := build(t, withCodec(CodecZstd), []Record{{Value: bytes.Repeat(texts(1000), 6000)}})
	all := bombs(t)
	delete(all, "snappy, one block") // says so itself, and is refused for it at once
	for range cap(longLane.places) { // as if they were all at work, without end
		longLane.enter(0)
	}
	var wg sync.WaitGroup
	ended := make(chan error, 3*len(all)+1)
	for range 3 {
		for _, b := range all {
			wg.Go(func() {
				_, _, err := Prepare(b, ValidateOptions{MaxDecompressed: 12 << 20, Recompress: true, Codec: CodecLZ4, Level: 1})
				ended <- err
			})
		}
	}
	for range 200 {
		if _, _, err := Prepare(good, ValidateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(ended); n > 0 {
		t.Errorf("%d bombs were unfolded to their end beside the others: %v", n, <-ended)
	}
	for range cap(longLane.places) {
		longLane.leave(0)
	}
	_, info, err := Prepare(long, ValidateOptions{})
	if size := int64(len(texts(1000)) * 6000); err != nil || info.Unfolded <= size || info.Unfolded > size+100 {
		t.Errorf("a batch that unfolds to %d bytes: %+v, %v", size, info, err)
	}
	wg.Wait()
	for close(ended); len(ended) > 0; {
		if err := <-ended; !errors.Is(err, kerr.MessageTooLarge) {
			t.Error(err)
		}
	}
}

// smallBound is what decoders of small windows may hold, all in all.
func smallBound() int64 {
	return int64(2 * 16 << 20 * (cap(produceLane.places) + cap(longLane.places)))
}

// The measure is not blind: it finds a decoder that keeps all that it unfolds, even if
// only until its answer.
func TestMeasureFindsADecoderThatKeepsWhatItUnfolds(t *testing.T) {
	const chunk = 4 << 20
	bound := smallBound()
	var folded bytes.Buffer
	w, _ := gzip.NewWriterLevel(&folded, 1)
	for n := int64(0); n < bound+8*chunk; n += chunk {
		_, _ = w.Write(make([]byte, chunk))
	}
	_ = w.Close()
	peak := peakLive(func() {
		r, err := gzip.NewReader(&folded)
		var kept [][]byte
		for err == nil {
			p := make([]byte, chunk)
			_, err = io.ReadFull(r, p)
			kept = append(kept, p)
		}
		runtime.KeepAlive(kept)
	})
	if peak <= bound {
		t.Errorf("%d MiB were seen of what was kept, not above %d", peak>>20, bound>>20)
	}
}

// together runs fn n times at once, and gives the error of one, or nil if any has none.
func together(n int, fn func() error) (err error) {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range errs {
		wg.Go(func() { errs[i] = fn() })
	}
	wg.Wait()
	for _, e := range errs {
		if e == nil {
			return nil
		}
		err = e
	}
	return err
}

func TestReadersOfLargeRecordsShareABound(t *testing.T) {
	value := make([]byte, 48<<20)
	if raceEnabled {
		value = value[:8<<20]
	}
	for _, c := range []Codec{CodecGzip, CodecZstd} {
		b := build(t, withCodec(c), []Record{{Value: value}, {Value: value[:2<<20]}})
		peak := peakLive(func() {
			_ = together(8, func() error {
				n := 0
				err := Records(b, func(r Record) error { n += len(r.Value); return nil })
				if err != nil || n != len(value)+2<<20 {
					t.Errorf("%s: %d bytes, %v", c, n, err)
				}
				return err
			})
		})
		// Buffers grow by doubling, so each may be there twice for a moment.
		if bound := int64(5 * largeBudget); peak > bound {
			t.Errorf("%s: it held %d MiB", c, peak>>20)
		}
	}
}

func TestForgedClaimsTakeNoMemory(t *testing.T) {
	one := build(t, NoProducer(), sample(1, 1))
	claim := append(appendVarint(nil, 100<<20), 0, 0, 0, 1)
	e, _ := newEncoder(CodecZstd, 3, nil, 1<<20)
	_, _ = e.Write(claim)
	z, _ := e.finish()
	e.release()
	for name, b := range map[string]Batch{
		"a snappy block of 2 GB":   withPayload(one, CodecSnappy, []byte{0xff, 0xff, 0xff, 0xff, 0x07, 0, 0}),
		"a zstd window of 2 TB":    withPayload(one, CodecZstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0xf8, 1, 0, 0}),
		"a record of 100 MB":       withPayload(one, CodecZstd, z),
		"a plain record of 100 MB": withPayload(one, CodecNone, claim),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Validate(b, ValidateOptions{})
		rerr := Records(b, func(Record) error { return nil })
		runtime.ReadMemStats(&after)
		if !errors.Is(err, kerr.InvalidRecord) || rerr == nil {
			t.Errorf("%s: %v, %v", name, err, rerr)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 12<<20 { // a zstd decoder's window, the first time
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}

func TestLargeWindowsAreRead(t *testing.T) {
	text := bytes.Repeat(texts(1000), 13_000)
	plain := build(t, NoProducer(), []Record{{Value: text}})
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	b := withPayload(plain, CodecZstd, e.EncodeAll(plain.Payload(), nil))
	if use, _ := b.decoderUse(); use <= smallUse {
		t.Fatalf("a window of %d bytes is not a large one", use)
	}
	if _, err := Validate(b, ValidateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := readByUs(b); err != nil || len(got) != 1 {
		t.Fatal(err)
	}
}
