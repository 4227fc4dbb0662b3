package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"penstock/tenants"
)

// Plan is a named set of limits.
type Plan struct {
	ID        string
	Name      string
	Limits    tenants.Limits
	CreatedAt time.Time
}

func scanPlan(row pgx.CollectableRow) (Plan, error) {
	var p Plan
	return p, row.Scan(&p.ID, &p.Name, &p.Limits, &p.CreatedAt)
}

// CreatePlan adds a plan; tx is a worker's. Plans are never changed.
func CreatePlan(ctx context.Context, tx pgx.Tx, name string, l tenants.Limits) (*Plan, error) {
	p, err := one(ctx, tx, scanPlan, `INSERT INTO plans (id, name, limits) VALUES ($1, $2, $3)
		RETURNING id, name, limits, created_at`, tenants.NewID(tenants.PrefixPlan), name, l)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: a plan named %q", ErrConflict, name)
	}
	return p, err
}

// GetPlan reads a plan by its id or its name.
func GetPlan(ctx context.Context, tx pgx.Tx, ref string) (*Plan, error) {
	return one(ctx, tx, scanPlan, `SELECT id, name, limits, created_at FROM plans WHERE id = $1 OR name = $1`, ref)
}

// ListPlans lists plans by id after the given one.
func ListPlans(ctx context.Context, tx pgx.Tx, after string, limit int) ([]Plan, error) {
	return many(ctx, tx, scanPlan, `SELECT id, name, limits, created_at FROM plans WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// Tenant is a customer.
type Tenant struct {
	ID        string
	Name      string
	PlanID    string
	CreatedAt time.Time
}

func scanTenant(row pgx.CollectableRow) (Tenant, error) {
	var t Tenant
	return t, row.Scan(&t.ID, &t.Name, &t.PlanID, &t.CreatedAt)
}

// CreateTenant adds a tenant; tx is a worker's.
func CreateTenant(ctx context.Context, tx pgx.Tx, name, planID string) (*Tenant, error) {
	t, err := one(ctx, tx, scanTenant, `INSERT INTO tenants (id, name, plan_id) VALUES ($1, $2, $3)
		RETURNING id, name, plan_id, created_at`, tenants.NewID(tenants.PrefixTenant), name, planID)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: a tenant named %q", ErrConflict, name)
	}
	return t, err
}

// GetTenant reads a tenant; under a tenant's transaction only its own exists.
func GetTenant(ctx context.Context, tx pgx.Tx, id string) (*Tenant, error) {
	return one(ctx, tx, scanTenant, `SELECT id, name, plan_id, created_at FROM tenants WHERE id = $1`, id)
}

// ListTenants lists tenants by id after the given one; under a tenant's
// transaction only its own exists.
func ListTenants(ctx context.Context, tx pgx.Tx, after string, limit int) ([]Tenant, error) {
	return many(ctx, tx, scanTenant, `SELECT id, name, plan_id, created_at FROM tenants WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// Limits reads what the tenant's plan allows.
func Limits(ctx context.Context, tx pgx.Tx, tenant string) (tenants.Limits, error) {
	l, err := one(ctx, tx, pgx.RowTo[tenants.Limits], `SELECT p.limits FROM tenants t JOIN plans p ON p.id = t.plan_id WHERE t.id = $1`, tenant)
	if err != nil {
		return tenants.Limits{}, err
	}
	return *l, nil
}

// Account is a tenant's automation account.
type Account struct {
	ID        string
	Name      string
	Role      string // admin, viewer
	CreatedAt time.Time
}

func scanAccount(row pgx.CollectableRow) (Account, error) {
	var a Account
	return a, row.Scan(&a.ID, &a.Name, &a.Role, &a.CreatedAt)
}

// CreateAccount adds an automation account without a secret.
func CreateAccount(ctx context.Context, tx pgx.Tx, tenant, name, role string) (*Account, error) {
	a, err := one(ctx, tx, scanAccount, `INSERT INTO accounts (tenant_id, id, name, role) VALUES ($1, $2, $3, $4)
		RETURNING id, name, role, created_at`, tenant, tenants.NewID(tenants.PrefixAutomation), name, role)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: an account named %q", ErrConflict, name)
	}
	return a, err
}

// ListAccounts lists a tenant's automation accounts by id after the given one.
func ListAccounts(ctx context.Context, tx pgx.Tx, tenant, after string, limit int) ([]Account, error) {
	return many(ctx, tx, scanAccount, `SELECT id, name, role, created_at FROM accounts
		WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3`, tenant, after, limit)
}

// DeleteAccount removes an automation account and its secrets.
func DeleteAccount(ctx context.Context, tx pgx.Tx, tenant, id string) error {
	if _, err := tx.Exec(ctx, `DELETE FROM secrets WHERE tenant_id = $1 AND account_id = $2`, tenant, id); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, `DELETE FROM accounts WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return err
}

// CountAccounts counts a tenant's automation accounts.
func CountAccounts(ctx context.Context, tx pgx.Tx, tenant string) (int, error) {
	n, err := one(ctx, tx, pgx.RowTo[int], `SELECT count(*) FROM accounts WHERE tenant_id = $1`, tenant)
	if err != nil {
		return 0, err
	}
	return *n, nil
}

// Member is a person of a tenant.
type Member struct {
	ID        string
	Email     string
	Role      string // admin, viewer
	CreatedAt time.Time
}

func scanMember(row pgx.CollectableRow) (Member, error) {
	var m Member
	return m, row.Scan(&m.ID, &m.Email, &m.Role, &m.CreatedAt)
}

// CreateMember adds a person.
func CreateMember(ctx context.Context, tx pgx.Tx, tenant, email, role string) (*Member, error) {
	m, err := one(ctx, tx, scanMember, `INSERT INTO members (tenant_id, id, email, role) VALUES ($1, $2, $3, $4)
		RETURNING id, email, role, created_at`, tenant, tenants.NewID(tenants.PrefixMember), email, role)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: a member with this address", ErrConflict)
	}
	return m, err
}

// ListMembers lists a tenant's people by id after the given one.
func ListMembers(ctx context.Context, tx pgx.Tx, tenant, after string, limit int) ([]Member, error) {
	return many(ctx, tx, scanMember, `SELECT id, email, role, created_at FROM members
		WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3`, tenant, after, limit)
}

// DeleteMember removes a person.
func DeleteMember(ctx context.Context, tx pgx.Tx, tenant, id string) error {
	tag, err := tx.Exec(ctx, `DELETE FROM members WHERE tenant_id = $1 AND id = $2`, tenant, id)
	if err == nil && tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return err
}

// ServiceAccount is an identity that logs in at one cluster's brokers.
type ServiceAccount struct {
	ID          string
	ClusterID   string
	Name        string
	Description string
	CreatedAt   time.Time
}

const serviceAccountColumns = `id, cluster_id, name, description, created_at`

func scanServiceAccount(row pgx.CollectableRow) (ServiceAccount, error) {
	var s ServiceAccount
	return s, row.Scan(&s.ID, &s.ClusterID, &s.Name, &s.Description, &s.CreatedAt)
}

// CreateServiceAccount adds a service account without a secret.
func CreateServiceAccount(ctx context.Context, tx pgx.Tx, tenant, clusterID, name, description string) (*ServiceAccount, error) {
	s, err := one(ctx, tx, scanServiceAccount, `INSERT INTO service_accounts (tenant_id, cluster_id, id, name, description)
		VALUES ($1, $2, $3, $4, $5) RETURNING `+serviceAccountColumns,
		tenant, clusterID, tenants.NewID(tenants.PrefixServiceAccount), name, description)
	if isConflict(err) {
		return nil, fmt.Errorf("%w: a service account named %q", ErrConflict, name)
	}
	return s, err
}

// GetServiceAccount reads a live service account.
func GetServiceAccount(ctx context.Context, tx pgx.Tx, tenant, clusterID, id string) (*ServiceAccount, error) {
	return one(ctx, tx, scanServiceAccount, `SELECT `+serviceAccountColumns+` FROM service_accounts
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3 AND deletion_requested_at IS NULL`, tenant, clusterID, id)
}

// ListServiceAccounts lists a cluster's live service accounts by id after the given one.
func ListServiceAccounts(ctx context.Context, tx pgx.Tx, tenant, clusterID, after string, limit int) ([]ServiceAccount, error) {
	return many(ctx, tx, scanServiceAccount, `SELECT `+serviceAccountColumns+` FROM service_accounts
		WHERE tenant_id = $1 AND cluster_id = $2 AND id > $3 AND deletion_requested_at IS NULL ORDER BY id LIMIT $4`,
		tenant, clusterID, after, limit)
}

// CountServiceAccounts counts a cluster's service accounts, those being deleted too.
func CountServiceAccounts(ctx context.Context, tx pgx.Tx, tenant, clusterID string) (int, error) {
	n, err := one(ctx, tx, pgx.RowTo[int], `SELECT count(*) FROM service_accounts WHERE tenant_id = $1 AND cluster_id = $2`, tenant, clusterID)
	if err != nil {
		return 0, err
	}
	return *n, nil
}

// RequestServiceAccountDeletion ends a service account: its secrets go at
// once, the row when the brokers have dropped its quota and access rules.
func RequestServiceAccountDeletion(ctx context.Context, tx pgx.Tx, tenant, clusterID, id string) error {
	tag, err := tx.Exec(ctx, `UPDATE service_accounts SET deletion_requested_at = now()
		WHERE tenant_id = $1 AND cluster_id = $2 AND id = $3 AND deletion_requested_at IS NULL`, tenant, clusterID, id)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	_, err = tx.Exec(ctx, `DELETE FROM secrets WHERE tenant_id = $1 AND service_account_id = $2`, tenant, id)
	return err
}
