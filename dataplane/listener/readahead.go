package listener

import "golang.org/x/sys/unix"

const (
	aheadLeast = 256 << 10
	aheadMost  = 2 << 20
)

// ahead has the kernel read the range about to be sent, and as much again of what the
// reader will ask for next, if the disk has to be asked at all.
//
// Left to itself the kernel reads ahead by what the device is set to, which is 8 MiB
// on many virtual machines: the call of sendfile that runs into it sets up
// thousands of pages and their end comes as one burst, and whoever needs that CPU waits
// for milliseconds. So that is switched off for this file (FADV_RANDOM). Windows of the
// size of a reply keep the disk as busy: while one is being sent the next is read.
//
// The probe of the last byte costs a third of a microsecond and does not wait. A
// file system that cannot do that (EOPNOTSUPP) has no disk to wait for, or is left to
// its own ways; none of these errors is one of the reply.
func (w *writing) ahead() {
	if unix.Fadvise(w.src, 0, 0, unix.FADV_RANDOM) != nil {
		return
	}
	next := int64(min(max(w.left, aheadLeast), aheadMost))
	n, err := w.probe(w.pos + int64(w.left) + next - 1)
	if n == 0 && err == nil { // the file ends before
		_, err = w.probe(w.pos + int64(w.left) - 1)
	}
	if err == unix.EAGAIN {
		_ = unix.Fadvise(w.src, w.pos, int64(w.left)+next, unix.FADV_WILLNEED)
	}
}

// probe reads a byte if it is in the page cache, else the error is EAGAIN.
func (w *writing) probe(pos int64) (int, error) {
	w.probed[0] = w.oneByte[:]
	return unix.Preadv2(w.src, w.probed[:], pos, unix.RWF_NOWAIT)
}
