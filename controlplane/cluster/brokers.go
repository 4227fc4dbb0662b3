package cluster

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const brokerColumns = `broker_id, host, client_port, internal_port, desired, state, status, generation, updated_at`

func scanBroker(row pgx.CollectableRow) (Broker, error) {
	var b Broker
	return b, row.Scan(&b.ID, &b.Host, &b.ClientPort, &b.InternalPort, &b.Desired, &b.State, &b.Status, &b.Generation, &b.UpdatedAt)
}

// Brokers lists the cluster's brokers by id, removed ones too.
func (w *Worker) Brokers(ctx context.Context, c *Cluster) ([]Broker, error) {
	rows, err := w.pool.Query(ctx, `SELECT `+brokerColumns+` FROM cluster_brokers
		WHERE tenant_id = $1 AND cluster_id = $2 ORDER BY broker_id`, c.TenantID, c.ID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanBroker)
}

// PlanBrokers stores brokers that do not have a row yet; an existing row keeps
// its ports, so that a retry changes nothing. ErrConflict: a port on that host
// belongs to another broker, choose others.
func (w *Worker) PlanBrokers(ctx context.Context, c *Claim, plan []Broker) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		for _, b := range plan {
			_, err := tx.Exec(ctx, `INSERT INTO cluster_brokers (tenant_id, cluster_id, broker_id, host, client_port, internal_port)
				VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant_id, cluster_id, broker_id) DO NOTHING`,
				c.TenantID, c.ID, b.ID, b.Host, b.ClientPort, b.InternalPort)
			if isConflict(err) {
				return fmt.Errorf("%w: a port of broker %d is taken", ErrConflict, b.ID)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// SetBroker stores what the engine saw of a broker (State, Status) and its
// ports, which a dev service may have to change; Desired is left alone.
func (w *Worker) SetBroker(ctx context.Context, c *Claim, b Broker) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE cluster_brokers SET state = $4, status = $5, client_port = $6, internal_port = $7,
			updated_at = now() WHERE tenant_id = $1 AND cluster_id = $2 AND broker_id = $3`,
			c.TenantID, c.ID, b.ID, b.State, b.Status, b.ClientPort, b.InternalPort)
		if isConflict(err) {
			return fmt.Errorf("%w: a port of broker %d is taken", ErrConflict, b.ID)
		}
		if err == nil && tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		return err
	})
}

// UsedPorts lists the ports on a host that some broker of any cluster has.
func (w *Worker) UsedPorts(ctx context.Context, host string) ([]int, error) {
	rows, err := w.pool.Query(ctx, `SELECT unnest(ARRAY[client_port, internal_port]) FROM cluster_brokers
		WHERE host = $1 AND state <> 'removed' ORDER BY 1`, host)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// ListBrokers lists a cluster's brokers that are not removed, under the tenant's transaction.
func ListBrokers(ctx context.Context, tx pgx.Tx, tenant, clusterID string) ([]Broker, error) {
	rows, err := tx.Query(ctx, `SELECT `+brokerColumns+` FROM cluster_brokers
		WHERE tenant_id = $1 AND cluster_id = $2 AND state <> 'removed' ORDER BY broker_id`, tenant, clusterID)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanBroker)
}
