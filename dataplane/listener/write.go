package listener

import (
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"penstock/dataplane/protocol"
)

const (
	copyBuffer = 64 << 10
	// sendfileCall bounds one call of sendfile. A call that finds its pages cold waits
	// for the disk, and its thread with it: the less it has to move, the sooner the
	// thread is there for others again.
	sendfileCall = 1 << 20
)

var errTruncated = errors.New("file ends within the range to be sent")

// descriptor gives what sendfile(2) reads from; false for files in memory.
func descriptor(f protocol.File) (fd int, ok bool) {
	switch f := f.(type) {
	case interface{ Fd() (uintptr, bool) }: // of package vfs
		n, ok := f.Fd()
		return int(n), ok
	case interface{ Fd() uintptr }: // *os.File
		return int(f.Fd()), true
	}
	return 0, false
}

// send writes one reply. Only the connection's goroutines call it, one at a time.
func (c *Conn) send(r *Request) error {
	if !r.notBefore.IsZero() && !c.sleepUntil(r.notBefore) {
		return c.ctx.Err()
	}
	if c.Closed() {
		return &closeError{reason: "closed"}
	}
	w := &c.out
	w.all, w.file, w.busy = 0, 0, 0
	for i := 0; i < len(r.out); {
		var err error
		if i, err = c.writeNext(r.out, i, w); err != nil {
			return err
		}
	}
	if len(r.out) > 0 {
		c.l.stats.bytesOut.Add(w.all)
		if r.onSent != nil {
			r.onSent(w.file)
		}
		if f := c.l.cfg.OnSent; f != nil {
			f(r, w.busy)
		}
	}
	if r.closeAfter != "" {
		return &closeError{reason: r.closeAfter}
	}
	return nil
}

// writing is the state of one reply on its way out, and of the chunk of it that is
// being written: either bytes or left bytes of the file src from pos on. Each
// connection has one, so that a reply allocates nothing.
type writing struct {
	all, file int64
	busy      time.Duration // in system calls, without waiting for the peer

	bytes []byte
	flags int
	src   int
	pos   int64
	left  int

	err error
	try func(fd uintptr) bool // method step

	oneByte [1]byte // for probe
	probed  [1][]byte
}

// step writes as much as the socket takes without waiting; false if that is
// nothing.
func (w *writing) step(fd uintptr) bool {
	began := time.Now()
	for {
		if w.err = w.call(int(fd)); w.err != unix.EINTR {
			break
		}
	}
	w.busy += time.Since(began)
	return w.err != unix.EAGAIN
}

func (w *writing) call(fd int) error {
	if len(w.bytes) > 0 {
		n, err := unix.SendmsgN(fd, w.bytes, nil, nil, w.flags|unix.MSG_NOSIGNAL)
		if err == nil {
			w.bytes = w.bytes[n:]
			w.all += int64(n)
		}
		return err
	}
	// The offset is explicit: many transfers share one descriptor.
	n, err := unix.Sendfile(fd, w.src, &w.pos, min(w.left, sendfileCall))
	if err == nil && n == 0 {
		return errTruncated // the length has been promised to the peer
	}
	if err == nil {
		w.left -= n
		w.all += int64(n)
		w.file += int64(n)
	}
	return err
}

// writeNext sends chunk i, or more with it, and returns the next one.
func (c *Conn) writeNext(out []Chunk, i int, w *writing) (int, error) {
	if c.raw == nil {
		return c.writeCopied(out, i, w)
	}
	if out[i].File == nil {
		if i+1 == len(out) {
			return i + 1, c.writeBytes(out[i].Bytes, 0, w)
		}
		// More follows at once: let the kernel put it into the same packet.
		return i + 1, c.writeBytes(out[i].Bytes, unix.MSG_MORE, w)
	}
	if fd, ok := descriptor(out[i].File); ok {
		return i + 1, c.sendFile(fd, out[i], w)
	}
	return c.writeCopied(out, i, w)
}

// progress writes the chunk each time the socket takes bytes, until it is done. A
// peer that takes nothing for WriteTimeout ends the connection.
func (c *Conn) progress(w *writing) error {
	for len(w.bytes) > 0 || w.left > 0 {
		c.nc.SetWriteDeadline(time.Now().Add(c.l.cfg.WriteTimeout))
		if err := c.raw.Write(w.try); err != nil {
			return err
		}
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

func (c *Conn) writeBytes(b []byte, flags int, w *writing) error {
	w.bytes, w.flags, w.left = b, flags, 0
	err := c.progress(w)
	w.bytes = nil
	return err
}

// sendFile moves a range from the page cache to the socket.
func (c *Conn) sendFile(src int, r Chunk, w *writing) error {
	w.bytes, w.src, w.pos, w.left = nil, src, r.Pos, r.Len
	before := w.file
	w.ahead()
	err := c.progress(w)
	c.l.stats.sendfileBytes.Add(w.file - before)
	return err
}

// writeCopied sends chunks through a buffer, up to the end or, without TLS, the
// next one that sendfile can take.
func (c *Conn) writeCopied(out []Chunk, i int, w *writing) (int, error) {
	buf := c.l.cfg.Buffers.Get(copyBuffer)
	defer buf.Release()
	b := buf.B[:0]
	flush := func(p []byte) error {
		c.nc.SetWriteDeadline(time.Now().Add(c.l.cfg.WriteTimeout))
		began := time.Now()
		n, err := c.nc.Write(p)
		w.busy += time.Since(began)
		w.all += int64(n)
		return err
	}
	for ; i < len(out); i++ {
		ch := out[i]
		if ch.File == nil {
			if len(ch.Bytes) > cap(b)-len(b) {
				if err := flush(b); err != nil {
					return i, err
				}
				b = b[:0]
			}
			if len(ch.Bytes) > cap(b) {
				for rest := ch.Bytes; len(rest) > 0; {
					part := rest[:min(len(rest), copyBuffer)]
					if err := flush(part); err != nil {
						return i, err
					}
					rest = rest[len(part):]
				}
				continue
			}
			b = append(b, ch.Bytes...)
			continue
		}
		if _, ok := descriptor(ch.File); ok && c.raw != nil {
			break
		}
		for pos, left := ch.Pos, ch.Len; left > 0; {
			if len(b) == cap(b) {
				if err := flush(b); err != nil {
					return i, err
				}
				b = b[:0]
			}
			n := min(left, cap(b)-len(b))
			m, err := ch.File.ReadAt(b[len(b):len(b)+n], pos)
			if m < n {
				if err == nil || err == io.EOF {
					err = errTruncated
				}
				return i, err
			}
			b = b[:len(b)+n]
			pos, left = pos+int64(n), left-n
			w.file += int64(n)
			c.l.stats.copiedBytes.Add(int64(n))
		}
	}
	if len(b) == 0 {
		return i, nil
	}
	return i, flush(b)
}
