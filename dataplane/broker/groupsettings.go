package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"penstock/dataplane/coordination"
	"penstock/dataplane/group"
)

// groupSettings are the settings that groups have for themselves, of all groups of the
// cluster: any of them may be this broker's next.
type groupSettings struct {
	reading sync.Mutex // held while ZooKeeper is read and what it said is taken over

	mu    sync.RWMutex
	known map[string]group.Settings
}

func (s *groupSettings) get(id string) (group.Settings, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v, ok := s.known[id]
	return v, ok
}

// loadGroupSettings reads those of all groups.
func (b *Broker) loadGroupSettings(ctx context.Context) error {
	s := &b.ofGroups
	s.reading.Lock()
	defer s.reading.Unlock()
	names, err := b.zk.ConfigEntities(ctx, strings.TrimSuffix(groupEntities, "/"))
	if err != nil {
		return fmt.Errorf("reading the settings of groups: %w", err)
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[unsanitize(name)] = true
		if err := b.readGroupSettings(ctx, name); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.known {
		if !there[id] {
			delete(s.known, id)
		}
	}
	return nil
}

// groupSettingsChanged reads those of one group again; they are in force when it returns.
func (b *Broker) groupSettingsChanged(name string) error {
	b.ofGroups.reading.Lock()
	defer b.ofGroups.reading.Unlock()
	return b.readGroupSettings(b.ctx, name)
}

// readGroupSettings takes in what a znode says, whose name is the group's with what
// ZooKeeper would not take escaped.
func (b *Broker) readGroupSettings(ctx context.Context, name string) error {
	settings, err := b.zk.Config(ctx, groupEntities+name)
	id := unsanitize(name)
	switch {
	case errors.Is(err, coordination.ErrUnreadable):
		b.log.Error("a group's settings cannot be read, the last ones stay", "group", id, "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("reading the settings of group %s: %w", id, err)
	}
	s := &b.ofGroups
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(settings) == 0 {
		delete(s.known, id)
		return nil
	}
	if s.known == nil {
		s.known = make(map[string]group.Settings)
	}
	s.known[id] = group.Settings(b.now().Group(settings))
	return nil
}
