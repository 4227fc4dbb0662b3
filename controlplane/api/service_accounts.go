package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

type AccountPath struct {
	ClusterPath
	Account string `path:"account" maxLength:"64"`
}

func wireServiceAccount(s registry.ServiceAccount, secrets []registry.Secret) wire.ServiceAccount {
	return wire.ServiceAccount{ID: s.ID, Name: s.Name, Description: s.Description, ClusterID: s.ClusterID,
		Principal: tenants.Principal(s.ID), Secrets: mapAll(secrets, wireSecret), CreatedAt: s.CreatedAt}
}

func (a *API) registerServiceAccounts() {
	const base = "/v1/clusters/{cluster}/service-accounts"

	register(a, tenantWrites, huma.Operation{OperationID: "create-service-account", Method: http.MethodPost, Path: base, Tags: []string{"service accounts"},
		DefaultStatus: http.StatusCreated, Description: "The answer holds the account's first secret, which is never shown again."},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Idempotency
			Body wire.CreateServiceAccount
		}) (*output[wire.NewServiceAccount], error) {
			if err := tenants.CheckAccountName(in.Body.Name); err != nil {
				return nil, invalid("body.name", err.Error())
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.NewServiceAccount, error) {
				return a.createServiceAccount(ctx, tx, c, in.Cluster, in.Body)
			})
			o := answer(http.StatusCreated, out)
			o.Location = "/v1/clusters/" + in.Cluster + "/service-accounts/" + out.ServiceAccount.ID
			return o, err
		})

	register(a, tenantReads, huma.Operation{OperationID: "list-service-accounts", Method: http.MethodGet, Path: base, Tags: []string{"service accounts"}},
		func(ctx context.Context, c *caller, in *struct {
			ClusterPath
			Paging
		}) (*output[wire.Page[wire.ServiceAccount]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var page wire.Page[wire.ServiceAccount]
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.Get(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				found, err := registry.ListServiceAccounts(ctx, tx, c.TenantID, in.Cluster, after, in.Limit)
				if err != nil {
					return err
				}
				ids := mapAll(found, func(x registry.ServiceAccount) string { return x.ID })
				secrets, err := registry.SecretsByOwner(ctx, tx, c.TenantID, ids)
				page.Items = mapAll(found, func(x registry.ServiceAccount) wire.ServiceAccount { return wireServiceAccount(x, secrets[x.ID]) })
				page.Next = a.next(ctx, c, in.Paging, len(ids), func() string { return ids[len(ids)-1] })
				return err
			})
			return answer(http.StatusOK, page), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-service-account", Method: http.MethodGet, Path: base + "/{account}", Tags: []string{"service accounts"}},
		func(ctx context.Context, c *caller, in *AccountPath) (*output[wire.ServiceAccount], error) {
			var out wire.ServiceAccount
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				s, err := registry.GetServiceAccount(ctx, tx, c.TenantID, in.Cluster, in.Account)
				if err != nil {
					return err
				}
				secrets, err := registry.Secrets(ctx, tx, c.TenantID, registry.Owner{ServiceAccountID: s.ID})
				out = wireServiceAccount(*s, secrets)
				return err
			})
			return answer(http.StatusOK, out), err
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-service-account", Method: http.MethodDelete, Path: base + "/{account}", Tags: []string{"service accounts"},
		Description: "It gets no new token from now on. Within seconds the brokers refuse the tokens it has and cut its connections; its quota and access rules go."},
		func(ctx context.Context, c *caller, in *AccountPath) (*struct{}, error) {
			return nil, a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				if err := registry.RequestServiceAccountDeletion(ctx, tx, c.TenantID, in.Cluster, in.Account); err != nil {
					return err
				}
				return cluster.DeleteAccountObjects(ctx, tx, c.TenantID, in.Cluster, in.Account, c.by(ctx))
			})
		})

	register(a, tenantWrites, huma.Operation{OperationID: "create-secret", Method: http.MethodPost, Path: base + "/{account}/secrets", Tags: []string{"service accounts"},
		DefaultStatus: http.StatusCreated, Description: "Adds a second live secret, so that the first can be replaced without a gap."},
		func(ctx context.Context, c *caller, in *struct {
			AccountPath
			Idempotency
			Body wire.CreateSecret
		}) (*output[wire.NewSecret], error) {
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.NewSecret, error) {
				if _, err := registry.GetServiceAccount(ctx, tx, c.TenantID, in.Cluster, in.Account); err != nil {
					return wire.NewSecret{}, err
				}
				s, plain, err := registry.AddSecret(ctx, tx, c.TenantID, registry.Owner{ServiceAccountID: in.Account}, time.Duration(in.Body.ExpiresInSeconds)*time.Second)
				if err != nil {
					return wire.NewSecret{}, err
				}
				return newSecret(in.Account, s, plain), note(ctx, tx, c.TenantID, c, "secret.create", s.ID, map[string]any{"service_account": in.Account})
			})
			return answer(http.StatusCreated, out), err
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-secret", Method: http.MethodDelete, Path: base + "/{account}/secrets/{secret}", Tags: []string{"service accounts"},
		Description: "No new token is given for it from now on. Within seconds the brokers refuse the tokens that were, and cut the connections that logged in with one; what uses the account's other secret goes on."},
		func(ctx context.Context, c *caller, in *struct {
			AccountPath
			Secret string `path:"secret" maxLength:"64"`
		}) (*struct{}, error) {
			return nil, a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				if _, err := registry.GetServiceAccount(ctx, tx, c.TenantID, in.Cluster, in.Account); err != nil {
					return err
				}
				if err := registry.RevokeSecret(ctx, tx, c.TenantID, registry.Owner{ServiceAccountID: in.Account}, in.Secret); err != nil {
					return err
				}
				return cluster.RevokeSecret(ctx, tx, c.TenantID, in.Cluster, in.Account, in.Secret, c.by(ctx))
			})
		})
}

func (a *API) createServiceAccount(ctx context.Context, tx pgx.Tx, c *caller, clusterID string, in wire.CreateServiceAccount) (wire.NewServiceAccount, error) {
	var out wire.NewServiceAccount
	if _, err := cluster.LockWritable(ctx, tx, c.TenantID, clusterID); err != nil {
		return out, err
	}
	limits, err := registry.Limits(ctx, tx, c.TenantID)
	if err != nil {
		return out, err
	}
	n, err := registry.CountServiceAccounts(ctx, tx, c.TenantID, clusterID)
	if err != nil {
		return out, err
	}
	if err := tenants.CheckCount("service accounts of the cluster", n, 1, limits.ServiceAccounts); err != nil {
		return out, err
	}
	s, err := registry.CreateServiceAccount(ctx, tx, c.TenantID, clusterID, in.Name, in.Description)
	if err != nil {
		return out, err
	}
	secret, plain, err := registry.AddSecret(ctx, tx, c.TenantID, registry.Owner{ServiceAccountID: s.ID}, 0)
	if err != nil {
		return out, err
	}
	out.ServiceAccount, out.Secret = wireServiceAccount(*s, []registry.Secret{*secret}), newSecret(s.ID, secret, plain)
	return out, note(ctx, tx, c.TenantID, c, "service_account.create", s.ID, map[string]any{"cluster": clusterID, "name": s.Name, "secret": secret.ID})
}
