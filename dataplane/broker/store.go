package broker

import (
	"context"
	"net/url"
	"strings"

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
