package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

const topicColumns = `cluster_id, id, name, partitions, replication_factor, configs, kafka_topic_id, created_at, updated_at,
	generation, applied_generation, applied_at, problem, deletion_requested_at`

func scanTopic(row pgx.CollectableRow) (Topic, error) {
	var t Topic
	return t, row.Scan(&t.ClusterID, &t.ID, &t.Name, &t.Partitions, &t.ReplicationFactor, &t.Configs, &t.KafkaTopicID,
		&t.CreatedAt, &t.UpdatedAt, &t.Generation, &t.AppliedGeneration, &t.AppliedAt, &t.Problem, &t.DeletionRequestedAt)
}

// TopicParams is what a new topic starts from; the caller has checked it.
type TopicParams struct {
	Name              string
	Partitions        int
	ReplicationFactor int
	Configs           map[string]string
}

// TopicTotals counts topics and partitions of a cluster, those being deleted too.
func TopicTotals(ctx context.Context, tx pgx.Tx, tenant, clusterID string) (topics, partitions int, err error) {
	err = tx.QueryRow(ctx, `SELECT count(*), coalesce(sum(partitions), 0) FROM topics
		WHERE tenant_id = $1 AND cluster_id = $2`, tenant, clusterID).Scan(&topics, &partitions)
	return topics, partitions, err
}

// CreateTopic writes a desired topic. Call LockWritable first. ErrConflict: a
// topic has the name, or one that Kafka's metrics could not tell from it.
func CreateTopic(ctx context.Context, tx pgx.Tx, tenant, clusterID string, p TopicParams, by By) (*Topic, error) {
	var other string
	err := tx.QueryRow(ctx, `SELECT name FROM topics WHERE tenant_id = $1 AND cluster_id = $2
		AND replace(name, '.', '_') = replace($3, '.', '_') LIMIT 1`, tenant, clusterID, p.Name).Scan(&other)
	if err == nil {
		return nil, fmt.Errorf("%w: a topic named %q", ErrConflict, other)
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return nil, err
	}
	if p.Configs == nil {
		p.Configs = map[string]string{}
	}
	id := tenants.NewID(tenants.PrefixTopic)
	if _, err := tx.Exec(ctx, `INSERT INTO topics (tenant_id, cluster_id, id, name, partitions, replication_factor, configs)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, tenant, clusterID, id, p.Name, p.Partitions, p.ReplicationFactor, p.Configs); err != nil {
		return nil, fmt.Errorf("create topic: %w", err)
	}
	if err := changed(ctx, tx, tenant, clusterID, "topic.create", id, by, map[string]any{"cluster": clusterID,
		"name": p.Name, "partitions": p.Partitions, "replication_factor": p.ReplicationFactor, "configs": p.Configs}); err != nil {
		return nil, err
	}
	return GetTopic(ctx, tx, tenant, clusterID, p.Name)
}

// GetTopic reads a topic by name.
func GetTopic(ctx context.Context, tx pgx.Tx, tenant, clusterID, name string) (*Topic, error) {
	ts, err := query(ctx, tx, scanTopic, `SELECT `+topicColumns+` FROM topics
		WHERE tenant_id = $1 AND cluster_id = $2 AND name = $3`, tenant, clusterID, name)
	if err == nil && len(ts) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &ts[0], nil
}

// ListTopics lists the topics of a cluster by name; Page.After is a name.
func ListTopics(ctx context.Context, tx pgx.Tx, tenant, clusterID string, p Page) ([]Topic, error) {
	return query(ctx, tx, scanTopic, `SELECT `+topicColumns+` FROM topics
		WHERE tenant_id = $1 AND cluster_id = $2 AND name > $3 COLLATE "C" ORDER BY name COLLATE "C" LIMIT $4`, tenant, clusterID, p.After, p.Limit)
}

// UpdateTopic writes what may change of a topic: its configs and a greater
// number of partitions. generation 0 takes any; else ErrStale unless it is the
// current one. A change that changes nothing keeps the generation.
func UpdateTopic(ctx context.Context, tx pgx.Tx, tenant, clusterID, name string, generation int64, partitions int, configs map[string]string, by By) (*Topic, error) {
	t, err := GetTopic(ctx, tx, tenant, clusterID, name)
	if err != nil {
		return nil, err
	}
	if t.DeletionRequestedAt != nil {
		return nil, fmt.Errorf("%w: the topic is being deleted", ErrMove)
	}
	if generation != 0 && generation != t.Generation {
		return nil, ErrStale
	}
	tag, err := tx.Exec(ctx, `UPDATE topics SET partitions = $4, configs = $5, generation = generation + 1, updated_at = now(), problem = NULL
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3 AND (partitions <> $4 OR configs <> $5::jsonb)`,
		tenant, clusterID, t.ID, partitions, configs)
	if err != nil || tag.RowsAffected() == 0 {
		return t, err
	}
	if err := changed(ctx, tx, tenant, clusterID, "topic.update", t.ID, by, map[string]any{"cluster": clusterID,
		"name": name, "partitions": partitions, "configs": configs}); err != nil {
		return nil, err
	}
	return GetTopic(ctx, tx, tenant, clusterID, name)
}

// DeleteTopic asks for a topic's deletion; asked again, it changes nothing.
func DeleteTopic(ctx context.Context, tx pgx.Tx, tenant, clusterID, name string, by By) (*Topic, error) {
	t, err := GetTopic(ctx, tx, tenant, clusterID, name)
	if err != nil || t.DeletionRequestedAt != nil {
		return t, err
	}
	if _, err := tx.Exec(ctx, `UPDATE topics SET deletion_requested_at = now(), generation = generation + 1, updated_at = now()
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3`, tenant, clusterID, t.ID); err != nil {
		return nil, err
	}
	if err := changed(ctx, tx, tenant, clusterID, "topic.delete", t.ID, by, map[string]any{"cluster": clusterID, "name": name}); err != nil {
		return nil, err
	}
	return GetTopic(ctx, tx, tenant, clusterID, name)
}

// changed wakes the cluster and records a change of something inside it.
func changed(ctx context.Context, tx pgx.Tx, tenant, clusterID, action, subject string, by By, detail map[string]any) error {
	if err := wake(ctx, tx, tenant, clusterID); err != nil {
		return err
	}
	return record(ctx, tx, tenant, by.Actor, action, subject, by.RequestID, detail)
}
