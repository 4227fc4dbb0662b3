package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/dataplane/config"
	"penstock/dataplane/coordination"
)

// settings are what is in force on this broker: its file with what ZooKeeper keeps
// for it and for all brokers over it (KIP-226).
type settings struct {
	inForce atomic.Pointer[config.Broker]

	mu       sync.Mutex        // held while they are read anew and applied
	own, all map[string]string // as read last
}

// now is what is in force. What a running broker cannot change is in b.cfg as well.
func (b *Broker) now() *config.Broker { return b.settings.inForce.Load() }

// loadSettings reads the dynamic settings before anything is built that they concern.
func (b *Broker) loadSettings(ctx context.Context) error {
	if _, err := b.readSettings(ctx); err != nil {
		return err
	}
	b.cfg = b.now()
	b.connections.SetLimits(connectionLimits(b.cfg, openFiles()))
	return nil
}

// settingsChanged reads the dynamic settings again and applies them at once.
func (b *Broker) settingsChanged(ctx context.Context) error {
	b.settings.mu.Lock()
	defer b.settings.mu.Unlock()
	changed, err := b.readSettings(ctx)
	if err != nil || len(changed) == 0 {
		return err
	}
	now := b.now()
	b.log.Info("settings have changed", "settings", strings.Join(changed, ","))
	b.setRevocations(now)
	b.connections.SetLimits(connectionLimits(now, openFiles()))
	b.topics.renew()
	b.partitions.UpdateTopicConfigs()
	b.partitions.SetMoveRate(moveRate(now))
	b.partitions.SetReplicationThrottle(now.LeaderThrottle, now.FollowerThrottle)
	b.partitions.SetRecoveryThreads(now.RecoveryThreadsPerDir)
	b.partitions.SetDeleteDelay(deleteDelay(now))
	b.fetchers.SetThreads(now.ReplicaFetchers)
	if slices.Contains(changed, "unclean.leader.election.enable") {
		b.controller.ElectAgain("")
	}
	return b.partitions.SetCleaner(cleanerConfig(now))
}

// readSettings takes in what ZooKeeper has now and names what has changed in force.
// Nothing that somebody may have written there is an error: what is bad is logged,
// and the last good value stays.
func (b *Broker) readSettings(ctx context.Context) (changed []string, err error) {
	s := &b.settings
	for entity, into := range map[string]*map[string]string{strconv.Itoa(int(b.cfg.ID)): &s.own, coordination.DefaultEntity: &s.all} {
		entries, err := store{b.zk}.BrokerConfig(ctx, entity)
		switch {
		case errors.Is(err, coordination.ErrUnreadable):
			b.log.Error("dynamic settings cannot be read, the last ones stay", "error", err)
		case err != nil:
			return nil, fmt.Errorf("reading the dynamic settings: %w", err)
		default:
			*into = entries
		}
	}
	old := b.now()
	now, errs := old.WithDynamic(s.own, s.all)
	for _, err := range errs {
		b.log.Error("a dynamic setting is not applied", "error", err)
	}
	s.inForce.Store(now)
	return now.Changed(old), nil
}

// moveRate is the rate of moves between folders: partition has 0 for no limit, Kafka
// for as good as nothing.
func moveRate(cfg *config.Broker) int64 { return max(cfg.MoveRate, 1) }

// deleteDelay is looked at as often as it is long: not more than each second.
func deleteDelay(cfg *config.Broker) time.Duration {
	t, _ := cfg.Topic(nil)
	return max(t.FileDeleteDelay, time.Second)
}
