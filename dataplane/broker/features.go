package broker

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
)

// features follows what the cluster's brokers can do. UpdateMetadata does not say it, so each
// broker reads the registrations, whenever one comes or goes. Their list has a version of its
// own (the transaction of ZooKeeper's that changed it last), which all brokers see alike:
// it is the epoch that clients are told.
type features struct {
	inForce atomic.Pointer[metadata.Features]
	wake    chan struct{} // holds one
}

// finalized is what is in force now.
func (b *Broker) finalized() metadata.Features {
	if f := b.features.inForce.Load(); f != nil {
		return *f
	}
	return metadata.NoFeatures
}

// featuresRetry is the pause after the registrations could not be read.
const featuresRetry = time.Second

// followFeatures reads the registrations, ours among them, and again when they change.
func (b *Broker) followFeatures(ctx context.Context) error {
	f := &b.features
	f.wake = make(chan struct{}, 1)
	unwatch := b.zk.WatchBrokers(func() {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	})
	if err := b.readFeatures(ctx); err != nil {
		unwatch()
		return err
	}
	ended := make(chan struct{})
	following, cancel := context.WithCancel(b.ctx)
	go func() {
		defer close(ended)
		b.followLoop(following)
	}()
	b.onStop("features", func(context.Context) error {
		unwatch()
		cancel()
		<-ended
		return nil
	})
	return nil
}

func (b *Broker) followLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.features.wake:
		}
		for b.readFeatures(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(featuresRetry):
			}
		}
	}
}

func (b *Broker) readFeatures(ctx context.Context) error {
	brokers, version, err := b.zk.Registrations(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("the brokers' features cannot be read yet", "error", err)
		}
		return err
	}
	var have []map[string]protocol.Feature
	for _, r := range brokers {
		of := map[string]protocol.Feature{}
		for name, v := range r.Features {
			of[name] = protocol.Feature{Name: name, Min: v.Min, Max: v.Max}
		}
		have = append(have, of)
	}
	old, next := b.finalized(), metadata.Finalize(version, protocol.Features(), have)
	if !maps.Equal(old.Levels, next.Levels) {
		b.log.Info("features in force", "levels", next.Levels, "epoch", next.Epoch, "brokers", len(brokers))
	}
	b.features.inForce.Store(&next)
	return nil
}
