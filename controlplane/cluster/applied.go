package cluster

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Desired reads all that is wanted inside a cluster, as of one snapshot.
func (w *Worker) Desired(ctx context.Context, c *Cluster) (Desired, error) {
	var d Desired
	err := pgx.BeginTxFunc(ctx, w.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		var err error
		if d.Topics, err = query(ctx, tx, scanTopic, `SELECT `+topicColumns+` FROM topics
			WHERE tenant_id = $1 AND cluster_id = $2 ORDER BY name`, c.TenantID, c.ID); err != nil {
			return err
		}
		if d.Quotas, err = query(ctx, tx, scanQuota, `SELECT `+quotaColumns+` FROM quotas
			WHERE tenant_id = $1 AND cluster_id = $2 ORDER BY service_account_id`, c.TenantID, c.ID); err != nil {
			return err
		}
		if d.ACLs, err = query(ctx, tx, scanACL, `SELECT `+aclColumns+` FROM acls
			WHERE tenant_id = $1 AND cluster_id = $2 ORDER BY id`, c.TenantID, c.ID); err != nil {
			return err
		}
		if d.Revocations, err = query(ctx, tx, scanRevocation, `SELECT `+revocationColumns+` FROM revocations
			WHERE tenant_id = $1 AND cluster_id = $2 ORDER BY not_before`, c.TenantID, c.ID); err != nil {
			return err
		}
		d.GoneAccounts, err = query(ctx, tx, pgx.RowTo[string], `SELECT id FROM service_accounts
			WHERE tenant_id = $1 AND cluster_id = $2 AND deletion_requested_at IS NOT NULL ORDER BY id`, c.TenantID, c.ID)
		return err
	})
	return d, err
}

func query[T any](ctx context.Context, tx pgx.Tx, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// note runs one fenced statement about one object and wakes those who wait for it.
func (w *Worker) note(ctx context.Context, c *Claim, sql string, args ...any) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sql, append([]any{c.TenantID, c.ID}, args...)...); err != nil {
			return err
		}
		return Hint(ctx, tx, c.ID)
	})
}

const (
	setApplied = ` SET applied_generation = greatest(applied_generation, $4), applied_at = now(), problem = NULL
		WHERE tenant_id = $1 AND cluster_id = $2 `
	setProblem = ` SET problem = $4 WHERE tenant_id = $1 AND cluster_id = $2 `
	// A row goes only if its deletion is still wanted.
	gone = ` WHERE tenant_id = $1 AND cluster_id = $2 AND deletion_requested_at IS NOT NULL `
)

// TopicApplied notes that the brokers have the topic at this generation.
// kafkaID may be empty when it is not known.
func (w *Worker) TopicApplied(ctx context.Context, c *Claim, id string, generation int64, kafkaID string) error {
	return w.note(ctx, c, `UPDATE topics SET applied_generation = greatest(applied_generation, $4), applied_at = now(),
		problem = NULL, kafka_topic_id = coalesce(nullif($5, ''), kafka_topic_id)
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3`, id, generation, kafkaID)
}

// TopicProblem notes why the topic could not be brought to its wish.
func (w *Worker) TopicProblem(ctx context.Context, c *Claim, id string, p Problem) error {
	return w.note(ctx, c, `UPDATE topics`+setProblem+`AND id = $3`, id, &p)
}

// TopicGone removes the row of a topic that the brokers no longer have and
// whose deletion was asked for.
func (w *Worker) TopicGone(ctx context.Context, c *Claim, id string) error {
	return w.note(ctx, c, `DELETE FROM topics`+gone+`AND id = $3`, id)
}

// QuotaApplied notes that every broker enforces the quota at this generation.
func (w *Worker) QuotaApplied(ctx context.Context, c *Claim, serviceAccount string, generation int64) error {
	return w.note(ctx, c, `UPDATE quotas`+setApplied+`AND service_account_id = $3`, serviceAccount, generation)
}

// QuotaProblem notes why the quota could not be set.
func (w *Worker) QuotaProblem(ctx context.Context, c *Claim, serviceAccount string, p Problem) error {
	return w.note(ctx, c, `UPDATE quotas`+setProblem+`AND service_account_id = $3`, serviceAccount, &p)
}

// QuotaGone removes the row of a quota that the brokers no longer have.
func (w *Worker) QuotaGone(ctx context.Context, c *Claim, serviceAccount string) error {
	return w.note(ctx, c, `DELETE FROM quotas`+gone+`AND service_account_id = $3`, serviceAccount)
}

// ACLApplied notes that every broker enforces the rule.
func (w *Worker) ACLApplied(ctx context.Context, c *Claim, id string, generation int64) error {
	return w.note(ctx, c, `UPDATE acls`+setApplied+`AND id = $3`, id, generation)
}

// ACLProblem notes why the rule could not be set.
func (w *Worker) ACLProblem(ctx context.Context, c *Claim, id string, p Problem) error {
	return w.note(ctx, c, `UPDATE acls`+setProblem+`AND id = $3`, id, &p)
}

// ACLGone removes the row of a rule that the brokers no longer have.
func (w *Worker) ACLGone(ctx context.Context, c *Claim, id string) error {
	return w.note(ctx, c, `DELETE FROM acls`+gone+`AND id = $3`, id)
}

// AccountGone removes the row of a service account whose deletion was asked
// for and whose quota and rules the brokers no longer have; while one of them
// is left it does nothing.
func (w *Worker) AccountGone(ctx context.Context, c *Claim, id string) error {
	return w.note(ctx, c, `DELETE FROM service_accounts s`+gone+`AND id = $3
		AND NOT EXISTS (SELECT FROM quotas q WHERE q.tenant_id = $1 AND q.cluster_id = $2 AND q.service_account_id = $3)
		AND NOT EXISTS (SELECT FROM acls a WHERE a.tenant_id = $1 AND a.cluster_id = $2 AND a.service_account_id = $3)`, id)
}
