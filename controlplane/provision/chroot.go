package provision

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// RemoveChroot deletes all that a cluster kept in ZooKeeper, its chroot
// included, after its brokers are gone. One that is not there is success.
func RemoveChroot(ctx context.Context, zooKeeper, chroot string, s Secrets) error {
	if chroot == "" || chroot == "/" || path.Clean(chroot) != chroot {
		return fmt.Errorf("%w: chroot %q", ErrInvalid, chroot)
	}
	conn, events, err := zk.Connect(strings.Split(zooKeeper, ","), 6*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return fmt.Errorf("connect to ZooKeeper: %w", err)
	}
	defer conn.Close()
	for connected := false; !connected; {
		select {
		case e := <-events:
			connected = e.State == zk.StateHasSession
		case <-ctx.Done():
			return fmt.Errorf("connect to ZooKeeper: %w", ctx.Err())
		}
	}
	if err := conn.AddAuth("digest", []byte(s.ZooKeeperUser+":"+s.ZooKeeperPassword)); err != nil {
		return fmt.Errorf("log in at ZooKeeper: %w", err)
	}
	return removeTree(ctx, conn, chroot)
}

func removeTree(ctx context.Context, conn *zk.Conn, node string) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		children, _, err := conn.Children(node)
		if errors.Is(err, zk.ErrNoNode) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", node, err)
		}
		for _, c := range children {
			if err := removeTree(ctx, conn, path.Join(node, c)); err != nil {
				return err
			}
		}
		// Not empty: an ephemeral node of a session that is not over yet came in
		// between. Once more.
		if err := conn.Delete(node, -1); err == nil || errors.Is(err, zk.ErrNoNode) {
			return nil
		} else if !errors.Is(err, zk.ErrNotEmpty) {
			return fmt.Errorf("delete %s: %w", node, err)
		}
	}
}

// silent takes the library's log lines: what matters comes back as errors.
type silent struct{}

func (silent) Printf(string, ...any) {}
