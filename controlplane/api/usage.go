package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/jackc/pgx/v5"

	"penstock/controlplane/api/wire"
	"penstock/controlplane/cluster"
	"penstock/tenants"
)

func (a *API) registerUsage() {
	register(a, tenantReads, huma.Operation{OperationID: "get-usage", Method: http.MethodGet, Path: "/v1/clusters/{cluster}/usage", Tags: []string{"usage"},
		Description: "What each service account has produced (in) and fetched (out) since the cluster was made: bytes of record batches as they lie in the log."},
		func(ctx context.Context, c *caller, in *ClusterPath) (*output[wire.Usage], error) {
			out := wire.Usage{Entries: []wire.UsageEntry{}}
			err := a.tx(ctx, c, func(tx pgx.Tx) error {
				if _, err := cluster.Get(ctx, tx, c.TenantID, in.Cluster); err != nil {
					return err
				}
				totals, err := cluster.UsageTotals(ctx, tx, c.TenantID, in.Cluster)
				if err != nil {
					return err
				}
				out.AsOf, out.ReadAt = totals.AsOf, totals.ReadAt
				for _, e := range totals.Entries {
					w := wire.UsageEntry{Principal: e.Principal, Direction: e.Direction, Bytes: e.Bytes, Records: e.Records, Requests: e.Requests}
					if name := tenants.PrincipalName(e.Principal); strings.HasPrefix(name, tenants.PrefixServiceAccount+"_") {
						w.ServiceAccountID = name
					}
					out.Entries = append(out.Entries, w)
				}
				return nil
			})
			return answer(http.StatusOK, out), err
		})
}
