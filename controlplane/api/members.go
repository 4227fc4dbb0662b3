package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/tenants/registry"
)

func wireMember(m registry.Member) wire.Member {
	return wire.Member{ID: m.ID, Email: m.Email, Role: m.Role, CreatedAt: m.CreatedAt}
}

func (a *API) registerMembers() {
	register(a, tenantWrites, huma.Operation{OperationID: "create-member", Method: http.MethodPost, Path: "/v1/members", Tags: []string{"members"}, DefaultStatus: http.StatusCreated},
		func(ctx context.Context, c *caller, in *struct {
			Idempotency
			Body wire.CreateMember
		}) (*output[wire.Member], error) {
			out, err := once(ctx, a, c, in.Idempotency, in.Body, http.StatusCreated, a.own(c), func(tx pgx.Tx) (wire.Member, error) {
				m, err := registry.CreateMember(ctx, tx, c.TenantID, in.Body.Email, in.Body.Role)
				if err != nil {
					return wire.Member{}, err
				}
				return wireMember(*m), note(ctx, tx, c.TenantID, c, "member.create", m.ID, map[string]any{"role": m.Role})
			})
			return answer(http.StatusCreated, out), err
		})

	register(a, tenantReads, huma.Operation{OperationID: "list-members", Method: http.MethodGet, Path: "/v1/members", Tags: []string{"members"}},
		func(ctx context.Context, c *caller, in *struct{ Paging }) (*output[wire.Page[wire.Member]], error) {
			after, err := a.after(ctx, c, in.Paging)
			if err != nil {
				return nil, err
			}
			var found []registry.Member
			err = a.tx(ctx, c, func(tx pgx.Tx) (err error) {
				found, err = registry.ListMembers(ctx, tx, c.TenantID, after, in.Limit)
				return err
			})
			next := a.next(ctx, c, in.Paging, len(found), func() string { return found[len(found)-1].ID })
			return answer(http.StatusOK, wire.Page[wire.Member]{Items: mapAll(found, wireMember), Next: next}), err
		})

	register(a, tenantWrites, huma.Operation{OperationID: "delete-member", Method: http.MethodDelete, Path: "/v1/members/{member}", Tags: []string{"members"}},
		func(ctx context.Context, c *caller, in *struct {
			Member string `path:"member" maxLength:"64"`
		}) (*struct{}, error) {
			return nil, a.tx(ctx, c, func(tx pgx.Tx) error {
				if err := registry.DeleteMember(ctx, tx, c.TenantID, in.Member); err != nil {
					return err
				}
				return note(ctx, tx, c.TenantID, c, "member.delete", in.Member, nil)
			})
		})
}
