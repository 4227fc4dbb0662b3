package cluster

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

const aclColumns = `cluster_id, id, service_account_id, host, resource_type, resource_name, pattern_type, operation, permission, created_at,
	generation, applied_generation, applied_at, problem, deletion_requested_at`

func scanACL(row pgx.CollectableRow) (ACL, error) {
	var a ACL
	return a, row.Scan(&a.ClusterID, &a.ID, &a.ServiceAccountID, &a.Host, &a.ResourceType, &a.ResourceName, &a.PatternType,
		&a.Operation, &a.Permission, &a.CreatedAt, &a.Generation, &a.AppliedGeneration, &a.AppliedAt, &a.Problem, &a.DeletionRequestedAt)
}

// MaxACLs bounds the access rules of one cluster.
const MaxACLs = 10_000

// CountACLs counts a cluster's rules, those being deleted too.
func CountACLs(ctx context.Context, tx pgx.Tx, tenant, clusterID string) (int, error) {
	var n int
	err := tx.QueryRow(ctx, `SELECT count(*) FROM acls WHERE tenant_id = $1 AND cluster_id = $2`, tenant, clusterID).Scan(&n)
	return n, err
}

// CreateACL writes a desired rule: of a the names, not id nor Applied. Call
// LockWritable first. ErrConflict: the same rule is there.
func CreateACL(ctx context.Context, tx pgx.Tx, tenant, clusterID string, a ACL, by By) (*ACL, error) {
	id := tenants.NewID(tenants.PrefixACL)
	_, err := tx.Exec(ctx, `INSERT INTO acls (tenant_id, cluster_id, id, service_account_id, host, resource_type, resource_name,
			pattern_type, operation, permission) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		tenant, clusterID, id, a.ServiceAccountID, a.Host, a.ResourceType, a.ResourceName, a.PatternType, a.Operation, a.Permission)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: the same access rule", ErrConflict)
	}
	if err != nil {
		return nil, fmt.Errorf("create acl: %w", err)
	}
	if err := changed(ctx, tx, tenant, clusterID, "acl.create", id, by, map[string]any{"cluster": clusterID,
		"service_account": a.ServiceAccountID, "resource_type": a.ResourceType, "resource_name": a.ResourceName,
		"pattern_type": a.PatternType, "operation": a.Operation, "permission": a.Permission, "host": a.Host}); err != nil {
		return nil, err
	}
	return GetACL(ctx, tx, tenant, clusterID, id)
}

// GetACL reads one rule.
func GetACL(ctx context.Context, tx pgx.Tx, tenant, clusterID, id string) (*ACL, error) {
	as, err := query(ctx, tx, scanACL, `SELECT `+aclColumns+` FROM acls
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3`, tenant, clusterID, id)
	if err == nil && len(as) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &as[0], nil
}

// ListACLs lists a cluster's rules by id, of one service account or of all ("").
func ListACLs(ctx context.Context, tx pgx.Tx, tenant, clusterID, account string, p Page) ([]ACL, error) {
	return query(ctx, tx, scanACL, `SELECT `+aclColumns+` FROM acls WHERE tenant_id = $1 AND cluster_id = $2
		AND ($3 = '' OR service_account_id = $3) AND id > $4 ORDER BY id LIMIT $5`, tenant, clusterID, account, p.After, p.Limit)
}

// DeleteACL asks that a rule go; asked again, it changes nothing.
func DeleteACL(ctx context.Context, tx pgx.Tx, tenant, clusterID, id string, by By) error {
	a, err := GetACL(ctx, tx, tenant, clusterID, id)
	if err != nil || a.DeletionRequestedAt != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE acls SET deletion_requested_at = now(), generation = generation + 1
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3`, tenant, clusterID, id); err != nil {
		return err
	}
	return changed(ctx, tx, tenant, clusterID, "acl.delete", id, by, map[string]any{"cluster": clusterID})
}

// DeleteAccountObjects asks that the quota and rules of a service account go,
// as part of its deletion, and that its tokens count no more, and wakes the cluster.
func DeleteAccountObjects(ctx context.Context, tx pgx.Tx, tenant, clusterID, account string, by By) error {
	for _, table := range []string{"quotas", "acls"} {
		if _, err := tx.Exec(ctx, `UPDATE `+table+` SET deletion_requested_at = now(), generation = generation + 1
			WHERE tenant_id = $1 AND cluster_id = $2 AND service_account_id = $3 AND deletion_requested_at IS NULL`, tenant, clusterID, account); err != nil {
			return err
		}
	}
	if err := revoke(ctx, tx, tenant, clusterID, tenants.Principal(account)); err != nil {
		return err
	}
	return changed(ctx, tx, tenant, clusterID, "service_account.delete", account, by, map[string]any{"cluster": clusterID})
}
