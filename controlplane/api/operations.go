package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
)

func (a *API) registerOperations() {
	register(a, tenantReads, huma.Operation{OperationID: "list-operations", Method: http.MethodGet, Path: "/v1/operations", Tags: []string{"operations"},
		Description: "Newest first."},
		func(ctx context.Context, c *caller, in *struct{ Paging }) (*output[wire.Page[wire.Operation]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var found []cluster.Operation
			err = a.tx(ctx, c, func(tx pgx.Tx) (err error) {
				found, err = cluster.ListOperations(ctx, tx, c.TenantID, cluster.Page{After: after, Limit: in.Limit})
				return err
			})
			next := a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].ID })
			return answer(http.StatusOK, wire.Page[wire.Operation]{Items: mapAll(found, wireOperation), Next: next}), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "get-operation", Method: http.MethodGet, Path: "/v1/operations/{operation}", Tags: []string{"operations"},
		Description: "With a wait: holds until the operation has ended."},
		func(ctx context.Context, c *caller, in *struct {
			Operation string `path:"operation" maxLength:"64"`
			Waiting
		}) (*output[wire.Operation], error) {
			var out wire.Operation
			err := a.await(ctx, c, in.Waiting, func(tx pgx.Tx) (bool, error) {
				op, err := cluster.GetOperation(ctx, tx, c.TenantID, in.Operation)
				if err != nil {
					return false, err
				}
				out = wireOperation(*op)
				return op.FinishedAt != nil, nil
			})
			return answer(http.StatusOK, out), err
		})
}
