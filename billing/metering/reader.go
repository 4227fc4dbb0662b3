// Package metering reads the clusters' usage topics into the ledger.
//
// Each serving cluster has a follower: an ordinary consumer of __penstock_usage
// without a group, whose offsets stand in Postgres beside what was read up to
// them. Any number of readers may work at the same time; they only repeat each
// other's work.
package metering

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kgo"

	"penstock/controlplane/cluster"
)

// Config is what a Reader needs. All without a default must be set.
type Config struct {
	// Pool works under the role penstock_worker.
	Pool *pgxpool.Pool
	// Clusters lists the clusters to follow; (*cluster.Worker).Serving.
	Clusters func(context.Context) ([]cluster.Cluster, error)
	// Client says how to reach a cluster as the control plane.
	Client func(cluster.Cluster) ([]kgo.Opt, error)
	// List is how often the clusters are listed, default 1 s. Idle is how often
	// the end of a topic is asked for while nothing comes, default 500 ms. Retry
	// is the pause after a failure, default 1 s.
	List, Idle, Retry time.Duration
	Logger            *slog.Logger

	open func(context.Context, cluster.Cluster, map[int32]int64) (source, error)
}

// source is a usage topic that is being read.
type source interface {
	// poll waits for messages of one partition, or until the context ends.
	poll(ctx context.Context) (partition int32, msgs []Message, err error)
	// ends gives the end of each partition, as of some time after the call.
	ends(ctx context.Context) (map[int32]int64, error)
	close()
}

// Reader follows all serving clusters.
type Reader struct{ c Config }

// New makes a Reader.
func New(c Config) *Reader {
	if c.List == 0 {
		c.List = time.Second
	}
	if c.Idle == 0 {
		c.Idle = 500 * time.Millisecond
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reader{c}
	if r.c.open == nil {
		r.c.open = r.openTopic
	}
	return r
}

// Run reads until the context ends.
func (r *Reader) Run(ctx context.Context) {
	type follower struct {
		internal string
		cancel   context.CancelFunc
		done     chan struct{}
	}
	following := map[string]follower{}
	stop := func(id string) {
		following[id].cancel()
		<-following[id].done
		delete(following, id)
	}
	defer func() {
		for id := range following {
			stop(id)
		}
	}()
	tick := time.NewTicker(r.c.List)
	defer tick.Stop()
	for {
		clusters, err := r.c.Clusters(ctx)
		if err != nil && ctx.Err() == nil {
			r.c.Logger.Warn("cannot list clusters", "err", err)
		}
		if err == nil {
			serving := map[string]cluster.Cluster{}
			for _, c := range clusters {
				serving[c.ID] = c
			}
			for id, f := range following {
				// A client finds moved brokers by those that did not move; if the list
				// changed, start from the new one.
				if c, ok := serving[id]; !ok || c.InternalBootstrap != f.internal {
					stop(id)
				}
			}
			for id, c := range serving {
				if _, ok := following[id]; ok {
					continue
				}
				fctx, cancel := context.WithCancel(ctx)
				f := follower{c.InternalBootstrap, cancel, make(chan struct{})}
				following[id] = f
				go func() {
					defer close(f.done)
					r.follow(fctx, c)
				}()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// follow reads one cluster until the context ends, and begins anew from the
// stored offsets after every failure.
func (r *Reader) follow(ctx context.Context, c cluster.Cluster) {
	log := r.c.Logger.With("cluster", c.ID)
	last := ""
	for {
		err := r.read(ctx, c)
		if ctx.Err() != nil {
			return
		}
		// A usage topic that is not there yet is retried every second; say it once.
		if err != nil && err.Error() != last {
			last = err.Error()
			log.Warn("reading of usage stopped, beginning anew", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.c.Retry):
		}
	}
}

// errNoTopic says that no broker has published usage yet.
var errNoTopic = errors.New("the usage topic is not there yet")

// read reads until something fails.
func (r *Reader) read(ctx context.Context, c cluster.Cluster) error {
	src, err := r.c.open(ctx, c, nil)
	if err != nil {
		return err
	}
	parts, err := src.ends(ctx)
	src.close()
	if err != nil {
		return err
	}
	if len(parts) == 0 {
		return errNoTopic
	}
	at := map[int32]int64{}
	for part := range parts {
		err := pgx.BeginFunc(ctx, r.c.Pool, func(tx pgx.Tx) (err error) {
			at[part], err = load(ctx, tx, place{c.TenantID, c.ID, part})
			return err
		})
		if err != nil {
			return err
		}
	}
	if src, err = r.c.open(ctx, c, at); err != nil {
		return err
	}
	defer src.close()
	for {
		// Asked for before the poll: what is read when the poll comes back empty was
		// the end at this time or later.
		now := time.Now()
		ends, err := src.ends(ctx)
		if err != nil {
			return err
		}
		if len(ends) != len(at) {
			return fmt.Errorf("the usage topic has %d partitions now", len(ends))
		}
		if err := r.noteEnd(ctx, c, at, ends, now); err != nil {
			return err
		}
		idle, cancel := context.WithTimeout(ctx, r.c.Idle)
		for {
			part, msgs, err := src.poll(idle)
			if err != nil && idle.Err() == nil {
				cancel()
				return err
			}
			if len(msgs) == 0 {
				break
			}
			if err := r.apply(ctx, c, part, msgs, at); err != nil {
				cancel()
				return err
			}
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// apply stores messages of one partition.
func (r *Reader) apply(ctx context.Context, c cluster.Cluster, part int32, msgs []Message, at map[int32]int64) error {
	var next int64
	err := pgx.BeginFunc(ctx, r.c.Pool, func(tx pgx.Tx) (err error) {
		next, err = store(ctx, tx, place{c.TenantID, c.ID, part}, at[part], msgs)
		return err
	})
	if err == nil {
		at[part] = next
	}
	return err
}

// noteEnd notes for each partition that has been read to its end that it was.
func (r *Reader) noteEnd(ctx context.Context, c cluster.Cluster, at, ends map[int32]int64, now time.Time) error {
	return pgx.BeginFunc(ctx, r.c.Pool, func(tx pgx.Tx) error {
		for part, next := range at {
			if next < ends[part] {
				continue
			}
			if err := markRead(ctx, tx, place{c.TenantID, c.ID, part}, now); err != nil {
				return fmt.Errorf("note the end: %w", err)
			}
		}
		return nil
	})
}
