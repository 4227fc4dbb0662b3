package listener

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// segment is a file of n random bytes.
func segment(t testing.TB, n int) (*os.File, []byte) {
	t.Helper()
	b := make([]byte, n)
	r := mrand.NewChaCha8([32]byte{1})
	r.Read(b)
	name := filepath.Join(t.TempDir(), "00000000000000000000.log")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, b
}

func fetch(version int16) kmsg.Request { return at(kmsg.NewPtrFetchRequest(), version) }

// ranges answers with one partition for each range.
func ranges(rs ...Chunk) *protocol.FetchResponse {
	resp := &protocol.FetchResponse{Topics: []protocol.FetchTopic{{Topic: "t"}}}
	for i, r := range rs {
		p := protocol.NewFetchPartition(int32(i))
		p.Records = r
		resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, p)
	}
	return resp
}

func checkRecords(t *testing.T, resp *kmsg.FetchResponse, want ...[]byte) {
	t.Helper()
	for i, w := range want {
		if got := resp.Topics[0].Partitions[i].RecordBatches; !bytes.Equal(got, w) {
			t.Errorf("partition %d: %d bytes, not the %d of the file", i, len(got), len(w))
		}
	}
}

func TestRecordBytesOfPlaintextFetchesLeaveBySendfile(t *testing.T) {
	f, data := segment(t, 8<<20)
	cleaned := make(chan int64, 4)
	l := start(t, Config{Handler: func(r *Request) {
		var sent int64
		r.AddThrottle(time.Millisecond)
		r.ReplyFetch(ranges(Chunk{File: f, Pos: 100, Len: 5 << 20}, Chunk{}, Chunk{File: f, Pos: 6 << 20, Len: 77}, Chunk{Bytes: []byte("memory")}),
			func() { cleaned <- sent }, func(n int64) { sent = n })
	}})
	c := dial(t, l)
	for _, v := range []int16{4, 11, 12, 17} {
		resp := c.call(fetch(v)).(*kmsg.FetchResponse)
		checkRecords(t, resp, data[100:100+5<<20], nil, data[6<<20:6<<20+77], []byte("memory"))
		if resp.ThrottleMillis != 1 {
			t.Errorf("v%d: throttle %d", v, resp.ThrottleMillis)
		}
		if sent := <-cleaned; sent != 5<<20+77 {
			t.Errorf("v%d: told that %d bytes were sent", v, sent)
		}
	}
	if s := l.Stats(); s.SendfileBytes != 4*(5<<20+77) || s.CopiedBytes != 0 || s.BytesOut < s.SendfileBytes {
		t.Errorf("%+v", s)
	}
}

// A reader that takes little at a time makes every transfer a short one.
func TestShortTransfersToASlowReaderLoseNothing(t *testing.T) {
	f, data := segment(t, 3<<20)
	l := start(t, Config{Handler: func(r *Request) {
		nc := r.Conn.nc.(*net.TCPConn)
		nc.SetWriteBuffer(32 << 10)
		r.ReplyFetch(ranges(Chunk{File: f, Len: 3 << 20}), nil, nil)
	}})
	c := dial(t, l)
	c.Conn.(*net.TCPConn).SetReadBuffer(32 << 10)
	c.send(fetch(12))
	got := make([]byte, 0, 3<<20+200)
	buf := make([]byte, 13000)
	for len(got) < 3<<20+20 {
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Contains(got, data) {
		t.Error("bytes differ")
	}
}

func TestReaderThatTakesNothingIsCut(t *testing.T) {
	f, _ := segment(t, 16<<20)
	done := make(chan bool, 1)
	l := start(t, Config{WriteTimeout: 100 * time.Millisecond, Handler: func(r *Request) {
		sent := false
		r.ReplyFetch(ranges(Chunk{File: f, Len: 16 << 20}), func() { done <- sent }, func(int64) { sent = true })
	}})
	c := dial(t, l)
	c.send(fetch(12))
	if <-done {
		t.Error("told that all was sent")
	}
	waitFor(t, "connection closed", func() bool { return l.Stats().Open == 0 })
}

func TestFileTruncatedDuringATransferClosesTheConnection(t *testing.T) {
	f, _ := segment(t, 100)
	l := start(t, Config{Handler: func(r *Request) {
		r.ReplyFetch(ranges(Chunk{File: f, Len: 200}), nil, func(int64) { t.Error("told sent") })
	}})
	c := dial(t, l)
	c.send(fetch(12))
	waitFor(t, "connection closed", func() bool { return l.Stats().Open == 0 })
}

// readerAt hides that a file has a descriptor.
type readerAt struct{ f *os.File }

func (r readerAt) ReadAt(b []byte, off int64) (int, error) { return r.f.ReadAt(b, off) }

// maybe is a file in the way of package vfs.
type maybe struct {
	readerAt
	ok bool
}

func (m maybe) Fd() (uintptr, bool) { return m.f.Fd(), m.ok }

func TestFilesWithoutADescriptorAreCopied(t *testing.T) {
	f, data := segment(t, 300<<10)
	l := start(t, Config{Handler: func(r *Request) {
		r.ReplyFetch(ranges(Chunk{File: readerAt{f}, Len: 300 << 10}, Chunk{File: f, Pos: 5, Len: 10}, Chunk{Bytes: data[:200<<10]},
			Chunk{File: maybe{readerAt{f}, true}, Len: 5}, Chunk{File: maybe{readerAt{f}, false}, Len: 3}), nil, nil)
	}})
	c := dial(t, l)
	checkRecords(t, c.call(fetch(12)).(*kmsg.FetchResponse), data, data[5:15], data[:200<<10], data[:5], data[:3])
	if s := l.Stats(); s.SendfileBytes != 15 || s.CopiedBytes != 300<<10+3 {
		t.Errorf("%+v", s)
	}
}

// serverTLS has a certificate of its own making.
func serverTLS(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestTLSCarriesTheSameBytes(t *testing.T) {
	f, data := segment(t, 1<<20)
	l := start(t, Config{
		TLS: serverTLS(t),
		Handler: func(r *Request) {
			if r.Key == 1 {
				r.ReplyFetch(ranges(Chunk{File: f, Len: 1 << 20}, Chunk{File: f, Pos: 9, Len: 9}), nil, nil)
				return
			}
			answer(r)
		}})
	c := dial(t, l)
	c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
	c.call(apiVersions(3))
	checkRecords(t, c.call(fetch(12)).(*kmsg.FetchResponse), data, data[9:18])
	if s := l.Stats(); s.CopiedBytes != 1<<20+9 || s.SendfileBytes != 0 {
		t.Errorf("%+v", s)
	}
	plain := dial(t, l)
	plain.send(apiVersions(3))
	waitFor(t, "plaintext client closed", func() bool { return l.Stats().Open == 1 })
}

func BenchmarkProduceRoundTrip(b *testing.B) {
	l := start(b, Config{Handler: answer})
	c := dial(b, l)
	c.SetDeadline(time.Time{})
	req := formatter.AppendRequest(nil, produce(1, make([]byte, 1000)), 1)
	b.ReportAllocs()
	for b.Loop() {
		c.write(req)
		c.receive()
	}
}

func BenchmarkFetchFromPageCache(b *testing.B) {
	f, _ := segment(b, 1<<20)
	l := start(b, Config{Handler: func(r *Request) { r.ReplyFetch(ranges(Chunk{File: f, Len: 1 << 20}), nil, nil) }})
	c := dial(b, l)
	c.SetDeadline(time.Time{})
	req := formatter.AppendRequest(nil, fetch(12), 1)
	buf := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		c.write(req)
		for left := 1<<20 + 70; left > 0; {
			n, err := c.Read(buf)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
			if left <= 20 {
				break
			}
		}
	}
}
