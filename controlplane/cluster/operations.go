package cluster

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

const operationColumns = `id, kind, cluster_id, state, step, percent, problem, created_at, started_at, finished_at`

func scanOperation(row pgx.CollectableRow) (Operation, error) {
	var o Operation
	return o, row.Scan(&o.ID, &o.Kind, &o.ClusterID, &o.State, &o.Step, &o.Percent, &o.Problem, &o.CreatedAt, &o.StartedAt, &o.FinishedAt)
}

func oneOperation(ctx context.Context, tx pgx.Tx, sql string, args ...any) (*Operation, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	o, err := pgx.CollectExactlyOneRow(rows, scanOperation)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return &o, err
}

func newOperation(ctx context.Context, tx pgx.Tx, tenant, clusterID, kind string) (*Operation, error) {
	return oneOperation(ctx, tx, `INSERT INTO operations (tenant_id, id, kind, cluster_id) VALUES ($1, $2, $3, $4)
		RETURNING `+operationColumns, tenant, tenants.NewID(tenants.PrefixOperation), kind, clusterID)
}

func openOperation(ctx context.Context, tx pgx.Tx, tenant, clusterID, kind string) (*Operation, error) {
	return oneOperation(ctx, tx, `SELECT `+operationColumns+` FROM operations
		WHERE tenant_id = $1 AND cluster_id = $2 AND kind = $3 AND finished_at IS NULL ORDER BY id DESC LIMIT 1`, tenant, clusterID, kind)
}

// finishOperation ends the open operations of a kind; problem nil means well.
func finishOperation(ctx context.Context, tx pgx.Tx, tenant, clusterID, kind string, problem *Problem) error {
	_, err := tx.Exec(ctx, `UPDATE operations SET state = CASE WHEN $4::jsonb IS NULL THEN 'succeeded' ELSE 'failed' END,
		percent = CASE WHEN $4::jsonb IS NULL THEN 100 ELSE percent END,
		problem = $4, started_at = coalesce(started_at, now()), finished_at = now()
		WHERE tenant_id = $1 AND cluster_id = $2 AND kind = $3 AND finished_at IS NULL`, tenant, clusterID, kind, problem)
	return err
}

// GetOperation reads one operation of the tenant.
func GetOperation(ctx context.Context, tx pgx.Tx, tenant, id string) (*Operation, error) {
	return oneOperation(ctx, tx, `SELECT `+operationColumns+` FROM operations WHERE tenant_id = $1 AND id = $2`, tenant, id)
}

// ListOperations lists the tenant's operations, newest first; Page.After is
// the oldest id already seen.
func ListOperations(ctx context.Context, tx pgx.Tx, tenant string, p Page) ([]Operation, error) {
	return query(ctx, tx, scanOperation, `SELECT `+operationColumns+` FROM operations
		WHERE tenant_id = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, tenant, p.After, p.Limit)
}
