package coordination

import (
	"sync"

	"github.com/go-zookeeper/zk"
)

type watchKind int

const (
	watchData watchKind = iota
	watchChildren
)

type watchKey struct {
	path string
	kind watchKind
}

// watches are the handlers by znode. A read of a znode that has a handler arms
// ZooKeeper's one-shot watch, unless it is armed already: the library keeps a
// channel for each armed read, so arming twice would pile them up.
type watches struct {
	mu      sync.Mutex
	entries map[watchKey]*watchEntry
	pending []watchKey // fired and not yet dispatched; each key once
	wake    chan struct{}
}

type watchEntry struct {
	handlers map[int]func()
	next     int
	armed    bool
	queued   bool
}

func (w *watches) init() {
	w.entries = map[watchKey]*watchEntry{}
	w.wake = make(chan struct{}, 1)
}

// WatchData calls fn, one call at a time and merged, after the znode was
// created, changed or deleted, and after every new session. It does not read:
// the watch is armed by Get or Exists of that path, by whomever. fn must not
// block for long. The returned function removes the handler.
func (c *Client) WatchData(path string, fn func()) (stop func()) {
	return c.watches.add(watchKey{path, watchData}, fn)
}

// WatchChildren is WatchData for the list of children; Children arms it.
func (c *Client) WatchChildren(path string, fn func()) (stop func()) {
	return c.watches.add(watchKey{path, watchChildren}, fn)
}

func (w *watches) add(k watchKey, fn func()) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[k]
	if e == nil {
		e = &watchEntry{handlers: map[int]func(){}}
		w.entries[k] = e
	}
	id := e.next
	e.next++
	e.handlers[id] = fn
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(e.handlers, id)
		if len(e.handlers) == 0 && w.entries[k] == e && !e.armed {
			delete(w.entries, k)
		}
	}
}

// arm says whether a read of k should set ZooKeeper's watch. It marks the watch
// as armed before the read, so that an event which overtakes the reply is not
// taken back by it; disarm undoes that when the read has failed.
func (w *watches) arm(k watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[k]
	if e == nil || e.armed || len(e.handlers) == 0 {
		return false
	}
	e.armed = true
	return true
}

func (w *watches) disarm(k watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[k]; e != nil {
		e.armed = false
		if len(e.handlers) == 0 {
			delete(w.entries, k)
		}
	}
}

// fire is called for each event of the server.
func (w *watches) fire(t zk.EventType, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch t {
	case zk.EventNodeChildrenChanged:
		w.queue(watchKey{path, watchChildren})
	case zk.EventNodeDeleted:
		w.queue(watchKey{path, watchData})
		w.queue(watchKey{path, watchChildren})
	default:
		w.queue(watchKey{path, watchData})
	}
	w.signal()
}

// fireAll is called after a new session, under which no watch is armed.
func (w *watches) fireAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k := range w.entries {
		w.queue(k)
	}
	w.signal()
}

func (w *watches) queue(k watchKey) {
	e := w.entries[k]
	if e == nil {
		return
	}
	e.armed = false
	if len(e.handlers) == 0 {
		delete(w.entries, k)
		return
	}
	if !e.queued {
		e.queued = true
		w.pending = append(w.pending, k)
	}
}

func (w *watches) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take removes the pending handlers.
func (w *watches) take() []func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var fns []func()
	for _, k := range w.pending {
		e := w.entries[k]
		if e == nil {
			continue
		}
		e.queued = false
		for i := 0; i < e.next; i++ {
			if fn := e.handlers[i]; fn != nil {
				fns = append(fns, fn)
			}
		}
	}
	w.pending = nil
	return fns
}

// dispatch calls the handlers.
func (c *Client) dispatch() {
	defer c.wg.Done()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.watches.wake:
		}
		for _, fn := range c.watches.take() {
			fn()
		}
	}
}
