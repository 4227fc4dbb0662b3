package coordination

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// full is the path at the server.
func (c *Client) full(path string) string {
	if path == "/" {
		if c.chroot == "" {
			return "/"
		}
		return c.chroot
	}
	return c.chroot + path
}

// local is the path below the chroot.
func (c *Client) local(path string) string {
	if p := strings.TrimPrefix(path, c.chroot); p != "" {
		return p
	}
	return "/"
}

type node struct {
	data []byte
	stat *zk.Stat
}

// Get reads a znode; ErrNoNode when it is missing. It arms the path's data
// watch, in which case a missing node is watched for, too.
func (c *Client) Get(ctx context.Context, path string) ([]byte, *Stat, error) {
	p, k := c.full(path), watchKey{path, watchData}
	if !c.watches.arm(k) {
		n, err := do(ctx, c, func(z *zk.Conn) (node, error) {
			d, st, err := z.Get(p)
			return node{d, st}, err
		})
		return n.data, n.stat, err
	}
	n, err := do(ctx, c, func(z *zk.Conn) (node, error) {
		for {
			d, st, _, err := z.GetW(p)
			if !errors.Is(err, zk.ErrNoNode) {
				return node{d, st}, err
			}
			// GetW leaves no watch on a missing node.
			ok, _, _, err := z.ExistsW(p)
			if err != nil {
				return node{}, err
			}
			if !ok {
				return node{}, zk.ErrNoNode
			}
		}
	})
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		c.watches.disarm(k)
	}
	return n.data, n.stat, err
}

// Exists is nil, nil when the znode is missing. It arms the data watch.
func (c *Client) Exists(ctx context.Context, path string) (*Stat, error) {
	p, k := c.full(path), watchKey{path, watchData}
	armed := c.watches.arm(k)
	st, err := do(ctx, c, func(z *zk.Conn) (*zk.Stat, error) {
		var ok bool
		var st *zk.Stat
		var err error
		if armed {
			ok, st, _, err = z.ExistsW(p)
		} else {
			ok, st, err = z.Exists(p)
		}
		if !ok {
			st = nil
		}
		return st, err
	})
	if err != nil && armed {
		c.watches.disarm(k)
	}
	return st, err
}

// Children lists the names of a znode's children in no particular order;
// ErrNoNode when the znode is missing, in which case the children watch is not
// armed. Otherwise it is.
func (c *Client) Children(ctx context.Context, path string) ([]string, error) {
	l, err := c.children(ctx, path)
	return l.names, err
}

type childList struct {
	names []string
	stat  *zk.Stat
}

func (c *Client) children(ctx context.Context, path string) (childList, error) {
	p, k := c.full(path), watchKey{path, watchChildren}
	armed := c.watches.arm(k)
	l, err := do(ctx, c, func(z *zk.Conn) (childList, error) {
		if armed {
			names, st, _, err := z.ChildrenW(p)
			return childList{names, st}, err
		}
		names, st, err := z.Children(p)
		return childList{names, st}, err
	})
	if err != nil && armed {
		c.watches.disarm(k)
	}
	return l, err
}

// Create makes a persistent znode, whose parent must exist.
func (c *Client) Create(ctx context.Context, path string, data []byte) error {
	p, acl := c.full(path), c.acl(path)
	_, err := do(ctx, c, func(z *zk.Conn) (string, error) { return z.Create(p, data, 0, acl) })
	return err
}

// CreateSequential makes a persistent znode with a number appended to its name
// and returns its whole path.
func (c *Client) CreateSequential(ctx context.Context, prefix string, data []byte) (string, error) {
	p, acl := c.full(prefix), c.acl(prefix)
	made, err := do(ctx, c, func(z *zk.Conn) (string, error) { return z.Create(p, data, zk.FlagSequence, acl) })
	return c.local(made), err
}

// EnsurePath makes a persistent znode and its missing parents, empty.
func (c *Client) EnsurePath(ctx context.Context, path string) error {
	err := c.Create(ctx, path, nil)
	if errors.Is(err, zk.ErrNoNode) {
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			if err := c.EnsurePath(ctx, path[:i]); err != nil {
				return err
			}
			err = c.Create(ctx, path, nil)
		}
	}
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}

// Set writes a znode if its version is the given one (-1: any) and returns the
// new version.
func (c *Client) Set(ctx context.Context, path string, data []byte, version int32) (int32, error) {
	p := c.full(path)
	st, err := do(ctx, c, func(z *zk.Conn) (*zk.Stat, error) { return z.Set(p, data, version) })
	if err != nil {
		return 0, err
	}
	return st.Version, nil
}

// Delete removes a znode of that version (-1: any); a missing one is no error.
func (c *Client) Delete(ctx context.Context, path string, version int32) error {
	p := c.full(path)
	_, err := do(ctx, c, func(z *zk.Conn) (struct{}, error) { return struct{}{}, z.Delete(p, version) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// Op is one operation of a Multi.
type Op struct{ make func(c *Client) any }

// CreateOp creates a persistent znode.
func CreateOp(path string, data []byte) Op {
	return Op{func(c *Client) any { return &zk.CreateRequest{Path: c.full(path), Data: data, Acl: c.acl(path)} }}
}

// CreateEphemeralOp creates a znode that goes with the session.
func CreateEphemeralOp(path string, data []byte) Op {
	return Op{func(c *Client) any {
		return &zk.CreateRequest{Path: c.full(path), Data: data, Acl: c.acl(path), Flags: zk.FlagEphemeral}
	}}
}

// SetOp writes a znode of that version (-1: any).
func SetOp(path string, data []byte, version int32) Op {
	return Op{func(c *Client) any { return &zk.SetDataRequest{Path: c.full(path), Data: data, Version: version} }}
}

// DeleteOp removes a znode of that version (-1: any).
func DeleteOp(path string, version int32) Op {
	return Op{func(c *Client) any { return &zk.DeleteRequest{Path: c.full(path), Version: version} }}
}

// CheckOp fails the whole Multi unless the znode has that version.
func CheckOp(path string, version int32) Op {
	return Op{func(c *Client) any { return &zk.CheckVersionRequest{Path: c.full(path), Version: version} }}
}

// MultiError says which operation failed a Multi.
type MultiError struct {
	Index int // of the first operation that failed by itself
	Err   error
}

func (e *MultiError) Error() string { return e.Err.Error() }
func (e *MultiError) Unwrap() error { return e.Err }

// Multi carries out all of the operations or none. The result has one Stat for
// each; it is nil for those that give none.
func (c *Client) Multi(ctx context.Context, ops ...Op) ([]*Stat, error) {
	s, err := c.current(ctx)
	if err != nil {
		return nil, err
	}
	return c.multiOn(ctx, s, ops...)
}

func (c *Client) multiOn(ctx context.Context, s *session, ops ...Op) ([]*Stat, error) {
	reqs := make([]any, len(ops))
	for i, op := range ops {
		reqs[i] = op.make(c)
	}
	rs, err := doOn(ctx, c, s, func(z *zk.Conn) ([]zk.MultiResponse, error) {
		rs, err := z.Multi(reqs...)
		if err != nil {
			// The operations before the one that failed carry no error, those
			// after it a meaningless one.
			for i := range rs {
				if rs[i].Error != nil {
					return nil, &MultiError{Index: i, Err: rs[i].Error}
				}
			}
		}
		return rs, err
	})
	if err != nil {
		return nil, err
	}
	stats := make([]*Stat, len(rs))
	for i := range rs {
		stats[i] = rs[i].Stat
	}
	return stats, nil
}
