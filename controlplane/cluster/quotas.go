package cluster

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const quotaColumns = `cluster_id, service_account_id, bytes_in_per_second, bytes_out_per_second, request_percentage, created_at, updated_at,
	generation, applied_generation, applied_at, problem, deletion_requested_at`

func scanQuota(row pgx.CollectableRow) (Quota, error) {
	var q Quota
	return q, row.Scan(&q.ClusterID, &q.ServiceAccountID, &q.BytesInPerSecond, &q.BytesOutPerSecond, &q.RequestPercentage,
		&q.CreatedAt, &q.UpdatedAt, &q.Generation, &q.AppliedGeneration, &q.AppliedAt, &q.Problem, &q.DeletionRequestedAt)
}

// QuotaParams are the limits of one service account over the whole cluster.
type QuotaParams struct {
	BytesInPerSecond  *int64
	BytesOutPerSecond *int64
	RequestPercentage *float64
}

// PutQuota writes a service account's quota. Call LockWritable first, and
// check that the account is live. generation 0 takes any; else ErrStale unless
// it is the current one. The same limits again keep the generation.
func PutQuota(ctx context.Context, tx pgx.Tx, tenant, clusterID, account string, generation int64, p QuotaParams, by By) (*Quota, error) {
	if generation != 0 {
		old, err := GetQuota(ctx, tx, tenant, clusterID, account)
		if err != nil {
			return nil, err
		}
		if old.Generation != generation {
			return nil, ErrStale
		}
	}
	tag, err := tx.Exec(ctx, `INSERT INTO quotas AS q (tenant_id, cluster_id, service_account_id, bytes_in_per_second, bytes_out_per_second, request_percentage)
		VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (tenant_id, cluster_id, service_account_id) DO UPDATE SET bytes_in_per_second = $4, bytes_out_per_second = $5,
			request_percentage = $6, generation = q.generation + 1, deletion_requested_at = NULL, problem = NULL, updated_at = now()
		WHERE (q.bytes_in_per_second, q.bytes_out_per_second, q.request_percentage) IS DISTINCT FROM ($4, $5, $6)
			OR q.deletion_requested_at IS NOT NULL`,
		tenant, clusterID, account, p.BytesInPerSecond, p.BytesOutPerSecond, p.RequestPercentage)
	if err != nil {
		return nil, fmt.Errorf("put quota: %w", err)
	}
	if tag.RowsAffected() > 0 {
		if err := changed(ctx, tx, tenant, clusterID, "quota.put", account, by, map[string]any{"cluster": clusterID,
			"bytes_in_per_second": p.BytesInPerSecond, "bytes_out_per_second": p.BytesOutPerSecond, "request_percentage": p.RequestPercentage}); err != nil {
			return nil, err
		}
	}
	return GetQuota(ctx, tx, tenant, clusterID, account)
}

// GetQuota reads a service account's quota.
func GetQuota(ctx context.Context, tx pgx.Tx, tenant, clusterID, account string) (*Quota, error) {
	qs, err := query(ctx, tx, scanQuota, `SELECT `+quotaColumns+` FROM quotas
		WHERE tenant_id = $1 AND cluster_id = $2 AND service_account_id = $3`, tenant, clusterID, account)
	if err == nil && len(qs) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &qs[0], nil
}

// DeleteQuota asks that a service account be without a quota.
func DeleteQuota(ctx context.Context, tx pgx.Tx, tenant, clusterID, account string, by By) error {
	q, err := GetQuota(ctx, tx, tenant, clusterID, account)
	if err != nil || q.DeletionRequestedAt != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE quotas SET deletion_requested_at = now(), generation = generation + 1, updated_at = now()
		WHERE tenant_id = $1 AND cluster_id = $2 AND service_account_id = $3`, tenant, clusterID, account); err != nil {
		return err
	}
	return changed(ctx, tx, tenant, clusterID, "quota.delete", account, by, map[string]any{"cluster": clusterID})
}
