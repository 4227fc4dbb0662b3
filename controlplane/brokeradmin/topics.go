package brokeradmin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is a topic as it is wanted.
type Topic struct {
	Name        string
	Partitions  int
	Replication int
	// Configs is the whole of its own settings: one that is not named goes back to
	// the broker's.
	Configs map[string]string
}

// EnsureTopic makes the topic, or brings the one that is there to the wish, and
// returns its id as the brokers know it (hex). Fewer partitions than there are,
// or another replication factor, is ErrWish.
func (a *Admin) EnsureTopic(ctx context.Context, t Topic) (id string, err error) {
	have, err := a.topic(ctx, t.Name)
	if err != nil {
		return "", err
	}
	if have == nil {
		configs := map[string]*string{}
		for k, v := range t.Configs {
			configs[k] = &v
		}
		made, err := a.adm.CreateTopic(ctx, int32(t.Partitions), int16(t.Replication), configs, t.Name)
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			if made.ErrMessage != "" { // names the setting or the number that is wrong
				err = fmt.Errorf("%w: %s", err, made.ErrMessage)
			}
			return "", fmt.Errorf("create topic %s: %w", t.Name, err)
		}
		// Another attempt may have made it: then it may differ.
		if have, err = a.awaitTopic(ctx, t.Name); err != nil {
			return "", err
		}
	}
	if err := a.growTopic(ctx, t, have); err != nil {
		return "", err
	}
	if err := a.configureTopic(ctx, t); err != nil {
		return "", err
	}
	err = a.everywhere(ctx, "topic "+t.Name, func(ctx context.Context, b *kgo.Broker) (bool, error) {
		d, err := describe(ctx, b, t.Name)
		if err != nil || d == nil || len(d.Partitions) != t.Partitions {
			return false, err
		}
		id = hex.EncodeToString(d.TopicID[:])
		for _, p := range d.Partitions {
			if p.Leader < 0 {
				return false, nil
			}
		}
		return true, nil
	})
	return id, err
}

// topic returns nil if there is none.
func (a *Admin) topic(ctx context.Context, name string) (*kmsg.MetadataResponseTopic, error) {
	return describe(ctx, a.cl, name)
}

func describe(ctx context.Context, r kmsg.Requestor, name string) (*kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("describe topic %s: %w", name, err)
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("describe topic %s: %d topics in the answer", name, len(resp.Topics))
	}
	switch err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return nil, nil
	case errors.Is(err, kerr.LeaderNotAvailable): // it is there, and on its way
	case err != nil:
		return nil, fmt.Errorf("describe topic %s: %w", name, err)
	}
	return &resp.Topics[0], nil
}

func (a *Admin) awaitTopic(ctx context.Context, name string) (t *kmsg.MetadataResponseTopic, err error) {
	err = a.everywhere(ctx, "topic "+name, func(ctx context.Context, b *kgo.Broker) (bool, error) {
		d, err := describe(ctx, b, name)
		t = d
		return d != nil && len(d.Partitions) > 0, err
	})
	return t, err
}

func (a *Admin) growTopic(ctx context.Context, t Topic, have *kmsg.MetadataResponseTopic) error {
	n := len(have.Partitions)
	if n > t.Partitions {
		return fmt.Errorf("%w: topic %s has %d partitions, and they cannot become %d", ErrWish, t.Name, n, t.Partitions)
	}
	for _, p := range have.Partitions {
		if len(p.Replicas) != t.Replication {
			return fmt.Errorf("%w: topic %s has %d replicas a partition, and they cannot become %d", ErrWish, t.Name, len(p.Replicas), t.Replication)
		}
	}
	if n == t.Partitions {
		return nil
	}
	resp, err := a.adm.UpdatePartitions(ctx, t.Partitions, t.Name)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		return fmt.Errorf("grow topic %s to %d partitions: %w", t.Name, t.Partitions, err)
	}
	return nil
}

func (a *Admin) configureTopic(ctx context.Context, t Topic) error {
	rs, err := a.adm.DescribeTopicConfigs(ctx, t.Name)
	if err != nil {
		return fmt.Errorf("describe configs of topic %s: %w", t.Name, err)
	}
	rc, err := rs.On(t.Name, nil)
	if err == nil {
		err = rc.Err
	}
	if err != nil {
		return fmt.Errorf("describe configs of topic %s: %w", t.Name, err)
	}
	var changes []kadm.AlterConfig
	own := map[string]string{}
	for _, c := range rc.Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			own[c.Key] = c.MaybeValue()
		}
	}
	for k, v := range t.Configs {
		if old, ok := own[k]; !ok || old != v {
			changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
		}
	}
	for k := range own {
		if _, ok := t.Configs[k]; !ok {
			changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	as, err := a.adm.AlterTopicConfigs(ctx, changes, t.Name)
	if err == nil {
		var one kadm.AlterConfigsResponse
		if one, err = as.On(t.Name, nil); err == nil && one.Err != nil {
			err = one.Err
			if one.ErrMessage != "" {
				err = fmt.Errorf("%w: %s", one.Err, one.ErrMessage)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("alter configs of topic %s: %w", t.Name, err)
	}
	return nil
}

// DeleteTopic deletes the topic and returns when no broker knows it any more. A
// topic that is not there is success.
func (a *Admin) DeleteTopic(ctx context.Context, name string) error {
	_, err := a.adm.DeleteTopic(ctx, name)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	return a.everywhere(ctx, "deletion of topic "+name, func(ctx context.Context, b *kgo.Broker) (bool, error) {
		d, err := describe(ctx, b, name)
		return d == nil, err
	})
}
