package listener

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Chunk is one piece of a scattered reply.
type Chunk = protocol.Chunk

// Request is one request of a connection. The record bytes of a Produce body
// alias the frame, and its whole body is used again: neither may be touched after a
// Reply method or ReleaseBody. Strings, and every other body, may be kept.
type Request struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string
	Body          kmsg.Request
	Conn          *Conn
	// Start is when the handler began.
	Start time.Time
	// Size is the length of the frame without its length field, in bytes.
	Size int
	// Exempt keeps the request's time out of the request quota (KIP-124). Set by the handler
	// before it answers.
	Exempt bool

	api     *protocol.API
	frame   *protocol.Buffer
	granted [2]int64 // from the budget: before the frame is read, and before it is decoded

	answered  atomic.Bool
	localDone atomic.Bool
	throttle  atomic.Int64 // nanoseconds
	freed     atomic.Bool

	// The reply. Written by the answering goroutine before replied is set,
	// read by the connection's after.
	out        []Chunk
	single     [1]Chunk // what out is of a reply in one piece
	pieces     *[]Chunk // what out is of a Fetch reply; from piecesPool
	outBuf     *protocol.Buffer
	cleanup    func()
	onSent     func(int64)
	notBefore  time.Time
	closeAfter string

	// Guarded by Conn.mu. Exactly one of the two sides finishes a request: the
	// connection after replied, or the answering goroutine after abandoned.
	replied, abandoned bool
}

var piecesPool = sync.Pool{New: func() any { return new([]Chunk) }}

// maxPooledPieces is enough for a Fetch of 512 partitions.
const maxPooledPieces = 1 << 10

// Name is the name of the request's kind, as in Kafka's metrics.
func (r *Request) Name() string { return r.api.Name }

// Reply answers. The response's version is set here; its throttle time too,
// where it has one.
func (r *Request) Reply(resp kmsg.Response) {
	if r.claim(nil) {
		r.encode(resp, r.Version)
		r.hand()
	}
}

// ReplyThenClose answers after a delay and closes the connection (failed login).
func (r *Request) ReplyThenClose(resp kmsg.Response, delay time.Duration, reason string) {
	if r.claim(nil) {
		r.notBefore, r.closeAfter = time.Now().Add(delay), reason
		r.encode(resp, r.Version)
		r.hand()
	}
}

// ReplyFetch answers a Fetch request. cleanup (optional) is called exactly once,
// when the files are no longer needed, sent or not; onSent (optional) after the
// whole reply has gone to the socket, with the number of record bytes in it.
// Both run on the connection's goroutine or within this call.
func (r *Request) ReplyFetch(resp *protocol.FetchResponse, cleanup func(), onSent func(fileBytes int64)) {
	if !r.claim(cleanup) {
		return
	}
	r.cleanup, r.onSent = cleanup, onSent
	if ms := r.settleThrottle(); ms > 0 {
		resp.ThrottleMillis = max(resp.ThrottleMillis, ms)
	}
	size := resp.Size(r.Version)
	meta := size - int(resp.RecordBytes())
	if size > math.MaxInt32-64 {
		// A frame's length is an int32: another would make the peer read records as frames.
		r.Conn.l.cfg.Logger.Error("BUG: fetch reply is too long for a frame", "conn", r.Conn.ID, "bytes", size)
		r.Conn.Close("reply too long for a frame")
		r.hand()
		return
	}
	buf := r.startReply(meta+16, r.Version)
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4+size))
	r.pieces = piecesPool.Get().(*[]Chunk)
	*r.pieces, _ = resp.AppendChunks((*r.pieces)[:0], buf, r.Version)
	r.out = *r.pieces
	r.hand()
}

// ReplyScatter answers with a body in pieces, after the response header. See
// ReplyFetch for cleanup and onSent. The throttle time is not written into it.
func (r *Request) ReplyScatter(body []Chunk, cleanup func(), onSent func(fileBytes int64)) {
	if !r.claim(cleanup) {
		return
	}
	r.cleanup, r.onSent = cleanup, onSent
	r.settleThrottle()
	size := 0
	for _, c := range body {
		size += c.Size()
	}
	buf := r.startReply(16, r.Version)
	binary.BigEndian.PutUint32(buf, uint32(len(buf)-4+size))
	r.out = append(append(make([]Chunk, 0, len(body)+1), Chunk{Bytes: buf}), body...)
	r.hand()
}

// ReplyNothing ends a request that has no answer (acks=0).
func (r *Request) ReplyNothing() {
	if r.claim(nil) {
		r.settleThrottle()
		r.hand()
	}
}

// CloseConn ends the request by closing its connection without an answer, as
// Kafka does after an error of a Produce with acks=0.
func (r *Request) CloseConn(reason string) {
	if r.claim(nil) {
		r.LocalDone()
		r.Conn.Close(reason)
		r.hand()
	}
}

// AddThrottle asks for a throttle of at least d with the reply (KIP-219): the
// reply goes at once and names it, then no request is read until it is over.
// Has no effect after the reply.
func (r *Request) AddThrottle(d time.Duration) {
	for n := int64(d); ; {
		old := r.throttle.Load()
		if old >= n || r.throttle.CompareAndSwap(old, n) {
			return
		}
	}
}

// LocalDone tells that the handling is over and returns the whole throttle so
// far, including that of the request quota. The Reply methods and the handler's
// return do it too; only the first time counts.
func (r *Request) LocalDone() time.Duration {
	if r.localDone.CompareAndSwap(false, true) {
		if f := r.Conn.l.cfg.OnLocalDone; f != nil {
			r.AddThrottle(f(r, time.Since(r.Start)))
		}
	}
	return time.Duration(r.throttle.Load())
}

// ReleaseBody gives the frame back before the reply: Body must no longer be
// used. For requests that wait after their bytes are stored (acks=all), so that
// they do not hold memory that the replication they wait for may need.
func (r *Request) ReleaseBody() {
	if r.free() {
		r.Body = nil
	}
}

// claim makes sure of one reply a request. A second one is a fault of the
// handler that must not reach the client.
func (r *Request) claim(cleanup func()) bool {
	if r.answered.CompareAndSwap(false, true) {
		return true
	}
	r.Conn.l.cfg.Logger.Error("BUG: request answered twice", "api", r.api.Name, "conn", r.Conn.ID)
	if cleanup != nil {
		cleanup()
	}
	return false
}

// settleThrottle ends the handling, mutes the connection and returns the
// throttle in milliseconds.
func (r *Request) settleThrottle() int32 {
	d := r.LocalDone()
	if d <= 0 {
		return 0
	}
	r.Conn.mute(time.Now().Add(d))
	return int32(min((d + time.Millisecond - 1).Milliseconds(), 1<<31-1))
}

// startReply begins a reply of about n bytes with a length of zero and the header.
func (r *Request) startReply(n int, version int16) []byte {
	r.outBuf = r.Conn.l.cfg.Buffers.Get(n)
	return protocol.AppendResponseHeader(append(r.outBuf.B[:0], 0, 0, 0, 0), r.Key, version, r.CorrelationID)
}

func (r *Request) encode(resp kmsg.Response, version int16) {
	resp.SetVersion(version)
	if ms := r.settleThrottle(); ms > 0 {
		if st, ok := resp.(kmsg.SetThrottleResponse); ok {
			if t, ok := resp.(kmsg.ThrottleResponse); ok {
				have, _ := t.Throttle()
				ms = max(ms, have)
			}
			st.SetThrottle(ms)
		}
	}
	b := resp.AppendTo(r.startReply(512, version))
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	r.single[0].Bytes = b
	r.out = r.single[:]
}

// hand gives the reply to the connection, or ends the request if that is gone.
func (r *Request) hand() {
	r.free()
	c := r.Conn
	c.mu.Lock()
	abandoned := r.abandoned
	r.replied = true
	c.change.Broadcast()
	c.mu.Unlock()
	if abandoned {
		r.finish()
	}
}

// finish releases what the reply held.
func (r *Request) finish() {
	if r.cleanup != nil {
		r.cleanup()
		r.cleanup = nil
	}
	r.out = nil
	if r.pieces != nil {
		clear(*r.pieces) // they hold files
		if cap(*r.pieces) <= maxPooledPieces {
			piecesPool.Put(r.pieces)
		}
		r.pieces = nil
	}
	r.outBuf.Release()
	r.outBuf = nil
}

// grant takes memory from the budget. The requests of a login take none: they
// are small, bounded by the number of connections, and neither may a stranger
// use up what the tenant's clients need nor their load keep a client out.
func (r *Request) grant(ctx context.Context, n int64) error {
	if b := r.Conn.l.cfg.Budget; b != nil && !r.api.Has(protocol.BeforeAuth) {
		if err := b.Acquire(ctx, n); err != nil {
			return err
		}
		if r.granted[0] == 0 {
			r.granted[0] = n
		} else {
			r.granted[1] = n
		}
	}
	return nil
}

func (r *Request) returnGrant() {
	for i, n := range r.granted {
		if n > 0 {
			r.Conn.l.cfg.Budget.Release(n)
			r.granted[i] = 0
		}
	}
}

// free is ReleaseBody for a request that has been answered; false if it was freed
// before.
func (r *Request) free() bool {
	if !r.freed.CompareAndSwap(false, true) {
		return false
	}
	protocol.Recycle(r.Body)
	r.frame.Release()
	r.returnGrant()
	return true
}

// drop frees a request whose handler panicked: some goroutine may still hold
// its bytes, so they are not used again.
func (r *Request) drop() {
	if r.freed.CompareAndSwap(false, true) {
		r.frame.Drop()
		r.returnGrant()
	}
}
