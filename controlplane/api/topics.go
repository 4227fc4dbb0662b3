package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

// topicConfigs are Kafka's topic settings. Their values are the brokers' to
// judge: a refused one shows as the topic's problem.
var topicConfigs = []string{
	"cleanup.policy", "compression.type", "delete.retention.ms", "file.delete.delay.ms", "flush.messages", "flush.ms",
	"index.interval.bytes", "max.compaction.lag.ms", "max.message.bytes", "message.timestamp.after.max.ms",
	"message.timestamp.before.max.ms", "message.timestamp.type", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
	"min.insync.replicas", "preallocate", "retention.bytes", "retention.ms", "segment.bytes", "segment.index.bytes",
	"segment.jitter.ms", "segment.ms", "unclean.leader.election.enable",
}

func wireStatus(s cluster.Applied) wire.Status {
	return wire.Status{Applied: s.Enforced(), Generation: s.Generation, AppliedGeneration: s.AppliedGeneration,
		AppliedAt: s.AppliedAt, Deleting: s.DeletionRequestedAt != nil, Problem: wireProblem(s.Problem)}
}

// settled says whether a wait for a wish is over: it is enforced, or only
// another wish can help.
func settled(s wire.Status) bool {
	return s.Applied || s.Problem != nil && !s.Problem.Retryable
}

func wireTopic(t cluster.Topic) wire.Topic {
	return wire.Topic{ID: t.ID, Name: t.Name, Partitions: t.Partitions, ReplicationFactor: t.ReplicationFactor,
		Configs: t.Configs, Status: wireStatus(t.Applied), CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt}
}

type TopicPath struct {
	ClusterPath
	Topic string `path:"topic" maxLength:"249"`
}

// checkConfigs refuses unknown names, values that are no line, and retention
// beyond the plan's.
func checkConfigs(configs map[string]string, replicas int, limits tenants.Limits) error {
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		value := configs[name]
		if !slices.Contains(topicConfigs, name) {
			return invalid("body.configs."+name, "not a topic setting")
		}
		if err := oneLine(value); err != nil {
			return invalid("body.configs."+name, err.Error())
		}
		n, err := strconv.ParseInt(value, 10, 64)
		switch name {
		case "retention.bytes":
			if err == nil && (n < 0 || n > limits.RetentionBytesPerPartition) {
				return fmt.Errorf("%w: retention.bytes of a partition: %d allowed", tenants.ErrLimit, limits.RetentionBytesPerPartition)
			}
		case "min.insync.replicas":
			if err == nil && n > int64(replicas) {
				return invalid("body.configs."+name, fmt.Sprintf("more than the topic's %d replicas: nothing could be written with acks=all", replicas))
			}
		}
	}
	return nil
}

func (a *API) registerTopics() {
	register(a, tenantWrites, huma.Operation{OperationID: "create-topic", Method: http.MethodPost, Path: "/v1/clusters/{cluster}/topics", Tags: []string{"topics"}, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Idempotency
			Waiting
			Body wire.CreateTopic
		}) (*output[wire.Topic], error) {
			if err := tenants.CheckTenantTopicName(in.Body.Name); err != nil {
				return nil, invalid("body.name", err.Error())
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.Topic, error) {
				return a.createTopic(ctx, tx, c, in.Cluster, in.Body)
			})
			if err != nil {
				return nil, err
			}
			return a.topicAnswer(ctx, c, http.StatusCreated, in.Cluster, out, in.Waiting)
		})

	register(a, tenantReads, huma.Operation{OperationID: "list-topics", Method: http.MethodGet, Path: "/v1/clusters/{cluster}/topics", Tags: []string{"topics"}},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Paging
		}) (*output[wire.Page[wire.Topic]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var found []cluster.Topic
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.Get(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				found, err = cluster.ListTopics(ctx, tx, c.TenantID, in.Cluster, cluster.Page{After: after, Limit: in.Limit})
				return err
			})
			next := a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].Name })
			return answer(http.StatusOK, wire.Page[wire.Topic]{Items: mapAll(found, wireTopic), Next: next}), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-topic", Method: http.MethodGet, Path: "/v1/clusters/{cluster}/topics/{topic}", Tags: []string{"topics"}},
		func(ctx context.Context, c *caller, in *struct {
			TopicPath
			Waiting
		}) (*output[wire.Topic], error) {
			return a.topicAnswer(ctx, c, http.StatusOK, in.Cluster, wire.Topic{Name: in.Topic}, in.Waiting)
		})

	register(a, tenantWrites, huma.Operation{OperationID: "update-topic", Method: http.MethodPatch, Path: "/v1/clusters/{cluster}/topics/{topic}", Tags: []string{"topics"},
		Description: "A JSON merge patch: configs that are left out stay, null takes one back to its default; partitions may only grow."},
		func(ctx context.Context, c *caller, in *struct {
			TopicPath
			Waiting
			IfMatch string `header:"If-Match" maxLength:"100"`
			Body    wire.UpdateTopic
		}) (*output[wire.Topic], error) {
			gen, err := generation(in.IfMatch)
			if err != nil {
				return nil, err
			}
			var out wire.Topic
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				out, err = a.updateTopic(ctx, tx, c, in.TopicPath, gen, in.Body)
				return err
			})
			if err != nil {
				return nil, err
			}
			return a.topicAnswer(ctx, c, http.StatusOK, in.Cluster, out, in.Waiting)
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-topic", Method: http.MethodDelete, Path: "/v1/clusters/{cluster}/topics/{topic}", Tags: []string{"topics"},
		DefaultStatus: http.StatusAccepted, Description: "Asks that a topic go with its data. 202 while it goes; a wait that sees it gone answers 204."},
		func(ctx context.Context, c *caller, in *struct {
			TopicPath
			Waiting
		}) (*gone, error) {
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				_, err := cluster.DeleteTopic(ctx, tx, c.TenantID, in.Cluster, in.Topic, c.by(ctx))
				return err
			})
			if err != nil {
				return nil, err
			}
			return a.awaitGone(ctx, c, in.Waiting, func(tx pgx.Tx) error {
				_, err := cluster.GetTopic(ctx, tx, c.TenantID, in.Cluster, in.Topic)
				return err
			})
		})
}

func (a *API) createTopic(ctx context.Context, tx pgx.Tx, c *caller, clusterID string, in wire.CreateTopic) (wire.Topic, error) {
	var out wire.Topic
	cl, err := cluster.LockWritable(ctx, tx, c.TenantID, clusterID)
	if err != nil {
		return out, err
	}
	limits, err := registry.Limits(ctx, tx, c.TenantID)
	if err != nil {
		return out, err
	}
	if in.ReplicationFactor == 0 {
		in.ReplicationFactor = min(3, cl.Brokers)
	}
	if in.ReplicationFactor > cl.Brokers {
		return out, invalid("body.replication_factor", fmt.Sprintf("the cluster has %d brokers", cl.Brokers))
	}
	if err := checkConfigs(in.Configs, in.ReplicationFactor, limits); err != nil {
		return out, err
	}
	topics, partitions, err := cluster.TopicTotals(ctx, tx, c.TenantID, clusterID)
	if err != nil {
		return out, err
	}
	if err := tenants.CheckCount("topics of the cluster", topics, 1, limits.TopicsPerCluster); err != nil {
		return out, err
	}
	if err := tenants.CheckCount("partitions of the cluster", partitions, in.Partitions, limits.PartitionsPerCluster); err != nil {
		return out, err
	}
	t, err := cluster.CreateTopic(ctx, tx, c.TenantID, clusterID, cluster.TopicParams{Name: in.Name, Partitions: in.Partitions,
		ReplicationFactor: in.ReplicationFactor, Configs: in.Configs}, c.by(ctx))
	if err != nil {
		return out, err
	}
	return wireTopic(*t), nil
}

func (a *API) updateTopic(ctx context.Context, tx pgx.Tx, c *caller, at TopicPath, gen int64, in wire.UpdateTopic) (wire.Topic, error) {
	var out wire.Topic
	if _, err := cluster.LockWritable(ctx, tx, c.TenantID, at.Cluster); err != nil {
		return out, err
	}
	old, err := cluster.GetTopic(ctx, tx, c.TenantID, at.Cluster, at.Topic)
	if err != nil {
		return out, err
	}
	limits, err := registry.Limits(ctx, tx, c.TenantID)
	if err != nil {
		return out, err
	}
	partitions := old.Partitions
	if in.Partitions != nil {
		partitions = *in.Partitions
		if partitions < old.Partitions {
			return out, invalid("body.partitions", fmt.Sprintf("the topic has %d partitions and cannot shrink", old.Partitions))
		}
		_, have, err := cluster.TopicTotals(ctx, tx, c.TenantID, at.Cluster)
		if err != nil {
			return out, err
		}
		if err := tenants.CheckCount("partitions of the cluster", have, partitions-old.Partitions, limits.PartitionsPerCluster); err != nil {
			return out, err
		}
	}
	configs := maps.Clone(old.Configs)
	for name, value := range in.Configs {
		if value == nil {
			delete(configs, name)
		} else {
			configs[name] = *value
		}
	}
	if err := checkConfigs(configs, old.ReplicationFactor, limits); err != nil {
		return out, err
	}
	t, err := cluster.UpdateTopic(ctx, tx, c.TenantID, at.Cluster, at.Topic, gen, partitions, configs, c.by(ctx))
	if err != nil {
		return out, err
	}
	return wireTopic(*t), nil
}

// topicAnswer reads the topic, waiting as asked, and answers with it.
func (a *API) topicAnswer(ctx context.Context, c *caller, status int, clusterID string, t wire.Topic, w Waiting) (*output[wire.Topic], error) {
	err := a.await(ctx, c, w, func(tx pgx.Tx) (bool, error) {
		now, err := cluster.GetTopic(ctx, tx, c.TenantID, clusterID, t.Name)
		if err != nil {
			return false, err
		}
		t = wireTopic(*now)
		return settled(t.Status), nil
	})
	o := answer(status, t)
	o.ETag = etag(t.Status.Generation)
	if status == http.StatusCreated {
		o.Location = "/v1/clusters/" + clusterID + "/topics/" + t.Name
	}
	return o, err
}

// gone is the answer to a deletion that goes on: 202, or 204 when it is over.
type gone struct{ Status int }

// awaitGone answers 204 when look says that the thing is gone, 202 before.
func (a *API) awaitGone(ctx context.Context, c *caller, w Waiting, look func(tx pgx.Tx) error) (*gone, error) {
	seen := false
	err := a.await(ctx, c, w, func(tx pgx.Tx) (bool, error) {
		err := look(tx)
		if seen = errors.Is(err, cluster.ErrNotFound); seen {
			err = nil
		}
		return seen, err
	})
	if seen {
		return &gone{http.StatusNoContent}, err
	}
	return &gone{http.StatusAccepted}, err
}
