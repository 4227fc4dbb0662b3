package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"penstock/dataplane/recordbatch"
)

// The floor is what this machine asks of any broker for the same work: a process
// that takes the same Produce frames off the socket, computes the CRC-32C of
// each batch, writes it to its partition's file and answers; and that serves the
// same Fetch frames with sendfile from those files. It checks nothing else, keeps no
// promise, waits in plain blocking calls and serves only the versions that the
// bench speaks: Produce 8 with one batch, Fetch 11.

// floorFlag makes this binary the floor's server, over the named folder.
const floorFlag = "-serve-floor"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// startFloor runs the floor as a process of its own, so that its CPU time is.
func startFloor(ctx context.Context, _ options, dir string, _ int) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(dir, "floor")
	if err := os.MkdirAll(home, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, floorFlag, home)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t := &target{pids: []int{cmd.Process.Pid}, floor: true, dir: home, stop: func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		return nil
	}}
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		return nil, errors.Join(fmt.Errorf("the floor has not started: %w", err), t.stop())
	}
	t.addrs = []string{addr}
	return t, nil
}

// serveFloor is the server's main: it prints its address and serves until killed.
func serveFloor(dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	logs := map[floorKey]*floorLog{}
	for {
		nc, err := l.Accept()
		if err != nil {
			return err
		}
		// What is the cheapest here: larger ones let bytes leave the processor's cache.
		_ = nc.(*net.TCPConn).SetWriteBuffer(100 << 10)
		_ = nc.(*net.TCPConn).SetReadBuffer(512 << 10)
		// One after another: the bench has one connection to a broker at a time.
		f, err := nc.(*net.TCPConn).File() // in blocking mode
		nc.Close()
		if err == nil {
			err = (&floorConn{fd: int(f.Fd()), dir: dir, logs: logs}).serve()
			f.Close()
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return err
		}
	}
}

// floorLog is a partition's file and where each batch in it begins.
type floorLog struct {
	f       *os.File
	size    int64
	next    int64
	offsets []int64
	at      []int64
}

type floorKey struct {
	topic     string
	partition uint32
}

type floorConn struct {
	fd   int
	dir  string
	logs map[floorKey]*floorLog
	buf  []byte
	out  []byte
}

func (c *floorConn) serve() error {
	c.buf = make([]byte, 1<<20)
	start, end := 0, 0
	for {
		// As much as there is where a frame begins, then the rest of a frame alone,
		// so that hardly ever a byte is moved.
		want := len(c.buf)
		if end-start >= 4 {
			if want = 4 + int(binary.BigEndian.Uint32(c.buf[start:])); want > len(c.buf) {
				return fmt.Errorf("the floor takes no frame of %d bytes", want)
			}
		}
		if end-start >= want {
			if err := c.answer(c.buf[start+4 : start+want]); err != nil {
				return err
			}
			if start += want; start == end {
				start, end = 0, 0
			}
			continue
		}
		if start+want > len(c.buf) {
			start, end = 0, copy(c.buf, c.buf[start:end])
		}
		n, err := unix.Read(c.fd, c.buf[end:start+want])
		if err != nil && err != unix.EINTR {
			return err
		}
		if n == 0 {
			return io.EOF
		}
		end += max(n, 0)
	}
}

// answer reads only what it needs, in the order of the wire.
func (c *floorConn) answer(frame []byte) error {
	r := floorReader{frame}
	key, version, corr := r.i16(), r.i16(), r.i32()
	r.str() // client id
	switch {
	case key == 0 && version == 8:
		return c.produce(r, corr)
	case key == 1 && version == 11:
		return c.fetch(r, corr)
	}
	return fmt.Errorf("the floor does not serve key %d version %d", key, version)
}

func (c *floorConn) produce(r floorReader, corr uint32) error {
	r.skip(2 + 2 + 4 + 4) // no transactional id, acks, timeout, one topic
	topic := r.str()
	r.skip(4) // one partition
	partition := r.i32()
	batch := recordbatch.Batch(r.skip(int(r.i32())))
	if crc32.Checksum(batch[21:], castagnoli) != batch.CRC() {
		return errors.New("the floor has got a batch with a bad checksum")
	}
	l, err := c.log(topic, partition)
	if err != nil {
		return err
	}
	batch.SetBaseOffset(l.next)
	if _, err := unix.Pwrite(int(l.f.Fd()), batch, l.size); err != nil {
		return err
	}
	base := l.next
	l.offsets, l.at = append(l.offsets, base), append(l.at, l.size)
	l.size, l.next = l.size+int64(len(batch)), batch.NextOffset()

	c.begin(corr)
	c.put32(1)
	c.putString(topic)
	c.put32(1)
	c.put32(partition)
	c.put16(0)
	c.put64(base)
	c.put64(-1)
	c.put64(0)
	c.put32(0)      // no record errors
	c.put16(0xffff) // no message
	c.put32(0)      // throttle
	return c.send(0)
}

func (c *floorConn) fetch(r floorReader, corr uint32) error {
	r.skip(4 + 4 + 4 + 4 + 1 + 4 + 4 + 4) // down to the one topic
	topic := r.str()
	n := int(r.i32())
	type part struct {
		log       *floorLog
		partition uint32
		pos, end  int64
	}
	parts := make([]part, n)
	total := 0
	for i := range parts {
		p := &parts[i]
		p.partition = r.i32()
		r.skip(4)
		offset := int64(r.i64())
		r.skip(8)
		most := int64(r.i32())
		l, err := c.log(topic, p.partition)
		if err != nil {
			return err
		}
		p.log = l
		first, found := slices.BinarySearch(l.offsets, offset)
		if found {
			p.pos, p.end = l.at[first], l.size
			if l.size-p.pos > most {
				last, exact := slices.BinarySearch(l.at, p.pos+most)
				if !exact {
					last--
				}
				p.end = l.at[max(last, first+1)]
			}
		}
		total += int(p.end - p.pos)
	}
	c.begin(corr)
	c.put32(0) // throttle
	c.put16(0)
	c.put32(0) // no session
	c.put32(1)
	c.putString(topic)
	c.put32(uint32(n))
	const head = 4 + 2 + 8 + 8 + 8 + 4 + 4 + 4
	size := len(c.out) - 4 + n*head + total
	for i, p := range parts {
		c.put32(p.partition)
		c.put16(0)
		c.put64(p.log.next) // high watermark
		c.put64(p.log.next)
		c.put64(0)
		c.put32(0xffffffff) // no list of aborted transactions
		c.put32(0xffffffff)
		c.put32(uint32(p.end - p.pos))
		if i == 0 {
			binary.BigEndian.PutUint32(c.out, uint32(size))
		}
		if err := c.write(unix.MSG_MORE); err != nil {
			return err
		}
		for p.pos < p.end {
			if _, err := unix.Sendfile(c.fd, int(p.log.f.Fd()), &p.pos, int(p.end-p.pos)); err != nil && err != unix.EINTR {
				return err
			}
		}
	}
	return nil
}

func (c *floorConn) log(topic string, partition uint32) (*floorLog, error) {
	key := floorKey{topic, partition}
	if l := c.logs[key]; l != nil {
		return l, nil
	}
	f, err := os.Create(filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", topic, partition)))
	if err != nil {
		return nil, err
	}
	c.logs[key] = &floorLog{f: f}
	return c.logs[key], nil
}

func (c *floorConn) begin(corr uint32) {
	c.out = append(c.out[:0], 0, 0, 0, 0)
	c.put32(corr)
}

func (c *floorConn) put16(v uint16) { c.out = binary.BigEndian.AppendUint16(c.out, v) }
func (c *floorConn) put32(v uint32) { c.out = binary.BigEndian.AppendUint32(c.out, v) }
func (c *floorConn) put64(v int64)  { c.out = binary.BigEndian.AppendUint64(c.out, uint64(v)) }

func (c *floorConn) putString(s string) {
	c.put16(uint16(len(s)))
	c.out = append(c.out, s...)
}

func (c *floorConn) send(flags int) error {
	binary.BigEndian.PutUint32(c.out, uint32(len(c.out)-4))
	return c.write(flags)
}

// write sends what has been put.
func (c *floorConn) write(flags int) error {
	for b := c.out; len(b) > 0; {
		n, err := unix.SendmsgN(c.fd, b, nil, nil, flags|unix.MSG_NOSIGNAL)
		if err != nil && err != unix.EINTR {
			return err
		}
		b = b[max(n, 0):]
	}
	c.out = c.out[:0]
	return nil
}

// floorReader takes fields off a frame, which it trusts.
type floorReader struct{ b []byte }

func (r *floorReader) skip(n int) []byte {
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *floorReader) i16() uint16 { return binary.BigEndian.Uint16(r.skip(2)) }
func (r *floorReader) i32() uint32 { return binary.BigEndian.Uint32(r.skip(4)) }
func (r *floorReader) i64() uint64 { return binary.BigEndian.Uint64(r.skip(8)) }
func (r *floorReader) str() string { return string(r.skip(int(r.i16()))) }
