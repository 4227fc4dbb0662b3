package listener

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"penstock/dataplane/protocol"
)

const (
	readBufferSize = 4 << 10
	frameRate      = 512 << 10 // bytes a second that a sender of a large frame must keep up
	framePart      = 1 << 20   // bytes that must come within FrameTimeout
	// stalledRate is the least that a sender must deliver in each stalledAfter
	// while others wait for the memory that its frame holds. It is what framePart
	// asks for anyway, watched more closely.
	stalledRate  = 32 << 10
	stalledAfter = time.Second
	// maxForeignFrame bounds the requests of brokers where only clients are.
	maxForeignFrame = 64 << 10
	// baseGrant is taken from the budget for every request, besides its frame.
	baseGrant = 4 << 10
)

// closeError ends a connection: quietly, since most of these come from the
// other side. bad marks what no correct client sends.
type closeError struct {
	reason string
	bad    bool
	err    error
}

func (e *closeError) Error() string {
	if e.err == nil {
		return e.reason
	}
	return e.reason + ": " + e.err.Error()
}

func malformed(reason string, err error) error {
	return &closeError{reason: reason, bad: true, err: err}
}

// serve is the connection's goroutine.
func (c *Conn) serve() {
	defer c.writers.Wait()
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
		}
	}()
	err := c.handshake()
	br := bufio.NewReaderSize(c.nc, readBufferSize)
	for err == nil {
		var r *Request
		if r, err = c.readRequest(br); err == nil {
			err = c.run(r)
		}
	}
	var ce *closeError
	if errors.As(err, &ce) && ce.bad {
		c.l.stats.malformed.Add(1)
		c.l.cfg.Logger.Info("connection closed for a bad request", "conn", c.ID, "listener", c.l.cfg.Name,
			"remote", c.RemoteAddr(), "principal", c.Principal(), "reason", err.Error())
	}
	c.Close(err.Error())
}

func (c *Conn) panicked(p any) {
	c.l.stats.panics.Add(1)
	c.l.cfg.Logger.Error("panic in a request; its connection is closed", "conn", c.ID, "remote", c.RemoteAddr(),
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	c.Close("internal error")
}

// awaitFrame waits for the first byte of a frame.
func (c *Conn) awaitFrame(br *bufio.Reader) error {
	for {
		if !c.unmuted() {
			return c.ctx.Err()
		}
		if br.Buffered() == 0 {
			var deadline time.Time
			if c.l.cfg.IdleTimeout > 0 {
				deadline = time.Now().Add(c.l.cfg.IdleTimeout)
			}
			stranger := !c.Authenticated()
			if login := c.start.Add(c.l.cfg.LoginTimeout); stranger && (deadline.IsZero() || login.Before(deadline)) {
				deadline = login
			}
			c.nc.SetReadDeadline(deadline)
			c.idleSince.Store(time.Now().UnixNano())
			_, err := br.Peek(1)
			c.idleSince.Store(0)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if stranger {
					return &closeError{reason: "no login within " + c.l.cfg.LoginTimeout.String()}
				}
				if c.unanswered() {
					continue // the peer waits for us
				}
				return &closeError{reason: "idle for " + c.l.cfg.IdleTimeout.String()}
			} else if err != nil {
				return err
			}
		}
		// A reply given while we were waiting may have muted the connection.
		if c.muteUntil.Load() == 0 {
			return nil
		}
	}
}

// readRequest reads and decodes one frame. What can be refused by its first
// twelve bytes is refused before memory is taken for it.
func (c *Conn) readRequest(br *bufio.Reader) (*Request, error) {
	if err := c.awaitFrame(br); err != nil {
		return nil, err
	}
	if br.Buffered() < 4+protocol.HeaderPrefix {
		c.nc.SetReadDeadline(time.Now().Add(c.l.cfg.FrameTimeout))
	}
	head, err := br.Peek(4)
	if err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(head)))
	if size < protocol.HeaderPrefix || size > c.l.cfg.MaxFrame {
		return nil, malformed(fmt.Sprintf("frame of %d bytes", size), nil)
	}
	if head, err = br.Peek(4 + protocol.HeaderPrefix); err != nil {
		return nil, err
	}
	h, err := protocol.PeekHeader(head[4:])
	if err != nil {
		return nil, malformed("header", err)
	}
	api, err := c.check(h, size)
	if err != nil {
		return nil, err
	}
	r := &Request{Key: h.Key, Version: h.Version, CorrelationID: h.CorrelationID, Conn: c, Size: size, api: api}
	decoded := false
	defer func() { // also after a panic in a decoder
		if !decoded {
			r.free()
		}
	}()
	if err := c.readBody(br, r); err != nil {
		return nil, err
	}
	decoded = true
	c.l.stats.requests.Add(1)
	c.l.stats.bytesIn.Add(int64(4 + size))
	return r, nil
}

// check decides by the fixed part of the header alone.
func (c *Conn) check(h protocol.RequestHeader, size int) (*protocol.API, error) {
	api := protocol.Lookup(h.Key)
	if api == nil {
		return nil, malformed(fmt.Sprintf("api key %d", h.Key), protocol.ErrUnknownKey)
	}
	limit := c.l.cfg.MaxFrame
	if api.MaxFrame > 0 {
		limit = min(limit, api.MaxFrame)
	}
	if c.l.cfg.ClientsOnly && api.Has(protocol.InterBroker) {
		limit = min(limit, maxForeignFrame)
	}
	if !c.Authenticated() {
		if !api.Has(protocol.BeforeAuth) {
			return nil, malformed(api.Name+" before the login", nil)
		}
		limit = min(limit, c.l.cfg.MaxFrameBeforeAuth)
	} else if !api.Has(protocol.Sasl) && c.expired(time.Now()) {
		return nil, &closeError{reason: "session expired"}
	}
	if size > limit {
		return nil, malformed(fmt.Sprintf("%s frame of %d bytes, limit %d", api.Name, size, limit), nil)
	}
	if (h.Version < api.Min || h.Version > api.Max) && !api.AnswersAnyVersion() {
		return nil, malformed(fmt.Sprintf("%s version %d", api.Name, h.Version), protocol.ErrUnsupportedVersion)
	}
	return api, nil
}

func (c *Conn) readBody(br *bufio.Reader, r *Request) error {
	// What fits the read buffer comes before memory is taken: most requests
	// never hold any while their bytes are under way, and a promise of twelve
	// bytes takes nothing.
	if n := min(4+r.Size, readBufferSize); br.Buffered() < n {
		c.nc.SetReadDeadline(time.Now().Add(c.l.cfg.FrameTimeout))
		if _, err := br.Peek(n); errors.Is(err, os.ErrDeadlineExceeded) {
			return &closeError{reason: "frame came too slowly", err: err}
		} else if err != nil {
			return err
		}
	}
	granted := int64(r.Size)*int64(r.api.Factor) + baseGrant
	if err := r.grant(c.ctx, int64(r.Size)+granted); err != nil {
		return err
	}
	var frame []byte
	if r.api.Has(protocol.KeepsFrame) || !r.api.AliasesFrame() {
		r.frame = c.l.cfg.Buffers.Get(r.Size)
		frame = r.frame.B
	} else {
		// Handlers keep byte fields of these (group metadata, tokens), so
		// their memory must not be used again.
		frame = make([]byte, r.Size)
	}
	br.Discard(4)
	if err := c.readFrame(br, frame); err != nil {
		return err
	}
	if r.Version < r.api.Min || r.Version > r.api.Max {
		return nil // answered without looking at the body
	}
	h, body, err := protocol.ParseRequestHeader(frame)
	if err != nil {
		return malformed(r.api.Name, err)
	}
	if string(h.ClientID) != c.clientID { // does not allocate
		c.clientID = string(h.ClientID)
	}
	r.ClientID = c.clientID
	need, err := r.api.Measure(r.Version, body)
	if err != nil {
		return malformed(r.api.Name, err)
	}
	if need > granted {
		// Holding the frame while waiting for more could make connections
		// wait for each other for ever, so this wait ends.
		ctx, cancel := context.WithTimeout(c.ctx, c.l.cfg.FrameTimeout)
		err := r.grant(ctx, need-granted)
		cancel()
		if err != nil {
			return &closeError{reason: "no memory for " + r.api.Name, err: err}
		}
	}
	if r.Body, err = r.api.Decode(r.Version, body); err != nil {
		return malformed(r.api.Name, err)
	}
	if !r.api.Has(protocol.KeepsFrame) {
		r.frame.Release()
		r.frame = nil
	}
	return nil
}

// readFrame fills frame. The whole must come in time and so must each part of
// it, so that a sender which falls silent does not hold its memory for long.
func (c *Conn) readFrame(br *bufio.Reader, frame []byte) error {
	whole := time.Now().Add(c.l.cfg.FrameTimeout + time.Duration(len(frame))*time.Second/frameRate)
	for rest := frame; len(rest) > 0; {
		part := rest[:min(len(rest), framePart)]
		deadline := time.Now().Add(c.l.cfg.FrameTimeout)
		if whole.Before(deadline) {
			deadline = whole
		}
		if err := c.readPart(br, part, deadline); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	return nil
}

// readPart fills part, which must come until the deadline, and steadily while
// others wait for memory.
func (c *Conn) readPart(br *bufio.Reader, part []byte, deadline time.Time) error {
	for {
		look := time.Now().Add(stalledAfter)
		if deadline.Before(look) {
			look = deadline
		}
		if br.Buffered() < len(part) {
			c.nc.SetReadDeadline(look)
		}
		n, err := io.ReadFull(br, part)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case !time.Now().Before(deadline):
			return &closeError{reason: "frame came too slowly", err: err}
		case n < stalledRate && c.l.cfg.Budget != nil && c.l.cfg.Budget.Waiting() > 0:
			return &closeError{reason: "frame stalled while others wait for memory", err: err}
		}
		part = part[n:]
	}
}
