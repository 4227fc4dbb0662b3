package broker

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"penstock/dataplane/coordination"
	"penstock/dataplane/handler"
)

// store is handler.Store on ZooKeeper, in Kafka's layout.
type store struct{ zk *coordination.Client }

func (s store) TopicConfig(ctx context.Context, topic string) (map[string]string, error) {
	return s.zk.Config(ctx, "topics/"+topic)
}

func (s store) ChangeTopicConfig(ctx context.Context, topic string, change handler.Change) error {
	return s.zk.ChangeConfig(ctx, "topics/"+topic, change)
}

func (s store) BrokerConfig(ctx context.Context, broker string) (map[string]string, error) {
	return s.zk.Config(ctx, "brokers/"+broker)
}

func (s store) ChangeBrokerConfig(ctx context.Context, broker string, change handler.Change) error {
	return s.zk.ChangeConfig(ctx, "brokers/"+broker, change)
}

func (s store) GroupConfig(ctx context.Context, group string) (map[string]string, error) {
	return s.zk.Config(ctx, groupEntity(group))
}

// ChangeGroupConfig makes a znode for the first setting and removes it with the last one:
// a group can have any name, so those who may set something could fill ZooKeeper.
func (s store) ChangeGroupConfig(ctx context.Context, group string, change handler.Change) error {
	entity, left := groupEntity(group), 0
	err := s.zk.ChangeConfig(ctx, entity, func(now map[string]string) (map[string]string, error) {
		next, err := change(now)
		if left = len(next); err != nil || len(now) > 0 || left == 0 {
			return next, err
		}
		return next, s.roomForGroup(ctx, strings.TrimPrefix(entity, groupEntities))
	})
	if err != nil || left > 0 {
		return err
	}
	return s.zk.DeleteEmptyConfig(ctx, entity)
}

// mostGroupNames bounds the bytes of the names of all groups with settings: ZooKeeper lists
// them in one answer, which can have 1 MiB.
const mostGroupNames = 512 << 10

func (s store) roomForGroup(ctx context.Context, name string) error {
	names, err := s.zk.ConfigEntities(ctx, strings.TrimSuffix(groupEntities, "/"))
	size := len(name)
	for _, n := range names {
		if n == name {
			return err
		}
		size += len(n)
	}
	if err == nil && size > mostGroupNames {
		return fmt.Errorf("%w: the names of groups with settings would take %d bytes, at most %d can be kept", kerr.PolicyViolation, size, mostGroupNames)
	}
	return err
}

// groupEntity is the group's path below /config. A group can have any name, ZooKeeper's
// nodes neither "." nor "..".
func groupEntity(group string) string {
	name := strings.NewReplacer("+", "%20", "~", "%7E").Replace(url.QueryEscape(group))
	if strings.Trim(name, ".") == "" {
		name = strings.ReplaceAll(name, ".", "%2E")
	}
	return groupEntities + name
}

const groupEntities = "groups/"

// Quotas walks users, their clients, clients, and addresses.
func (s store) Quotas(ctx context.Context) ([]handler.QuotaEntity, error) {
	var all []handler.QuotaEntity
	err := s.quotaEntities(ctx, func(entity string, values map[string]string) {
		all = append(all, entityOf(entity, values))
	})
	return all, err
}

// quotaEntities calls fn for every entity that has a znode, with its path below
// /config.
func (s store) quotaEntities(ctx context.Context, fn func(entity string, values map[string]string)) error {
	read := func(entity string) error {
		values, err := s.zk.Config(ctx, entity)
		if err == nil && len(values) > 0 {
			fn(entity, values)
		}
		return err
	}
	for _, kind := range []string{"users", "clients", "ips"} {
		names, err := s.zk.ConfigEntities(ctx, kind)
		if err != nil {
			return err
		}
		for _, name := range names {
			entity := kind + "/" + name
			if err := read(entity); err != nil {
				return err
			}
			if kind != "users" {
				continue
			}
			clients, err := s.zk.ConfigEntities(ctx, entity+"/clients")
			if err != nil {
				return err
			}
			for _, c := range clients {
				if err := read(entity + "/clients/" + c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s store) ChangeQuotas(ctx context.Context, e handler.QuotaEntity, change handler.Change) error {
	var parts []string
	if e.User != nil {
		parts = append(parts, "users", sanitize(*e.User))
	}
	if e.ClientID != nil {
		parts = append(parts, "clients", sanitize(*e.ClientID))
	}
	if e.IP != nil {
		parts = append(parts, "ips", sanitize(*e.IP))
	}
	return s.zk.ChangeConfig(ctx, strings.Join(parts, "/"), change)
}

func entityOf(path string, values map[string]string) handler.QuotaEntity {
	e := handler.QuotaEntity{Values: values}
	p := strings.Split(path, "/")
	for i := 0; i+1 < len(p); i += 2 {
		name := unsanitize(p[i+1])
		switch p[i] {
		case "users":
			e.User = &name
		case "ips":
			e.IP = &name
		default:
			e.ClientID = &name
		}
	}
	return e
}

// sanitize is the percent encoding that Kafka uses for names in znode paths.
func sanitize(name string) string {
	if name == handler.DefaultEntity {
		return name
	}
	return strings.NewReplacer("+", "%20", "~", "%7E").Replace(url.QueryEscape(name))
}

func unsanitize(name string) string {
	if s, err := url.PathUnescape(name); err == nil {
		return s
	}
	return name
}
