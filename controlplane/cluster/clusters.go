package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

// By names who does something, for the audit row.
type By struct {
	Actor     string
	RequestID string
}

// Page asks for a part of a list: at most Limit rows after the id After.
type Page struct {
	After string
	Limit int
}

// CreateParams is what a new cluster starts from.
type CreateParams struct {
	Name    string
	Brokers int
	Config  map[string]string
}

// Create writes a new cluster and its operation, with audit row and event, in
// the tenant's transaction. ErrConflict: a live cluster has the name.
func Create(ctx context.Context, tx pgx.Tx, tenant string, p CreateParams, by By) (*Cluster, *Operation, error) {
	id := tenants.NewID(tenants.PrefixCluster)
	if p.Config == nil {
		p.Config = map[string]string{}
	}
	_, err := tx.Exec(ctx, `INSERT INTO clusters (tenant_id, id, name, brokers, config) VALUES ($1, $2, $3, $4, $5)`,
		tenant, id, p.Name, p.Brokers, p.Config)
	if isConflict(err) {
		return nil, nil, fmt.Errorf("%w: a cluster named %q", ErrConflict, p.Name)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("create cluster: %w", err)
	}
	op, err := newOperation(ctx, tx, tenant, id, OpClusterCreate)
	if err != nil {
		return nil, nil, err
	}
	if err := record(ctx, tx, tenant, by.Actor, "cluster.create", id, by.RequestID,
		map[string]any{"name": p.Name, "brokers": p.Brokers, "config": p.Config}); err != nil {
		return nil, nil, err
	}
	c, err := Get(ctx, tx, tenant, id)
	return c, op, err
}

// Get reads one cluster of the tenant, deleted ones too.
func Get(ctx context.Context, tx pgx.Tx, tenant, id string) (*Cluster, error) {
	c := new(Cluster)
	err := tx.QueryRow(ctx, `SELECT `+clusterColumns+` FROM clusters c WHERE tenant_id = $1 AND id = $2`, tenant, id).Scan(c.fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return c, err
}

// List lists the tenant's clusters that are not deleted, by id.
func List(ctx context.Context, tx pgx.Tx, tenant string, p Page) ([]Cluster, error) {
	return query(ctx, tx, scanCluster, `SELECT `+clusterColumns+` FROM clusters c
		WHERE tenant_id = $1 AND state <> 'deleted' AND id > $2 ORDER BY id LIMIT $3`, tenant, p.After, p.Limit)
}

// Count counts what the tenant's plan limits: its clusters, those being
// deleted too, since they still hold ports and disks. The tenant's row is
// locked until the transaction ends, so two creations cannot pass one limit.
func Count(ctx context.Context, tx pgx.Tx, tenant string) (int, error) {
	if err := lockTenant(ctx, tx, tenant); err != nil {
		return 0, err
	}
	var n int
	err := tx.QueryRow(ctx, `SELECT count(*) FROM clusters WHERE tenant_id = $1 AND state <> 'deleted'`, tenant).Scan(&n)
	return n, err
}

// lockTenant serialises creations of one tenant. An advisory lock, since the
// role may read the tenant's row but not lock it.
func lockTenant(ctx context.Context, tx pgx.Tx, tenant string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('tenant-limits:' || $1, 0))`, tenant)
	return err
}

// RequestDelete asks for the deletion of a cluster and gives the operation
// that ends with it; asked again, it gives the same operation.
func RequestDelete(ctx context.Context, tx pgx.Tx, tenant, id string, by By) (*Operation, error) {
	c, err := lock(ctx, tx, tenant, id)
	if err != nil {
		return nil, err
	}
	if c.State == Deleted {
		return nil, ErrNotFound
	}
	if c.State == Deleting {
		return openOperation(ctx, tx, tenant, id, OpClusterDelete)
	}
	if !CanMove(c.State, Deleting) {
		return nil, fmt.Errorf("%w: it is %s", ErrMove, c.State)
	}
	if _, err := tx.Exec(ctx, `UPDATE clusters SET state = 'deleting', generation = generation + 1,
		deletion_requested_at = now(), updated_at = now(), problem = NULL, attempts = 0 WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return nil, err
	}
	if err := wake(ctx, tx, tenant, id); err != nil {
		return nil, err
	}
	cancelled := &Problem{Type: "urn:penstock:cancelled", Title: "The deletion of the cluster was asked for"}
	if err := finishOperation(ctx, tx, tenant, id, OpClusterCreate, cancelled); err != nil {
		return nil, err
	}
	op, err := newOperation(ctx, tx, tenant, id, OpClusterDelete)
	if err != nil {
		return nil, err
	}
	return op, record(ctx, tx, tenant, by.Actor, "cluster.delete", id, by.RequestID, map[string]any{"name": c.Name})
}

// lock reads the cluster and holds its row until tx ends.
func lock(ctx context.Context, tx pgx.Tx, tenant, id string) (*Cluster, error) {
	c := new(Cluster)
	err := tx.QueryRow(ctx, `SELECT `+clusterColumns+` FROM clusters c WHERE tenant_id = $1 AND id = $2 FOR UPDATE`, tenant, id).Scan(c.fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return c, err
}

// LockWritable is the start of every change inside a cluster: it holds the
// cluster's row until tx ends and refuses (ErrNotFound, ErrMove) when the
// cluster is gone or going.
func LockWritable(ctx context.Context, tx pgx.Tx, tenant, id string) (*Cluster, error) {
	c, err := lock(ctx, tx, tenant, id)
	if err != nil {
		return nil, err
	}
	if c.State == Deleted {
		return nil, ErrNotFound
	}
	if !c.State.Writable() {
		return nil, fmt.Errorf("%w: it is %s", ErrMove, c.State)
	}
	return c, nil
}

// wake makes the cluster due and tells a reconciler that is at work on it that
// what it read is old.
func wake(ctx context.Context, tx pgx.Tx, tenant, id string) error {
	if _, err := tx.Exec(ctx, `UPDATE clusters SET wake_seq = wake_seq + 1, next_reconcile_at = least(next_reconcile_at, now())
		WHERE tenant_id = $1 AND id = $2`, tenant, id); err != nil {
		return err
	}
	return Hint(ctx, tx, id)
}
