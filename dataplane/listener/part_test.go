package listener

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A client that does not look at its idle connection learns from its first write that the broker has stopped, when
// nothing can have come of it.
func TestIdleConnectionsAreResetWhenTheBrokerStops(t *testing.T) {
	l := start(t, Config{})
	c := dial(t, l)
	c.call(apiVersions(3))
	waitFor(t, "the connection has rested", func() bool {
		rested := false
		l.Conns(func(c *Conn) { rested = c.rested(time.Now()) })
		return rested
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write([]byte{0}); n > 0 || !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%d bytes written, %v", n, err)
	}
}

// Who waits for an answer is told the end in order, and has read what came before it.
func TestConnectionsThatWaitAreNotReset(t *testing.T) {
	waiting := make(chan *Request, 1)
	l := start(t, Config{Handler: func(r *Request) {
		if r.Key == 18 {
			answer(r)
			return
		}
		waiting <- r
	}})
	c := dial(t, l)
	c.call(apiVersions(3))
	c.send(kmsg.NewPtrMetadataRequest())
	r := <-waiting
	l.Conns(func(c *Conn) {
		if c.rested(time.Now().Add(time.Hour)) {
			t.Error("a connection with an unanswered request counts as idle")
		}
	})
	done := make(chan error)
	go func() { done <- l.Close() }()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	r.CloseConn("over")
	if err := <-done; err != nil {
		t.Error(err)
	}
}
