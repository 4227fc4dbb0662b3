package listener

import (
	"time"

	"penstock/dataplane/protocol"
)

// run serves one request. When it returns nil, the reply has been written, or
// the writing goroutine has the request in its queue.
func (c *Conn) run(r *Request) error {
	queued, err := c.enter(r)
	if err != nil {
		r.free()
		return err
	}
	if err := c.handle(r); err != nil {
		// A queued request is left to the writing goroutine, which ends with
		// the connection.
		c.Close(err.Error())
		if !queued && !c.abandon(r) {
			r.finish()
		}
		return err
	}
	if queued {
		return nil
	}
	if r.api.Has(protocol.Pipelined) && c.queueIfUnanswered(r) {
		return nil
	}
	c.mu.Lock()
	for !r.replied && !c.closed {
		c.change.Wait()
	}
	c.mu.Unlock()
	return c.settle(r)
}

// enter waits until r may start: nothing is unanswered, or only requests of its
// own pipelined kind, few and small enough. It reports whether r has been put
// in the writing goroutine's queue.
func (c *Conn) enter(r *Request) (queued bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && !c.closed {
		if r.api.Has(protocol.Pipelined) && c.queue[0].Key == r.Key && len(c.queue) < c.l.cfg.MaxPipelined &&
			c.queuedBytes+r.Size <= c.l.cfg.MaxPipelinedBytes {
			c.queue = append(c.queue, r)
			c.queuedBytes += r.Size
			return true, nil
		}
		c.change.Wait()
	}
	if c.closed {
		return false, &closeError{reason: c.reason}
	}
	return false, nil
}

// handle runs the handler; a panic ends only this connection.
func (c *Conn) handle(r *Request) (err error) {
	r.Start = time.Now()
	defer func() {
		if p := recover(); p != nil {
			c.panicked(p)
			r.drop()
			// Nobody may answer it any more. If somebody is about to, it finds
			// the request abandoned.
			if r.answered.CompareAndSwap(false, true) {
				c.mu.Lock()
				r.replied = true
				c.mu.Unlock()
			}
			err = &closeError{reason: "internal error"}
		}
	}()
	if r.Body == nil { // a version that is not served, see check
		if r.claim(nil) {
			r.encode(protocol.UnsupportedApiVersions(), 0)
			r.hand()
		}
		return nil
	}
	c.l.cfg.Handler(r)
	r.LocalDone()
	return nil
}

// queueIfUnanswered puts r in the queue and starts the writing goroutine, which
// is not running since the queue is empty.
func (c *Conn) queueIfUnanswered(r *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.replied || c.closed {
		return false
	}
	c.queue = append(c.queue, r)
	c.queuedBytes += r.Size
	c.writers.Add(1)
	go func() {
		defer c.writers.Done()
		c.writeQueue()
	}()
	return true
}

// writeQueue sends replies in order until none is outstanding.
func (c *Conn) writeQueue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		r := c.queue[0]
		for !r.replied && !c.closed {
			c.change.Wait()
		}
		c.mu.Unlock()
		if err := c.settle(r); err != nil {
			c.Close(err.Error())
		}
		c.mu.Lock()
		c.queuedBytes -= r.Size
		c.queue[0] = nil
		if c.queue = c.queue[1:]; len(c.queue) == 0 {
			c.queue = nil
		}
		c.change.Broadcast()
	}
}

// settle sends the reply of a request and ends it, or leaves it to whoever
// answers it if the connection has closed before.
func (c *Conn) settle(r *Request) error {
	if c.abandon(r) {
		return &closeError{reason: "closed"}
	}
	err := c.send(r)
	r.finish()
	return err
}

// abandon leaves an unanswered request of a closed connection to its answerer;
// false if it has been answered, and then the caller finishes it.
func (c *Conn) abandon(r *Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.replied {
		return false
	}
	r.abandoned = true
	return true
}

// unanswered reports whether the peer waits for a reply.
func (c *Conn) unanswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0
}
