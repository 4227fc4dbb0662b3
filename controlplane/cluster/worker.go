package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"penstock/controlplane/audit"
)

// Worker is the reconcilers' side. Its pool runs under the role penstock_worker.
type Worker struct {
	pool   *pgxpool.Pool
	holder string
	lease  time.Duration
}

// NewWorker makes the reconcilers' side. holder names this process in rows and
// audit ("control@host:pid"); lease is how long a claim holds without Renew,
// at least a second.
func NewWorker(pool *pgxpool.Pool, holder string, lease time.Duration) *Worker {
	return &Worker{pool: pool, holder: holder, lease: max(lease, time.Second)}
}

// Claim is the right to work on one cluster until its lease ends. The embedded
// Cluster is as of the claim; Worker's methods keep State current in it.
type Claim struct {
	Cluster
	Term    int64
	wakeSeq int64
}

const clusterColumns = `c.tenant_id, c.id, c.name, c.brokers, c.config, c.state, c.generation, c.observed_generation,
	c.bootstrap, c.internal_bootstrap, c.zookeeper_connect, c.sealed_credentials, c.problem, c.next_reconcile_at,
	c.attempts, c.deletion_requested_at, c.created_at, c.updated_at`

func (c *Cluster) fields() []any {
	return []any{&c.TenantID, &c.ID, &c.Name, &c.Brokers, &c.Config, &c.State, &c.Generation, &c.ObservedGeneration,
		&c.Bootstrap, &c.InternalBootstrap, &c.ZooKeeperConnect, &c.SealedCredentials, &c.Problem, &c.NextReconcileAt,
		&c.Attempts, &c.DeletionRequestedAt, &c.CreatedAt, &c.UpdatedAt}
}

// Claim takes at most limit clusters that are due and that nobody holds, most
// overdue first. Failed clusters are due only when someone asks for a new try
// or their deletion.
func (w *Worker) Claim(ctx context.Context, limit int) ([]*Claim, error) {
	rows, err := w.pool.Query(ctx, `
		WITH due AS (
			SELECT tenant_id, id FROM clusters
			WHERE state NOT IN ('deleted', 'failed') AND next_reconcile_at <= now()
			  AND (lease_until IS NULL OR lease_until <= now())
			ORDER BY next_reconcile_at LIMIT $1 FOR UPDATE SKIP LOCKED)
		UPDATE clusters c SET lease_holder = $2, lease_term = c.lease_term + 1,
			lease_until = now() + make_interval(secs => $3)
		FROM due WHERE c.tenant_id = due.tenant_id AND c.id = due.id
		RETURNING `+clusterColumns+`, c.lease_term, c.wake_seq`, limit, w.holder, w.lease.Seconds())
	if err != nil {
		return nil, fmt.Errorf("claim clusters: %w", err)
	}
	claims, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Claim, error) {
		c := new(Claim)
		return c, row.Scan(append(c.fields(), &c.Term, &c.wakeSeq)...)
	})
	if err != nil {
		return nil, fmt.Errorf("claim clusters: %w", err)
	}
	return claims, nil
}

// fenced runs fn in a transaction that holds the cluster's row and has checked
// that the claim still stands; any error rolls everything back.
func (w *Worker) fenced(ctx context.Context, c *Claim, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		var one int
		// clock_timestamp: a transaction that waited for the row must not judge by the time it began.
		err := tx.QueryRow(ctx, `SELECT 1 FROM clusters WHERE tenant_id = $1 AND id = $2 AND lease_term = $3
			AND lease_holder = $4 AND lease_until > clock_timestamp() FOR UPDATE`,
			c.TenantID, c.ID, c.Term, w.holder).Scan(&one)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrFenced
		}
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// Check says whether the claim still stands: nil or ErrFenced. Call it before
// a side effect outside Postgres that carries no fence of its own.
func (w *Worker) Check(ctx context.Context, c *Claim) error {
	return w.fenced(ctx, c, func(pgx.Tx) error { return nil })
}

// Renew extends the claim by the lease from now.
func (w *Worker) Renew(ctx context.Context, c *Claim) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE clusters SET lease_until = clock_timestamp() + make_interval(secs => $3)
			WHERE tenant_id = $1 AND id = $2`, c.TenantID, c.ID, w.lease.Seconds())
		return err
	})
}

// Release ends the claim after a run without failure; the cluster is due again
// after the given time, or at once when something below it changed meanwhile.
func (w *Worker) Release(ctx context.Context, c *Claim, after time.Duration) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE clusters SET lease_holder = '', lease_until = NULL, attempts = 0, problem = NULL,
			next_reconcile_at = now() + make_interval(secs => CASE WHEN wake_seq = $3 THEN $4 ELSE 0 END)
			WHERE tenant_id = $1 AND id = $2`, c.TenantID, c.ID, c.wakeSeq, after.Seconds())
		return err
	})
}

// Fail ends the claim after a failure: attempts grows, the problem shows in
// the cluster's status, and the next try is after the given time.
func (w *Worker) Fail(ctx context.Context, c *Claim, p Problem, after time.Duration) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE clusters SET lease_holder = '', lease_until = NULL, attempts = attempts + 1,
			problem = $3, next_reconcile_at = now() + make_interval(secs => $4), updated_at = now()
			WHERE tenant_id = $1 AND id = $2`, c.TenantID, c.ID, &p, after.Seconds())
		return err
	})
}

// Move brings the cluster into another state, with its audit row and event,
// and ends the operations that waited for it: ready ends cluster.create well,
// failed ends it badly with problem, deleted ends cluster.delete. It fails with
// ErrMove when the move is not allowed, with ErrStale when the API changed the
// state meanwhile (a deletion): then release the claim.
func (w *Worker) Move(ctx context.Context, c *Claim, to State, problem *Problem) error {
	if !CanMove(c.State, to) {
		return fmt.Errorf("%w: from %s to %s", ErrMove, c.State, to)
	}
	err := w.fenced(ctx, c, func(tx pgx.Tx) error {
		// observed_generation: a state the reconciler reached speaks of the wish that it read.
		tag, err := tx.Exec(ctx, `UPDATE clusters SET state = $4, problem = $5, updated_at = now(),
			observed_generation = CASE WHEN $4 IN ('ready', 'deleted') THEN $6 ELSE observed_generation END
			WHERE tenant_id = $1 AND id = $2 AND state = $3`, c.TenantID, c.ID, c.State, to, problem, c.Generation)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrStale
		}
		switch to {
		case Ready:
			err = finishOperation(ctx, tx, c.TenantID, c.ID, OpClusterCreate, nil)
		case Failed:
			err = finishOperation(ctx, tx, c.TenantID, c.ID, OpClusterCreate, problem)
		case Deleted:
			err = clearDeleted(ctx, tx, c.TenantID, c.ID)
		}
		if err != nil {
			return err
		}
		detail := map[string]any{"from": c.State, "to": to}
		return record(ctx, tx, c.TenantID, w.holder, "cluster."+string(to), c.ID, "", detail)
	})
	if err == nil {
		c.State = to
	}
	return err
}

// clearDeleted frees what a deleted cluster held. Its usage stays, and so does
// the row: ids are never used again.
func clearDeleted(ctx context.Context, tx pgx.Tx, tenant, id string) error {
	for _, q := range []string{
		`UPDATE cluster_brokers SET state = 'removed', desired = 'removed', updated_at = now() WHERE tenant_id = $1 AND cluster_id = $2`,
		`DELETE FROM revocations WHERE tenant_id = $1 AND cluster_id = $2`,
		`DELETE FROM acls WHERE tenant_id = $1 AND cluster_id = $2`,
		`DELETE FROM quotas WHERE tenant_id = $1 AND cluster_id = $2`,
		`DELETE FROM topics WHERE tenant_id = $1 AND cluster_id = $2`,
		`DELETE FROM secrets WHERE tenant_id = $1 AND service_account_id IN
			(SELECT id FROM service_accounts WHERE tenant_id = $1 AND cluster_id = $2)`,
		`DELETE FROM service_accounts WHERE tenant_id = $1 AND cluster_id = $2`,
		`UPDATE clusters SET sealed_credentials = NULL, bootstrap = '', internal_bootstrap = '' WHERE tenant_id = $1 AND id = $2`,
	} {
		if _, err := tx.Exec(ctx, q, tenant, id); err != nil {
			return err
		}
	}
	return finishOperation(ctx, tx, tenant, id, OpClusterDelete, nil)
}

// Step shows how far the open operation of the cluster is; percent is 0 to 100.
func (w *Worker) Step(ctx context.Context, c *Claim, step string, percent int) error {
	return w.fenced(ctx, c, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `UPDATE operations SET state = 'running', step = $3, percent = $4,
			started_at = coalesce(started_at, now())
			WHERE tenant_id = $1 AND cluster_id = $2 AND finished_at IS NULL AND (step, percent) <> ($3, $4)`,
			c.TenantID, c.ID, step, percent)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return Hint(ctx, tx, c.ID)
	})
}

// SetEndpoints stores where the cluster is reached; empty strings leave a value as it is.
func (w *Worker) SetEndpoints(ctx context.Context, c *Claim, bootstrap, internal, zookeeper string) error {
	err := w.fenced(ctx, c, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `UPDATE clusters SET bootstrap = coalesce(nullif($3, ''), bootstrap),
			internal_bootstrap = coalesce(nullif($4, ''), internal_bootstrap),
			zookeeper_connect = coalesce(nullif($5, ''), zookeeper_connect), updated_at = now()
			WHERE tenant_id = $1 AND id = $2 RETURNING bootstrap, internal_bootstrap, zookeeper_connect`,
			c.TenantID, c.ID, bootstrap, internal, zookeeper).
			Scan(&c.Bootstrap, &c.InternalBootstrap, &c.ZooKeeperConnect)
	})
	return err
}

// SetCredentials stores the cluster's sealed passwords if it has none, and
// gives back those that stand: a retry after a crash never replaces passwords
// that running brokers already use.
func (w *Worker) SetCredentials(ctx context.Context, c *Claim, sealed []byte) ([]byte, error) {
	err := w.fenced(ctx, c, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `UPDATE clusters SET sealed_credentials = coalesce(sealed_credentials, $3)
			WHERE tenant_id = $1 AND id = $2 RETURNING sealed_credentials`, c.TenantID, c.ID, sealed).
			Scan(&c.SealedCredentials)
	})
	return c.SealedCredentials, err
}

// Get reads one cluster of any tenant.
func (w *Worker) Get(ctx context.Context, id string) (*Cluster, error) {
	c := new(Cluster)
	err := w.pool.QueryRow(ctx, `SELECT `+clusterColumns+` FROM clusters c WHERE id = $1`, id).Scan(c.fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	return c, err
}

// Serving lists the clusters whose brokers should be up (ready, updating), of
// every tenant, by id: what the usage reader follows.
func (w *Worker) Serving(ctx context.Context) ([]Cluster, error) {
	rows, err := w.pool.Query(ctx, `SELECT `+clusterColumns+` FROM clusters c
		WHERE state IN ('ready', 'updating') ORDER BY id`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanCluster)
}

func scanCluster(row pgx.CollectableRow) (Cluster, error) {
	var c Cluster
	return c, row.Scan(c.fields()...)
}

// record writes the audit row, the event and the hint that belong to a change.
func record(ctx context.Context, tx pgx.Tx, tenant, actor, action, subject, requestID string, detail map[string]any) error {
	err := audit.Append(ctx, tx, audit.Entry{TenantID: tenant, Actor: actor, Action: action, Resource: subject,
		RequestID: requestID, Detail: detail})
	if err != nil {
		return err
	}
	if err := audit.Event(ctx, tx, tenant, action, subject, detail); err != nil {
		return err
	}
	return Hint(ctx, tx, subject)
}

// isConflict says whether err is a unique violation.
func isConflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505"
}
