package listener

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"time"

	"penstock/dataplane/protocol"
)

// Handler serves one request. It must lead to exactly one call of a Reply
// method of r, now or later, from any goroutine.
type Handler func(r *Request)

// Budget bounds the memory of requests. Acquire waits until n bytes are free; more
// than the whole budget is given when nothing else is taken, or such a request
// would wait for ever.
type Budget interface {
	Acquire(ctx context.Context, n int64) error
	// Release gives back what one Acquire took.
	Release(n int64)
	// Waiting is the number of requests that wait. While it is above 0, a sender
	// that holds memory must deliver; see stalledRate.
	Waiting() int
}

// ConnLimits admits or refuses a new connection; release is called once when
// an admitted one has closed.
type ConnLimits interface {
	// Arrived counts a connection; for so long the listener then does nothing with it, and takes no other.
	Arrived(listener string) time.Duration
	// An error that has CloseAfter() time.Duration says to close the connection only then.
	Accept(listener string, ip netip.Addr) (release func(), err error)
}

// Config of a Listener. Zero values mean the default named with the field.
type Config struct {
	// Name is the listener's name as in `listeners` (CLIENT, INTERNAL, ...).
	Name string
	// Addr is the host:port to bind; an empty host binds every interface.
	Addr string
	// TLS makes this a TLS listener.
	TLS *tls.Config
	// SASL demands a login: before SetPrincipal only ApiVersions and the SASL
	// requests are accepted.
	SASL bool
	// ClientsOnly says that brokers have another listener: requests between
	// brokers, whose bodies may be large, are refused here above 64 KiB instead of
	// being read for a caller who has hardly the right.
	ClientsOnly bool
	// Handler serves the requests. Required.
	Handler Handler
	// OnLocalDone is called once a request, when its handling on this thread
	// is over: charge the handler's time, return the throttle. Optional.
	OnLocalDone func(r *Request, handlerTime time.Duration) time.Duration
	// OnSent is called after a reply has been written, with the time spent in
	// writing, without waiting for the peer. Optional.
	OnSent func(r *Request, sendTime time.Duration)
	// OnClose is called once a connection, after it has closed. Optional.
	OnClose func(c *Conn)
	// Budget of request memory; nil is unlimited. The inter-broker listener
	// should have none of the clients': a follower's fetch must never wait for
	// producers that wait for that very follower.
	Budget Budget
	// Limits of connections; nil is unlimited.
	Limits ConnLimits
	// Buffers is shared between listeners; nil makes an own pool.
	Buffers *protocol.Pool
	// SendBuffer and ReceiveBuffer are socket.send.buffer.bytes and
	// socket.receive.buffer.bytes; 0 or less leaves them to the system. The system lets
	// them grow to megabytes, for links that are long: what passes through them has left
	// the processor's cache then, and a nearby client's bytes cost half as much again.
	SendBuffer, ReceiveBuffer int
	// MaxFrame is socket.request.max.bytes. Default 100 MiB.
	MaxFrame int
	// MaxFrameBeforeAuth bounds frames before the login. Default 64 KiB.
	MaxFrameBeforeAuth int
	// IdleTimeout is connections.max.idle.ms. Default 10 min; negative is none.
	IdleTimeout time.Duration
	// LoginTimeout is how long a connection may take from its start to the login,
	// whatever it asks meanwhile: strangers must not hold connections for as long
	// as clients may. Default 30 s.
	LoginTimeout time.Duration
	// FrameTimeout is how long a frame may take from its first byte, plus one
	// second for each 512 KiB of its length; and how long each MiB of it may.
	// Default 30 s.
	FrameTimeout time.Duration
	// WriteTimeout is how long the peer may take no byte of a reply. Default 30 s.
	WriteTimeout time.Duration
	// MaxPipelined bounds unanswered requests of one connection. Default 32.
	MaxPipelined int
	// MaxPipelinedBytes bounds their frames. Default 16 MiB; one request is always let in.
	MaxPipelinedBytes int
	Logger            *slog.Logger
}

// withDefaults fills in what is not set.
func (cfg Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	defInt := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&cfg.IdleTimeout, 10*time.Minute)
	def(&cfg.LoginTimeout, 30*time.Second)
	def(&cfg.FrameTimeout, 30*time.Second)
	def(&cfg.WriteTimeout, 30*time.Second)
	defInt(&cfg.MaxFrame, 100<<20)
	defInt(&cfg.MaxFrameBeforeAuth, 64<<10)
	defInt(&cfg.MaxPipelined, 32)
	defInt(&cfg.MaxPipelinedBytes, 16<<20)
	if cfg.Buffers == nil {
		cfg.Buffers = protocol.NewPool()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg
}
