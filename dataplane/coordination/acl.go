package coordination

import (
	"context"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// sensitiveRoots hold secrets (SCRAM verifiers, passwords of dynamic configs),
// which others must not even read when ACLs are set.
var sensitiveRoots = []string{"/config/users", "/config/brokers", "/delegation_token"}

// acl is what a new znode is protected with.
func (c *Client) acl(path string) []zk.ACL {
	if !c.cfg.SetACL || path == "/consumers" || strings.HasPrefix(path, "/consumers/") {
		return zk.WorldACL(zk.PermAll)
	}
	acl := zk.AuthACL(zk.PermAll)
	for _, root := range sensitiveRoots {
		if path == root || strings.HasPrefix(path, root+"/") {
			return acl
		}
	}
	return append(acl, zk.WorldACL(zk.PermRead)...)
}

// ensureChroot makes the chroot. The folders above it are made open, since
// other clusters, who log in as somebody else, have to make theirs there.
func (c *Client) ensureChroot(ctx context.Context) error {
	if c.chroot == "" {
		return nil
	}
	st, err := do(ctx, c, func(z *zk.Conn) (bool, error) { ok, _, err := z.Exists(c.chroot); return ok, err })
	if err != nil || st {
		return err
	}
	for i := 1; i <= len(c.chroot); i++ {
		if i < len(c.chroot) && c.chroot[i] != '/' {
			continue
		}
		p, acl := c.chroot[:i], zk.WorldACL(zk.PermAll)
		if i == len(c.chroot) {
			acl = c.acl("/")
		}
		_, err := do(ctx, c, func(z *zk.Conn) (string, error) { return z.Create(p, nil, 0, acl) })
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}
