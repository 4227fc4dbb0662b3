package listener

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"penstock/dataplane/protocol"
)

var long = flag.Bool("long", false, "read 2 GiB in TestARangeLongerThanASendfileIsSentWhole")

// narrow makes the connection's send buffer small, so that a transfer soon has to
// wait for its reader.
func narrow(r *Request) { _ = r.Conn.nc.(*net.TCPConn).SetWriteBuffer(32 << 10) }

// begin sends a fetch on a connection with a small receive buffer and reads the
// reply's first n bytes; the transfer then stands still.
func begin(t *testing.T, l *Listener, n int) (*client, []byte) {
	t.Helper()
	c := dial(t, l)
	c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	c.send(fetch(12))
	b := make([]byte, n)
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return c, b
}

// rest reads on until the peer closes or the whole frame is there.
func (c *client) rest(b []byte) []byte {
	want := 4 + int(binary.BigEndian.Uint32(b))
	more, _ := io.ReadAll(io.LimitReader(c, int64(want-len(b)))) // an error is a shorter reply
	return append(b, more...)
}

// headOfOne is the length of what stands before the records of a reply with one range.
func headOfOne(rng Chunk) int {
	resp := ranges(rng)
	return 4 + 5 + resp.Size(12) - rng.Len - 3 // three ends of tagged fields follow the records
}

func TestASlowReaderHoldsUpNobodyAndCostsNoMemory(t *testing.T) {
	f, data := segment(t, 8<<20)
	var slowed atomic.Int64
	const slow = 20
	l := start(t, Config{Handler: func(r *Request) {
		if slowed.Add(1) <= slow {
			narrow(r)
		}
		r.ReplyFetch(ranges(Chunk{File: f, Len: 8 << 20}), nil, nil)
	}})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var conns []*client
	var heads [][]byte
	for range slow {
		c, b := begin(t, l, 1000)
		conns, heads = append(conns, c), append(heads, b)
	}
	quick := dial(t, l)
	for range 3 {
		checkRecords(t, quick.call(fetch(12)).(*kmsg.FetchResponse), data)
	}
	if n := l.cfg.Buffers.InUse(); n > slow+1 {
		t.Errorf("%d buffers in use for %d transfers", n, slow)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// The client of the three whole replies has their garbage collected; each slow
	// connection has a read buffer and a reply's head.
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > slow*64<<10+(8<<20) {
		t.Errorf("heap has grown by %d KiB for %d slow readers of 8 MiB", grown>>10, slow)
	}
	for i, c := range conns[:2] {
		if got := c.rest(heads[i]); !bytes.Contains(got, data) {
			t.Errorf("slow reader %d got other bytes", i)
		}
	}
}

func TestAFileDeletedDuringATransferIsSentWhole(t *testing.T) {
	f, data := segment(t, 8<<20)
	cleaned := make(chan int64, 1)
	l := start(t, Config{Handler: func(r *Request) {
		narrow(r)
		var sent int64
		r.ReplyFetch(ranges(Chunk{File: f, Len: 8 << 20}), func() { cleaned <- sent }, func(n int64) { sent = n })
	}})
	c, b := begin(t, l, 1000)
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if got := c.rest(b); !bytes.Contains(got, data) {
		t.Error("not the whole file")
	}
	if n := <-cleaned; n != 8<<20 {
		t.Errorf("%d bytes reported as sent", n)
	}
}

func TestAClientGoneInTheMiddleOfATransferReleasesItsFiles(t *testing.T) {
	f, _ := segment(t, 16<<20)
	cleaned := make(chan bool, 1)
	l := start(t, Config{Handler: func(r *Request) {
		narrow(r)
		sent := false
		r.ReplyFetch(ranges(Chunk{File: f, Len: 16 << 20}), func() { cleaned <- sent }, func(int64) { sent = true })
	}})
	c, _ := begin(t, l, 1000)
	c.Close()
	if <-cleaned {
		t.Error("told that all was sent")
	}
	waitFor(t, "connection closed", func() bool { return l.Stats().Open == 0 })
}

// A file that is cut within the promised range ends the connection, and what came
// before is right.
func TestAFileCutDuringATransferNeverSendsWrongBytes(t *testing.T) {
	const size = 16 << 20
	f, data := segment(t, size)
	rng := Chunk{File: f, Len: size}
	l := start(t, Config{Handler: func(r *Request) {
		narrow(r)
		r.ReplyFetch(ranges(rng), nil, func(int64) { t.Error("told sent") })
	}})
	c, b := begin(t, l, 1000)
	const kept = 12 << 20 // far ahead of the transfer
	if err := os.Truncate(f.Name(), kept); err != nil {
		t.Fatal(err)
	}
	got := c.rest(b)[headOfOne(rng):]
	if len(got) > kept || !bytes.Equal(got, data[:len(got)]) {
		t.Errorf("%d bytes that are not the first of the file", len(got))
	}
	waitFor(t, "connection closed", func() bool { return l.Stats().Open == 0 })
}

func TestARangeMayLieBeyond4GiBAndAReplyNotPassAFrame(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const far = 5 << 30
	if _, err := f.WriteAt([]byte("far"), far); err != nil {
		t.Fatal(err)
	}
	next := make(chan Chunk, 1)
	l := start(t, Config{Handler: func(r *Request) { r.ReplyFetch(ranges(<-next), nil, nil) }})
	c := dial(t, l)
	next <- Chunk{File: f, Pos: far, Len: 3}
	checkRecords(t, c.call(fetch(12)).(*kmsg.FetchResponse), []byte("far"))
	next <- Chunk{File: f, Len: 1<<31 - 1}
	c.send(fetch(12))
	c.mustClose() // instead of a length that no frame can have
}

// sendfile(2) moves 0x7ffff000 bytes a call at most.
func TestARangeLongerThanASendfileIsSentWhole(t *testing.T) {
	if !*long {
		t.Skip("reads 2 GiB; -long runs it")
	}
	f, err := os.Create(t.TempDir() + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	const long = 1<<31 - 1 - 1000
	if _, err := f.WriteAt([]byte("end"), long-3); err != nil {
		t.Fatal(err)
	}
	l := start(t, Config{Handler: func(r *Request) { r.ReplyFetch(ranges(Chunk{File: f, Len: long}), nil, nil) }})
	c := dial(t, l)
	c.SetDeadline(time.Now().Add(time.Minute))
	c.send(fetch(12))
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		t.Fatal(err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if n, err := io.CopyN(io.Discard, c, size-6); err != nil {
		t.Fatalf("%d of %d bytes: %v", n, size, err)
	}
	last := make([]byte, 6)
	if _, err := io.ReadFull(c, last); err != nil || string(last[:3]) != "end" {
		t.Errorf("the range ends with %q (%v)", last, err)
	}
}

// Headers and ranges of many partitions in turn, some empty, some bytes in memory,
// some files that sendfile cannot read, to a reader of any pace.
func TestRepliesMixHeadersAndRangesInAnyOrder(t *testing.T) {
	f, data := segment(t, 1<<20)
	for _, secure := range []bool{false, true} {
		rnd := rand.New(rand.NewPCG(3, 4))
		next := make(chan []Chunk, 1)
		cfg := Config{Handler: func(r *Request) { r.ReplyFetch(ranges(<-next...), nil, nil) }}
		if secure {
			cfg.TLS = serverTLS(t)
		}
		l := start(t, cfg)
		c := dial(t, l)
		if secure {
			c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		}
		for range 40 {
			var chunks []Chunk
			var want [][]byte
			for range rnd.IntN(60) {
				pos, n := rnd.IntN(len(data)/2), rnd.IntN(1<<rnd.IntN(18))
				ch := Chunk{File: f, Pos: int64(pos), Len: n}
				switch rnd.IntN(6) {
				case 0:
					ch = Chunk{Bytes: data[pos:][:n]}
				case 1:
					ch.File = readerAt{f}
				case 2:
					ch.Len = 0
				}
				chunks, want = append(chunks, ch), append(want, data[pos:][:ch.Size()])
			}
			next <- chunks
			checkRecords(t, c.call(fetch([]int16{4, 11, 12, 17}[rnd.IntN(4)])).(*kmsg.FetchResponse), want...)
		}
	}
}

func TestASlowTLSReaderCostsOneCopyBuffer(t *testing.T) {
	f, data := segment(t, 16<<20)
	pool := protocol.NewPool()
	l := start(t, Config{TLS: serverTLS(t), Buffers: pool, Handler: func(r *Request) { r.ReplyFetch(ranges(Chunk{File: f, Len: 16 << 20}), nil, nil) }})
	c := dial(t, l)
	c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	c.send(fetch(12))
	got := make([]byte, 1000, 17<<20)
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	// The reply's head and the buffer that carries the file.
	if n := pool.InUse(); n > 2 {
		t.Errorf("%d buffers in use", n)
	}
	if got = c.rest(got); !bytes.Contains(got, data) {
		t.Error("other bytes")
	}
}

func TestSocketBuffersAreTheConfiguredOnes(t *testing.T) {
	got := make(chan [2]int, 1)
	l := start(t, Config{SendBuffer: 60_000, ReceiveBuffer: 50_000, Handler: func(r *Request) {
		var sizes [2]int
		if err := r.Conn.raw.Control(func(fd uintptr) {
			for i, opt := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
				sizes[i], _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, opt) // 0 will not do
			}
		}); err != nil {
			t.Error(err)
		}
		got <- sizes
		answer(r)
	}})
	dial(t, l).call(metadata())
	if sizes := <-got; sizes != [2]int{120_000, 100_000} { // Linux doubles them, for its own use
		t.Errorf("%v", sizes)
	}
}
