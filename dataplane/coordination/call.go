package coordination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-zookeeper/zk"
)

// current waits for a live session.
func (c *Client) current(ctx context.Context) (*session, error) {
	for {
		c.mu.Lock()
		s, ch, closed := c.cur, c.changed, c.closed
		c.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if s != nil && !s.over() {
			return s, nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.ctx.Done():
			return nil, ErrClosed
		case <-time.After(50 * time.Millisecond):
			// cur is replaced a moment after the session is over.
		}
	}
}

// do runs one library call under the current session and repeats it as long as
// the connection is lost under it; it gives up when ctx or the session ends.
// A call that was repeated may have been carried out twice: writers have to
// expect NodeExists, NoNode or BadVersion caused by themselves.
func do[T any](ctx context.Context, c *Client, call func(*zk.Conn) (T, error)) (T, error) {
	var zero T
	s, err := c.current(ctx)
	if err != nil {
		return zero, err
	}
	return doOn(ctx, c, s, call)
}

func doOn[T any](ctx context.Context, c *Client, s *session, call func(*zk.Conn) (T, error)) (T, error) {
	var zero T
	for {
		v, err := wait(ctx, func() (T, error) { return call(s.conn) })
		switch {
		case err == nil:
			return v, nil
		case s.over():
			return zero, ErrExpired
		case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrClosing):
			if c.ctx.Err() != nil {
				return zero, ErrClosed
			}
			if !pause(ctx, 20*time.Millisecond) {
				return zero, ctx.Err()
			}
		default:
			return zero, err
		}
	}
}

// wait bounds a call of the library, which knows no context. The call itself
// goes on in its goroutine until the library answers it, at the latest when
// the connection is closed.
func wait[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	var zero T
	if err := ctx.Err(); err != nil {
		return zero, err
	}
	ch := make(chan result, 1)
	go func() {
		v, err := call()
		ch <- result{v, err}
	}()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
		return zero, ctx.Err()
	}
}

// pause sleeps; false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// zkLogger gives the library's few messages to slog.
type zkLogger struct{ log *slog.Logger }

func (l zkLogger) Printf(format string, args ...any) {
	l.log.Debug("zookeeper client: " + fmt.Sprintf(format, args...))
}
