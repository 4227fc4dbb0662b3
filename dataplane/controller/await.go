package controller

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
)

// waiter is a caller that waits for a state of the cluster and then for the
// brokers to have been told of it.
type waiter struct {
	cond func(st *state) bool
	done chan error // nil: cond holds and told is filled in
	told []delivery
}

// delivery is what must have reached a broker.
type delivery struct {
	s   *sender
	seq uint64
}

// checkWaiters runs after each event. What cond is about was queued for the
// brokers by then, so "all that is queued now" includes it.
func (t *term) checkWaiters() {
	rest := t.waiters[:0]
	for _, w := range t.waiters {
		if !w.cond(t.st) {
			rest = append(rest, w)
			continue
		}
		for _, s := range t.senders {
			w.told = append(w.told, delivery{s, s.lastMetadata()})
		}
		w.done <- nil
	}
	clear(t.waiters[len(rest):])
	t.waiters = rest
}

func (c *Controller) await(ctx context.Context, cond func(st *state) bool) error {
	w := &waiter{cond: cond, done: make(chan error, 1)}
	if err := c.call(ctx, func(t *term) error { t.waiters = append(t.waiters, w); return nil }); err != nil {
		return err
	}
	defer func() { // so that a caller that gave up is not kept
		if ctx.Err() != nil {
			c.queue.post("", func() error {
				if t := c.term.Load(); t != nil {
					for i := range t.waiters {
						if t.waiters[i] == w {
							t.waiters = append(t.waiters[:i], t.waiters[i+1:]...)
							break
						}
					}
				}
				return nil
			})
		}
	}()
	select {
	case err := <-w.done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stopped:
		return kerr.NotController
	}
	for _, d := range w.told {
		if err := d.s.await(ctx, d.seq); err != nil {
			return err
		}
	}
	return nil
}

// AwaitPropagated blocks until each partition of the topics has a leader and
// every live broker has taken in the metadata that says so, and with it,
// since the order is kept, the leaders and followers their LeaderAndIsr. A
// client may then go to any broker. It ends with ctx's error, or with
// NOT_CONTROLLER when this broker no longer is.
func (c *Controller) AwaitPropagated(ctx context.Context, topics ...string) error {
	return c.AwaitPartitions(ctx, nil, topics...)
}

// AwaitPartitions is AwaitPropagated for topics that have just been grown:
// counts gives the number of partitions to wait for.
func (c *Controller) AwaitPartitions(ctx context.Context, counts map[string]int, topics ...string) error {
	return c.await(ctx, func(st *state) bool {
		for _, name := range topics {
			tc := st.topics[name]
			if tc == nil || tc.deleting || len(tc.parts) < counts[name] {
				return false
			}
			for _, p := range tc.parts {
				if !p.known || p.state.Leader == noLeader {
					return false
				}
			}
		}
		return true
	})
}

// AwaitDeleted blocks until nothing is left of the topics in ZooKeeper and on the
// brokers that are there, and each of these has been told, or until ctx ends. As in
// Kafka a broker that is down is not waited for: it deletes its replicas, and the
// topic's znodes go, when it is back.
func (c *Controller) AwaitDeleted(ctx context.Context, topics ...string) error {
	return c.await(ctx, func(st *state) bool {
		for _, name := range topics {
			if tc := st.topics[name]; tc != nil && !st.deletedWherePossible(tc) {
				return false
			}
		}
		return true
	})
}

// deletedWherePossible says that what is left of a topic that goes is on brokers
// that are down.
func (st *state) deletedWherePossible(tc *topic) bool {
	if !tc.told {
		return false
	}
	for _, p := range tc.parts {
		for _, r := range p.hosts() {
			if st.up(r) && p.replica[r] != replicaDeletionSuccessful {
				return false
			}
		}
	}
	return true
}
