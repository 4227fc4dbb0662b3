package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sys/unix"

	"penstock/dataplane/commitlog"
	"penstock/dataplane/meter"
	"penstock/dataplane/partition"
	"penstock/dataplane/protocol"
	"penstock/dataplane/vfs"
)

// openDirs takes the folders. One that cannot be used is left offline, unless it is
// the last; one that another process uses ends the start.
func (b *Broker) openDirs(context.Context) error {
	commitlog.LimitOpenFiles(b.cfg.LogOpenFiles)
	for _, name := range b.cfg.LogDirs {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		d, err := commitlog.OpenDir(vfs.OS, path)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		if err != nil {
			b.dirOffline(path, err)
			continue
		}
		b.dirs = append(b.dirs, d)
		b.onStop("log dir "+path, func(context.Context) error {
			return d.Close(b.partitions != nil && b.partitions.ClosedClean(d))
		})
	}
	return b.someDir()
}

func (b *Broker) dirOffline(path string, err error) {
	b.log.Error("log folder cannot be used; its partitions are offline until a restart", "dir", path, "err", err)
	b.offlineDirs = append(b.offlineDirs, partition.OfflineDir{Path: path, Err: err})
}

func (b *Broker) someDir() error {
	if len(b.dirs) == 0 {
		return fmt.Errorf("none of log.dirs can be used: %w", b.offlineDirs[0].Err)
	}
	return nil
}

// identifyDirs holds the folders against the cluster: a folder of another cluster or
// broker must not be served from here. A new one is marked as this broker's.
func (b *Broker) identifyDirs(cluster string) error {
	for _, d := range slices.Clone(b.dirs) {
		m, ok, err := d.Meta()
		switch {
		case err != nil:
		case !ok:
			err = d.WriteMeta(commitlog.MetaProperties{ClusterID: cluster, BrokerID: b.cfg.ID})
		case m.ClusterID != "" && m.ClusterID != cluster:
			return fmt.Errorf("%s belongs to cluster %s, not to %s", d.Path(), m.ClusterID, cluster)
		case m.BrokerID >= 0 && m.BrokerID != b.cfg.ID:
			return fmt.Errorf("%s belongs to broker %d, not to %d", d.Path(), m.BrokerID, b.cfg.ID)
		}
		if errors.Is(err, kerr.KafkaStorageError) {
			b.dirs = slices.DeleteFunc(b.dirs, func(x *commitlog.Dir) bool { return x == d })
			b.dirOffline(d.Path(), err)
			_ = d.Close(false)
		} else if err != nil {
			return err
		}
	}
	return b.someDir()
}

// meterDir is the folder with the usage counters: the first that has some and can be
// used, else the first that can.
func (b *Broker) meterDir() string {
	for _, d := range b.dirs {
		if meter.In(d.Path()) {
			return d.Path()
		}
	}
	return b.dirs[0].Path()
}

// dirFailed has the controller told, as often as it takes, so that others take over
// what was led from the folder. Its lock is given back, for a repair. With the last
// folder the broker has nothing left to do.
func (b *Broker) dirFailed(path string, last bool, cause error) {
	for _, d := range b.dirs {
		if d.Path() == path {
			_ = d.Close(false)
		}
	}
	if last {
		b.homeless.Store(true)
		b.failed <- fmt.Errorf("the last log folder, %s, has failed: %w", path, cause)
		return
	}
	b.notifying.Go(func() {
		for b.ctx.Err() == nil {
			err := b.zk.NotifyLogDirFailure(b.ctx, b.cfg.ID)
			if err == nil {
				return
			}
			b.log.Warn("the controller cannot be told yet of a failed log folder", "dir", path, "err", err)
			select {
			case <-b.ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

// topicID asks ZooKeeper; zero if it has no such topic or does not answer.
func (b *Broker) topicID(topic string) protocol.UUID {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.ZooKeeperSessionTimeout)
	defer cancel()
	t, err := b.zk.Topic(ctx, topic)
	if err != nil {
		b.log.Warn("a topic's id cannot be read", "topic", topic, "err", err)
	}
	return t.ID
}
