package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// DefaultEntity is the name of the default entity of a kind: what applies where
// no entity of its own is configured.
const DefaultEntity = "<default>"

type configJSON struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// Config reads the overrides of an entity, named by its path below /config:
// "topics/T", "brokers/1", "brokers/<default>", "clients/C", "ips/A", "users/U",
// "users/U/clients/C". An entity without overrides has an empty map. User and
// client names must be sanitized as Kafka does (percent-encoded).
func (c *Client) Config(ctx context.Context, entity string) (map[string]string, error) {
	data, _, err := c.Get(ctx, "/config/"+entity)
	if errors.Is(err, ErrNoNode) || err == nil && len(data) == 0 {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	var j configJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return nil, fmt.Errorf("coordination: config of %s: %w", entity, err)
	}
	if j.Config == nil {
		j.Config = map[string]string{}
	}
	return j.Config, nil
}

// SetConfig replaces the overrides of an entity and tells all brokers.
func (c *Client) SetConfig(ctx context.Context, entity string, config map[string]string) error {
	if err := c.Upsert(ctx, "/config/"+entity, encodeConfig(config)); err != nil {
		return err
	}
	return c.notifyConfig(ctx, entity)
}

func encodeConfig(config map[string]string) []byte {
	if config == nil {
		config = map[string]string{}
	}
	data, _ := json.Marshal(configJSON{1, config})
	return data
}

func (c *Client) notifyConfig(ctx context.Context, entity string) error {
	note, _ := json.Marshal(map[string]any{"version": 2, "entity_path": entity})
	return c.notify(ctx, configChangePrefix, note)
}

// ConfigEntities lists the entities of a kind ("topics", "users", ...) that
// have a znode.
func (c *Client) ConfigEntities(ctx context.Context, kind string) ([]string, error) {
	names, err := c.Children(ctx, "/config/"+kind)
	if errors.Is(err, ErrNoNode) {
		return nil, nil
	}
	slices.Sort(names)
	return names, err
}

// ListenConfigChanges calls fn with the path of each entity whose overrides
// were written, in order, beginning with the notifications that are there. After
// a session was lost it may be called again for the last ones. When a
// notification can not be told apart (another layout), fn gets "". For its
// errors see Listen.
func (c *Client) ListenConfigChanges(ctx context.Context, fn func(entity string) error) (*Listener, error) {
	return c.Listen(ctx, ConfigChangesPath, "config_change_", func(data []byte) error {
		var j struct {
			EntityPath string `json:"entity_path"`
		}
		if err := json.Unmarshal(data, &j); err != nil {
			c.log.Warn("unreadable config change notification", "data", string(data))
		}
		return fn(j.EntityPath)
	})
}
