package broker

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"penstock/dataplane/coordination"
	"penstock/dataplane/metadata"
	"penstock/dataplane/protocol"
)

// features follows what the cluster's brokers can do, those that live and those that are away and
// have replicas. UpdateMetadata does not say it, so each broker reads the registrations,
// and the records of what those could do that are gone, whenever either changes. Together
// they have a version (the transaction of ZooKeeper's that changed them last), which all
// brokers see alike: it is the epoch that clients are told.
//
// What a broker can do goes into its record when any broker of ours sees it live; the
// controller, if it is one of ours, adds those that were never seen and removes those that
// have no replicas (controller/features.go). It does the former before its first word to
// anybody, so a broker tells no level before it has heard that.
type features struct {
	inForce atomic.Pointer[metadata.Features]
	told    atomic.Bool   // inForce was read after the controller's first word
	wake    chan struct{} // holds one
}

// finalized is what clients are told to be in force now.
func (b *Broker) finalized() metadata.Features {
	if b.features.told.Load() {
		return b.features.read()
	}
	return metadata.NoFeatures
}

// read is what is in force by all that was read. The transaction coordinator goes by it from its
// first record on: with less it would not write all that it knows of transactions which are
// under way.
func (f *features) read() metadata.Features {
	if in := f.inForce.Load(); in != nil {
		return *in
	}
	return metadata.NoFeatures
}

// featuresRetry is the pause after the registrations could not be read, or what they say
// not be written down.
const featuresRetry = time.Second

// followFeatures reads what the brokers can do, and again when that changes.
func (b *Broker) followFeatures(ctx context.Context) error {
	f := &b.features
	f.wake = make(chan struct{}, 1)
	unwatch := b.zk.WatchKnownBrokers(func() {
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
	if b.metadata.Await(ctx, func(im *metadata.Image) bool { return im.ControllerEpoch != 0 }) != nil {
		return
	}
	for {
		for b.readFeatures(ctx) != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(featuresRetry):
			}
		}
		b.features.told.Store(true)
		select {
		case <-ctx.Done():
			return
		case <-b.features.wake:
		}
	}
}

// readFeatures tells what is in force and writes down what is new of the brokers that live.
func (b *Broker) readFeatures(ctx context.Context) error {
	known, err := b.zk.KnownBrokers(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("the brokers' features cannot be read yet", "error", err)
		}
		return err
	}
	b.putInForce(known)
	if known.Records.Bad != nil {
		b.log.Error("no features are in force: what brokers that are away could do cannot be read", "error", known.Records.Bad)
		return nil // until somebody removes it, which wakes us
	}
	next, changed := known.Records.Contradicted(known.Live)
	if !changed {
		return nil
	}
	// All brokers try, and one succeeds; that wakes all, those too whose write came too late.
	err = b.zk.WriteFeatureRecords(ctx, known.Records, next, nil)
	if err == nil || errors.Is(err, coordination.ErrBadVersion) {
		return nil
	}
	if ctx.Err() == nil {
		b.log.Warn("what the brokers can do cannot be written down yet", "error", err)
	}
	return err
}

// putInForce never goes back: a server of ZooKeeper that we have come to anew may be behind the
// last one, and wakes us when it has caught up.
func (b *Broker) putInForce(known coordination.KnownBrokers) {
	old := b.features.read()
	if known.Version < old.Epoch {
		return
	}
	var have []map[string]protocol.Feature
	for _, can := range known.Abilities() {
		of := map[string]protocol.Feature{}
		for name, v := range can {
			of[name] = protocol.Feature{Name: name, Min: v.Min, Max: v.Max}
		}
		have = append(have, of)
	}
	next := metadata.Finalize(known.Version, protocol.Features(), have)
	if !maps.Equal(old.Levels, next.Levels) {
		b.log.Info("features in force", "levels", next.Levels, "epoch", next.Epoch, "brokers", len(known.Live), "away", len(have)-len(known.Live))
	}
	b.features.inForce.Store(&next)
}
