package listener

import "net"

// Listener is one bound address.
type Listener struct{}

// Listen binds the address; nothing is accepted before Serve.
func Listen(cfg Config) (*Listener, error) { return nil, nil }

// Serve starts to accept and returns at once.
func (l *Listener) Serve() {}

// Addr is the bound address.
func (l *Listener) Addr() net.Addr { return nil }

// Conns calls fn for every open connection (revocation, metrics).
func (l *Listener) Conns(fn func(*Conn)) {}

// Stats counts since the start.
func (l *Listener) Stats() Stats { return Stats{} }

// StopAccepting closes the bound socket; open connections live on.
func (l *Listener) StopAccepting() {}

// Close closes the socket and every connection, and waits for their goroutines.
func (l *Listener) Close() error { return nil }

// Stats of a listener.
type Stats struct {
	Open, Accepted, Refused     int64
	BytesIn, BytesOut           int64
	SendfileBytes, CopiedBytes  int64 // record bytes by sendfile(2) and by read and write
	Requests, Malformed, Panics int64
}
