package cluster

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// UsageTotal is the sum of one principal and direction over all brokers and
// all their boots.
type UsageTotal struct {
	Principal string
	Direction string
	Bytes     int64
	Records   int64
	Requests  int64
}

// Usage is what a cluster has moved so far.
type Usage struct {
	Entries []UsageTotal
	AsOf    *time.Time // of the newest counter; nil when there is none
	ReadAt  *time.Time // since when nothing older can be missing; nil when never read
}

// UsageTotals sums the ledger's newest cumulative counters. Billing's ledger
// writes those rows; see usage_counters in the schema.
func UsageTotals(ctx context.Context, tx pgx.Tx, tenant, clusterID string) (Usage, error) {
	var u Usage
	err := tx.QueryRow(ctx, `SELECT (SELECT max(at) FROM usage_counters WHERE tenant_id = $1 AND cluster_id = $2),
		(SELECT nullif(min(read_at), 'epoch') FROM usage_offsets WHERE tenant_id = $1 AND cluster_id = $2)`, tenant, clusterID).Scan(&u.AsOf, &u.ReadAt)
	if err != nil {
		return u, err
	}
	u.Entries, err = query(ctx, tx, pgx.RowToStructByPos[UsageTotal], `SELECT principal, direction,
		sum(bytes)::bigint, sum(records)::bigint, sum(requests)::bigint FROM usage_counters
		WHERE tenant_id = $1 AND cluster_id = $2 GROUP BY principal, direction ORDER BY principal, direction`, tenant, clusterID)
	return u, err
}
