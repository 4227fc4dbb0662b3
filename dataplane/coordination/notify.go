package coordination

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// notificationLife is how long a notification stays before any listener may
// remove it: long enough for every broker to have seen it.
const notificationLife = 15 * time.Minute

// notify adds a sequence child whose creation tells the listeners.
func (c *Client) notify(ctx context.Context, prefix string, data []byte) error {
	_, err := c.CreateSequential(ctx, prefix, data)
	if errors.Is(err, ErrNoNode) {
		if i := strings.LastIndexByte(prefix, '/'); i > 0 {
			if err := c.EnsurePath(ctx, prefix[:i]); err != nil {
				return err
			}
			_, err = c.CreateSequential(ctx, prefix, data)
		}
	}
	return err
}

// Listener follows the sequence children of a znode.
type Listener struct {
	c            *Client
	path, prefix string
	fn           func(data []byte) error
	missed       func() error
	unwatch      func()
	cancel       context.CancelFunc
	wake         chan struct{}
	done         chan struct{}
	once         sync.Once
	last         int64 // highest number handled; the loop's, as are those below
	began        bool  // the children that were there at first have been handled
	gap          bool  // some were removed before they were seen
}

// Listen calls fn, from one goroutine, with the content of each child
// prefixN of path, in order of N, those that exist first: Listen returns when
// these have been handled. Old children are removed.
//
// fn usually reads what has changed. If it fails with ErrExpired it is called
// again for the same child, under the next session; any other error is logged,
// and the child counts as handled.
//
// missed is called when children have come and gone unseen, as for a broker that was
// cut off from ZooKeeper for longer than they live: whatever they told of may have
// changed. It is repeated until it succeeds.
func (c *Client) Listen(ctx context.Context, path, prefix string, fn func(data []byte) error, missed func() error) (*Listener, error) {
	if err := c.EnsurePath(ctx, path); err != nil {
		return nil, err
	}
	l := &Listener{c: c, path: path, prefix: prefix, fn: fn, missed: missed, wake: make(chan struct{}, 1), done: make(chan struct{}), last: -1}
	l.unwatch = c.WatchChildren(path, func() {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	})
	if err := l.process(ctx); err != nil {
		l.unwatch()
		return nil, err
	}
	var run context.Context
	run, l.cancel = context.WithCancel(c.ctx)
	go l.run(run)
	return l, nil
}

// Close stops the listener and waits for a call of fn that is under way.
func (l *Listener) Close() {
	l.once.Do(func() {
		l.unwatch()
		l.cancel()
	})
	<-l.done
}

func (l *Listener) run(ctx context.Context) {
	defer close(l.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		for ctx.Err() == nil {
			err := l.process(ctx)
			if err == nil {
				break
			}
			l.c.log.Warn("reading notifications failed", "path", l.path, "err", err)
			pause(ctx, 200*time.Millisecond)
		}
	}
}

func (l *Listener) process(ctx context.Context) error {
	list, err := l.c.children(ctx, l.path)
	if err != nil {
		return err
	}
	type child struct {
		n    int64
		name string
	}
	var kids []child
	for _, name := range list.names {
		n, err := strconv.ParseInt(strings.TrimPrefix(name, l.prefix), 10, 64)
		if err == nil && strings.HasPrefix(name, l.prefix) {
			kids = append(kids, child{n, name})
		}
	}
	slices.SortFunc(kids, func(a, b child) int { return int(a.n - b.n) })
	for _, k := range kids {
		data, st, err := l.c.Get(ctx, l.path+"/"+k.name)
		if errors.Is(err, ErrNoNode) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", k.name, err)
		}
		if k.n > l.last {
			if err := l.fn(data); errors.Is(err, ErrExpired) {
				return fmt.Errorf("%s: %w", k.name, err)
			} else if err != nil {
				l.c.log.Error("a notified change could not be applied", "path", l.path, "child", k.name, "err", err)
			}
			l.skip(k.n)
			l.last = k.n
		} else if time.Since(time.UnixMilli(st.Ctime)) > notificationLife {
			if err := l.c.Delete(ctx, l.path+"/"+k.name, -1); err != nil {
				return err
			}
		}
	}
	// Children are numbered by how many there have ever been, which is half of what
	// was made and removed and what is there.
	l.skip((int64(list.stat.Cversion) + int64(list.stat.NumChildren)) / 2)
	l.began = true
	if l.gap {
		l.c.log.Warn("notifications were removed before they were seen; everything is read anew", "path", l.path)
		if err := l.missed(); err != nil {
			return err
		}
		l.gap = false
	}
	return nil
}

// skip comes to number n: what lies before it and was not handled is gone.
func (l *Listener) skip(n int64) {
	l.gap = l.gap || l.began && n > l.last+1
	l.last = max(l.last, n-1)
}
