package handler

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/dataplane/protocol"
)

// What a request names more than once is answered once. Clients do not do that;
// a hostile one would, since a few bytes that name a wide topic or a group once
// more cost thousands in the reply: a frame of 700 KB took gigabytes.

// distinct keeps the first of those with equal keys; it works in place.
func distinct[T any, K comparable](list []T, key func(*T) K) []T {
	if len(list) < 2 {
		return list
	}
	seen := make(map[K]struct{}, len(list))
	kept := list[:0]
	for i := range list {
		k := key(&list[i])
		if _, twice := seen[k]; !twice {
			seen[k] = struct{}{}
			kept = append(kept, list[i])
		}
	}
	return kept
}

func self[T any](v *T) T { return *v }

type topicKey struct {
	name  string
	named bool
	id    protocol.UUID
}

func distinctTopics(topics []kmsg.MetadataRequestTopic) []kmsg.MetadataRequestTopic {
	return distinct(topics, func(t *kmsg.MetadataRequestTopic) topicKey {
		if t.Topic != nil {
			return topicKey{name: *t.Topic, named: true}
		}
		return topicKey{id: t.TopicID}
	})
}

// distinctResources joins the keys asked for of one resource; null asks for all.
func distinctResources(list []kmsg.DescribeConfigsRequestResource) []kmsg.DescribeConfigsRequestResource {
	type resource struct {
		typ  kmsg.ConfigResourceType
		name string
	}
	at := make(map[resource]int, len(list))
	kept := list[:0]
	for _, r := range list {
		i, twice := at[resource{r.ResourceType, r.ResourceName}]
		switch {
		case !twice:
			at[resource{r.ResourceType, r.ResourceName}] = len(kept)
			kept = append(kept, r)
		case r.ConfigNames == nil || kept[i].ConfigNames == nil:
			kept[i].ConfigNames = nil
		default:
			kept[i].ConfigNames = append(kept[i].ConfigNames, r.ConfigNames...)
		}
	}
	return kept
}

// distinctOffsets joins what is asked of one group, and of one topic in it.
func distinctOffsets(list []kmsg.OffsetFetchRequestGroup) []kmsg.OffsetFetchRequestGroup {
	at := make(map[string]int, len(list))
	kept := list[:0]
	for _, g := range list {
		i, twice := at[g.Group]
		switch {
		case !twice:
			at[g.Group] = len(kept)
			kept = append(kept, g)
		case g.Topics == nil || kept[i].Topics == nil:
			kept[i].Topics = nil // all
		default:
			kept[i].Topics = append(kept[i].Topics, g.Topics...)
		}
	}
	for i := range kept {
		kept[i].Topics = distinctPartitions(kept[i].Topics)
	}
	return kept
}

func distinctPartitions(list []kmsg.OffsetFetchRequestGroupTopic) []kmsg.OffsetFetchRequestGroupTopic {
	at := make(map[string]int, len(list))
	kept := list[:0]
	for _, t := range list {
		if i, twice := at[t.Topic]; twice {
			kept[i].Partitions = append(kept[i].Partitions, t.Partitions...)
			continue
		}
		at[t.Topic] = len(kept)
		kept = append(kept, t)
	}
	for i := range kept {
		kept[i].Partitions = distinct(kept[i].Partitions, self)
	}
	return kept
}
