package listener

import (
	"net"
	"time"
)

// Conn is one connection of a client or broker.
type Conn struct {
	// ID counts the connections of the process.
	ID uint64
	// Auth is the authentication's state; only handlers use it.
	Auth any
}

// Listener is the name of the listener that accepted the connection.
func (c *Conn) Listener() string { return "" }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return nil }

// Principal is who is logged in, "User:ANONYMOUS" before and without a login.
func (c *Conn) Principal() string { return "" }

// SetPrincipal marks the connection as logged in.
func (c *Conn) SetPrincipal(p string) {}

// Authenticated reports whether requests other than the login are accepted.
func (c *Conn) Authenticated() bool { return false }

// SetSessionExpiry sets when the session ends (KIP-368); zero is never.
func (c *Conn) SetSessionExpiry(t time.Time) {}

// Close closes the connection at once; safe from any goroutine, any number of times.
func (c *Conn) Close(reason string) {}
