package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/audit"
	"penstock/tenants"
	"penstock/tenants/registry"
)

// maxAutomation bounds the automation accounts of one tenant.
const maxAutomation = 100

func wireTenant(t registry.Tenant) wire.Tenant {
	return wire.Tenant{ID: t.ID, Name: t.Name, PlanID: t.PlanID, CreatedAt: t.CreatedAt}
}

func wireSecret(s registry.Secret) wire.Secret {
	return wire.Secret{ID: s.ID, Prefix: s.Prefix, ExpiresAt: s.ExpiresAt, LastUsedAt: s.LastUsedAt, CreatedAt: s.CreatedAt}
}

func newSecret(client string, s *registry.Secret, plain string) wire.NewSecret {
	return wire.NewSecret{ID: s.ID, ClientID: client, ClientSecret: plain, ExpiresAt: s.ExpiresAt}
}

func wireAccount(a registry.Account, secrets []registry.Secret) wire.Account {
	return wire.Account{ID: a.ID, Name: a.Name, Role: a.Role, Secrets: mapAll(secrets, wireSecret), CreatedAt: a.CreatedAt}
}

type TenantPath struct {
	Tenant string `path:"tenant" maxLength:"64"`
}

// within runs fn under the named tenant's row security: a tenant's own, or any
// that exists for operators. Another tenant does not exist for a tenant.
func (a *API) within(ctx context.Context, c *caller, tenant string, fn func(tx pgx.Tx) error) error {
	if !c.Operator && c.TenantID != tenant {
		return registry.ErrNotFound
	}
	if !tenants.ValidID(tenants.PrefixTenant, tenant) {
		return registry.ErrNotFound
	}
	return a.cfg.DB.AsTenant(ctx, tenant, func(tx pgx.Tx) error {
		if _, err := registry.GetTenant(ctx, tx, tenant); err != nil {
			return err
		}
		return fn(tx)
	})
}

func (a *API) registerTenants() {
	register(a, operatorOnly, huma.Operation{OperationID: "create-tenant", Method: http.MethodPost, Path: "/v1/tenants", Tags: []string{"tenants"}, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, c *caller, in *struct {
			Idempotency
			Body wire.CreateTenant
		}) (*output[wire.Tenant], error) {
			if err := tenants.CheckTenantName(in.Body.Name); err != nil {
				return nil, invalid("body.name", err.Error())
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.Tenant, error) {
				p, err := registry.GetPlan(ctx, tx, in.Body.Plan)
				if err != nil {
					return wire.Tenant{}, invalid("body.plan", "no such plan")
				}
				t, err := registry.CreateTenant(ctx, tx, in.Body.Name, p.ID)
				if err != nil {
					return wire.Tenant{}, err
				}
				return wireTenant(*t), note(ctx, tx, audit.System, c, "tenant.create", t.ID, map[string]any{"name": t.Name, "plan": p.ID})
			})
			return answer(http.StatusCreated, out), err
		})

	register(a, anyone, huma.Operation{OperationID: "list-tenants", Method: http.MethodGet, Path: "/v1/tenants", Tags: []string{"tenants"}},
		func(ctx context.Context, c *caller, in *struct{ Paging }) (*output[wire.Page[wire.Tenant]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var found []registry.Tenant
			err = a.tx(ctx, c, func(tx pgx.Tx) (err error) {
				found, err = registry.ListTenants(ctx, tx, after, in.Limit)
				return err
			})
			next := a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].ID })
			return answer(http.StatusOK, wire.Page[wire.Tenant]{Items: mapAll(found, wireTenant), Next: next}), err
		})

	register(a, anyone, huma.Operation{OperationID: "get-tenant", Method: http.MethodGet, Path: "/v1/tenants/{tenant}", Tags: []string{"tenants"}},
		func(ctx context.Context, c *caller, in *TenantPath) (*output[wire.Tenant], error) {
			var out wire.Tenant
			err := a.within(ctx, c, in.Tenant, func(tx pgx.Tx) error {
				t, err := registry.GetTenant(ctx, tx, in.Tenant)
				if err == nil {
					out = wireTenant(*t)
				}
				return err
			})
			return answer(http.StatusOK, out), err
		})

	register(a, tenantOrOps, huma.Operation{OperationID: "create-account", Method: http.MethodPost, Path: "/v1/tenants/{tenant}/accounts", Tags: []string{"accounts"},
		DefaultStatus: http.StatusCreated, Description: "Makes an automation account. The answer holds its secret, which is never shown again."},
		func(ctx context.Context, c *caller, in *struct {
			TenantPath
			Idempotency
			Body wire.CreateAccount
		}) (*output[wire.NewAccount], error) {
			if err := tenants.CheckAccountName(in.Body.Name); err != nil {
				return nil, invalid("body.name", err.Error())
			}
			// The stored answer of an operator's call belongs to the tenant's rows as well.
			as := *c
			as.TenantID = in.Tenant
			run := func(ctx context.Context, fn func(tx pgx.Tx) error) error { return a.within(ctx, c, in.Tenant, fn) }
			out, err := once(ctx, a, &as, in.Idempotency, in.Body, http.StatusCreated, run, func(tx pgx.Tx) (wire.NewAccount, error) {
				var out wire.NewAccount
				n, err := registry.CountAccounts(ctx, tx, in.Tenant)
				if err != nil {
					return out, err
				}
				if err := tenants.CheckCount("automation accounts", n, 1, maxAutomation); err != nil {
					return out, err
				}
				acc, err := registry.CreateAccount(ctx, tx, in.Tenant, in.Body.Name, in.Body.Role)
				if err != nil {
					return out, err
				}
				s, plain, err := registry.AddSecret(ctx, tx, in.Tenant, registry.Owner{AccountID: acc.ID}, 0)
				if err != nil {
					return out, err
				}
				out.Account, out.Secret = wireAccount(*acc, []registry.Secret{*s}), newSecret(acc.ID, s, plain)
				return out, note(ctx, tx, in.Tenant, c, "account.create", acc.ID, map[string]any{"name": acc.Name, "role": acc.Role, "secret": s.ID})
			})
			return answer(http.StatusCreated, out), err
		})

	register(a, tenantOrOps, huma.Operation{OperationID: "list-accounts", Method: http.MethodGet, Path: "/v1/tenants/{tenant}/accounts", Tags: []string{"accounts"}},
		func(ctx context.Context, c *caller, in *struct {
			TenantPath
			Paging
		}) (*output[wire.Page[wire.Account]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var page wire.Page[wire.Account]
			err = a.within(ctx, c, in.Tenant, func(tx pgx.Tx) error {
				found, err := registry.ListAccounts(ctx, tx, in.Tenant, after, in.Limit)
				if err != nil {
					return err
				}
				ids := mapAll(found, func(x registry.Account) string { return x.ID })
				secrets, err := registry.SecretsByOwner(ctx, tx, in.Tenant, ids)
				page.Items = mapAll(found, func(x registry.Account) wire.Account { return wireAccount(x, secrets[x.ID]) })
				page.Next = a.next(ctx, c, in.Paging, len(ids), func() string { return ids[len(ids)-1] })
				return err
			})
			return answer(http.StatusOK, page), err
		})
}

// AutomationPath names an automation account.
type AutomationPath struct {
	TenantPath
	Automation string `path:"automation" maxLength:"64"`
}

// registerAccountSecrets adds what ends or renews an automation account.
func (a *API) registerAccountSecrets() {
	register(a, tenantOrOps, huma.Operation{OperationID: "delete-account", Method: http.MethodDelete, Path: "/v1/tenants/{tenant}/accounts/{automation}", Tags: []string{"accounts"},
		Description: "It gets no new token from now on; a token it has lives until it expires, at most 15 minutes."},
		func(ctx context.Context, c *caller, in *AutomationPath) (*struct{}, error) {
			return nil, a.within(ctx, c, in.Tenant, func(tx pgx.Tx) error {
				if err := registry.DeleteAccount(ctx, tx, in.Tenant, in.Automation); err != nil {
					return err
				}
				return note(ctx, tx, in.Tenant, c, "account.delete", in.Automation, nil)
			})
		})

	register(a, tenantOrOps, huma.Operation{OperationID: "create-account-secret", Method: http.MethodPost, Path: "/v1/tenants/{tenant}/accounts/{automation}/secrets", Tags: []string{"accounts"},
		DefaultStatus: http.StatusCreated, Description: "Adds a second live secret, so that the first can be replaced without a gap."},
		func(ctx context.Context, c *caller, in *struct {
			AutomationPath
			Idempotency
			Body wire.CreateSecret
		}) (*output[wire.NewSecret], error) {
			as := *c
			as.TenantID = in.Tenant
			run := func(ctx context.Context, fn func(tx pgx.Tx) error) error { return a.within(ctx, c, in.Tenant, fn) }
			out, err := once(ctx, a, &as, in.Idempotency, in.Body, http.StatusCreated, run, func(tx pgx.Tx) (wire.NewSecret, error) {
				s, plain, err := registry.AddSecret(ctx, tx, in.Tenant, registry.Owner{AccountID: in.Automation}, time.Duration(in.Body.ExpiresInSeconds)*time.Second)
				if err != nil {
					return wire.NewSecret{}, err
				}
				return newSecret(in.Automation, s, plain), note(ctx, tx, in.Tenant, c, "secret.create", s.ID, map[string]any{"account": in.Automation})
			})
			return answer(http.StatusCreated, out), err
		})

	register(a, tenantOrOps, huma.Operation{OperationID: "delete-account-secret", Method: http.MethodDelete, Path: "/v1/tenants/{tenant}/accounts/{automation}/secrets/{secret}", Tags: []string{"accounts"}},
		func(ctx context.Context, c *caller, in *struct {
			AutomationPath
			Secret string `path:"secret" maxLength:"64"`
		}) (*struct{}, error) {
			return nil, a.within(ctx, c, in.Tenant, func(tx pgx.Tx) error {
				if err := registry.RevokeSecret(ctx, tx, in.Tenant, registry.Owner{AccountID: in.Automation}, in.Secret); err != nil {
					return err
				}
				return note(ctx, tx, in.Tenant, c, "secret.revoke", in.Secret, map[string]any{"account": in.Automation})
			})
		})
}
