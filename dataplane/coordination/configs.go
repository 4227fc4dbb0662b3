package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// DefaultEntity is the name of the default entity of a kind: what applies where
// no entity of its own is configured.
const DefaultEntity = "<default>"

// ErrUnreadable is the error for a config znode whose content is no such thing.
var ErrUnreadable = errors.New("the znode of a configuration is unreadable")

type configJSON struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// Config reads the overrides of an entity, named by its path below /config:
// "topics/T", "brokers/1", "brokers/<default>", "clients/C", "ips/A", "users/U",
// "users/U/clients/C". An entity without overrides has an empty map. User and
// client names must be sanitized as Kafka does (percent-encoded).
func (c *Client) Config(ctx context.Context, entity string) (map[string]string, error) {
	config, _, err := c.config(ctx, entity)
	return config, err
}

// TopicConfigs reads the overrides of many topics; one without any has an empty map.
func (c *Client) TopicConfigs(ctx context.Context, topics []string) (map[string]map[string]string, error) {
	return readAll(ctx, topics, func(ctx context.Context, topic string) (map[string]string, error) {
		return c.Config(ctx, "topics/"+topic)
	})
}

// config gives the znode's version, too, noConfig if there is none.
func (c *Client) config(ctx context.Context, entity string) (map[string]string, int32, error) {
	data, st, err := c.Get(ctx, "/config/"+entity)
	if errors.Is(err, ErrNoNode) {
		return map[string]string{}, noConfig, nil
	}
	if err != nil {
		return nil, 0, err
	}
	var j configJSON
	if len(data) > 0 {
		if err := json.Unmarshal(data, &j); err != nil {
			return nil, 0, fmt.Errorf("coordination: %s: %w: %w", entity, ErrUnreadable, err)
		}
	}
	if j.Config == nil {
		j.Config = map[string]string{}
	}
	return j.Config, st.Version, nil
}

const noConfig int32 = -1

// ChangeConfig writes what change makes of the overrides of an entity, and tells
// all brokers. If somebody else has written them meanwhile, change is asked again
// for what there is then; its error ends the attempt.
func (c *Client) ChangeConfig(ctx context.Context, entity string, change func(now map[string]string) (map[string]string, error)) error {
	path := "/config/" + entity
	for {
		now, version, err := c.config(ctx, entity)
		if err != nil {
			return err
		}
		next, err := change(now)
		if err != nil {
			return err
		}
		if version == noConfig {
			if err := c.EnsurePath(ctx, path[:strings.LastIndexByte(path, '/')]); err != nil {
				return err
			}
			err = c.Create(ctx, path, encodeConfig(next))
		} else {
			_, err = c.Set(ctx, path, encodeConfig(next), version)
		}
		switch {
		case err == nil:
			return c.notifyConfig(ctx, entity)
		case !errors.Is(err, ErrBadVersion) && !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrNoNode):
			return err
		}
	}
}

// DeleteEmptyConfig removes the znode of an entity that has no overrides (any more).
func (c *Client) DeleteEmptyConfig(ctx context.Context, entity string) error {
	config, version, err := c.config(ctx, entity)
	if err != nil || len(config) > 0 || version == noConfig {
		return err
	}
	if err := c.Delete(ctx, "/config/"+entity, version); !errors.Is(err, ErrBadVersion) {
		return err
	}
	return nil // somebody has just written it
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
// notification can not be told apart (another layout), or some were removed before
// they were seen, fn gets "": anything may have changed. For its errors see Listen.
func (c *Client) ListenConfigChanges(ctx context.Context, fn func(entity string) error) (*Listener, error) {
	return c.Listen(ctx, ConfigChangesPath, "config_change_", func(data []byte) error {
		var j struct {
			EntityPath string `json:"entity_path"`
		}
		if err := json.Unmarshal(data, &j); err != nil {
			c.log.Warn("unreadable config change notification", "data", string(data))
		}
		return fn(j.EntityPath)
	}, func() error { return fn("") })
}
