package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

// Revocation is what brokers have to refuse: tokens with that name in them that were
// issued before a time.
type Revocation struct {
	Name      string // User:<service account>, Credential:<secret>
	NotBefore time.Time
	Applied   // of Applied a revocation has no wish to delete; see Over
}

// revocationMargin is added to the time of the revocation. Who is named gets no more
// tokens, so this costs nobody anything, and it takes in tokens that are just being
// signed, and clocks of this service's processes that do not agree.
const revocationMargin = time.Minute

// Over says that no token that it means can be alive.
func (r Revocation) Over(now time.Time) bool {
	return now.After(r.NotBefore.Add(tenants.MaxTokenLife + revocationMargin))
}

const revocationColumns = `name, not_before, generation, applied_generation, applied_at, problem`

func scanRevocation(row pgx.CollectableRow) (Revocation, error) {
	var r Revocation
	return r, row.Scan(&r.Name, &r.NotBefore, &r.Generation, &r.AppliedGeneration, &r.AppliedAt, &r.Problem)
}

// RevokeSecret asks the brokers to refuse the tokens that were given for a service
// account's secret, which must be gone in the same transaction, and to cut the
// connections that logged in with one. Tokens of the account's other secret go on: one
// is replaced by the other without a gap. Call LockWritable first.
func RevokeSecret(ctx context.Context, tx pgx.Tx, tenant, clusterID, account, secret string, by By) error {
	if err := revoke(ctx, tx, tenant, clusterID, tenants.Credential(secret)); err != nil {
		return err
	}
	return changed(ctx, tx, tenant, clusterID, "secret.revoke", secret, by, map[string]any{"cluster": clusterID, "service_account": account})
}

func revoke(ctx context.Context, tx pgx.Tx, tenant, clusterID, name string) error {
	_, err := tx.Exec(ctx, `INSERT INTO revocations (tenant_id, cluster_id, name, not_before)
		VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
		ON CONFLICT DO NOTHING`, tenant, clusterID, name, revocationMargin.Seconds())
	if err != nil {
		return fmt.Errorf("revoke %s: %w", name, err)
	}
	return nil
}

// RevocationApplied notes that every broker has it.
func (w *Worker) RevocationApplied(ctx context.Context, c *Claim, name string, generation int64) error {
	return w.note(ctx, c, `UPDATE revocations`+setApplied+`AND name = $3`, name, generation)
}

// RevocationProblem notes why the brokers do not have it.
func (w *Worker) RevocationProblem(ctx context.Context, c *Claim, name string, p Problem) error {
	return w.note(ctx, c, `UPDATE revocations`+setProblem+`AND name = $3`, name, &p)
}

// RevocationGone removes the row of one that is over and that the brokers no longer have.
func (w *Worker) RevocationGone(ctx context.Context, c *Claim, name string) error {
	return w.note(ctx, c, `DELETE FROM revocations WHERE tenant_id = $1 AND cluster_id = $2 AND name = $3`, name)
}
