package listener

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// Chunk is one piece of a scattered reply.
type Chunk = protocol.Chunk

// Request is one request of a connection. Byte fields of Body alias the frame
// and are valid until a Reply method is called (or ReleaseBody); strings may be
// kept.
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
}

// Reply answers. The response's version is set here; its throttle time too,
// where it has one.
func (r *Request) Reply(resp kmsg.Response) {}

// ReplyFetch answers a Fetch request. cleanup is called exactly once, when the
// files are no longer needed, sent or not; onSent (optional) after the whole
// reply has gone to the socket, with the number of record bytes.
func (r *Request) ReplyFetch(resp *protocol.FetchResponse, cleanup func(), onSent func(fileBytes int64)) {
}

// ReplyScatter answers with a body in pieces, after the response header. See
// ReplyFetch for cleanup and onSent. The throttle time is not written into it.
func (r *Request) ReplyScatter(body []Chunk, cleanup func(), onSent func(fileBytes int64)) {}

// ReplyNothing ends a request that has no answer (acks=0).
func (r *Request) ReplyNothing() {}

// ReplyThenClose answers after a delay and closes the connection (failed login).
func (r *Request) ReplyThenClose(resp kmsg.Response, delay time.Duration, reason string) {}

// CloseConn ends the request by closing its connection without an answer.
func (r *Request) CloseConn(reason string) {}

// AddThrottle asks for a throttle of at least d with the reply (KIP-219): the
// reply goes at once and names it, then no request is read until it is over.
func (r *Request) AddThrottle(d time.Duration) {}

// LocalDone tells that the handling is over and returns the whole throttle so
// far, including that of the request quota. The Reply methods and the handler's
// return do it too; only the first time counts.
func (r *Request) LocalDone() time.Duration { return 0 }

// ReleaseBody gives the frame back before the reply: Body must no longer be
// used. For requests that wait after their bytes are stored (acks=all).
func (r *Request) ReleaseBody() {}
