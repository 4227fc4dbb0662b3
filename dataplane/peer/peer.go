// Package peer is an authenticated connection to another broker.
package peer

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Dialer opens connections.
type Dialer struct {
	Addr     string
	ClientID string
	// User and Password log in by SASL PLAIN; an empty User means no login.
	User, Password string
	TLS            *tls.Config
	// Timeout bounds dial and login, and a request whose context has no deadline. Default 30 s.
	Timeout time.Duration
	// MaxResponse bounds a response in bytes. Default 100 MiB.
	MaxResponse int
}

// Dial connects and logs in.
func (d *Dialer) Dial(ctx context.Context) (*Conn, error) { return nil, nil }

// Conn carries one request at a time; it is broken for good after any error.
type Conn struct{}

// Do sends req at the version set in it and reads the response.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) { return nil, nil }

// DoFrame is Do with the response's body undecoded in a pooled buffer, which the caller releases.
func (c *Conn) DoFrame(ctx context.Context, req kmsg.Request) (*Frame, error) { return nil, nil }

// Broken reports whether the connection can no longer be used.
func (c *Conn) Broken() bool { return false }

// Close closes the connection; a request under way fails.
func (c *Conn) Close() error { return nil }

// Frame is a response's body, after the response header.
type Frame struct{ Body []byte }

// Release gives the buffer back; Body must not be used after it.
func (f *Frame) Release() {}
