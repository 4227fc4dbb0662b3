package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/audit"
	"penstock/tenants"
	"penstock/tenants/registry"
)

func wirePlan(p registry.Plan) wire.Plan {
	return wire.Plan{ID: p.ID, Name: p.Name, Limits: p.Limits, CreatedAt: p.CreatedAt}
}

func mapAll[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

func (a *API) registerPlans() {
	register(a, anyone, huma.Operation{OperationID: "list-plans", Method: http.MethodGet, Path: "/v1/plans", Tags: []string{"plans"}},
		func(ctx context.Context, c *caller, in *struct{ Paging }) (*output[wire.Page[wire.Plan]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var plans []registry.Plan
			err = a.tx(ctx, c, func(tx pgx.Tx) (err error) {
				plans, err = registry.ListPlans(ctx, tx, after, in.Limit)
				return err
			})
			next := a.next(ctx, c, in.Paging, len(plans), func() string { return plans[len(plans)-1].ID })
			return answer(http.StatusOK, wire.Page[wire.Plan]{Items: mapAll(plans, wirePlan), Next: next}), err
		})

	register(a, anyone, huma.Operation{OperationID: "get-plan", Method: http.MethodGet, Path: "/v1/plans/{plan}", Tags: []string{"plans"}},
		func(ctx context.Context, c *caller, in *struct {
			Plan string `path:"plan" maxLength:"64"`
		}) (*output[wire.Plan], error) {
			var p *registry.Plan
			if err := a.tx(ctx, c, func(tx pgx.Tx) (err error) {
				p, err = registry.GetPlan(ctx, tx, in.Plan)
				return err
			}); err != nil {
				return nil, err
			}
			return answer(http.StatusOK, wirePlan(*p)), nil
		})

	register(a, operatorOnly, huma.Operation{OperationID: "create-plan", Method: http.MethodPost, Path: "/v1/plans", Tags: []string{"plans"}, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, c *caller, in *struct {
			Idempotency
			Body wire.CreatePlan
		}) (*output[wire.Plan], error) {
			if err := tenants.CheckAccountName(in.Body.Name); err != nil { // the same rule for every label
				return nil, invalid("body.name", err.Error())
			}
			if err := in.Body.Limits.Validate(); err != nil {
				return nil, invalid("body.limits", err.Error())
			}
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.Plan, error) {
				p, err := registry.CreatePlan(ctx, tx, in.Body.Name, in.Body.Limits)
				if err != nil {
					return wire.Plan{}, err
				}
				return wirePlan(*p), note(ctx, tx, audit.System, c, "plan.create", p.ID, map[string]any{"name": p.Name, "limits": p.Limits})
			})
			return answer(http.StatusCreated, out), err
		})
}
