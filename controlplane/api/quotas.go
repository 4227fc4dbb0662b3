package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func wireQuota(q cluster.Quota) wire.Quota {
	return wire.Quota{ServiceAccountID: q.ServiceAccountID, BytesInPerSecond: q.BytesInPerSecond, BytesOutPerSecond: q.BytesOutPerSecond,
		RequestPercentage: q.RequestPercentage, Status: wireStatus(q.Applied), UpdatedAt: q.UpdatedAt}
}

func checkQuota(in wire.PutQuota, l tenants.Limits) error {
	check := func(field string, ok bool) error {
		if ok {
			return nil
		}
		return refuse(http.StatusForbidden, "limit-exceeded", field+" is more than the plan allows")
	}
	if in.BytesInPerSecond == nil && in.BytesOutPerSecond == nil && in.RequestPercentage == nil {
		return invalid("body", "a quota limits something; delete it to lift all limits")
	}
	if v := in.BytesInPerSecond; v != nil {
		if err := check("bytes_in_per_second", *v <= l.ProduceBytesPerSecond); err != nil {
			return err
		}
	}
	if v := in.BytesOutPerSecond; v != nil {
		if err := check("bytes_out_per_second", *v <= l.FetchBytesPerSecond); err != nil {
			return err
		}
	}
	if v := in.RequestPercentage; v != nil {
		return check("request_percentage", *v <= l.RequestPercentage)
	}
	return nil
}

const quotaPath = "/v1/clusters/{cluster}/service-accounts/{account}/quota"

func (a *API) registerQuotas() {
	register(a, tenantWrites, huma.Operation{OperationID: "put-quota", Method: http.MethodPut, Path: quotaPath, Tags: []string{"quotas"},
		Description: "Sets what the service account may use of the whole cluster. Each broker enforces its share."},
		func(ctx context.Context, c *caller, in *struct {
			AccountPath
			Waiting
			IfMatch string `header:"If-Match" maxLength:"100"`
			Body    wire.PutQuota
		}) (*output[wire.Quota], error) {
			gen, err := generation(in.IfMatch)
			if err != nil {
				return nil, err
			}
			err = a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				if _, err := registry.GetServiceAccount(ctx, tx, c.TenantID, in.Cluster, in.Account); err != nil {
					return err
				}
				limits, err := registry.Limits(ctx, tx, c.TenantID)
				if err != nil {
					return err
				}
				if err := checkQuota(in.Body, limits); err != nil {
					return err
				}
				_, err = cluster.PutQuota(ctx, tx, c.TenantID, in.Cluster, in.Account, gen, cluster.QuotaParams(in.Body), c.by(ctx))
				return err
			})
			if err != nil {
				return nil, err
			}
			return a.quotaAnswer(ctx, c, in.AccountPath, in.Waiting)
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-quota", Method: http.MethodGet, Path: quotaPath, Tags: []string{"quotas"}},
		func(ctx context.Context, c *caller, in *struct {
			AccountPath
			Waiting
		}) (*output[wire.Quota], error) {
			return a.quotaAnswer(ctx, c, in.AccountPath, in.Waiting)
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-quota", Method: http.MethodDelete, Path: quotaPath, Tags: []string{"quotas"}, DefaultStatus: http.StatusAccepted},
		func(ctx context.Context, c *caller, in *struct {
			AccountPath
			Waiting
		}) (*gone, error) {
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.LockWritable(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				return cluster.DeleteQuota(ctx, tx, c.TenantID, in.Cluster, in.Account, c.by(ctx))
			})
			if err != nil {
				return nil, err
			}
			return a.awaitGone(ctx, c, in.Waiting, func(tx pgx.Tx) error {
				_, err := cluster.GetQuota(ctx, tx, c.TenantID, in.Cluster, in.Account)
				return err
			})
		})
}

func (a *API) quotaAnswer(ctx context.Context, c *caller, at AccountPath, w Waiting) (*output[wire.Quota], error) {
	var out wire.Quota
	err := a.await(ctx, c, w, func(tx pgx.Tx) (bool, error) {
		q, err := cluster.GetQuota(ctx, tx, c.TenantID, at.Cluster, at.Account)
		if err != nil {
			return false, err
		}
		out = wireQuota(*q)
		return settled(out.Status), nil
	})
	o := answer(http.StatusOK, out)
	o.ETag = etag(out.Status.Generation)
	return o, err
}
